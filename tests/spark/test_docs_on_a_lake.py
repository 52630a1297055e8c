"""The commands and the SQL that README and docs show, carried out on the demo lake as a reader would."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from chainlake.cli.main import main
from chainlake.lake import open_lake
from chainlake.lake.sql import query
from chainlake.lake.sql_text import split_statements
from chainlake.paths import project_root
from tests.spark.docs_world import World, world
from tests.unit.docs_commands import PLACEHOLDERS, Shown, blocks, commands, documents, json_fields

OWN_TABLES = "adding-a-stage.md"
"""Its example makes tables of its own; tests/spark/test_adding_a_stage.py carries it out."""
SHOWN = [shown for shown in commands() if not shown.where.startswith(OWN_TABLES)]
QUERIES = [shown for shown in SHOWN if shown.arguments[0] == "sql"]
LAST = "19"
"""The last block of the demo chain, which is shorter in tests than a reader's."""

SNAPSHOT, ROOT = "shard-3.snapshot --chain shard-3 --from http://127.0.0.1:26657", PLACEHOLDERS["0x…"]
BACKFILL_PARAMS = [
    word
    for param in ("stage=bronze.logs", "chain=demo-evm", "from_height=120", "why=decoder fixed")
    for word in ("--param", param)
]
BACKFILL = shlex.join(["run", "backfill", *BACKFILL_PARAMS])
LAKE_UP = "a job of lake up, which made this lake"
NOT_HERE = {
    "run": LAKE_UP,
    "run cage": LAKE_UP,
    "run logs --param chain=NAME": "tests/spark/test_cli.py runs it after a rollback",
    BACKFILL: "tests/spark/test_product.py does a range again, tests/spark/test_cli.py runs the job",
    "verify": "notebooks/operate/verify.ipynb does it to all of this lake; below, a stage is verified",
    "compact": "notebooks/operate/compact.ipynb does it to all of this lake; below, a stage is compacted",
    "gc": "notebooks/operate/collect_garbage.ipynb does it, with the same days",
    "gc --retention-days 7": "the same as lake gc",
    "gc --vacuum": "vacuums 80 tables one by one; the option is tried with --dry-run",
    "bench kernel": "takes half an hour",
    "bench kernel --quick --json out.json": "takes minutes",
    "stop": "would end the server of all tests; tests/unit/test_docs.py runs it elsewhere",
    "abci --chain shard-3 --registry nodes.jsonl --listen 127.0.0.1:26658": "runs for ever; tests/unit/test_abci.py talks to it",
    "demo river --serve": "runs for ever; here its server runs in this process, for those that follow it",
    f"snapshot import {SNAPSHOT} --option registry=nodes.jsonl --root {ROOT}": "tests/spark/test_shards.py runs it",
}
"""Commands that are not carried out below, and why."""
FOR_EVER = "serve"
APART = ("sql", FOR_EVER)
WITH_FIELDS = ("audit", "rollback", "verify", "compact", "gc", "restore", "run", "ingest")
"""Their JSON is compared with what docs/operations.md promises."""
ORDER = ("README.md", "sources.md", "cage.md", "shards.md", "replica.md", "sync.md")
"""Documents whose commands are carried out here, one after the other."""
TO_SPARK = ("operations.md", "logs.md", "databricks.md")
"""Documents whose commands tests/unit/test_docs.py takes as far as Spark; most of them are README's too."""


def statements() -> list[tuple[str, str]]:
    """Queries in blocks of SQL, but those that leave something out."""
    texts = [
        (path.name, block) for path in documents() if path.name != OWN_TABLES for _, block in blocks(path.read_text(), "sql")
    ]
    found = [(name, text) for name, block in texts for text in split_statements(block)]
    return [(name, text) for name, text in found if not re.search("…|txid", text)]


@pytest.mark.parametrize("shown", QUERIES, ids=str)
def test_queries_on_the_command_line(shown: Shown, demo_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [LAST if word == "120" else word for word in shown.arguments]
    capsys.readouterr()
    code = main([*arguments, *(["--json"] if "--json" not in arguments else []), "--home", str(demo_home)])
    said = capsys.readouterr()
    assert code == 0, said.err
    rows = json.loads(said.out)
    assert isinstance(rows, list) and all(isinstance(row, dict) for row in rows)
    for name, value in ((name, value) for row in rows for name, value in row.items() if name.endswith("_hex")):
        assert value is None or re.fullmatch("0x([0-9a-f]{2})+", value), name


def test_queries_in_blocks_of_sql(demo_home: Path) -> None:
    lake, found = open_lake(demo_home), statements()
    assert len(found) >= 5
    for name, text in found:
        assert query(lake, text).columns, name


@pytest.fixture(scope="module")
def place(demo_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The directory that a reader stands in."""
    directory, before = tmp_path_factory.mktemp("reader"), os.getcwd()
    os.environ["NODE_KEY"] = "secret"
    with world(demo_home, directory) as found:
        os.chdir(directory)
        yield found
        os.chdir(before)
    del os.environ["NODE_KEY"]


def test_every_command_is_carried_out_or_on_the_list() -> None:
    elsewhere = [
        shown
        for shown in SHOWN
        if shown.arguments[0] not in ("sql", FOR_EVER) and shown.where.split(":")[0] not in (*ORDER, *TO_SPARK)
    ]
    assert [str(shown) for shown in elsewhere] == []
    assert set(NOT_HERE) <= {shlex.join(shown.arguments) for shown in SHOWN}, "no document shows this any more"


def carried_out(document: str) -> list[Shown]:
    """What is done of a document. What stands in several places is done once, a job in the last of them; the story of the
    replicas is told as it stands. Proofs come first: they may leave out the chain while there is one."""
    told = [shown for name in ORDER for shown in SHOWN if shown.where.split(":")[0] == name and shown.arguments[0] not in APART]
    wanted = [shown for shown in told if not any(shlex.join(shown.arguments) == text for text in NOT_HERE)]
    first = {shown.arguments: shown for shown in reversed(wanted)}
    last = {shown.arguments: shown for shown in wanted}
    chosen = [
        shown
        for shown in wanted
        if shown is (last if shown.arguments[0] == "run" else first)[shown.arguments] or shown.arguments[0] == "replica"
    ]
    return sorted(
        (shown for shown in chosen if shown.where.split(":")[0] == document), key=lambda one: one.arguments[0] != "prove"
    )


def test_servers_start_and_answer(place: World) -> None:
    """`lake serve` runs until it is stopped, so each form of it runs in a process of its own. (Before commands that make more
    chains: the questions leave out the chain where there is one.)"""
    shown = [shown.arguments for shown in SHOWN if shown.arguments[0] == FOR_EVER]
    assert len(shown) >= 3
    forms = dict.fromkeys(
        tuple("0" if before == "--port" else word for before, word in zip(("", *a), a, strict=False)) for a in shown
    )
    for arguments in forms:
        port = [] if "--port" in arguments else ["--port", "0"]
        command = [sys.executable, "-m", "chainlake.cli", *arguments, *port, "--home", str(place.home)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            try:
                assert process.stdout is not None
                url = re.search(r"http://\S+:\d+", process.stdout.readline())
                assert url is not None, arguments
                for example in examples_of_curl():
                    asked = example(url[0])
                    with urllib.request.urlopen(asked, timeout=30) as answer:
                        found = json.loads(answer.read())
                    assert found["result"] if asked.data else found, asked.data or asked.full_url
            finally:
                process.send_signal(signal.SIGTERM)
        assert process.returncode == 0


@pytest.mark.parametrize("document", ORDER)
def test_commands_do_what_the_documents_say(document: str, place: World, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    lines = (project_root() / ("" if document == "README.md" else "docs") / document).read_text().splitlines()
    assert carried_out(document)
    for shown in carried_out(document):
        name = shown.arguments[0]
        refused = re.search(r"# (still )?refused", lines[int(shown.where.split(":")[1]) - 1]) is not None
        as_json = ["--json"] if name in WITH_FIELDS and "--json" not in shown.arguments else []
        place.prepare(shown)
        capsysbinary.readouterr()
        code = main([*place.arguments(shown), *as_json])
        said = capsysbinary.readouterr()
        assert (code != 0) is refused or (name, code) == ("doctor", 1), f"{shown}: exit code {code}: {said.err.decode()}"
        assert b"Traceback" not in said.err and bool(said.out) is not refused, shown
        if name in WITH_FIELDS:
            found = json.loads(said.out)
            fields = {field for row in (found if isinstance(found, list) else [found]) for field in row}
            assert fields in (json_fields()[name], set()), shown


def examples_of_curl() -> list[Callable[[str], urllib.request.Request]]:
    """What the documents ask the gateway with curl, at an address."""
    texts = [block for path in documents() for _, block in blocks(path.read_text(encoding="utf-8"), "")]
    lines = [line for text in texts for line in re.findall(r"^curl (?:[^'\n]|'[^']*')+", text, re.MULTILINE)]
    assert len(lines) >= 5
    return [_request(shlex.split(line)) for line in lines]


def _request(words: list[str]) -> Callable[[str], urllib.request.Request]:
    """As curl would send it; without a header it says that data is of a form."""
    (path,) = (match[1] for word in words if (match := re.fullmatch(r"(?:http://)?(?:localhost|127\.0\.0\.1):8545(/.*|)", word)))
    values = {option: value for option, value in pairwise(words) if option in ("-d", "--data", "-H")}
    data = values.get("-d", values.get("--data"))
    name, _, value = values.get("-H", "").partition(": ")
    return lambda url: urllib.request.Request(url + path, data and data.encode(), {name: value} if name else {})
