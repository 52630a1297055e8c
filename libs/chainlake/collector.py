"""Folds in Spark's tasks without Python's search for cycles."""

import gc
from collections.abc import Callable, Iterator
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def without_collector(fold: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """A fold that is not interrupted by Python's search for cycles. It makes many small values and no cycles, so the search finds
    nothing and takes up to a third of the time."""

    @wraps(fold)
    def folded(*given: P.args, **named: P.kwargs) -> Iterator[T]:
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            yield from fold(*given, **named)
        finally:
            if was_enabled:
                gc.enable()

    return folded
