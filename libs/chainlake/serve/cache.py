"""What was read once and may be needed again, within a bound of bytes."""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Generic, TypeVar

V = TypeVar("V")


@dataclass(frozen=True)
class CacheCounts:
    """How a cache has done since it was made."""

    hits: int
    misses: int
    evictions: int
    entries: int
    bytes: int
    max_bytes: int


class ByteCache(Generic[V]):
    """The least recently used values go first. The lock is held only while the dictionary is touched, never while loading."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._entries: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()
        self._lock = Lock()
        self._bytes = self._hits = self._misses = self._evictions = 0

    def get(self, key: Hashable) -> V | None:
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                self._misses += 1
                return None
            self._entries.move_to_end(key)
            self._hits += 1
            return entry[0]

    def get_all(self, keys: Sequence[Hashable]) -> list[V | None]:
        """The same of many keys at once: the lock is taken once."""
        found: list[V | None] = []
        with self._lock:
            for key in keys:
                entry = self._entries.get(key)
                if entry is not None:
                    self._entries.move_to_end(key)
                    self._hits += 1
                found.append(entry and entry[0])
            self._misses += sum(one is None for one in found)
        return found

    def put(self, key: Hashable, value: V, size: int) -> None:
        """Keep a value of `size` bytes; one that alone would break the bound is not kept."""
        with self._lock:
            old = self._entries.pop(key, None)
            self._bytes -= old[1] if old else 0
            if size > self._max_bytes:
                return
            self._entries[key] = (value, size)
            self._bytes += size
            while self._bytes > self._max_bytes:
                _, (_, freed) = self._entries.popitem(last=False)
                self._bytes -= freed
                self._evictions += 1

    def holds_all(self, keys: Sequence[Hashable]) -> list[bool]:
        """Which values are here, without counting as a use of them."""
        with self._lock:
            return [key in self._entries for key in keys]

    def counts(self) -> CacheCounts:
        with self._lock:
            return CacheCounts(self._hits, self._misses, self._evictions, len(self._entries), self._bytes, self._max_bytes)
