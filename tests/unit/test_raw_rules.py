"""How blocks link: every case by hand, then a naive follower on random trees."""

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import example, given
from hypothesis import strategies as st

from chainlake.raw.rules import Action, Advance, Broken, GoBack, Header, link

Blocks = dict[int, bytes]


def header(place: int, height: int, name: str, parent: str, error: str | None = None) -> Header:
    return Header(place, height, name.encode(), parent.encode(), "blocks.jsonl", place * 100, error)


def run_of(start: int, count: int, branch: str, parent: str, place: int = 0) -> list[Header]:
    """Blocks that follow each other, named like `7a` after their height and branch."""
    names = [parent, *(f"{start + i}{branch}" for i in range(count))]
    return [header(place + i, start + i, names[i + 1], names[i]) for i in range(count)]


def held(count: int, branch: str = "a", first: int = 1) -> Blocks:
    return {height: f"{height}{branch}".encode() for height in range(first, first + count)}


def linked(headers: Sequence[Header], ours: Blocks, window: int = 0, final: int = -1) -> list[Action]:
    head = (max(ours), ours[max(ours)]) if ours else None
    return link(headers, head, ours.get, window, final)


def reason(actions: Sequence[Action]) -> str:
    last = actions[-1]
    assert isinstance(last, Broken), f"expected Broken, got {last}"
    return last.reason


def test_blocks_that_follow_the_head_are_one_advance() -> None:
    assert linked(run_of(4, 3, "a", "3a"), held(3)) == [Advance(0, 2, 3, 6, b"6a")]


def test_no_blocks_are_no_action() -> None:
    assert linked([], held(3)) == [] and linked([], {}) == []


def test_a_chain_may_start_at_any_height_with_any_parent() -> None:
    for start in (0, 1, 7_000_000):
        assert linked(run_of(start, 2, "a", "whatever"), {}) == [Advance(0, 1, start - 1, start + 1, f"{start + 1}a".encode())]


def test_blocks_that_we_hold_are_skipped() -> None:
    assert linked(run_of(1, 3, "a", "genesis"), held(3)) == []
    assert linked(run_of(2, 4, "a", "1a"), held(3)) == [Advance(2, 3, 3, 5, b"5a")]


def test_a_held_block_between_new_ones_splits_the_advance() -> None:
    again = header(2, 3, "3a", "2a")
    headers = [*run_of(4, 2, "a", "3a"), again, *run_of(6, 2, "a", "5a", place=3)]
    assert linked(headers, held(3)) == [Advance(0, 1, 3, 5, b"5a"), Advance(3, 4, 5, 7, b"7a")]


def test_a_block_of_this_batch_that_comes_again_is_skipped() -> None:
    headers = [*run_of(1, 2, "a", "genesis"), header(2, 2, "2a", "1a"), header(3, 1, "1a", "genesis"), header(4, 3, "3a", "2a")]
    assert linked(headers, {}) == [Advance(0, 1, 0, 2, b"2a"), Advance(4, 4, 2, 3, b"3a")]


def test_a_gap_stops_the_chain_and_names_the_missing_blocks() -> None:
    actions = linked(run_of(6, 1, "a", "5a"), held(3))
    assert len(actions) == 1
    text = reason(actions)
    assert "does not follow head 3" in text and "blocks 4 to 5 are missing in blocks.jsonl" in text and "resume" in text


def test_a_parent_that_is_not_the_head_stops_the_chain() -> None:
    text = reason(linked([header(0, 4, "4b", "3b")], held(3)))
    assert text == "block 4 has parent 0x3362, expected 0x3361 (head 3): re-fetch from the source (blocks.jsonl) or roll back"


def test_a_fork_within_the_window_goes_back_to_the_common_ancestor() -> None:
    actions = linked(run_of(4, 3, "b", "3a"), held(5), window=2)
    assert actions == [GoBack(3, "the source went another way at 4: 0x3462 (head was 5 0x3561)"), Advance(0, 2, 3, 6, b"6b")]


def test_a_fork_as_deep_as_the_window_is_followed_and_one_deeper_is_not() -> None:
    assert isinstance(linked(run_of(3, 1, "b", "2a"), held(5), window=3)[0], GoBack)
    text = reason(linked(run_of(2, 1, "b", "1a"), held(5), window=3))
    assert text == "block 2 (0x3262) forks 4 blocks back, more than the window of 3"


def test_a_finalized_block_is_never_replaced() -> None:
    for height in (2, 5):
        actions = linked(run_of(height, 1, "b", f"{height - 1}a"), held(5), window=0)
        assert len(actions) == 1
        assert f"finalized block {height} was replaced" in reason(actions)


def test_a_fork_whose_parent_is_not_ours_stops_the_chain() -> None:
    text = reason(linked([header(0, 4, "4c", "3c")], held(5), window=9))
    assert "replaces ours, but its parent 0x3363 is not our block 3" in text


def test_the_first_block_cannot_be_replaced_nor_preceded() -> None:
    ours = held(3, first=10)
    for height, parent in ((10, "9a"), (9, "8a"), (5, "4a")):
        assert "is not our block" in reason(linked([header(0, height, f"{height}b", parent)], ours, window=9))


def test_a_fork_inside_one_batch_is_followed() -> None:
    headers = [*run_of(4, 3, "a", "3a"), *run_of(5, 2, "b", "4a", place=3)]
    advance, back, again = linked(headers, held(3), window=5)
    assert advance == Advance(0, 2, 3, 6, b"6a")
    assert isinstance(back, GoBack) and back.height == 4
    assert again == Advance(3, 4, 4, 6, b"6b")


def test_forks_back_and_forth_are_followed_each_time() -> None:
    headers = [*run_of(3, 2, "b", "2a"), *run_of(3, 3, "a", "2a", place=2), *run_of(4, 3, "b", "3b", place=5)]
    actions = linked(headers, held(3), window=5)
    assert [type(action) for action in actions] == [GoBack, Advance, GoBack, Advance, Broken]
    assert "its parent 0x3362 is not our block 3" in reason(actions), "3b was given up when the source went back to 3a"
    whole = [*headers[:5], *run_of(3, 3, "b", "2a", place=5)]
    actions = linked(whole, held(3), window=5)
    assert [a.height for a in actions if not isinstance(a, Broken)] == [2, 4, 2, 5, 2, 5]
    assert actions[-1] == Advance(5, 7, 2, 5, b"5b")


def test_a_bad_block_keeps_what_came_before_and_nothing_after() -> None:
    bad = header(2, 0, "", "", error="line 3 of blocks.jsonl is not JSON")
    headers = [*run_of(4, 2, "a", "3a"), bad, *run_of(6, 2, "a", "5a", place=3)]
    assert linked(headers, held(3)) == [
        Advance(0, 1, 3, 5, b"5a"),
        Broken(f"{bad.source} at {bad.position}: line 3 of blocks.jsonl is not JSON"),
    ]


def test_a_bad_block_alone_takes_nothing() -> None:
    bad = header(0, 0, "", "", error="cut off")
    assert linked([bad], {}) == [Broken(f"{bad.source} at {bad.position}: cut off")]


@dataclass(frozen=True)
class Node:
    """A block of a tree; `parent` is None for the root."""

    number: int
    height: int
    parent: int | None

    def header(self, place: int) -> Header:
        parent = "root" if self.parent is None else f"n{self.parent}"
        return header(place, self.height, f"n{self.number}", parent)


@st.composite
def deliveries(draw: st.DrawFn) -> tuple[list[Node], list[Node], int]:
    """What we hold, what the source delivers (forks, repeats, jumps), and the window."""
    root = draw(st.sampled_from([0, 1, 500]))
    holds = draw(st.integers(0, 6))
    nodes = [Node(number, root + number, number - 1 if number else None) for number in range(max(1, holds))]
    ours = nodes[:holds]
    delivered = [] if holds else [nodes[0]]
    kinds = st.sampled_from(["child", "child", "child", "fork", "again", "lost"])
    for what, number in draw(st.lists(st.tuples(kinds, st.integers(0, 30)), max_size=14)):
        parent = nodes[-1] if what == "child" else nodes[-1 - number % len(nodes)]
        if what == "again":
            delivered.append(parent)
            continue
        nodes.append(Node(len(nodes), parent.height + 1, parent.number))
        if what != "lost":
            delivered.append(nodes[-1])
    return ours, delivered, draw(st.sampled_from([0, 1, 2, 3, 8]))


def followed(ours: list[Node], delivered: Sequence[Node], window: int) -> tuple[list[Node], bool]:
    """The chain of a follower that keeps a plain list, and whether it had to stop. The window counts from the highest head."""
    chain = list(ours)
    top = max((node.height for node in chain), default=-1)
    for node in delivered:
        top = max(top, chain[-1].height if chain else -1)
        if node in chain:
            continue
        if not chain or (node.parent == chain[-1].number):
            chain.append(node)
            continue
        at = next((i for i, one in enumerate(chain) if one.number == node.parent), None)
        if at is None or not 0 < len(chain) - 1 - at <= window or node.height <= top - window:
            return chain, True
        chain = [*chain[: at + 1], node]
    return chain, False


def applied(ours: list[Node], delivered: Sequence[Node], actions: Sequence[Action]) -> tuple[list[Node], bool]:
    """The chain after what `link` said; fails if an action does not fit the chain."""
    chain = list(ours)
    for i, action in enumerate(actions):
        if isinstance(action, Broken):
            assert i == len(actions) - 1, "nothing may come after Broken"
            return chain, True
        if isinstance(action, GoBack):
            assert chain[0].height <= action.height < chain[-1].height
            chain = [node for node in chain if node.height <= action.height]
        else:
            taken = delivered[action.first : action.last + 1]
            assert [node.height for node in taken] == list(range(action.base + 1, action.height + 1))
            assert not chain or chain[-1].height == action.base
            assert taken[-1].header(0).hash == action.hash
            chain += taken
    return chain, False


@given(deliveries())
@example(([Node(0, 0, None), Node(1, 1, 0)], [Node(2, 1, 0), Node(3, 2, 2), Node(1, 1, 0), Node(4, 2, 1)], 3))
def test_link_agrees_with_a_follower_that_keeps_a_plain_list(case: tuple[list[Node], list[Node], int]) -> None:
    ours, delivered, window = case
    hashes = {node.height: node.header(0).hash for node in ours}
    headers = [node.header(place) for place, node in enumerate(delivered)]
    actions = linked(headers, hashes, window)
    assert applied(ours, delivered, actions) == followed(ours, delivered, window)


@given(deliveries(), st.integers(0, 14))
def test_two_batches_give_the_same_chain_as_one(case: tuple[list[Node], list[Node], int], cut: int) -> None:
    ours, delivered, window = case
    whole = followed(ours, delivered, window)
    chain, stopped = ours, False
    top = max((node.height for node in ours), default=-1)
    for part in (delivered[:cut], delivered[cut:]):
        if not stopped:
            hashes = {node.height: node.header(0).hash for node in chain}
            headers = [node.header(place) for place, node in enumerate(part)]
            actions = linked(headers, hashes, window, top - window)
            chain, stopped = applied(chain, part, actions)
            top = max([top, *(action.height for action in actions if isinstance(action, Advance))])
    assert (chain, stopped) == whole
