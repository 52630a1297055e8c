"""How far recorded passes hold each stream: a chain may be followed from recordings first, and go on from nodes later."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from chainlake.arrow_ddl import ddl_of
from chainlake.sync.decode import answers_of
from chainlake.sync.fetch import Head
from chainlake.sync.fetching import ARROW, HEAD_COLUMNS, head_row
from chainlake.sync.miniblock import open_miniblock
from chainlake.sync.rules import Mark, sound_line

NOWHERE = -1
KEY = [pa.field("_chain", pa.string()), pa.field("_height", pa.int64()), ARROW.field("stream_id")]
RECORDED_ARROW = pa.schema([*KEY, *(ARROW.field(name) for name in HEAD_COLUMNS)])
RECORDED = ddl_of(RECORDED_ARROW)


def recorded_heads(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The heads that each pass (`_chain`, `_height`, `payload`, `timestamp`, `transactions`) leaves behind."""
    for batch in batches:
        for at in range(batch.num_rows):
            yield pa.RecordBatch.from_pylist(list(_heads(batch.slice(at, 1).to_pylist()[0])), RECORDED_ARROW)


def _heads(block: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    payloads = [one["payload"] for one in block["transactions"]]
    for answer in answers_of(block):
        first = answer["first_tx"]
        minipool = frozenset(event["event_hash"] for event in answer["events"])
        head = head_after(payloads[first : first + answer["miniblocks"]], minipool)
        if head is not None:
            yield {**{name: answer[name] for name in ("_chain", "_height", "stream_id")}, **head_row(head)}


def head_after(miniblocks: Iterable[bytes], minipool: frozenset[bytes]) -> Head | None:
    """Where a node has to go on: behind the last miniblock that can be delivered. What is unsound then, the node is asked for
    even if it stands there. None if the first already is: the head of before holds."""
    opened = [open_miniblock(raw) for raw in miniblocks]
    marks = [Mark(at, one.number, one.hash, one.prev_hash, problem=one.problem) for at, one in enumerate(opened)]
    sound, _, bad = sound_line(marks, None, live=False)
    if not sound:
        return None
    place = (sound[-1].number + 1, sound[-1].hash)
    genesis = sound[0].hash if sound[0].number == 0 else None
    if bad:
        return Head(*place, genesis, NOWHERE, b"")
    return Head(*place, genesis, *place, minipool)
