"""Queries against a naive scan: thousands of random filters, over lakes with everything in them that a reader may meet."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainlake.errors import BadInput, BrokenPromise
from chainlake.logs import packed, planner, rows
from chainlake.logs.entries import Window
from chainlake.logs.explain import BLOCK_FILTER, CHECK, INDEX
from chainlake.logs.filter import LogFilter
from chainlake.logs.index import IndexReader
from chainlake.logs.match import Matcher, _any_of
from chainlake.logs.packed import SCHEMA, words_of
from chainlake.logs.planner import Planner, windows
from chainlake.logs.python_rows import python_rows
from chainlake.logs.query import Answer, BlockNotFound, CorruptChunk, LogIndex, QueryTimedOut, QueryTooBroad, Settings
from chainlake.logs.snapshot import BRONZE, GOLD, MERGES, RAW
from tests.unit.damaged_files import cut, flipped, scribble
from tests.unit.logs_lake import Log, LogsLake

NO_CACHE = {f"{kind}_bytes": 0 for kind in ("log", "block", "tail", "manifest", "chunk_group", "chunk")}
ASKED: dict[str, Any] = {"group_rows": 1, "few_candidates": 0}
"""Row groups are thought to be so small, and candidates so dear, that the index is asked about everything."""

# Lakes


def many_segments(lake: LogsLake) -> None:
    """Segments of all sizes, some merged, some passed over; bronze is ahead."""
    for blocks in (9, 1, 4, 2, 7, 3):
        lake.advance(blocks)
    lake.merge(2)
    lake.merge(1, merged=False)
    lake.merge(2)
    lake.bronze(4)


def rolled_back(lake: LogsLake) -> None:
    """Blocks that were replaced, in merged segments too; the log ids of both versions are the same."""
    for blocks in (8, 6, 5):
        lake.advance(blocks)
    lake.merge(3)
    lake.rollback(lake.first + 14)
    lake.advance(7)
    lake.rollback(lake.first + 16)
    lake.advance(3)
    lake.advance(5)
    lake.merge(1)


def mixed_files(lake: LogsLake) -> None:
    """Files that hold several commits, of two chains, among them some that never committed or were rolled back."""
    other = LogsLake(lake.home, "other", seed=lake.seed + 1, group_rows=lake.group_rows)
    other.advance(5)
    many_segments(lake)
    lake.rollback(lake.first + 19)
    other.advance(4)
    lake.advance(6)
    for table in ("log_tails", "log_chunks", "log_manifests", "block_meta", "log_tails_merged", "log_chunks_merged"):
        lake.optimize(f"gold_{table}")
    lake.optimize("bronze_evm_logs")
    lake.optimize("ledger")
    lake.advance(3)


def forked_below(lake: LogsLake) -> None:
    """Bronze went back and on, on another fork; gold.logs and the merges have not followed yet."""
    for blocks in (8, 6, 5):
        lake.advance(blocks)
    lake.merge(2)
    lake.rollback(lake.first + 11, stages=[BRONZE, RAW])
    lake.bronze(9)


def merges_left_behind(lake: LogsLake) -> None:
    """gold.logs went back under a merge and on, before the merges followed."""
    for blocks in (6, 6, 6):
        lake.advance(blocks)
    lake.merge(3)
    lake.rollback(lake.first + 12, stages=[GOLD, BRONZE, RAW])
    lake.advance(4)
    lake.advance(4)


STORIES: dict[str, Callable[[LogsLake], None]] = {
    story.__name__: story for story in (many_segments, rolled_back, mixed_files, forked_below, merges_left_behind)
}
HEADS = {"forked_below": 11}


@pytest.fixture(scope="module", params=STORIES)
def story(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> "Story":
    lake = LogsLake(tmp_path_factory.mktemp(request.param), seed=sorted(STORIES).index(request.param))
    STORIES[request.param](lake)
    head = lake.first + HEADS[request.param] if request.param in HEADS else lake.head(GOLD)
    return Story(lake, head)


@dataclass
class Story:
    """A lake with what happened to it, and where it should stand."""

    lake: LogsLake
    head: int

    def filters(self, rng: random.Random, count: int) -> Iterator["Question"]:
        return (self._question(rng) for _ in range(count))

    def _question(self, rng: random.Random) -> "Question":
        logs = [log for block in self.lake.blocks for log in block.logs]
        example = rng.choice(logs)
        addresses = _some(rng, example.address, lambda: rng.choice(logs).address, b"address-none".ljust(20))
        topics = tuple(self._topics(rng, logs, example, position) for position in range(rng.choice((0, 0, 1, 2, 3, 4))))
        low, high = self.lake.first - 2, self.head + 5
        first, last = sorted((rng.randint(low, high), rng.randint(low, high)))
        wanted = rng.choice(
            [
                LogFilter(addresses, topics, low, high),
                LogFilter(addresses, topics, low, high),
                LogFilter(addresses, topics, first, last),
                LogFilter(addresses, topics, example.block_number, example.block_number + rng.randrange(3)),
                LogFilter(addresses, topics, None, None),
                LogFilter(addresses, topics, first, None),
                LogFilter(addresses, topics, last + 1, first),
                LogFilter(addresses, topics, block_hash=rng.choice([example.block_hash, b"?" * 32])),
            ]
        )
        limit = rng.choice([None, None, 0, 1, 2, 5, 20])
        after = rng.choice([None, None, example.place, (rng.randint(low, high), rng.randrange(-1, 20))])
        return Question(wanted, limit, rng.random() < 0.4, after)

    def _topics(self, rng: random.Random, logs: Sequence[Log], example: Log, position: int) -> tuple[bytes, ...]:
        known = example.topics[position] if position < len(example.topics) else self.lake.values.topic(position)
        return _some(rng, known, lambda: self.lake.values.topic(position), b"topic-none".ljust(32))


def _some(rng: random.Random, known: bytes, another: Callable[[], bytes], unknown: bytes) -> tuple[bytes, ...]:
    """Values of a clause: none, one, or several, that mostly occur."""
    several = [known, unknown, *(another() for _ in range(rng.randrange(1, 9)))]
    return rng.choice([(), (), (known,), (known,), (another(),), (unknown,), tuple(rng.sample(several, len(several)))])


@dataclass(frozen=True)
class Question:
    """What is asked of the index."""

    wanted: LogFilter
    limit: int | None = None
    descending: bool = False
    after: tuple[int, int] | None = None

    def ask(self, index: LogIndex, **more: Any) -> Answer:
        return index.query(self.wanted, max_results=self.limit, descending=self.descending, after=self.after, **more)

    def expected(self, lake: LogsLake, head: int) -> tuple[list[Log], bool]:
        """The logs that should come, and whether there are more."""
        found = lake.expected(self.wanted, head)[:: -1 if self.descending else 1]
        if self.after is not None:
            after = self.after
            found = [log for log in found if (log.place < after if self.descending else log.place > after)]
        limit = len(found) if self.limit is None else self.limit
        return found[:limit], len(found) > limit


# Ways to find the same


def force_late_use(monkeypatch: pytest.MonkeyPatch, use: str) -> None:
    """Further clauses are used in one way only, where it is possible."""

    def late_use(self: Planner, candidates: int, window: Window, share: float, chunks: int, by_block: Any = None) -> str:
        return CHECK if use == BLOCK_FILTER and by_block is None else use

    monkeypatch.setattr(Planner, "late_use", late_use)
    monkeypatch.setattr("chainlake.logs.executor.WORTH_A_BLOCK_FILTER", 0)


def force_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limited queries look at the smallest part first."""
    monkeypatch.setattr(planner, "CHEAP_MS", -1)
    monkeypatch.setattr(Planner, "first_width", lambda self, plan, limit: plan.window.size if limit is None else 3)


def force_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs are picked out of row groups as if many of each were wanted."""
    monkeypatch.setattr(rows, "SOME_ROWS", 0)
    monkeypatch.setattr(packed, "MANY_ROWS", 0)


@dataclass(frozen=True)
class Way:
    """Settings and patches under which all answers must be the same."""

    settings: Settings
    patch: Callable[[pytest.MonkeyPatch], None] = field(default=lambda monkeypatch: None)
    filters: int = 50


WAYS = {
    "usual": Way(Settings()),
    "index": Way(Settings(**ASKED)),
    "index without caches": Way(Settings(**ASKED, threads=1, **NO_CACHE), filters=25),
    "scan in runs": Way(Settings(log_bytes=0), filters=40),
    "broad ones past the cache": Way(Settings(**ASKED, broad_groups=1), filters=40),
    "scan past the cache": Way(Settings(broad_groups=0), filters=40),
    "late check": Way(Settings(**ASKED), lambda monkeypatch: force_late_use(monkeypatch, CHECK)),
    "late check in runs": Way(Settings(**ASKED, log_bytes=0), lambda monkeypatch: force_late_use(monkeypatch, CHECK), 40),
    "block filter": Way(Settings(**ASKED), lambda monkeypatch: force_late_use(monkeypatch, BLOCK_FILTER)),
    "some rows a group": Way(Settings(**ASKED), lambda monkeypatch: monkeypatch.setattr(rows, "SOME_ROWS", 0), 40),
    "many rows a group": Way(Settings(**ASKED), force_arrays, 40),
    "few candidates": Way(Settings(group_rows=1), filters=40),
    "windows": Way(Settings(**ASKED), force_windows),
    "short lists only": Way(Settings(**ASKED, max_or_terms=2, too_broad="scan")),
}


def compare(story: Story, index: LogIndex, question: Question) -> Answer | None:
    """Ask, and compare with the naive scan."""
    known = {block.hash: block.number for block in story.lake.blocks if block.number <= story.head}
    if question.wanted.block_hash is not None and question.wanted.block_hash not in known:
        with pytest.raises(BlockNotFound):
            question.ask(index)
        return None
    answer = question.ask(index)
    expected, more = question.expected(story.lake, story.head)
    assert [_row(log) for log in expected] == _rows(answer.logs), question
    assert answer.more == more and answer.logs.schema.equals(SCHEMA), question
    assert answer.head.number == story.head and answer.head.hash == story.lake.blocks[story.head - story.lake.first - 1].hash
    return answer


def _row(log: Log) -> tuple[Any, ...]:
    topics = [*log.topics, None, None, None, None][:4]
    return (log.log_id, *log.place, log.block_hash, log.address, *topics, len(log.topics), b"%d" % log.log_id)


def _rows(logs: pa.Table) -> list[tuple[Any, ...]]:
    names = [
        "log_id",
        "block_number",
        "log_index",
        "block_hash",
        "address",
        *(f"topic{i}" for i in range(4)),
        "topic_count",
        "data",
    ]
    return list(zip(*(logs[name].to_pylist() for name in names), strict=True))


@pytest.mark.parametrize("way", WAYS)
def test_every_way_gives_what_a_naive_scan_gives(story: Story, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    WAYS[way].patch(monkeypatch)
    index = LogIndex(story.lake.home, "main", settings=WAYS[way].settings)
    rng = random.Random(f"{way} {story.lake.seed}")
    answers = [compare(story, index, question) for question in story.filters(rng, WAYS[way].filters)]
    plans = [answer.explain for answer in answers if answer]
    assert any(plan.results for plan in plans) and any(plan.more for plan in plans)
    assert way == "windows" or max(plan.windows for plan in plans) == 1
    assert any(plan.plan == "index" for plan in plans) == (WAYS[way].settings.group_rows == 1)


def test_answers_name_the_blocks_that_they_are_for(story: Story) -> None:
    index, first = LogIndex(story.lake.home, "main"), story.lake.first + 1
    answer = index.query(LogFilter(from_block=0, to_block=10**12))
    assert answer.from_block and answer.to_block and answer.head == answer.to_block
    assert (answer.from_block.number, answer.to_block.number) == (first, story.head)
    assert answer.from_block.parent_hash == story.lake.blocks[0].parent_hash
    for outside in (LogFilter(from_block=story.head + 1, to_block=10**6), LogFilter(from_block=0, to_block=first - 1)):
        nothing = index.query(outside)
        assert (nothing.logs.num_rows, nothing.from_block, nothing.to_block, nothing.more) == (0, None, None, False)


def test_pages_joined_are_the_whole(story: Story) -> None:
    index = LogIndex(story.lake.home, "main", settings=Settings(**ASKED))
    for wanted in (LogFilter(from_block=0, to_block=10**6), LogFilter((b"address-%012d" % 0,), from_block=0, to_block=10**6)):
        for descending in (False, True):
            whole = _rows(index.query(wanted, descending=descending).logs)
            paged: list[tuple[Any, ...]] = []
            more = True
            while more:
                after = (paged[-1][1], paged[-1][2]) if paged else None
                page = index.query(wanted, max_results=7, descending=descending, after=after)
                paged += _rows(page.logs)
                more = page.more
            assert paged == whole and len(whole) > 7


# Plans


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> LogsLake:
    lake = LogsLake(tmp_path_factory.mktemp("plain"), seed=11)
    lake.advance(20)
    lake.advance(10)
    return lake


def planned(lake: LogsLake, **settings: Any) -> LogIndex:
    return LogIndex(lake.home, "main", settings=Settings(**ASKED, **settings))


ALL = {"from_block": 0, "to_block": 10**6}
HOT, RARE = b"address-%012d" % 1, b"topic1-%025d" % 40
SIGNATURE = b"topic0-%025d" % 0


def test_the_rarest_clause_comes_first_and_estimates_are_close(plain: LogsLake) -> None:
    explain = planned(plain).query(LogFilter((HOT,), ((SIGNATURE,), (RARE,)), **ALL)).explain
    ordered = sorted(explain.clauses, key=lambda clause: clause.order or 0)
    assert [clause.order for clause in ordered] == [1, 2, 3] and ordered[0].field == "topic1"
    assert [clause.estimate for clause in ordered] == sorted(clause.estimate or 0 for clause in ordered)
    rare_address = b"address-%012d" % 40
    turned = planned(plain).query(LogFilter((rare_address,), ((), (b"topic1-%025d" % 0,)), **ALL)).explain
    orders = {clause.field: clause.order for clause in turned.clauses}
    assert orders == {"address": 1, "topic1": 2}, "the counts decide, not the kind of clause"
    for clause, wanted in (("address", LogFilter((HOT,), **ALL)), ("topic0", LogFilter((), ((SIGNATURE,),), **ALL))):
        (report,) = (one for one in explain.clauses if one.field == clause)
        assert report.estimate == len(plain.expected(wanted, 10**6))


@pytest.mark.parametrize("use", [INDEX, CHECK, BLOCK_FILTER])
def test_further_clauses_can_be_used_in_each_way(plain: LogsLake, use: str, monkeypatch: pytest.MonkeyPatch) -> None:
    force_late_use(monkeypatch, use)
    wanted = LogFilter((), ((SIGNATURE,), (b"topic1-%025d" % 0,)), **ALL)
    answer = planned(plain).query(wanted)
    _, late = sorted(answer.explain.clauses, key=lambda clause: clause.order or 0)
    assert (late.field, late.used, late.actual is None) == ("topic0", use, use != INDEX)
    assert answer.logs.num_rows == len(plain.expected(wanted, 10**6)) > 0
    assert (answer.explain.candidates == answer.logs.num_rows) == (use == INDEX)


def test_the_index_is_asked_no_further_once_few_candidates_are_left(plain: LogsLake) -> None:
    wanted = LogFilter((HOT,), ((SIGNATURE,), (RARE,)), **ALL)
    few = len(plain.expected(LogFilter((), ((), (RARE,)), **ALL), 10**6))
    index = LogIndex(plain.home, "main", settings=Settings(group_rows=1, few_candidates=few))
    answer = index.query(wanted)
    used = {clause.field: (clause.estimate, clause.used) for clause in answer.explain.clauses}
    assert used == {"address": (None, CHECK), "topic0": (None, CHECK), "topic1": (few, INDEX)}
    assert answer.explain.candidates == few and answer.logs.num_rows == len(plain.expected(wanted, 10**6))


def test_a_value_that_does_not_occur_ends_the_query_at_once(plain: LogsLake) -> None:
    explain = planned(plain).query(LogFilter((b"?" * 20,), ((SIGNATURE,),), **ALL)).explain
    assert (explain.plan, explain.candidates, explain.results) == ("empty", 0, 0)
    assert explain.chunks_read == 0 and "logs" not in explain.reads.misses
    assert [clause.estimate for clause in explain.clauses] == [0, None]


def test_only_chunks_near_the_range_and_the_candidates_are_read(plain: LogsLake) -> None:
    wide = planned(plain).query(LogFilter((HOT,), from_block=plain.first, to_block=plain.first + 20)).explain
    narrow = planned(plain).query(LogFilter((HOT,), from_block=plain.first + 8, to_block=plain.first + 9)).explain
    assert wide.segments == narrow.segments == 1
    assert 0 < narrow.chunks_read <= narrow.results // 5 + 2 < wide.chunks_read, "chunks of five entries, and one at either end"
    rare = planned(plain).query(LogFilter((HOT,), ((), (RARE,)), from_block=plain.first, to_block=plain.first + 20)).explain
    assert rare.chunks_read < wide.chunks_read


def test_explain_counts_what_was_read_and_what_came_from_caches(plain: LogsLake) -> None:
    index = planned(plain)
    wanted = LogFilter((HOT,), ((SIGNATURE,),), **ALL)
    cold, warm = (index.query(wanted).explain for _ in range(2))
    assert cold.chunks_read > 0 and cold.reads.row_groups > 0 and cold.reads.bytes > 0
    assert (warm.chunks_read, warm.reads.row_groups, warm.reads.bytes, sum(warm.reads.misses.values())) == (0, 0, 0, 0)
    assert warm.reads.hits["chunks"] == cold.chunks_read and warm.reads.hits["logs"] == cold.reads.misses["logs"]
    assert warm.results == warm.candidates == len(plain.expected(wanted, 10**6)), "both clauses went through the index"
    told = warm.to_dict()
    assert told["cache"]["chunks"] == {"hits": cold.chunks_read, "misses": 0} and set(told["steps"]) >= {
        "range",
        "index",
        "fetch",
    }
    assert [clause["used"] for clause in told["clauses"]] == [INDEX, INDEX] and told["segments"] == 2
    text = str(warm)
    assert "index: blocks 6 to 35" in text and "address in 1 values: about" in text and "from caches" in text and " ms: " in text


def test_what_a_value_was_found_in_is_kept_until_the_index_changes(tmp_path: Path) -> None:
    lake = LogsLake(tmp_path, seed=4)
    lake.advance(10)
    index = planned(lake, follow_seconds=0)
    wanted = LogFilter((HOT,), **ALL)

    def asked() -> tuple[int, int]:
        answer = index.query(wanted)
        assert answer.logs.num_rows == len(lake.expected(wanted, 10**6)) > 0
        reads = answer.explain.reads
        return reads.hits["postings"], reads.misses["postings"]

    assert (asked(), asked()) == ((0, 1), (1, 0))
    lake.advance(10)
    assert (asked(), asked()) == ((0, 1), (1, 0)), "a segment more"
    half = LogFilter((HOT,), from_block=lake.first + 1, to_block=lake.first + 9)
    assert index.query(half).explain.segments == 1 and index.query(half).logs.num_rows == len(lake.expected(half, 10**6))
    lake.rollback(lake.first + 10)
    assert (asked(), asked()) == ((0, 1), (1, 0)), "and one less"


@pytest.mark.parametrize("threads", [1, 2])
def test_a_broad_query_keeps_what_it_reads_for_the_second_time(plain: LogsLake, threads: int) -> None:
    index = planned(plain, broad_groups=2, threads=threads)
    wanted = LogFilter((HOT,), **ALL)
    first, second, third = (index.query(wanted) for _ in range(3))
    assert first.explain.reads.row_groups > 2 and first.explain.reads.misses.get("logs", 0) == 0, "read, and not kept"
    assert second.explain.reads.misses["logs"] > 2, "asked for again, and kept"
    assert third.explain.reads.row_groups == 0 and third.explain.reads.hits["logs"] == second.explain.reads.misses["logs"]
    assert first.logs.equals(second.logs) and second.logs.equals(third.logs)


def test_a_broad_query_takes_from_the_cache_what_others_left_there(plain: LogsLake) -> None:
    index = planned(plain, broad_groups=2)
    index.query(LogFilter((HOT,), from_block=plain.first + 8, to_block=plain.first + 9))
    kept = index.caches()["logs"].entries
    answer = index.query(LogFilter((HOT,), **ALL))
    assert 0 < answer.explain.reads.hits["logs"] <= kept == index.caches()["logs"].entries
    assert answer.logs.num_rows == len(plain.expected(LogFilter((HOT,), **ALL), 10**6))


def test_a_limited_query_stops_early(plain: LogsLake) -> None:
    whole = planned(plain, threads=1).query(LogFilter(**ALL)).explain
    index = planned(plain, threads=1)
    some = index.query(LogFilter(**ALL), max_results=5)
    assert some.more and some.logs.num_rows == 5 and some.explain.reads.row_groups < whole.reads.row_groups / 3


def test_a_query_that_takes_too_long_ends(plain: LogsLake) -> None:
    one = LogFilter((next(iter(plain.visible(10**6))).address,), **ALL)
    for wanted in (LogFilter(**ALL), one):
        with pytest.raises(QueryTimedOut, match="takes too long: ask for fewer blocks"):
            planned(plain, query_seconds=0.0).query(wanted)
    assert planned(plain, query_seconds=60.0).query(one).logs.num_rows > 0


def test_lists_that_are_too_long_are_refused_or_looked_through(plain: LogsLake) -> None:
    long = tuple(b"address-%012d" % number for number in range(129))
    with pytest.raises(QueryTooBroad, match="query too broad: address lists 129 values, at most 128 are allowed"):
        planned(plain).query(LogFilter(long, **ALL))
    assert planned(plain).query(LogFilter(long[:128], **ALL)).logs.num_rows > 0
    answer = planned(plain, too_broad="scan").query(LogFilter(long, **ALL))
    assert answer.explain.plan == "scan" and answer.logs.num_rows == len(plain.visible(10**6))


def test_filters_that_no_log_can_match_are_refused(plain: LogsLake) -> None:
    for wrong in (LogFilter(topics=((),) * 5), LogFilter((b"short",)), LogFilter(topics=((b"short",),))):
        with pytest.raises(BadInput, match="a filter"):
            planned(plain).query(wrong)


def test_costs_decide_how_a_further_clause_is_used() -> None:
    costs = Planner(None, Settings())  # type: ignore[arg-type]
    window = Window(0, 2_000_000)
    assert costs.late_use(10, window, share=0.4, chunks=1) == INDEX, "a chunk costs less than the row groups that it saves"
    assert costs.late_use(10, window, share=0.9, chunks=400) == CHECK, "so many chunks do not"
    assert costs.late_use(100, window, 0.9, 400, by_block=(0.05, 3)) == BLOCK_FILTER, "few blocks have it"
    assert costs.late_use(100, window, 0.9, 400, by_block=(1.0, 3)) == CHECK, "all blocks have it"
    assert costs.late_use(100_000, window, 0.1, 100) == INDEX, "comparing many candidates costs too"


@given(st.integers(0, 50), st.integers(0, 200), st.integers(1, 60), st.booleans())
def test_windows_cover_everything_once_in_order(low: int, size: int, width: int, descending: bool) -> None:
    parts = windows(Window(low, low + size), width, descending)
    ids = [i for part in parts for i in (range(part.low, part.high)[::-1] if descending else range(part.low, part.high))]
    assert ids == list(range(low, low + size))[:: -1 if descending else 1]
    assert [part.size for part in parts][:-1] == [width * 2**step for step in range(len(parts) - 1)]


@given(st.lists(st.binary(min_size=20, max_size=20)), st.lists(st.binary(min_size=20, max_size=20), min_size=1))
def test_comparing_words_is_comparing_bytes(rows: list[bytes], values: list[bytes]) -> None:
    distinct = list(dict.fromkeys(values))
    mixed = [*rows, *values]
    found = _any_of(words_of("address", mixed), words_of("address", distinct))
    assert found.tolist() == [row in values for row in mixed]


def test_values_that_the_fast_comparison_cannot_tell_apart_are_told_apart() -> None:
    factors = [0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F]
    one, two = factors[1], factors[0]
    same = [np.array(words, "<u8").tobytes() for words in ([one, 0, 0, 0], [0, two, 0, 0])]
    others = [np.array(words, "<u8").tobytes() for words in ([one, 1, 0, 0], [0, 0, 0, 0])]
    found = _any_of(words_of("topic0", [*same, *others]), words_of("topic0", same))
    assert found.tolist() == [True, True, False, False]


def test_rows_as_python_values_are_those_of_the_columns() -> None:
    second = datetime(2026, 1, 1, tzinfo=timezone.utc)
    times = pa.chunked_array([[second, None], [second]], pa.timestamp("us", "UTC"))
    logs = pa.table({"log_id": [7, 8, 9], "block_timestamp": times, "topic0": pa.array([b"a", None, b""], pa.binary())})
    assert python_rows(logs) == [(7, second, b"a"), (8, None, None), (9, second, b"")]
    assert python_rows(logs.slice(0, 0)) == []


def test_wildcards_still_ask_for_as_many_topics(plain: LogsLake) -> None:
    for count in range(5):
        matcher = Matcher(LogFilter(topics=((),) * count))
        assert matcher.columns == (("topic_count",) if count else ())
        answer = planned(plain).query(LogFilter(topics=((),) * count, **ALL))
        assert answer.logs.num_rows == sum(len(log.topics) >= count for log in plain.visible(10**6))


# Damage


def rewrite(lake: LogsLake, table: str, change: Callable[[pa.Table], pa.Table]) -> None:
    """Change the files of a table behind Delta's back."""
    for path in (lake.home / "warehouse" / "store" / table).glob("*.parquet"):
        pq.write_table(change(pq.read_table(path)), path, row_group_size=lake.group_rows)


@pytest.fixture
def damaged(tmp_path: Path) -> LogsLake:
    lake = LogsLake(tmp_path, seed=11)
    lake.advance(20)
    return lake


def flip(rows: pa.Table) -> pa.Table:
    """One bit of each chunk."""
    chunks = [chunk[:-1] + bytes([chunk[-1] ^ 1]) for chunk in rows["chunk"].to_pylist()]
    return rows.set_column(rows.schema.get_field_index("chunk"), "chunk", pa.array(chunks, pa.binary()))


def test_a_damaged_chunk_is_named_and_no_answer_is_given(damaged: LogsLake) -> None:
    rewrite(damaged, "gold_log_chunks", flip)
    commit = damaged.commits[-1].commit_id
    with pytest.raises(
        CorruptChunk, match=rf"chunk \d+ of stream 0x1\w+ in gold.log_chunks, commit {commit}, is damaged: checksum"
    ):
        planned(damaged).query(LogFilter((HOT,), **ALL))
    rare = planned(damaged).query(LogFilter((), ((), (RARE,)), **ALL))
    assert rare.logs.num_rows == len(damaged.expected(LogFilter((), ((), (RARE,)), **ALL), 10**6)), "needs no chunk"


def test_a_chunk_that_is_missing_or_another_is_noticed(damaged: LogsLake) -> None:
    def other_counts(rows: pa.Table) -> pa.Table:
        refs = [[{**ref, "count": ref["count"] + 1} for ref in each] for each in rows["refs"].to_pylist()]
        return rows.set_column(rows.schema.get_field_index("refs"), "refs", pa.array(refs, rows.schema.field("refs").type))

    rewrite(damaged, "gold_log_manifests", other_counts)
    with pytest.raises(CorruptChunk, match="is not the one that its manifest lists"):
        planned(damaged).query(LogFilter((HOT,), **ALL))
    rewrite(damaged, "gold_log_chunks", lambda rows: rows.slice(0, 0))
    with pytest.raises(CorruptChunk, match="is listed by its manifest and missing"):
        planned(damaged).query(LogFilter((HOT,), **ALL))


def test_logs_and_blocks_that_are_missing_are_noticed(damaged: LogsLake) -> None:
    rewrite(damaged, "bronze_evm_logs", lambda rows: rows.slice(0, rows.num_rows - 1))
    for index in (planned(damaged), planned(damaged, log_bytes=0), LogIndex(damaged.home, "main")):
        with pytest.raises(BrokenPromise, match=r"should have \d+ logs .* in bronze.evm_logs and has \d+"):
            index.query(LogFilter((), ((), ()), **ALL))
    rewrite(damaged, "gold_block_meta", lambda rows: rows.slice(0, rows.num_rows - 1))
    with pytest.raises(BrokenPromise, match=r"block 25 of main is not above the head 25 and not in gold.block_meta"):
        planned(damaged).snapshot()


@pytest.mark.parametrize("how", [cut, scribble, flipped])
@pytest.mark.parametrize(
    "table", ["gold_log_tails", "gold_log_manifests", "gold_log_chunks", "bronze_evm_logs", "gold_block_meta"]
)
def test_a_file_that_cannot_be_read_is_named(damaged: LogsLake, table: str, how: Callable[[bytes], bytes]) -> None:
    for path in (damaged.home / "warehouse" / "store" / table).glob("*.parquet"):
        path.write_bytes(how(path.read_bytes()))
    every = tuple({log.address for log in damaged.visible(10**6)})
    for index in (planned(damaged), planned(damaged, log_bytes=0)):
        with pytest.raises(BrokenPromise, match=rf"^{table}/\S+\.parquet is damaged \(.+\): run lake verify, then lake restore"):
            index.query(LogFilter(every, **ALL))


def test_a_log_that_is_there_in_place_of_another_is_noticed(damaged: LogsLake) -> None:
    logs = damaged.visible(10**6)
    places = [*range(len(logs))]
    places[-2] = places[-3]
    rewrite(damaged, "bronze_evm_logs", lambda rows: rows.take(pa.array(places)))
    for index in (planned(damaged), planned(damaged, log_bytes=0)):
        with pytest.raises(BrokenPromise, match=r"should have \d+ logs .* in bronze.evm_logs and has \d+"):
            index.query(LogFilter((logs[-2].address,), **ALL))


def test_logs_that_are_there_twice_are_noticed_past_the_cache(damaged: LogsLake) -> None:
    rewrite(damaged, "bronze_evm_logs", lambda rows: pa.concat_tables([rows, rows.slice(rows.num_rows - 1)]))
    last = damaged.visible(10**6)[-1]
    for wanted in (LogFilter((last.address,), **ALL), LogFilter(**ALL)):
        with pytest.raises(BrokenPromise, match=r"should have \d+ logs .* in bronze.evm_logs and has \d+"):
            planned(damaged, log_bytes=0).query(wanted)


def test_two_values_of_one_stream_are_told_apart(plain: LogsLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values may share the number of a stream: then the index gives both, and the exact check keeps the right one."""
    other = LogFilter((b"address-%012d" % 2,), **ALL)
    streams = planner.streams_of
    monkeypatch.setattr(planner, "streams_of", lambda kind, values: streams(kind, [HOT, *values]))
    answer = planned(plain).query(other)
    assert answer.logs.num_rows == len(plain.expected(other, 10**6)) < answer.explain.candidates
    one, two = plain.blocks[3:5]
    monkeypatch.setattr("chainlake.logs.blocks.streams_of", lambda kind, values: streams(kind, [one.hash, *values]))
    found = [planned(plain).block_by_hash(name) for name in (two.hash, one.hash, b"?" * 32)]
    assert [block and block.number for block in found] == [two.number, one.number, None]


def test_merged_segments_are_read_instead_of_those_that_they_replace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = LogsLake(tmp_path, seed=3)
    for blocks in (5, 5, 5):
        lake.advance(blocks)
    lake.merge(3)
    asked: set[str] = set()
    original = IndexReader._groups

    def groups(self: IndexReader, index: Any, *more: Any) -> Any:
        asked.update(source.path for source in index.files.sources)
        return original(self, index, *more)

    monkeypatch.setattr(IndexReader, "_groups", groups)
    wanted = LogFilter((HOT,), **ALL)
    answer = planned(lake).query(wanted)
    assert answer.explain.segments == 1 and answer.logs.num_rows == len(lake.expected(wanted, 10**6))
    assert {Path(path).parent.name for path in asked} == {"gold_log_tails_merged", "gold_log_manifests_merged"}
    assert lake.commits[-1].stage == MERGES
