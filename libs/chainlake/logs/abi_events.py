"""Declarations of events: how they are written, which parameters are topics, and the hash by which logs name them."""

from dataclasses import dataclass
from functools import cached_property

import sha3

from chainlake.errors import BadInput
from chainlake.logs.abi_types import AbiType, Tokens, read_type

MAX_INDEXED = 3
MAX_PARAMETERS = 64
MAX_TEXT = 4_000
FROM_NAMES, TO_NAMES, VALUE_NAMES = ("from", "src"), ("to", "dst"), ("value", "amount", "wad")


@dataclass(frozen=True)
class Parameter:
    """One value of an event. An indexed one is a topic; if its type is not a single word, the topic is the value's hash."""

    name: str
    type: AbiType
    indexed: bool

    @property
    def is_hashed(self) -> bool:
        """Whether a log has only the hash of the value."""
        return self.indexed and not self.type.is_word


@dataclass(frozen=True)
class Event:
    """An event as declared, of one contract or of any."""

    name: str
    parameters: tuple[Parameter, ...]
    contract: bytes | None = None

    @cached_property
    def text(self) -> str:
        """The declaration in its canonical form."""
        shown = (f"{one.type.name}{' indexed' if one.indexed else ''} {one.name}" for one in self.parameters)
        return f"{self.name}({', '.join(shown)})"

    @cached_property
    def types(self) -> str:
        """Name and types alone: what is hashed."""
        return f"{self.name}({','.join(one.type.name for one in self.parameters)})"

    @cached_property
    def hash(self) -> bytes:
        """What tells its logs from others."""
        digest: bytes = sha3.keccak_256(self.types.encode()).digest()
        return digest

    @cached_property
    def indexed(self) -> tuple[Parameter, ...]:
        """The parameters that are topics, in order."""
        return tuple(one for one in self.parameters if one.indexed)

    @cached_property
    def in_data(self) -> tuple[Parameter, ...]:
        """The parameters that are in the data, in order."""
        return tuple(one for one in self.parameters if not one.indexed)

    @property
    def topic_count(self) -> int:
        """How many topics its logs have."""
        return 1 + len(self.indexed)

    @cached_property
    def is_plain(self) -> bool:
        """Whether the data is just one word after another."""
        return all(one.type.is_word for one in self.in_data)

    @cached_property
    def transfer(self) -> tuple[Parameter | None, Parameter | None, Parameter | None]:
        """(who gives, who gets, how much) where the event tells of a transfer: it names both ends, or one and an amount."""
        giver, taker, amount = (
            self._named(names, kind) for names, kind in ((FROM_NAMES, "address"), (TO_NAMES, "address"), (VALUE_NAMES, "uint256"))
        )
        is_transfer = (giver and taker) or (amount and (giver or taker))
        return (giver, taker, amount) if is_transfer else (None, None, None)

    def _named(self, names: tuple[str, ...], kind: str) -> Parameter | None:
        found = (one for one in self.parameters if one.name.lstrip("_") in names and one.type.name == kind)
        return next(found, None)


def parse_event(text: str, contract: bytes | None = None) -> Event:
    """The event that a declaration like `Transfer(address indexed from, address indexed to, uint256 value)` means."""
    if len(text) > MAX_TEXT:
        raise BadInput(f"a signature of {len(text)} characters is too long: at most {MAX_TEXT} are read")
    tokens = Tokens(text)
    name = tokens.word("the name of an event")
    if name == "event":
        name = tokens.word("the name of an event")
    parameters = _read_parameters(tokens)
    if tokens.peek():
        raise BadInput(f"unexpected {tokens.peek()!r} after the event {name}: one declaration is expected, not anonymous")
    names = [one.name for one in parameters]
    if twice := next((one for one in names if names.count(one) > 1), None):
        raise BadInput(f"the event {name} has two parameters named {twice}: give each its own name")
    if len(names) > MAX_PARAMETERS:
        raise BadInput(f"the event {name} has {len(names)} parameters: at most {MAX_PARAMETERS} are supported")
    if sum(one.indexed for one in parameters) > MAX_INDEXED:
        raise BadInput(f"the event {name} has more than {MAX_INDEXED} indexed parameters: a log has no room for them")
    return Event(name, parameters, contract)


def topic0(event: Event) -> bytes:
    """The first topic of an event's logs."""
    return event.hash


def _read_parameters(tokens: Tokens) -> tuple[Parameter, ...]:
    tokens.expect("(")
    found: list[Parameter] = []
    while tokens.peek() != ")":
        if found:
            tokens.expect(",")
        kind = read_type(tokens)
        indexed = tokens.peek() == "indexed"
        if indexed:
            tokens.take()
        named = tokens.peek() not in (",", ")")
        found.append(Parameter(tokens.word("the name of a parameter") if named else f"arg{len(found)}", kind, indexed))
    tokens.expect(")")
    return tuple(found)
