"""What a transaction of Cardano says that matters to the UTxO set and the cage: plain values, whatever the era."""

from typing import NamedTuple

SPEND, MINT = 0, 1


class TxIn(NamedTuple):
    """An output, by the transaction that made it and its number among its outputs. Sorts as the ledger sorts inputs."""

    tx_id: bytes
    number: int


class Asset(NamedTuple):
    """An amount of a token."""

    policy: bytes
    name: bytes
    quantity: int


class TxOut(NamedTuple):
    """An output. `raw` is its bytes as in the block: what the UTxO root commits to."""

    address: bytes
    lovelace: int
    assets: tuple[Asset, ...]
    datum_hash: bytes | None
    datum: bytes | None
    reference_script: bytes | None
    raw: bytes


class Redeemer(NamedTuple):
    """What a script is given: for the input (SPEND) or policy (MINT) at `place` in their sorted order."""

    tag: int
    place: int
    data: bytes


class Tx(NamedTuple):
    """A transaction. Inputs are in the order in which they are written; datums are those that its witnesses show."""

    tx_id: bytes
    is_valid: bool
    inputs: tuple[TxIn, ...]
    outputs: tuple[TxOut, ...]
    mints: tuple[Asset, ...] = ()
    collateral: tuple[TxIn, ...] = ()
    collateral_return: TxOut | None = None
    references: tuple[TxIn, ...] = ()
    redeemers: tuple[Redeemer, ...] = ()
    datums: tuple[bytes, ...] = ()

    def spends(self) -> tuple[TxIn, ...]:
        """The outputs that are gone after it, each once: an invalid one takes its collateral only."""
        return tuple(dict.fromkeys(self.inputs if self.is_valid else self.collateral))

    def creates(self) -> list[tuple[TxIn, TxOut]]:
        """The outputs that are there after it: of an invalid one only what it gives back of the collateral."""
        if self.is_valid:
            return [(TxIn(self.tx_id, index), output) for index, output in enumerate(self.outputs)]
        if self.collateral_return is None:
            return []
        return [(TxIn(self.tx_id, len(self.outputs)), self.collateral_return)]
