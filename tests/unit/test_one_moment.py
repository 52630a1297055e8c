"""What a stage checks of itself reads one moment: writers go on, and what was read of two moments would not agree."""

from collections.abc import Iterable
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from chainlake.lake.ddl import load
from chainlake.logs import checks as logs
from chainlake.paths import tables_dir
from chainlake.replica import invariants as replica
from chainlake.shards import verify as shards
from chainlake.sync import checks as sync

CHECKS = [
    (shards, "shard_problems"),
    (shards, "placement_problems"),
    (replica, "replica_problems"),
    (sync, "delivery_problems"),
    (logs, "numbering_problems"),
    (logs, "index_problems"),
    (logs, "merge_problems"),
]
TABLES = load(tables_dir())


def stages_of(names: Iterable[str]) -> set[str]:
    return {stage for name in names for stage in TABLES[name].stages}


@pytest.mark.parametrize(("module", "name"), CHECKS, ids=[name for _, name in CHECKS])
def test_a_check_asks_the_lake_for_one_moment_and_reads_nothing_else(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str
) -> None:
    for given in ("F", "Window"):  # these need a session
        monkeypatch.setattr(module, given, MagicMock(), raising=False)
    now, asked = MagicMock(), list[list[str]]()
    now.ledger.is_overtaken.return_value = False
    frame = now.table.return_value
    frame.select.return_value.count.return_value = 0
    if module is sync:
        frame.agg.return_value.collect.return_value = [(None, None, 0, 0)]

    def moment(tables: list[str]) -> MagicMock:
        asked.append(tables)
        return now

    stored = SimpleNamespace(options={})
    lake: Any = SimpleNamespace(spark=MagicMock(), moment=moment, chain=lambda chain: stored)
    assert getattr(module, name)(lake, "c") == []
    (tables,) = asked
    read = {call.args[0] for call in (*now.table.call_args_list, *now.history.call_args_list)}
    assert read and stages_of(read) <= stages_of(tables), "what is read is in the moment"
