"""Decoded blocks as Arrow: one row per block, its transactions' parts in lists."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain
from typing import Any

import pyarrow as pa

from chainlake.cage.decode import read_block
from chainlake.cage.transaction import Tx, TxIn, TxOut
from chainlake.collector import without_collector
from chainlake.errors import BadInput
from chainlake.merkle.blake import blake

OF_TX = "tx_index: int, tx_id: binary"
ASSETS = "array<struct<policy: binary, name: binary, quantity: decimal(20, 0)>>"
INPUT = (
    f"struct<{OF_TX}, role: string, position: int, written_position: int, spent_tx_id: binary, spent_tx_index: int,"
    " is_spent: boolean>"
)
OUTPUT = (
    f"struct<{OF_TX}, output_index: int, role: string, is_created: boolean, address: binary, lovelace: bigint,"
    f" assets: {ASSETS}, datum_hash: binary, datum: binary, reference_script: binary, txout: binary>"
)
MINT = f"struct<{OF_TX}, is_valid: boolean, policy: binary, asset_name: binary, quantity: bigint>"
REDEEMER = f"struct<{OF_TX}, is_valid: boolean, tag: int, position: bigint, data: binary>"
DATUM = f"struct<{OF_TX}, datum_hash: binary, datum: binary>"
DECODED = (
    "_height bigint, hash binary, timestamp timestamp, era int, slot bigint, transaction_count int, invalid_count int,"
    f" error string, inputs array<{INPUT}>, outputs array<{OUTPUT}>, mints array<{MINT}>, redeemers array<{REDEEMER}>,"
    f" datums array<{DATUM}>"
)

_TX = [("tx_index", pa.int32()), ("tx_id", pa.binary())]
_ASSET = pa.struct([("policy", pa.binary()), ("name", pa.binary()), ("quantity", pa.decimal128(20, 0))])
OUTPUT_FIELDS = (
    ("address", pa.binary()),
    ("lovelace", pa.int64()),
    ("assets", pa.list_(_ASSET)),
    *((name, pa.binary()) for name in ("datum_hash", "datum", "reference_script", "txout")),
)
_LISTS = {
    "inputs": pa.struct(
        [
            *_TX,
            ("role", pa.string()),
            ("position", pa.int32()),
            ("written_position", pa.int32()),
            ("spent_tx_id", pa.binary()),
            ("spent_tx_index", pa.int32()),
            ("is_spent", pa.bool_()),
        ]
    ),
    "outputs": pa.struct(
        [
            *_TX,
            ("output_index", pa.int32()),
            ("role", pa.string()),
            ("is_created", pa.bool_()),
            *OUTPUT_FIELDS,
        ]
    ),
    "mints": pa.struct(
        [*_TX, ("is_valid", pa.bool_()), ("policy", pa.binary()), ("asset_name", pa.binary()), ("quantity", pa.int64())]
    ),
    "redeemers": pa.struct(
        [*_TX, ("is_valid", pa.bool_()), ("tag", pa.int32()), ("position", pa.int64()), ("data", pa.binary())]
    ),
    "datums": pa.struct([*_TX, ("datum_hash", pa.binary()), ("datum", pa.binary())]),
}
_NUMBERS = {"era": pa.int32(), "slot": pa.int64(), "transaction_count": pa.int32(), "invalid_count": pa.int32()}


@without_collector
def decode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Blocks (`_height, hash, timestamp, payload`) to rows as DECODED says. A block that is none has an error, and no more."""
    for batch in batches:
        rows = [decoded(payload) for payload in batch.column("payload").to_pylist()]
        columns = {name: batch.column(name) for name in ("_height", "hash", "timestamp")}
        columns |= {name: pa.array([row.get(name) for row in rows], kind) for name, kind in _NUMBERS.items()}
        columns["error"] = pa.array([row.get("error") for row in rows], pa.string())
        columns |= {name: nested([row.get(name, ()) for row in rows], kind) for name, kind in _LISTS.items()}
        yield pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def nested(lists: Sequence[Sequence[tuple[Any, ...]]], kind: pa.StructType) -> pa.ListArray:
    """Lists of tuples as lists of structs, made column by column: several times faster than value by value."""
    flat = list(chain.from_iterable(lists))
    columns = zip(*flat, strict=True) if flat else [()] * kind.num_fields
    fields = [kind.field(at) for at in range(kind.num_fields)]
    arrays = [
        nested(column, field.type.value_type) if pa.types.is_list(field.type) else pa.array(column, field.type)
        for column, field in zip(columns, fields, strict=True)
    ]
    offsets = pa.array(accumulate(map(len, lists), initial=0), pa.int32())
    return pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays(arrays, fields=fields))


def decoded(payload: bytes) -> dict[str, Any]:
    """One block as a row."""
    try:
        block = read_block(payload)
    except BadInput as error:
        return {"error": str(error)}
    txs = list(enumerate(block.transactions))
    return {
        "era": block.era,
        "slot": block.slot,
        "transaction_count": len(txs),
        "invalid_count": sum(not tx.is_valid for _, tx in txs),
        "inputs": [row for at, tx in txs for row in _inputs(at, tx)],
        "outputs": [row for at, tx in txs for row in _outputs(at, tx)],
        "mints": [(at, tx.tx_id, tx.is_valid, *mint) for at, tx in txs for mint in tx.mints],
        "redeemers": [(at, tx.tx_id, tx.is_valid, *told) for at, tx in txs for told in tx.redeemers],
        "datums": [(at, tx.tx_id, blake(datum), datum) for at, tx in txs for datum in dict.fromkeys(tx.datums)],
    }


def _inputs(at: int, tx: Tx) -> Iterator[tuple[Any, ...]]:
    for role, places, is_spent in (
        ("input", tx.inputs, tx.is_valid),
        ("collateral", tx.collateral, not tx.is_valid),
        ("reference", tx.references, False),
    ):
        order = {place: position for position, place in enumerate(sorted(set(places)))}
        for written, place in _once(places):
            yield at, tx.tx_id, role, order[place], written, place.tx_id, place.number, is_spent


def _once(places: tuple[TxIn, ...]) -> Iterator[tuple[int, TxIn]]:
    """A set that names an output twice, as early eras could, has it once."""
    seen: set[TxIn] = set()
    for written, place in enumerate(places):
        if place not in seen:
            seen.add(place)
            yield written, place


def _outputs(at: int, tx: Tx) -> Iterator[tuple[Any, ...]]:
    for number, output in enumerate(tx.outputs):
        yield at, tx.tx_id, number, "output", tx.is_valid, *output_columns(output)
    if tx.collateral_return is not None:
        yield at, tx.tx_id, len(tx.outputs), "collateral_return", not tx.is_valid, *output_columns(tx.collateral_return)


def output_columns(output: TxOut) -> tuple[Any, ...]:
    """Address, lovelace, assets, datum hash, datum, reference script and bytes."""
    return tuple(output)
