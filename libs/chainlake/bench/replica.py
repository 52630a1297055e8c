"""A follower of 33 shards beside followers that apply one entry per transaction: throughput with and without waiting, draining,
and what a delivery costs while much waits."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from chainlake.bench.replica_floor import copy_seconds
from chainlake.bench.replica_peers import Write, postgres_rate, sqlite_rate
from chainlake.bench.report import Result
from chainlake.bench.scratch import scratch, stage_seconds
from chainlake.cli.show import emit
from chainlake.errors import Unavailable
from chainlake.lake import Lake
from chainlake.rehearsal import open_part
from chainlake.replica.groups import META, SHARED, USER_GROUPS, group_of

ENTRIES, QUICK_ENTRIES = 1_000_000, 50_000
PEER_ENTRIES = 10_000
PER_DELIVERY = 5_000
WARM_ENTRIES = 100_000
"""What comes before all that is measured: a follower runs for days, and a JVM that has just started compiles for a minute."""
USERS_PER_SHARD, TABLES = 4, 20
STAGES = ("bronze.replica", "silver.replica")
WRITTEN = ("bronze.commands", "silver.data_rows", "silver.pending_commands", "silver.command_results")
"""Tables that get rows by the million."""

Json = dict[str, Any]


def run(home: str, quick: bool, size: int | None = None) -> Iterator[Result]:
    """All measurements, in a lake of its own that is removed afterwards."""
    entries = size or (QUICK_ENTRIES if quick else ENTRIES)
    with scratch(home) as (prefix, directory):
        lake = open_part(["raw.replica", *STAGES], home, schema_prefix=prefix)
        bench = Bench(lake, directory)
        bench.follow("warm", min(entries, WARM_ENTRIES), 0.5)
        best = bench.peers(min(entries, PEER_ENTRIES))
        yield from bench.throughput(entries, best)
        yield from bench.while_much_waits(entries)


class Bench:
    """One lake, a chain for each measurement."""

    def __init__(self, lake: Lake, directory: Path) -> None:
        self.lake = lake
        self.directory = directory
        self.opening = list(opening())

    def peers(self, count: int) -> tuple[str, float]:
        """The better of the two, with its entries a second."""
        writes = [
            Write(group, index, command["table_id"], command.get("user_id", ""), row["id"], json.dumps(row))
            for group, index, command in inserts(count)
            for row in command["rows"]
        ]
        rates = {"SQLite WAL, full sync": sqlite_rate(self.directory, writes)}
        try:
            rates["PostgreSQL, pipelined"] = postgres_rate(writes)
        except Unavailable as error:
            emit(f"PostgreSQL is left out: {error}")
        for name, rate in rates.items():
            emit(f"{name}: {rate:,.0f} entries/s, a transaction each")
        return max(rates.items(), key=lambda item: item[1])

    def throughput(self, count: int, best: tuple[str, float]) -> Iterator[Result]:
        """A whole log through bronze and silver, some of it waiting until the last delivery; beside it what it takes to
        copy the rows that this made."""
        for share in (0.0, 0.1, 0.9):
            chain = f"share-{share:.0%}".replace("%", "")
            seconds, drain = self.follow(chain, count, share)
            name = f"follower, {count:,} entries over 33 shards, {share:.0%} buffered"
            yield Result(name, count / seconds, "entries/s", *best, higher_is_better=True)
            copied = copy_seconds(self.lake, chain, WRITTEN, self.directory / chain)
            yield Result(f"{name}, in all", seconds, "s", "the same rows copied by plain Spark", copied)
            if share == 0.9:
                yield Result("drain of the buffered entries", share * count / drain, "entries/s", *best, higher_is_better=True)

    def follow(self, chain: str, count: int, share: float) -> tuple[float, float]:
        """Seconds of bronze and silver together, and of those the seconds of the last delivery, which drains."""
        last = self.ingest(chain, deliveries(self.opening, count, share))
        seconds = stage_seconds(self.lake, "bronze.replica", chain) + stage_seconds(self.lake, "silver.replica", chain, last - 1)
        drain = stage_seconds(self.lake, "silver.replica", chain)
        return seconds + drain, drain

    def while_much_waits(self, most: int) -> Iterator[Result]:
        """One delivery that drains a thousand entries, while few or many others wait on."""
        waits = [most // 100, most // 10, most]
        seconds = []
        for count in waits:
            chain = f"waits-{count}"
            last = self.ingest(chain, growing(self.opening, count))
            stage_seconds(self.lake, "bronze.replica", chain)
            stage_seconds(self.lake, "silver.replica", chain, last - 1)
            seconds.append(stage_seconds(self.lake, "silver.replica", chain))
        for count, taken in zip(waits, seconds, strict=True):
            told = f"the same with {waits[0]:,}"
            yield Result(f"delivery that drains 1,000 entries while {count:,} wait", taken, "s", told, seconds[0])

    def ingest(self, chain: str, lines: Iterable[Json]) -> int:
        """Deliveries into raw; how many there are."""
        path = self.directory / f"{chain}.jsonl"
        count = 0
        with open(path, "w", encoding="utf-8") as file:
            for count, line in enumerate(lines, 1):
                file.write(json.dumps({"delivery": count, **line}, separators=(",", ":")) + "\n")
        self.lake.ingest(chain, "raft", str(path))
        return count


def users() -> list[str]:
    """As many users for each shard."""
    found: dict[str, list[str]] = {group: [] for group in USER_GROUPS}
    number = 0
    while any(len(names) < USERS_PER_SHARD for names in found.values()):
        names = found[group_of(f"user_{number}")]
        if len(names) < USERS_PER_SHARD:
            names.append(f"user_{number}")
        number += 1
    return [names[place] for place in range(USERS_PER_SHARD) for names in found.values()]


def opening() -> Iterator[Json]:
    """Meta that the inserts need."""
    commands: list[Json] = [{"type": "CreateNamespace", "namespace_id": "app"}]
    commands += [
        {"type": "CreateTable", "table_id": f"app.t{number}", "columns": ["id", "name", "amount"], "primary_key": "id"}
        for number in range(TABLES)
    ]
    commands += [{"type": "CreateUser", "user_id": name, "role": "user"} for name in users()]
    for index, command in enumerate(commands, 1):
        yield entry(META, index, command)


def entry(group: str, index: int, command: Json) -> Json:
    return {"group": group, "log_index": index, "log_term": 1, "command": command}


def inserts(count: int) -> Iterator[tuple[str, int, Json]]:
    """Group, index and command of inserts that go round the 33 shards."""
    names: list[str | None] = [*users(), None, None, None, None]
    ends: dict[str, int] = {}
    for number in range(count):
        name = names[number % len(names)]
        group = SHARED if name is None else group_of(name)
        ends[group] = ends.get(group, 0) + 1
        row = {"id": f"k{number}", "name": f"name {number % 97}", "amount": number % 1000}
        command: Json = {"type": "Insert", "table_id": f"app.t{number % TABLES}", "rows": [row]}
        yield group, ends[group], command if name is None else {**command, "user_id": name}


def deliveries(setup: list[Json], count: int, share: float) -> Iterator[Json]:
    """The opening; inserts, of which the last `share` need a Meta entry that comes at the end; that entry."""
    yield {"entries": setup}
    waits_from, batch = round(count * (1 - share)), []
    for number, (group, index, command) in enumerate(inserts(count)):
        needs = len(setup) + (number >= waits_from)
        batch.append(entry(group, index, {**command, "required_meta_index": needs}))
        if len(batch) == PER_DELIVERY:
            yield {"entries": batch}
            batch = []
    yield {"entries": batch}
    yield {"entries": [entry(META, len(setup) + 1, {"type": "Blank"})]}


def growing(setup: list[Json], count: int) -> Iterator[Json]:
    """The opening; a thousand inserts that need the next Meta entry, and `count` that need the one after; the next one."""
    yield {"entries": setup}
    batch = []
    for number, (group, index, command) in enumerate(inserts(count + 1_000)):
        batch.append(entry(group, index, {**command, "required_meta_index": len(setup) + 1 + (number >= 1_000)}))
        if len(batch) == PER_DELIVERY:
            yield {"entries": batch}
            batch = []
    yield {"entries": batch}
    yield {"entries": [entry(META, len(setup) + 1, {"type": "Blank"})]}
