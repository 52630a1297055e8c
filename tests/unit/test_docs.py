"""What the documents say can be done, works: commands, code, links, names."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from chainlake.cli.command_tree import read_commands
from chainlake.cli.main import build_parser, main
from chainlake.lake.ddl import load
from chainlake.paths import PACKAGE, project_root, tables_dir
from chainlake.replica.query import GroupHealth, Health, Read
from chainlake.serve import cage, shards
from chainlake.stages import all_stages
from tests.unit.control_tables import commit_row, made_lake, with_control
from tests.unit.docs_commands import FENCE, Shown, blocks, commands, documents

COMMANDS = commands()
KNOWN = {command.name: command for command in read_commands(build_parser(), {})}
NO_SPARK = {"doctor", "completion", "tables", "demo", "stop", "status"}
RECORDS = {"audit", "resume"}
"""Commands that check what they are given and then want a lake's records, which are not there: exit code 2."""
MAKING = {"run", "ingest"}
SPARK = {"run", "sql", "ingest", "rollback", "verify", "compact", "gc", "restore", "events"}
"""Commands that check what they are given and then open a lake; but for those of MAKING, it has to be there. All others need one,
or a long time: they are parsed only."""

each_document = pytest.mark.parametrize("path", documents(), ids=lambda path: path.name)
each_command = pytest.mark.parametrize("shown", COMMANDS, ids=str)


class SparkStarted(Exception):
    """As far as one gets here."""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that examples name, and no Spark."""

    def refuse(*_: object, **__: object) -> None:
        raise SparkStarted

    for name in ("chainlake.lake.session.get_spark", "chainlake.lake.lake.get_spark", "chainlake.jobs.runner.execute_notebook"):
        monkeypatch.setattr(name, refuse)
    monkeypatch.setattr("chainlake.cli.jobs.run_jobs", refuse)
    monkeypatch.setenv("LAKE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "blocks").mkdir()
    (tmp_path / "blocks" / "1.jsonl").write_text("{}\n")
    return tmp_path


def test_the_documents_show_commands() -> None:
    assert len(COMMANDS) > 40
    assert {shown.arguments[0] for shown in COMMANDS} >= {"run", "sql", "rollback", "gc", "ingest", "serve", "doctor"}


@each_command
def test_every_command_parses(shown: Shown, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        build_parser().parse_args(list(shown.arguments))
    except SystemExit:
        pytest.fail(f"{shown}: {capsys.readouterr().err.splitlines()[-1]}")


@each_command
def test_every_command_does_its_work_or_gets_as_far_as_spark(
    shown: Shown, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, *rest = shown.arguments
    if name not in NO_SPARK | RECORDS | SPARK or "--serve" in rest or any("://" in word for word in rest):
        pytest.skip("needs a lake or a node: tests/spark/test_docs_on_a_lake.py carries it out, or says why not")
    for file in re.findall(r"(?:^|=)([\w.-]+\.(?:jsonl|gz|chunk))$", "\n".join(rest), re.MULTILINE):
        (place / file).write_text("{}\n")
    arguments = [*shown.arguments, *(["--home", str(place / "home")] if "--home" not in rest else [])]
    if name in NO_SPARK:
        code = main(arguments)
        assert code in ((0, 1) if name == "doctor" else (0,)), capsys.readouterr().err
    elif any(word.startswith("chain=") for word in rest) or (name == "compact" and "demo-evm" in rest):
        assert main(arguments) == 2 and "unknown chain" in capsys.readouterr().err
    elif name in RECORDS:
        assert main(arguments) == 2 and "there is no lake in" in capsys.readouterr().err
    else:
        if name not in MAKING and rest[:1] != ["add"]:
            assert main(arguments) == 2 and "there is no lake in" in capsys.readouterr().err
            with_control(made_lake(Path(arguments[arguments.index("--home") + 1]), [commit_row(1, 0, 1)]))
        with pytest.raises(SparkStarted):
            pytest.fail(f"{shown}: exit code {main(arguments)}: {capsys.readouterr().err}")


@each_document
def test_commands_in_sentences_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for words in re.findall(r"`lake ([^`]+)`", text):
        name = words.split()[0]
        if not re.fullmatch(r"[a-z]+", name):
            continue
        assert name in KNOWN, f"{path.name}: lake {words}"
        flags = {flag for option in KNOWN[name].options for flag in option.flags}
        assert set(re.findall(r"(?<!\S)\[?(--[a-z][a-z-]*)", words)) <= flags, f"{path.name}: lake {words}"


@each_document
def test_targets_of_make_exist(path: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (project_root() / "Makefile").read_text(), re.MULTILINE))
    text = path.read_text(encoding="utf-8")
    in_blocks = [block for _, block in blocks(text, "")]
    code = "\n".join(in_blocks + re.findall(r"`([^`\n]+)`", text))
    assert set(re.findall(r"^make ([a-z-]+)", code, re.MULTILINE)) <= targets


@each_document
def test_links_lead_somewhere(path: Path) -> None:
    for target, section in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", path.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        there = path.parent / target if target else path
        assert there.exists(), f"{path.name}: {target}"
        assert not section or section in anchors(there), f"{path.name}: {target}#{section}"


def anchors(path: Path) -> set[str]:
    """What can stand after the # in a link to a document."""
    heads = re.findall(r"^#+ (.+)$", FENCE.sub("", path.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


@each_document
def test_python_in_documents_is_python(path: Path) -> None:
    for line, code in blocks(path.read_text(encoding="utf-8"), "python"):
        compile(code.replace("…", "..."), f"{path.name}:{line}", "exec")


@each_document
def test_tables_and_stages_in_code_exist(path: Path) -> None:
    if path.name == "adding-a-stage.md":
        pytest.skip("its example makes tables and stages of its own")
    known = {*load(tables_dir()), "control.visible", *(stage.name for stage in all_stages())}
    text = path.read_text(encoding="utf-8")
    in_sentences = re.findall(r"`([^`\n]+)`", FENCE.sub("", text))
    code = "\n".join([*(block for _, block in blocks(text, "", "sql", "python")), *in_sentences])
    assert set(re.findall(r"\b(?:raw|bronze|silver|gold|control)\.\w+", code)) <= known


def test_every_document_is_in_the_list_of_documents() -> None:
    listed = (project_root() / "docs" / "README.md").read_text()
    for path in (project_root() / "docs").glob("*.md"):
        assert path.name == "README.md" or f"({path.name})" in listed, path.name


def test_the_readme_says_what_is_in_every_folder_and_file_of_the_library() -> None:
    table = (project_root() / "README.md").read_text().partition("## What is where")[2].partition("\n## ")[0]
    named = {name.rstrip("/").rpartition("/")[2] for name in re.findall(r"`([^`]+)`", table)}
    library = (path for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file())
    assert {path.name for path in library} - {"__init__.py"} <= named
    assert {"bundles", "dashboards", "docs", "notebooks", "scripts", "tables", "tests"} <= named


def test_environments_that_the_documents_make_are_ignored() -> None:
    """Else `make test` would look for style in their packages, and a deployment would send them to the workspace."""
    made = [name for path in documents() for name in re.findall(r"-m venv (\S+)", path.read_text(encoding="utf-8"))]
    ignored = (project_root() / ".gitignore").read_text().splitlines()
    assert made and {f"/{name}/" for name in made} <= set(ignored)


def test_every_route_of_the_gateway_is_documented() -> None:
    written = (project_root() / "docs" / "serve.md").read_text(encoding="utf-8")
    source = "\n".join(path.read_text() for path in (project_root() / "libs/chainlake/serve").glob("*.py"))
    said = re.findall(r"router\.add\(\"GET\", \"([^\"]+)\"", source)
    # Paths that are taken apart later: to answer them, or to refuse them in the words of the protocol.
    generic = {"/stream", "/streams/{a}", "/streams/{a}/{b}", "/streams/{a}/{b}/{c}"}
    routes = {*said, *cage.PATHS, *cage.PROOFS, *shards.PATHS} - generic - {"/static/{name}"}
    assert len(routes) > 20 and generic < set(shards.PATHS)
    for route in sorted(routes):
        assert re.search(rf"`(GET )?{re.escape(route)}[`?]", written), route


def test_the_page_names_every_kind_of_proof_that_it_can_fetch() -> None:
    page = (project_root() / "libs/chainlake/serve/static/index.html").read_text()
    for route in (*cage.PROOFS, "/stream/{id}/proof"):
        shape = re.escape(route).replace(r"\{txin\}", "TXID%23INDEX")
        assert re.search(re.sub(r"\\\{\w+\\\}", "[A-Z]+", shape), page), route


def test_json_of_replicas_is_documented_field_by_field() -> None:
    section = (project_root() / "docs" / "replica.md").read_text().partition("## Reading")[2].partition("\n## ")[0]
    for kind in (Health, GroupHealth, Read):
        for field in fields(kind):
            assert f"`{field.name}`" in section, f"{kind.__name__}.{field.name}"
