"""A stored sparse Merkle tree kept up to date, block by block: cost per changed key grows with its depth, not with the tree.

`fold_part` takes the changes of one part of the tree, the keys whose path begins with the part's prefix, and needs nothing of
the others: Spark runs the parts side by side. `combine` joins their tops, block by block, to the root. Both return rows as
`smt_nodes` defines them. The rows depend on the changes of each block alone, not on how blocks were batched.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from chainlake.encoding import short
from chainlake.errors import BadInput, BrokenPromise
from chainlake.merkle.smt_nodes import DIGITS, VALUE, WAYS, Node, Page, checked_page, empty, path_digits

PART_DIGITS = 2


class Update(NamedTuple):
    """A key has a new leaf (`smt.leaf_hash`) since a block, or None: the key is gone."""

    block: int
    key: bytes
    leaf: bytes | None


@dataclass(frozen=True)
class Folded:
    """What a subtree became: its top in each block that changed it, and all rows that changed, tops included."""

    tops: list[Node]
    nodes: list[Node]


class _Change(NamedTuple):
    path: str
    key: bytes
    leaf: bytes | None


def fold_part(prefix: str, nodes: Iterable[Node], updates: Iterable[Update]) -> Folded:
    """Apply the updates of a part, given the part's own row and those below the prefixes of every updated path."""
    return Part(prefix, nodes).fold(updates)


def combine(nodes: Iterable[Node], tops: Iterable[Node]) -> Folded:
    """Join the tops of all parts, given the stored rows no deeper than the parts. The tops of the result are the roots.

    The result has the rows above the parts; those of the parts are with the parts.
    """
    return Crown(nodes).fold(tops)


class Part:
    """One part of a tree, in memory as far as it was touched. It may be folded again and again, block after block."""

    def __init__(self, prefix: str, nodes: Iterable[Node]) -> None:
        stored = list(nodes)
        self._top = next((node for node in stored if node.prefix == prefix), empty(0, prefix))
        self._stored = _by_parent(stored)
        self._pages: dict[str, Page] = {}
        self._changed: list[Node] = []
        self._block = 0

    def fold(self, updates: Iterable[Update]) -> Folded:
        """Apply updates block by block. Of several updates of a key in a block, the last counts."""
        folded = Folded([], [])
        for block, group in groupby(sorted(updates, key=_block), key=_block):
            self._block, self._changed = block, []
            top = self._apply(self._top, [self._change(update) for update in group])
            if top.hash != self._top.hash:
                self._top = top
                folded.tops.append(top)
                folded.nodes.extend((top, *self._changed))
        return folded

    def _change(self, update: Update) -> _Change:
        path = path_digits(update.key)
        if not path.startswith(self._top.prefix):
            raise BadInput(f"key {short(update.key)} has path {path[:8]}…, outside the part '{self._top.prefix}'")
        return _Change(path, update.key, update.leaf)

    def _apply(self, node: Node, changes: list[_Change]) -> Node:
        """The row after the changes; rows below it that changed are noted."""
        if len(changes) == 1:
            return self._apply_one(node, changes[0])
        if node.leaves < 2:
            return self._replant(node, changes)
        page = self._pages.get(node.prefix) or self._load(node)
        before: dict[int, Node] = {}
        for digit, group in _by_digit(changes, len(node.prefix)).items():
            old = page.nodes[digit] or empty(0, node.prefix + DIGITS[digit])
            new = self._apply(old, group)
            if new.hash != old.hash:
                before[digit] = old
                page.put(digit, new)
        return self._rehashed(node, page, before) if before else node

    def _apply_one(self, node: Node, change: _Change) -> Node:
        """The same for a single change, as most are a few digits down: no groups to make."""
        if node.leaves < 2:
            return self._replant(node, [change])
        page = self._pages.get(node.prefix) or self._load(node)
        digit = VALUE[change.path[len(node.prefix)]]
        old = page.nodes[digit] or empty(0, node.prefix + DIGITS[digit])
        new = self._apply_one(old, change)
        if new.hash == old.hash:
            return node
        page.put(digit, new)
        return self._rehashed(node, page, {digit: old})

    def _rehashed(self, node: Node, page: Page, before: Mapping[int, Node]) -> Node:
        """The row above a page of which some rows are new; `before` has what these were."""
        page.rehash(before)
        if page.leaves[1] < 2:
            return self._dissolve(node.prefix, page, before)
        self._changed.extend([row for digit in before if (row := page.nodes[digit])])
        return Node(self._block, node.prefix, page.leaves[1], page.hashes[1])

    def _load(self, node: Node) -> Page:
        page = self._pages[node.prefix] = checked_page(node, self._stored.pop(node.prefix, ()))
        return page

    def _replant(self, node: Node, changes: list[_Change]) -> Node:
        """Changes where at most one leaf was."""
        if len(changes) == 1 and changes[0].leaf and changes[0].key == node.key:
            return Node(self._block, node.prefix, 1, changes[0].leaf, node.key)
        leaves: dict[str, _Change] = {}
        if node.key is not None and changes[0].key != node.key:
            path = path_digits(node.key)
            leaves[path] = _Change(path, node.key, node.hash)
        for change in changes:
            leaves[change.path] = change
        return self._plant(node.prefix, [leaf for leaf in leaves.values() if leaf.leaf is not None])

    def _plant(self, prefix: str, leaves: list[_Change]) -> Node:
        """A subtree that was not stored before."""
        if not leaves:
            return empty(self._block, prefix)
        if len(leaves) == 1:
            return Node(self._block, prefix, 1, leaves[0].leaf or b"", leaves[0].key)
        groups = _by_digit(leaves, len(prefix))
        below = [self._plant(prefix + DIGITS[digit], group) for digit, group in groups.items()]
        page = self._pages[prefix] = Page(below)
        page.rehash()
        self._changed.extend(below)
        return Node(self._block, prefix, page.leaves[1], page.hashes[1])

    def _dissolve(self, prefix: str, page: Page, before: Mapping[int, Node]) -> Node:
        """At most one leaf is left: its row moves up, and the rows of the page go."""
        del self._pages[prefix]
        stored = (before.get(digit, page.nodes[digit]) for digit in range(WAYS))
        self._changed.extend(empty(self._block, node.prefix) for node in stored if node and node.leaves)
        left = page.the_leaf()
        return Node(self._block, prefix, 1, left.hash, left.key) if left else empty(self._block, prefix)


class Crown:
    """The tree above its parts, wholly in memory. Its rows never dissolve, so every part has its place."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._rows = {node.prefix: node for node in nodes}
        self._stored = _by_parent(self._rows.values())
        self._pages: dict[str, Page] = {}

    def fold(self, tops: Iterable[Node]) -> Folded:
        """Join the tops that changed, block by block."""
        folded = Folded([], [])
        for block, group in groupby(sorted(tops, key=_block), key=_block):
            changed = list(group)
            above: list[Node] = []
            for _ in range(_common_depth(changed)):
                changed = self._joined(block, changed)
                above.extend(changed)
            folded.tops.extend(changed)
            folded.nodes.extend(above)
        return folded

    def _joined(self, block: int, nodes: list[Node]) -> list[Node]:
        """The rows one digit above these."""
        siblings: dict[str, dict[int, Node]] = defaultdict(dict)
        for node in nodes:
            siblings[node.prefix[:-1]][VALUE[node.prefix[-1]]] = node
        return [self._above(block, prefix, changed) for prefix, changed in siblings.items()]

    def _above(self, block: int, prefix: str, changed: Mapping[int, Node]) -> Node:
        page = self._pages.get(prefix) or self._load(prefix)
        for digit, node in changed.items():
            page.put(digit, node)
        page.rehash(changed)
        leaf = page.the_leaf()
        return Node(block, prefix, page.leaves[1], page.hashes[1], leaf.key if leaf else None)

    def _load(self, prefix: str) -> Page:
        parent = self._rows.get(prefix, empty(0, prefix))
        page = self._pages[prefix] = checked_page(parent, self._stored.get(prefix, ()))
        return page


class Tree:
    """A whole tree in one process: its parts as they are touched, and what is above them."""

    def __init__(self, nodes: Iterable[Node] = (), digits: int = PART_DIGITS) -> None:
        self._digits = digits
        self._parts: dict[str, Part] = {}
        self._stored: dict[str, list[Node]] = defaultdict(list)
        crown: list[Node] = []
        for node in nodes:
            if len(node.prefix) <= digits:
                crown.append(node)
            if len(node.prefix) >= digits:
                self._stored[node.prefix[:digits]].append(node)
        self._crown = Crown(crown)

    def fold(self, updates: Iterable[Update]) -> Folded:
        """The roots and all changed rows, by block."""
        by_part: dict[str, list[Update]] = defaultdict(list)
        for update in updates:
            by_part[path_digits(update.key)[: self._digits]].append(update)
        parts = [self._part(prefix).fold(group) for prefix, group in by_part.items()]
        crown = self._crown.fold(top for part in parts for top in part.tops)
        nodes = [*crown.nodes, *(node for part in parts for node in part.nodes)]
        return Folded(crown.tops, sorted(nodes, key=_block))

    def _part(self, prefix: str) -> Part:
        if prefix not in self._parts:
            self._parts[prefix] = Part(prefix, self._stored.pop(prefix, ()))
        return self._parts[prefix]


def fold(nodes: Iterable[Node], updates: Iterable[Update], digits: int = PART_DIGITS) -> Folded:
    """Parts and tops in one go, for trees that one process handles."""
    return Tree(nodes, digits).fold(updates)


_block = attrgetter("block")


def _by_parent(nodes: Iterable[Node]) -> dict[str, list[Node]]:
    """Rows by the prefix that they are one digit below. The root is below none."""
    below: dict[str, list[Node]] = defaultdict(list)
    for node in nodes:
        if node.leaves and node.prefix:
            below[node.prefix[:-1]].append(node)
    return below


def _by_digit(changes: list[_Change], depth: int) -> dict[int, list[_Change]]:
    if len(changes) == 1:
        return {VALUE[changes[0].path[depth]]: changes}
    groups: dict[int, list[_Change]] = defaultdict(list)
    for change in changes:
        groups[VALUE[change.path[depth]]].append(change)
    return groups


def _common_depth(tops: list[Node]) -> int:
    depths = {len(top.prefix) for top in tops}
    if len(depths) != 1:
        raise BadInput(f"tops of parts with {sorted(depths)} digits cannot be joined: all parts of a tree have the same number")
    if len({top.prefix for top in tops}) < len(tops):
        raise BrokenPromise(f"a part has two tops in block {tops[0].block}: fold each part once")
    return depths.pop()
