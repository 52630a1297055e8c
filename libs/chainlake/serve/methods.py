"""What a JSON-RPC method is to the dispatcher, and what it notes about a call for the log and the metrics."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from chainlake.serve.arguments import Reader


@dataclass(frozen=True)
class Raw:
    """A result that is JSON already."""

    text: bytes


@dataclass
class Note:
    """What became known while a call was answered."""

    query_id: str
    details: dict[str, Any] = field(default_factory=dict)
    candidates: Sequence[tuple[str, int]] = ()
    """Per clause of a log filter."""


@dataclass(frozen=True)
class Method:
    """A method by name. `run` gets the note of the call and one value per argument, and returns JSON values or Raw."""

    name: str
    run: Callable[..., Any]
    arguments: tuple[Reader, ...] = ()
    blocking: bool = True
    """Reads the index, so it runs in the pool."""
