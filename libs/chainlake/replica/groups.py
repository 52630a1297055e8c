"""The groups of a replica: one Meta log, 32 shards of user data, one of shared data. And who is in which shard."""

from functools import lru_cache

from chainlake.sources.json_text import to_utf8

META = "meta"
OLD_META = ("meta:system", "meta:users", "meta:jobs")
"""The three logs that Meta was before they were united."""
USER_SHARDS = 32
USER_GROUPS = tuple(f"data:user:{shard:02d}" for shard in range(USER_SHARDS))
SHARED = "data:shared:00"
DATA_GROUPS = (*USER_GROUPS, SHARED)
GROUPS = (META, *DATA_GROUPS)
GROUP_IDS = {META: 10, **{name: 100 + shard for shard, name in enumerate(USER_GROUPS)}, SHARED: 200}
KNOWN = frozenset((*GROUPS, *OLD_META))

_MASK = (1 << 64) - 1


def is_meta(group: str) -> bool:
    """Whether the group's log changes Meta: the united one, or one of the three of before."""
    return group == META or group in OLD_META


@lru_cache(maxsize=1 << 16)
def group_of(user_id: str) -> str:
    """The data group that holds a user's rows."""
    return USER_GROUPS[siphash_1_3(to_utf8(user_id) + b"\xff") % USER_SHARDS]


def siphash_1_3(data: bytes) -> int:
    """SipHash with one compression and three finalisation rounds, both keys 0."""
    v = [0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573]
    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) & 0xFF])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        v[3] ^= word
        _round(v)
        v[0] ^= word
    v[2] ^= 0xFF
    for _ in range(3):
        _round(v)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def _round(v: list[int]) -> None:
    v[0], v[2] = (v[0] + v[1]) & _MASK, (v[2] + v[3]) & _MASK
    v[1], v[3] = _rotate(v[1], 13) ^ v[0], _rotate(v[3], 16) ^ v[2]
    v[0] = _rotate(v[0], 32)
    v[2], v[0] = (v[2] + v[1]) & _MASK, (v[0] + v[3]) & _MASK
    v[1], v[3] = _rotate(v[1], 17) ^ v[2], _rotate(v[3], 21) ^ v[0]
    v[2] = _rotate(v[2], 32)


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK
