"""Where a server and our history agree, when its answers do not follow our heads: walk back until a miniblock is one of ours.

Many streams go back at once when a server is restored, so some thousand are settled together: each round looks up all hashes that
were shown in one go, and walks back further, in strides that grow, with those that are not settled yet.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from chainlake.sync.fetch import Base, Head, pages
from chainlake.sync.service import Refused, StreamService

GROWTH, THREADS = 4, 8
TOGETHER = 5_000
"""Streams settled at a time: what they show, a page each at first, is in memory at once."""

Held = Callable[[Sequence[bytes]], set[bytes]]
Places = Sequence[tuple[int, bytes]]


def settled(head: Head, shown: Places, held: set[bytes]) -> Base | None:
    """The highest of the miniblocks shown that we hold, on whichever branch."""
    for number, hash_ in reversed(shown):
        if hash_ in held or (number == 0 and hash_ == head.genesis_hash):
            return Base(number, hash_)
    return None


def walk_back(service: StreamService, stream_id: bytes, low: int, stride: int) -> Places | Refused:
    """The places of up to `stride` miniblocks below `low`, as far as they are sound."""
    sound: list[tuple[int, bytes]] = []
    bad: list[str] = []
    try:
        for page in pages(service, stream_id, max(0, low - stride), low):
            sound += [one.place for one in page if not one.opened.problem]
            bad += [f"miniblock {one.opened.number}: {one.opened.problem}" for one in page if one.opened.problem]
    except Refused as refusal:
        return refusal
    return Refused(bad[0]) if bad and not sound else sound


def settle_all(
    service: StreamService, heads: Mapping[bytes, Head], shown: Mapping[bytes, Places], held: Held, stride: int
) -> dict[bytes, Base | Refused]:
    """The base of each stream to fetch from, or why it cannot be found out."""
    ids = list(shown)
    parts = [ids[start : start + TOGETHER] for start in range(0, len(ids), TOGETHER)]
    found: dict[bytes, Base | Refused] = {}
    for part in parts:
        found |= _settle_together(service, heads, {stream_id: shown[stream_id] for stream_id in part}, held, stride)
    return found


def _settle_together(
    service: StreamService, heads: Mapping[bytes, Head], shown: Mapping[bytes, Places], held: Held, stride: int
) -> dict[bytes, Base | Refused]:
    found: dict[bytes, Base | Refused] = {}
    lows = {stream_id: places[0][0] for stream_id, places in shown.items()}
    waiting = dict(shown)
    while waiting:
        ours = held([hash_ for places in waiting.values() for _, hash_ in places])
        bases = {stream_id: settled(heads[stream_id], places, ours) for stream_id, places in waiting.items()}
        ended = {stream_id: Base(-1, b"", low) for stream_id, low in lows.items() if low == 0}
        found |= {stream_id: base or ended[stream_id] for stream_id, base in bases.items() if base or stream_id in ended}
        further = [stream_id for stream_id in waiting if stream_id not in found]
        step_back = partial(walk_back, service, stride=stride)
        with ThreadPoolExecutor(THREADS) as pool:
            steps = dict(zip(further, pool.map(step_back, further, map(lows.__getitem__, further)), strict=True))
        waiting = {}
        for stream_id, step in steps.items():
            if isinstance(step, Refused):
                found[stream_id] = step
            elif not step:
                found[stream_id] = Base(-1, b"", lows[stream_id])
            else:
                waiting[stream_id], lows[stream_id] = step, step[0][0]
        stride *= GROWTH
    return found


def left_line(heads: Mapping[bytes, Head], shown: Mapping[bytes, Places], bases: Mapping[bytes, Base]) -> str:
    """A warning about streams whose server no longer has what was seen of them: it went back, another way, or began anew."""
    stream_id, base = next(iter(bases.items()))
    common = f"both agree up to {base.number}" if base.number >= 0 else "both have nothing in common"
    stands = f"its last miniblock is {shown[stream_id][-1][0]}, {heads[stream_id].minipool_gen - 1} was seen before"
    return f"{len(bases)} streams no longer follow what was seen of them, such as {stream_id.hex()}: {stands}, {common}"
