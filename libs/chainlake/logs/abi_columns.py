"""Decoding many logs at once, column by column: words are cut out of Arrow's buffers and turned to text together.

Events with strings, arrays or structs in their data are decoded log by log. Both ways give the same values and reasons.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from chainlake.logs.abi import Event, Reason, Registry, decode, size_error, word_error
from chainlake.logs.abi_words import DECIMAL, Bytes, Ints, addresses_of, clean, decimals_of, texts_of

TOPICS = ("topic0", "topic1", "topic2", "topic3")
DECODED = pa.schema(
    [
        ("event", pa.string()),
        ("signature", pa.string()),
        ("args", pa.map_(pa.string(), pa.string())),
        ("from_address", pa.binary()),
        ("to_address", pa.binary()),
        ("value", DECIMAL),
        ("reason", pa.string()),
    ]
)


def decode_columns(logs: pa.Table | pa.RecordBatch, registry: Registry) -> pa.Table:
    """What each log says, row by row: the columns of `DECODED`.

    Takes the columns `address`, `topic0` to `topic3`, `topic_count` and `data`; more do not matter.
    """
    source = _Source(logs)
    result = _Result(len(logs))
    for first, topic_count, rows in source.kinds():
        left = rows
        for event in registry.candidates(first, topic_count) if first is not None else ():
            mine = source.of_contract(left, event.contract)
            taken = _decode_rows(event, source, mine, result)
            left = np.setdiff1d(left, taken, assume_unique=True)
        result.explain(left, registry.why_none(first, topic_count))
    return result.table()


@dataclass(frozen=True)
class _Binary:
    """A BINARY column as its buffers."""

    starts: Ints
    sizes: Ints
    content: Bytes

    @classmethod
    def of(cls, column: pa.Array | pa.ChunkedArray) -> "_Binary":
        whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        array = whole.cast(pa.binary()).fill_null(b"")
        _, offsets, data = array.buffers()
        ends = np.frombuffer(offsets, dtype=np.int32, count=len(array) + 1, offset=array.offset * 4).astype(np.int64)
        return cls(ends[:-1], np.diff(ends), np.frombuffer(data if data is not None else b"", dtype=np.uint8))

    def cut(self, rows: Ints, at: int, size: int) -> Bytes:
        """`size` bytes from `at` on, of rows that have as many."""
        if not len(rows) or not size:
            return np.zeros((len(rows), size), dtype=np.uint8)
        return np.lib.stride_tricks.sliding_window_view(self.content, size)[self.starts[rows] + at]

    def value(self, row: int) -> bytes:
        start = self.starts[row]
        return self.content[start : start + self.sizes[row]].tobytes()


class _Source:
    """Logs as columns."""

    def __init__(self, logs: pa.Table | pa.RecordBatch) -> None:
        self.address = _Binary.of(logs.column("address"))
        self.topics = [_Binary.of(logs.column(name)) for name in TOPICS]
        self.data = _Binary.of(logs.column("data"))
        self._counts = np.asarray(logs.column("topic_count"), dtype=np.int64)
        self._first = logs.column("topic0")

    def kinds(self) -> Iterator[tuple[bytes | None, int, Ints]]:
        """The rows of each first topic and number of topics."""
        whole = self._first.combine_chunks() if isinstance(self._first, pa.ChunkedArray) else self._first
        encoded = whole.cast(pa.binary()).dictionary_encode()
        names = [*encoded.dictionary.to_pylist(), None]
        codes = np.asarray(encoded.indices.fill_null(len(names) - 1), dtype=np.int64)
        keys = codes * 8 + np.clip(self._counts, 0, 7)
        order = np.argsort(keys, kind="stable")
        cuts = np.flatnonzero(np.diff(keys[order])) + 1
        for rows in np.split(order, cuts) if len(order) else ():
            yield names[int(keys[rows[0]]) // 8], int(keys[rows[0]]) % 8, rows

    def of_contract(self, rows: Ints, contract: bytes | None) -> Ints:
        """The rows that the contract emitted; all of them if it is any."""
        if contract is None:
            return rows
        sized = rows[self.address.sizes[rows] == len(contract)]
        same = self.address.cut(sized, 0, len(contract)) == np.frombuffer(contract, dtype=np.uint8)
        return np.asarray(sized[same.all(axis=1)])

    def log(self, row: int, topic_count: int) -> tuple[list[bytes], bytes]:
        """Topics and data of one log."""
        return [topic.value(row) for topic in self.topics[:topic_count]], self.data.value(row)


@dataclass
class _Result:
    """What was found, in the order in which it was found; `table` puts it in the order of the logs."""

    count: int
    events: list[Event] = field(default_factory=list)
    rows: list[Ints] = field(default_factory=list)
    texts: list[list[pa.Array]] = field(default_factory=list)
    shortcuts: list[tuple[pa.Array, pa.Array, pa.Array]] = field(default_factory=list)
    reasons: dict[int, str] = field(default_factory=dict)

    def add(self, event: Event, rows: Ints, texts: list[pa.Array], words: dict[str, Bytes]) -> None:
        """Logs that are decoded: the text of each parameter, and the words of those that are words."""
        giver, taker, amount = event.transfer
        self.events.append(event)
        self.rows.append(rows)
        self.texts.append(texts)
        addresses = (addresses_of(words[one.name]) if one else pa.nulls(len(rows), pa.binary()) for one in (giver, taker))
        self.shortcuts.append((*addresses, decimals_of(words[amount.name]) if amount else pa.nulls(len(rows), DECIMAL)))

    def explain(self, rows: Ints, reason: str) -> None:
        """Why logs are not decoded; the first reason given counts."""
        for row in rows.tolist():
            self.reasons.setdefault(row, reason)

    def table(self) -> pa.Table:
        which = np.full(self.count, -1, dtype=np.int64)
        place = np.full(self.count, -1, dtype=np.int64)
        begin = 0
        for number, rows in enumerate(self.rows):
            which[rows] = number
            place[rows] = begin + np.arange(len(rows))
            begin += len(rows)
        decoded = pa.array(which, mask=which < 0)
        places = pa.array(place, mask=place < 0)
        reasons = [self.reasons.get(row) if number < 0 else None for row, number in enumerate(which.tolist())]
        columns = [
            pa.array([event.name for event in self.events], pa.string()).take(decoded),
            pa.array([event.text for event in self.events], pa.string()).take(decoded),
            self._args(which),
            *(pa.concat_arrays(parts).take(places) for parts in zip(*self.shortcuts, strict=True)),
            pa.array(reasons, pa.string()),
        ]
        if not self.shortcuts:
            columns[3:3] = [pa.nulls(self.count, DECODED.field(name).type) for name in ("from_address", "to_address", "value")]
        return pa.table(columns, schema=DECODED)

    def _args(self, which: Ints) -> pa.Array:
        """Maps of name to text. Texts lie by event and parameter, and are brought into the order of the logs once."""
        sizes = np.array([len(event.parameters) for event in self.events] + [0])[which]
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        texts = [text for group in self.texts for text in group]
        names = [one.name for event in self.events for one in event.parameters]
        order, keys = np.empty(int(offsets[-1]), dtype=np.int64), np.empty(int(offsets[-1]), dtype=np.int64)
        begin, name = 0, 0
        for event, rows in zip(self.events, self.rows, strict=True):
            for position in range(len(event.parameters)):
                targets = offsets[rows] + position
                order[targets] = begin + np.arange(len(rows))
                keys[targets] = name
                begin, name = begin + len(rows), name + 1
        items = pa.concat_arrays(texts).take(pa.array(order)) if texts else pa.array([], pa.string())
        absent = np.append(which < 0, False)
        ends = pa.array(offsets.astype(np.int32), mask=absent)
        return pa.MapArray.from_arrays(ends, pa.array(names, pa.string()).take(pa.array(keys)), items)


def _decode_rows(event: Event, source: _Source, rows: Ints, result: _Result) -> Ints:
    """Decodes the rows that fit the event, and says which they are."""
    for topic in source.topics[1 : event.topic_count]:
        sized = topic.sizes[rows] == 32
        result.explain(rows[~sized], "a topic is not 32 bytes long")
        rows = rows[sized]
    return _decode_plain(event, source, rows, result) if event.is_plain else _decode_each(event, source, rows, result)


def _decode_plain(event: Event, source: _Source, rows: Ints, result: _Result) -> Ints:
    fits = source.data.sizes[rows] == 32 * len(event.in_data)
    for row in rows[~fits].tolist():
        result.reasons.setdefault(row, size_error(event, int(source.data.sizes[row])) or "")
    rows = rows[fits]
    words = {one.name: topic.cut(rows, 0, 32) for one, topic in zip(event.indexed, source.topics[1:], strict=False)}
    words |= {one.name: source.data.cut(rows, 32 * place, 32) for place, one in enumerate(event.in_data)}
    sound = np.ones(len(rows), dtype=bool)
    for one in event.parameters:
        good = np.ones(len(rows), dtype=bool) if one.is_hashed else clean(one.type.name, words[one.name])
        result.explain(rows[sound & ~good], word_error(one))
        sound &= good
    if not sound.all():
        rows, words = rows[sound], {name: matrix[sound] for name, matrix in words.items()}
    if len(rows):
        result.add(event, rows, [texts_of(one, words[one.name]) for one in event.parameters], words)
    return rows


def _decode_each(event: Event, source: _Source, rows: Ints, result: _Result) -> Ints:
    kept, values = [], []
    for row in rows.tolist():
        found = decode(event, *source.log(row, event.topic_count))
        if isinstance(found, Reason):
            result.reasons.setdefault(row, found.text)
        else:
            kept.append(row)
            values.append(found)
    taken = np.array(kept, dtype=np.int64)
    if kept:
        texts = [pa.array([value[one.name] for value in values], pa.string()) for one in event.parameters]
        result.add(event, taken, texts, _words_of(event, source, taken))
    return taken


def _words_of(event: Event, source: _Source, rows: Ints) -> dict[str, Bytes]:
    """The words of the parameters that have a column of their own: topics, or at the place in the data where they stand."""
    found = {one.name: topic.cut(rows, 0, 32) for one, topic in zip(event.indexed, source.topics[1:], strict=False)}
    place = 0
    for one in event.in_data:
        if one.type.is_word:
            found[one.name] = source.data.cut(rows, place, 32)
        place += one.type.head
    return found
