"""`lake serve`: JSON-RPC and HTTP over a lake, without Spark."""

import argparse
import asyncio
import ipaddress
import os
import resource
import signal
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from chainlake.errors import BadInput

if TYPE_CHECKING:
    from chainlake.serve.gateway import Gateway
    from chainlake.serve.settings import Settings

SWITCH_SECONDS = 0.001
SPARE_FILES = 256


@dataclass(frozen=True)
class Number:
    """An option that is a number within bounds."""

    option: str
    metavar: str
    lowest: int
    highest: int
    default: int
    help: str


NUMBERS = (
    Number("port", "N", 0, 65535, 8545, "port to listen on, 0 for any that is free"),
    Number("max-results", "N", 1, 1_000_000, 10_000, "logs in one answer"),
    Number("max-page", "N", 1, 1_000_000, 10_000, "logs in one page of lake_getLogsPage"),
    Number("max-batch", "N", 1, 10_000, 100, "calls in one batch"),
    Number("max-body", "BYTES", 1_000, 1 << 30, 1 << 20, "size of a request"),
    Number("max-response", "BYTES", 10_000, 1 << 30, 25 << 20, "size of an answer"),
    Number("max-connections", "N", 1, 100_000, 512, "connections at the same time"),
    Number("max-or-terms", "N", 1, 1_000, 128, "alternatives that one place of a filter may list"),
    Number("threads", "N", 1, 256, 4, "queries at the same time"),
    Number("queue", "N", 0, 100_000, 64, "further calls that may wait; others are told that the server is busy"),
    Number("timeout", "SECONDS", 1, 3_600, 30, "time that a request may take"),
    Number("cache", "MIB", 0, 1 << 20, 0, "memory for logs that were read; 0: an eighth of what there is, at least 256"),
)


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    serve = commands.add_parser(
        "serve",
        parents=[common],
        help="answer eth_getLogs and more over JSON-RPC, with /health and /metrics",
        epilog="example: lake serve --port 8545 --chain demo-evm",
    )
    serve.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1, this machine only)")
    serve.add_argument(
        "--chain", metavar="NAME", help="chain to serve (default: the only evm chain); a shard by name is the default of /streams"
    )
    serve.add_argument("--chain-id", metavar="N", help="answer of eth_chainId (default: the chain's option chain_id, else 1337)")
    serve.add_argument("--topic-rule", choices=("geth", "loose"), default="geth", help="loose: wildcards at the end are ignored")
    serve.add_argument(
        "--range-rule", choices=("strict", "clip"), default="strict", help="clip: ranges are cut to what is indexed"
    )
    serve.add_argument(
        "--too-broad", choices=("error", "scan"), default="error", help="what longer lists than --max-or-terms get"
    )
    serve.add_argument("--cors", action="append", default=[], metavar="ORIGIN", help="web pages that may call, or *; repeatable")
    serve.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME", help="host name to answer to, or *; repeatable"
    )
    serve.add_argument("--no-access-log", action="store_true", help="no line on standard error for each call")
    for number in NUMBERS:
        serve.add_argument(
            f"--{number.option}",
            default=str(number.default),
            metavar=number.metavar,
            help=f"{number.help} (default {number.default})",
        )
    serve.set_defaults(run=_serve)


def _serve(given: argparse.Namespace) -> int:
    from chainlake.lake.home import home_path

    numbers = {number.option: read_number(number, getattr(given, number.option.replace("-", "_"))) for number in NUMBERS}
    chain_id = None if given.chain_id is None else _read_chain_id(given.chain_id)
    gateway = open_gateway(home_path(given.home), given, numbers, chain_id)
    return asyncio.run(_run(gateway))


def read_number(number: Number, text: str) -> int:
    """The value of an option."""
    if not (text.isascii() and text.isdigit() and len(text) <= 18) or not number.lowest <= int(text) <= number.highest:
        raise BadInput(f"--{number.option} {text!r}: a number from {number.lowest} to {number.highest} is expected")
    return int(text)


def _read_chain_id(text: str) -> int:
    try:
        value = int(text, 0)
    except ValueError:
        value = -1
    if not 0 < value < 1 << 63:
        raise BadInput(f"--chain-id {text!r}: a number like 1 or 0x1 is expected")
    return value


def open_gateway(home: Any, given: argparse.Namespace, numbers: dict[str, int], chain_id: int | None) -> "Gateway":
    """The gateway over the lake of a home."""
    from chainlake.logs.query import LogIndex
    from chainlake.logs.settings import MIB, usual_log_bytes
    from chainlake.logs.settings import Settings as IndexSettings
    from chainlake.replica.query import ReplicaReader
    from chainlake.serve.cage import CageRoutes
    from chainlake.serve.control import DEFAULT_CHAIN_ID, LakeControl, chain_id_of, choose_chain, without_logs
    from chainlake.serve.embedded import EmbeddedLake
    from chainlake.serve.gateway import Gateway
    from chainlake.serve.log_engine import IndexEngine
    from chainlake.serve.no_logs import NoLogs
    from chainlake.serve.notifications import Notifications
    from chainlake.serve.replica import ReplicaRoutes
    from chainlake.serve.shards import ShardRoutes
    from chainlake.sync.feed import Feed
    from chainlake.sync.query import only_chain

    prefix = os.environ.get("LAKE_PREFIX", "")
    control = LakeControl(EmbeddedLake(home, prefix))
    other = without_logs(control.chains(), given.chain)
    if other is not None:
        gateway = Gateway(other, NoLogs(), control, _settings(given, numbers, chain_id or DEFAULT_CHAIN_ID))
    else:
        chain = choose_chain(control.chains(), given.chain)
        reading = IndexSettings(
            max_or_terms=numbers["max-or-terms"],
            too_broad=given.too_broad,
            query_seconds=float(numbers["timeout"]),
            log_bytes=numbers["cache"] * MIB or usual_log_bytes(),
        )
        index = LogIndex(home, chain["chain"], prefix=prefix, settings=reading)
        settings = _settings(given, numbers, chain_id_of(chain) if chain_id is None else chain_id)
        gateway = Gateway(chain["chain"], IndexEngine(index), control, settings)
    ShardRoutes(gateway, home, prefix, control, other if given.chain else None)
    CageRoutes(gateway, home, prefix, control)
    ReplicaRoutes(ReplicaReader(home, prefix), gateway.pool, gateway.settings.request_seconds).add_to(gateway.router)

    def open_feed(name: str) -> Feed:
        return Feed(EmbeddedLake(home, prefix), only_chain(control.chains(), name))

    Notifications(open_feed, gateway.pool, gateway.settings.request_seconds).add_to(gateway.router)
    return gateway


def _settings(given: argparse.Namespace, numbers: dict[str, int], chain_id: int) -> "Settings":
    from chainlake.logs.filter import Limits
    from chainlake.serve.settings import Settings

    return Settings(
        host=given.host,
        port=numbers["port"],
        chain_id=chain_id,
        cors=tuple(given.cors),
        allowed_hosts=tuple(name.lower() for name in given.allow_host),
        filters=Limits(topic_rule=given.topic_rule, range_rule=given.range_rule),
        max_results=numbers["max-results"],
        max_page=numbers["max-page"],
        max_batch=numbers["max-batch"],
        max_body=numbers["max-body"],
        max_response=numbers["max-response"],
        max_connections=numbers["max-connections"],
        threads=numbers["threads"],
        queue=numbers["queue"],
        request_seconds=float(numbers["timeout"]),
        access_log=not given.no_access_log,
    )


async def _run(gateway: "Gateway") -> int:
    """Serve until a signal comes; Ctrl-C ends with 130, SIGTERM with 0."""
    from chainlake.cli.show import emit
    from chainlake.serve.http import HttpServer

    settings = gateway.settings
    _allow_connections(settings.max_connections)
    sys.setswitchinterval(SWITCH_SECONDS)
    server = HttpServer(gateway)
    try:
        host, port = await server.start()
    except OSError as error:
        gateway.close()
        reason = error.strerror or str(error)
        raise BadInput(
            f"cannot listen on {settings.host} port {settings.port} ({reason}): choose another --host or --port"
        ) from None
    ended = asyncio.Event()
    codes: list[int] = []
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 0)):
        asyncio.get_running_loop().add_signal_handler(number, _end, ended, codes, code)
    what = f"the logs of {gateway.chain} (chain id {settings.chain_id})" if gateway.has_logs else gateway.chain
    emit(f"serving {what} at {_url(host, port)}, Ctrl-C ends it")
    sys.stdout.flush()
    if not _is_loopback(host):
        gateway.access_log.event("open", warning=f"{host} can be reached from other machines, and nobody is asked who they are")
    await ended.wait()
    await server.stop()
    return codes[0]


def _end(ended: asyncio.Event, codes: list[int], code: int) -> None:
    """A signal came; the first one decides the exit code."""
    codes.append(code)
    ended.set()


def _allow_connections(most: int) -> None:
    """A connection is an open file: raise this process's limit as far as it may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = most + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, allowed), hard))


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
