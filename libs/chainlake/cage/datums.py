"""What the cage's script keeps in datums and is told in redeemers."""

import hashlib
from functools import lru_cache
from typing import NamedTuple

from chainlake.cage.plutus import Constr, Data, read
from chainlake.cage.transaction import TxIn
from chainlake.encoding import from_hex
from chainlake.errors import BadInput

OWNER, ROOT, POLICY = 28, 32, 28
SCRIPT_ADDRESS = {"testnet": b"\x70", "mainnet": b"\x71"}
END, CONTRIBUTE, MODIFY, RETRACT, REJECT = range(5)
MINTING, MIGRATING, BURNING = range(3)
LARGEST = 1 << 63
DATUMS = 1_024


class Cage(NamedTuple):
    """Which script it is: its policy id, and the address of its outputs."""

    policy: bytes
    address: bytes

    @staticmethod
    def of(policy_hex: str, network: str) -> "Cage":
        policy = from_hex(policy_hex, "option cage_policy")
        if len(policy) != POLICY:
            raise BadInput(f"option cage_policy has {len(policy)} bytes: a policy id has {POLICY}")
        return Cage(policy, SCRIPT_ADDRESS[network] + policy)


class State(NamedTuple):
    """A token's state. Numbers that do not fit 64 bits are None: no rule here depends on them."""

    owner: bytes
    root: bytes
    max_fee: int | None
    process_time: int | None
    retract_time: int | None


class Request(NamedTuple):
    """A wish to change a token's trie: insert (no old value), delete (no new one) or update."""

    token_id: bytes
    owner: bytes
    key: bytes
    old_value: bytes | None
    new_value: bytes | None
    fee: int | None
    submitted_at: int | None

    @property
    def operation(self) -> str:
        if self.old_value is None:
            return "insert"
        return "delete" if self.new_value is None else "update"


def asset_name(seed: TxIn) -> bytes:
    """The name of a token that was minted by spending `seed`."""
    return hashlib.sha256(seed.tx_id + seed.number.to_bytes(2, "big")).digest()


@lru_cache(maxsize=DATUMS)
def read_datum(data: bytes | None) -> State | Request | None:
    """What an inline datum says; None if it is neither a state nor a request. Rules ask this of an output several times."""
    if data is None:
        return None
    try:
        datum = read(data)
    except BadInput:
        return None
    match datum:
        case Constr(0, [Constr(0, fields)]):
            return _request(fields)
        case Constr(1, [Constr(0, fields)]):
            return _state(fields)
    return None


def constructor(data: bytes | None) -> int | None:
    """Which constructor a redeemer is; None if it is none."""
    if data is None:
        return None
    try:
        found = read(data)
    except BadInput:
        return None
    return found.number if isinstance(found, Constr) else None


def _state(fields: list[Data]) -> State | None:
    match fields:
        case [bytes(owner), bytes(root), int(fee), int(process), int(retract)] if len(owner) == OWNER and len(root) == ROOT:
            return State(owner, root, _fitting(fee), _fitting(process), _fitting(retract))
    return None


def _request(fields: list[Data]) -> Request | None:
    match fields:
        case [Constr(0, [bytes(token)]), bytes(owner), bytes(key), Constr() as operation, int(fee), int(submitted)]:
            match operation:
                case Constr(0, [bytes(new)]):
                    return Request(token, owner, key, None, new, _fitting(fee), _fitting(submitted))
                case Constr(1, [bytes(old)]):
                    return Request(token, owner, key, old, None, _fitting(fee), _fitting(submitted))
                case Constr(2, [bytes(old), bytes(new)]):
                    return Request(token, owner, key, old, new, _fitting(fee), _fitting(submitted))
    return None


def _fitting(number: int) -> int | None:
    return number if -LARGEST <= number < LARGEST else None
