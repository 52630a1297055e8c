"""Commands that operators use: rollback, resume, verify, compact, gc, restore, stop."""

import argparse
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from chainlake.cli.data import CHAIN_HELP, STAGE_HELP, existing_records, known_chain, known_stage, parse_number
from chainlake.cli.show import emit, emit_json, table
from chainlake.errors import BadInput, CheckFailed


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    rollback = commands.add_parser(
        "rollback",
        parents=[common],
        help="take a stage, and all that consumed it, back to a block",
        epilog='example: lake rollback raw.logs demo-evm 120 --why "bad source file"',
    )
    rollback.add_argument("stage", help=STAGE_HELP)
    rollback.add_argument("chain", help=CHAIN_HELP)
    rollback.add_argument("height", help="the last block to keep; -1 for none of a chain that starts with block 0")
    rollback.add_argument("--why", required=True, metavar="TEXT", help="the reason, kept in the ledger")
    rollback.add_argument("--force", action="store_true", help="also beyond the chain's rollback window")
    rollback.add_argument("--json", action="store_true", help="one array with a row per stage that went back")
    rollback.set_defaults(run=_rollback)

    resume = commands.add_parser(
        "resume",
        parents=[common],
        help="let a degraded stage go on",
        epilog='example: lake resume raw.logs demo-evm --why "the source file was mended"',
    )
    resume.add_argument("stage", help=STAGE_HELP)
    resume.add_argument("chain", help=CHAIN_HELP)
    resume.add_argument("--why", required=True, metavar="TEXT", help="the reason, kept in control.health")
    resume.set_defaults(run=_resume)

    verify = commands.add_parser(
        "verify",
        parents=[common],
        help="check tables against the ledger; exit code 1 on any mismatch",
        epilog="example: lake verify raw.logs",
    )
    verify.add_argument("stage", nargs="?", help=f"{STAGE_HELP} (default: all)")
    verify.add_argument("--json", action="store_true", help="one array of {stage, what}; empty if all holds")
    verify.set_defaults(run=_verify)

    compact = commands.add_parser(
        "compact",
        parents=[common],
        help="state at finalized heights to base tables; pack small files",
        epilog="example: lake compact silver.cage demo-cardano",
    )
    compact.add_argument("stage", nargs="?", help=f"{STAGE_HELP} (default: all)")
    compact.add_argument("chain", nargs="?", help=f"{CHAIN_HELP} (default: all)")
    compact.add_argument("--json", action="store_true", help="one array with a row per stage and chain")
    compact.set_defaults(run=_compact)

    gc = commands.add_parser(
        "gc",
        parents=[common],
        help="delete rows that nobody can see, past a retention",
        epilog="example: lake gc --dry-run --retention-days 30",
    )
    gc.add_argument("--dry-run", action="store_true", help="only tell what would be deleted")
    gc.add_argument("--retention-days", default="7", metavar="DAYS", help="keep rolled-back rows this long (default 7)")
    gc.add_argument("--vacuum", action="store_true", help="also free the disk space of files past Delta's retention")
    gc.add_argument("--json", action="store_true", help="one array with a row per table and kind of garbage")
    gc.set_defaults(run=_gc)

    restore = commands.add_parser(
        "restore",
        parents=[common],
        help="put the tables of a stage back physically, after damage",
        epilog="example: lake restore raw.cage demo-cardano --seq 41",
    )
    restore.add_argument("stage", help=STAGE_HELP)
    restore.add_argument("chain", help=CHAIN_HELP)
    restore.add_argument("--seq", required=True, metavar="N", help="the commit to go back to, see lake audit")
    restore.add_argument("--json", action="store_true", help="one object: tables, rebuilt, lost, rolled_back")
    restore.set_defaults(run=_restore)

    stop = commands.add_parser(
        "stop",
        parents=[common],
        help="stop the local Spark server (it also stops by itself when idle)",
        epilog="example: lake stop",
    )
    stop.set_defaults(run=_stop)


def _show(given: argparse.Namespace, heads: list[str], rows: Sequence[Sequence[object]], nothing: str) -> None:
    """Rows as a table, or for scripts."""
    if given.json:
        emit_json([dict(zip(heads, row, strict=True)) for row in rows])
    else:
        emit(table(heads, rows) if rows else nothing)


def _open(given: argparse.Namespace) -> Any:
    """The lake of the home. One that has none is a mistake: a lake made anew would have nothing wrong with it."""
    from chainlake.lake import open_lake

    existing_records(given.home)
    return open_lake(given.home)


def _rollback(given: argparse.Namespace) -> int:
    height = parse_number(given.height, "height")
    if not given.why.strip():
        raise BadInput("a rollback needs a reason: --why TEXT")
    stage = known_stage(given.stage)
    done = _open(given).rollback(stage, given.chain, height, why=given.why, force=given.force)
    rows = [(c.stage, c.chain, c.base_height, c.height, c.seq) for c in done]
    nothing = f"{given.stage} {given.chain} is at {height} already: nothing to do"
    _show(given, ["stage", "chain", "from", "to", "seq"], rows, nothing)
    return 0


def _resume(given: argparse.Namespace) -> int:
    stage = known_stage(given.stage)
    if not given.why.strip():
        raise BadInput("a resume needs a reason: --why TEXT")
    existing_records(given.home).health.resume(stage, given.chain, given.why)
    emit(f"{given.stage} {given.chain} may go on")
    return 0


def _verify(given: argparse.Namespace) -> int:
    from chainlake.lake.verify import verify

    stage = known_stage(given.stage) if given.stage is not None else None
    found = verify(_open(given), stage)
    if given.json:
        emit_json([{"stage": f.stage, "what": f.what} for f in found])
    else:
        for finding in found:
            emit(f"{finding.stage}: {finding.what}")
    if found:
        raise CheckFailed(f"{len(found)} things do not hold")
    if not given.json:
        emit("all tables agree with the ledger")
    return 0


def _compact(given: argparse.Namespace) -> int:
    from chainlake.lake.compaction import compact

    stage = known_stage(given.stage) if given.stage is not None else None
    chain = known_chain(given.chain, given.home) if given.chain is not None else None
    done = compact(_open(given), stage, chain)
    rows = [(c.stage, c.chain, c.height, c.rows, c.note) for c in done]
    _show(given, ["stage", "chain", "height", "rows", "note"], rows, "nothing new to compact; files are packed")
    return 0


def _gc(given: argparse.Namespace) -> int:
    from chainlake.lake.gc import collect, vacuum

    try:
        retention = timedelta(days=float(given.retention_days))
    except (ValueError, OverflowError):
        raise BadInput(f"--retention-days {given.retention_days!r}: a number of days is expected") from None
    if retention < timedelta(0):
        raise BadInput(f"--retention-days {given.retention_days}: retention must not be negative: give days to keep, 0 for none")
    lake = _open(given)
    found = collect(lake, retention, dry_run=given.dry_run)
    if given.vacuum and not given.dry_run:
        vacuum(lake)
    rows = []
    for name, kind in sorted({(g.table, g.kind) for g in found}):
        these = [g for g in found if (g.table, g.kind) == (name, kind)]
        rows.append(
            (name, kind, sum(g.rows for g in these), sum(g.rows for g in these if g.removable), sum(g.bytes for g in these))
        )
    done = "would be deleted" if given.dry_run else "deleted"
    heads = ["table", "kind", "rows", "removable", "bytes"] if given.json else ["table", "kind", "invisible rows", done, "bytes"]
    _show(given, heads, rows, "no invisible rows")
    return 0


def _restore(given: argparse.Namespace) -> int:
    from chainlake.lake.restore import restore

    if not (given.seq.isascii() and given.seq.isdigit() and len(given.seq) <= 18):
        raise BadInput(f"--seq {given.seq!r}: the number of a commit is expected, see lake audit")
    stage = known_stage(given.stage)
    done = restore(_open(given), stage, given.chain, int(given.seq))
    tables = [(name, version, done.carried.get(name, 0)) for name, version in done.tables.items()]
    if given.json:
        rows = [dict(zip(("table", "version", "carried"), row, strict=True)) for row in tables]
        emit_json({"tables": rows, "rebuilt": done.rebuilt, "lost": done.lost, "rolled_back": done.rolled_back})
        return 0
    emit(table(["table", "version", "rows brought forward"], tables))
    for name in done.rebuilt:
        emit(f"rebuilt: the base of {name}, from its history")
    for line in done.lost:
        emit(f"lost: {line}")
    for name, height in done.rolled_back.items():
        emit(f"rolled back: {name} to {height}; run its job again to rebuild the rest")
    return 0


def _stop(given: argparse.Namespace) -> int:
    from chainlake.lake import server
    from chainlake.lake.home import find_home

    emit("stopped" if server.stop(find_home(given.home)) else "no server runs here")
    return 0
