"""`lake events`: the declarations by which logs are decoded."""

import argparse
from typing import TYPE_CHECKING, Any

from chainlake.cli.data import existing_records
from chainlake.cli.show import emit, emit_json, table
from chainlake.encoding import from_hex, to_hex
from chainlake.errors import BadInput

if TYPE_CHECKING:
    from chainlake.lake.visibility import LedgerView

STAGE = "gold.decoded"


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    events = commands.add_parser(
        "events",
        parents=[common],
        help="event declarations by which logs are decoded: list, add, remove",
        epilog='example: lake events add "Minted(address indexed to, uint256 id)" --contract 0x5a…',
    )
    events.add_argument("action", nargs="?", choices=("list", "add", "remove"), default="list", help="default: list")
    events.add_argument("declaration", nargs="?", help="as in Solidity: Transfer(address indexed from, address indexed to, …)")
    events.add_argument("--contract", metavar="0x…", help="only logs of this contract (default: of any)")
    events.add_argument("--json", action="store_true", help="list: one array of {event, topic0, contract, declaration}")
    events.set_defaults(run=_events)


def _events(given: argparse.Namespace) -> int:
    contract = _contract(given.contract)
    if (given.action == "list") != (given.declaration is None):
        raise BadInput(
            f"lake events {given.action} takes {'no' if given.action == 'list' else 'one'} declaration: see lake events --help"
        )
    from chainlake.lake import open_lake
    from chainlake.logs import registry
    from chainlake.logs.abi import parse_event

    if given.declaration is not None:
        parse_event(given.declaration, contract)
    if given.action != "add":
        existing_records(given.home)

    lake = open_lake()
    if given.action == "list":
        registry.ensure(lake.control)
        rows = [
            (e.name, to_hex(e.hash), to_hex(e.contract) if e.contract else "any", e.text) for e in registry.declared(lake.control)
        ]
        names = ("event", "topic0", "contract", "declaration")
        emit_json([dict(zip(names, row, strict=True)) for row in rows]) if given.json else emit(table(names, rows))
        return 0
    change = registry.add if given.action == "add" else registry.remove
    event = change(lake.control, given.declaration, contract)
    emit(f"{'declared' if given.action == 'add' else 'removed'} {event.text}; logs to come are decoded by it")
    for command in decode_again(lake.ledger.read([STAGE])):
        emit(f"for those that are decoded already: {command}, then lake run logs")
    return 0


def decode_again(view: "LedgerView") -> list[str]:
    """The rollback that each chain needs, to before its own first block."""
    first = {chain: view.of(STAGE, chain).first_height() for chain in view.chains([STAGE])}
    return [f"lake rollback {STAGE} {chain} {height} --why TEXT" for chain, height in first.items() if height is not None]


def _contract(text: str | None) -> bytes | None:
    if text is None:
        return None
    found = from_hex(text, "--contract")
    if len(found) != 20:
        raise BadInput(f"--contract {text} is not an address: give 0x and 40 hex digits")
    return found
