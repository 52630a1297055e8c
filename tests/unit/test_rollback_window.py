"""How far an operator may take a chain back without saying so twice."""

from types import SimpleNamespace
from typing import Any

import pytest

from chainlake.errors import BadInput
from chainlake.lake.rollback import check
from chainlake.lake.visibility import ADVANCE, LedgerView
from tests.unit.ledger_model import CHAIN, STAGE, commit

VIEW = LedgerView([commit(ADVANCE, -1, 5_000, 1)])


def go_back(height: int, force: bool = False, kind: str = "cardano", **options: str) -> None:
    lake: Any = SimpleNamespace(chain=lambda name: SimpleNamespace(kind=kind, options=options))
    stage: Any = SimpleNamespace(name=STAGE)
    check(lake, VIEW, stage, CHAIN, height, "a test", force)


def test_a_cardano_chain_goes_back_2160_blocks_and_further_only_by_force() -> None:
    go_back(5_000 - 2_160)
    with pytest.raises(BadInput, match="back 2161 blocks is more than its window of 2160: use --force if you mean it"):
        go_back(5_000 - 2_161)
    go_back(5_000 - 2_161, force=True)


def test_the_window_is_an_option_of_the_chain() -> None:
    go_back(4_990, window="10")
    with pytest.raises(BadInput, match="more than its window of 10"):
        go_back(4_989, window="10")


def test_chains_whose_blocks_are_final_have_no_window() -> None:
    for kind in ("raft", "comet", "evm"):
        go_back(0, kind=kind)


def test_no_force_goes_above_the_head_or_below_the_first_block() -> None:
    with pytest.raises(BadInput, match="the head is 5000"):
        go_back(5_001, force=True)
    with pytest.raises(BadInput, match="it starts after -1: give -1 or more"):
        go_back(-2, force=True)
