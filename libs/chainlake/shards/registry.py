"""The nodes that streams may be placed on. A node has a permanent index, which tables store in place of its address."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from chainlake.encoding import from_hex, to_hex
from chainlake.errors import BadInput
from chainlake.sources.files import MAX_LINE, UNREADABLE, open_stream
from chainlake.sources.json_text import parse, utf8

ADDRESS = 20
MANY_LISTS = 1 << 14
MAX_INDEX, MAX_HEIGHT = (1 << 31) - 1, (1 << 63) - 1


@dataclass(frozen=True)
class NodeRecord:
    """A node, and the height from which it is registered."""

    address: bytes
    permanent_index: int
    from_height: int


class NodeRegistry:
    """Address to permanent index at a height, and back. The same records may come twice; the earliest height holds."""

    def __init__(self, records: Iterable[NodeRecord]) -> None:
        self._by_address: dict[bytes, NodeRecord] = {}
        self._addresses: dict[int, bytes] = {}
        self._lists: dict[tuple[int, ...], tuple[bytes, ...]] = {}
        for record in records:
            self._add(record)

    @property
    def records(self) -> list[NodeRecord]:
        """All nodes by permanent index."""
        return sorted(self._by_address.values(), key=lambda record: record.permanent_index)

    def index_of(self, address: bytes, height: int) -> int | None:
        """The permanent index of a node; None if it is not registered at that height."""
        record = self._by_address.get(address)
        return record.permanent_index if record is not None and record.from_height <= height else None

    def address_of(self, index: int) -> bytes:
        """The address behind a permanent index."""
        address = self._addresses.get(index)
        if address is None:
            raise BadInput(f"no node has permanent index {index}: use the registry with which the chain was ingested")
        return address

    def addresses_of(self, indexes: tuple[int, ...]) -> tuple[bytes, ...]:
        """The addresses behind permanent indexes, in order. Many streams are on the same nodes: the last lists are kept."""
        found = self._lists.get(indexes)
        if found is None:
            if len(self._lists) >= MANY_LISTS:
                self._lists.clear()
            found = self._lists[indexes] = tuple(map(self.address_of, indexes))
        return found

    def _add(self, record: NodeRecord) -> None:
        held = self._by_address.get(record.address, record)
        owner = self._addresses.setdefault(record.permanent_index, record.address)
        if owner != record.address:
            raise BadInput(
                f"permanent index {record.permanent_index} is given to {to_hex(owner)} and to {to_hex(record.address)}: "
                "an index belongs to one node for ever"
            )
        if held.permanent_index != record.permanent_index:
            raise BadInput(
                f"node {to_hex(record.address)} has permanent indexes {held.permanent_index} and {record.permanent_index}: "
                "a node keeps its index"
            )
        self._by_address[record.address] = min(held, record, key=lambda one: one.from_height)


def read_registry(path: str) -> NodeRegistry:
    """The registry of `registry=FILE`: JSON lines {address, permanent_index, from_height}, plain or gzip."""
    try:
        return NodeRegistry(_records(path))
    except UNREADABLE as error:
        raise BadInput(f"the registry {path} cannot be read: {error}: check the option registry") from None


def parse_record(value: Any) -> NodeRecord:
    """A node of a parsed line. Members that we do not know are left alone."""
    if not isinstance(value, dict):
        raise BadInput(f"{value!r:.60} is not a node: an object of address, permanent_index and from_height is expected")
    text = value.get("address")
    if not isinstance(text, str) or not re.fullmatch("0[xX][0-9a-fA-F]{40}", text):
        raise BadInput(f"address is {text!r:.60}: 0x and 40 hex digits are expected")
    index = _number(value, "permanent_index", 1, MAX_INDEX)
    return NodeRecord(from_hex(text), index, _number(value, "from_height", 0, MAX_HEIGHT))


def _records(path: str) -> Iterator[NodeRecord]:
    with open_stream(path) as stream:
        for number, line in enumerate(iter(lambda: stream.readline(MAX_LINE), b""), start=1):
            if line.isspace():
                continue
            try:
                yield parse_record(parse(utf8(line)))
            except BadInput as error:
                raise BadInput(f"{path}, line {number}: {error}") from None


def _number(value: dict[str, Any], name: str, least: int, most: int) -> int:
    found = value.get(name)
    if not isinstance(found, int) or isinstance(found, bool) or not least <= found <= most:
        raise BadInput(f"{name} is {found!r:.60}: a whole number from {least} to {most} is expected")
    return found
