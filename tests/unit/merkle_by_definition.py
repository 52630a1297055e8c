"""Roots of the two trees of the cage as their definitions say them, from scratch, with nothing of the code that they test."""

import hashlib
from collections.abc import Mapping


def blake(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=32).digest()


def mpf_root(items: Mapping[bytes, bytes]) -> bytes:
    """The root of a Merkle Patricia Forestry."""
    return _trie({blake(key).hex(): value for key, value in items.items()}, 0)


def _trie(items: Mapping[str, bytes], depth: int) -> bytes:
    """The hash over (path in hex: value) below a place."""
    if not items:
        return bytes(32)
    if len(items) == 1:
        [(path, value)] = items.items()
        rest = path[depth:]
        if len(rest) % 2:
            return blake(b"\x00" + bytes([int(rest[0], 16)]) + bytes.fromhex(rest[1:]) + blake(value))
        return blake(b"\xff" + bytes.fromhex(rest) + blake(value))
    first, last = min(items), max(items)
    end = next(at for at in range(depth, 64) if first[at] != last[at])
    level = [_trie({p: v for p, v in items.items() if p[end] == digit}, end + 1) for digit in "0123456789abcdef"]
    while len(level) > 1:
        level = [blake(one + two) for one, two in zip(level[::2], level[1::2], strict=True)]
    return blake(bytes(int(digit, 16) for digit in first[depth:end]) + level[0])


def csmt_root(items: Mapping[bytes, bytes]) -> bytes | None:
    """The root of a compact sparse Merkle tree; an empty one has none."""
    paths = {f"{int.from_bytes(key, 'big'):0{8 * len(key)}b}": value for key, value in items.items()}
    return blake(_tree(sorted(paths), paths, 0)) if paths else None


def _tree(paths: list[str], items: Mapping[str, bytes], depth: int) -> bytes:
    """The node over sorted paths (texts of bits) below a place, as it is hashed."""
    first, last = paths[0], paths[-1]
    if first == last:
        return _packed(first[depth:], blake(items[first]))
    end = next(at for at in range(depth, len(first)) if first[at] != last[at])
    left, right = ([path for path in paths if path[end] == side] for side in "01")
    return _packed(first[depth:end], blake(_tree(left, items, end + 1) + _tree(right, items, end + 1)))


def _packed(bits: str, value: bytes) -> bytes:
    padded = bits + "0" * (-len(bits) % 8)
    octets = bytes(int(padded[at : at + 8], 2) for at in range(0, len(padded), 8))
    return len(bits).to_bytes(2, "big") + octets + (32).to_bytes(2, "big") + value


def txin(tx_id: bytes, number: int) -> bytes:
    """CBOR `[id, number]`: the key of an output."""
    if number < 24:
        return b"\x82\x58\x20" + tx_id + bytes([number])
    size = 1 if number < 1 << 8 else 2 if number < 1 << 16 else 4
    return b"\x82\x58\x20" + tx_id + bytes([0x18 + size.bit_length() - 1]) + number.to_bytes(size, "big")
