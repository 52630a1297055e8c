"""What happens to the cage: vectors, what each event needs, and that demo chains have exactly the events they were made with."""

import itertools

import pytest

from chainlake.cage.datums import (
    BURNING,
    MIGRATING,
    MINTING,
    MODIFY,
    REJECT,
    RETRACT,
    Cage,
    Request,
    State,
    asset_name,
    read_datum,
)
from chainlake.cage.rules import Event, Spent, events_of
from chainlake.cage.transaction import Asset, TxIn, TxOut
from chainlake.demo import cage
from chainlake.demo.cage_cbor import Plutus, tag
from chainlake.demo.cage_world import CAGE, OTHER_POLICY, POLICY
from chainlake.demo.cardano import array, octets, uint
from chainlake.errors import BadInput, BrokenPromise
from chainlake.merkle import mpf
from tests.unit.cage_making import canonical, replayed, start

P = Plutus(False)
OWNER = b"\x05" * 28
A, B = b"a" * 32, b"b" * 32
EMPTY = State(OWNER, mpf.EMPTY, 1, 2, 3)


def at(number: int) -> TxIn:
    return TxIn(bytes([number]) * 32, number)


def out(
    datum: bytes | None, token: bytes | None = None, quantity: int = 1, policy: bytes = POLICY, address: bytes | None = None
) -> TxOut:
    assets = () if token is None else (Asset(policy, token, quantity),)
    return TxOut(CAGE.address if address is None else address, 1, assets, None, datum, None, b"")


def state_of(token: bytes, state: State = EMPTY) -> TxOut:
    return out(P.state(state), token)


def asks(token: bytes, key: bytes = b"k") -> TxOut:
    return out(P.request(Request(token, OWNER, key, None, b"v", 1, 2)))


def found(created: list[TxOut], *mints: Asset, minting: bytes | None = None) -> list[Event]:
    made = [(TxIn(b"\xff" * 32, number), output) for number, output in enumerate(created)]
    return events_of(CAGE, [], made, mints, minting)


def kinds(spent: list[Spent], created: list[TxOut], *mints: Asset) -> list[tuple[str, bytes, list[TxIn]]]:
    made = [(TxIn(b"\xff" * 32, number), output) for number, output in enumerate(created)]
    return [(e.kind, e.token_id, [used.place for used in e.requests]) for e in events_of(CAGE, spent, made, mints)]


def test_names_of_tokens() -> None:
    seed = bytes(range(1, 33))
    assert asset_name(TxIn(seed, 0)).hex() == "0e60b5bc267eb614324cc605869b377bd4f4770615f2c9dede78611a52f530e9"
    assert asset_name(TxIn(seed, 1)).hex() == "cbfb2fcbfefd664cb8bf2e3b6e02cbe123b43555fc20f297e235a24d4c96e4e3"


def test_the_cage_of_a_network() -> None:
    assert Cage.of("0x" + POLICY.hex(), "mainnet").address == b"\x71" + POLICY
    with pytest.raises(BadInput, match="option cage_policy has 1 bytes: a policy id has 28"):
        Cage.of("ab", "testnet")


@pytest.mark.parametrize("plutus", [Plutus(True), Plutus(False)])
def test_datums_in_both_list_forms(plutus: Plutus) -> None:
    for old, new, name in ((None, b"n" * 200, "insert"), (b"o", None, "delete"), (b"", b"", "update")):
        request = Request(A, OWNER, b"k" * 65, old, new, 7, 1_720_000_000_000)
        assert read_datum(plutus.request(request)) == request and request.operation == name
    assert read_datum(plutus.state(EMPTY)) == EMPTY


@pytest.mark.parametrize(
    "datum",
    [
        None,
        b"",
        b"\x01",
        P.constr(2, P.constr(0)),
        P.constr(1, P.constr(0, octets(OWNER), octets(b"short"), b"\x01", b"\x01", b"\x01")),
        P.constr(1, P.constr(0, octets(OWNER[:27]), octets(mpf.EMPTY), b"\x01", b"\x01", b"\x01")),
        P.constr(1, P.constr(0, octets(OWNER), octets(mpf.EMPTY), b"\x01", b"\x01")),
        P.constr(0, P.constr(0, octets(A), octets(OWNER), octets(b"k"), P.constr(0, octets(b"v")), b"\x01", b"\x01")),
        P.constr(
            0, P.constr(0, P.constr(0, octets(A)), octets(OWNER), octets(b"k"), P.constr(3, octets(b"v")), b"\x01", b"\x01")
        ),
        P.state(EMPTY) + b"\x00",
    ],
)
def test_what_is_no_datum_of_the_cage(datum: bytes | None) -> None:
    assert read_datum(datum) is None


def test_numbers_too_large_for_a_column_do_not_make_a_request_disappear() -> None:
    huge = tag(2, octets(b"\xff" * 40))
    parts = (P.constr(0, octets(A)), octets(OWNER), octets(b"k"), P.constr(0, octets(b"v")), huge, uint(3))
    assert read_datum(P.constr(0, P.constr(0, *parts))) == Request(A, OWNER, b"k", None, b"v", None, 3)
    assert read_datum(tag(102, array(uint(0), array(P.constr(0, *parts[:4], uint(1), uint(3)))))) is not None


def test_boot_needs_one_minted_and_a_state_at_the_cage_that_holds_it() -> None:
    assert kinds([], [state_of(A)], Asset(POLICY, A, 1)) == [("boot", A, [])]
    assert kinds([], [state_of(B), state_of(A)], Asset(POLICY, A, 1)) == [("boot", A, [])]
    decoys = [
        ([out(P.state(EMPTY), A, 2)], Asset(POLICY, A, 2)),
        ([out(P.state(EMPTY), A, 1, OTHER_POLICY)], Asset(OTHER_POLICY, A, 1)),
        ([out(P.state(EMPTY), A, address=b"\x71" + POLICY)], Asset(POLICY, A, 1)),
        ([out(b"\x00", A)], Asset(POLICY, A, 1)),
        ([state_of(B)], Asset(POLICY, A, 1)),
        ([state_of(A)], Asset(POLICY, A, -2)),
    ]
    for created, mint in decoys:
        assert kinds([], created, mint) == [], mint


def test_tokens_of_one_transaction_come_in_the_order_of_their_names_however_they_are_minted() -> None:
    minted = [
        Asset(POLICY, B, 1),
        Asset(OTHER_POLICY, A, 1),
        Asset(POLICY, A, 1),
        Asset(POLICY, b"d", -1),
        Asset(POLICY, b"c", -1),
    ]
    for order in itertools.permutations(minted):
        assert [(e.kind, e.token_id) for e in found([state_of(B), state_of(A)], *order)] == [
            *(("burn", b"c"), ("burn", b"d"), ("boot", A), ("boot", B)),
        ]


def test_a_token_from_another_cage_brings_its_state_along() -> None:
    filled = EMPTY._replace(root=b"\x07" * 32)
    told = P.constr(MIGRATING, P.constr(0, octets(OTHER_POLICY), P.constr(0, octets(A))))
    (event,) = found([state_of(A, filled)], Asset(POLICY, A, 1), minting=told)
    assert (event.kind, event.state, event.was) == ("boot", filled, filled)
    for other in (None, P.constr(MINTING, P.constr(0)), b"\xff", P.constr(BURNING)):
        (event,) = found([state_of(A, filled)], Asset(POLICY, A, 1), minting=other)
        assert event.was is None, "booted here, so its trie has to be empty"


def test_a_request_is_one_only_at_the_cage() -> None:
    assert kinds([], [out(None), asks(A)]) == [("request", A, [TxIn(b"\xff" * 32, 1)])]
    elsewhere = asks(A)._replace(address=b"\x70" + OTHER_POLICY)
    assert kinds([], [elsewhere]) == []


def test_an_update_takes_the_requests_of_its_token_in_sorted_order_and_each_token_its_own() -> None:
    told = P.constr(MODIFY, P.listed())
    spent = [
        Spent(at(1), asks(A), P.reference(1, at(9))),
        Spent(at(2), asks(B), P.reference(1, at(9))),
        Spent(at(3), state_of(B), told),
        Spent(at(4), asks(A), None),
        Spent(at(5), state_of(A), told),
        Spent(at(6), asks(A)._replace(address=b"\x70" + OTHER_POLICY), None),
    ]
    assert kinds(spent, [state_of(A), state_of(B)]) == [("update", B, [at(2)]), ("update", A, [at(1), at(4)])]


def test_a_request_that_an_update_takes_is_not_retracted_too_whatever_it_is_told() -> None:
    """The script carries out all requests for the token that its transaction spends."""
    back = P.reference(RETRACT, at(3))
    spent = [Spent(at(1), asks(A), back), Spent(at(2), asks(B), back), Spent(at(3), state_of(A), P.constr(MODIFY, P.listed()))]
    assert kinds(spent, [state_of(A)]) == [("update", A, [at(1)]), ("retract", B, [at(2)])]


def test_what_is_no_update() -> None:
    modify, spent = P.constr(MODIFY, P.listed()), state_of(A)
    assert kinds([Spent(at(1), spent, modify)], [state_of(B)]) == [], "the token does not go on"
    assert kinds([Spent(at(1), spent, P.constr(0))], [state_of(A)]) == [], "another redeemer"
    assert kinds([Spent(at(1), out(P.state(EMPTY)), modify)], [state_of(A)]) == [], "no token in what is spent"
    assert kinds([Spent(at(1), spent, None)], [state_of(A)]) == []
    two = out(P.state(EMPTY), A, 2)
    assert kinds([Spent(at(1), two, modify)], [two]) == [], "two of a name are no token"


def test_reject_retract_and_burn() -> None:
    rejected = [Spent(at(1), asks(A), None), Spent(at(2), state_of(A), P.constr(REJECT))]
    assert kinds(rejected, [state_of(A)]) == [("reject", A, [at(1)])]
    back = P.reference(RETRACT, at(7))
    assert kinds([Spent(at(1), asks(A), back), Spent(at(2), asks(B), back)], []) == [
        ("retract", A, [at(1)]),
        ("retract", B, [at(2)]),
    ]
    assert kinds([Spent(at(1), state_of(A), P.constr(0))], [], Asset(POLICY, A, -1)) == [("burn", A, [])]


@pytest.mark.parametrize("seed", range(4))
def test_demo_chains_have_exactly_the_events_they_were_made_with(seed: int) -> None:
    made = list(cage.chain(60, seed))
    kept = [block for block in made if not block.abandoned]
    seen = set()
    for block, (state, found) in zip(kept, replayed(canonical(made), seed), strict=True):
        plain = [(at, e.kind, e.token_id, tuple(used.place for used in e.requests)) for at, e in found]
        assert sorted(plain) == sorted((at, *expected) for at, expected in block.expected), block.height
        assert not state.unresolved
        seen |= {e.kind for _, e in found}
    assert seen >= {"boot", "request", "update", "retract"}


def test_abandoned_branches_are_chains_too() -> None:
    made = list(cage.chain(70, 2))
    after = {-1: start(2)}
    for block in made:
        state = after[block.height - 1].copy()
        found = state.apply(block.height, canonical([block._replace(abandoned=False)])[0])
        assert len(found) == len(block.expected) and not state.unresolved
        after[block.height] = state
    assert sum(block.abandoned for block in made) == 1 + 5 + 2


def test_a_datum_with_another_root_breaks_the_promise_at_its_block() -> None:
    made = list(cage.chain(20, 3, forks={}))
    state = start(3)
    with pytest.raises(BrokenPromise) as broken:
        for height, txs in enumerate(canonical(made)):
            wrong = [(token, kept) for token, kept in state.facts.items() if kept]
            if wrong:
                state.facts[wrong[0][0]] = {}
            state.apply(height, txs)
    assert broken.value.height is not None
