"""Plutus Data and transactions of the cage as bytes, in all the forms that wallets write them."""

import random
from dataclasses import dataclass, field

from chainlake.cage.datums import Request, State
from chainlake.cage.transaction import MINT, SPEND, TxIn
from chainlake.demo.cardano import array, head, mapping, octets, uint
from chainlake.merkle.blake import blake

CHUNK = 64
Assets = dict[bytes, dict[bytes, int]]


def integer(value: int) -> bytes:
    """Any number of up to 64 bits."""
    return uint(value) if value >= 0 else head(1, -1 - value)


def tag(number: int, item: bytes) -> bytes:
    return head(6, number) + item


def text(value: bytes) -> bytes:
    """A byte string of Plutus Data: in chunks when it is long."""
    if len(value) <= CHUNK:
        return octets(value)
    chunks = [octets(value[at : at + CHUNK]) for at in range(0, len(value), CHUNK)]
    return b"\x5f" + b"".join(chunks) + b"\xff"


@dataclass(frozen=True)
class Plutus:
    """Writes Plutus Data, with lists of one of the two forms."""

    indefinite: bool

    def constr(self, number: int, *fields: bytes) -> bytes:
        tag_ = 121 + number if number < 7 else 1280 + number - 7
        return tag(tag_, self.listed(*fields))

    def listed(self, *fields: bytes) -> bytes:
        return b"\x9f" + b"".join(fields) + b"\xff" if self.indefinite and fields else array(*fields)

    def state(self, state: State) -> bytes:
        numbers = (state.max_fee or 0, state.process_time or 0, state.retract_time or 0)
        return self.constr(1, self.constr(0, text(state.owner), text(state.root), *map(integer, numbers)))

    def request(self, request: Request) -> bytes:
        old, new = request.old_value, request.new_value
        if old is None:
            operation = self.constr(0, text(new or b""))
        else:
            operation = self.constr(1, text(old)) if new is None else self.constr(2, text(old), text(new))
        numbers = map(integer, (request.fee or 0, request.submitted_at or 0))
        token = self.constr(0, text(request.token_id))
        return self.constr(0, self.constr(0, token, text(request.owner), text(request.key), operation, *numbers))

    def reference(self, number: int, place: TxIn) -> bytes:
        """A redeemer that points at an output."""
        return self.constr(number, self.constr(0, text(place.tx_id), integer(place.number)))


def output(
    address: bytes, lovelace: int, assets: Assets | None = None, datum: bytes | None = None, only_hash: bool = False
) -> bytes:
    """{0: address, 1: value, 2: inline datum, or its hash}."""
    value = uint(lovelace)
    if assets:
        value = array(value, multi_asset(assets))
    parts = {0: octets(address), 1: value}
    if datum is not None and only_hash:
        parts[2] = array(uint(0), octets(blake(datum)))
    elif datum is not None:
        parts[2] = array(uint(1), tag(24, octets(datum)))
    return mapping(parts)


def multi_asset(assets: Assets) -> bytes:
    """{policy: {name: quantity}}."""
    policies = [
        octets(policy) + head(5, len(names)) + b"".join(octets(name) + integer(quantity) for name, quantity in names.items())
        for policy, names in assets.items()
    ]
    return head(5, len(policies)) + b"".join(policies)


@dataclass
class Draft:
    """A transaction in the making."""

    spent: list[TxIn] = field(default_factory=list)
    outputs: list[bytes] = field(default_factory=list)
    mints: Assets = field(default_factory=dict)
    told: dict[TxIn, bytes] = field(default_factory=dict)
    minting: dict[bytes, bytes] = field(default_factory=dict)
    collateral: list[TxIn] = field(default_factory=list)
    collateral_return: bytes | None = None
    references: list[TxIn] = field(default_factory=list)
    shown: list[bytes] = field(default_factory=list)

    def body(self, rng: random.Random) -> bytes:
        """Inputs in any order, as a list or a tagged set."""
        parts = {0: _inputs(self.spent, rng), 1: array(*self.outputs), 2: uint(170_000 + rng.randrange(10_000))}
        if self.mints:
            parts[9] = multi_asset(self.mints)
        if self.collateral:
            parts[13] = _inputs(self.collateral, rng)
        if self.collateral_return is not None:
            parts[16] = self.collateral_return
        if self.references:
            parts[18] = _inputs(self.references, rng)
        return mapping(parts)

    def witness(self, body: bytes, rng: random.Random) -> bytes:
        """A signature, datums as a list or a set, and the redeemers, as a list or a map."""
        parts = {0: array(array(octets(blake(body)), octets(rng.randbytes(64))))}
        if self.shown:
            parts[4] = tag(258, array(*self.shown)) if len(body) % 2 else array(*self.shown)
        places, policies = sorted(self.spent), sorted(self.mints)
        found = [(SPEND, places.index(place), data) for place, data in self.told.items()]
        found += [(MINT, policies.index(policy), data) for policy, data in self.minting.items()]
        if found and rng.random() < 0.5:
            parts[5] = array(*(array(uint(kind), uint(at), data, _units(rng)) for kind, at, data in found))
        elif found:
            entries = [array(uint(kind), uint(at)) + array(data, _units(rng)) for kind, at, data in found]
            parts[5] = head(5, len(entries)) + b"".join(entries)
        return mapping(parts)


def _inputs(places: list[TxIn], rng: random.Random) -> bytes:
    shuffled = rng.sample(places, len(places))
    listed = array(*(array(octets(place.tx_id), uint(place.number)) for place in shuffled))
    return tag(258, listed) if rng.random() < 0.5 else listed


def _units(rng: random.Random) -> bytes:
    return array(uint(rng.randrange(10**6)), uint(rng.randrange(10**9)))
