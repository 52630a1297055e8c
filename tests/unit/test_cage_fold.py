"""Folding in parts, from rows along touched keys only, gives what the plain replay gives, for any batches; and it reports what is
not right with the block's height."""

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainlake.cage import utxo_fold
from chainlake.cage.datums import State
from chainlake.cage.token_fold import TokenBlock, TokenEvent, TokenRow, fold_token
from chainlake.demo import cage
from chainlake.demo.cage_world import CAGE
from chainlake.errors import BrokenPromise
from chainlake.merkle import csmt, mpf
from chainlake.merkle.csmt import Change
from tests.unit.cage_making import Found, canonical, replayed, start
from tests.unit.cage_replay import Replay

BLOCKS = {seed: canonical(list(cage.chain(50, seed, forks={}))) for seed in (5, 6)}
CHAINS = {seed: replayed(blocks, seed) for seed, blocks in BLOCKS.items()}
OWNER = b"\x05" * 28


def batches(data: st.DataObject, count: int) -> list[tuple[int, int]]:
    cuts = sorted(data.draw(st.sets(st.integers(1, count - 1), max_size=12)))
    return list(zip([0, *cuts], [*cuts, count], strict=True))


def event(height: int, at: int, found: object) -> TokenEvent:
    kind, _, state, was, requests, is_whole = found  # type: ignore[misc]
    operations = [mpf.Operation(r.key, r.old_value, r.new_value) for _, r in requests] if kind == "update" else []
    return TokenEvent(height, at, kind, state, was.root if was else None, operations, is_whole)


def of_token(token: bytes, blocks: list[tuple[int, Found]]) -> list[TokenEvent]:
    chosen = ("boot", "update", "reject", "burn")
    return [event(h, at, e) for h, found in blocks for at, e in found if e.token_id == token and e.kind in chosen]


def folded(token: bytes, before: TokenRow | None, kept: dict[bytes, bytes], events: list[TokenEvent]) -> list[TokenBlock]:
    """From rows along touched keys; if it comes out that the trie ends, from all of them."""
    keys = {operation.key for one in events for operation in one.operations}
    wanted = {path for key in keys for path in mpf.row_paths(key)} | {b""}
    made = list(fold_token(token, before, {path: node for path, node in kept.items() if path in wanted}, events))
    return list(fold_token(token, before, kept, events)) if any(done.burned for done in made) else made


@settings(max_examples=12, deadline=None)
@given(st.data(), st.sampled_from(sorted(CHAINS)))
def test_tokens_facts_and_trie_rows_are_those_of_the_replay_for_any_batches(data: st.DataObject, seed: int) -> None:
    same_in_batches(data, CHAINS[seed])


def known_in_part(seed: int, cut: int, rng: random.Random) -> list[tuple[Replay, Found]]:
    """A chain from some block on, of which some outputs before it are not known, and some requests since."""
    before = CHAINS[seed][cut - 1][0].utxos if cut else start(seed).utxos
    now = Replay.starting(CAGE, {place: output for place, output in before.items() if not cut or rng.random() < 0.7})
    history = []
    for height, txs in enumerate(BLOCKS[seed][cut:]):
        for place in [place for place in sorted(now.requests) if rng.random() < 0.04]:
            now.utxos.pop(place)
            now.requests.pop(place)
        found = now.apply(height, txs)
        history.append((now.copy(), found))
    return history


@settings(max_examples=16, deadline=None)
@given(st.data(), st.sampled_from(sorted(BLOCKS)), st.sampled_from((0, 0, 5, 25)), st.integers(0, 1000))
def test_outputs_that_are_not_known_stop_no_chain(data: st.DataObject, seed: int, cut: int, number: int) -> None:
    same_in_batches(data, known_in_part(seed, cut, random.Random(number)))


def tracked(state: Replay) -> set[bytes]:
    return {token for token, known in state.tokens.items() if known.tracked}


def test_chains_that_are_known_in_part_lose_tries_and_keep_others() -> None:
    states = [state for state, _ in known_in_part(5, 0, random.Random(1))]
    lost = {token for was, now in pairwise(states) for token in tracked(was) - tracked(now) if token in now.tokens}
    assert lost and tracked(states[-1])


def same_in_batches(data: st.DataObject, history: list[tuple[Replay, Found]]) -> None:
    tokens: dict[bytes, TokenRow] = {}
    facts: dict[bytes, dict[bytes, bytes]] = {}
    nodes: dict[bytes, dict[bytes, bytes]] = {}
    for low, high in batches(data, len(history)):
        part = [(height, history[height][1]) for height in range(low, high)]
        for token in {e.token_id for _, found in part for _, e in found}:
            events = of_token(token, part)
            kept = nodes.setdefault(token, {})
            for done in folded(token, tokens.get(token), dict(kept), events):
                if done.token is None:
                    tokens.pop(token, None)
                else:
                    tokens[token] = done.token
                own = facts.setdefault(token, {})
                for key, (value, there) in done.facts.items():
                    assert there or own[key] == value, "what goes is told with the value it had"
                    own[key] = value
                    if not there:
                        del own[key]
                for path, node in done.nodes.items():
                    assert node is not None or path in kept, "only rows that there are can go"
                    kept[path] = node or b""
                    if node is None:
                        del kept[path]
                if done.burned:
                    own.clear()
                    assert not kept or done.token is not None
        state = history[high - 1][0]
        assert {t: (r.state, r.created_height, r.updated_height, r.tracked) for t, r in tokens.items()} == {
            t: (r.state, r.created_height, r.updated_height, r.tracked) for t, r in state.tokens.items()
        }
        assert {t: own for t, own in facts.items() if own} == {t: own for t, own in state.facts.items() if own}
        for token, known in state.tokens.items():
            assert mpf.Trie(nodes.get(token, {})).root() == (known.state.root if known.tracked else mpf.EMPTY)


def changes(before: Replay, after: Replay) -> list[Change]:
    gone = [Change(csmt.txin_key(*place), None) for place in before.utxos.keys() - after.utxos.keys()]
    return gone + [Change(csmt.txin_key(*p), o.raw) for p, o in after.utxos.items() if p not in before.utxos]


@settings(max_examples=10, deadline=None)
@given(st.data(), st.sampled_from(sorted(CHAINS)))
def test_utxo_roots_from_sixteen_parts_are_those_of_the_whole_set_for_any_batches(data: st.DataObject, seed: int) -> None:
    history = [start(seed), *(state for state, _ in CHAINS[seed])]
    rows: dict[str, dict[bytes, bytes]] = {part: {} for part in utxo_fold.PARTS}
    first = [Change(csmt.txin_key(*place), output.raw) for place, output in history[0].utxos.items()]
    for low, high in batches(data, len(history) - 1):
        made = [(h, change) for h in range(low, high) for change in changes(history[h], history[h + 1])]
        made = [(0, change) for change in first if low == 0 and change.key not in {c.key for h, c in made if h == 0}] + [
            (h, c) for h, c in made if h or c.value is not None
        ]
        tops = {part: utxo_fold.top_of(part, kept.get(utxo_fold.to_path(part))) for part, kept in rows.items()}
        blocks = []
        for part, kept in rows.items():
            own = [(h, c) for h, c in made if utxo_fold.to_text(csmt.part_of(c.key, utxo_fold.PART_DEPTH)) == part]
            for done in utxo_fold.fold_part(part, dict(kept), own):
                kept.update({path: node for path, node in done.rows.items() if node is not None})
                for path in [path for path, node in done.rows.items() if node is None]:
                    del kept[path]
                blocks.append((done.height, part, done.top))
        for height, root in utxo_fold.roots(tops, blocks, range(low, high)):
            assert root == history[height + 1].utxo_root()


def test_paths_as_text() -> None:
    assert utxo_fold.to_path("825820a") == bytes([8, 2, 5, 8, 2, 0, 10]) and utxo_fold.to_path("") == b""
    assert utxo_fold.to_text(bytes([8, 0, 15])) == "80f"


def test_an_output_made_twice_or_spent_twice_names_the_block() -> None:
    key = csmt.txin_key(b"\x01" * 32, 0)
    for wrong in ([(7, Change(key, b"x")), (8, Change(key, b"y"))], [(8, Change(key, None))]):
        with pytest.raises(BrokenPromise, match="block 8: an output is made twice or spent twice") as broken:
            list(utxo_fold.fold_part("8258200", {}, wrong))
        assert broken.value.height == 8


def test_a_root_that_is_not_the_datums_names_block_transaction_and_token() -> None:
    wrong = State(OWNER, b"\x01" * 32, 1, 1, 1)
    empty = State(OWNER, mpf.EMPTY, 1, 1, 1)
    with pytest.raises(
        BrokenPromise, match="block 9, transaction 2: boot of token 0x74: the datum has root 0x01010101…, the trie 0x0000"
    ):
        list(fold_token(b"t", None, {}, [TokenEvent(9, 2, "boot", wrong, None, [])]))
    insert = mpf.Operation(b"k", None, b"v")
    right = empty._replace(root=mpf.root({b"k": b"v"}))
    booted = TokenEvent(8, 0, "boot", empty, None, [])
    with pytest.raises(BrokenPromise, match="key 0x6b is in the trie already") as broken:
        list(fold_token(b"t", None, {}, [booted, TokenEvent(9, 2, "update", right, mpf.EMPTY, [insert, insert])]))
    assert broken.value.height == 9
    with pytest.raises(BrokenPromise, match="it is there already"):
        list(fold_token(b"t", None, {}, [booted, booted]))


def test_what_a_block_does_to_a_key_several_times_is_told_once_from_what_was_there_before() -> None:
    def updated(tx_index: int, left: dict[bytes, bytes], *operations: mpf.Operation) -> TokenEvent:
        state = State(OWNER, mpf.root(left), 1, 1, 1)
        return TokenEvent(9, tx_index, "update", state, mpf.EMPTY, operations)

    old = {b"changed": b"0", b"gone": b"0", b"same": b"0"}
    first = updated(0, old, *(mpf.Operation(key, None, value) for key, value in old.items()))._replace(height=8)
    steps = [
        *(mpf.Operation(key, b"0", b"1") for key in old),
        *(mpf.Operation(b"changed", b"1", b"2"), mpf.Operation(b"gone", b"1", None), mpf.Operation(b"same", b"1", b"0")),
        *(mpf.Operation(b"new", None, b"1"), mpf.Operation(b"new", b"1", b"2"), mpf.Operation(b"brief", None, b"1")),
        mpf.Operation(b"brief", b"1", None),
    ]
    left = {b"changed": b"2", b"same": b"0", b"new": b"2"}
    done = list(fold_token(b"t", None, {}, [first, updated(0, left, *steps)]))[-1]
    assert done.facts == {b"changed": (b"2", True), b"gone": (b"0", False), b"new": (b"2", True)}


def test_a_token_from_before_the_first_block_is_kept_without_its_trie_unless_that_was_empty() -> None:
    state = State(OWNER, b"\x07" * 32, 1, 1, 1)
    insert = mpf.Operation(b"k", None, b"v")
    (unknown,) = fold_token(b"t", None, {}, [TokenEvent(9, 0, "update", state, b"\x06" * 32, [insert])])
    assert unknown.token == TokenRow(state, None, 9, False) and not unknown.facts and not unknown.nodes
    right = state._replace(root=mpf.root({b"k": b"v"}))
    (known,) = fold_token(b"t", None, {}, [TokenEvent(9, 0, "update", right, mpf.EMPTY, [insert])])
    assert known.token == TokenRow(right, None, 9, True) and known.facts == {b"k": (b"v", True)}


def test_a_request_that_is_not_known_makes_the_trie_unknown_and_no_other_root_does() -> None:
    state = State(OWNER, b"\x07" * 32, 1, 1, 1)
    one, other = mpf.Operation(b"k", None, b"v"), mpf.Operation(b"l", None, b"w")
    filled = state._replace(root=mpf.root({b"k": b"v"}))
    first = TokenEvent(9, 0, "update", filled, mpf.EMPTY, [one])
    for before, wrong in (([], [other]), ([first], [one]), ([first], [mpf.Operation(b"x", b"y", None)]), ([first], [other])):
        for height in (9, 10):
            after = TokenEvent(height, 1, "update", state, mpf.EMPTY, wrong, is_whole=False)
            lost = list(fold_token(b"t", None, {}, [*before, after]))[-1]
            assert lost.burned and lost.token == TokenRow(state, None, height, False)
            assert lost.facts == ({b"k": (b"v", False)} if before and height == 10 else {})
            assert not any(lost.nodes.values()) and bool(lost.nodes) == bool(before and height == 10)
            with pytest.raises(BrokenPromise, match=f"block {height}, transaction 1: update"):
                list(fold_token(b"t", None, {}, [*before, after._replace(is_whole=True)]))
    right = TokenEvent(10, 0, "update", state._replace(root=mpf.root({b"k": b"v", b"l": b"w"})), filled.root, [other], False)
    known = list(fold_token(b"t", None, {}, [first, right]))[-1]
    assert known.token is not None and known.token.tracked and known.facts == {b"l": (b"w", True)}


def test_a_token_from_another_cage_is_kept_without_its_trie_unless_that_is_empty() -> None:
    filled, empty = State(OWNER, b"\x07" * 32, 1, 1, 1), State(OWNER, mpf.EMPTY, 1, 1, 1)
    insert = mpf.Operation(b"k", None, b"v")
    after = [
        TokenEvent(9, 0, "update", filled._replace(root=b"\x08" * 32), filled.root, [insert]),
        TokenEvent(10, 0, "burn", None, None, []),
    ]
    came, moved, gone = fold_token(b"t", None, {}, [TokenEvent(8, 0, "boot", filled, filled.root, []), *after])
    assert came.token == TokenRow(filled, 8, 8, False) and gone.token is None
    assert not any((block.facts or block.nodes) for block in (came, moved, gone))
    (known,) = fold_token(b"t", None, {}, [TokenEvent(8, 0, "boot", empty, mpf.EMPTY, [])])
    assert known.token == TokenRow(empty, 8, 8, True)
