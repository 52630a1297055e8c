"""The chain one transaction after the other, in memory: what every table of the cage has to agree with.

It keeps whole sets and computes roots from them by definition, each time, with none of the code of the trees. Slow and plain on
purpose. (Which events a transaction carries it asks `rules`; the demo chains say so themselves, see `test_cage_rules`.)
"""

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from chainlake.cage.datums import Cage, Request, State
from chainlake.cage.rules import BOOT, BURN, REJECTED, UPDATE, Event, Spent, events_of, request_in
from chainlake.cage.transaction import MINT, SPEND, Tx, TxIn, TxOut
from chainlake.errors import BrokenPromise
from tests.unit.merkle_by_definition import csmt_root, mpf_root, txin

EMPTY = bytes(32)


@dataclass(frozen=True)
class Token:
    """A token and since when it is as it is. `tracked` is False where its trie began before what we have seen."""

    state: State
    created_height: int | None
    updated_height: int
    tracked: bool = True


@dataclass
class Replay:
    """All that is known after a block."""

    cage: Cage | None
    utxos: dict[TxIn, TxOut] = field(default_factory=dict)
    created: dict[TxIn, int | None] = field(default_factory=dict)
    tokens: dict[bytes, Token] = field(default_factory=dict)
    requests: dict[TxIn, Request] = field(default_factory=dict)
    facts: dict[bytes, dict[bytes, bytes]] = field(default_factory=dict)
    unresolved: list[tuple[int, TxIn]] = field(default_factory=list)

    @staticmethod
    def starting(cage: Cage | None, genesis: Mapping[TxIn, TxOut]) -> "Replay":
        """Before the first block."""
        replay = Replay(cage)
        for place, output in genesis.items():
            replay._create(None, place, output)
        return replay

    def apply(self, height: int, txs: Iterable[Tx]) -> list[tuple[int, Event]]:
        """Carry out a block; what happened to the cage, with the numbers of the transactions."""
        found = []
        for at, tx in enumerate(txs):
            before = {place: self.utxos[place] for place in tx.spends() if place in self.utxos}
            for place in tx.spends():
                self._spend(height, place)
            for place, output in tx.creates():
                self._create(height, place, output)
            if self.cage is not None and tx.is_valid:
                made = (tx.creates(), tx.mints, minting_of(tx, self.cage), is_whole(tx, before))
                for event in events_of(self.cage, spent_of(tx, before), *made):
                    self._happen(height, event)
                    found.append((at, event))
        return found

    def utxo_root(self) -> bytes | None:
        """The root of the UTxO set."""
        return csmt_root({txin(*place): output.raw for place, output in self.utxos.items()})

    def copy(self) -> "Replay":
        """As it is now, to compare with later."""
        return copy.deepcopy(self)

    def _spend(self, height: int, place: TxIn) -> None:
        if self.utxos.pop(place, None) is None:
            self.unresolved.append((height, place))
            return
        del self.created[place]
        self.requests.pop(place, None)

    def _create(self, height: int | None, place: TxIn, output: TxOut) -> None:
        self.utxos[place] = output
        self.created[place] = height
        request = None if self.cage is None else request_in(self.cage, output)
        if request is not None:
            self.requests[place] = request

    def _happen(self, height: int, event: Event) -> None:
        token = event.token_id
        if event.kind == BOOT and event.state is not None:
            if token in self.tokens:
                raise BrokenPromise(f"block {height}: token {token.hex()} boots again", height)
            self.tokens[token] = Token(event.state, height, height, event.was is None or event.was.root == EMPTY)
            self.facts[token] = {}
            self._check(height, token)
        elif event.kind in (UPDATE, REJECTED) and event.state is not None and event.was is not None:
            known = self.tokens.get(token)
            tracked = known.tracked if known else event.was.root == EMPTY
            if tracked and event.kind == UPDATE and not event.is_whole and not self._fits(event):
                tracked, self.facts[token] = False, {}
            self.tokens[token] = Token(event.state, known.created_height if known else None, height, tracked)
            facts = self.facts.setdefault(token, {})
            for _, request in event.requests if tracked and event.kind == UPDATE else ():
                if facts.get(request.key) != request.old_value:
                    raise BrokenPromise(f"block {height}: a request does not fit the trie of {token.hex()}", height)
                facts.pop(request.key, None)
                if request.new_value is not None:
                    facts[request.key] = request.new_value
            self._check(height, token)
        elif event.kind == BURN:
            self.tokens.pop(token, None)
            self.facts.pop(token, None)

    def _fits(self, event: Event) -> bool:
        """Whether the requests that are known make the root that the datum has."""
        facts = dict(self.facts.get(event.token_id, {}))
        for _, request in event.requests:
            if facts.get(request.key) != request.old_value:
                return False
            facts.pop(request.key, None)
            facts |= {} if request.new_value is None else {request.key: request.new_value}
        return event.state is not None and mpf_root(facts) == event.state.root

    def _check(self, height: int, token: bytes) -> None:
        kept = self.tokens[token]
        if kept.tracked and mpf_root(self.facts[token]) != kept.state.root:
            raise BrokenPromise(f"block {height}: the trie of {token.hex()} has another root than its datum", height)


def spent_of(tx: Tx, before: Mapping[TxIn, TxOut]) -> list[Spent]:
    """The inputs that are known, in sorted order, each with its redeemer."""
    told = {redeemer.place: redeemer.data for redeemer in tx.redeemers if redeemer.tag == SPEND}
    return [Spent(place, before[place], told.get(at)) for at, place in enumerate(sorted(set(tx.inputs))) if place in before]


def is_whole(tx: Tx, before: Mapping[TxIn, TxOut]) -> bool:
    """Whether all inputs are known that a script was told something about."""
    told = {redeemer.place for redeemer in tx.redeemers if redeemer.tag == SPEND}
    return not any(at in told and place not in before for at, place in enumerate(sorted(set(tx.inputs))))


def minting_of(tx: Tx, cage: Cage) -> bytes | None:
    """What the cage's policy is told: its redeemer counts the policies in their order."""
    policies = sorted({mint.policy for mint in tx.mints})
    told = {redeemer.place: redeemer.data for redeemer in tx.redeemers if redeemer.tag == MINT}
    return told.get(policies.index(cage.policy)) if cage.policy in policies else None
