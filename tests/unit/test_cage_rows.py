"""The Arrow ends of the cage: what Spark hands over and gets back."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pyarrow as pa
import pytest

from chainlake.cage import bronze_rows, checks, detect, token_rows, utxo_rows
from chainlake.cage.functions import octets
from chainlake.cage.reader import Proven
from chainlake.cage.settings import Settings, parse_txin, read_genesis
from chainlake.cage.transaction import SPEND, TxIn
from chainlake.cage.utxo_fold import to_path, to_text
from chainlake.demo import cage
from chainlake.demo.cage_world import CAGE, POLICY
from chainlake.errors import BadInput
from chainlake.merkle import csmt, mpf
from tests.unit.cage_making import canonical, replayed, start
from tests.unit.cage_replay import minting_of

MADE = [block for block in cage.chain(30, 9, forks={})]
TXS = canonical(MADE)
HISTORY = replayed(TXS, 9)


def rows(batches: Any) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def blocks(*payloads: bytes) -> pa.RecordBatch:
    columns = {
        "_height": pa.array(range(len(payloads)), pa.int64()),
        "hash": pa.array([b"h"] * len(payloads)),
        "timestamp": pa.array([None] * len(payloads), pa.timestamp("us")),
        "payload": pa.array(payloads, pa.binary()),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def test_decoded_blocks_have_all_parts_and_a_damaged_one_only_says_so() -> None:
    found = rows(bronze_rows.decode([blocks(*(block.raw for block in MADE), b"\x82\x07\x01")]))
    assert "is no list" in found[-1]["error"] and found[-1]["inputs"] == []
    for row, txs in zip(found, TXS, strict=False):
        assert (row["error"], row["era"], row["transaction_count"]) == (None, 7, len(txs))
        spent = [(i["spent_tx_id"], i["spent_tx_index"]) for i in row["inputs"] if i["is_spent"]]
        assert sorted(spent) == sorted(place for tx in txs for place in tx.spends())
        made = [((o["tx_id"], o["output_index"]), o["txout"]) for o in row["outputs"] if o["is_created"]]
        assert made == [(place, output.raw) for tx in txs for place, output in tx.creates()]
        for at, tx in enumerate(txs):
            own = {
                i["position"]: (i["spent_tx_id"], i["spent_tx_index"])
                for i in row["inputs"]
                if i["tx_index"] == at and i["role"] == "input"
            }
            assert list(map(own.get, range(len(own)))) == sorted(tx.inputs), "positions are those that redeemers count"


def parts(height: int) -> list[dict[str, Any]]:
    """What Spark would gather of a block for `detect`."""
    before = HISTORY[height - 1][0].utxos if height else start(9).utxos
    known = dict(before)
    found = []
    for at, tx in enumerate(TXS[height]):
        told = {r.place: r.data for r in tx.redeemers if r.tag == SPEND}
        own = {"_height": height, "tx_index": at, "tx_id": tx.tx_id if tx.is_valid else None}
        for position, place in enumerate(sorted(tx.spends())):
            if known[place].address == CAGE.address:
                found.append(own | part(detect.SPENT, position, place, known[place]) | {"redeemer": told.get(position)})
        for place, output in tx.creates():
            known[place] = output
            if output.address == CAGE.address:
                found.append(own | part(detect.CREATED, place.number, place, output))
        for mint in tx.mints if tx.is_valid else ():
            if mint.policy == POLICY:
                told_policy = {"redeemer": minting_of(tx, CAGE)}
                found.append(own | told_policy | {"part": detect.MINTED, "name": mint.name, "quantity": mint.quantity})
    return found


def part(kind: int, position: int, place: TxIn, output: Any) -> dict[str, Any]:
    assets = [asset._asdict() for asset in output.assets]
    return {
        **{"part": kind, "position": position, "place_id": place.tx_id, "place": place.number, "address": output.address},
        **{"assets": assets, "datum": output.datum, "redeemer": None, "created_height": 3, "name": None, "quantity": None},
    }


NAMES = [text.strip().split(" ")[0] for text in detect.PARTS.replace(f"assets {detect.ASSETS}", "assets x").split(",")]


def test_events_and_requests_are_those_of_the_replay() -> None:
    for height, (state, events) in enumerate(HISTORY):
        given = [{name: row.get(name) for name in NAMES} for row in parts(height)]
        batches = [pa.RecordBatch.from_pylist(given)] if given else []
        found = rows(detect.detect(batches, CAGE))
        kinds = [
            (
                row["tx_index"],
                row["kind"],
                row["token_id"],
                row["was_root"],
                [(o["tx_id"], o["tx_index"]) for o in row["operations"]],
            )
            for row in found
            if row["kind"]
        ]
        assert kinds == [(at, e.kind, e.token_id, e.was and e.was.root, [u.place for u in e.requests]) for at, e in events]
        before = HISTORY[height - 1][0].requests if height else {}
        made = {TxIn(r["request_tx_id"], r["request_tx_index"]) for r in found if not r["kind"] and not r["is_gone"]}
        gone = {TxIn(r["request_tx_id"], r["request_tx_index"]) for r in found if not r["kind"] and r["is_gone"]}
        assert (set(before) | made) - gone == set(state.requests)


def test_an_update_beside_an_unknown_output_of_a_script_may_lack_a_request() -> None:
    height, at = next((h, at) for h, (_, events) in enumerate(HISTORY) for at, event in events if event.kind == "update")
    own = [row for row in parts(height) if row["tx_index"] == at]
    unknown = {"_height": height, "tx_index": at, "part": detect.SPENT, "position": 99}
    for more, is_whole in (([], True), ([unknown], True), ([unknown | {"redeemer": b"\x01"}], False)):
        given = [{name: row.get(name) for name in NAMES} for row in [*own, *more]]
        found = rows(detect.detect([pa.RecordBatch.from_pylist(given)], CAGE))
        assert [row["is_whole"] for row in found if row["kind"] == "update"] == [is_whole]


def test_tokens_fold_over_arrow_and_errors_come_as_rows() -> None:
    names = [name for name in token_rows.SCHEMA.names]
    events = []
    for height, (_, found) in enumerate(HISTORY):
        for at, event in found:
            if event.kind in ("boot", "update", "reject", "burn"):
                operations = [
                    {"key": u.request.key, "old_value": u.request.old_value, "new_value": u.request.new_value}
                    for u in event.requests
                ]
                state = (
                    event.state._asdict()
                    if event.state
                    else dict.fromkeys(("owner", "root", "max_fee", "process_time", "retract_time"))
                )
                own = {
                    "token_id": event.token_id,
                    "part": token_rows.EVENT,
                    "_height": height,
                    "tx_index": at,
                    "kind": event.kind,
                    "is_whole": event.is_whole,
                }
                events.append({**own, **state, "was_root": event.was.root if event.was else None, "operations": operations})
    events.sort(key=lambda row: row["token_id"])
    folded = rows(token_rows.fold([pa.RecordBatch.from_pylist(events)]))
    assert set(folded[0]) == set(names) and {row["what"] for row in folded} >= {"token", "fact", "node"}
    last = {row["token_id"]: row for row in folded if row["what"] == "token"}
    assert {token: row["root"] for token, row in last.items() if not row["_deleted"]} == {
        token: kept.state.root for token, kept in HISTORY[-1][0].tokens.items()
    }
    for row in events:
        row["root"] = b"\x01" * 32 if row["kind"] == "update" else row["root"]
    errors = [row for row in rows(token_rows.fold([pa.RecordBatch.from_pylist(events)])) if row["what"] == "error"]
    assert errors and all(f"block {row['_height']}, transaction" in row["error"] for row in errors)


def test_tops_survive_as_bytes() -> None:
    top = csmt.Tree()
    top.insert(csmt.txin_key(b"\x07" * 32, 1), b"x")
    assert utxo_rows.unpacked(utxo_rows.packed(top.top())) == top.top()
    assert utxo_rows.unpacked(utxo_rows.packed(None)) is None


def test_genesis_files(tmp_path: Path) -> None:
    _, path = cage.write(tmp_path, 1)
    assert {place: output.raw for place, output in read_genesis(str(path))} == cage.genesis()
    for wrong, why in (
        ("{", "line 2 of .* is no JSON"),
        ('{"txin": 5}', "line 2 of .* is not"),
        ('{"txin": "00#1", "txout": "82"}', "line 2 .*has 1 bytes: it has 32"),
        (json.dumps({"txin": "11" * 32 + "#1", "txout": "8201"}), "line 2"),
    ):
        bad = tmp_path / "bad.jsonl"
        bad.write_text("\n" + wrong + "\n", encoding="utf-8")
        with pytest.raises(BadInput, match=why):
            list(read_genesis(str(bad)))
    with pytest.raises(BadInput, match="cannot be read"):
        list(read_genesis(str(tmp_path / "none")))


@pytest.mark.parametrize("text", ["", "ab", "#1", "zz#0", "ab#-1", "11" * 32 + "#x", "11" * 31 + "#1"])
def test_outputs_are_named_by_transaction_and_number(text: str) -> None:
    with pytest.raises(BadInput):
        parse_txin(text)
    assert parse_txin("0x" + "11" * 32 + "#7") == TxIn(b"\x11" * 32, 7)


def test_table_functions_take_bytes_and_hex_and_say_what_is_wrong() -> None:
    assert octets(bytearray(b"\x0a"), "the key") == octets("0x0a", "the key") == octets("0a", "the key") == b"\x0a"
    for value, why in ((None, "the key is NULL: give it as X'…'"), ("abc", "the key is not hex: 'abc'")):
        with pytest.raises(BadInput, match=why):
            octets(value, "the key")


def test_options() -> None:
    assert Settings.of({}) == Settings(None, None, False)
    assert Settings.of({"genesis": "all.jsonl", "genesis_complete": "true"}) == Settings(None, "all.jsonl", True)
    assert Settings.of({"cage_policy": POLICY.hex(), "network": "mainnet"}).cage == (POLICY, b"\x71" + POLICY)


def test_a_proof_as_json_has_all_that_a_verifier_needs() -> None:
    items = {b"k": b"v", b"l": b"w"}
    shown = Proven(7, mpf.root(items), b"k", b"v", mpf.prove(items, b"k"), {"tokenId": "0x01"}).to_json("c")
    assert shown["exists"] and shown["cbor"].startswith("0x9f")
    assert mpf.verify(bytes.fromhex(shown["root"][2:]), b"k", b"v", mpf.Proof.from_json(shown["proof"]))


def again(check: Any, columns: dict[str, pa.DataType], given: list[tuple[Any, ...]]) -> dict[str, Any]:
    arrays = [pa.array(column, kind) for column, kind in zip(zip(*given, strict=True), columns.values(), strict=True)]
    (row,) = rows(check([pa.RecordBatch.from_arrays(arrays, list(columns))]))
    return row


def test_verify_reads_one_moment_of_a_lake_that_writers_go_on_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lake that gives nothing but one snapshot: what was read of two moments would not agree."""
    now = MagicMock()
    now.ledger.is_overtaken.return_value = False
    now.table.return_value.select.return_value.exceptAll.return_value.unionByName.return_value.limit.return_value.collect = list
    stored = SimpleNamespace(options={"cage_policy": POLICY.hex()})
    lake: Any = SimpleNamespace(moment=lambda tables: now, chain=lambda name: stored)
    assert checks.by_address_problems(lake, "c") == []
    for name in ("_utxo_root", "_tries", "_requests"):
        monkeypatch.setattr(checks, name, lambda given, *_: [given])
    assert checks.state_problems(lake, "c") == [now] * 3


def test_verify_makes_tries_again_and_counts_rows_that_are_not_theirs() -> None:
    columns = {"token_id": pa.binary(), "key": pa.binary(), "value": pa.binary(), "path": pa.string(), "node": pa.binary()}
    facts = {b"%d" % number: b"v" for number in range(40)}
    nodes = {to_text(path): row for path, row in mpf.Trie.of(facts).changes().items()}
    made = [(b"t", key, value, None, None) for key, value in facts.items()]
    for damage, wrong in (({}, 0), ({"": b""}, 1), ({"ffff": b""}, 1)):
        stored = [(b"t", None, None, path, row) for path, row in (nodes | damage).items()]
        found = again(checks.tries_again, columns, made + stored)
        assert (found["root"], found["wrong"]) == (mpf.root(facts), wrong)


def test_verify_makes_the_utxo_tree_again_and_counts_rows_that_are_not_its() -> None:
    kinds = (pa.string(), pa.binary(), pa.int32(), pa.binary(), pa.string(), pa.binary())
    columns = dict(zip(("part", "tx_id", "tx_index", "txout", "path", "node"), kinds, strict=True))
    tree, part = csmt.Tree(None, to_path("8258201")), "8258201"
    places = [TxIn(b"\x10" + bytes([number]) * 31, number) for number in range(40)]
    for place in places:
        tree.insert(csmt.txin_key(*place), b"output")
    stored = [(part, None, None, None, to_text(path), row) for path, row in tree.changes().items()]
    made = [(part, *place, b"output", None, None) for place in places]
    whole = again(checks.parts_again, columns, made + stored)
    assert (whole["top"], whole["outputs"], whole["wrong"]) == (utxo_rows.packed(tree.top()), 40, 0)
    assert again(checks.parts_again, columns, made + stored[1:])["wrong"] == 1
    assert again(checks.parts_again, columns, made[1:] + stored)["wrong"] > 0
