"""Our results beside those that a chain reports in `/block_results`: every difference is a record.

Codes, codespaces, logs and events are compared. Only codes are under a block's `last_results_hash`; so a success whose log is
empty, as validators write it, is the same as ours, whose log is OK.
"""

import base64
import binascii
import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from chainlake.encoding import to_hex
from chainlake.errors import BadInput
from chainlake.shards.codes import CODESPACE
from chainlake.shards.fold import TxResult
from chainlake.shards.rules import Event


class ChainTxResult(NamedTuple):
    """The result of a transaction as a chain reports it; its code may be one that we do not know."""

    code: int
    log: str
    codespace: str
    events: tuple[Event, ...]


class ChainResults(NamedTuple):
    """A `/block_results` answer. Nodes before 0.38 do not tell the app hash there."""

    height: int
    results: tuple[ChainTxResult, ...]
    app_hash: bytes | None


class Difference(NamedTuple):
    """Where we and the chain disagree; an event or transaction that one side lacks is None there."""

    height: int
    tx_index: int | None
    event_index: int | None
    what: str
    ours: str | None
    theirs: str | None


def compare(ours: Sequence[TxResult], theirs: ChainResults, app_hash: bytes | None = None) -> list[Difference]:
    """All differences of a block: `ours` are its results in order, `app_hash` our root after it, if it is to be compared."""
    found = []
    if app_hash is not None and theirs.app_hash is not None and app_hash != theirs.app_hash:
        found.append(Difference(theirs.height, None, None, "app_hash", to_hex(app_hash), to_hex(theirs.app_hash)))
    for tx_index, (mine, other) in enumerate(zip_longest(ours, theirs.results)):
        if mine is not None and (mine.height, mine.tx_index) != (theirs.height, tx_index):
            raise BadInput(
                f"result {tx_index} is of transaction {mine.tx_index} of block {mine.height}, block {theirs.height} is compared: "
                "give all results of that block in order"
            )
        found.extend(_compare_tx(theirs.height, tx_index, mine, other))
    return found


def _compare_tx(height: int, tx_index: int, ours: TxResult | None, theirs: ChainTxResult | None) -> Iterator[Difference]:
    if ours is None or theirs is None:
        mine, other = ours and ours.code.name, theirs and str(theirs.code)
        yield Difference(height, tx_index, None, "transaction", mine, other)
        return
    success = ours.code == theirs.code == 0
    if ours.code != theirs.code:
        yield Difference(height, tx_index, None, "code", str(int(ours.code)), str(theirs.code))
    if ours.log != theirs.log and not (success and not theirs.log):
        yield Difference(height, tx_index, None, "log", ours.log, theirs.log)
    if theirs.codespace != CODESPACE:
        yield Difference(height, tx_index, None, "codespace", CODESPACE, theirs.codespace)
    for event_index, (mine_event, other_event) in enumerate(zip_longest(ours.events, theirs.events)):
        if mine_event != other_event:
            yield Difference(height, tx_index, event_index, "event", _text(mine_event), _text(other_event))


def _text(event: Event | None) -> str | None:
    return event and " ".join([event.type, *(f"{key}={value}" for key, value in event.attributes)])


def parse_block_results(value: Any) -> ChainResults:
    """A `/block_results` result, or the JSON-RPC answer around it; `BadInput` says what is wrong with it."""
    result = value["result"] if isinstance(value, dict) and isinstance(value.get("result"), dict) else value
    if not isinstance(result, dict):
        raise BadInput(f"{result!r:.60} is not the result of CometBFT's /block_results")
    height = result.get("height")
    if not isinstance(height, str) or not re.fullmatch("[0-9]{1,18}", height):
        raise BadInput(f"height is {height!r:.60}: a decimal number in quotes is expected")
    results = tuple(parse_tx_result(one, "txs_results") for one in _list(result.get("txs_results"), "txs_results"))
    return ChainResults(int(height), results, _base64(result.get("app_hash")))


def parse_tx_result(value: Any, name: str) -> ChainTxResult:
    """The result of one transaction, as CometBFT writes it under whatever name."""
    if not isinstance(value, dict):
        raise BadInput(f"{name} holds {value!r:.60}: an object is expected")
    code = value.get("code", 0)
    if not isinstance(code, int) or isinstance(code, bool):
        raise BadInput(f"code is {code!r:.60}: a number is expected")
    events = tuple(_parse_event(one) for one in _list(value.get("events"), "events"))
    return ChainTxResult(code, _string(value, "log"), _string(value, "codespace"), events)


def _parse_event(value: Any) -> Event:
    if not isinstance(value, dict):
        raise BadInput(f"events holds {value!r:.60}: an object is expected")
    attributes = _list(value.get("attributes"), "attributes")
    if not all(isinstance(one, dict) for one in attributes):
        raise BadInput("attributes of an event hold something else than objects of key and value")
    return Event(_string(value, "type"), tuple((_string(one, "key"), _string(one, "value")) for one in attributes))


def _string(value: dict[str, Any], name: str) -> str:
    """A text; CometBFT may leave out empty ones, or write null."""
    found = value.get(name) or ""
    if not isinstance(found, str):
        raise BadInput(f"{name} is {found!r:.60}: a text is expected")
    return found


def _list(value: Any, name: str) -> list[Any]:
    """CometBFT writes null for an empty list."""
    if not isinstance(value, list | None):
        raise BadInput(f"{name} is {value!r:.60}: an array or null is expected")
    return value or []


def _base64(value: Any) -> bytes | None:
    try:
        return None if value is None else base64.b64decode(value, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise BadInput(f"app_hash is {value!r:.60}: base64 is expected") from None
