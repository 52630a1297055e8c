"""Which events of the cage a transaction carries: a pure function of the transaction and of what its inputs resolve to.

- Boot: it mints one of a name under the cage's policy, and an output at the cage holds that token with a state. If the policy was
  told Migrating, the token comes from another cage and brings its state along.
- Request: an output at the cage has a request as its datum.
- Update: an input at the cage holds a token and is spent with Modify, and an output at the cage holds it on, with a new state.
  The requests for the token among the inputs, in sorted order, are its operations. Where an output of a script that is not known
  is spent too, that may have been one more.
- Reject: the same with Reject. The requests leave, and the root stays.
- Retract: a request is spent with Retract.
- Burn: it mints minus one of a name.

An invalid transaction carries none. A state belongs to a token by address and asset, never by its place in the transaction.
"""

from collections.abc import Sequence
from typing import NamedTuple

from chainlake.cage.datums import MIGRATING, MODIFY, REJECT, RETRACT, Cage, Request, State, constructor, read_datum
from chainlake.cage.transaction import Asset, TxIn, TxOut

BOOT, REQUEST, UPDATE, REJECTED, RETRACTED, BURN = "boot", "request", "update", "reject", "retract", "burn"


class Spent(NamedTuple):
    """An input that resolved, with what its script was told."""

    place: TxIn
    output: TxOut
    redeemer: bytes | None


class Used(NamedTuple):
    """A request among the inputs."""

    place: TxIn
    request: Request


class Event(NamedTuple):
    """Something that happened to the cage. `requests` are those made, processed, rejected or retracted, in order. `was` is the
    state before, here or, of a boot, in the cage that the token comes from. `is_whole`: an update's requests are all known."""

    kind: str
    token_id: bytes
    state: State | None = None
    was: State | None = None
    requests: tuple[Used, ...] = ()
    is_whole: bool = True


def events_of(
    cage: Cage,
    spent: Sequence[Spent],
    created: Sequence[tuple[TxIn, TxOut]],
    mints: Sequence[Asset],
    minting: bytes | None = None,
    is_whole: bool = True,
) -> list[Event]:
    """The events of a valid transaction, given its inputs in sorted order and what its policy was told (`minting`): those that
    use what was there, then what is new, tokens by their names. `is_whole`: what it spends of scripts is all known."""
    states = _states(cage, created)
    used: list[tuple[Used, Spent]] = []
    tokens: list[tuple[bytes, State, Spent]] = []
    for one in spent:
        if one.output.address == cage.address:
            datum = read_datum(one.output.datum)
            if isinstance(datum, Request):
                used.append((Used(one.place, datum), one))
            elif isinstance(datum, State):
                tokens += [(asset.name, datum, one) for asset in one.output.assets if _is_token(cage, asset)]
    events: list[Event] = []
    taken: set[bytes] = set()
    for token, was, one in tokens:
        told, state = constructor(one.redeemer), states.get(token)
        if told in (MODIFY, REJECT) and state is not None:
            requests = tuple(request for request, _ in used if request.request.token_id == token)
            events.append(Event(UPDATE if told == MODIFY else REJECTED, token, state, was, requests, is_whole))
            taken.add(token)
    for request, one in used:
        if request.request.token_id not in taken and constructor(one.redeemer) == RETRACT:
            events.append(Event(RETRACTED, request.request.token_id, requests=(request,)))
    own = sorted(asset for asset in mints if asset.policy == cage.policy)
    came = constructor(minting) == MIGRATING
    events += [Event(BURN, asset.name) for asset in own if asset.quantity == -1]
    for asset in own:
        if asset.quantity == 1 and asset.name in states:
            events.append(Event(BOOT, asset.name, states[asset.name], states[asset.name] if came else None))
    return events + [
        Event(REQUEST, made.token_id, requests=(Used(place, made),))
        for place, output in created
        if (made := request_in(cage, output)) is not None
    ]


def request_in(cage: Cage, output: TxOut) -> Request | None:
    """The request that an output is, if it is one."""
    if output.address != cage.address:
        return None
    datum = read_datum(output.datum)
    return datum if isinstance(datum, Request) else None


def _states(cage: Cage, created: Sequence[tuple[TxIn, TxOut]]) -> dict[bytes, State]:
    """The state of each token that an output at the cage holds."""
    found: dict[bytes, State] = {}
    for _, output in created:
        if output.address == cage.address and isinstance(datum := read_datum(output.datum), State):
            found |= {asset.name: datum for asset in output.assets if _is_token(cage, asset)}
    return found


def _is_token(cage: Cage, asset: Asset) -> bool:
    return asset.policy == cage.policy and asset.quantity == 1
