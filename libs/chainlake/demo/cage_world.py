"""What people do with a cage on one branch of a chain: boot tokens, ask for changes, process, retract, reject, burn, and mislead.

The world keeps what it needs to act rightly, and says of every transaction which events a reader has to find in it.
"""

import copy
import random
from dataclasses import dataclass, field
from typing import NamedTuple

from chainlake.cage.datums import (
    BURNING,
    CONTRIBUTE,
    END,
    MIGRATING,
    MINTING,
    MODIFY,
    REJECT,
    RETRACT,
    Cage,
    Request,
    State,
    asset_name,
)
from chainlake.cage.transaction import TxIn
from chainlake.demo.cage_cbor import Draft, Plutus, output, text
from chainlake.demo.cardano import WALLETS, wallet
from chainlake.errors import BadInput
from chainlake.merkle import mpf
from chainlake.merkle.blake import blake

POLICY = blake(b"the cage's script")[:28]
OTHER_POLICY = blake(b"another script")[:28]
CAGE = Cage.of(POLICY.hex(), "testnet")
LOCKED = 2_000_000
RICH = 50_000_000
START_MS = 1_720_000_000_000


class Expected(NamedTuple):
    """An event that has to be found."""

    kind: str
    token_id: bytes
    requests: tuple[TxIn, ...] = ()


@dataclass
class Live:
    """A token, where it lies and what its trie holds."""

    place: TxIn
    state: State
    trie: mpf.Trie = field(default_factory=mpf.Trie)
    values: dict[bytes, bytes] = field(default_factory=dict)


@dataclass
class World:
    """One branch."""

    rng: random.Random
    height: int = 0
    money: list[tuple[TxIn, int]] = field(default_factory=list)
    tokens: dict[bytes, Live] = field(default_factory=dict)
    requests: dict[TxIn, Request] = field(default_factory=dict)
    bodies: list[bytes] = field(default_factory=list)
    witnesses: list[bytes] = field(default_factory=list)
    invalid: list[int] = field(default_factory=list)
    expected: list[tuple[int, Expected]] = field(default_factory=list)

    def fork(self, name: str) -> "World":
        """Another branch that has seen the same."""
        other = copy.deepcopy(self)
        other.rng = random.Random(name)
        return other

    def pay(self) -> None:
        """From one wallet to two, now and then without any script."""
        draft, left = self._funded()
        paid = left * self.rng.randint(2, 8) // 10
        self._seal(draft, [paid, left - paid])

    def boot(self, count: int = 1) -> None:
        """New tokens with empty tries, in one transaction."""
        draft, left = self._funded()
        for _ in range(count - 1):
            more, also = self._funded()
            draft.spent += more.spent
            left += also
        plutus, names = self._plutus(), [asset_name(place) for place in draft.spent]
        draft.mints = {POLICY: dict.fromkeys(names, 1)}
        draft.minting[POLICY] = plutus.constr(MINTING, plutus.constr(0, plutus.reference(0, draft.spent[0])))
        self._born(draft, left, {name: Live(draft.spent[0], self._state()) for name in names})

    def migrate(self, keys: int) -> None:
        """A token comes from another cage, where it burns, with what its trie holds by then."""
        draft, left = self._funded()
        token, plutus = asset_name(draft.spent[0]), self._plutus()
        values = {f"key {number}".encode(): b"from elsewhere" for number in range(keys)}
        trie = mpf.Trie.of(values)
        draft.mints = {OTHER_POLICY: {token: -1}, POLICY: {token: 1}}
        origin = plutus.constr(0, text(OTHER_POLICY), plutus.constr(0, text(token)))
        draft.minting = {OTHER_POLICY: plutus.constr(BURNING), POLICY: plutus.constr(MIGRATING, origin)}
        state = self._state()._replace(root=trie.root())
        self._born(draft, left, {token: Live(draft.spent[0], state, trie, values)})

    def ask(self, token: bytes, keys: int = 40, count: int = 1) -> None:
        """A transaction with requests for a token."""
        draft, left = self._funded()
        wishes = [self._wish(token, keys) for _ in range(count)]
        draft.outputs = [output(CAGE.address, LOCKED, None, self._plutus().request(wish)) for wish in wishes]
        body_id = self._seal(draft, [left], [Expected("request", token)] * count, own=True)
        self.requests |= {TxIn(body_id, at): wish for at, wish in enumerate(wishes)}

    def process(self, tokens: list[bytes], most: int = 10**9, transfer: bool = False) -> None:
        """Update tokens with those of their requests that fit, in one transaction."""
        draft, left = self._funded()
        events = []
        for token in tokens:
            live = self.tokens[token]
            done = self._fitting(token, most)
            owner = self._owner() if transfer else live.state.owner
            live.state = live.state._replace(root=live.trie.root(), owner=owner)
            plutus = self._plutus()
            self._continue(draft, token, plutus.constr(MODIFY, plutus.listed()), done)
            events.append(Expected("update", token, tuple(done)))
        self._seal(draft, [left], events)

    def reject(self, token: bytes, count: int) -> None:
        """Send requests away; the root stays."""
        chosen = sorted(place for place, wish in self.requests.items() if wish.token_id == token)[:count]
        draft, left = self._funded()
        self._continue(draft, token, self._plutus().constr(REJECT), chosen)
        self._seal(draft, [left], [Expected("reject", token, tuple(chosen))])

    def retract(self, place: TxIn) -> None:
        """Take a request back."""
        wish = self.requests.pop(place)
        draft, left = self._funded()
        draft.spent.append(place)
        live = self.tokens.get(wish.token_id)
        draft.told[place] = self._plutus().reference(RETRACT, live.place if live else place)
        if live:
            draft.references.append(live.place)
        self._seal(draft, [left + LOCKED], [Expected("retract", wish.token_id, (place,))])

    def burn(self, token: bytes) -> None:
        """End a token."""
        live = self.tokens.pop(token)
        draft, left = self._funded()
        plutus = self._plutus()
        draft.spent.append(live.place)
        draft.told[live.place] = plutus.constr(END)
        self._mint(draft, token, -1, plutus.constr(BURNING))
        self._seal(draft, [left + LOCKED], [Expected("burn", token)])

    def mislead(self) -> None:
        """A transaction that looks like an event and is none."""
        decoys = (self._other_policy, self._request_elsewhere, self._garbage, self._two_minted, self._invalid)
        self.rng.choice(decoys)()

    def _other_policy(self) -> None:
        draft, left = self._funded()
        token = asset_name(draft.spent[0])
        draft.mints = {OTHER_POLICY: {token: 1}}
        datum = self._plutus().state(State(self._owner(), mpf.EMPTY, 1, 1, 1))
        draft.outputs.append(output(CAGE.address, LOCKED, {OTHER_POLICY: {token: 1}}, datum))
        self._seal(draft, [left])

    def _request_elsewhere(self) -> None:
        draft, left = self._funded()
        token = self.rng.choice([*self.tokens, self.rng.randbytes(32)])
        wish = Request(token, self._owner(), b"elsewhere", None, b"value", 1, START_MS)
        draft.outputs.append(output(b"\x70" + OTHER_POLICY, LOCKED, None, self._plutus().request(wish)))
        self._seal(draft, [left])

    def _garbage(self) -> None:
        """Data of another kind; and a request of which only the hash is at the cage."""
        draft, left = self._funded()
        plutus = self._plutus()
        wrong = (
            b"\x01",
            plutus.constr(0, b"\x02"),
            plutus.constr(1, plutus.constr(0, b"\x40")),
            b"\xff\x00",
            b"\xc4\x82\x1b" + b"\xff" * 8,
        )
        draft.outputs.append(output(CAGE.address, LOCKED, None, self.rng.choice(wrong)))
        wish = plutus.request(Request(b"", b"", b"only its hash", None, b"value", 1, self.height))
        draft.outputs.append(output(CAGE.address, LOCKED, None, wish, only_hash=True))
        draft.shown = [wish]
        self._seal(draft, [left])

    def _two_minted(self) -> None:
        draft, left = self._funded()
        token = asset_name(draft.spent[0])
        plutus = self._plutus()
        self._mint(draft, token, 2, plutus.constr(MINTING))
        datum = plutus.state(State(self._owner(), mpf.EMPTY, 1, 1, 1))
        draft.outputs.append(output(CAGE.address, LOCKED, {POLICY: {token: 2}}, datum))
        self._seal(draft, [left])

    def _invalid(self) -> None:
        """It would boot a token and make a request, but fails: it takes its collateral, gives some back, and no more."""
        draft, left = self._funded()
        pledge, lovelace = self.money.pop(0)
        token = asset_name(draft.spent[0])
        plutus = self._plutus()
        self._mint(draft, token, 1, plutus.constr(MINTING))
        datum = plutus.state(State(self._owner(), mpf.EMPTY, 1, 1, 1))
        wish = Request(token, self._owner(), b"never", None, b"value", 1, START_MS)
        draft.outputs = [
            output(CAGE.address, LOCKED, {POLICY: {token: 1}}, datum),
            output(CAGE.address, LOCKED, None, plutus.request(wish)),
        ]
        draft.collateral = [pledge]
        draft.collateral_return = output(wallet(0), lovelace - 500_000)
        self.money.append((draft.spent[0], left + 200_000))
        self.invalid.append(len(self.bodies))
        tx_id = self._seal(draft, [])
        self.money.append((TxIn(tx_id, 2), lovelace - 500_000))

    def _funded(self) -> tuple[Draft, int]:
        """A transaction that spends an output with enough in it, and what is left after its fee."""
        for _ in range(len(self.money)):
            at = self.rng.randrange(len(self.money))
            self.money[at], self.money[-1] = self.money[-1], self.money[at]
            if self.money[-1][1] >= RICH:
                break
        place, lovelace = self.money.pop()
        return Draft([place]), lovelace - 200_000

    def _seal(self, draft: Draft, change: list[int], events: list[Expected] | None = None, own: bool = False) -> bytes:
        """Put the transaction into the block. `own`: each event is of the output with its number."""
        first = len(draft.outputs)
        draft.outputs += [output(wallet(self.rng.randrange(WALLETS)), lovelace) for lovelace in change]
        body = draft.body(self.rng)
        tx_id = blake(body)
        self.money += [(TxIn(tx_id, first + at), lovelace) for at, lovelace in enumerate(change)]
        for at, event in enumerate(events or ()):
            made = event._replace(requests=(TxIn(tx_id, at),)) if own else event
            self.expected.append((len(self.bodies), made))
        for token, live in self.tokens.items():
            if live.place in draft.told:
                self.tokens[token].place = TxIn(tx_id, draft.spent.index(live.place) - 1)
        self.bodies.append(body)
        self.witnesses.append(draft.witness(body, self.rng))
        return tx_id

    def _continue(self, draft: Draft, token: bytes, told: bytes, used: list[TxIn]) -> None:
        """Spend a token and requests, and put the token back with its state. It lies at the output of its input's number."""
        live, plutus = self.tokens[token], self._plutus()
        draft.spent.insert(1 + len(draft.outputs), live.place)
        draft.told[live.place] = told
        for place in used:
            draft.spent.append(place)
            draft.told[place] = plutus.reference(CONTRIBUTE, live.place)
            self.requests.pop(place)
        draft.outputs.append(output(CAGE.address, LOCKED, {POLICY: {token: 1}}, plutus.state(live.state)))

    def _state(self) -> State:
        return State(self._owner(), mpf.EMPTY, self.rng.randrange(1, 10**6), 600_000, 1_200_000)

    def _born(self, draft: Draft, left: int, tokens: dict[bytes, Live]) -> None:
        """Put new tokens at the cage."""
        for token, live in tokens.items():
            draft.outputs.append(output(CAGE.address, LOCKED, {POLICY: {token: 1}}, self._plutus().state(live.state)))
        tx_id = self._seal(draft, [left], [Expected("boot", token) for token in tokens])
        for at, (token, live) in enumerate(tokens.items()):
            live.place = TxIn(tx_id, at)
            self.tokens[token] = live

    def _mint(self, draft: Draft, token: bytes, quantity: int, told: bytes) -> None:
        draft.mints = {POLICY: {token: quantity}}
        draft.minting[POLICY] = told

    def _fitting(self, token: bytes, most: int) -> list[TxIn]:
        """Requests in the order of inputs that the trie takes, carried out."""
        live, done = self.tokens[token], list[TxIn]()
        for place in sorted(place for place, wish in self.requests.items() if wish.token_id == token)[:most]:
            wish = self.requests[place]
            try:
                live.trie.apply(mpf.Operation(wish.key, wish.old_value, wish.new_value))
            except BadInput:
                continue
            done.append(place)
            live.values.pop(wish.key, None)
            if wish.new_value is not None:
                live.values[wish.key] = wish.new_value
        return done

    def _wish(self, token: bytes, keys: int) -> Request:
        """Mostly something that fits the trie as it is."""
        rng, values = self.rng, self.tokens[token].values if token in self.tokens else {}
        key = f"key {rng.randrange(keys)}".encode()
        new = rng.randbytes(rng.choice((0, 1, 20, 64, 65, 150)))
        old = values.get(key)
        if old is not None and rng.random() < 0.4:
            return Request(token, self._owner(), key, old, None, rng.randrange(10**6), self._now())
        if rng.random() < 0.03:
            old = b"a value that it does not have"
        return Request(token, self._owner(), key, old, new, rng.randrange(10**6), self._now())

    def _plutus(self) -> Plutus:
        return Plutus(self.rng.random() < 0.5)

    def _owner(self) -> bytes:
        return wallet(self.rng.randrange(WALLETS))[1:]

    def _now(self) -> int:
        return START_MS + 20_000 * self.height + self.rng.randrange(20_000)
