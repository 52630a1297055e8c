"""The raw layer with real files through the Spark data source: every kind of chain, forks, bad input, resuming."""

import json
from pathlib import Path

import pytest

from chainlake.demo.write import write_demo
from chainlake.errors import BadInput
from chainlake.lake import Lake, open_lake
from chainlake.sources.formats import DOMAIN_OF


def evm_line(height: int, branch: str = "a", parent: str | None = None) -> str:
    def name(branch: str, height: int) -> str:
        return "0x" + f"{branch}{height:x}".encode().hex().rjust(64, "0")

    block = {
        "number": hex(height),
        "hash": name(branch, height),
        "parentHash": parent or (name(branch, height - 1)),
        "timestamp": hex(height * 12),
        "transactions": ["0x" + f"{height:064x}"],
    }
    return json.dumps({"block": block, "logs": []})


def block_name(branch: str, height: int) -> str:
    return json.loads(evm_line(height, branch))["block"]["hash"]


@pytest.fixture
def lake(full_lake: Lake) -> Lake:
    return full_lake


def heads(lake: Lake, chain: str) -> list[tuple[int, str]]:
    rows = lake.table("raw.blocks", chain=chain).select("height", "hash").orderBy("height").collect()
    return [(row[0], "0x" + bytes(row[1]).hex()) for row in rows]


def test_demo_chains_of_every_kind_come_in_whole(demo_home: Path, tmp_path: Path) -> None:
    lake = open_lake(demo_home)
    chains = write_demo(tmp_path, None, "tiny")
    counts = {row["chain"]: row["count"] for row in lake.table("raw.blocks").groupBy("chain").count().collect()}
    assert {c.name: counts[c.name] for c in chains} == {c.name: c.blocks for c in chains}
    assert {row[0] for row in lake.table("raw.transactions").select("chain").distinct().collect()} == {c.name for c in chains}
    assert {c.kind for c in chains} == set(DOMAIN_OF)
    again = lake.run_stage("raw.cage")
    assert again["blocks"].sum() == 0, "a second run has nothing to do"
    assert lake.ledger.read().of("raw.cage", "demo-cardano").lowest_rollback_after(0) is not None, "its forks were followed"


def test_a_fork_is_followed_within_the_window_and_the_old_branch_stays_in_history(lake: Lake, chain: str, tmp_path: Path) -> None:
    path = tmp_path / "blocks.jsonl"
    old = [evm_line(h) for h in range(5, 12)]
    path.write_text("\n".join(old) + "\n")
    options = {"finalized": "false", "window": "5"}
    lake.ingest(chain, "evm", str(path), options)
    new = [evm_line(9, "b", block_name("a", 8)), *(evm_line(h, "b") for h in range(10, 14))]
    path.write_text("\n".join(old + new) + "\n")
    done = lake.run_stage("raw.logs", chains=chain)
    assert (done["height"][0], done["rollbacks"][0], done["status"][0]) == (13, 1, "ok")
    assert heads(lake, chain) == [(h, block_name("a" if h < 9 else "b", h)) for h in range(5, 14)]
    seq = lake.ledger.read().of("raw.logs", chain).commits[0].seq
    assert lake.table("raw.blocks", chain=chain, seq=seq).count() == 7
    deep = [evm_line(6, "c", block_name("a", 5))]
    path.write_text("\n".join(old + new + deep) + "\n")
    done = lake.run_stage("raw.logs", chains=chain)
    assert done["status"][0] == "degraded" and "more than the window of 5" in done["error"][0]
    assert heads(lake, chain)[-1] == (13, block_name("b", 13)), "nothing of it is visible"


def test_broken_input_degrades_names_the_block_keeps_what_came_before_and_resumes(lake: Lake, chain: str, tmp_path: Path) -> None:
    path = tmp_path / "blocks.jsonl"
    path.write_text("\n".join([evm_line(1), evm_line(2), '{"block": {"number": "0x3"', evm_line(4)]) + "\n")
    done = lake.ingest(chain, "evm", str(path))
    assert (done["height"][0], done["status"][0]) == (2, "degraded") and str(path) in done["error"][0]
    assert lake.run_stage("raw.logs", chains=chain)["status"][0] == "degraded", "it waits for an operator"
    with pytest.raises(BadInput, match="needs a reason"):
        lake.health.resume("raw.logs", chain, " ")
    for text, words in [
        (evm_line(4), "blocks 3 to 3 are missing"),
        (evm_line(3, "x"), "has parent"),
        (evm_line(2, "y", block_name("a", 1)), "finalized block 2 was replaced"),
    ]:
        path.write_text("\n".join([evm_line(1), evm_line(2), text]) + "\n")
        lake.health.resume("raw.logs", chain, "the file was mended")
        done = lake.run_stage("raw.logs", chains=chain)
        assert done["status"][0] == "degraded" and words in done["error"][0], done["error"][0]
    path.write_text("\n".join([evm_line(1), evm_line(2), evm_line(3)]) + "\n")
    lake.health.resume("raw.logs", chain, "now it is right")
    assert lake.run_stage("raw.logs", chains=chain)["height"][0] == 3


def test_another_file_with_blocks_we_hold_is_skipped_to_what_is_new(lake: Lake, chain: str, tmp_path: Path) -> None:
    (tmp_path / "one.jsonl").write_text("\n".join(evm_line(h) for h in range(0, 5)) + "\n")
    (tmp_path / "two.jsonl").write_text("\n".join(evm_line(h) for h in range(2, 9)) + "\n")
    lake.ingest(chain, "evm", str(tmp_path / "one.jsonl"))
    done = lake.ingest(chain, "evm", str(tmp_path / "two.jsonl"))
    assert (done["blocks"][0], done["height"][0]) == (4, 8)
    lake.rollback("raw.logs", chain, -1, why="all of it again")
    assert heads(lake, chain) == []
    lake.ingest(chain, "evm", str(tmp_path / "one.jsonl"))
    assert [h for h, _ in heads(lake, chain)] == [0, 1, 2, 3, 4]


def test_a_chain_needs_a_good_name_kind_path_and_options(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "f.jsonl").write_text(evm_line(0) + "\n")
    for arguments, words in [
        (("x y", "evm", str(tmp_path / "f.jsonl")), "chain name"),
        (("c", "btc", str(tmp_path / "f.jsonl")), "not a kind of chain"),
        (("c", "evm", str(tmp_path / "none.jsonl")), "none.jsonl"),
        (("c", "evm", str(tmp_path / "f.jsonl"), {"colour": "red"}), "no option"),
    ]:
        with pytest.raises(BadInput, match=words):
            lake.ingest(*arguments)  # type: ignore[arg-type]
