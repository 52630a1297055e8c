"""The UTxO set, the cage and its tries after any block, with proofs, from the files of a lake: no Spark, no JVM."""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain as join
from pathlib import Path
from typing import Any, NamedTuple

from chainlake.cage.token_rows import BUCKET
from chainlake.cage.transaction import TxIn
from chainlake.cage.utxo_fold import BUCKET_DEPTH, PART_DEPTH, PARTS, to_path, to_text, top_of
from chainlake.encoding import short, to_hex
from chainlake.errors import BadInput, BrokenPromise
from chainlake.lake.visibility import History
from chainlake.merkle import csmt, mpf
from chainlake.merkle.blake import blake
from chainlake.merkle.csmt_node import Node
from chainlake.serve.embedded import EmbeddedLake, LedgerReader
from chainlake.serve.state_rows import KeyedRows, event_rows
from chainlake.serve.visible import Limits

STAGE = "silver.cage"
UTXO = (
    "tx_id",
    "tx_index",
    "address",
    "lovelace",
    "assets",
    "datum_hash",
    "datum",
    "reference_script",
    "txout",
    "created_height",
)
TOKEN = (
    *("token_id", "owner", "root", "max_fee", "process_time", "retract_time", "created_height", "updated_height"),
    "tracked",
)
REQUEST = (
    *("tx_id", "tx_index", "token_id", "owner", "key", "operation", "old_value", "new_value", "fee", "submitted_at"),
    "created_height",
)
Row = dict[str, Any]


class States:
    """A state table, searched by one column, of which several make the key."""

    def __init__(self, lake: EmbeddedLake, table: str, search: str, key: Sequence[str], columns: Sequence[str]) -> None:
        self._key, self._search = tuple(key), search
        tables, wanted = (table, f"{table}_base"), (*columns, "_deleted")
        self._tail, self._base = (KeyedRows(lake, name, search, wanted, key) for name in tables)

    def at(
        self,
        chain: str,
        history: History,
        height: int,
        values: Iterable[Any] | None = None,
        also: Callable[[Row], bool] | None = None,
    ) -> list[Row]:
        """The rows with some values of the searched column, or all, that are there after a block. `also` chooses among them; it
        must look only at what all rows of a key have in common. Only those that it takes are held."""
        wanted = None if values is None else sorted(set(values))
        base = history.base(height)
        floor = -1 if base is None else base.height
        tail = Limits({v.commit.commit_id: v.limit for v in history.visible(height) if v.limit > floor})
        held = Limits({} if base is None else {base.commit_id: base.height})
        found: dict[tuple[Any, ...], Row] = {}
        for rows in join(self._tail.read(chain, tail, wanted), self._base.read(chain, held, wanted)):
            for row in rows.to_pylist():
                own = tuple(row[name] for name in self._key)
                known = found.get(own)
                if (also is None or also(row)) and (known is None or known["_height"] < row["_height"]):
                    found[own] = row
        return [row for _, row in sorted(found.items()) if not row["_deleted"]]


class Proven(NamedTuple):
    """A proof that a key has a value, or (None) that it is not there, under a root of a block."""

    height: int
    root: bytes | None
    key: bytes
    value: bytes | None
    proof: mpf.Proof | csmt.Proof
    of: dict[str, Any]

    def to_json(self, chain: str) -> dict[str, Any]:
        """Everything that one needs to check the proof."""
        return {
            "chain": chain,
            "height": self.height,
            **self.of,
            "root": None if self.root is None else to_hex(self.root),
            "key": to_hex(self.key),
            "exists": self.value is not None,
            "value": None if self.value is None else to_hex(self.value),
            "proof": self.proof.to_json(),
            "cbor": to_hex(self.proof.to_bytes()),
        }


class CageReader:
    """One Cardano chain of a lake. For many threads."""

    def __init__(self, home: Path, chain: str, *, prefix: str = "") -> None:
        lake = EmbeddedLake(home, prefix)
        self.chain = chain
        self._ledger = LedgerReader(lake, chain, (STAGE, "bronze.cage", "gold.cage"))
        self._roots = KeyedRows(lake, "silver.chain_roots", "_height", ("utxo_root", "utxo_count", "block_hash", "slot"))
        self._utxos = States(lake, "silver.utxos", "tx_id", ("tx_id", "tx_index"), UTXO)
        address = [name for name in UTXO if name not in ("reference_script", "txout")]
        self._addresses = States(lake, "gold.utxos_by_address", "address", ("address", "tx_id", "tx_index"), address)
        self._tree = States(lake, "silver.utxo_nodes", "bucket", ("path",), ("node",))
        self._datums = KeyedRows(lake, "bronze.cardano_datums", "datum_hash", ("datum",))
        self._tokens = States(lake, "silver.cage_tokens", "token_id", ("token_id",), TOKEN)
        self._requests = States(lake, "silver.cage_requests", "tx_id", ("tx_id", "tx_index"), REQUEST)
        self._facts = States(lake, "silver.trie_facts", "key", ("token_id", "key"), ("value",))
        self._of_token = States(lake, "silver.trie_facts", "token_id", ("token_id", "key"), ("value",))
        self._nodes = States(lake, "silver.trie_nodes", "bucket", ("token_id", "path"), ("node",))

    def at(self, height: int | None = None, stage: str = STAGE) -> tuple[History, int]:
        """What the ledger says now, and the block that is asked for: by default the last one."""
        if self._ledger.has_news():
            self._ledger.refresh()
        history = self._ledger.view.of(stage, self.chain)
        head, first = history.head(), history.first_height()
        if head is None or first is None or head.height == first:
            raise BadInput(f"no block of Cardano chain {self.chain!r} is processed yet: see lake status, then lake run cage")
        if height is not None and not first < height <= head.height:
            raise BadInput(f"height {height} of {self.chain} is not there: there are {first + 1} to {head.height}")
        return history, head.height if height is None else height

    def block(self, height: int | None = None) -> Row:
        """The root and size of the UTxO set after a block."""
        return self._block(*self.at(height))

    def tokens(self, height: int | None = None) -> list[Row]:
        """All tokens after a block."""
        history, at = self.at(height)
        return self._tokens.at(self.chain, history, at)

    def token(self, token_id: bytes, height: int | None = None) -> Row:
        """One token after a block."""
        return self._token(*self.at(height), token_id)

    def requests(self, height: int | None = None, token: bytes | None = None, owner: bytes | None = None) -> list[Row]:
        """Requests that wait after a block, of a token or an owner if one is named."""
        history, at = self.at(height)
        rows = self._requests.at(self.chain, history, at)
        return [row for row in rows if token in (None, row["token_id"]) and owner in (None, row["owner"])]

    def facts(self, token_id: bytes, height: int | None = None) -> list[Row]:
        """What a token's trie holds after a block."""
        history, at = self.at(height)
        if not self._token(history, at, token_id)["tracked"]:
            raise self._unknown_trie(token_id)
        return self._of_token.at(self.chain, history, at, [token_id])

    def utxo(self, place: TxIn, height: int | None = None) -> Row | None:
        """An output, if it is unspent after a block."""
        history, at = self.at(height)
        found = self._utxo(history, at, place)
        return found and self._with_datums([found], at)[0]

    def utxos_of(self, address: bytes, height: int | None = None) -> list[Row]:
        """The unspent outputs of an address after a block."""
        history, at = self.at(height, "gold.cage")
        return self._with_datums(self._addresses.at(self.chain, history, at, [address]), at)

    def utxos_with(self, policy: bytes, name: bytes | None = None, height: int | None = None) -> list[Row]:
        """The unspent outputs that hold a token, or any of a policy."""
        history, at = self.at(height)

        def holds(row: Row) -> bool:
            return any(asset["policy"] == policy and name in (None, asset["name"]) for asset in row["assets"])

        return self._with_datums(self._utxos.at(self.chain, history, at, also=holds), at)

    def prove_fact(self, token_id: bytes, key: bytes, height: int | None = None) -> Proven:
        """What a token's trie says of a key after a block, with the proof that its root holds it."""
        history, at = self.at(height)
        token = self._token(history, at, token_id)
        if not token["tracked"]:
            raise self._unknown_trie(token_id)
        path = blake(key).hex()
        buckets = [path[:length] for length in range(BUCKET + 1)]
        rows = self._nodes.at(self.chain, history, at, buckets, lambda row: row["token_id"] == token_id)
        trie = mpf.Trie({to_path(row["path"]): row["node"] for row in rows}, token["root"])
        held = self._facts.at(self.chain, history, at, [key], lambda row: row["token_id"] == token_id)
        value = held[0]["value"] if held else None
        proof = trie.prove(key)
        if not mpf.verify(token["root"], key, value, proof):
            raise BrokenPromise(f"the facts and the trie of token {short(token_id)} of {self.chain} differ: run lake verify")
        return Proven(at, token["root"], key, value, proof, {"tokenId": to_hex(token_id)})

    def prove_utxo(self, place: TxIn, height: int | None = None) -> Proven:
        """Whether an output is unspent after a block, with the proof under the root of the UTxO set."""
        history, at = self.at(height)
        key = csmt.txin_key(*place)
        path = to_text(csmt.part_of(key, 2 * len(key) - 1))
        buckets = {path[:length] for length in range(PART_DEPTH, BUCKET_DEPTH + 1)} | set(PARTS)
        rows = {row["path"]: row["node"] for row in self._tree.at(self.chain, history, at, buckets)}
        part = path[:PART_DEPTH]
        beside: list[Node | None] = [top_of(one, rows.get(one)) for one in PARTS if one != part]
        tree = csmt.Tree({to_path(name): node for name, node in rows.items() if name.startswith(part)}, to_path(part))
        row = self._utxo(history, at, place)
        value = row["txout"] if row else None
        root = self._block(history, at)["utxo_root"]
        proof = tree.prove(key, beside)
        if not csmt.verify(root, key, value, proof):
            raise BrokenPromise(
                f"the UTxO tree of {self.chain} at block {at} does not have the root of that block: run lake verify"
            )
        return Proven(at, root, key, value, proof, {"txIn": f"{place.tx_id.hex()}#{place.number}"})

    def _with_datums(self, rows: list[Row], height: int) -> list[Row]:
        """Outputs that have only the hash of their datum get the datum, if a transaction up to the block has shown it."""
        wanted = sorted({row["datum_hash"] for row in rows if row["datum_hash"] is not None})
        visible = self._ledger.view.of("bronze.cage", self.chain).visible(height)
        limits = Limits({one.commit.commit_id: one.limit for one in visible})
        tables = self._datums.read(self.chain, limits, wanted)
        shown = {row["datum_hash"]: row["datum"] for table in tables for row in table.to_pylist()}
        return [row | {"datum": shown.get(row["datum_hash"])} if row["datum"] is None else row for row in rows]

    def _block(self, history: History, height: int) -> Row:
        for row in event_rows(self._roots, self.chain, history, height):
            return row
        raise BrokenPromise(f"silver.chain_roots of {self.chain} has no block {height}: run lake verify")

    def _token(self, history: History, height: int, token_id: bytes) -> Row:
        rows = self._tokens.at(self.chain, history, height, [token_id])
        if not rows:
            raise BadInput(f"there is no token {to_hex(token_id)[:80]} in {self.chain} at block {height}")
        return rows[0]

    def _unknown_trie(self, token_id: bytes) -> BadInput:
        where = f"before the first block of {self.chain}, or by a request from then, or in another cage"
        return BadInput(f"the trie of token {short(token_id)} was filled {where}: what it holds is not known here")

    def _utxo(self, history: History, height: int, place: TxIn) -> Row | None:
        rows = self._utxos.at(self.chain, history, height, [place.tx_id], lambda row: row["tx_index"] == place.number)
        return rows[0] if rows else None
