"""Questions to a reader of the cage, answered by the replay."""

import random
from typing import Any

import pytest

from chainlake.cage.datums import Request, State
from chainlake.cage.reader import CageReader
from chainlake.cage.transaction import TxIn
from chainlake.demo.cage_world import POLICY
from chainlake.errors import BadInput
from chainlake.merkle import csmt, mpf
from tests.unit.cage_replay import Replay


def same_head(reader: CageReader, state: Replay) -> None:
    """All tokens, facts, requests and outputs at the head, as the replay has them."""
    names = (*State._fields, "created_height", "updated_height", "tracked")
    assert {row["token_id"]: tuple(row[name] for name in names) for row in reader.tokens()} == {
        token: (*known.state, known.created_height, known.updated_height, known.tracked) for token, known in state.tokens.items()
    }
    for token in (token for token, known in state.tokens.items() if known.tracked):
        assert {row["key"]: row["value"] for row in reader.facts(token)} == state.facts[token]
    wishes = {TxIn(row["tx_id"], row["tx_index"]): Request(*(row[n] for n in Request._fields)) for row in reader.requests()}
    assert wishes == state.requests
    rows = [row for address in {output.address for output in state.utxos.values()} for row in reader.utxos_of(address)]
    assert {TxIn(row["tx_id"], row["tx_index"]): (row["lovelace"], row["created_height"]) for row in rows} == {
        place: (output.lovelace, state.created[place]) for place, output in state.utxos.items()
    }


def ask(reader: CageReader, history: list[tuple[Replay, Any]], rng: random.Random, heights: int = 6) -> None:
    """Queries and proofs of some heights, as the replay says, and as the plain verifiers accept."""
    for height in sorted(rng.sample(range(len(history)), min(heights, len(history)))):
        state = history[height][0]
        root = state.utxo_root()
        assert reader.block(height)["utxo_root"] == root
        assert {row["token_id"] for row in reader.tokens(height)} == set(state.tokens)
        for token, known in state.tokens.items():
            if not known.tracked:
                with pytest.raises(BadInput, match=r"was filled before the first block of .*, or in another cage"):
                    rng.choice((reader.facts, lambda one, at: reader.prove_fact(one, b"k", at)))(token, height)
                continue
            facts = {row["key"]: row["value"] for row in reader.facts(token, height)}
            assert facts == state.facts[token]
            for key in [*rng.sample(sorted(facts), min(2, len(facts))), b"never there"]:
                proven = reader.prove_fact(token, key, height)
                assert proven.value == facts.get(key)
                again = mpf.Proof.from_bytes(proven.proof.to_bytes())
                assert mpf.verify(state.tokens[token].state.root, key, facts.get(key), again)
        assert {(row["tx_id"], row["tx_index"]) for row in reader.requests(height)} == set(state.requests)
        for place in [
            *rng.sample(sorted(state.utxos), 3),
            TxIn(b"\x09" * 32, 1),
            TxIn(rng.choice(sorted(state.utxos)).tx_id, 900),
        ]:
            shown = reader.prove_utxo(place, height)
            value = state.utxos[place].raw if place in state.utxos else None
            assert (
                csmt.verify(root, csmt.txin_key(*place), value, csmt.Proof.from_bytes(shown.proof.to_bytes()))
                and shown.value == value
            )
        address = rng.choice(list(state.utxos.values())).address
        owned = {place for place, output in state.utxos.items() if output.address == address}
        assert {(row["tx_id"], row["tx_index"]) for row in reader.utxos_of(address, height)} == owned
        held = {place for place, output in state.utxos.items() if any(asset.policy == POLICY for asset in output.assets)}
        assert {(row["tx_id"], row["tx_index"]) for row in reader.utxos_with(POLICY, None, height)} == held
