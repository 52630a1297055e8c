"""The hashes of river: Keccak-256 over a frame that says what is hashed and how long it is."""

import sha3

EVENT, SNAPSHOT = b"CSBLANCA", b"SNAPSHOT"


def river_hash(data: bytes, prefix: bytes = EVENT) -> bytes:
    """The hash of an event as sent, or of a snapshot (prefix `SNAPSHOT`)."""
    digest: bytes = sha3.keccak_256(prefix + len(data).to_bytes(8, "little") + b"ABCDEFG>" + data + b"<GFEDCBA").digest()
    return digest
