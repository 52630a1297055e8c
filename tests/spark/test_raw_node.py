"""The raw layer over a live node (a real HTTP server in this process), through the Spark data source."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chainlake.errors import BadInput, Unavailable
from chainlake.lake import Lake
from tests.unit.evm_node import FakeNode, Json, Reply, answers, made, serving

RETRY = {"retries": "1", "batch": "4"}


@pytest.fixture
def lake(full_lake: Lake) -> Lake:
    return full_lake


@pytest.fixture
def node() -> Iterator[FakeNode]:
    with serving(FakeNode(count=20)) as running:
        yield running


def held(lake: Lake, chain: str) -> list[tuple[int, bytes]]:
    rows = lake.table("raw.blocks", chain=chain).select("height", "hash").orderBy("height").collect()
    return [(row[0], bytes(row[1])) for row in rows]


def names(node: FakeNode) -> list[tuple[int, bytes]]:
    return [(height, bytes.fromhex(line["block"]["hash"][2:])) for height, line in enumerate(node.lines)]


def health(lake: Lake, chain: str) -> bool:
    return ("raw.logs", chain) not in lake.health.degraded()


def without_block(height: int) -> Any:
    """The node has no receipts of one block."""

    def fault(request: Any, found: list[Json]) -> Reply:
        for call, one in zip(request if isinstance(request, list) else [request], found, strict=True):
            if (call["method"], call["params"]) == ("eth_getBlockReceipts", [hex(height)]):
                one["result"] = None
        return answers(found, request)

    return fault


def test_a_node_gives_what_a_file_gives_and_is_followed(lake: Lake, chain: str, node: FakeNode, tmp_path: Path) -> None:
    done = lake.ingest(chain, "evm", node.url, RETRY)
    assert (done["height"][0], done["blocks"][0], done["status"][0]) == (19, 20, "ok")
    assert held(lake, chain) == names(node)
    assert lake.chain(chain).options == {**RETRY, "chain_id": "7"}
    (tmp_path / "blocks.jsonl").write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in node.lines))
    lake.ingest(f"{chain}-file"[-60:], "evm", str(tmp_path / "blocks.jsonl"))
    for table in ("raw.blocks", "raw.transactions"):
        mine, other = (lake.table(table, chain=one).drop("chain", "source", "position") for one in (chain, f"{chain}-file"[-60:]))
        assert mine.exceptAll(other).count() == other.exceptAll(mine).count() == 0
    assert {row[0] for row in lake.table("raw.blocks", chain=chain).select("source").distinct().collect()} == {node.url}
    node.lines, node.finalized = made(26, 1), 24
    assert node.lines[19]["block"]["hash"] == "0x" + held(lake, chain)[-1][1].hex(), "the same chain, longer"
    done = lake.run_stage("raw.logs", chains=chain)
    assert (done["height"][0], done["blocks"][0]) == (24, 5)
    assert lake.run_stage("raw.logs", chains=chain)["commits"][0] == 0


def test_an_outage_keeps_what_came_before_and_does_not_degrade(lake: Lake, chain: str, node: FakeNode) -> None:
    node.always = without_block(12)
    with pytest.raises(Unavailable, match=r"gave no usable block 12: the node does not have its receipts"):
        lake.ingest(chain, "evm", node.url, RETRY)
    assert held(lake, chain) == names(node)[:12]
    assert health(lake, chain)
    node.always = None
    assert lake.run_stage("raw.logs", chains=chain)["height"][0] == 19
    assert held(lake, chain) == names(node)


def test_a_node_that_is_gone_or_another_changes_nothing(lake: Lake, chain: str, node: FakeNode) -> None:
    lake.ingest(chain, "evm", node.url, {**RETRY, "finality": "latest:5"})
    before = held(lake, chain)
    with pytest.raises(Unavailable, match="cannot be reached"):
        lake.ingest(chain, "evm", "http://127.0.0.1:1", RETRY)
    with (
        serving(FakeNode(count=20, chain_id=8, seed=3)) as other,
        pytest.raises(BadInput, match="has chain id 8, this chain has 7"),
    ):
        lake.ingest(chain, "evm", other.url, RETRY)
    assert held(lake, chain) == before and health(lake, chain)
    assert lake.ingest(chain, "evm", node.url, RETRY)["height"][0] == 19


def test_forks_are_followed_where_blocks_are_not_final_and_refused_where_they_are(lake: Lake, chain: str, node: FakeNode) -> None:
    options = {**RETRY, "finality": "latest:2", "finalized": "false", "window": "10"}
    lake.ingest(chain, "evm", node.url, options)
    lake.ingest(f"final-{chain}"[:60], "evm", node.url, {**RETRY, "finality": "latest:2"})
    node.replace_from(14, seed=9)
    node.lines += _continued(node, 3)
    done = lake.run_stage("raw.logs", chains=chain)
    assert (done["height"][0], done["rollbacks"][0], done["status"][0]) == (20, 1, "ok")
    assert held(lake, chain) == names(node)[:21]
    done = lake.run_stage("raw.logs", chains=f"final-{chain}"[:60])
    assert done["status"][0] == "degraded" and "replaces ours, but its parent" in done["error"][0]


def test_a_key_reaches_the_readers_and_no_table(lake: Lake, chain: str, node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_NODE_KEY", "Bearer s3cret")
    lake.ingest(chain, "evm", f"{node.url}/${{TEST_NODE_KEY}}", {**RETRY, "header_env": "TEST_NODE_KEY"})
    assert {headers.get("Authorization") for headers in node.headers} == {"Bearer s3cret"}
    assert set(node.paths) == {"/Bearer%20s3cret"}
    rows = [str(row) for row in lake.control.read("chains")] + [
        str(row) for row in lake.table("raw.blocks", chain=chain).collect()
    ]
    assert not [row for row in rows if "s3cret" in row]


def _continued(node: FakeNode, count: int) -> list[Json]:
    """More blocks of another seed, linked to the node's last."""
    more = made(len(node.lines) + count, 9)[len(node.lines) :]
    more[0]["block"]["parentHash"] = node.lines[-1]["block"]["hash"]
    return more
