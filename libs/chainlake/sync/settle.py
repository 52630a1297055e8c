"""Where a server and our history agree, when its answer does not follow our head: walk back until a miniblock is one of ours."""

from collections.abc import Callable, Sequence

from chainlake.sync.fetch import Base, Head, pages
from chainlake.sync.service import StreamService

GROWTH = 4

Held = Callable[[Sequence[bytes]], set[bytes]]
Places = Sequence[tuple[int, bytes]]


def settled(head: Head, shown: Places, held: set[bytes]) -> Base | None:
    """The highest of the miniblocks shown that we hold, below where our own end."""
    for number, hash_ in reversed(shown):
        if number < head.minipool_gen and (hash_ in held or (number == 0 and hash_ == head.genesis_hash)):
            return Base(number, hash_)
    return None


def walk_back(service: StreamService, stream_id: bytes, low: int, stride: int) -> tuple[Places, bool]:
    """The places of up to `stride` miniblocks below `low`, and whether the server has none before them."""
    start = max(0, low - stride)
    places = [one.place for page in pages(service, stream_id, start, low) for one in page]
    return places, start == 0 or not places or places[0][0] > start


def settle(service: StreamService, stream_id: bytes, head: Head, shown: Places, held: Held, page_size: int) -> Base:
    """The base to fetch from, in strides that grow."""
    low, stride, is_all = shown[0][0], page_size, shown[0][0] == 0
    while (base := settled(head, shown, held([hash_ for _, hash_ in shown]))) is None:
        if is_all:
            return Base(-1, b"", low)
        shown, is_all = walk_back(service, stream_id, low, stride)
        low, stride = shown[0][0] if shown else low, stride * GROWTH
    return base
