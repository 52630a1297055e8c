"""Meta as of an index: what a table or user was then, and whether a table has been dropped since."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from chainlake.replica.meta import TABLE, USER, Key, MetaChange


class TableAt(NamedTuple):
    """A table as of a Meta index. `created_index` tells this life of it from others of the same name, as it was counted last (a
    snapshot may count it anew); `dropped_index` is where this life ends, None if it has not ended yet."""

    columns: frozenset[str]
    primary_key: str
    created_index: int
    dropped_index: int | None


class _Version(NamedTuple):
    meta_index: int
    created_index: int
    definition: Mapping[str, Any] | None


class MetaHistory:
    """Versions of objects by Meta index. Changes of one object come by ascending index."""

    def __init__(self, changes: Iterable[MetaChange] = ()) -> None:
        self._versions: dict[Key, list[_Version]] = {}
        self._tables: dict[tuple[str, int], TableAt | None] = {}
        for change in changes:
            self.note(change)

    def note(self, change: MetaChange) -> None:
        """Take in a change."""
        made = change.object
        self.add(made.kind, made.id, change.meta_index, made.created_index, None if change.gone else made.definition)

    def add(self, kind: str, name: str, index: int, created_index: int, definition: Mapping[str, Any] | None) -> None:
        """Take in a version of an object; no definition means that it is gone."""
        self._versions.setdefault((kind, name), []).append(_Version(index, created_index, definition))
        self._tables.clear()

    def user(self, name: str, index: int) -> Mapping[str, Any] | None:
        """A user's definition as of an index."""
        versions = self._versions.get((USER, name), [])
        place = _place(versions, index)
        return versions[place].definition if place >= 0 else None

    def table(self, name: str, index: int) -> TableAt | None:
        """A table as of an index."""
        if (name, index) not in self._tables:
            self._tables[name, index] = self._table(name, index)
        return self._tables[name, index]

    def _table(self, name: str, index: int) -> TableAt | None:
        versions = self._versions.get((TABLE, name), [])
        place = _place(versions, index)
        found = versions[place].definition if place >= 0 else None
        if found is None:
            return None
        end = next((at for at in range(place + 1, len(versions)) if versions[at].definition is None), len(versions))
        ended = versions[end].meta_index if end < len(versions) else None
        return TableAt(frozenset(found["columns"]), found["primary_key"], versions[end - 1].created_index, ended)


def _place(versions: list[_Version], index: int) -> int:
    """The last version at or before an index; -1 if there is none."""
    return bisect_right(versions, index, key=lambda version: version.meta_index) - 1
