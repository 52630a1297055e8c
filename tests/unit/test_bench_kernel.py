"""The part of the kernel's benchmark that needs no Spark: a ledger filled the way the product writes it."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chainlake.bench import kernel
from chainlake.bench.kernel import CHAIN, Bench
from chainlake.lake.control import ControlTables
from chainlake.lake.deltalog import DeltaLog
from chainlake.lake.ledger import Ledger
from chainlake.lake.names import Namespace
from tests.unit.control_tables import commit_row, made_lake


def test_the_ledger_is_filled_by_real_appends_and_tells_how_far_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "TELL_EVERY", 10)
    made_lake(tmp_path, [{**commit_row(1, 0, 1), "stage": "silver.bench", "lane": CHAIN, "chain": CHAIN}])
    log = DeltaLog(None, "ledger", tmp_path / "warehouse" / "control" / "ledger")
    ledger = Ledger(Namespace(), ControlTables(None, Namespace(), tmp_path / "warehouse"), log)
    bench: Any = Bench.__new__(Bench)
    view = ledger.read()
    bench.lake = SimpleNamespace(ledger=ledger)
    bench.run = SimpleNamespace(view=view, head=lambda chain: view.of("silver.bench", chain).head(), refresh=lambda: None)
    last, first = bench._fill_ledger(30)
    commits = ledger.read().of("silver.bench", CHAIN).commits
    assert [(one.seq, one.base_height, one.height) for one in commits] == [(n, n - 1, n) for n in range(1, 32)]
    assert len([one for one in log.all() if one.mark.get("commit")]) == 30, "a version of the table each"
    assert last > 0 and first > 0
    told = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(one["phase"], one["rows"], one["of"]) for one in told] == [("fill", n, 30) for n in (10, 20, 30)]
