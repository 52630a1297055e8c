"""Reading a lake directory without Spark: files by the log, rows by the ledger, streams by the index, caches within bounds."""

import json
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from chainlake.errors import BadInput, Unavailable
from chainlake.lake.visibility import ADVANCE, ROLLBACK, Commit, History
from chainlake.logs.codec import values_of
from chainlake.logs.entries import Postings, Refs, Window, clipped, common, count, entries_of, numbers
from chainlake.logs.filter import LogFilter
from chainlake.logs.query import LogIndex, NothingIndexed
from chainlake.logs.settings import Settings
from chainlake.logs.snapshot import BRONZE, GOLD, MERGES, RAW, Segment, active_segments, visible_head
from chainlake.serve.cache import ByteCache
from chainlake.serve.control import LakeControl
from chainlake.serve.embedded import EmbeddedLake
from chainlake.serve.row_groups import Footer, holding
from chainlake.serve.table_log import DataFile, TableLog
from chainlake.serve.visible import HIGHEST, LOWEST, Limits, select
from tests.unit.damaged_files import cut, flipped, scribble
from tests.unit.ledger_model import moment
from tests.unit.logs_lake import LogsLake

# Files of a table


def append(path: Path, *values: int) -> None:
    rows = pa.table({"_commit": pa.array(values, pa.int64()), "name": [f"n{value}" for value in values]})
    write_deltalake(str(path), rows, mode="append")


def same_as_delta_rs(log: TableLog, path: Path) -> None:
    table = DeltaTable(str(path))
    assert (log.version, {file.path for file in log.files}) == (table.version(), set(table.file_uris()))
    actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    stated = {str(path / a["path"]): (a["num_records"], a["min._commit"], a["max._commit"]) for a in actions}
    assert {f.path: (f.rows, f.low["_commit"], f.high["_commit"]) for f in log.files} == stated


def test_files_are_those_that_delta_rs_finds(tmp_path: Path) -> None:
    rng = random.Random(3)
    append(tmp_path, 1, 2)
    followed = TableLog(tmp_path, ["_commit"])
    steps: list[Callable[[], Any]] = [
        lambda: append(tmp_path, *rng.sample(range(100), 3)),
        lambda: DeltaTable(str(tmp_path)).optimize.compact(),
        lambda: DeltaTable(str(tmp_path)).create_checkpoint(),
        lambda: DeltaTable(str(tmp_path)).delete(f"_commit < {rng.randrange(30)}"),
    ]
    for step in [*steps, *rng.choices(steps, weights=(6, 1, 1, 1), k=30)]:
        step()
        followed.refresh()
        fresh = TableLog(tmp_path, ["_commit"])
        assert fresh.refresh() and not fresh.refresh()
        for log in (followed, fresh):
            same_as_delta_rs(log, tmp_path)


def test_a_reader_that_slept_while_the_log_was_cleaned_up_starts_from_the_checkpoint(tmp_path: Path) -> None:
    append(tmp_path, 1)
    log = TableLog(tmp_path, ["_commit"])
    assert log.refresh() and not log.has_news()
    for value in range(2, 6):
        append(tmp_path, value)
    DeltaTable(str(tmp_path)).create_checkpoint()
    for version in range(4):
        (tmp_path / "_delta_log" / f"{version:020d}.json").unlink()
    assert log.has_news() and log.refresh()
    same_as_delta_rs(log, tmp_path)


def test_a_checkpoint_that_cannot_be_read_is_an_error_and_no_empty_table(tmp_path: Path) -> None:
    append(tmp_path, 1)
    DeltaTable(str(tmp_path)).create_checkpoint()
    log_dir = tmp_path / "_delta_log"
    shutil.move(next(log_dir.glob("*.parquet")), log_dir / "00000000000000000000.checkpoint.0a-b.parquet")
    (log_dir / "00000000000000000000.json").unlink()
    with pytest.raises(BadInput, match="make a classic checkpoint"):
        TableLog(tmp_path).refresh()


@pytest.mark.parametrize("how", [cut, scribble, flipped])
def test_a_damaged_checkpoint_is_named(tmp_path: Path, how: Callable[[bytes], bytes]) -> None:
    append(tmp_path, 1)
    DeltaTable(str(tmp_path)).create_checkpoint()
    (checkpoint,) = (tmp_path / "_delta_log").glob("*.parquet")
    checkpoint.write_bytes(how(checkpoint.read_bytes()))
    with pytest.raises(Unavailable, match=r"checkpoint\.parquet cannot be read \(.+\): see Repairing in docs/operations.md"):
        TableLog(tmp_path).refresh()


@pytest.mark.parametrize(
    ("action", "words"),
    [
        ({"protocol": {"minReaderVersion": 3, "readerFeatures": ["deletionVectors"]}}, "needs deletionVectors"),
        ({"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}, "needs columnMapping"),
        ({"add": {"path": "x", "size": 1, "deletionVector": {"storageType": "u"}}}, "has deletion vectors"),
    ],
)
def test_what_cannot_be_read_without_spark_is_refused(tmp_path: Path, action: dict[str, Any], words: str) -> None:
    append(tmp_path, 1)
    (tmp_path / "_delta_log" / "00000000000000000001.json").write_text(json.dumps(action))
    with pytest.raises(BadInput, match=words):
        TableLog(tmp_path).refresh()


def test_a_table_that_is_not_there_has_no_files(tmp_path: Path) -> None:
    log = TableLog(tmp_path / "none")
    assert not log.refresh() and not log.has_news() and log.files == ()


def test_paths_in_the_log_are_decoded(tmp_path: Path) -> None:
    (tmp_path / "_delta_log").mkdir()
    adds = [{"add": {"path": path, "size": 1}} for path in ("a%20b.parquet", "file:///x/y.parquet", "/z.parquet")]
    (tmp_path / "_delta_log" / f"{0:020d}.json").write_text("\n".join(map(json.dumps, adds)))
    log = TableLog(tmp_path)
    log.refresh()
    assert [file.path for file in log.files] == [f"{tmp_path}/a b.parquet", "/x/y.parquet", "/z.parquet"]


# Rows of files


@given(st.dictionaries(st.integers(0, 9), st.integers(0, 9)), st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9))))
def test_limits_show_rows_of_their_commits_up_to_their_heights(limits: dict[int, int], rows: list[tuple[int, int]]) -> None:
    commits, heights = (np.array([row[side] for row in rows], np.int64) for side in (0, 1))
    seen = [commit in limits and height <= limits[commit] for commit, height in rows]
    assert Limits(limits).shows(commits, heights).tolist() == seen
    part = Limits(limits).within(2, 6)
    assert part.commits.tolist() == sorted(commit for commit in limits if 2 <= commit <= 6)
    assert part.digest() != Limits({**{c: h for c, h in limits.items() if 2 <= c <= 6}, 7: 1}).digest()


def stated(low: dict[str, Any], high: dict[str, Any]) -> DataFile:
    return DataFile("f", 1, 1, low, high)


def test_statistics_decide_which_files_are_read_and_which_are_filtered() -> None:
    one = {"_chain": "a", "_height": 3, "_commit": 5, "log_id": 7}
    limits = Limits({5: 3, 9: 8})

    def source(low: dict[str, Any], high: dict[str, Any]) -> Any:
        found = select([stated(low, high)], "a", limits, "log_id").sources
        return found[0] if found else None

    plain = source(one, one)
    assert (plain.filtered, plain.chain, plain.kernel_columns()) == (False, None, ())
    assert source(one, {**one, "_height": 4}).filtered, "rows above the limit"
    assert source(one, {**one, "_commit": 6}).filtered, "another commit"
    assert source({**one, "_commit": 6}, {**one, "_commit": 8}) is None, "no commit that counts"
    assert source(one, {**one, "_chain": "b"}).chain == "a", "another chain"
    assert source({**one, "_chain": "b"}, {**one, "_chain": "c"}) is None
    unknown = source({}, {})
    assert unknown.filtered and unknown.chain == "a" and unknown.kernel_columns() == ("_chain", "_height", "_commit")


def test_a_long_chain_name_that_statistics_cut_is_found() -> None:
    chain = "x" * 40
    cut = stated({"_chain": "x" * 32, "_commit": 5}, {"_chain": "x" * 32 + "\u7fff", "_commit": 5})
    (source,) = select([cut], chain, Limits({5: 3}), "log_id").sources
    assert source.chain == chain


def test_row_groups_without_statistics_may_hold_anything(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    rows = pa.table({"stream": pa.array([1, 5, 9, None, None, 4], pa.int64()), "other": range(6)})
    pq.write_table(rows, path, row_group_size=2, write_statistics=["stream"])
    footer = Footer(pq.read_metadata(path))
    low, high = footer.bounds("stream")
    assert low.tolist() == [1, 9, 4] and high.tolist() == [5, 9, 4]
    assert footer.bounds("other")[0].tolist() == [LOWEST] * 3 and footer.bounds("other")[1].tolist() == [HIGHEST] * 3


@given(st.lists(st.integers(0, 30)).map(sorted), st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30))))
def test_ranges_that_hold_keys_are_found(keys: list[int], ranges: list[tuple[int, int]]) -> None:
    low, high = (np.array([pick(one) for one in ranges], np.int64) for pick in (min, max))
    found = {place: keys[start:end] for place, start, end in zip(*holding(np.array(keys), low, high), strict=True)}
    inside = {place: [key for key in keys if a <= key <= b] for place, (a, b) in enumerate(zip(low, high, strict=True))}
    assert found == {place: some for place, some in inside.items() if some}


# Caches


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 40))))
def test_a_cache_never_holds_more_than_its_bound(puts: list[tuple[int, int]]) -> None:
    cache: ByteCache[int] = ByteCache(100)
    for key, size in puts:
        cache.put(key, size, size)
        assert cache.counts().bytes == sum(cache.get(k) or 0 for k in range(9)) <= 100


def test_a_cache_lets_go_of_what_was_not_used_for_longest() -> None:
    cache: ByteCache[str] = ByteCache(3)
    for key in "abc":
        cache.put(key, key, 1)
    assert cache.get("a") == "a"
    cache.put("d", "d", 1)
    assert [cache.get(key) for key in "abcd"] == ["a", None, "c", "d"]
    cache.put("e", "e", 4)
    assert cache.get("e") is None, "larger than the whole cache"
    counts = cache.counts()
    assert (counts.hits, counts.misses, counts.evictions, counts.entries) == (4, 2, 1, 3)


# Entries


@given(st.sets(st.integers(0, 3 << 24)), st.sets(st.integers(0, 3 << 24)), st.integers(0, 3 << 24), st.integers(0, 3 << 24))
def test_sets_of_entries_are_sets_of_numbers(one: set[int], two: set[int], low: int, high: int) -> None:
    first, second = (entries_of(np.array(sorted(values), np.int64)) for values in (one, two))
    assert numbers(first).tolist() == sorted(one) and count(first) == len(one)
    parts = [entries_of(np.array(sorted(values), np.int64)) for values in (set(sorted(one)[::2]), set(sorted(one)[1::3]))]
    tails = {shard: values_of(bitmap).astype(np.int32) for shard, bitmap in parts[0].items()}
    chunks = {shard: [bitmap, bitmap] for shard, bitmap in parts[1].items()}
    having = set(sorted(one)[::2]) | set(sorted(one)[1::3])
    assert set(numbers(common(tails, chunks, second)).tolist()) == having & two
    assert all(common(tails, chunks, second).values()), "none is empty"
    assert set(numbers(clipped(first, Window(low, high))).tolist()) == {value for value in one if low <= value < high}


def test_estimates_count_tails_and_take_the_part_of_chunks_that_is_inside() -> None:
    def ints(*values: int) -> Any:
        return np.array(values, np.int32)

    refs = Refs("t", 1, 1, 0, np.array([0, 100]), ints(0, 100), ints(99, 299), ints(50, 200))
    postings = Postings({0: [ints(5, 10), ints(150)], 1: [ints(3)]}, [refs])
    assert postings.estimate(Window(0, 1 << 30)) == 254
    assert postings.estimate(Window(50, 150)) == 25 + 50
    assert postings.estimate(Window(1 << 24, 2 << 24)) == 1
    assert [one.places.tolist() for one in postings.chunks(Window(50, 100))] == [[0]]
    near = entries_of(np.array([120, 250]))
    assert [one.places.tolist() for one in postings.chunks(Window(0, 300), near)] == [[1]]
    assert postings.chunks(Window(0, 300), entries_of(np.array([300]))) == []


# What counts


def row(stage: str, kind: str, seq: int, base: int, height: int, merged: bool = False, inputs: int = 0) -> Commit:
    source = {GOLD: BRONZE, MERGES: GOLD}.get(stage)
    roots = {"merged": b"\x01"} if merged else {}
    taken = {source: inputs} if source else {}
    return Commit(stage, "a", "a", seq, seq + 100, kind, base, height, 1, moment(seq), None, roots, taken)


GOLD_ROWS = [row(GOLD, ADVANCE, n, 10 * (n - 1), 10 * n, inputs=n) for n in range(1, 5)]


def spans(gold: list[Commit], merges: list[Commit]) -> list[tuple[int, int, bool]]:
    return [(s.base, s.height, s.merged) for s in active_segments(History(gold), History(merges))]


def test_a_merge_replaces_the_segments_that_it_covers() -> None:
    assert spans(GOLD_ROWS, []) == [(0, 10, False), (10, 20, False), (20, 30, False), (30, 40, False)]
    merge = row(MERGES, ADVANCE, 1, 0, 20, merged=True, inputs=4)
    assert spans(GOLD_ROWS, [merge]) == [(0, 20, True), (20, 30, False), (30, 40, False)]
    passed = row(MERGES, ADVANCE, 2, 20, 30, inputs=4)
    later = row(MERGES, ADVANCE, 3, 30, 40, merged=True, inputs=4)
    assert spans(GOLD_ROWS, [merge, passed, later]) == [(0, 20, True), (20, 30, False), (30, 40, True)]


def test_a_merge_that_the_index_was_rolled_back_under_counts_no_more() -> None:
    merge = row(MERGES, ADVANCE, 1, 0, 20, merged=True, inputs=4)
    back = row(GOLD, ROLLBACK, 5, 40, 10, inputs=4)
    again = [row(GOLD, ADVANCE, 6, 10, 20, inputs=6), row(GOLD, ADVANCE, 7, 20, 25, inputs=7)]
    assert spans([*GOLD_ROWS, back], [merge]) == [(0, 10, False)], "it reaches beyond the head"
    assert spans([*GOLD_ROWS, back, *again], [merge]) == [(0, 10, False), (10, 20, False), (20, 25, False)], "other blocks"
    undone = row(MERGES, ROLLBACK, 2, 20, 0, inputs=7)
    new = row(MERGES, ADVANCE, 3, 0, 20, merged=True, inputs=7)
    assert spans([*GOLD_ROWS, back, *again], [merge, undone, new]) == [(0, 20, True), (20, 25, False)]
    above = row(GOLD, ROLLBACK, 5, 40, 20, inputs=4)
    assert spans([*GOLD_ROWS, above], [merge]) == [(0, 20, True)], "rolled back to its end, not under it"


def test_the_head_is_where_index_and_logs_agree() -> None:
    bronze = [row(BRONZE, ADVANCE, n, 10 * (n - 1), 10 * n) for n in range(1, 5)]

    def head(more: list[Commit], gold: list[Commit]) -> int | None:
        return visible_head(History([*bronze, *more]), History(gold))

    assert head([], GOLD_ROWS[:3]) == 30, "bronze is ahead"
    assert head([], []) is None
    back = row(BRONZE, ROLLBACK, 5, 40, 15)
    assert head([back], GOLD_ROWS) == 15
    assert head([back, row(BRONZE, ADVANCE, 6, 15, 60)], GOLD_ROWS) == 15, "what comes after is another version of the chain"
    assert head([back], [*GOLD_ROWS, row(GOLD, ROLLBACK, 5, 40, 10, inputs=5)]) == 10
    assert head([row(BRONZE, ROLLBACK, 5, 40, 0)], GOLD_ROWS) is None


# A whole lake


@pytest.fixture
def lake(tmp_path: Path) -> LogsLake:
    made = LogsLake(tmp_path, seed=4)
    made.advance(6)
    return made


def everything(index: LogIndex, **more: Any) -> list[tuple[int, int]]:
    logs = index.query(LogFilter(from_block=0, to_block=10**9), **more).logs
    return list(zip(logs["block_number"].to_pylist(), logs["log_index"].to_pylist(), strict=True))


def test_there_must_be_a_lake_and_an_indexed_chain(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is no lake in"):
        LogIndex(tmp_path, "main")
    lake = LogsLake(tmp_path, seed=4)
    lake.bronze(3)
    index = LogIndex(tmp_path, "main", settings=Settings(follow_seconds=0))
    with pytest.raises(NothingIndexed, match="no block of chain 'main' is indexed"):
        index.snapshot()
    lake.gold()
    assert everything(index) == [log.place for log in lake.visible(10**9)]
    lake.rollback(lake.first)
    with pytest.raises(NothingIndexed):
        index.snapshot()
    with pytest.raises(NothingIndexed, match="'nobody'"):
        LogIndex(tmp_path, "nobody").snapshot()


def test_new_commits_are_followed_and_old_snapshots_keep_their_answers(lake: LogsLake) -> None:
    index = LogIndex(lake.home, "main", settings=Settings(follow_seconds=0))
    old, before = index.snapshot(), [log.place for log in lake.visible(10**9)]
    assert everything(index) == before and index.snapshot() is old
    lake.bronze(4)
    assert everything(index) == before, "not indexed yet"
    lake.gold()
    now = [log.place for log in lake.visible(10**9)]
    assert everything(index) == now and len(now) > len(before) and index.snapshot().version > old.version
    lake.rollback(lake.first + 6)
    lake.advance(5)
    assert everything(index) == [log.place for log in lake.visible(10**9)]
    assert everything(index, snapshot=old) == before
    newest = index.snapshot()
    assert newest.head.number == lake.first + 11 and newest.head.hash == lake.blocks[-1].hash
    assert newest.committed_at.tzinfo == timezone.utc and newest.first == lake.first + 1


def test_news_are_looked_for_only_so_often(lake: LogsLake) -> None:
    index = LogIndex(lake.home, "main", settings=Settings(follow_seconds=3600))
    before = index.snapshot()
    lake.advance(2)
    assert index.snapshot() is before


def test_commits_of_other_chains_change_nothing(lake: LogsLake) -> None:
    index = LogIndex(lake.home, "main", settings=Settings(follow_seconds=0))
    before = index.snapshot()
    LogsLake(lake.home, "other", seed=9).advance(3)
    assert index.snapshot() is before


def test_files_that_optimize_and_vacuum_took_away_are_found_again(lake: LogsLake) -> None:
    lake.advance(5)
    lake.advance(5)
    index = LogIndex(lake.home, "main", settings=Settings(log_bytes=0, tail_bytes=0, block_bytes=0, footer_bytes=0))
    old, before = index.snapshot(), everything(index)
    for table in ("bronze_evm_logs", "gold_block_meta", "gold_log_tails"):
        lake.optimize(table)
        lake.vacuum(table)
    assert everything(index, snapshot=old) == before
    assert everything(index) == before and index.snapshot() is not old


def test_blocks_are_found_by_number_and_hash_with_what_the_source_gave(lake: LogsLake) -> None:
    lake.advance(4)
    index = LogIndex(lake.home, "main")
    for block in lake.blocks:
        found = index.block_by_number(block.number)
        assert found is not None and (found.hash, found.parent_hash) == (block.hash, block.parent_hash)
        assert index.block_by_hash(block.hash) == found
        assert index.payload(found) == b"{%d}" % block.number
    assert index.block_by_number(lake.first) is None and index.block_by_number(10**6) is None
    assert index.block_by_hash(b"?" * 32) is None


def test_readers_of_many_threads_get_the_same_answers(lake: LogsLake) -> None:
    index = LogIndex(lake.home, "main", settings=Settings(follow_seconds=0, group_rows=2, log_bytes=20_000, tail_bytes=5_000))
    wrong: list[Any] = []
    stop = threading.Event()

    def read(seed: int) -> None:
        rng = random.Random(seed)
        while not stop.is_set():
            snapshot = index.snapshot()
            address = lake.values.address() if rng.random() < 0.5 else b"address-%012d" % rng.randrange(3)
            wanted = LogFilter((address,), from_block=0, to_block=lake.first + 6)
            found = index.query(wanted, snapshot=snapshot).logs["log_id"].to_pylist()
            if found != [log.log_id for log in lake.expected(wanted, lake.first + 6)]:
                wrong.append((seed, address))

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        lake.advance(2)
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_caches_stay_within_their_bounds(lake: LogsLake) -> None:
    bounds = {"log_bytes": 9_000, "tail_bytes": 3_000, "block_bytes": 800, "footer_bytes": 100_000, "chunk_bytes": 1_500}
    index = LogIndex(lake.home, "main", settings=Settings(group_rows=2, **bounds))
    for block in lake.blocks:
        for log in block.logs:
            index.query(LogFilter((log.address,), from_block=0, to_block=100))
    counts = index.caches()
    assert all(each.bytes <= each.max_bytes for each in counts.values())
    assert {f"{kind.removesuffix('s')}_bytes": each.max_bytes for kind, each in counts.items()}.items() >= bounds.items()
    assert counts["tails"].hits and counts["tails"].misses and counts["logs"].evictions


def test_control_tables_are_read_with_times_in_utc(lake: LogsLake) -> None:
    rows = LakeControl(EmbeddedLake(lake.home)).rows("ledger")
    assert {row["stage"] for row in rows} == {RAW, BRONZE, GOLD}
    assert all(row["committed_at"].tzinfo is not None for row in rows)
    assert LakeControl(EmbeddedLake(lake.home)).rows("nothing") == []


def test_a_ledger_that_contradicts_itself_is_refused(lake: LogsLake) -> None:
    index = LogIndex(lake.home, "main", settings=Settings(follow_seconds=0))
    assert index.snapshot()
    lake._commit(GOLD, ADVANCE, 1, 2, 999)
    for _ in range(2):
        with pytest.raises(BadInput, match=r"control\.ledger is corrupt"):
            index.snapshot()


def test_segments_are_listed_with_the_blocks_that_they_cover(lake: LogsLake) -> None:
    lake.advance(3)
    lake.merge(1)
    segments = LogIndex(lake.home, "main").snapshot().segments
    assert segments == (
        Segment(lake.commits[-1].commit_id, lake.first, lake.first + 6, True),
        Segment(segments[1].commit_id, lake.first + 6, lake.first + 9, False),
    )


def test_a_first_answer_loads_neither_spark_nor_pandas(lake: LogsLake) -> None:
    """A process that starts must answer at once, and each of these takes longer to load than an answer may."""
    code = (
        "import sys; from pathlib import Path; from chainlake.logs.query import LogIndex, Settings;"
        " from chainlake.logs.filter import LogFilter; wanted = LogFilter((b'address-%012d' % 1,), from_block=0, to_block=99);"
        " sets = (Settings(), Settings(group_rows=1), Settings(log_bytes=0));"
        " found = [LogIndex(Path(sys.argv[1]), 'main', settings=one).query(wanted).logs.num_rows for one in sets];"
        " loaded = {name.partition('.')[0] for name in sys.modules} & {'pyspark', 'pandas', 'deltalake'};"
        " sys.exit(f'loaded {loaded}' if loaded or not all(found) else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(lake.home)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_times_as_spark_stores_them_are_the_same_times(lake: LogsLake) -> None:
    """As INT96 without a zone."""
    before = LogIndex(lake.home, "main").query(LogFilter(from_block=0, to_block=99)).logs
    log = TableLog(lake.home / "warehouse" / "store" / "bronze_evm_logs")
    log.refresh()
    for file in log.files:
        pq.write_table(pq.read_table(file.path), file.path, use_deprecated_int96_timestamps=True, row_group_size=5)
    after = LogIndex(lake.home, "main").query(LogFilter(from_block=0, to_block=99)).logs
    assert after.schema.equals(before.schema) and after.to_pylist() == before.to_pylist() != []
