"""Which logs a caller asks for: the filter of eth_getLogs, read and refused as geth 1.17 does.

Reading has two steps, because a filter that is installed keeps its tags: `read_criteria` takes the JSON object as it is,
`resolve` puts block numbers in place of tags and checks the range against what is indexed. `match` is the rule itself, log by
log: the index must find exactly what it finds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from chainlake.logs.rpc_values import ArgumentError, BlockId, RpcError, kind_of, read_block, read_hash, read_sized, wrong_type

__all__ = ["Bounds", "Criteria", "Limits", "LogFilter", "RpcError", "match", "parse_filter", "read_criteria", "resolve"]

INVALID_PARAMS = -32602
SERVER_ERROR = -32000
PRUNED = 4444
MAX_POSITIONS = 4
MAX_TOPICS_PER_POSITION = 1_000
FIELDS = {name.lower(): name for name in ("blockHash", "fromBlock", "toBlock", "address", "topics")}

Addresses = tuple[bytes, ...]
Topics = tuple[tuple[bytes, ...], ...]


@dataclass(frozen=True)
class LogFilter:
    """Logs of a range of blocks, or of one block by hash, narrowed by address and topics."""

    addresses: Addresses = ()
    """Any of these; empty: any at all."""
    topics: Topics = ()
    """One entry per position, each any of these or empty for any; a log must have at least as many topics."""
    from_block: int | None = None
    """None: the head."""
    to_block: int | None = None
    block_hash: bytes | None = None

    @property
    def empty_range(self) -> bool:
        """A range that was clipped to nothing."""
        return self.from_block is not None and self.to_block is not None and self.from_block > self.to_block


@dataclass(frozen=True)
class Criteria:
    """A filter as the caller wrote it, tags included."""

    addresses: Addresses = ()
    topics: Topics = ()
    from_block: BlockId = "latest"
    to_block: BlockId = "latest"
    block_hash: bytes | None = None


@dataclass(frozen=True)
class Limits:
    """What a filter may ask for, and two rules that nodes do not agree on."""

    max_addresses: int = 1_000
    topic_rule: Literal["geth", "loose"] = "geth"
    """geth: wildcards at the end still ask for as many topics. loose: they are ignored, as reth does."""
    range_rule: Literal["strict", "clip"] = "strict"
    """strict: a range beyond what is indexed is an error. clip: it is answered for the part that is."""


@dataclass(frozen=True)
class Bounds:
    """The first and the last block that are indexed."""

    first: int
    head: int


class Log(Protocol):
    """What the rule looks at."""

    @property
    def block_number(self) -> int: ...
    @property
    def block_hash(self) -> bytes: ...
    @property
    def address(self) -> bytes: ...
    @property
    def topics(self) -> Sequence[bytes]: ...


def parse_filter(params: Sequence[Any], bounds: Bounds | None, limits: Limits | None = None) -> LogFilter:
    """The filter of the parameters of eth_getLogs, with block numbers in place of tags."""
    limits = limits or Limits()
    if not params:
        raise RpcError(INVALID_PARAMS, "missing value for required argument 0")
    try:
        criteria = read_criteria(params[0], limits)
    except ArgumentError as error:
        raise RpcError(INVALID_PARAMS, f"invalid argument 0: {error}") from None
    if len(params) > 1:
        raise RpcError(INVALID_PARAMS, "too many arguments, want at most 1")
    return resolve(criteria, bounds, limits)


def read_criteria(value: Any, limits: Limits) -> Criteria:
    """The filter object. Unknown members are ignored, and names may be in any case, as in geth."""
    if value is None:
        return Criteria()
    if not isinstance(value, dict):
        raise wrong_type(kind_of(value), "filters.input")
    given = {FIELDS[name.lower()]: member for name, member in value.items() if name.lower() in FIELDS and member is not None}
    block_hash, bounds = _read_blocks(given)
    topics = given.get("topics", [])
    if not isinstance(topics, list):
        raise wrong_type(kind_of(topics), "[]interface {}", "input.topics")
    if block_hash is not None and bounds:
        raise ArgumentError("cannot specify both BlockHash and FromBlock/ToBlock, choose one or the other")
    addresses = _read_addresses(given.get("address"))
    return Criteria(
        addresses=addresses,
        topics=_read_topics(topics, limits),
        from_block=bounds.get("fromBlock", "latest"),
        to_block=bounds.get("toBlock", "latest"),
        block_hash=block_hash,
    )


def resolve(criteria: Criteria, bounds: Bounds | None, limits: Limits) -> LogFilter:
    """The filter with numbers for tags, checked against what is indexed."""
    if len(criteria.addresses) > limits.max_addresses:
        raise RpcError(SERVER_ERROR, "exceed max addresses or topics per search position")
    if criteria.block_hash is not None:
        return LogFilter(criteria.addresses, criteria.topics, block_hash=criteria.block_hash)
    first, last = _resolve_range(criteria, bounds, limits)
    return LogFilter(criteria.addresses, criteria.topics, first, last)


def match(wanted: LogFilter, log: Log, head: int) -> bool:
    """Whether a filter asks for a log. `head` stands for the bounds that the filter leaves open."""
    return (
        _in_blocks(wanted, log, head)
        and (not wanted.addresses or log.address in wanted.addresses)
        and len(log.topics) >= len(wanted.topics)
        and all(not any_of or topic in any_of for any_of, topic in zip(wanted.topics, log.topics, strict=False))
    )


def _in_blocks(wanted: LogFilter, log: Log, head: int) -> bool:
    if wanted.block_hash is not None:
        return log.block_hash == wanted.block_hash
    first = head if wanted.from_block is None else wanted.from_block
    last = head if wanted.to_block is None else wanted.to_block
    return first <= log.block_number <= last


def _read_blocks(given: Mapping[str, Any]) -> tuple[bytes | None, dict[str, BlockId]]:
    """Block hash and range. Of several mistakes the first one in the text is reported."""
    block_hash = None
    bounds: dict[str, BlockId] = {}
    for name, member in given.items():
        if name == "blockHash":
            block_hash = read_hash(member, "input.blockHash")
        elif name in ("fromBlock", "toBlock"):
            bounds[name] = read_block(member)
    return block_hash, bounds


def _read_addresses(value: Any) -> Addresses:
    if value is None:
        return ()
    if isinstance(value, str):
        return (_read_address(value, "invalid address"),)
    if not isinstance(value, list):
        raise ArgumentError("invalid addresses in query")
    found = []
    for index, one in enumerate(value):
        if not isinstance(one, str):
            raise ArgumentError(f"non-string address at index {index}")
        found.append(_read_address(one, f"invalid address at index {index}"))
    return tuple(found)


def _read_address(text: str, what: str) -> bytes:
    try:
        return read_sized(text, 20, "address")
    except ArgumentError as error:
        raise ArgumentError(f"{what}: {error}") from None


def _read_topics(value: list[Any], limits: Limits) -> Topics:
    if len(value) > MAX_POSITIONS:
        raise RpcError(INVALID_PARAMS, "exceed max topics")
    found = [_read_position(position) for position in value]
    while limits.topic_rule == "loose" and found and not found[-1]:
        found.pop()
    return tuple(found)


def _read_position(value: Any) -> tuple[bytes, ...]:
    """The topics that one position may have. A null among them makes it a wildcard, and what follows is not looked at."""
    if value is None:
        return ()
    if isinstance(value, str):
        return (read_sized(value, 32, "topic"),)
    if not isinstance(value, list):
        raise ArgumentError("invalid topic(s)")
    if len(value) > MAX_TOPICS_PER_POSITION:
        raise RpcError(INVALID_PARAMS, "exceed max topics")
    found = []
    for one in value:
        if one is None:
            return ()
        if not isinstance(one, str):
            raise ArgumentError("invalid topic(s)")
        found.append(read_sized(one, 32, "topic"))
    return tuple(found)


def _resolve_range(criteria: Criteria, bounds: Bounds | None, limits: Limits) -> tuple[int, int]:
    """From and to as numbers, in the order in which geth checks them."""
    start, end = criteria.from_block, criteria.to_block
    if isinstance(start, int) and isinstance(end, int) and start > end > 0:
        raise _reversed()
    if bounds is not None and limits.range_rule == "strict" and isinstance(start, int) and start < bounds.first:
        raise RpcError(PRUNED, f"pruned history unavailable: the first block indexed is {bounds.first}")
    if "pending" in (start, end):
        raise RpcError(INVALID_PARAMS, "pending logs are not supported")
    if bounds is None:
        raise RpcError(SERVER_ERROR, "head block not available: no block is indexed yet")
    return _clipped(start, end, bounds) if limits.range_rule == "clip" else _strict(start, end, bounds)


def _strict(start: BlockId, end: BlockId, bounds: Bounds) -> tuple[int, int]:
    """No block that is not indexed may be asked for. `latest` counts as later than any number or other tag."""
    if start == "latest" and end != "latest":
        raise _reversed()
    first, last = _number(start, bounds), _number(end, bounds)
    if first > last:
        raise _reversed()
    if last > bounds.head:
        raise RpcError(INVALID_PARAMS, "block range extends beyond current head block")
    return first, last


def _clipped(start: BlockId, end: BlockId, bounds: Bounds) -> tuple[int, int]:
    """The part of the range that is indexed; the first is above the last if there is none. `earliest` is below any number: a
    range from there to a block before the first one indexed is not reversed, but has nothing."""
    first, last = 0 if start == "earliest" else _number(start, bounds), _number(end, bounds)
    if first > last and (isinstance(end, int) or first <= bounds.head):
        raise _reversed()
    return max(first, bounds.first), min(last, bounds.head)


def _number(block: BlockId, bounds: Bounds) -> int:
    """Everything that is indexed is final, so all tags but the first mean the head."""
    if isinstance(block, int):
        return block
    return bounds.first if block == "earliest" else bounds.head


def _reversed() -> RpcError:
    return RpcError(INVALID_PARAMS, "invalid block range params")
