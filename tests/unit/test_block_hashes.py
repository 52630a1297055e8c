"""Which hash a commit has at its last block: from the ledger where one ends there, else read once for all chains of a lane."""

from types import SimpleNamespace
from typing import Any

import pytest

from chainlake.lake.going_back import hash_at, hashes_at
from chainlake.lake.stage import Stage, Stages
from chainlake.lake.visibility import ADVANCE, ROLLBACK, LedgerView
from tests.unit.ledger_model import commit

RAW, BRONZE = Stage("raw.test", "test", ("raw.blocks",)), Stage("bronze.test", "test", (), ("raw.test",))
CHAINS = [f"c{number}" for number in range(1000)]
ROWS = [commit(ADVANCE, 0, 10, 1, stage="raw.test", chain=chain, block_hash=f"{chain} 10".encode()) for chain in CHAINS]
ROWS.append(commit(ROLLBACK, 10, 8, 2, stage="raw.test", chain="c7", block_hash=b"c7 8"))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, tuple[int, int]]]:
    """The questions that the blocks of the source were asked."""
    questions: list[dict[str, tuple[int, int]]] = []

    class Blocks:
        def __init__(self, *_: Any) -> None: ...

        def between(self, table: str, ranges: dict[str, tuple[int, int]]) -> Any:
            assert table == "raw.blocks"
            questions.append(ranges)
            rows = [(chain, bytearray(f"{chain} {high}".encode())) for chain, (_, high) in ranges.items() if chain != "c9"]
            return SimpleNamespace(select=lambda *_: SimpleNamespace(collect=lambda: rows))

    monkeypatch.setattr("chainlake.lake.going_back.Snapshot", Blocks)
    return questions


LAKE: Any = SimpleNamespace(stages=Stages((RAW, BRONZE)), spark=None, catalog=None)


def test_where_a_commit_ends_the_ledger_knows(asked: list[Any]) -> None:
    found = hashes_at(LedgerView(ROWS), LAKE, BRONZE, dict.fromkeys(CHAINS, 10) | {"c7": 8})
    assert found == {chain: f"{chain} {8 if chain == 'c7' else 10}".encode() for chain in CHAINS}
    assert asked == [{"c7": (7, 8)}], "its commit shows less than it held"


def test_within_commits_the_blocks_of_all_chains_are_read_once(asked: list[Any]) -> None:
    found = hashes_at(LedgerView(ROWS), LAKE, BRONZE, dict.fromkeys(CHAINS, 4))
    assert len(asked) == 1 and len(asked[0]) == len(CHAINS)
    assert found == {chain: f"{chain} 4".encode() for chain in CHAINS if chain != "c9"}
    assert hash_at(LedgerView(ROWS), LAKE, BRONZE, "c9", 4) is None, "not known"
