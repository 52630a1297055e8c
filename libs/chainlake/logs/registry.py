"""control.events: the event declarations of a lake. It starts with those that everybody knows; people add their own."""

from typing import Any

from chainlake.encoding import to_hex
from chainlake.errors import BadInput
from chainlake.lake.clock import actor, now
from chainlake.lake.control import ControlTables
from chainlake.logs.abi import Event, Registry, default_registry, parse_event

ADDED, REMOVED = "added", "removed"


def declared(control: ControlTables) -> list[Event]:
    """The declarations that hold, in the order in which they are tried."""
    latest: dict[tuple[str, bytes | None], dict[str, Any]] = {}
    for row in sorted(control.read("events"), key=lambda row: row["at"]):
        latest[row["declaration"], row["contract"]] = row
    rows = sorted((row for row in latest.values() if row["state"] == ADDED), key=lambda row: row["position"])
    return [parse_event(row["declaration"], row["contract"]) for row in rows]


def ensure(control: ControlTables) -> None:
    """Put the well-known declarations into a table that is still empty."""
    if not control.arrow("events").num_rows:
        _write(control, list(default_registry().events), ADDED, 0)


def add(control: ControlTables, declaration: str, contract: bytes | None = None) -> Event:
    """Declare an event, for one contract or for any."""
    ensure(control)
    event, known = parse_event(declaration, contract), declared(control)
    if event in known:
        raise BadInput(f"{event.text} is declared already: nothing to add")
    _write(control, [event], ADDED, max((row["position"] for row in control.read("events")), default=-1) + 1)
    return event


def remove(control: ControlTables, declaration: str, contract: bytes | None = None) -> Event:
    """Take a declaration back. What was decoded by it stays until it is decoded again."""
    ensure(control)
    event = parse_event(declaration, contract)
    if event not in declared(control):
        raise BadInput(f"{event.text} is not declared: see lake events")
    _write(control, [event], REMOVED, 0)
    return event


def text(registry: Registry) -> str:
    """The form that `Registry.parse` reads."""
    return "\n".join(f"{to_hex(e.contract)} {e.text}" if e.contract else e.text for e in registry.events)


def _write(control: ControlTables, events: list[Event], state: str, first: int) -> None:
    at, who = now(), actor()
    rows = [
        {
            "event": event.name,
            "declaration": event.text,
            "topic0": event.hash,
            "contract": event.contract,
            "state": state,
            "position": first + position,
            "actor": who,
            "at": at,
        }
        for position, event in enumerate(events)
    ]
    control.append("events", rows)
