"""The cage from blocks to tables: what Spark makes of a chain is what a plain replay makes of it, at every height, whatever the
batches, the forks and the rollbacks; and it moves as one."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from chainlake.cage.checks import state_problems
from chainlake.cage.datums import Request, State
from chainlake.cage.decode import decode_block
from chainlake.cage.gold import ORDER, inverse_operations
from chainlake.cage.reader import CageReader
from chainlake.cage.transaction import TxIn
from chainlake.cli.main import main
from chainlake.demo import cage
from chainlake.demo.cage import Made
from chainlake.demo.cardano import array, header, mapping, uint
from chainlake.errors import BadInput
from chainlake.lake import Lake, compaction
from chainlake.lake.home import Home
from chainlake.lake.sql import query
from chainlake.lake.stage import SMALL_ROW_GROUPS, Batch
from chainlake.lake.verify import verify
from chainlake.merkle import mpf
from chainlake.merkle.blake import blake
from chainlake.sources.cbor_spans import children
from tests.spark.cage_images import Images
from tests.unit.cage_asking import ask, same_head
from tests.unit.cage_making import branches, canonical, replayed
from tests.unit.cage_replay import Replay

STAGES = ("bronze.cage", "silver.cage", "gold.cage")
STATE = ("owner", "root", "max_fee", "process_time", "retract_time")


def write(directory: Path, blocks: Sequence[Made], name: str = "blocks.chunk") -> str:
    path = directory / name
    path.write_bytes(b"".join(block.raw for block in blocks))
    return str(path)


def options(directory: Path, seed: int) -> dict[str, str]:
    _, genesis = cage.write(directory / "genesis", 1, seed)
    return cage.options(genesis)


def run(lake: Lake, chain: str, max_blocks: int | None = None) -> None:
    for stage in STAGES:
        done = lake.run_stage(stage, chains=chain, max_blocks=max_blocks)
        assert list(done["status"]) == ["ok"], list(done["error"])


def plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else value


def history(lake: Lake, chain: str, table: str) -> list[dict[str, Any]]:
    """Every after-image of a table, in the order of heights."""
    rows = [{name: plain(value) for name, value in row.asDict().items()} for row in lake.history(table, chain=chain).collect()]
    return sorted(rows, key=lambda row: row["_height"])


class Rows(dict[str, list[dict[str, Any]]]):
    """The after-images of silver tables, each read when it is first asked for."""

    def __init__(self, lake: Lake, chain: str) -> None:
        super().__init__()
        self.lake, self.chain = lake, chain

    def __missing__(self, name: str) -> list[dict[str, Any]]:
        self[name] = history(self.lake, self.chain, f"silver.{name}")
        return self[name]


class Tables:
    """Tables of a chain, all heights of them, read once."""

    def __init__(self, lake: Lake, chain: str) -> None:
        self.rows = Rows(lake, chain)

    def at(self, name: str, height: int, *key: str) -> dict[Any, dict[str, Any]]:
        """The state after a block, by key; two rows of a key at one height are refused."""
        found: dict[Any, dict[str, Any]] = {}
        seen = set()
        for row in self.rows[name]:
            own = tuple(row[column] for column in key)
            if row["_height"] <= height:
                assert (own, row["_height"]) not in seen, (name, own)
                seen.add((own, row["_height"]))
                assert row["_deleted"] is False or own in found, f"{name} {own} ends at {row['_height']} without having been"
                found[own] = row
                if row["_deleted"]:
                    del found[own]
        return found


def compare(tables: Tables, state: Replay, height: int) -> None:
    """All tables after a block against the replay."""
    utxos = tables.at("utxos", height, "tx_id", "tx_index")
    assert {TxIn(*key): (row["txout"], row["created_height"]) for key, row in utxos.items()} == {
        place: (output.raw, state.created[place]) for place, output in state.utxos.items()
    }
    tokens = tables.at("cage_tokens", height, "token_id")
    assert {
        key[0]: (State(*(row[name] for name in STATE)), row["created_height"], row["updated_height"], row["tracked"])
        for key, row in tokens.items()
    } == {token: (kept.state, kept.created_height, kept.updated_height, kept.tracked) for token, kept in state.tokens.items()}
    requests = tables.at("cage_requests", height, "tx_id", "tx_index")
    names = Request._fields
    assert {TxIn(*key): Request(*(row[name] for name in names)) for key, row in requests.items()} == state.requests
    facts: dict[bytes, dict[bytes, bytes]] = {token: {} for token in state.tokens}
    for (token, key), row in tables.at("trie_facts", height, "token_id", "key").items():
        facts[token][key] = row["value"]
    assert facts == state.facts


def compare_blocks(tables: Tables, history: list[tuple[Replay, Any]], roots_at: Sequence[int]) -> None:
    """Events and roots of all blocks."""
    found = [
        (r["_height"], r["tx_index"], r["event_index"], r["kind"], r["token_id"], [(bytes(p[0]), p[1]) for p in r["requests"]])
        for r in tables.rows["cage_events"]
    ]
    expected = []
    for height, (_, events) in enumerate(history):
        numbers: dict[int, int] = {}
        for at, event in events:
            number = numbers[at] = numbers.get(at, -1) + 1
            expected.append((height, at, number, event.kind, event.token_id, [tuple(u.place) for u in event.requests]))
    assert sorted(found) == sorted(expected)
    blocks = {row["_height"]: row for row in tables.rows["chain_roots"]}
    assert sorted(blocks) == list(range(len(history)))
    for height, (state, _) in enumerate(history):
        assert blocks[height]["utxo_count"] == len(state.utxos)
    for height in roots_at:
        assert blocks[height]["utxo_root"] == history[height][0].utxo_root()
    assert tables.rows["unresolved_inputs"] == []


def turned(block: Made) -> tuple[bytes, bytes]:
    """A first block with the transactions of another, the last of them first, and its hash."""
    parts = children(block.raw, 2, 10)
    lists = [[block.raw[begin:end] for begin, end in children(block.raw, first, 100)] for first, _ in parts[1:3]]
    segments = [*(array(*items[::-1]) for items in lists), mapping({}), array()]
    top = header(0, None, random.Random(1), segments)
    return array(uint(7), array(top, *segments)), blake(top)


def undo(rows: Sequence[dict[str, Any]], history: list[tuple[Replay, Any]], low: int = 0) -> None:
    """A key-value copy at the head, taken back block by block by inverse operations, is what it was after each block from `low`
    on."""
    head = history[-1][0]
    tokens = {token: (*kept.state, kept.created_height, kept.updated_height) for token, kept in head.tokens.items()}
    requests, facts = dict(head.requests), {(t, k): v for t, own in head.facts.items() for k, v in own.items()}
    for height in range(len(history) - 1, low, -1):
        for row in sorted((row for row in rows if row["height"] == height), key=lambda row: row["op_index"]):
            op, token, key = row["op"], plain(row["token_id"]), plain(row["key"])
            place = TxIn(plain(row["tx_id"]), row["tx_index"]) if row["tx_id"] is not None else None
            if op in ("insert_token", "set_root"):
                assert (token in tokens) == (op == "set_root")
                tokens[token] = tuple(plain(value) for name, value in row["token"].items() if name != "tracked")
            elif op == "delete_token":
                del tokens[token]
            elif op == "trie_insert":
                assert (token, key) not in facts
                facts[token, key] = plain(row["value"])
            elif op == "trie_delete":
                assert facts.pop((token, key)) == plain(row["value"])
            elif op == "insert_request" and place is not None:
                r = {name: plain(value) for name, value in row["request"].items()}
                values = (r["owner"], key, r["old_value"], r["new_value"], r["fee"], r["submitted_at"])
                requests[place] = Request(token, *values)
            else:
                assert op == "delete_request" and place is not None
                del requests[place]
        was = history[height - 1][0]
        assert tokens == {t: (*kept.state, kept.created_height, kept.updated_height) for t, kept in was.tokens.items()}, height
        assert requests == was.requests, height
        assert facts == {(t, k): v for t, own in was.facts.items() for k, v in own.items()}, height


def inverse(lake: Lake, chain: str, seq: int | None = None) -> list[dict[str, Any]]:
    """The operations of gold.cage_inverse_ops, now or as the lake stood at a commit."""
    return [row.asDict(recursive=True) for row in lake.table("gold.cage_inverse_ops", chain=chain, seq=seq).collect()]


def test_any_chain_and_any_abandoned_branch_is_undone_block_by_block(full_lake: Lake) -> None:
    histories, images = {}, Images(full_lake.spark)
    for seed in range(8):
        rng = random.Random(seed)
        forks = {height: rng.randint(1, 6) for height in rng.sample(range(3, 18), 2)}
        for name, blocks in branches(list(cage.chain(20, 100 + seed, forks=forks))).items():
            chain, history = f"{seed} {name}", replayed(blocks, 100 + seed)
            histories[chain] = history, rng.choice((0, rng.randrange(len(history) - 1)))
            images.add(chain, *histories[chain])
    done = inverse_operations(cast(Batch, images))
    assert done is not None
    rows: dict[str, list[dict[str, Any]]] = {chain: [] for chain in histories}
    for row in done.withColumnRenamed("_height", "height").collect():
        rows[row["_chain"]].append(row.asDict(recursive=True))
    for chain, (history, low) in histories.items():
        undo(rows[chain], history, low)
    assert {row["op"] for found in rows.values() for row in found} == set(ORDER)


def test_every_height_is_that_of_the_replay_through_batches_forks_and_rollbacks(
    full_lake: Lake, home: Home, chain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = list(cage.chain(45, 10))
    expected = replayed(canonical(made), 10)
    first = next(at for at, block in enumerate(made) if block.height == 19 and block.abandoned) + 1
    branch = [
        *(block for block in made[:first] if not block.abandoned),
        *(b for b in made[:first] if b.abandoned and b.height > 14),
    ]
    lost = replayed([decode_block(block.raw) for block in branch], 10)

    full_lake.ingest(chain, "cardano", write(tmp_path, made[:first], "a.chunk"), options(tmp_path, 10))
    done = full_lake.run_stage("bronze.cage", chains=chain)
    full_lake.run_stage("silver.cage", chains=chain, to_height=0, max_blocks=1)
    full_lake.run_stage("silver.cage", chains=chain, max_blocks=11)
    tables = Tables(full_lake, chain)
    for height, (state, _) in enumerate(lost):
        compare(tables, state, height)
    compare_blocks(tables, lost, [0, 1, 2, 19])

    full_lake.ingest(chain, "cardano", write(tmp_path, made, "b.chunk"), options(tmp_path, 10))
    run(full_lake, chain)
    tables = Tables(full_lake, chain)
    for height, (state, _) in enumerate(expected):
        compare(tables, state, height)
    compare_blocks(tables, expected, range(14, 45))
    undo(inverse(full_lake, chain), expected)
    reader = CageReader(home.path, chain, prefix=full_lake.namespace.prefix)
    ask(reader, expected, random.Random(1))

    followed = full_lake.ledger.read(["gold.cage"]).of("gold.cage", chain).seq()
    for height in (33, 17):
        full_lake.rollback("silver.cage", chain, height, why="a test")
        assert reader.block()["utxo_root"] == expected[height][0].utxo_root()
        with pytest.raises(BadInput, match=f"height {height + 1} of .* is not there"):
            reader.block(height + 1)
    compare(Tables(full_lake, chain), expected[17][0], 17)
    assert full_lake.table("gold.cage_inverse_ops", chain=chain).agg({"height": "max"}).collect()[0][0] <= 17
    undo(inverse(full_lake, chain, followed), expected, 17)
    run(full_lake, chain)
    compare(Tables(full_lake, chain), expected[44][0], 44)
    undo(inverse(full_lake, chain), expected)
    ask(reader, expected, random.Random(2))
    assert [f.what for stage in STAGES for f in verify(full_lake, stage) if chain in f.what] == []

    token = min(token for token, known in expected[44][0].tokens.items() if known.tracked)
    monkeypatch.setenv("LAKE_PREFIX", full_lake.namespace.prefix)
    capsys.readouterr()
    assert main(["prove", "cage", chain, token.hex(), b"no such key".hex(), "--home", str(home.path)]) == 0
    assert json.loads(capsys.readouterr().out)["exists"] is False
    place = sorted(expected[44][0].utxos)[0]
    text = f"{place.tx_id.hex()}#{place.number}"
    assert main(["prove", "utxo", chain, text, "--height", "44", "--home", str(home.path)]) == 0
    assert json.loads(capsys.readouterr().out)["exists"] is True
    rows = query(full_lake, f"SELECT root, value FROM prove_utxo('{chain}', '{text}', 44)").collect()
    assert bytes(rows[0][0]) == expected[44][0].utxo_root() and bytes(rows[0][1]) == expected[44][0].utxos[place].raw
    assert list(done["status"]) == ["ok"]


def test_a_compacted_chain_answers_proves_and_goes_on_as_before(
    full_lake: Lake, home: Home, chain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = list(cage.chain(36, 12, forks={}))
    expected = replayed(canonical(made), 12)
    full_lake.ingest(chain, "cardano", write(tmp_path, made[:24], "a.chunk"), {**options(tmp_path, 12), "window": "9"})
    run(full_lake, chain)
    monkeypatch.setattr(compaction, "_pack", lambda *_: None)  # tables that tests share are packed elsewhere
    sizes, append = set(), compaction.append

    def appended(*given: Any) -> Any:
        sizes.add(full_lake.spark.conf.get("parquet.block.size", None))
        return append(*given)

    monkeypatch.setattr(compaction, "append", appended)
    for stage in STAGES[1:]:
        assert [one.height for one in compaction.compact(full_lake, stage, chain)] == [23 - 9]
    assert sizes == {SMALL_ROW_GROUPS["parquet.block.size"]}, "readers look for few rows in bases too"
    reader = CageReader(home.path, chain, prefix=full_lake.namespace.prefix)
    ask(reader, expected[:24], random.Random(1))
    same_head(reader, expected[23][0])
    monkeypatch.undo()
    full_lake.ingest(chain, "cardano", write(tmp_path, made, "b.chunk"), options(tmp_path, 12))
    run(full_lake, chain)
    compare(Tables(full_lake, chain), expected[35][0], 35)
    undo(inverse(full_lake, chain), expected)
    ask(reader, expected, random.Random(2))
    same_head(reader, expected[35][0])
    assert [f.what for stage in STAGES for f in verify(full_lake, stage) if chain in f.what] == []
    full_lake.rollback("silver.cage", chain, 27, why="a test")
    same_head(reader, expected[27][0])


def test_a_root_that_is_not_the_datums_and_a_block_that_is_none_stop_the_chain_there(
    full_lake: Lake, chain: str, tmp_path: Path
) -> None:
    made = list(cage.chain(14, 3, forks={}))
    expected = replayed(canonical(made), 3)
    at, event = next(
        (height, event)
        for height in range(13, 0, -1)
        for _, event in expected[height][1]
        if event.kind == "update" and event.state is not None and event.state.root != mpf.EMPTY
    )
    assert event.state is not None
    wrong = bytes([event.state.root[0] ^ 1]) + event.state.root[1:]
    made[at] = made[at]._replace(raw=made[at].raw.replace(event.state.root, wrong))
    full_lake.ingest(chain, "cardano", write(tmp_path, made), {**options(tmp_path, 3), "genesis_complete": "false"})
    full_lake.run_stage("bronze.cage", chains=chain)
    done = full_lake.run_stage("silver.cage", chains=chain)
    assert done["status"][0] == "degraded" and f"block {at}, transaction" in done["error"][0], done["error"][0]
    assert done["height"][0] == at - 1
    compare(Tables(full_lake, chain), expected[at - 1][0], at - 1)

    other, (first, first_hash) = f"{chain}-cbor", turned(made[0])
    damaged = array(
        uint(7),
        array(
            header(1, first_hash, random.Random(1), []),
            array(mapping({0: array(), 1: uint(5)})),
            array(mapping({})),
            mapping({}),
            array(),
        ),
    )
    path = tmp_path / "damaged.chunk"
    path.write_bytes(first + damaged)
    full_lake.ingest(other, "cardano", str(path), {})
    done = full_lake.run_stage("bronze.cage", chains=other)
    assert done["status"][0] == "degraded" and "block 1 cannot be read: the outputs is no list" in done["error"][0]
    assert done["height"][0] == 0
    done = full_lake.run_stage("silver.cage", chains=other)
    assert list(done["status"]) == ["ok"]
    state, tables = Replay(None), Tables(full_lake, other)
    state.apply(0, decode_block(first))
    compare(tables, state, 0)
    unknown = [TxIn(row["spent_tx_id"], row["spent_tx_index"]) for row in tables.rows["unresolved_inputs"]]
    assert sorted(unknown) == sorted(place for _, place in state.unresolved)
    assert set(unknown) & set(state.utxos), "a transaction names what a later one makes"
    assert [row["utxo_root"] for row in tables.rows["chain_roots"]] == [state.utxo_root()]


def test_a_chain_that_starts_behind_a_request_goes_on_and_no_longer_knows_that_trie(
    full_lake: Lake, chain: str, tmp_path: Path
) -> None:
    made = list(cage.chain(8, 53, forks={}))
    blocks = canonical(made)
    before = replayed(blocks[:2], 53)[-1][0]
    hidden = sorted(before.requests)[1]
    known = {place: output for place, output in before.utxos.items() if place != hidden}
    late, states = Replay.starting(before.cage, known), {}
    for height, txs in enumerate(blocks[2:], 2):
        late.apply(height, txs)
        states[height] = late.copy()
    lost = [token for token in states[2].facts if states[2].facts[token] and not states[3].tokens[token].tracked]
    assert lost and late.unresolved == [(3, hidden)]
    lines = ({"txin": f"{place.tx_id.hex()}#{place.number}", "txout": one.raw.hex()} for place, one in known.items())
    (tmp_path / "known.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    given = {**options(tmp_path, 53), "genesis": str(tmp_path / "known.jsonl"), "genesis_complete": "false"}
    full_lake.ingest(chain, "cardano", write(tmp_path, made[2:]), given)
    full_lake.run_stage("bronze.cage", chains=chain)
    for height in (2, 7):
        assert list(full_lake.run_stage("silver.cage", chains=chain, to_height=height)["status"]) == ["ok"]
    tables = Tables(full_lake, chain)
    for height, state in states.items():
        compare(tables, state, height)
    assert state_problems(full_lake, chain) == []
