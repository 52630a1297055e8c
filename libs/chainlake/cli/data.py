"""Commands that bring data in and read it: demo, ingest, sql, audit, status, tables."""

import argparse
import os
import sys
from collections.abc import Iterable
from datetime import datetime, timezone
from difflib import get_close_matches
from pathlib import Path
from shutil import get_terminal_size
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from chainlake.cli.show import emit, emit_json, seconds, table
from chainlake.errors import BadInput, CheckFailed, some_of

if TYPE_CHECKING:
    from chainlake.lake.ddl import Table
    from chainlake.lake.records import Records

Commands = Any
RUN_NUMBERS = ("blocks", "rows", "commits", "rollbacks")
STAGE_HELP = "a stage, such as raw.logs"
CHAIN_HELP = "a chain of the lake, such as demo-evm"
SIZE_HELP = "tiny, small, medium or large (default: as they are, else small); chains can grow, not shrink"


def add_commands(commands: Commands, common: argparse.ArgumentParser) -> None:
    demo = commands.add_parser(
        "demo",
        parents=[common],
        help="write demo chains as raw files, or serve demo streams",
        epilog="examples:\n  lake demo logs --size small\n  lake demo river --serve --port 8600",
    )
    demo.add_argument("domain", nargs="?", help="logs, shards, cage, replica or sync (default: all)")
    demo.add_argument("--size", help=SIZE_HELP)
    demo.add_argument("--to", metavar="DIR", help="where to write them (default: HOME/demo)")
    demo.add_argument("--json", action="store_true", help="one array of {chain, kind, domain, blocks, path, options}")
    demo.add_argument("--serve", action="store_true", help="river: a stream node on this machine that can be made to misbehave")
    demo.add_argument("--port", default="8600", metavar="N", help="with --serve: port to listen on (default 8600)")
    demo.add_argument("--streams", default="20", metavar="N", help="with --serve: how many streams (default 20)")
    demo.set_defaults(run=_demo)

    ingest = commands.add_parser(
        "ingest",
        parents=[common],
        help="follow a chain and take its blocks into raw",
        epilog="examples:\n  lake ingest mainnet --kind evm --from blocks.jsonl.gz --option finalized=true\n"
        "  lake ingest mainnet --kind evm --from http://127.0.0.1:8545 --option from_block=finalized-1000",
    )
    ingest.add_argument("chain", help="a name for the chain, unique in the lake")
    ingest.add_argument("--kind", required=True, help="evm, comet, cardano, raft or river")
    ingest.add_argument(
        "--from",
        dest="source",
        required=True,
        metavar="PATH|URL",
        help="file or directory of its blocks, or a node (evm, comet, river)",
    )
    ingest.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help="an option of the chain; repeatable")
    ingest.add_argument(
        "--genesis-complete",
        dest="option",
        action="append_const",
        const="genesis_complete=true",
        help="cardano: spending an output that is not known is an error (--option genesis_complete=true)",
    )
    ingest.add_argument("--json", action="store_true", help="what was done as one array with a row per stage and chain")
    ingest.set_defaults(run=_ingest)

    sql = commands.add_parser(
        "sql",
        parents=[common],
        help="one read-only query",
        epilog='example: lake sql "SELECT chain, max(height) FROM raw.blocks GROUP BY chain" --height 100',
    )
    sql.add_argument("query", help="SELECT …")
    _add_when(sql, "as of this block")
    sql.add_argument("--json", action="store_true", help="one array of row objects, BINARY as 0x hex")
    sql.set_defaults(run=_sql)

    status = commands.add_parser(
        "status",
        parents=[common],
        help="heads, lags, roots, health and writers, per stage and chain",
        epilog="example: lake status --json",
    )
    status.add_argument("--json", action="store_true", help="the same for scripts (docs/operations.md describes it)")
    status.set_defaults(run=_status)

    audit = commands.add_parser(
        "audit",
        parents=[common],
        help="which commits made this, what was rolled back, by whom and why",
        epilog="example: lake audit raw.logs demo-evm --height 120",
    )
    audit.add_argument("stage", help=STAGE_HELP)
    audit.add_argument("chain", help=CHAIN_HELP)
    _add_when(audit, "only commits that ever said something of this block")
    audit.add_argument("--json", action="store_true", help="one array with a row per commit")
    audit.set_defaults(run=_audit)

    tables = commands.add_parser(
        "tables",
        parents=[common],
        help="what tables there are and what their columns mean",
        epilog="examples:\n  lake tables silver.streams\n  lake tables --markdown",
    )
    tables.add_argument("table", nargs="?", help="only this one, with its columns (default: all, in a line each)")
    form = tables.add_mutually_exclusive_group()
    form.add_argument("--markdown", action="store_true", help="the documentation page")
    form.add_argument("--sql", action="store_true", help="views and functions as a script for a SQL warehouse")
    form.add_argument("--json", action="store_true", help="one array of {table, kind, key, description, columns}")
    tables.set_defaults(run=_tables)


def parse_time(text: str | None) -> datetime | None:
    """An ISO time; without an offset it is UTC."""
    if text is None:
        return None
    try:
        value = datetime.fromisoformat(text.replace("Z", "+00:00"))
        return value.astimezone(timezone.utc) if value.tzinfo else value.replace(tzinfo=timezone.utc)
    except (ValueError, OverflowError):
        raise BadInput(f"{text!r} is not a time: write it like 2026-01-31T12:00:00Z") from None


def parse_height(text: str | None) -> int | None:
    """A block number."""
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise BadInput(f"height {text!r}: a block number of 0 or more is expected")
    return int(text)


def parse_number(text: str, what: str) -> int:
    """A whole number."""
    try:
        return int(text)
    except ValueError:
        raise BadInput(f"{what} {text!r}: a whole number is expected") from None


def parse_options(pairs: list[str], flag: str = "--option") -> dict[str, str]:
    """KEY=VALUE pairs, given with a flag."""
    options = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise BadInput(f"{flag} {pair!r}: write it as key=value")
        options[key] = value
    return options


def known_stage(name: str) -> str:
    """The name of a stage, checked without a lake."""
    from chainlake.lake.stage import Stages
    from chainlake.stages import all_stages

    return Stages(all_stages()).get(name).name


def known_chain(name: str, home: str | None) -> str:
    """The name of a chain that the lake follows, checked without Spark."""
    from chainlake.lake.records import open_records

    records = open_records(home)
    known = records.chains.all() if records else {}
    if name not in known:
        raise BadInput(f"unknown chain {name!r}: there are {some_of(known, 'none yet, see lake ingest')}")
    return name


def existing_records(home: str | None) -> "Records":
    """The records of a lake that has to be there."""
    from chainlake.lake.home import home_path
    from chainlake.lake.records import open_records

    records = open_records(home)
    if records is None:
        raise BadInput(f"there is no lake in {home_path(home)}: give another --home, or make one with lake up or lake ingest")
    return records


def _add_when(parser: argparse.ArgumentParser, height_help: str) -> None:
    parser.add_argument("--height", metavar="N", help=height_help)
    parser.add_argument("--at", metavar="TIME", help="as the lake stood at this time, e.g. 2026-01-31T12:00:00Z")


def _demo(given: argparse.Namespace) -> int:
    from chainlake.demo.write import write_demo
    from chainlake.lake.home import find_home

    if given.domain == "river" and not given.serve:
        raise BadInput("'river' is not a domain: lake demo sync writes recordings, lake demo river --serve serves streams")
    directory = Path(given.to) if given.to else find_home(given.home).demo
    if given.serve:
        return _serve_demo(given, directory)
    chains = write_demo(directory, given.domain, given.size)
    if given.json:
        fields = ("chain", "kind", "domain", "blocks", "path", "options")
        rows = [(c.name, c.kind, c.domain, c.blocks, str(c.path), c.options) for c in chains]
        emit_json([dict(zip(fields, row, strict=True)) for row in rows])
        return 0
    emit(table(["chain", "kind", "blocks", "files"], [(c.name, c.kind, c.blocks, str(c.path)) for c in chains]))
    return 0


def _serve_demo(given: argparse.Namespace, directory: Path) -> int:
    from chainlake.demo.river_server import serve

    if given.domain not in ("river", "sync"):
        raise BadInput("only streams can be served: lake demo river --serve")
    if given.size or given.json:
        raise BadInput(f"{'--size' if given.size else '--json'} does not go with --serve: --streams N says how many streams")
    port, streams = parse_number(given.port, "port"), parse_number(given.streams, "streams")
    if not 0 <= port < 1 << 16 or not 1 <= streams <= 100_000:
        raise BadInput(f"port {port}, streams {streams}: a port up to 65535 and 1 to 100000 streams are expected")
    ids = directory / "river-streams.txt"
    server = serve(streams, "127.0.0.1", port, ids)
    emit(f"{streams} streams at {server.url}, their ids in {ids}")
    emit(f"follow them: lake ingest my-streams --kind river --from {server.url} --option streams={ids}, then lake run sync")
    emit(f"""let them grow: curl -X POST {server.url}/control/grow -d '{{"miniblocks": 3}}' (docs/sync.md has more)""")
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.server_close()
    return 0


def _ingest(given: argparse.Namespace) -> int:
    from chainlake.lake import open_lake
    from chainlake.lake.chains import check_name
    from chainlake.sources.formats import check_files, check_options, format_of, network_of

    if not given.source.strip():
        raise BadInput("--from is empty: give the file or directory of the chain's blocks, or a node")
    options = parse_options(given.option)
    check_name(given.chain)
    check_options(given.kind, options)
    check_files(options)
    network_of(given.kind, format_of(given.kind).expand(given.source), {"retries": "2", **options})
    lake = open_lake(given.home)
    done = lake.ingest(given.chain, given.kind, given.source, options)
    if given.json:
        emit_json(run_rows(done))
    else:
        emit(run_table(done))
        for row in done.itertuples():
            if row.status == "ok" and row.error:
                emit(f"{row.chain}: {row.error}")
    bad = [row.error for row in done.itertuples() if row.status != "ok"]
    if bad:
        raise CheckFailed(f"{given.chain} stopped: {bad[0]}")
    return 0


def run_table(done: Any) -> str:
    """What a run did, one line per chain."""
    rows = [
        (r.stage, r.chain, r.height, r.blocks, r.rows, r.commits, r.rollbacks, seconds(r.seconds), r.status)
        for r in done.itertuples()
    ]
    return table(["stage", "chain", "head", "blocks", "rows", "commits", "rollbacks", "time", "status"], rows)


def run_rows(done: Any) -> list[dict[str, object]]:
    """The same for scripts."""
    named = done.rename(columns={"height": "head"})[["stage", "chain", "head", *RUN_NUMBERS, "seconds", "status", "error"]]
    rows: list[dict[str, object]] = named.astype(object).where(named.notna(), None).to_dict("records")
    return rows


def _sql(given: argparse.Namespace) -> int:
    from chainlake.lake import open_lake
    from chainlake.lake.progress import of_query
    from chainlake.lake.sql import check_readonly, query

    height, at = parse_height(given.height), parse_time(given.at)
    check_readonly(given.query)
    existing_records(given.home)
    lake = open_lake(given.home)
    frame = query(lake, given.query, height, at)
    with of_query(lake.spark):
        rows = frame.collect()
    if given.json:
        emit_json([row.asDict() for row in rows])
    else:
        emit(table(frame.columns, [tuple(row) for row in rows]))
    return 0


def _status(given: argparse.Namespace) -> int:
    from chainlake.cli.status_text import may_colour, status_text
    from chainlake.lake.records import open_records
    from chainlake.lake.status import Status, status

    records = open_records(given.home)
    now = status(records) if records else Status([], 0, 0, None)
    if given.json:
        emit_json(now.to_json())
        return 0
    width = get_terminal_size().columns if sys.stdout.isatty() else None
    emit(status_text(now, datetime.now(timezone.utc), may_colour(sys.stdout), width))
    return 0


def _audit(given: argparse.Namespace) -> int:
    from chainlake.lake.audit import audit

    height, at = parse_height(given.height), parse_time(given.at)
    stage = known_stage(given.stage)
    found = audit(existing_records(given.home), stage, given.chain, height, at)
    rows = [dict(zip(found.columns, line, strict=True)) for line in found.astype(object).where(found.notna(), None).values]
    if given.json:
        emit_json(rows)
        return 0
    if not rows:
        emit(f"{stage} had committed nothing of {given.chain} then")
        return 0
    heads = ["seq", "kind", "from", "to", "visible_to", "epoch", "committed_at", "rows", "why"]
    emit(table(heads, [[row[name] for name in heads] for row in rows]))
    return 0


def _tables(given: argparse.Namespace) -> int:
    from chainlake.lake.ddl import load
    from chainlake.lake.names import Namespace
    from chainlake.lake.tables_page import columns_shown, page, queryable
    from chainlake.lake.warehouse_sql import script
    from chainlake.paths import tables_dir

    tables = queryable(load(tables_dir()))
    if given.table is not None:
        if given.table not in tables:
            raise BadInput(f"unknown table {given.table!r}: {_nearest(given.table, tables)}")
        tables = {given.table: tables[given.table]}
    if given.markdown:
        emit(page(tables).rstrip("\n"))
    elif given.sql:
        namespace = Namespace(os.environ.get("LAKE_CATALOG", ""), os.environ.get("LAKE_PREFIX", ""))
        emit(script(namespace, tables).rstrip("\n"))
    elif given.json:
        emit_json([_described(one) for one in tables.values()])
    elif given.table is not None:
        (one,) = tables.values()
        emit(f"{one.name} ({one.kind}, key {', '.join(one.key)}): {one.description}\n")
        emit(table(["column", "type", "description"], columns_shown(one)))
    else:
        emit(
            table(
                ["table", "kind", "key", "description"],
                [(t.name, t.kind, ", ".join(t.key), shorten(t.description, 80, placeholder=" …")) for t in tables.values()],
            )
        )
    return 0


def _nearest(name: str, tables: Iterable[str]) -> str:
    """What was meant, or how to find it."""
    near = get_close_matches(name, tables, n=3)
    return f"did you mean {' or '.join(near)}?" if near else "lake tables lists them"


def _described(one: "Table") -> dict[str, object]:
    """A table and its columns, as people query them."""
    from chainlake.lake.tables_page import columns_shown

    columns = [dict(zip(("name", "type", "description"), column, strict=True)) for column in columns_shown(one)]
    return {"table": one.name, "kind": one.kind, "key": one.key, "description": one.description, "columns": columns}
