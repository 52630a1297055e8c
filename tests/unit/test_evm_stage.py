"""What the raw stage and the command line make of a node, and of how much is left; no Spark."""

import gzip
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chainlake.cli.main import main
from chainlake.demo.write import write_demo
from chainlake.errors import BadInput
from chainlake.lake.chains import Chain, Chains
from chainlake.lake.lake import Lake
from chainlake.lake.runner import ChainSummary
from chainlake.lake.visibility import LedgerView
from chainlake.raw.rules import Header
from chainlake.raw.stages import RawRun, raw_stages, settled
from chainlake.sources import rpc_client
from chainlake.sources.base import Cursor
from chainlake.sources.formats import DOMAIN_OF, check_options, format_of, left
from tests.unit.evm_node import FakeNode, serving
from tests.unit.sources_reading import cursor_of, good, read_batch


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeNode]:
    monkeypatch.setattr(rpc_client, "FIRST_PAUSE", 0.001)
    with serving(FakeNode(count=20)) as running:
        yield running


# A node that changes its mind


def header(height: int, name: bytes = b"a", parent: bytes = b"a") -> Header:
    return Header(height, height, name + b"%d" % height, parent + b"%d" % (height - 1), "http://node", height)


def test_blocks_that_follow_each_other_are_kept_and_an_outage_stays() -> None:
    headers = [header(5), header(6)]
    assert settled(headers, Cursor("", 0, 4, b"a4"), "down") == (headers, "down")
    assert settled(headers, None, None) == (headers, None)


def test_blocks_after_a_change_of_mind_are_for_the_next_run() -> None:
    headers = [header(5), header(6), header(7, b"b", b"b"), header(8, b"b", b"b")]
    kept, outage = settled(headers, Cursor("", 0, 4, b"a4"), None)
    assert kept == headers[:2]
    assert outage == "http://node went another way at block 7 while it was read: run again"
    assert settled(headers, Cursor("", 0, 4, b"c4"), None)[0] == []


def test_a_fork_that_was_planned_is_left_to_the_rules_of_linking() -> None:
    headers = [header(3, b"b"), header(4, b"b", b"b"), header(5, b"b", b"b")]
    assert settled(headers, Cursor("", 0, 4, b"a4"), None) == (headers, None)


# How much is left


def run_over(kind: str, paths: list[str], cursor: Cursor | None, options: dict[str, str] | None = None) -> RawRun:
    """A run as it is after `prepare`, without a lake."""
    run = object.__new__(RawRun)
    (run.stage,) = [stage for stage in raw_stages() if stage.kind == kind]
    run.view = LedgerView(())
    run.chain, run.kind, run.paths, run.cursor = "c", kind, paths, cursor
    run.options = {"c": options or {}}
    run.summaries = {"c": ChainSummary(run.stage.name, "c")}
    run.ahead = left(kind, paths, cursor, options or {})
    run.live = paths[0].startswith("http")
    run.exhausted = False
    return run


@pytest.mark.parametrize("kind", ["evm", "comet", "cardano", "raft", "river"])
@pytest.mark.parametrize("begun", [0, 1])
def test_the_bar_knows_about_how_many_blocks_there_will_be(kind: str, begun: int, tmp_path: Path) -> None:
    chain, *_ = write_demo(tmp_path, DOMAIN_OF[kind], "tiny")
    paths = format_of(kind).expand(str(chain.path))
    blocks = good(read_batch(kind, paths))[begun:]
    run = run_over(kind, paths, cursor_of(good(read_batch(kind, paths))[begun - 1]) if begun else None)
    assert run.expected() is None, "nothing is known before the first commit"
    for done in (max(1, len(blocks) // 2), len(blocks)):
        run.cursor = cursor_of(blocks[done - 1])
        run.summaries["c"].blocks = done
        expected = run.expected()
        assert expected is not None and abs(expected - len(blocks)) <= (0.4 if done < len(blocks) else 0.1) * len(blocks)


def test_what_is_left_of_packed_and_several_files_is_told_where_that_is_cheap(tmp_path: Path) -> None:
    lines = [b'{"a":%d}\n' % number for number in range(1000)]
    (tmp_path / "a.jsonl").write_bytes(b"".join(lines))
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(b"".join(lines)))
    paths = [str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl.gz")]
    size = len(b"".join(lines))
    assert left("evm", paths, None, {}) == 2 * size
    assert left("evm", paths, Cursor(paths[0], size - len(lines[-1]), 0, b""), {}) == size
    assert left("evm", paths, Cursor(paths[1], 100, 0, b""), {}) == size - 100
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(bytes(10_000)) + gzip.compress(b"x"))
    assert left("evm", paths, None, {}) is None, "only reading it would tell"
    assert left("evm", [str(tmp_path / "gone")], None, {}) is None


def test_a_run_over_a_node_ends_with_the_blocks_that_were_there_when_it_began(node: FakeNode) -> None:
    run = run_over("evm", [node.url], None)
    assert run.ahead == 20 and run.has_more()
    run.summaries["c"].blocks, run.cursor = 10, Cursor(node.url, 9, 9, b"")
    assert run.expected() == 20
    run.summaries["c"].blocks = 20
    assert not run.has_more()
    assert not run_over("evm", [node.url], Cursor(node.url, 19, 19, b"")).has_more()


# The network of a chain


class Control:
    """control.chains in memory."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def read(self, name: str) -> list[dict[str, Any]]:
        return self.rows

    def append(self, name: str, rows: list[dict[str, Any]]) -> None:
        self.rows += rows


def test_a_chain_keeps_its_cage_when_it_is_not_named_again_and_takes_no_other() -> None:
    chains = Chains(Control())  # type: ignore[arg-type]
    options = {"cage_policy": "ab" * 28, "genesis_complete": "true", "window": "10"}
    chains.add(Chain("c", "cardano", "a.chunk", options))
    chains.add(Chain("c", "cardano", "b.chunk", {}))
    assert chains.get("c") == Chain("c", "cardano", "b.chunk", {"cage_policy": "ab" * 28, "genesis_complete": "true"})
    chains.add(Chain("c", "cardano", "c.chunk", {"cage_policy": "0x" + "AB" * 28, "network": "testnet"}))
    for other in ({"cage_policy": "cd" * 28}, {"network": "mainnet"}):
        with pytest.raises(BadInput, match=r"chain 'c' has .*, not .*: choose another name for another cage"):
            chains.add(Chain("c", "cardano", "d.chunk", other))
    assert chains.get("c").source == "c.chunk"


def test_a_shard_keeps_what_it_is_when_it_is_not_said_again_and_results_as_long_as_its_source() -> None:
    chains = Chains(Control())  # type: ignore[arg-type]
    lasting = {"registry": "/n.jsonl", "app_hash": "placeholder", "mask": "3", "snapshot": "7"}
    chains.add(Chain("c", "comet", "/a.json", {**lasting, "results": "/r.json", "batch": "5"}))
    chains.add(Chain("c", "comet", "/a.json", {}))
    assert chains.get("c").options == {**lasting, "results": "/r.json"}
    chains.add(Chain("c", "comet", "/next.json", {}))
    assert chains.get("c").options == lasting, "results are of blocks of the file before"
    chains.add(Chain("c", "comet", "/next.json", {"app_hash": "tree", "registry": "/more.jsonl"}))
    assert chains.get("c").options == {**lasting, "app_hash": "tree", "registry": "/more.jsonl"}, "a remedy may be given"


def test_a_cardano_chain_keeps_its_clock() -> None:
    chains = Chains(Control())  # type: ignore[arg-type]
    clock = {"network_start": "1506203091", "byron_slots": "4492800"}
    chains.add(Chain("c", "cardano", "a.chunk", clock))
    chains.add(Chain("c", "cardano", "b.chunk", {}))
    assert chains.get("c").options == clock


def test_what_a_lake_remembers_of_a_shard_is_not_refused_as_an_option_that_nobody_knows(tmp_path: Path) -> None:
    chains, source = Chains(Control()), tmp_path / "next.json"  # type: ignore[arg-type]
    source.write_text("[]")
    chains.add(Chain("c", "comet", "/a.json", {"app_hash": "placeholder", "snapshot": "7"}))
    lake: Any = SimpleNamespace(chains=chains, chain=chains.get)
    made = Lake.add_chain(lake, "c", "comet", str(source), {"mask": "3"})
    assert made == Chain("c", "comet", str(source), {"app_hash": "placeholder", "snapshot": "7", "mask": "3"})
    with pytest.raises(BadInput, match="comet chains have no option 'snapshot'"):
        Lake.add_chain(lake, "c", "comet", str(source), {"snapshot": "9"})


def test_the_network_is_remembered_on_first_contact_and_survives_other_options(node: FakeNode) -> None:
    chains = Chains(Control())  # type: ignore[arg-type]
    chains.add(Chain("c", "evm", node.url, {"batch": "5"}))
    run = run_over("evm", [node.url], None)
    run.lake = SimpleNamespace(chains=chains)  # type: ignore[assignment]
    run._meet_network(chains.get("c"))
    assert chains.get("c").options == run.options["c"] == {"batch": "5", "chain_id": "7"}
    chains.add(Chain("c", "evm", "http://other", {}))
    assert chains.get("c") == Chain("c", "evm", "http://other", {"chain_id": "7"})
    node.chain_id = 8
    with pytest.raises(BadInput, match="has chain id 8, this chain has 7"):
        run._meet_network(chains.get("c"))
    chains.add(Chain("c", "evm", node.url, {"chain_id": "8"}))
    run._meet_network(chains.get("c"))


# The command line


class SparkStarts(Exception):
    """Instead of starting it."""


@pytest.fixture
def no_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise SparkStarts

    monkeypatch.setenv("LAKE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("chainlake.lake.open_lake", refuse)


def ingest(url: str, *options: str) -> int:
    return main(["ingest", "c", "--kind", "evm", "--from", url, *(part for one in options for part in ("--option", one))])


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize(
    ("url", "options", "code", "words"),
    [
        ("http://127.0.0.1:1", ["retries=0"], 1, "http://127.0.0.1:1 cannot be reached (Connection refused)"),
        ("http://me:pw@127.0.0.1:1", [], 2, "the URL has a password"),
        ("ws://127.0.0.1:1", [], 2, "give its http:// or https:// URL"),
        ("http://127.0.0.1:1/${NO_SUCH_KEY}", [], 2, "the environment variable NO_SUCH_KEY is not set"),
        ("http://127.0.0.1:1", ["finality=soon"], 2, "option finality is 'soon': finalized, safe or latest:N is expected"),
    ],
)
def test_a_node_that_cannot_be_used_is_one_line_before_spark_starts(
    url: str, options: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ingest(url, *options) == code
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.startswith("lake: ") and shown.err.count("\n") == 1 and words in shown.err


@pytest.mark.usefixtures("no_spark")
def test_a_node_that_answers_goes_as_far_as_spark(node: FakeNode, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SparkStarts):
        ingest(node.url)
    assert ingest(node.url, "chain_id=1") == 2
    assert "has chain id 7, this chain has 1" in capsys.readouterr().err
    node.finalized = None
    assert ingest(node.url) == 2
    assert "finality=latest:N" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("finality", "latest", "finalized, safe or latest:N is expected"),
        ("finality", "latest:-1", "finalized, safe or latest:N is expected"),
        ("from_block", "finalized", "a block number or finalized-N is expected"),
        ("from_block", "0x10", "a block number or finalized-N is expected"),
        ("header_env", "A-B", "the name of an environment variable is expected"),
        ("batch", "0", "a whole number of 1 or more is expected"),
        ("rate", "fast", "a whole number is expected"),
        ("chain_id", "0x1", "a whole number is expected"),
        ("env:KEY", "x", "have no option 'env:KEY'"),
    ],
)
def test_options_of_nodes_are_checked(option: str, value: str, words: str) -> None:
    with pytest.raises(BadInput) as error:
        check_options("evm", {option: value})
    assert words in str(error.value)


def test_good_options_of_nodes_are_accepted() -> None:
    check_options("evm", {"finality": "latest:64", "from_block": "finalized-1000", "header_env": "NODE_AUTH", "rate": "25"})
    check_options("evm", {"finality": "safe", "from_block": "17000000", "batch": "1", "timeout": "5", "max_response": "1000"})
