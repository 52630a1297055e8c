"""Passes as rows: what the Spark stages do to Arrow batches, without Spark; and the fetching tasks over loopback."""

from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from chainlake.demo import river
from chainlake.demo.river_node import StreamNode
from chainlake.demo.river_server import RiverServer
from chainlake.errors import BadInput, Unavailable
from chainlake.lake.runner import ChainSummary, Timings
from chainlake.sources.base import RawBlock
from chainlake.sources.formats import check_options, format_of, network_of
from chainlake.sources.river import stream_ids
from chainlake.sync import decode, passes
from chainlake.sync.fetch import Budget, Head
from chainlake.sync.fetching import Order, head_row
from chainlake.sync.fold import fold
from chainlake.sync.miniblock import open_miniblock
from chainlake.sync.passes import PassRun
from chainlake.sync.rules import CASES
from chainlake.sync.service import NOBODY
from chainlake.sync.summary import COLUMNS, number_passes
from tests.unit.sources_reading import good, read_batch

Rows = list[dict[str, Any]]


def bronze(blocks: list[RawBlock]) -> tuple[Rows, Rows]:
    """Answers and miniblocks of passes, as the bronze stage makes them."""
    passes = [{"_chain": "c", "_height": b.height, "payload": b.payload, "timestamp": None} for b in blocks]
    schema = pa.schema({"_chain": pa.string(), "_height": pa.int64(), "payload": pa.binary(), "timestamp": decode.TIME})
    answers = [row for one in decode.answers([pa.RecordBatch.from_pylist(passes, schema)]) for row in one.to_pylist()]
    owner = {(row["_height"], row["first_tx"] + place): row["stream_id"] for row in answers for place in range(row["miniblocks"])}
    placed = [
        {"_chain": "c", "_height": b.height, "tx_index": t.index, "stream_id": owner[b.height, t.index], "payload": t.payload}
        for b in blocks
        for t in b.transactions
    ]
    fields = {"_chain": pa.string(), "_height": pa.int64(), "tx_index": pa.int32()}
    shape = pa.schema({**fields, "stream_id": pa.binary(), "payload": pa.binary()})
    made = decode.miniblocks([pa.RecordBatch.from_pylist(placed, shape)])
    return answers, [row for one in made for row in one.to_pylist()]


def stream(answers: Rows, marks: Rows, stream_id: bytes, state: object = None, ours: Rows | None = None) -> dict[str, Any]:
    """A row as the gold stage gathers it."""
    return {
        "_chain": "c",
        "stream_id": stream_id,
        "answers": [one for one in answers if one["stream_id"] == stream_id],
        "marks": [one for one in marks if one["stream_id"] == stream_id],
        "state": state,
        "ours": ours,
    }


def folded(answers: Rows, marks: Rows, stream_id: bytes, state: object = None, ours: Rows | None = None) -> dict[str, Any]:
    (batch,) = fold([pa.RecordBatch.from_pylist([stream(answers, marks, stream_id, state, ours)])])
    (out,) = batch.to_pylist()
    return out


def test_recorded_passes_deliver_every_miniblock_once(tmp_path: Path) -> None:
    river.write(tmp_path, 6)
    answers, marks = bronze(good(read_batch("river", [str(tmp_path)])))
    assert not [mark for mark in marks if mark["problem"]]
    for stream_id in {answer["stream_id"] for answer in answers}:
        out = folded(answers, marks, stream_id)
        numbers = [one["miniblock_num"] for one in out["delivered"] if one["delivered"]]
        assert numbers == list(range(numbers[0], numbers[-1] + 1)) and len(numbers) > 1
        assert [one["case"] for one in out["passes"]] == ["first"] + ["follows"] * 5
        assert out["states"][-1]["minipool_gen"] == numbers[-1] + 1 and out["gaps"] == out["quarantined"] == []
        heights = [one["_height"] for one in out["states"]]
        assert heights == sorted(set(heights)), "one state a pass at most"


def test_a_batch_that_is_cut_anywhere_ends_the_same(tmp_path: Path) -> None:
    river.write(tmp_path, 6, seed=5)
    answers, marks = bronze(good(read_batch("river", [str(tmp_path)])))
    stream_id = answers[0]["stream_id"]
    whole = folded(answers, marks, stream_id)
    for cut in range(1, 6):
        first = folded(*([row for row in rows if row["_height"] <= cut] for rows in (answers, marks)), stream_id)
        ours = [{name: one[name] for name in ("miniblock_num", "miniblock_hash")} for one in first["delivered"]]
        rest = ([row for row in rows if row["_height"] > cut] for rows in (answers, marks))
        second = folded(*rest, stream_id, first["states"][-1], ours)
        assert first["delivered"] + second["delivered"] == whole["delivered"]
        assert first["states"] + second["states"] == whole["states"]


def test_streams_of_a_batch_do_not_meet_each_other(tmp_path: Path) -> None:
    river.write(tmp_path, 6, seed=7)
    answers, marks = bronze(good(read_batch("river", [str(tmp_path)])))
    ids = sorted({answer["stream_id"] for answer in answers})
    known = folded([row for row in answers if row["_height"] <= 3], [row for row in marks if row["_height"] <= 3], ids[1])
    ours = [{name: one[name] for name in ("miniblock_num", "miniblock_hash")} for one in known["delivered"]]
    given = {ids[1]: (known["states"][-1], ours), b"quiet": (known["states"][-1], [])}
    rows = [stream(answers, marks, one, *given.get(one, (None, []))) for one in (ids[0], b"quiet", *ids[1:])]
    rows[1]["answers"] = [{**answers[0], "stream_id": b"quiet"}]
    alone = [row for one in rows for batch in fold([pa.RecordBatch.from_pylist([one])]) for row in batch.to_pylist()]
    whole = pa.RecordBatch.from_pylist(rows)
    for size in (1, 2, 3, len(rows)):
        parts = [whole.slice(start, size) for start in range(0, len(rows), size)]
        assert [row for batch in fold(parts) for row in batch.to_pylist()] == alone
    assert [len(row["states"]) > 0 for row in alone] == [True, False, True, True, True]
    assert alone[2]["delivered"][0]["miniblock_num"] == known["states"][-1]["minipool_gen"], (
        "what was delivered does not come again"
    )


def test_recorded_pages_fill_a_gap(tmp_path: Path) -> None:
    node = StreamNode(1, page_limit=4)
    (stream_id,) = node.streams
    for number in (1, 2):
        node.grow(stream_id, 13)
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / f"{stream_id.hex()}.bin").write_bytes(node.answer(stream_id))
    for start in (14, 18, 22):
        (folder / f"{stream_id.hex()}.{start}-25.bin").write_bytes(node.page(stream_id, start, 25))
    answers, marks = bronze(good(read_batch("river", [str(tmp_path)])))
    out = folded(answers, marks, stream_id)
    assert [one["miniblock_num"] for one in out["delivered"] if one["delivered"]] == list(range(10, 27))
    assert out["gaps"] == [] and [one["historical"] for one in out["delivered"]][-13:] == [True] * 13
    (folder / f"{stream_id.hex()}.20-27.bin").write_bytes(node.page(stream_id, 23, 27))
    twice = folded(*bronze(good(read_batch("river", [str(tmp_path)]))), stream_id)
    numbers = [one["miniblock_num"] for one in twice["delivered"]]
    assert numbers == [one["miniblock_num"] for one in out["delivered"]] and twice["gaps"] == twice["quarantined"] == []
    (folder / f"{stream_id.hex()}.20-27.bin").unlink()
    (folder / f"{stream_id.hex()}.18-25.bin").unlink()
    out = folded(*bronze(good(read_batch("river", [str(tmp_path)]))), stream_id)
    assert [(gap["from_miniblock"], gap["to_miniblock"], gap["reason"]) for gap in out["gaps"]] == [(18, 22, "not recorded")]
    assert [one["miniblock_num"] for one in out["delivered"]][-9:] == [14, 15, 16, 17, *range(22, 27)]
    (folder / f"{stream_id.hex()}.bin").unlink()
    assert "is a page without the answer" in read_batch("river", [str(tmp_path)])[-1].reason  # type: ignore[union-attr]
    (folder / f"{stream_id.hex()}.bin").write_bytes(node.answer(stream_id))
    for page in folder.glob("*.*-*.bin"):
        page.unlink()
    out = folded(*bronze(good(read_batch("river", [str(tmp_path)]))), stream_id)
    assert [(gap["from_miniblock"], gap["to_miniblock"], gap["reason"]) for gap in out["gaps"]] == [(14, 25, "not recorded")]


def test_offsets_go_on_from_the_pass_before_in_each_chain() -> None:
    nothing = dict.fromkeys([*COLUMNS, "next_offset", *(f"case_{case}" for case in CASES)], 0)
    counts = [
        {**nothing, "_chain": "b", "_height": 6, "notifications": 2, "case_follows": 3},
        {**nothing, "_chain": "a", "_height": 1, "notifications": 4},
        {**nothing, "_chain": "b", "_height": 4, "next_offset": 11},
        {**nothing, "_chain": "b", "_height": 5, "notifications": 7},
    ]
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in number_passes(counts, {"a": (0, 1), "b": (4, 6)})]
    assert [(row["_chain"], row["_height"], row["first_offset"]) for row in rows] == [("a", 1, 1), ("b", 5, 11), ("b", 6, 18)]
    assert [row["cases"] for row in rows] == [{}, {}, {"follows": 3}]


def test_events_keep_what_they_say(tmp_path: Path) -> None:
    river.write(tmp_path, 1)
    (block,) = good(read_batch("river", [str(tmp_path)]))
    answers, marks = bronze([block])
    for mark, transaction in zip(marks, block.transactions, strict=True):
        events = open_miniblock(transaction.payload).events
        assert [(one["event_hash"], one["payload"]) for one in mark["events"]] == [(e.hash, e.body) for e in events]
        assert {one["kind"] for one in mark["events"]} <= {"channel"} and mark["event_count"] == len(events)
        assert all(len(one["creator_address"]) == 20 and one["created_at"].year == 2025 for one in mark["events"])
    assert any(answer["events"] for answer in answers) and not any(e["problem"] for a in answers for e in a["events"])


def order(urls: list[str], budget: int, **options: str) -> Order:
    return Order(tuple(urls), {"timeout": "5", "retries": "0", **options}, 1, budget)


def asked(ids: list[bytes]) -> pa.RecordBatch:
    heads = dict.fromkeys(("minipool_gen", "prev_miniblock_hash", "genesis_hash", "seen_gen", "seen_hash", "minipool"))
    more = dict.fromkeys(("refused", "whole", "base_number", "base_hash", "base_start"))
    return pa.RecordBatch.from_pylist([{"stream_id": one, **heads, **more} for one in ids])


def test_a_task_fetches_its_streams_and_postpones_what_is_beyond_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    node = StreamNode(60)
    for stream_id in node.streams:
        node.grow(stream_id, 3)
    server = RiverServer(node).start()
    try:
        ids = [*node.streams, b"\x20\xff"]
        rows = [row for batch in order([server.url], 10_000)([asked(ids)]) for row in batch.to_pylist()]
        assert [row["stream_id"] for row in rows] == ids
        assert [row["status"] for row in rows] == ["taken"] * 60 + ["refused"]
        assert all(row["count"] == 4 and row["minipool_gen"] == 4 and row["whole"] for row in rows[:60])
        few = [row["status"] for batch in order([server.url], 50)([asked(ids)]) for row in batch.to_pylist()]
        assert few.count("postponed") > 20 and few.count("taken") >= 10
        monkeypatch.setattr("chainlake.sync.fetching.Budget", partial(Budget, size=5_000))
        small = [row["status"] for batch in order([server.url], 10_000)([asked(ids)]) for row in batch.to_pylist()]
        assert small.count("postponed") > 20 and small.count("taken") >= 1, "a budget of bytes"
    finally:
        server.stop()
    down = [row for batch in order([server.url], 50)([asked(ids[:2])]) for row in batch.to_pylist()]
    assert {row["status"] for row in down} == {"refused"} and "cannot be reached" in down[0]["reason"]


def test_of_an_answer_that_does_not_follow_only_the_newest_miniblocks_are_told() -> None:
    node = StreamNode(1, snapshot_every=50)
    (stream_id,) = node.streams
    node.grow(stream_id, 30)
    server = RiverServer(node).start()
    elsewhere = Head(31, b"e" * 32, b"g" * 32, 31, b"e" * 32)
    given = {"stream_id": stream_id, **head_row(elsewhere), **dict.fromkeys(("base_number", "base_hash", "base_start"))}
    try:
        rows = [row for batch in order([server.url], 10)([pa.RecordBatch.from_pylist([given])]) for row in batch.to_pylist()]
    finally:
        server.stop()
    (row,) = rows
    assert row["status"] == "unsettled" and [one["number"] for one in row["shown"]] == list(range(15, 31))
    assert row["shown"][-1]["hash"] == node.streams[stream_id].last_hash


def test_what_comes_beside_miniblocks_is_bounded_and_the_rest_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "MOST_BESIDE", 10)
    for sizes, count in (([4, 6, 1, 0], 2), ([11, 1], 1), ([0, 10], 2), ([], 0)):
        rows: Any = [{"stream_id": bytes([at]), "rest": bytes(size)} for at, size in enumerate(sizes)]
        assert passes._fitting(rows) == (rows[:count], rows[count:])


class Quiet:
    """Where a run tells what it does."""

    def phase(self, *_: object, **__: object) -> None:
        pass


def run_over(streams: int) -> PassRun:
    """A run over nodes that has asked for nothing yet."""
    run = PassRun.__new__(PassRun)
    run.chain, run.all_streams, run.refused, run.had, run.exhausted = "c", streams, 0, 0, False
    run.asked = [bytes([at]) for at in range(streams)]
    run.progress, run.summaries = Quiet(), {"c": ChainSummary("raw.sync", "c")}  # type: ignore[assignment]
    return run


def refused(ids: list[bytes], reason: str) -> Rows:
    return [{"stream_id": one, "status": passes.REFUSED, "reason": reason} for one in ids]


def test_a_run_fails_only_when_all_streams_were_asked_for_and_none_could_be_had() -> None:
    run = run_over(5)
    some, run.asked = run.asked[:3], run.asked[3:]
    run._commit_pass([], refused(some, "there is no such stream"), 3, Timings())
    assert not run.exhausted and "3 of 5 streams could not be had" in run.summaries["c"].error
    some, run.asked = run.asked, []
    with pytest.raises(Unavailable, match="no stream of c can be had: there is no such stream"):
        run._commit_pass([], refused(some, "there is no such stream"), 2, Timings())
    run = run_over(5)
    run.asked = run.asked[3:]
    with pytest.raises(Unavailable, match="no stream of c can be had"):
        run._commit_pass([], refused(some, f"{NOBODY} for the last 32 requests"), 2, Timings())
    run = run_over(2)
    run.asked, run.had = [], 3
    run._commit_pass([], refused(some, "there is no such stream"), 2, Timings())
    assert run.exhausted, "others were had before"


@pytest.mark.parametrize(
    ("text", "message"), [("", "names no stream"), ("20zz", "line 1: '20zz' is not a stream id"), ("20aa\n2", "line 2")]
)
def test_a_file_of_streams_that_is_wrong_is_bad_input(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "streams"
    path.write_text(text)
    with pytest.raises(BadInput, match=message):
        network_of("river", ["http://127.0.0.1:1"], {"streams": str(path)})


def test_streams_are_followed_once_each_and_must_be_given(tmp_path: Path) -> None:
    path = tmp_path / "streams"
    path.write_text("0x20AA\n\n20aa\n20bb\n")
    assert stream_ids({"streams": str(path)}) == [b"\x20\xaa", b"\x20\xbb"]
    with pytest.raises(BadInput, match="give --option streams=FILE"):
        network_of("river", ["http://127.0.0.1:1"], {})
    with pytest.raises(BadInput, match="cannot be read"):
        stream_ids({"streams": str(tmp_path / "missing")})
    with pytest.raises(BadInput, match="ftp"):
        format_of("river").expand("http://127.0.0.1:1,ftp://127.0.0.1:2")
    for name in ("page_size", "max_gap_commit", "timeout"):
        for value in ("many", "0", "-1", "1.5"):
            with pytest.raises(BadInput, match=f"option {name} is '{value}': a whole number of 1 or more is expected"):
                check_options("river", {name: value})
