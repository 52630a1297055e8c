"""Blocks that a program gives one by one, over a lake that only remembers what it was asked to do."""

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chainlake.demo import evm
from chainlake.errors import BadInput, Degraded
from chainlake.lake.visibility import LedgerView
from chainlake.logs import ingest_finalized_block
from tests.unit.logs_lake import LogsLake

LINE = next(iter(evm.blocks(1, seed=8, logs_per_block=2)))


@dataclass
class Crashed:
    """A lake that kept a block, and ended before `bronze.logs` and `gold.logs` had it."""

    view: LedgerView
    stopped: set[str] = field(default_factory=set)
    ran: list[str] = field(default_factory=list)

    @property
    def ledger(self) -> "Crashed":
        return self

    @property
    def health(self) -> "Crashed":
        return self

    def read(self, stages: list[str]) -> LedgerView:
        return self.view

    def degraded(self) -> dict[tuple[str, str], str]:
        return {(stage, "main"): "a test" for stage in self.stopped}

    def require(self, stage: str, chains: list[str]) -> None:
        if stage in self.stopped:
            raise Degraded(f"{stage} {chains} is degraded")

    def run_stage(self, stage: str, chains: str) -> None:
        self.ran.append(stage)

    def table(self, name: str, chain: str) -> Any:
        class Rows:
            def filter(self, text: str) -> "Rows":
                return self

            def select(self, name: str) -> "Rows":
                return self

            def collect(self) -> list[tuple[bytes]]:
                return [(bytes.fromhex(LINE["block"]["hash"][2:]),)]

        return Rows()


@pytest.fixture
def crashed(tmp_path: Any) -> Crashed:
    lake = LogsLake(tmp_path, first=-1)
    lake.advance(1)
    return Crashed(LedgerView(lake.commits))


def test_a_block_that_was_kept_before_a_crash_is_indexed_when_it_is_given_again(crashed: Crashed) -> None:
    outcome = ingest_finalized_block(LINE, chain="main", lake=crashed)  # type: ignore[arg-type]
    assert outcome.known and outcome.head == 0 and crashed.ran == ["bronze.logs", "gold.logs"]


def test_a_known_block_of_a_chain_that_stopped_is_no_success(crashed: Crashed) -> None:
    crashed.stopped = {"bronze.logs"}
    with pytest.raises(Degraded, match=r"bronze.logs"):
        ingest_finalized_block(LINE, chain="main", lake=crashed)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["../../outside", "a/b", ".."])
def test_a_name_that_is_none_never_becomes_a_file(crashed: Crashed, tmp_path: Path, name: str) -> None:
    outside = tmp_path / "outside.jsonl"
    outside.write_text("what somebody else keeps here")
    (tmp_path / "home" / "given").mkdir(parents=True)
    crashed.chains = crashed.catalog = SimpleNamespace(all=dict, location=tmp_path / "home" / "warehouse")  # type: ignore[attr-defined]
    crashed.view = LedgerView(())
    with pytest.raises(BadInput):
        ingest_finalized_block(LINE, chain=name, lake=crashed)  # type: ignore[arg-type]
    assert outside.read_text() == "what somebody else keeps here" and list(tmp_path.glob("**/*.jsonl")) == [outside]
