"""Blocks of all eras to transactions. Ids are hashes of the bytes as they came, never of a re-encoding.

Bytes may come from anyone: what is not a block is refused with a `BadInput` that says where, in time and memory that its length
bounds. (`byron` has the first era, whose transactions look quite different.)
"""

from collections.abc import Mapping
from typing import NamedTuple

from chainlake.cage import byron
from chainlake.cage.cbor import (
    ARRAY,
    MAP,
    UNSIGNED,
    Span,
    embedded,
    end_of,
    fields,
    head,
    integer,
    items,
    octets,
    opened,
    pairs,
    unsigned,
)
from chainlake.cage.transaction import Asset, Redeemer, Tx, TxIn, TxOut
from chainlake.errors import BadInput
from chainlake.merkle.blake import blake
from chainlake.sources.cardano import BYRON, EBB, MAX_BLOCK, byron_slot, era_of

HASH = 32
POLICY = 28
INPUTS, OUTPUTS, MINT, COLLATERAL, COLLATERAL_RETURN, REFERENCES = 0, 1, 9, 13, 16, 18
DATUMS, REDEEMERS = 4, 5
ADDRESS, VALUE, DATUM, SCRIPT = 0, 1, 2, 3
DATUM_HASH, INLINE_DATUM = 0, 1
MOST_LOVELACE = 1 << 63
MOST_QUANTITY = 1 << 64
MOST_INDEX = 1 << 16


class Block(NamedTuple):
    """A block's era, its slot (None of an epoch boundary, which has none) and its transactions."""

    era: int
    slot: int | None
    transactions: list[Tx]


def decode_block(raw: bytes) -> list[Tx]:
    """The transactions of an `[era, block]`, in order."""
    return read_block(raw).transactions


def read_block(raw: bytes) -> Block:
    """An `[era, block]`."""
    era = era_of(raw)
    if era == EBB:
        return Block(era, None, [])
    parts = items(raw, head(raw, 0)[2] + 1, "the block")
    if len(raw) > MAX_BLOCK or not parts or raw[parts[-1][1] :] not in (b"", b"\xff"):
        raise BadInput(f"{len(raw)} bytes are no single [era, block]")
    if era == BYRON:
        return Block(era, byron_slot(raw, parts[0]), byron.transactions(raw, parts))
    if len(parts) < 3:
        raise BadInput(f"the block has {len(parts)} parts: header, bodies and witnesses are expected")
    bodies, witnesses = items(raw, parts[1][0], "the bodies"), items(raw, parts[2][0], "the witnesses")
    if len(bodies) != len(witnesses):
        raise BadInput(f"the block has {len(bodies)} transactions and {len(witnesses)} witness sets")
    invalid = _invalid(raw, parts[4][0], len(bodies)) if len(parts) > 4 else set[int]()
    both = zip(bodies, witnesses, strict=True)
    txs = [_transaction(raw, body, witness, at not in invalid) for at, (body, witness) in enumerate(both)]
    return Block(era, _slot(raw, parts[0][0]), txs)


def decode_output(raw: bytes) -> TxOut:
    """A single output, as a genesis file has it."""
    if end_of(raw, 0) != len(raw):
        raise BadInput("something follows the output")
    return _output(raw, (0, len(raw)))


def _slot(raw: bytes, header: int) -> int:
    """header = [[number, slot, …], signature], read from the front: the rest need not be walked over."""
    at = opened(raw, opened(raw, header, "the header"), "the header body")
    slot = unsigned(raw, end_of(raw, at), "the slot")
    if slot >= MOST_LOVELACE:
        raise BadInput(f"the slot is {slot}: no clock shows that")
    return slot


def _invalid(raw: bytes, position: int, count: int) -> set[int]:
    found = {unsigned(raw, first, "an invalid transaction's number") for first, _ in items(raw, position, "the invalid ones")}
    if any(number >= count for number in found):
        raise BadInput(f"transaction {max(found)} is said to be invalid: the block has {count}")
    return found


def _transaction(raw: bytes, body: Span, witness: Span, is_valid: bool) -> Tx:
    of = fields(raw, body[0], "a transaction")
    if INPUTS not in of or OUTPUTS not in of:
        raise BadInput(f"a transaction without inputs or outputs at byte {body[0]}")
    witnesses = fields(raw, witness[0], "a witness set")
    return Tx(
        tx_id=blake(raw[body[0] : body[1]]),
        is_valid=is_valid,
        inputs=_inputs(raw, of, INPUTS),
        outputs=tuple(_output(raw, span) for span in items(raw, of[OUTPUTS][0], "the outputs")),
        mints=tuple(_mints(raw, of[MINT])) if MINT in of else (),
        collateral=_inputs(raw, of, COLLATERAL),
        collateral_return=_output(raw, of[COLLATERAL_RETURN]) if COLLATERAL_RETURN in of else None,
        references=_inputs(raw, of, REFERENCES),
        redeemers=_redeemers(raw, witnesses[REDEEMERS][0]) if REDEEMERS in witnesses else (),
        datums=_datums(raw, witnesses[DATUMS][0]) if DATUMS in witnesses else (),
    )


def _inputs(raw: bytes, of: Mapping[int, Span], key: int) -> tuple[TxIn, ...]:
    return tuple(_input(raw, first) for first, _ in items(raw, of[key][0], "the inputs")) if key in of else ()


def _input(raw: bytes, position: int) -> TxIn:
    if raw[position : position + 3] == b"\x82\x58\x20":
        return TxIn(raw[position + 3 : position + 35], _index(raw, position + 35))
    parts = items(raw, position, "an input")
    if len(parts) != 2:
        raise BadInput(f"an input has {len(parts)} parts at byte {position}")
    return TxIn(_sized(raw, parts[0], HASH, "a transaction id"), _index(raw, parts[1][0]))


def _index(raw: bytes, position: int) -> int:
    index = unsigned(raw, position, "an output's index")
    if index >= MOST_INDEX:
        raise BadInput(f"an output's index is {index} at byte {position}: it has two bytes")
    return index


def _output(raw: bytes, span: Span) -> TxOut:
    """`[address, value, datum hash]` until Alonzo, `{0: address, 1: value, 2: datum, 3: script}` since Babbage, or either."""
    if raw[span[0]] >> 5 == MAP:
        of = fields(raw, span[0], "an output")
        if ADDRESS not in of or VALUE not in of:
            raise BadInput(f"an output without address or value at byte {span[0]}")
        datum_hash, datum = _datum(raw, of[DATUM][0]) if DATUM in of else (None, None)
        script = embedded(raw, of[SCRIPT][0], "a reference script") if SCRIPT in of else None
        address, value = of[ADDRESS], of[VALUE]
    else:
        parts = items(raw, span[0], "an output")
        if not 2 <= len(parts) <= 3:
            raise BadInput(f"an output has {len(parts)} parts at byte {span[0]}")
        address, value, datum, script = parts[0], parts[1], None, None
        datum_hash = _sized(raw, parts[2], HASH, "a datum hash") if len(parts) == 3 else None
    lovelace, assets = _value(raw, value[0])
    return TxOut(octets(raw, address[0], "an address"), lovelace, assets, datum_hash, datum, script, raw[span[0] : span[1]])


def _datum(raw: bytes, position: int) -> tuple[bytes | None, bytes | None]:
    parts = items(raw, position, "a datum")
    kind = unsigned(raw, parts[0][0], "the kind of a datum") if len(parts) == 2 else None
    if kind == DATUM_HASH:
        return _sized(raw, parts[1], HASH, "a datum hash"), None
    if kind == INLINE_DATUM:
        return None, embedded(raw, parts[1][0], "an inline datum")
    raise BadInput(f"a datum is neither a hash nor inline at byte {position}")


def _value(raw: bytes, position: int) -> tuple[int, tuple[Asset, ...]]:
    major = raw[position] >> 5
    if major == UNSIGNED:
        return _lovelace(raw, position), ()
    parts = items(raw, position, "a value") if major == ARRAY else []
    if len(parts) != 2:
        raise BadInput(f"a value is neither a number nor a number and assets at byte {position}")
    return _lovelace(raw, parts[0][0]), _assets(raw, parts[1][0], 0, MOST_QUANTITY)


def _lovelace(raw: bytes, position: int) -> int:
    amount = unsigned(raw, position, "an amount")
    if amount >= MOST_LOVELACE:
        raise BadInput(f"an amount of {amount} lovelace at byte {position}: there are not so many")
    return amount


def _mints(raw: bytes, span: Span) -> tuple[Asset, ...]:
    return _assets(raw, span[0], -MOST_LOVELACE, MOST_LOVELACE)


def _assets(raw: bytes, position: int, least: int, most: int) -> tuple[Asset, ...]:
    """Assets as written, without those of which there are none. Of a policy, or of a name under it, that is there twice, the last
    one counts. The ledger reads both so."""
    found: dict[bytes, dict[bytes, Asset]] = {}
    for policy, of_policy in pairs(raw, position, "assets"):
        own = _sized(raw, policy, POLICY, "a policy id")
        found[own] = {}
        for name, quantity in pairs(raw, of_policy[0], "a policy's assets"):
            amount = integer(raw, quantity[0], "a quantity")
            if not least <= amount < most:
                raise BadInput(f"a quantity of {amount.bit_length()} bits at byte {quantity[0]}: it has 64")
            text = octets(raw, name[0], "an asset name")
            if len(text) > HASH:
                raise BadInput(f"an asset name of {len(text)} bytes at byte {name[0]}: it has at most {HASH}")
            found[own][text] = Asset(own, text, amount)
    return tuple(asset for names in found.values() for asset in names.values() if asset.quantity)


def _datums(raw: bytes, position: int) -> tuple[bytes, ...]:
    """A list, or a set since Conway."""
    return tuple(raw[first:end] for first, end in items(raw, position, "the datums"))


def _redeemers(raw: bytes, position: int) -> tuple[Redeemer, ...]:
    """`[[tag, index, data, units]]`, or `{[tag, index]: [data, units]}` since Conway. Of two for one thing, the last counts."""
    if raw[position] >> 5 == MAP:
        both = pairs(raw, position, "the redeemers")
        found = [items(raw, key[0], "a redeemer") + items(raw, value[0], "a redeemer") for key, value in both]
    else:
        found = [items(raw, first, "a redeemer") for first, _ in items(raw, position, "the redeemers")]
    if any(len(parts) != 4 for parts in found):
        raise BadInput(f"a redeemer is not tag, index, data and units at byte {position}")
    told = (_redeemer(raw, *parts[:3]) for parts in found)
    return tuple({(one.tag, one.place): one for one in told}.values())


def _redeemer(raw: bytes, tag: Span, index: Span, data: Span) -> Redeemer:
    kind, place = unsigned(raw, tag[0], "a redeemer's tag"), unsigned(raw, index[0], "a redeemer's index")
    if kind > 15 or place >= MOST_LOVELACE:
        raise BadInput(f"a redeemer of tag {kind} and index {place} at byte {tag[0]}")
    return Redeemer(kind, place, raw[data[0] : data[1]])


def _sized(raw: bytes, span: Span, size: int, what: str) -> bytes:
    value = octets(raw, span[0], what)
    if len(value) != size:
        raise BadInput(f"{what} has {len(value)} bytes at byte {span[0]}: {size} are expected")
    return value
