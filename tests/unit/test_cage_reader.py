"""Queries and proofs without Spark: at any height, through commits and rollbacks, from Python, the command line and HTTP."""

import asyncio
import json
import random
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainlake.cage import query as cage_query
from chainlake.cage.decode import decode_block
from chainlake.cage.draw import draw_trie, steps_of
from chainlake.cage.reader import CageReader
from chainlake.cli.main import main
from chainlake.demo import cage
from chainlake.demo.cage_world import POLICY
from chainlake.errors import BadInput, BrokenPromise
from chainlake.merkle import csmt, mpf
from chainlake.merkle.blake import blake
from chainlake.serve.cage import CageRoutes
from chainlake.serve.control import LakeControl
from chainlake.serve.embedded import EmbeddedLake
from chainlake.serve.router import Request, Response, Router
from chainlake.serve.state_rows import KeyedRows
from chainlake.serve.table_log import TableLog
from tests.unit.cage_asking import ask, same_head
from tests.unit.cage_lake import CHAIN, CageLake
from tests.unit.cage_making import canonical, replayed

SEED = 5
HISTORY = replayed(canonical(list(cage.chain(40, SEED, forks={}))), SEED)
FORKED = list(cage.chain(24, SEED, forks={14: 8}))
BRANCHES = [
    replayed([decode_block(b.raw) for b in FORKED if b.abandoned is lost or b.height <= 14], SEED) for lost in (False, True)
]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("cage")
    lake = CageLake(place, SEED)
    lake.advance(-1, HISTORY[:14])
    lake.advance(13, HISTORY[14:])
    return place


def test_every_answer_and_proof_is_that_of_the_replay(home: Path) -> None:
    reader = CageReader(home, CHAIN)
    ask(reader, HISTORY, random.Random(3))
    same_head(reader, HISTORY[-1][0])


def test_after_a_rollback_the_past_is_the_present(tmp_path: Path) -> None:
    lake = CageLake(tmp_path, SEED)
    lake.advance(-1, HISTORY[:30])
    reader = CageReader(tmp_path, CHAIN)
    assert reader.block()["utxo_root"] == HISTORY[29][0].utxo_root()
    lake.roll_back(29, 11)
    assert reader.block()["utxo_root"] == HISTORY[11][0].utxo_root()
    ask(reader, HISTORY[:12], random.Random(4))
    with pytest.raises(BadInput, match="height 12 of c is not there: there are 0 to 11"):
        reader.tokens(12)


@settings(max_examples=6, deadline=None)
@given(st.data())
def test_after_any_advances_rollbacks_and_forks_all_is_as_it_was_at_that_block(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Two branches part after block 14. The lake goes on along one of them, back, on along another, and so on."""
    home = tmp_path_factory.mktemp("branches")
    lake, now, head = CageLake(home, SEED), BRANCHES[0], 0
    lake.advance(-1, now[:1])
    reader = CageReader(home, CHAIN)
    for _ in range(data.draw(st.integers(2, 5))):
        if head > 0 and data.draw(st.booleans()):
            back = data.draw(st.integers(0, head - 1))
            lake.roll_back(head, back, now[back][0])
            head = back
            now = data.draw(st.sampled_from(BRANCHES)) if head <= 14 else now
        elif head < len(now) - 1:
            high = data.draw(st.integers(head + 1, len(now) - 1))
            lake.advance(head, now[head + 1 : high + 1])
            head = high
        assert reader.at()[1] == head
        ask(reader, now[: head + 1], random.Random(head), 2)


def test_after_compactions_everything_is_answered_from_the_base_and_what_came_later(tmp_path: Path) -> None:
    lake = CageLake(tmp_path, SEED)
    for low, high in ((0, 12), (12, 26), (26, 40)):
        lake.advance(low - 1, HISTORY[low:high])
        lake.compact(high - 1)
        reader = CageReader(tmp_path, CHAIN)
        ask(reader, HISTORY[:high], random.Random(high))
        same_head(reader, HISTORY[high - 1][0])
    lake.roll_back(39, 33)
    ask(reader, HISTORY[:34], random.Random(9))
    same_head(reader, HISTORY[33][0])


def test_requests_at_the_same_moment_miss_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gateway asks one reader from several threads. Several that take in one commit must not count it several times: those
    that come next would never be seen."""
    lake = CageLake(tmp_path, SEED)
    lake.advance(-1, HISTORY[:20])
    reader = CageReader(tmp_path, CHAIN)
    reader.block()
    lake.advance(19, HISTORY[20:25])
    load = TableLog._load_commit

    def slowly(log: TableLog, version: int) -> bool:
        found = load(log, version)
        time.sleep(0.01)
        return found

    monkeypatch.setattr(TableLog, "_load_commit", slowly)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: reader.block()["_height"], range(8))) == [24] * 8
    lake.roll_back(24, 7)
    assert reader.block()["utxo_root"] == HISTORY[7][0].utxo_root()


def test_of_a_key_the_newest_row_counts_in_whatever_order_files_are_read(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packed files mix blocks, and the rows of a key may lie in two parts of a file."""
    read = KeyedRows.read
    monkeypatch.setattr(KeyedRows, "read", lambda *given: reversed(list(read(*given))))
    same_head(CageReader(home, CHAIN), HISTORY[-1][0])


def test_a_proof_that_does_not_fit_the_root_of_its_block_is_not_given(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, place = CageReader(home, CHAIN), min(HISTORY[-1][0].utxos)
    token, facts = token_with_facts()
    monkeypatch.setattr(reader, "_utxo", lambda *_: None)
    with pytest.raises(BrokenPromise, match="does not have the root of that block: run lake verify"):
        reader.prove_utxo(place)
    monkeypatch.setattr(reader._facts, "at", lambda *_: [{"value": b"another"}])
    with pytest.raises(BrokenPromise, match=r"the facts and the trie of token .* differ: run lake verify"):
        reader.prove_fact(token, min(facts))


def test_an_output_with_the_hash_of_its_datum_is_answered_with_the_datum_once_a_transaction_has_shown_it(tmp_path: Path) -> None:
    blocks = [decode_block(block.raw) for block in cage.chain(40, SEED, forks={})]
    shown = {height: datum for height, txs in enumerate(blocks) for tx in txs for datum in tx.datums}
    hashed = {place: o for place, o in HISTORY[-1][0].utxos.items() if o.datum_hash is not None}
    assert len(hashed) == len(shown) > 1, "outputs with a hash, each shown by the transaction that makes it"
    lake = CageLake(tmp_path, SEED)
    lake.advance(-1, HISTORY, dict(list(shown.items())[1:]))
    reader = CageReader(tmp_path, CHAIN)
    answers = {place: reader.utxo(place) for place in hashed}
    known = {blake(datum): datum for datum in list(shown.values())[1:]}
    assert {place: row["datum"] for place, row in answers.items() if row} == {
        p: known.get(o.datum_hash) for p, o in hashed.items()
    }
    of_address = reader.utxos_of(next(iter(hashed.values())).address)
    assert sum(row["datum_hash"] is not None and row["datum"] is not None for row in of_address) == len(hashed) - 1


def test_outputs_that_hold_a_token_are_looked_for_without_holding_the_whole_set(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def many(*_: object) -> Iterator[pa.Table]:
        for part in range(20):
            ids = [bytes([part]) + number.to_bytes(31, "big") for number in range(1_000)]
            rows = [{"tx_id": one, "tx_index": 0, "assets": [], "txout": one * 8, "_height": 1, "_deleted": False} for one in ids]
            yield pa.Table.from_pylist(rows)

    reader = CageReader(home, CHAIN)
    monkeypatch.setattr(reader._utxos._tail, "read", many)
    tracemalloc.start()
    try:
        assert reader.utxos_with(b"\x01" * 28) == []
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_what_cannot_be_answered_is_said_in_one_line(home: Path) -> None:
    reader = CageReader(home, CHAIN)
    with pytest.raises(BadInput, match="there is no token 0x01 in c at block 39"):
        reader.prove_fact(b"\x01", b"k")
    with pytest.raises(BadInput, match="no block of Cardano chain 'other' is processed yet"):
        CageReader(home, "other").tokens()


def token_with_facts() -> tuple[bytes, dict[bytes, bytes]]:
    return next((token, own) for token, own in sorted(HISTORY[-1][0].facts.items()) if len(own) > 2)


def test_the_command_line(home: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    token, facts = token_with_facts()
    key, value = sorted(facts.items())[0]
    assert main(["prove", "cage", CHAIN, token.hex(), key.hex(), "--home", str(home)]) == 0
    shown = json.loads(capfdbinary.readouterr().out)
    root = bytes.fromhex(shown["root"][2:])
    assert shown["value"] == "0x" + value.hex() and mpf.verify(root, key, value, mpf.Proof.from_json(shown["proof"]))
    assert main(["prove", "cage", token.hex(), key.hex(), "--raw", "--home", str(home)]) == 0, "the only chain need not be named"
    assert mpf.verify(root, key, value, mpf.Proof.from_bytes(capfdbinary.readouterr().out))
    gone = next(place for place in HISTORY[3][0].utxos if place not in HISTORY[-1][0].utxos)
    text = f"{gone.tx_id.hex()}#{gone.number}"
    for height, there in (("3", True), ("39", False)):
        assert main(["prove", "utxo", CHAIN, text, "--height", height, "--home", str(home)]) == 0
        shown = json.loads(capfdbinary.readouterr().out)
        value_there = bytes.fromhex(shown["value"][2:]) if shown["value"] else None
        assert shown["exists"] is there
        proof = csmt.Proof.from_json(shown["proof"])
        assert csmt.verify(bytes.fromhex(shown["root"][2:]), csmt.txin_key(*gone), value_there, proof)


def test_a_chain_that_is_none_of_cardano_is_named_with_those_that_are(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prove", "utxo", "demo-evm", "11" * 32 + "#1", "--home", str(home)]) == 2
    assert capsys.readouterr().err == f"lake: unknown cardano chain 'demo-evm': there are {CHAIN}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["cage", CHAIN, "zz", "00"],
        ["cage", "zz", "00"],
        ["cage", CHAIN, "00", "00"],
        ["cage", "none", "00", "00"],
        ["utxo", CHAIN, "00#1"],
        ["utxo", CHAIN, "11" * 32],
        ["utxo", CHAIN, "11" * 32 + "#1", "--height", "99"],
        ["utxo", CHAIN, "11" * 32 + "#1", "--height", "-1"],
    ],
)
def test_bad_arguments_get_one_line_and_exit_code_2(home: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prove", *arguments, "--home", str(home)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


class Pool:
    async def run(self, work: Any, seconds: float) -> Response:
        answered: Response = work()
        return answered


class Gate:
    """As much of a gateway as routes need."""

    def __init__(self) -> None:
        self.router, self.pool = Router(), Pool()
        self.settings = SimpleNamespace(request_seconds=5.0, max_response=1 << 20)


def get(gate: Gate, path: str, **query: str) -> tuple[int, Any]:
    found = gate.router.find("GET", path)
    assert not isinstance(found, Response), path
    answered = asyncio.run(found[0](Request("GET", path, found[1], query)))  # type: ignore[arg-type]
    is_json = answered.content_type == "application/json"
    return answered.status, json.loads(answered.body) if is_json else answered.body


def test_http(home: Path) -> None:
    gate, state = Gate(), HISTORY[-1][0]
    CageRoutes(gate, home, "", LakeControl(EmbeddedLake(home)))  # type: ignore[arg-type]
    token, facts = token_with_facts()
    key = sorted(facts)[0]
    assert get(gate, "/cage")[1]["utxo_root"] == "0x" + (state.utxo_root() or b"").hex()
    assert (get(gate, "/cage")[1]["height"], get(gate, "/cage", height="7")[1]["height"]) == (39, 7)
    assert {row["token_id"] for row in get(gate, "/cage/tokens")[1]} == {"0x" + one.hex() for one in state.tokens}
    assert len(get(gate, f"/cage/token/{token.hex()}/facts")[1]) == len(facts)
    booted = state.tokens[token].created_height
    assert get(gate, f"/cage/token/{token.hex()}/facts", height=str(booted))[1] == []
    owner = next(iter(state.requests.values())).owner
    mine = [r for r in state.requests.values() if r.owner == owner]
    assert len(get(gate, "/cage/requests", owner=owner.hex())[1]) == len(mine)
    for wished in {request.token_id for request in state.requests.values()}:
        waiting = {f"0x{place.tx_id.hex()}#{place.number}" for place, r in state.requests.items() if r.token_id == wished}
        rows = get(gate, "/cage/requests", token=wished.hex())[1]
        assert {f"{row['tx_id']}#{row['tx_index']}" for row in rows} == waiting
    status, raw = get(gate, f"/cage/token/{token.hex()}/proof/{key.hex()}", raw="true")
    assert status == 200 and mpf.verify(state.tokens[token].state.root, key, facts[key], mpf.Proof.from_bytes(raw))
    place, output = next(iter(state.utxos.items()))
    text = f"{place.tx_id.hex()}%23{place.number}"
    assert get(gate, f"/utxo/{text}")[1]["txout"] == "0x" + output.raw.hex()
    assert get(gate, f"/utxo/{text}/proof")[1]["exists"] is True
    assert get(gate, f"/utxo/{'77' * 32}%230")[0] == 404
    assert get(gate, f"/utxos/address/{output.address.hex()}")[1]
    held = get(gate, f"/utxos/asset/{POLICY.hex()}/{token.hex()}")[1]
    assert len(held) == 1 and held[0]["assets"][0]["quantity"] == 1
    for path, query in (("/cage", {"height": "x"}), ("/cage", {"chain": "none"}), ("/utxo/zz", {}), ("/utxos/address/zz", {})):
        status, error = get(gate, path, **query)
        assert status == 400 and "\n" not in error["error"]
    assert get(gate, "/cage/token/77")[0] == 404


def test_long_lists_come_in_parts_and_are_never_cut_without_a_word(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, rows = Gate(), CageReader(home, CHAIN).utxos_with(POLICY)
    CageRoutes(gate, home, "", LakeControl(EmbeddedLake(home)))  # type: ignore[arg-type]
    path = f"/utxos/asset/{POLICY.hex()}"
    parts = [get(gate, path, limit="2", offset=str(at))[1] for at in range(0, len(rows) + 2, 2)]
    assert parts[-1] == [] and len(rows) > 3
    assert [row["tx_id"] for part in parts for row in part] == ["0x" + row["tx_id"].hex() for row in rows]
    monkeypatch.setattr(cage_query, "MOST", len(rows) - 1)
    status, error = get(gate, path)
    assert status == 400 and error["error"].startswith(f"{len(rows)} rows are more than an answer has: ask for {len(rows) - 1}")
    assert len(get(gate, path, offset="1")[1]) == len(get(gate, path, limit=str(len(rows) - 1))[1]) == len(rows) - 1
    for wrong in ({"limit": "0"}, {"limit": str(len(rows))}, {"limit": ""}, {"offset": "-1"}, {"offset": "9" * 30}):
        assert get(gate, path, **wrong)[0] == 400
    gate.settings.max_response = 2_000
    assert "2,000 are the most: ask for less" in get(gate, path, limit="4")[1]["error"]
    assert get(gate, path, limit="1")[0] == 200


def test_pictures_of_a_trie_and_of_a_proof() -> None:
    _, facts = token_with_facts()
    drawn = draw_trie(facts)
    assert drawn.count("…") == len(facts)
    key = sorted(facts)[0]
    lines = list(steps_of(key, facts[key], mpf.prove(facts, key)))
    assert lines[2].startswith("the leaf,") and len(lines) == 3 + len(mpf.prove(facts, key).steps)
    assert lines[-1].endswith(f": {mpf.root(facts).hex()[:16]}…")
    for known in (facts, dict([*facts.items()][:1]), {}):
        lines = list(steps_of(b"none", None, mpf.prove(known, b"none")))
        assert "it is not there" in lines[1] and lines[-1].endswith(f": {mpf.root(known).hex()[:16]}…")


def test_a_proof_does_not_wait_for_pandas(home: Path) -> None:
    """Loading it takes longer than the proof, and a process that proves one thing would pay for it each time."""
    place = min(HISTORY[-1][0].utxos)
    script = (
        "import sys; from pathlib import Path; from chainlake.cage.reader import CageReader;"
        " from chainlake.cage.transaction import TxIn;"
        f" CageReader(Path({str(home)!r}), {CHAIN!r}).prove_utxo(TxIn({place.tx_id!r}, {place.number}));"
        " sys.exit('pandas' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
