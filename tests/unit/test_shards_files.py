"""Files beside the blocks (results, registries), and bad input on the command line."""

import gzip
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chainlake.cli.main import main
from chainlake.errors import BadInput, BrokenPromise
from chainlake.shards.nodes import SNAPSHOT, Known, check_past, holds_from, read_files, registries_of
from chainlake.shards.registry import NodeRecord
from chainlake.shards.results_file import read_results
from chainlake.shards.stages import _with_results
from chainlake.sources import comet

RESULTS = [{"height": str(height), "txs_results": None, "app_hash": ""} for height in range(1, 6)]


@pytest.mark.parametrize("form", ["array.json", "lines.jsonl", "lines.jsonl.gz", "answers.jsonl"])
def test_results_are_read_in_every_form_and_only_the_blocks_asked_for(tmp_path: Path, form: str) -> None:
    lines = [json.dumps({"jsonrpc": "2.0", "id": 1, "result": one} if "answers" in form else one) for one in RESULTS]
    text = json.dumps(RESULTS) if form == "array.json" else "\n".join(lines) + "\n\n"
    path = tmp_path / form
    path.write_bytes(gzip.compress(text.encode()) if form.endswith(".gz") else text.encode())
    found = read_results(str(path), 2, 4)
    assert list(found) == [3, 4]
    assert json.loads(found[3]).get("result", json.loads(found[3]))["height"] == "3"


@pytest.mark.parametrize("text", ["{", '[{"height": 5}]', '{"height": "x"}\n', "[1]"])
def test_results_that_cannot_be_read_are_refused_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(text)
    with pytest.raises(BadInput, match="check the option results"):
        read_results(str(path), 0, 10)
    with pytest.raises(BadInput, match="check the option results"):
        read_results(str(tmp_path / "missing.jsonl"), 0, 10)


def test_results_in_one_document_have_a_size_limit_with_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps(RESULTS))
    monkeypatch.setattr(comet, "MAX_DOCUMENT", 100)
    with pytest.raises(BadInput, match="more than 100 bytes: write one answer a line"):
        read_results(str(path), 0, 10)


def test_a_registry_may_grow_but_not_change_what_was_processed() -> None:
    first, second, late = (NodeRecord(bytes([n]) * 20, n, height) for n, height in ((1, 1), (2, 4), (3, 9)))
    assert [holds_from(one, 5) for one in (first, second, late)] == [6, 6, 9]
    check_past("c", "f", [first, second], [second, first])
    for given, what in (([first], "was in the registry f"), ([first, second, late], "was not in the registry f")):
        with pytest.raises(BrokenPromise, match=what) as broken:
            check_past("c", "f", [first, second], given)
        assert broken.value.chains == ["c"]


def test_a_chain_whose_snapshot_is_not_imported_to_its_end_waits_for_that() -> None:
    """Its block is in raw already, and silver would begin with no streams."""

    def known(first: int | None) -> Known:
        ledger = SimpleNamespace(of=lambda stage, chain: SimpleNamespace(first_height=lambda: first))
        rows = SimpleNamespace(select=lambda *columns: SimpleNamespace(collect=lambda: [("c", b"\x01" * 20, 1, 0)]))
        batch: Any = SimpleNamespace(
            ranges={"c": (7, 9)},
            options={"c": {SNAPSHOT: "7"}},
            snapshot=SimpleNamespace(ledger=ledger),
            state=lambda table: rows,
        )
        return registries_of(batch)

    with pytest.raises(BrokenPromise, match="is not imported yet: run lake snapshot import again") as broken:
        known(None)
    assert broken.value.chains == ["c"]
    assert known(6).registries["c"].index_of(b"\x01" * 20, 8) == 1


def test_a_file_that_is_no_use_is_told_of_the_shards_that_name_it(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    good.write_text(json.dumps({"address": "0x" + "ab" * 20, "permanent_index": 1, "from_height": 0}))
    bad.write_text("{}")
    assert list(read_files({"a": str(good), "b": "", "c": str(good)})) == [str(good)]
    with pytest.raises(BadInput, match=rf"^b, d: {bad}, line 1: address is None") as refused:
        read_files({"a": str(good), "b": str(bad), "c": "", "d": str(bad)})
    assert refused.value.chains == ["b", "d"]
    batch: Any = SimpleNamespace(ranges={"a": (0, 9), "b": (0, 9)}, options={"a": {}, "b": {"results": str(bad) + "?"}})
    with pytest.raises(BadInput, match=r"^b: the results .* cannot be read: .*: check the option results") as refused:
        _with_results(batch, None)  # type: ignore[arg-type]
    assert refused.value.chains == ["b"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["abci", "--chain", "c"],
        ["abci", "--chain", "c", "--registry", "/nowhere"],
        ["abci", "--chain", "c", "--registry", "/nowhere", "--listen", "nonsense"],
        ["abci", "--chain", "c", "--registry", "/nowhere", "--snapshot-every", "-1"],
        ["snapshot", "export", "c", "/tmp/nowhere/file"],
        ["snapshot", "import", "/nowhere", "--chain", "c", "--from", "http://127.0.0.1:1"],
        ["snapshot", "import", "/nowhere", "--chain", "c", "--from", "/nowhere"],
        ["snapshot", "import", "/nowhere", "--chain", "c", "--from", "http://127.0.0.1:1", "--root", "xyz"],
        ["snapshot", "import", "/nowhere", "--chain", "c", "--from", "http://127.0.0.1:1", "--option", "registrar=x"],
        ["prove", "shards", "c", "ab" * 32],
        ["prove", "shards", "c", "0x10"],
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*arguments, "--home", str(tmp_path / "home")]) == 2
    said = capsys.readouterr()
    assert said.err.count("\n") == 1 and said.err.startswith("lake: ") and said.out == ""


def test_an_id_that_is_typed_wrong_is_told_with_its_rule_and_where_ids_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prove", "shards", "c", "0x10"]) == 2
    said = capsys.readouterr().err
    assert "'0x10' is not the id of a stream: 64 hex digits (32 bytes) are expected" in said and "silver.streams" in said
