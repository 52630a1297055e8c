"""`lake replica`: a cluster to play with, and what replicas say of themselves."""

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainlake.cli.show import emit, emit_json, table
from chainlake.errors import BadInput

if TYPE_CHECKING:
    from chainlake.lake import Lake
    from chainlake.replica.cluster import Cluster
    from chainlake.replica.query import ReplicaReader

EXAMPLE = """the rejoin story:
  lake replica start shop --replicas a,b,c
  lake replica isolate shop c --from meta
  lake replica propose shop '{"type":"CreateNamespace","namespace_id":"app"}'
  lake replica propose shop '{"type":"CreateUser","user_id":"alice","role":"user"}'
  lake replica propose shop '{"type":"CreateTable","table_id":"app.t","columns":["id","v"],"primary_key":"id"}'
  lake replica propose shop '{"type":"Insert","table_id":"app.t","user_id":"alice","rows":[{"id":1,"v":"x"}]}'
  lake replica deliver shop && lake run replica
  lake replica read shop-c app.t --user alice       (refused: it waits for Meta index 3)
  lake replica rejoin shop c && lake replica deliver shop
  lake replica crash shop c                         (killed in the middle of its commit)
  lake replica restart shop c
  lake replica read shop-c app.t --user alice       (the row)"""
EXAMPLES = {
    "health": "lake replica health demo-replica-c --json",
    "read": "lake replica read shop-c app.t --user alice --stale",
    "start": "lake replica start shop --replicas a,b,c",
    "propose": """lake replica propose shop '{"type":"CreateNamespace","namespace_id":"app"}'""",
    "deliver": "lake replica deliver shop --to c --only meta",
    "isolate": "lake replica isolate shop c --from meta",
    "rejoin": "lake replica rejoin shop c",
    "crash": "lake replica crash shop c",
    "restart": "lake replica restart shop c",
    "migrate": "lake replica migrate shop",
}


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    replica = commands.add_parser(
        "replica",
        parents=[common],
        help="replicas: health and reads; a small cluster to propose to, isolate, rejoin, migrate",
        epilog=EXAMPLE,
    )
    actions = replica.add_subparsers(dest="action", metavar="ACTION", required=True)
    _add(actions, common, "health", _health, "is it caught up, and what does it wait for", replica="?", json=True)
    read = _add(actions, common, "read", _read, "rows of a table, fresh unless --stale", replica=None, json=True)
    read.add_argument("table", help="namespace.table")
    read.add_argument("--user", metavar="ID", help="whose rows (default: the shared ones)")
    read.add_argument("--stale", action="store_true", help="also while entries wait; the answer says how many")
    start = _add(actions, common, "start", _start, "a new cluster, its replicas as chains of the lake", cluster=True)
    start.add_argument("--replicas", default="a,b,c", metavar="NAMES", help="comma-separated (default: a,b,c)")
    start.add_argument("--old-meta", action="store_true", help="with the three Meta logs of before, to rehearse a migration")
    propose = _add(actions, common, "propose", _propose, "append commands to the leader's logs", cluster=True)
    propose.add_argument("commands", nargs="+", metavar="JSON", help='{"type": "CreateUser", …}')
    propose.add_argument("--group", help="the log of Blank and Membership entries")
    propose.add_argument("--new-term", action="store_true", help="as a newly elected leader")
    deliver = _add(actions, common, "deliver", _deliver, "one delivery of what is new to each replica", cluster=True)
    deliver.add_argument("--to", metavar="REPLICA", help="to one replica only")
    deliver.add_argument("--only", metavar="WHAT", help="meta, data, or the name of a group")
    deliver.add_argument("--most", metavar="N", help="at most so many entries")
    isolate = _add(actions, common, "isolate", _isolate, "cut a replica off", cluster=True, member=True)
    isolate.add_argument("--from", dest="what", choices=("all", "meta"), default="all", help="from what (default: all)")
    _add(actions, common, "rejoin", _rejoin, "let a replica hear everything again", cluster=True, member=True)
    text = "kill a replica while it commits what is new to it"
    _add(actions, common, "crash", _crash, text, cluster=True, member=True)
    text = "let a replica go on from its last commit until it has taken in all that was delivered"
    _add(actions, common, "restart", _restart, text, cluster=True, member=True)
    _add(actions, common, "migrate", _migrate, "unite the three Meta logs of a cluster", cluster=True)


def _add(
    actions: Any,
    common: argparse.ArgumentParser,
    name: str,
    run: Any,
    text: str,
    *,
    cluster: bool = False,
    member: bool = False,
    json: bool = False,
    **replica: str | None,
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(name, parents=[common], help=text, epilog=f"example: {EXAMPLES[name]}")
    if cluster:
        parser.add_argument("cluster", help="name of the cluster")
    if member:
        parser.add_argument("member", metavar="REPLICA", help="name of the replica in the cluster")
    if "replica" in replica:
        parser.add_argument("replica", nargs=replica["replica"], metavar="REPLICA", help="chain of kind raft")
    if json:
        parser.add_argument("--json", action="store_true", help="the same for scripts (docs/replica.md describes it)")
    parser.set_defaults(run=run)
    return parser


def _reader(given: argparse.Namespace) -> "ReplicaReader":
    from chainlake.lake.home import home_path
    from chainlake.replica.query import ReplicaReader

    return ReplicaReader(home_path(given.home), os.environ.get("LAKE_PREFIX", ""))


def _health(given: argparse.Namespace) -> int:
    reader = _reader(given)
    found = [reader.health(name) for name in ([given.replica] if given.replica else reader.names())]
    if given.json:
        emit_json([health.to_json() for health in found])
        return 0
    rows = [(h.replica, h.status, h.delivery, h.meta_index, sum(g.pending for g in h.groups), h.eligible_leader) for h in found]
    emit(table(("replica", "status", "delivery", "meta index", "pending", "eligible leader"), rows))
    waiting = [(h.replica, g.group, g.pending, g.waits_for, g.waiting_since) for h in found for g in h.groups if g.pending]
    if waiting:
        emit("")
        emit(table(("replica", "group", "pending", "waits for meta", "since delivery"), waiting))
    for health in found:
        for stage, reason in health.degraded.items():
            emit(f"{health.replica}: {stage} is degraded: {reason}")
    return 0


def _read(given: argparse.Namespace) -> int:
    found = _reader(given).read(given.replica, given.table, given.user, given.stale)
    if given.json:
        emit_json(vars(found))
        return 0
    names = list(dict.fromkeys(name for row in found.rows for name in row))
    emit(table(names or ("no rows",), [[row.get(name) for name in names] for row in found.rows]))
    if found.pending:
        emit(f"stale: {found.pending} entries of {found.group} wait for Meta index {found.waits_for} since {found.waiting_since}")
    return 0


def _directory(given: argparse.Namespace) -> Path:
    from chainlake.lake.home import find_home

    if not given.cluster.replace("-", "_").isidentifier():
        raise BadInput(f"{given.cluster!r} is no name for a cluster: use letters, digits and -")
    directory: Path = find_home(given.home).path / "clusters" / given.cluster
    return directory


def _cluster(given: argparse.Namespace) -> "Cluster":
    from chainlake.replica.cluster import Cluster

    return Cluster.load(_directory(given))


def _start(given: argparse.Namespace) -> int:
    from chainlake.lake import open_lake
    from chainlake.replica.cluster import Cluster

    directory = _directory(given)
    names = Cluster.check_new(directory, given.replicas.split(","))
    _check_chains(given, [f"{given.cluster}-{name}" for name in names])
    lake = open_lake()
    cluster = Cluster.create(directory, names, not given.old_meta)
    for name in names:
        options = {"unified_meta": "false" if given.old_meta else "true"}
        lake.add_chain(f"{given.cluster}-{name}", "raft", str(cluster.directory / f"{name}.jsonl"), options)
    emit(f"{given.cluster} has the replicas {', '.join(names)}: propose and deliver, then lake run replica")
    return 0


def _check_chains(given: argparse.Namespace, names: list[str]) -> None:
    """Refuse what cannot be the names of new chains, before anything is made."""
    from chainlake.lake.chains import check_name
    from chainlake.lake.records import open_records

    records = open_records(given.home)
    known = records.chains.all() if records else {}
    for name in names:
        check_name(name)
        if name in known:
            raise BadInput(f"chain {name!r} exists already: choose another name for the cluster")


def _propose(given: argparse.Namespace) -> int:
    commands = [_command(text) for text in given.commands]
    for entry in _cluster(given).propose(commands, given.group, given.new_term):
        stamp = f", needs Meta {entry.required}" if entry.required else ""
        emit(f"{entry.command['type']} is {entry.group} {entry.log_index} of term {entry.log_term}{stamp}")
    return 0


def _command(text: str) -> dict[str, Any]:
    from chainlake.sources.json_text import parse

    rule = "a command is a JSON object with a type, see lake replica --help"
    try:
        command = parse(text)
    except BadInput:
        raise BadInput(f"{text[:60]!r} is not JSON: {rule}") from None
    if not isinstance(command, dict):
        raise BadInput(f"{text[:60]!r} is no command: {rule}")
    return command


def _deliver(given: argparse.Namespace) -> int:
    from chainlake.cli.data import parse_number

    most = None if given.most is None else parse_number(given.most, "--most")
    if most is not None and most < 1:
        raise BadInput(f"--most {most}: at least 1 is expected")
    for name, count in _cluster(given).deliver(given.to, given.only, most).items():
        emit(f"{given.cluster}-{name}: {count} entries")
    return 0


def _isolate(given: argparse.Namespace) -> int:
    _cluster(given).isolate(given.member, given.what)
    emit(f"{given.cluster}-{given.member} is cut off from {given.what}")
    return 0


def _rejoin(given: argparse.Namespace) -> int:
    _cluster(given).rejoin(given.member)
    emit(f"{given.cluster}-{given.member} hears everything again: lake replica deliver {given.cluster}")
    return 0


def _crash(given: argparse.Namespace) -> int:
    from chainlake.replica.following import crash

    chain, lake = _member(given)
    crash(lake, chain)
    emit(f"{chain} was killed before its commit, so nothing has changed: lake replica restart {given.cluster} {given.member}")
    return 0


def _restart(given: argparse.Namespace) -> int:
    from chainlake.replica.following import follow

    chain, lake = _member(given)
    follow(lake, chain)
    health = _reader(given).health(chain)
    pending = sum(group.pending for group in health.groups)
    emit(f"{chain} is {health.status} at delivery {health.delivery}, Meta index {health.meta_index}, {pending} entries pending")
    return 0


def _member(given: argparse.Namespace) -> "tuple[str, Lake]":
    """The chain of a replica, and the lake that holds it."""
    from chainlake.lake import open_lake

    _cluster(given).check_member(given.member)
    return f"{given.cluster}-{given.member}", open_lake()


def _migrate(given: argparse.Namespace) -> int:
    entry = _cluster(given).migrate()
    emit(f"the Meta logs are united: a snapshot of {len(entry.command['objects'])} objects is meta {entry.log_index}")
    return 0
