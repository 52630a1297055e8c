"""ICS-23: the proof format of the Cosmos ecosystem, as far as sparse Merkle trees use it.

A proof of existence is a recipe: how a key and a value become a leaf hash, then one step per level up to the root. A proof of
absence is two such recipes, for the leaves left and right of the place where the key would be. A `ProofSpec` says which recipes
a verifier may accept; `ics23_verify` follows it.
"""

from dataclasses import dataclass, field
from enum import IntEnum

from chainlake.errors import BadInput
from chainlake.merkle.ics23_message import Message, wired


class HashOp(IntEnum):
    """How bytes are hashed."""

    NO_HASH = 0
    SHA256 = 1
    SHA512 = 2
    KECCAK256 = 3
    RIPEMD160 = 4
    BITCOIN = 5
    SHA512_256 = 6
    BLAKE2B_512 = 7
    BLAKE2S_256 = 8
    BLAKE3 = 9


class LengthOp(IntEnum):
    """How the length of a key or value is put before it."""

    NO_PREFIX = 0
    VAR_PROTO = 1
    VAR_RLP = 2
    FIXED32_BIG = 3
    FIXED32_LITTLE = 4
    FIXED64_BIG = 5
    FIXED64_LITTLE = 6
    REQUIRE_32_BYTES = 7
    REQUIRE_64_BYTES = 8


@dataclass(frozen=True)
class LeafOp(Message):
    """leaf = hash(prefix ‖ length(prehash_key(key)) ‖ length(prehash_value(value)))"""

    hash: HashOp = field(default=HashOp.NO_HASH, metadata=wired(1, HashOp))
    prehash_key: HashOp = field(default=HashOp.NO_HASH, metadata=wired(2, HashOp))
    prehash_value: HashOp = field(default=HashOp.NO_HASH, metadata=wired(3, HashOp))
    length: LengthOp = field(default=LengthOp.NO_PREFIX, metadata=wired(4, LengthOp))
    prefix: bytes = field(default=b"", metadata=wired(5, bytes))


@dataclass(frozen=True)
class InnerOp(Message):
    """parent = hash(prefix ‖ child ‖ suffix)"""

    hash: HashOp = field(default=HashOp.NO_HASH, metadata=wired(1, HashOp))
    prefix: bytes = field(default=b"", metadata=wired(2, bytes))
    suffix: bytes = field(default=b"", metadata=wired(3, bytes))


@dataclass(frozen=True)
class ExistenceProof(Message):
    """The key has the value. The path leads from the leaf to the root."""

    key: bytes = field(default=b"", metadata=wired(1, bytes))
    value: bytes = field(default=b"", metadata=wired(2, bytes))
    leaf: LeafOp | None = field(default=None, metadata=wired(3, LeafOp))
    path: tuple[InnerOp, ...] = field(default=(), metadata=wired(4, InnerOp, repeated=True))


@dataclass(frozen=True)
class NonExistenceProof(Message):
    """The key is not there: its neighbours are, and nothing is between them. At an edge one neighbour is missing."""

    key: bytes = field(default=b"", metadata=wired(1, bytes))
    left: ExistenceProof | None = field(default=None, metadata=wired(2, ExistenceProof))
    right: ExistenceProof | None = field(default=None, metadata=wired(3, ExistenceProof))


@dataclass(frozen=True)
class CommitmentProof(Message):
    """What travels: a proof of existence or of absence. Batches of proofs (fields 3 and 4 of the standard) are refused."""

    exist: ExistenceProof | None = field(default=None, metadata=wired(1, ExistenceProof))
    nonexist: NonExistenceProof | None = field(default=None, metadata=wired(2, NonExistenceProof))

    def __post_init__(self) -> None:
        if (self.exist is None) == (self.nonexist is None):
            raise BadInput("a proof says either that a key exists or that it does not: give one of exist, nonexist")


@dataclass(frozen=True)
class InnerSpec(Message):
    """What inner nodes look like: the order and size of the children, and what may stand before them."""

    child_order: tuple[int, ...] = field(default=(), metadata=wired(1, int, repeated=True))
    child_size: int = field(default=0, metadata=wired(2, int))
    min_prefix_length: int = field(default=0, metadata=wired(3, int))
    max_prefix_length: int = field(default=0, metadata=wired(4, int))
    empty_child: bytes = field(default=b"", metadata=wired(5, bytes))
    hash: HashOp = field(default=HashOp.NO_HASH, metadata=wired(6, HashOp))


@dataclass(frozen=True)
class ProofSpec(Message):
    """What a verifier of one kind of tree accepts."""

    leaf_spec: LeafOp = field(default=LeafOp(), metadata=wired(1, LeafOp))
    inner_spec: InnerSpec = field(default=InnerSpec(), metadata=wired(2, InnerSpec))
    max_depth: int = field(default=0, metadata=wired(3, int))
    min_depth: int = field(default=0, metadata=wired(4, int))
    prehash_key_before_comparison: bool = field(default=False, metadata=wired(5, bool))


SMT_SPEC = ProofSpec(
    leaf_spec=LeafOp(HashOp.SHA256, HashOp.SHA256, HashOp.SHA256, LengthOp.NO_PREFIX, b"\x00"),
    inner_spec=InnerSpec((0, 1), 32, 1, 1, bytes(32), HashOp.SHA256),
    max_depth=256,
    prehash_key_before_comparison=True,
)
