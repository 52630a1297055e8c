"""BLAKE2b-256, the hash of everything on Cardano."""

import hashlib

HASH = 32
fresh = hashlib.blake2b(digest_size=HASH).copy
"""A new state: to copy one costs half as much as to make it, and trees are made of small hashes. Loops do without `blake`."""


def blake(data: bytes) -> bytes:
    """The hash of some bytes."""
    state = fresh()
    state.update(data)
    return state.digest()
