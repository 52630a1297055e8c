"""One EVM block from one line of JSON: `{"block": …, "receipts": […]}` or `{"block": …, "logs": […]}`.

There are two ways to the same result. The careful one finds the span of every receipt and log in the text as it parses. The quick
one parses the line as a whole and cuts the text by itself; it takes only lines of which it can tell that the cuts are right.
Whatever is unusual, or wrong, is left to the careful one.

Receipts and logs say themselves which block and transaction they are of. What is of another one is refused.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, groupby
from operator import itemgetter
from typing import Any

import orjson

from chainlake.encoding import from_hex, short
from chainlake.errors import BadInput
from chainlake.json_depth import MOST_DEPTH, is_deeper
from chainlake.sources.base import END_OF_SECONDS, RawBlock, RawTransaction
from chainlake.sources.json_text import Part, as_received, members, utf8

_QUANTITY = re.compile("0x[0-9a-fA-F]{1,64}")
_PLACE = itemgetter("transactionHash", "transactionIndex")
_BETWEEN = b"},{"
_INDEXES = {hex(index): index for index in range(1 << 14)}

Json = dict[str, Any]
Header = tuple[int, bytes, bytes, int]
Transactions = tuple[RawTransaction, ...]


def parse_line(line: bytes, source: str, position: int) -> RawBlock:
    """The block of one line; `BadInput` says what is wrong with it."""
    header, payload, transactions = _quickly(line) or _carefully(line)
    return RawBlock(*header, payload, transactions, source, position)


def _carefully(line: bytes) -> tuple[Header, bytes, Transactions]:
    text = utf8(line)
    parts = dict(members(text, ("receipts", "logs")))
    block = parts["block"].value if "block" in parts else None
    if not isinstance(block, dict):
        raise BadInput('the line has no "block" object: expected {"block": …, "receipts": […]} or with "logs": […]')
    return _header(block), as_received(text, parts["block"]), _transactions(text, block, parts)


def _quickly(line: bytes) -> tuple[Header, bytes, Transactions] | None:
    """The same as `_carefully`, for lines as programs write them: without spaces and escapes. None for others."""
    body = line.strip(b" \t\r\n")
    if any(mark in body for mark in (b" ", b"\t", b"\r", b"\n", b"\\")):
        return None
    try:
        document = orjson.loads(body)
        block, (kind,) = document["block"], document.keys() - {"block"}
        payload, records = orjson.dumps(block), document[kind]
        if is_deeper(payload, MOST_DEPTH):
            return None
        text = _array_text(body, payload, kind.encode())
        if kind == "receipts":
            places = [_PLACE(receipt) for receipt in records]
            logs = [log for receipt in records for log in receipt["logs"]]
            if {*map(type, logs)} - {dict} or not _state_block(block, chain(records, logs)):
                return None
            payloads = _cut(text, [len(receipt["logs"]) or 1 for receipt in records], b"{", b"}")
        else:
            if not _state_block(block, records):
                return None
            groups = [(place, len(list(found))) for place, found in groupby(document["logs"], _PLACE)]
            places = [place for place, _ in groups]
            payloads = _cut(text, [count for _, count in groups], b"[{", b"}]")
        transactions = _placed(block.get("transactions"), places, payloads, is_complete=kind == "receipts")
        return _header(block), payload, transactions
    except (BadInput, ValueError, LookupError, TypeError, AttributeError):
        return None


def _state_block(block: Json, records: Iterable[Json]) -> bool:
    """Whether all records name the block in the block's own words, or none."""
    return {(one.get("blockHash"), one.get("blockNumber")) for one in records} <= {(block["hash"], block["number"]), (None, None)}


def _array_text(body: bytes, block: bytes, kind: bytes) -> bytes:
    """What is between the brackets of the array beside the block, where the line has nothing else."""
    for start, end in ((b'{"block":%b,"%b":[' % (block, kind), b"]}"), (b'{"%b":[' % kind, b'],"block":%b}' % block)):
        if body.startswith(start) and body.endswith(end):
            found = body[len(start) : len(body) - len(end)]
            if b'"%b":[' % kind not in found[: found.find(_BETWEEN)]:
                return found
    raise LookupError("a line of another shape, or with a member twice")


def _cut(text: bytes, sizes: Sequence[int], start: bytes, end: bytes) -> list[bytes]:
    """Objects that follow each other, in runs with so many objects of one depth. What is between two objects has one spelling:
    if it comes as often as it must, it is nowhere else, and the cuts are right."""
    pieces = text[1:-1].split(_BETWEEN) if text else []
    if len(pieces) != sum(sizes):
        raise LookupError("objects inside of objects, or braces inside of texts")
    found, at = [], 0
    for size in sizes:
        run = pieces[at] if size == 1 else _BETWEEN.join(pieces[at : at + size])
        found.append(start + run + end)
        at += size
    return found


def _placed(listed: Any, places: Sequence[tuple[str, str]], payloads: Sequence[bytes], is_complete: bool) -> Transactions:
    """Transactions from the hash and index that each payload states. A LookupError where they are not as nodes give them: in the
    order of the block, each once."""
    if listed is None:
        indexes = [number_of(index, "transactionIndex", bits=31) for _, index in places]
        if indexes != sorted(set(indexes)):
            raise LookupError("not in order")
        return tuple(map(RawTransaction, indexes, _hashes([name for name, _ in places]), payloads))
    names = listed if {*map(type, listed)} <= {str} else [one["hash"] for one in listed]
    found = [b"[]"] * len(names)
    for (name, place), payload in zip(places, payloads, strict=True):
        index = _INDEXES[place]
        if names[index] != name or found[index] != b"[]":
            raise LookupError("not as listed")
        found[index] = payload
    if is_complete and len(places) < len(names):
        raise LookupError("receipts are missing")
    return tuple(map(RawTransaction, range(len(names)), _hashes(names), found))


def _hashes(names: Sequence[str]) -> list[bytes]:
    """The bytes of many hashes; a LookupError where one is not a hash, or there twice."""
    text = "".join(names)
    found = bytes.fromhex(text.replace("0x", ""))
    hashes = [found[at : at + 32] for at in range(0, len(found), 32)]
    if set(map(len, names)) - {66} or text[1::66] != "x" * len(names) or not len(set(hashes)) == len(hashes) == len(names):
        raise LookupError("not hashes")
    return hashes


def _header(block: Json) -> Header:
    seconds = _number(block, "timestamp", "block")
    if seconds >= END_OF_SECONDS:
        raise BadInput(f"block timestamp {block['timestamp']} is out of range: unix seconds are expected")
    height = _number(block, "number", "block")
    return height, _hash(block, "hash", "block"), _hash(block, "parentHash", "block"), seconds * 1_000_000


def _transactions(text: str, block: Json, parts: Mapping[str, Part]) -> Transactions:
    listed = _listed(block)
    for key, read in (("receipts", _from_receipts), ("logs", _from_logs)):
        if key in parts and isinstance(parts[key].value, list):
            _check_block(block, (part.value for part in parts[key].value), key)
            return read([(part.value, as_received(text, part)) for part in parts[key].value], listed)
    raise BadInput(f'block {block["number"]} has neither a "receipts" nor a "logs" array: fetch one of them too')


def _check_block(block: Json, records: Iterable[Any], kind: str) -> None:
    """Refuses records, and logs inside of them, that are of another block."""
    for record in records:
        if not isinstance(record, dict):
            continue
        name, number = record.get("blockHash"), record.get("blockNumber")
        if name is not None and hash_of(name, f"blockHash of the {kind}") != (own := _hash(block, "hash", "block")):
            raise BadInput(f"its {kind} are of block {name[:10]}…, not of {short(own)}: fetch them again")
        if number is not None and number_of(number, f"blockNumber of the {kind}") != _number(block, "number", "block"):
            raise BadInput(f"its {kind} are of block {number}, not of {block['number']}: fetch them again")
        if kind == "receipts" and isinstance(record.get("logs"), list):
            _check_block(block, record["logs"], "logs")


def _from_receipts(receipts: Iterable[tuple[Any, bytes]], listed: list[bytes] | None) -> Transactions:
    found = []
    for receipt, payload in receipts:
        transaction = _hash(receipt, "transactionHash", "receipt")
        index = _number(receipt, "transactionIndex", "receipt", bits=31)
        found.append(RawTransaction(index, transaction, payload))
    if listed is not None and len(found) != len(listed):
        raise BadInput(f"the block lists {len(listed)} transactions but has {len(found)} receipts: fetch all receipts")
    if len({transaction.index for transaction in found}) != len(found):
        raise BadInput("two receipts have the same transactionIndex: fetch the receipts again")
    for one in found if listed is not None else ():
        _check_listed(listed or [], one.index, one.hash, "receipt")
    return _in_order(found)


def _from_logs(pieces: Iterable[tuple[Any, bytes]], listed: list[bytes] | None) -> Transactions:
    logs: dict[bytes, list[bytes]] = {transaction: [] for transaction in listed or ()}
    indexes = {transaction: index for index, transaction in enumerate(listed or ())}
    for count, (log, payload) in enumerate(pieces):
        transaction = _hash(log, "transactionHash", "log")
        index = _number(log, "transactionIndex", "log", bits=31)
        if indexes.setdefault(transaction, index) != index:
            raise BadInput(f"log {count} has transaction index {index}, its transaction has {indexes[transaction]}")
        if listed is not None:
            _check_listed(listed, index, transaction, "log")
        logs.setdefault(transaction, []).append(payload)
    if len(set(indexes.values())) != len(indexes):
        raise BadInput("logs of two transactions have the same transactionIndex: fetch the logs again")
    return _in_order(
        [RawTransaction(indexes[transaction], transaction, b"[" + b",".join(found) + b"]") for transaction, found in logs.items()]
    )


def _check_listed(listed: Sequence[bytes], index: int, transaction: bytes, what: str) -> None:
    """A transaction that the block does not list, at that place, belongs to another block."""
    if index >= len(listed) or listed[index] != transaction:
        there = short(listed[index]) if index < len(listed) else f"only {len(listed)} transactions"
        raise BadInput(f"a {what} is of transaction {index} {short(transaction)}, the block lists {there}: fetch it again")


def _in_order(transactions: Iterable[RawTransaction]) -> Transactions:
    return tuple(sorted(transactions, key=lambda transaction: transaction.index))


def _listed(block: Json) -> list[bytes] | None:
    """The hashes of the block's transactions, which may be given as hashes or as objects; None when left out."""
    transactions = block.get("transactions")
    if transactions is None:
        return None
    if not isinstance(transactions, list):
        raise BadInput(f"block.transactions is {transactions!r:.60}: an array is expected")
    return [hash_of(item.get("hash") if isinstance(item, dict) else item, "transaction.hash") for item in transactions]


def number_of(value: Any, what: str, bits: int = 63) -> int:
    """A number as JSON-RPC writes it."""
    if not isinstance(value, str) or not _QUANTITY.fullmatch(value) or (number := int(value, 16)) >> bits:
        raise BadInput(f"{what} is {value!r:.60}: a 0x… number of at most {bits} bits is expected")
    return number


def hash_of(value: Any, what: str) -> bytes:
    """A hash as JSON-RPC writes it."""
    if not isinstance(value, str) or len(value) != 66 or len(found := from_hex(value, what)) != 32:
        raise BadInput(f"{what} is {value!r:.80}: a 0x… hash of 32 bytes is expected")
    return found


def _number(record: Any, name: str, what: str, bits: int = 63) -> int:
    return number_of(record.get(name) if isinstance(record, dict) else None, f"{what}.{name}", bits)


def _hash(record: Any, name: str, what: str) -> bytes:
    return hash_of(record.get(name) if isinstance(record, dict) else None, f"{what}.{name}")
