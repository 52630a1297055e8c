"""BLAKE2b-256, the hash of everything on Cardano."""

import hashlib

HASH = 32
_FRESH = hashlib.blake2b(digest_size=HASH)


def blake(data: bytes) -> bytes:
    """The hash of some bytes. A copy of a fresh state costs half as much as a new one, and trees are made of small hashes."""
    state = _FRESH.copy()
    state.update(data)
    return state.digest()
