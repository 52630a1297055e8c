"""`lake prove DOMAIN …`: what the lake holds, with a proof that others can check. No Spark."""

import argparse
from collections.abc import Callable
from typing import Any

from chainlake.cli.prove_cage import CAGE_EXAMPLE, UTXO_EXAMPLE, add_cage, add_utxo
from chainlake.cli.prove_shards import SHARDS_EXAMPLE, add_shards


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    prove = commands.add_parser(
        "prove",
        help="inclusion or exclusion proof as JSON, or in its binary form with --raw",
        epilog=f"examples, on the demo chains:\n  {SHARDS_EXAMPLE}\n  {CAGE_EXAMPLE}\n  {UTXO_EXAMPLE}",
    )
    domains = prove.add_subparsers(dest="domain", metavar="DOMAIN", required=True)
    for name, add in DOMAINS.items():
        add(domains, name, common)


DOMAINS: dict[str, Callable[[Any, str, argparse.ArgumentParser], None]] = {
    "shards": add_shards,
    "cage": add_cage,
    "utxo": add_utxo,
}
"""What can be proven: the name of a domain, and what adds its arguments and its handler."""
