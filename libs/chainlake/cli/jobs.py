"""Commands that run work: up, run, bench."""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from chainlake.cli.data import SIZE_HELP, known_chain, known_stage, parse_options
from chainlake.cli.show import emit, emit_json, printable, seconds, table
from chainlake.errors import BadInput, CheckFailed

MOST_MEASURED = 10**10

if TYPE_CHECKING:
    from chainlake.demo.write import DemoChain
    from chainlake.jobs.runner import JobResult
    from chainlake.lake.records import Records


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    up = commands.add_parser(
        "up",
        parents=[common],
        help="make the demo chains, run every job, tell what was built",
        epilog="example: lake up --size tiny",
    )
    up.add_argument("--size", help=SIZE_HELP)
    up.set_defaults(run=_up)

    run = commands.add_parser(
        "run",
        parents=[common],
        help="a bundle job, locally; without a name: all",
        epilog="example: lake run logs --param chain=demo-evm",
    )
    run.add_argument(
        "job", nargs="?", help="logs, shards, cage, replica or sync (default: all five); everything, maintenance or backfill"
    )
    run.add_argument("--param", action="append", default=[], metavar="KEY=VALUE", help="a job parameter; repeatable")
    run.add_argument("--json", action="store_true", help="one array with a row per job; tasks are told on standard error")
    run.set_defaults(run=_run)

    bench = commands.add_parser(
        "bench",
        parents=[common],
        help="a benchmark, with its peers side by side",
        epilog="example: lake bench kernel --quick --json kernel.json",
    )
    bench.add_argument("name", help="kernel, logs, shards, cage, replica or sync")
    bench.add_argument("--quick", action="store_true", help="smaller sizes, for a first look")
    size = "how much: ledger rows (kernel), logs, streams (shards, sync), blocks (cage), entries (replica)"
    bench.add_argument("--size", type=int, metavar="N", help=size)
    bench.add_argument("--json", metavar="FILE", help="also write the rows as JSON")
    bench.set_defaults(run=_bench)


def run_jobs(home: Path, name: str | None, params: dict[str, str], out: TextIO | None = None) -> "list[JobResult]":
    """Run one job or all, telling what happens. A failed job does not keep the others from running."""
    from chainlake.cli.task_bar import TaskBar
    from chainlake.jobs.bundle import load_bundle
    from chainlake.jobs.runner import State, TaskEvent, run_job

    bundle = load_bundle()
    wanted = bundle.pipeline() if name is None else [bundle.job(name)]
    results = []
    with TaskBar(sum(len(job.tasks) for job in wanted)) as bar:
        for job in wanted:

            def tell(event: TaskEvent, job_name: str = job.name) -> None:
                took = f" {seconds(event.seconds)}" if event.seconds else ""
                line = printable(f"{job_name}: {event.task} {event.state.value}{took}{': ' + event.error if event.error else ''}")
                bar.write(line, out or sys.stdout)
                if event.state is State.RUNNING:
                    bar.started(event.task)
                elif event.state is not State.RETRYING and "/" not in event.task:  # not the tasks of a job that a task runs
                    bar.ended()

            results.append(run_job(job, home=home, params=params, on_event=tell, jobs=bundle.jobs))
    return results


def _run(given: argparse.Namespace) -> int:
    from chainlake.lake.home import find_home

    params = parse_options(given.param, "--param")
    _check_names(given, params)
    results = run_jobs(find_home(given.home).path, given.job, params, sys.stderr if given.json else None)
    if given.json:
        emit_json([_told(result) for result in results])
    failed = [result for result in results if not result.ok]
    for result in failed:
        result.require_success()
    if failed:
        raise CheckFailed(f"{len(failed)} jobs failed")
    return 0


def _check_names(given: argparse.Namespace, params: dict[str, str]) -> None:
    """A stage or chain that is not there is told at once, not by a notebook some time later."""
    if params.get("stage"):
        known_stage(params["stage"])
    if params.get("chain"):
        known_chain(params["chain"], given.home)


def _told(result: "JobResult") -> dict[str, object]:
    """How a job ended, for scripts."""
    fields = ("task", "state", "seconds", "attempts", "error")
    rows = [(one.task, one.state.value, round(one.seconds, 3), one.attempts, one.error) for one in result.tasks]
    tasks = [dict(zip(fields, row, strict=True)) for row in rows]
    return {"job": result.job, "run_id": result.run_id, "ok": result.ok, "seconds": round(result.seconds, 3), "tasks": tasks}


def _up(given: argparse.Namespace) -> int:
    from chainlake.demo.write import write_demo
    from chainlake.lake import open_lake
    from chainlake.lake.home import find_home
    from chainlake.lake.records import open_records

    started = time.monotonic()
    home = find_home(given.home)
    chains = write_demo(home.demo, None, given.size)
    records = open_records(home.path)
    if records is not None and is_built(records, chains):
        emit(f"{summary(records, {})}\n\nall of it is there already: nothing to do. {what_next(chains)}")
        return 0
    emit(f"demo chains are in {home.demo}; starting Spark …")
    lake = open_lake(home.path)
    for chain in chains:
        lake.add_chain(chain.name, chain.kind, str(chain.path), chain.options)
    results = run_jobs(home.path, None, {})
    emit("")
    emit(summary(lake, {task.task: task.seconds for result in results for task in result.tasks}))
    emit(f"\nall of it took {seconds(time.monotonic() - started)}. {what_next(chains)}")
    for result in results:
        result.require_success()
    return 0


NEXT = """  .venv/bin/lake status                                           # where every stage stands
  .venv/bin/lake serve --port 8545                                # a page to look at: http://127.0.0.1:8545
  .venv/bin/lake sql "SELECT chain, count(*) AS blocks, max(height) AS head FROM raw.blocks GROUP BY chain"
  .venv/bin/lake rollback raw.logs demo-evm {height} --why "a try"    # lake run logs brings it back
  .venv/bin/lake audit raw.logs demo-evm                          # what happened, and why
  .venv/bin/lake verify                                           # check tables against the ledger
  notebooks/README.md lists the notebooks"""


def what_next(demo: "Sequence[DemoChain]") -> str:
    """Commands to try, with a block that the demo chain has."""
    return "What to try next:\n" + NEXT.format(height=next(one.blocks for one in demo if one.kind == "evm") // 2)


def is_built(records: "Records", demo: "Sequence[DemoChain]") -> bool:
    """Every block of the demo chains has gone through every stage, and the lake follows no other chain."""
    from chainlake.lake.chains import Chain
    from chainlake.lake.status import status

    if records.chains.all() != {one.name: Chain(one.name, one.kind, str(one.path), one.options) for one in demo}:
        return False
    if any(one.lag or one.health != "ok" for one in status(records).stages):
        return False
    view = records.ledger.read()
    return all(view.of(f"raw.{one.domain}", one.name).blocks() >= one.blocks for one in demo)


def summary(lake: "Records", task_seconds: dict[str, float]) -> str:
    """Stages, heads, rows and seconds."""
    from chainlake.lake.status import status

    rows = []
    for one in status(lake).stages:
        took = task_seconds.get(one.stage.replace(".", "_"))
        rows.append((one.stage, one.chain, one.head, sum(one.rows.values()), one.health, seconds(took) if took else "-"))
    return table(["stage", "chain", "head", "rows", "health", "task time"], rows)


def _bench(given: argparse.Namespace) -> int:
    from chainlake.bench import BENCHMARKS, run_benchmark

    if given.name not in BENCHMARKS:
        raise BadInput(f"unknown benchmark {given.name!r}: there are {', '.join(BENCHMARKS)}")
    if given.size is not None and not 1000 <= given.size <= MOST_MEASURED:
        raise BadInput(f"--size {given.size}: give a number from 1000, less measures nothing, to {MOST_MEASURED}")
    run_benchmark(given.name, quick=given.quick, home=given.home, json_file=given.json, size=given.size)
    return 0
