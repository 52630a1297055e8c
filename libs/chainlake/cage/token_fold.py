"""A token through the events of a batch: its state after each block, the facts and rows of its trie that changed.

Only the rows of the trie along touched keys are needed. The root is compared with the datum's at every event.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

from chainlake.cage.datums import State
from chainlake.cage.rules import BOOT, BURN, REJECTED, UPDATE
from chainlake.encoding import short
from chainlake.errors import BadInput, BrokenPromise, LakeError
from chainlake.merkle import mpf


class TokenEvent(NamedTuple):
    """An event of one token, in order of height, transaction and place in it."""

    height: int
    tx_index: int
    kind: str
    state: State | None
    was_root: bytes | None
    operations: Sequence[mpf.Operation]
    is_whole: bool = True
    """Whether those are known to be all."""


class TokenRow(NamedTuple):
    """A token as its table keeps it."""

    state: State
    created_height: int | None
    updated_height: int
    tracked: bool


@dataclass
class TokenBlock:
    """What one block did to a token. None: gone."""

    height: int
    was: TokenRow | None
    token: TokenRow | None
    facts: dict[bytes, tuple[bytes, bool]] = field(default_factory=dict)
    """Key to its value and whether it is there; the last value if it is not."""
    nodes: dict[bytes, bytes | None] = field(default_factory=dict)
    burned: bool = False
    """The trie is gone, with what the batch did not touch of it too."""


def fold_token(
    token_id: bytes, before: TokenRow | None, rows: Mapping[bytes, bytes], events: Iterable[TokenEvent]
) -> Iterator[TokenBlock]:
    """The token after each of its blocks; `BrokenPromise` with the height where a root is not the datum's."""
    fold = _TokenFold(token_id, before, rows)
    for height, group in groupby(events, key=lambda event: event.height):
        yield fold.block(height, group)


class _TokenFold:
    def __init__(self, token_id: bytes, before: TokenRow | None, rows: Mapping[bytes, bytes]) -> None:
        self.token_id = token_id
        self.row = before
        self.trie = mpf.Trie()
        if before is not None and before.tracked:
            self.trie = mpf.Trie(rows, before.state.root)
        self.touched: dict[bytes, bytes | None] = {}
        self.stored: set[bytes] = set(rows)
        self.has_ended = False

    def block(self, height: int, events: Iterable[TokenEvent]) -> TokenBlock:
        done = TokenBlock(height, self.row, None)
        existed: dict[bytes, bytes | None] = {}
        gone: set[bytes] = set()
        for event in events:
            try:
                self._happen(event, existed)
            except LakeError as error:
                why = f"block {height}, transaction {event.tx_index}: {event.kind} of token {short(self.token_id)}: {error}"
                raise BrokenPromise(why, height) from None
            if self.has_ended:
                done.burned, self.has_ended = True, False
                gone |= self.stored
                self.stored = set()
        done.token = self.row
        changes = self.trie.changes()
        done.nodes = {**dict.fromkeys(gone), **changes}
        for path, node in changes.items():
            self.stored.discard(path) if node is None else self.stored.add(path)
        for key, old in existed.items():
            new = self.touched[key]
            if new is not None and new != old:
                done.facts[key] = (new, True)
            elif new is None and old is not None:
                done.facts[key] = (old, False)
        return done

    def _happen(self, event: TokenEvent, existed: dict[bytes, bytes | None]) -> None:
        if event.kind == BURN:
            self.row = None
            self._end(existed)
        elif event.kind == BOOT and event.state is not None:
            if self.row is not None:
                raise BadInput("it is there already, and a token boots once: see what the source sends, then resume")
            tracked = event.was_root in (None, mpf.EMPTY)
            self.row, self.trie = TokenRow(event.state, event.height, event.height, tracked), mpf.Trie()
            if tracked:
                self._check(event.state)
        elif event.kind in (UPDATE, REJECTED) and event.state is not None:
            known = self.row
            tracked = known.tracked if known else event.was_root == mpf.EMPTY
            if tracked:
                tracked = self._go_on(event, event.state, existed)
            self.row = TokenRow(event.state, known.created_height if known else None, event.height, tracked)

    def _go_on(self, event: TokenEvent, state: State, existed: dict[bytes, bytes | None]) -> bool:
        """Carry out the operations of an update. False: there was one more that is not known, and so is the trie from here on."""
        try:
            for operation in event.operations if event.kind == UPDATE else ():
                self.trie.apply(operation)
                existed.setdefault(operation.key, operation.old)
                self.touched[operation.key] = operation.new
            self._check(state)
        except BadInput:
            if event.kind != UPDATE or event.is_whole:
                raise
            self._end(existed)
            return False
        return True

    def _end(self, existed: dict[bytes, bytes | None]) -> None:
        for key in self.touched:
            existed.setdefault(key, self.touched[key])
            self.touched[key] = None
        self.trie, self.has_ended = mpf.Trie(), True

    def _check(self, state: State) -> None:
        root = self.trie.root()
        if root != state.root:
            raise BadInput(
                f"the datum has root {short(state.root)}, the trie {short(root)}: see what the source sends, then resume"
            )
