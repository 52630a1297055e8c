"""Streams through their passes: the rules applied to each stream of a batch, Arrow in and out.

There may be a million streams, so no row becomes a dictionary: columns are read as flat lists, the rules see values of them, and
what they only pass on is taken from the columns again, by place.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from chainlake.arrow_ddl import TIME, ddl_of
from chainlake.sync.rules import Delivery, Mark, Outcome, State, advance

STATE = (
    "minipool_gen",
    "snapshot_miniblock",
    "prev_miniblock_hash",
    "first_miniblock",
    "genesis_hash",
    "reset_reason",
    "stopped",
)
ANSWER = ("_height", "pages", "snapshot_index", "is_whole", "catch_up", "live")
MARK = ("_height", "tx_index", "miniblock_num", "miniblock_hash", "prev_miniblock_hash", "has_snapshot", "problem")
OURS = ("miniblock_num", "miniblock_hash")
FOLDED_ARROW = pa.schema(
    {
        "_chain": pa.string(),
        "stream_id": pa.binary(),
        "states": pa.list_(
            pa.struct(
                {
                    "_height": pa.int64(),
                    "minipool_gen": pa.int64(),
                    "snapshot_miniblock": pa.int64(),
                    "prev_miniblock_hash": pa.binary(),
                    "first_miniblock": pa.int64(),
                    "genesis_hash": pa.binary(),
                    "reset_reason": pa.string(),
                    "stopped": pa.string(),
                    "updated_at": TIME,
                }
            )
        ),
        "delivered": pa.list_(
            pa.struct(
                {
                    "_height": pa.int64(),
                    "tx_index": pa.int32(),
                    "miniblock_num": pa.int64(),
                    "miniblock_hash": pa.binary(),
                    "timestamp": TIME,
                    "passed_at": TIME,
                    "delivered": pa.bool_(),
                    "historical": pa.bool_(),
                    "duplicate": pa.bool_(),
                }
            )
        ),
        "gaps": pa.list_(
            pa.struct({"_height": pa.int64(), "from_miniblock": pa.int64(), "to_miniblock": pa.int64(), "reason": pa.string()})
        ),
        "quarantined": pa.list_(
            pa.struct(
                {
                    "_height": pa.int64(),
                    "tx_index": pa.int32(),
                    "miniblock_num": pa.int64(),
                    "hash": pa.binary(),
                    "reason": pa.string(),
                }
            )
        ),
        "passes": pa.list_(pa.struct({"_height": pa.int64(), "case": pa.string(), "minipool": pa.bool_()})),
    }
)
FOLDED = ddl_of(FOLDED_ARROW)


class Known:
    """Miniblocks of a stream that were delivered, by number; grows as the batch goes on."""

    def __init__(self, places: Iterable[tuple[int, bytes]] = ()) -> None:
        self._hashes: dict[int, set[bytes]] = {}
        for number, hash_ in places:
            self.add(number, hash_)

    def add(self, number: int, hash_: bytes) -> None:
        self._hashes.setdefault(number, set()).add(hash_)

    def held(self, number: int, hash_: bytes) -> bool:
        return hash_ in self._hashes.get(number, ())

    def knows(self, number: int) -> bool:
        return number in self._hashes


def fold(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Each row is a stream: its state before, what it holds in common numbers (`ours`), its answers and marks of the batch."""
    for batch in batches:
        folding = _Folding(batch)
        for row in range(batch.num_rows):
            folding.stream(row)
        yield folding.result()


class _Flat:
    """A column of lists of structs: each field as one list for all rows, and the places in it that belong to a row."""

    def __init__(self, column: pa.Array, names: Sequence[str]) -> None:
        self.is_empty = pa.types.is_null(column.type) or pa.types.is_null(column.type.value_type)
        self._ends = [0] * (len(column) + 1) if self.is_empty else column.offsets.to_pylist()
        self._values: Any = pa.nulls(0) if self.is_empty else column.values
        self.fields: list[list[Any]] = [[] if self.is_empty else self._values.field(name).to_pylist() for name in names]

    def places(self, row: int) -> range:
        return range(self._ends[row], self._ends[row + 1])

    def take(self, name: str, places: Sequence[int | None], kind: pa.DataType) -> pa.Array:
        """A field at some places, in their order."""
        if self.is_empty:
            return pa.nulls(len(places), kind)
        return self._values.field(name).cast(kind).take(pa.array(places, pa.int64()))


class _Lists:
    """A column of lists of structs in the making."""

    def __init__(self, name: str, columns: Sequence[str]) -> None:
        self._type = FOLDED_ARROW.field(name).type.value_type
        self._columns = columns
        self._ends = [0]
        self.rows: list[tuple[Any, ...]] = []

    def end_row(self) -> None:
        self._ends.append(len(self.rows))

    def column(self, name: str) -> list[Any]:
        at = self._columns.index(name)
        return [row[at] for row in self.rows]

    def array(self, sources: dict[str, tuple[_Flat, str]], **made: pa.Array) -> pa.ListArray:
        """The column. A field of `sources` is taken where a column of places says, the others are as noted."""
        arrays = []
        for field in self._type:
            if field.name in made:
                arrays.append(made[field.name])
            elif field.name in sources:
                flat, places = sources[field.name]
                arrays.append(flat.take(field.name, self.column(places), field.type))
            else:
                arrays.append(pa.array(self.column(field.name), field.type))
        return pa.ListArray.from_arrays(
            pa.array(self._ends, pa.int32()), pa.StructArray.from_arrays(arrays, fields=list(self._type))
        )


class _Folding:
    """The streams of one batch, and what becomes of them. Answers and marks are known by their place."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._keys = [batch.column("_chain"), batch.column("stream_id")]
        self._answers = _Flat(batch.column("answers"), ANSWER)
        self._marks = _Flat(batch.column("marks"), MARK)
        self._ours = _Flat(batch.column("ours"), OURS)
        state = batch.column("state")
        nothing = pa.types.is_null(state.type)
        known = {} if nothing else dict(zip([field.name for field in state.type], state.flatten(), strict=True))
        self._state = [[None] * batch.num_rows if nothing else known[name].to_pylist() for name in STATE]
        self._states = _Lists("states", ("answer", *STATE, "last"))
        self._delivered = _Lists("delivered", ("answer", "mark", "delivered", "historical", "duplicate"))
        self._gaps = _Lists("gaps", ("answer", "from_miniblock", "to_miniblock", "reason"))
        self._quarantined = _Lists("quarantined", ("mark", "miniblock_num", "hash", "reason"))
        self._passes = _Lists("passes", ("answer", "case", "minipool"))

    def stream(self, row: int) -> None:
        """What the passes of the batch make of one stream, pass by pass."""
        values: list[Any] = [column[row] for column in self._state]
        state = None if values[0] is None else State(**dict(zip(STATE, values, strict=True)))
        numbers, hashes = self._ours.fields
        known = Known((numbers[at], hashes[at]) for at in self._ours.places(row))
        came = self._by_height(row)
        heights = self._answers.fields[0]
        for answer in sorted(self._answers.places(row), key=heights.__getitem__):
            mine = came.get(heights[answer], [])
            outcome = advance(state, self._delivery(answer, mine), known)
            state = outcome.state or state
            self._note(answer, mine, outcome)
            for one in outcome.delivered:
                known.add(one.mark.number, one.mark.hash)
            if outcome.genesis is not None:
                known.add(0, outcome.genesis.hash)
        for lists in (self._states, self._delivered, self._gaps, self._quarantined, self._passes):
            lists.end_row()

    def result(self) -> pa.RecordBatch:
        """Everything noted, as Arrow."""
        answers, marks = self._answers, self._marks
        height, passed = (answers, "answer"), answers.take("passed_at", self._states.column("answer"), TIME)
        updated = pc.coalesce(passed, marks.take("timestamp", self._states.column("last"), TIME))
        whose = {name: (marks, "mark") for name in ("_height", "tx_index", "miniblock_num", "miniblock_hash", "timestamp")}
        columns = [
            self._states.array({"_height": height}, updated_at=updated),
            self._delivered.array({**whose, "passed_at": (answers, "answer")}),
            self._gaps.array({"_height": height}),
            self._quarantined.array({"_height": (marks, "mark"), "tx_index": (marks, "mark")}),
            self._passes.array({"_height": height}),
        ]
        return pa.RecordBatch.from_arrays([*self._keys, *columns], schema=FOLDED_ARROW)

    def _by_height(self, row: int) -> dict[int, list[int]]:
        """The marks of a stream by pass, in order."""
        heights, places = self._marks.fields[:2]
        found: dict[int, list[int]] = {}
        for at in sorted(self._marks.places(row), key=places.__getitem__):
            found.setdefault(heights[at], []).append(at)
        return found

    def _delivery(self, answer: int, mine: Sequence[int]) -> Delivery:
        """What one pass brought, as the rules see it."""
        _, _, *said = self._marks.fields
        marks = tuple([Mark(place, *[column[at] for column in said]) for place, at in enumerate(mine)])
        return Delivery(marks, *[column[answer] for column in self._answers.fields[1:]])

    def _note(self, answer: int, mine: Sequence[int], outcome: Outcome) -> None:
        self._passes.rows.append((answer, outcome.case, outcome.minipool))
        if outcome.genesis is not None:
            self._delivered.rows.append((answer, mine[outcome.genesis.place], False, True, False))
        for mark, historical, duplicate in outcome.delivered:
            self._delivered.rows.append((answer, mine[mark.place], True, historical, duplicate))
        if outcome.state is not None:
            last = mine[outcome.delivered[-1].mark.place] if outcome.delivered else None
            self._states.rows.append((answer, *[getattr(outcome.state, name) for name in STATE], last))
        for gap in outcome.gaps:
            self._gaps.rows.append((answer, gap.first, gap.end, gap.reason))
        for mark, reason in outcome.quarantined:
            self._quarantined.rows.append((mine[mark.place], mark.number, mark.hash, reason))
