"""Events of contracts: which logs are theirs, and what those logs say.

An event is known by the hash of its name and types, which is a log's first topic. That hash does not tell which parameters are
indexed: ERC-20 and ERC-721 share it for `Transfer`, so the number of topics decides too. Anyone may emit any log, so data that
does not fit its event is expected, and gives a reason instead of values.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from chainlake.encoding import from_hex, to_hex
from chainlake.errors import BadInput
from chainlake.logs.abi_events import Event, Parameter, parse_event, topic0
from chainlake.logs.abi_types import layout_error

__all__ = ["Event", "Parameter", "Reason", "Registry", "decode", "default_registry", "parse_event", "topic0"]

_REGISTRY_LINE = re.compile(r"(?:(0x[0-9a-fA-F]{40})\s+)?(.+)")


@dataclass(frozen=True)
class Reason:
    """Why a log could not be decoded."""

    text: str


def decode(event: Event, topics: Sequence[bytes], data: bytes) -> dict[str, str] | Reason:
    """The values of a log by name, each as canonical text: 0x… for addresses and bytes, decimal numbers, JSON for arrays."""
    if len(topics) != event.topic_count or topics[0] != event.hash:
        return Reason(f"not a log of {event.types} with {event.topic_count} topics")
    words = dict(zip((one.name for one in event.indexed), topics[1:], strict=True))
    if any(len(word) != 32 for word in words.values()):
        return Reason("a topic is not 32 bytes long")
    if event.is_plain:
        if wrong := size_error(event, len(data)):
            return Reason(wrong)
        words |= {one.name: data[32 * place : 32 * place + 32] for place, one in enumerate(event.in_data)}
    values: dict[str, Any] = {}
    for one in event.parameters:
        if one.name in words:
            word = words[one.name]
            values[one.name] = word if one.is_hashed else word_value(one.type.name, word)
            if values[one.name] is None:
                return Reason(word_error(one))
    if not event.is_plain:
        found = _decode_data(event, data)
        if isinstance(found, Reason):
            return found
        values |= found
    return {one.name: text_of(values[one.name]) for one in event.parameters}


def word_value(kind: str, word: bytes) -> Any:
    """The value of one word, or None if the word is not clean: bits that the type does not have must be as the type extends."""
    number = int.from_bytes(word, "big")
    if kind == "bool":
        return bool(number) if number < 2 else None
    if kind == "address":
        return word[12:] if number < 1 << 160 else None
    if kind.startswith("uint"):
        return number if number < 1 << int(kind[4:]) else None
    if kind.startswith("int"):
        signed = int.from_bytes(word, "big", signed=True)
        return signed if -(1 << int(kind[3:]) - 1) <= signed < 1 << int(kind[3:]) - 1 else None
    size = word_bytes(kind)
    return None if any(word[size:]) else word[:size]


def word_bytes(kind: str) -> int:
    """How many bytes at the start of a word a `bytes…` or `function` has."""
    return 24 if kind == "function" else int(kind[5:])


def word_error(parameter: Parameter) -> str:
    """What is said of a word that is not clean."""
    return f"{parameter.name}: the word is not a clean {parameter.type.name}"


def size_error(event: Event, size: int) -> str | None:
    """Plain data must be exactly the words of the event."""
    wanted = 32 * len(event.in_data)
    return None if size == wanted else f"data has {size} bytes, {event.types} has {wanted} there"


def text_of(value: Any) -> str:
    """The canonical text of a value."""
    plain = _plain(value)
    return plain if isinstance(plain, str) else json.dumps(plain, separators=(",", ":"), ensure_ascii=False)


def _plain(value: Any) -> Any:
    """What JSON holds of it: numbers are text, since many readers round them."""
    if isinstance(value, (tuple, list)):
        return [_plain(one) for one in value]
    if isinstance(value, bytes):
        return to_hex(value)
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _decode_data(event: Event, data: bytes) -> dict[str, Any] | Reason:
    """Data with dynamic types in it. Its layout is checked before, because eth_abi would follow any offset and any length."""
    from eth_abi import abi
    from eth_abi.exceptions import DecodingError

    types = tuple(one.type for one in event.in_data)
    if wrong := layout_error(types, data):
        return Reason(wrong)
    try:
        values = abi.decode([kind.name for kind in types], data)
    except UnicodeDecodeError:
        return Reason("a string is not UTF-8")
    except (DecodingError, ValueError, OverflowError) as error:
        return Reason(f"data does not fit {event.types}: {type(error).__name__}")
    return {one.name: value for one, value in zip(event.in_data, values, strict=True)}


class Registry:
    """The events that are known, found by first topic, number of topics and contract."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.events = tuple(dict.fromkeys(events))
        self._by_topic0: dict[bytes, list[Event]] = {}
        for event in self.events:
            self._by_topic0.setdefault(event.hash, []).append(event)

    @classmethod
    def parse(cls, text: str) -> "Registry":
        """One declaration a line, after the address of a contract if it is only for that one; `#` begins a comment."""
        found = []
        for number, line in enumerate(text.splitlines(), 1):
            match = _REGISTRY_LINE.fullmatch(line.partition("#")[0].strip())
            if match:
                contract = from_hex(match[1]) if match[1] else None
                try:
                    found.append(parse_event(match[2], contract))
                except BadInput as error:
                    raise BadInput(f"line {number} of the events: {error}") from None
        return cls(found)

    def candidates(self, first: bytes, topic_count: int) -> tuple[Event, ...]:
        """Events that a log may be, those of one contract before those of any."""
        found = [event for event in self._by_topic0.get(first, ()) if event.topic_count == topic_count]
        return tuple(sorted(found, key=lambda event: event.contract is None))

    def why_none(self, first: bytes | None, topic_count: int) -> str:
        """Why there is no candidate."""
        if first is None or not topic_count:
            return "no topics: nothing says which event it is"
        if first not in self._by_topic0:
            return "the event is not registered"
        if self.candidates(first, topic_count):
            return f"{self._by_topic0[first][0].types} is registered for other contracts only"
        return f"{self._by_topic0[first][0].types} is not registered with {topic_count - 1} indexed parameters"

    def decode(self, address: bytes, topics: Sequence[bytes], data: bytes) -> tuple[Event, dict[str, str]] | Reason:
        """The first candidate that fits, with its values."""
        first = topics[0] if topics else None
        reason = None
        for event in self.candidates(first, len(topics)) if first is not None else ():
            if event.contract in (None, address):
                found = decode(event, topics, data)
                if not isinstance(found, Reason):
                    return event, found
                reason = reason or found
        return reason or Reason(self.why_none(first, len(topics)))


@cache
def default_registry() -> Registry:
    """Events that everybody knows."""
    return Registry.parse(resources.files("chainlake.logs").joinpath("events.txt").read_text(encoding="utf-8"))
