"""The parameters of a call, by position, with geth's words for what is missing, wrong or too many."""

from collections.abc import Callable, Sequence
from typing import Any

from chainlake.logs.filter import INVALID_PARAMS
from chainlake.logs.rpc_values import ArgumentError, RpcError, kind_of, wrong_type

Reader = Callable[[Any], Any]
"""Takes the JSON value of one parameter; raises ArgumentError."""


class OptionalArgument:
    """A parameter that may be left out; then it is None."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def __call__(self, value: Any) -> Any:
        return None if value is None else self._reader(value)


def read_arguments(params: Any, readers: Sequence[Reader]) -> list[Any]:
    """The values of `params`, one per reader."""
    if params is None:
        params = []
    if not isinstance(params, list):
        raise RpcError(INVALID_PARAMS, "non-array args")
    found = []
    for position, value in enumerate(params):
        if position >= len(readers):
            raise RpcError(INVALID_PARAMS, f"too many arguments, want at most {len(readers)}")
        try:
            found.append(readers[position](value))
        except ArgumentError as error:
            raise RpcError(INVALID_PARAMS, f"invalid argument {position}: {error}") from None
    for position in range(len(found), len(readers)):
        if not isinstance(readers[position], OptionalArgument):
            raise RpcError(INVALID_PARAMS, f"missing value for required argument {position}")
        found.append(None)
    return found


def read_filter_id(value: Any) -> str:
    """The id of an installed filter."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise wrong_type(kind_of(value), "rpc.ID")
    return value
