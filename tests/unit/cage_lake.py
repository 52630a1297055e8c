"""A lake directory of a demo chain, written by delta-rs and without Spark: what the stage would have written, from the replay."""

from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from chainlake.cage import bronze_rows, token_rows, utxo_fold
from chainlake.cage.reader import STAGE
from chainlake.cage.token_fold import TokenEvent, fold_token
from chainlake.cage.transaction import TxIn
from chainlake.lake.visibility import ADVANCE, COMPACT, ROLLBACK
from chainlake.merkle import csmt, mpf
from chainlake.merkle.blake import blake
from tests.unit.cage_making import Found, start
from tests.unit.cage_replay import Replay
from tests.unit.logs_lake import KERNEL, LEDGER

Row = dict[str, Any]
CHAIN = "c"
_B, _L, _S = pa.binary(), pa.int64(), pa.string()
_ASSETS = pa.list_(bronze_rows._ASSET)
_UTXO = [
    *(("tx_id", _B), ("tx_index", pa.int32()), ("address", _B), ("lovelace", _L), ("assets", _ASSETS), ("datum_hash", _B)),
    *(("datum", _B), ("reference_script", _B), ("txout", _B), ("created_height", _L)),
]
SCHEMAS: dict[str, list[tuple[str, pa.DataType]]] = {
    "silver_utxos": _UTXO,
    "gold_utxos_by_address": [field for field in _UTXO if field[0] not in ("reference_script", "txout")],
    "silver_utxo_nodes": [("bucket", _S), ("path", _S), ("node", _B)],
    "silver_chain_roots": [("utxo_root", _B), ("utxo_count", _L), ("block_hash", _B), ("slot", _L)],
    "silver_cage_tokens": [
        *(("token_id", _B), ("owner", _B), ("root", _B), ("max_fee", _L), ("process_time", _L), ("retract_time", _L)),
        *(("created_height", _L), ("updated_height", _L), ("tracked", pa.bool_())),
    ],
    "silver_cage_requests": [
        *(("tx_id", _B), ("tx_index", pa.int32()), ("token_id", _B), ("owner", _B), ("key", _B), ("operation", _S)),
        *(("old_value", _B), ("new_value", _B), ("fee", _L), ("submitted_at", _L), ("created_height", _L)),
    ],
    "silver_trie_facts": [("token_id", _B), ("key", _B), ("value", _B)],
    "silver_trie_nodes": [("token_id", _B), ("bucket", _S), ("path", _S), ("node", _B)],
    "bronze_cardano_datums": [("datum_hash", _B), ("datum", _B)],
}
EVENTS = ("silver_chain_roots", "bronze_cardano_datums")


class CageLake:
    """The lake and what it holds so far."""

    def __init__(self, home: Path, seed: int) -> None:
        self.home, self.seq = home, 0
        self.before = start(seed)
        self.genesis: Replay | None = self.before
        self.tree: dict[str, dict[bytes, bytes]] = {part: {} for part in utxo_fold.PARTS}
        self.tries: dict[bytes, dict[bytes, bytes]] = {}
        for name, fields in SCHEMAS.items():
            self._write(name, [], fields, 0)
            if name not in EVENTS:
                self._write(f"{name}_base", [], fields, 0)
        chain = {"chain": CHAIN, "kind": "cardano", "options": [], "at": datetime(2026, 1, 1, tzinfo=timezone.utc)}
        fields = [("chain", _S), ("kind", _S), ("options", pa.map_(_S, _S)), ("at", pa.timestamp("us", "UTC"))]
        write_deltalake(str(home / "warehouse/control/chains"), pa.Table.from_pylist([chain], pa.schema(fields)))

    def advance(self, low: int, history: list[tuple[Replay, Found]], shown: Mapping[int, bytes] | None = None) -> None:
        """One commit with the blocks after `low`. `shown` are datums by height."""
        rows: dict[str, list[Row]] = {name: [] for name in SCHEMAS}
        rows["bronze_cardano_datums"] = [
            {"_height": height, "datum_hash": blake(datum), "datum": datum} for height, datum in (shown or {}).items()
        ]
        for height, (state, found) in enumerate(history, low + 1):
            self._utxos(rows, height, state)
            self._tokens(rows, height, state, found)
            root = {"utxo_root": state.utxo_root(), "utxo_count": len(state.utxos), "block_hash": b"h", "slot": height}
            rows["silver_chain_roots"].append({"_height": height, **root})
            self.before, self.genesis = state, None
        self.seq += 1
        for name, fields in SCHEMAS.items():
            self._write(name, rows[name], fields, self.seq)
        self._ledger(ADVANCE, low, low + len(history))

    def roll_back(self, low: int, height: int, state: Replay | None = None) -> None:
        """Back to a block. With the state then, the lake can go on from there."""
        self.seq += 1
        self._ledger(ROLLBACK, low, height)
        if state is not None:
            self.before = state
            self.tries = {token: _rows(mpf.Trie.of(facts)) for token, facts in state.facts.items()}
            trees = {part: csmt.Tree(None, utxo_fold.to_path(part)) for part in utxo_fold.PARTS}
            for place, output in state.utxos.items():
                key = csmt.txin_key(*place)
                trees[utxo_fold.to_text(csmt.part_of(key, utxo_fold.PART_DEPTH))].insert(key, output.raw)
            self.tree = {part: _rows(tree) for part, tree in trees.items()}

    def compact(self, head: int) -> None:
        """The state at the head goes to the base tables, as `lake compact` puts it there."""
        self.seq += 1
        own, state = {"_height": head, "_deleted": False}, self.before
        rows: dict[str, list[Row]] = {name: [] for name in SCHEMAS if name not in EVENTS}
        for place, output in state.utxos.items():
            row = {**own, "tx_id": place.tx_id, "tx_index": place.number, **output._asdict(), "txout": output.raw}
            row |= {"created_height": state.created[place], "assets": [asset._asdict() for asset in output.assets]}
            rows["silver_utxos"].append(row)
            rows["gold_utxos_by_address"].append(row)
        for kept in self.tree.values():
            rows["silver_utxo_nodes"] += _nodes(head, dict(kept), utxo_fold.BUCKET_DEPTH, {})
        for token, known in state.tokens.items():
            since = {"created_height": known.created_height, "updated_height": known.updated_height, "tracked": known.tracked}
            rows["silver_cage_tokens"].append({**own, "token_id": token, **known.state._asdict(), **since})
            rows["silver_trie_nodes"] += _nodes(head, dict(self.tries[token]), token_rows.BUCKET, {"token_id": token})
        rows["silver_trie_facts"] = [
            {**own, "token_id": token, "key": key, "value": value}
            for token, facts in state.facts.items()
            for key, value in facts.items()
        ]
        rows["silver_cage_requests"] = [_request(head, place, state, state) for place in state.requests]
        for name, made in rows.items():
            self._write(f"{name}_base", made, SCHEMAS[name], self.seq)
        self._ledger(COMPACT, head, head)

    def _utxos(self, rows: dict[str, list[Row]], height: int, state: Replay) -> None:
        old = {} if self.genesis is not None else self.before.utxos
        born = {place: output for place, output in state.utxos.items() if place not in old}
        dead = {place: output for place, output in old.items() if place not in state.utxos}
        for places, deleted in ((born, False), (dead, True)):
            for place, output in places.items():
                row = {"_height": height, "_deleted": deleted, "tx_id": place.tx_id, "tx_index": place.number, **output._asdict()}
                row |= {"txout": output.raw, "created_height": (self.before if deleted else state).created[place]}
                row["assets"] = [asset._asdict() for asset in output.assets]
                rows["silver_utxos"].append(row)
                rows["gold_utxos_by_address"].append(row)
        changes = [csmt.Change(csmt.txin_key(*place), None) for place in dead]
        changes += [csmt.Change(csmt.txin_key(*place), output.raw) for place, output in born.items()]
        for part, kept in self.tree.items():
            own = [(height, c) for c in changes if utxo_fold.to_text(csmt.part_of(c.key, utxo_fold.PART_DEPTH)) == part]
            for block in utxo_fold.fold_part(part, dict(kept), own):
                _keep(kept, block.rows)
                rows["silver_utxo_nodes"] += _nodes(height, block.rows, utxo_fold.BUCKET_DEPTH, {})

    def _tokens(self, rows: dict[str, list[Row]], height: int, state: Replay, found: Found) -> None:
        was = self.before
        for token in {event.token_id for _, event in found if event.kind in ("boot", "update", "reject", "burn")}:
            events = [_event(height, at, event) for at, event in found if event.token_id == token]
            old = was.tokens.get(token)
            before = token_rows.TokenRow(old.state, old.created_height, old.updated_height, old.tracked) if old else None
            kept = self.tries.setdefault(token, {})
            for block in fold_token(token, before, dict(kept), events):
                _keep(kept, block.nodes)
                rows["silver_trie_nodes"] += _nodes(height, block.nodes, token_rows.BUCKET, {"token_id": token})
                rows["silver_cage_tokens"] += [row for row in token_rows._rows(token, block) if row["what"] == "token"]
        for token in was.facts.keys() | state.facts.keys():
            one, two = was.facts.get(token, {}), state.facts.get(token, {})
            for key in one.keys() | two.keys():
                if one.get(key) != two.get(key):
                    fact = {"token_id": token, "key": key, "value": two.get(key, one.get(key)), "_deleted": key not in two}
                    rows["silver_trie_facts"].append({"_height": height, **fact})
        for place in was.requests.keys() ^ state.requests.keys():
            rows["silver_cage_requests"].append(_request(height, place, was, state))

    def _write(self, name: str, rows: list[Row], fields: list[tuple[str, pa.DataType]], commit: int) -> None:
        deleted = [] if name in EVENTS else [("_deleted", pa.bool_())]
        schema = pa.schema([*KERNEL, *deleted, *fields])
        made = [{"_chain": CHAIN, "_commit": commit, **row} for row in rows]
        table = pa.Table.from_pylist([{n: row.get(n) for n in schema.names} for row in made], schema=schema)
        write_deltalake(str(self.home / "warehouse/store" / name), table, mode="append")

    def _ledger(self, kind: str, low: int, high: int) -> None:
        for stage in ("bronze.cage", STAGE, "gold.cage"):
            row = {"stage": stage, "lane": CHAIN, "chain": CHAIN, "seq": self.seq, "commit_id": self.seq, "kind": kind}
            row |= {"base_height": low, "height": high, "epoch": 1, "committed_at": datetime(2026, 1, 1, tzinfo=timezone.utc)}
            table = pa.Table.from_pylist([{name: row.get(name) for name in LEDGER.names}], schema=LEDGER)
            write_deltalake(str(self.home / "warehouse/control/ledger"), table, mode="append")


def _event(height: int, at: int, event: Any) -> TokenEvent:
    used = event.requests if event.kind == "update" else ()
    operations = [mpf.Operation(one.request.key, one.request.old_value, one.request.new_value) for one in used]
    return TokenEvent(height, at, event.kind, event.state, event.was.root if event.was else None, operations)


def _request(height: int, place: TxIn, was: Replay, state: Replay) -> Row:
    gone = place not in state.requests
    request = (was if gone else state).requests[place]
    own = {"_height": height, "_deleted": gone, "tx_id": place.tx_id, "tx_index": place.number}
    return {**own, **request._asdict(), "operation": request.operation, "created_height": height}


def _rows(tree: mpf.Trie | csmt.Tree) -> dict[bytes, bytes]:
    return {path: row for path, row in tree.changes().items() if row is not None}


def _keep(kept: dict[bytes, bytes], changed: dict[bytes, bytes | None]) -> None:
    for path, node in changed.items():
        kept[path] = node or b""
        if node is None:
            del kept[path]


def _nodes(height: int, changed: dict[bytes, bytes | None], bucket: int, own: Row) -> list[Row]:
    texts = {utxo_fold.to_text(path): node for path, node in changed.items()}
    return [
        {"_height": height, "_deleted": node is None, "bucket": text[:bucket], "path": text, "node": node or b"", **own}
        for text, node in texts.items()
    ]
