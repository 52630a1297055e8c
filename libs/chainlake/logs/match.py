"""Whether logs are what a filter asks for, many at a time: the last word on every candidate."""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from chainlake.errors import BadInput
from chainlake.logs.packed import TOPICS, WIDTHS, Records, words_of
from chainlake.serve.arrays import Flags, flags, numbers, to_arrow_binary

if TYPE_CHECKING:
    from chainlake.logs.filter import LogFilter


class Matcher:
    """The exact check of address and topics. A log must have at least as many topics as the filter has positions."""

    def __init__(self, wanted: "LogFilter") -> None:
        if len(wanted.topics) > len(TOPICS):
            raise BadInput(f"a filter has at most {len(TOPICS)} topic positions, this one {len(wanted.topics)}")
        given = {"address": wanted.addresses, **dict(zip(TOPICS, wanted.topics, strict=False))}
        self._values = {name: tuple(dict.fromkeys(values)) for name, values in given.items() if values}
        for name, values in self._values.items():
            if any(len(value) != WIDTHS[name] for value in values):
                raise BadInput(f"a filter's {name} must have {WIDTHS[name]} bytes")
        self._topics = len(wanted.topics)
        implied = self._topics == 0 or bool(wanted.topics[-1])
        self.columns: tuple[str, ...] = (*self._values, *(() if implied else ("topic_count",)))
        """What the check looks at; none if every log matches."""

    def matches(self, rows: pa.Table) -> Flags:
        """Which rows of a table match."""
        found = np.ones(rows.num_rows, np.bool_)
        for name in self.columns:
            if name == "topic_count":
                found &= numbers(rows[name]) >= self._topics
            else:
                found &= flags(pc.is_in(rows[name], to_arrow_binary(self._values[name])))
        return found

    def fits(self, records: Records) -> Flags:
        """Which records match."""
        found = records["topic_count"] >= self._topics
        for name, values in self._values.items():
            found &= _any_of(records[name], words_of(name, values))
        return np.asarray(found, np.bool_)


def _any_of(words: npt.NDArray[Any], values: npt.NDArray[Any]) -> Flags:
    """Which rows of words are one of the values."""
    if len(values) == 1:
        return np.asarray((words == values[0]).all(axis=1), np.bool_)
    sums, wanted = _sums(words), _sums(values)
    order = np.argsort(wanted)
    near = np.searchsorted(wanted[order], sums)
    if len(np.unique(wanted)) < len(wanted):
        among = {value.tobytes() for value in values}
        return np.fromiter((row.tobytes() in among for row in words), np.bool_, len(words))
    place = order[np.minimum(near, len(order) - 1)]
    found = wanted[place] == sums
    found[found] = (words[found] == values[place[found]]).all(axis=1)
    return np.asarray(found, np.bool_)


def _sums(words: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """One number per row that tells most rows apart."""
    factors = np.array(
        [0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x27D4EB2F165667C5, 0x85EBCA77C2B2AE63], np.uint64
    )
    total = np.zeros(len(words), np.uint64)
    for place in range(words.shape[1]):
        total += words[:, place].astype(np.uint64) * factors[place]
    return total
