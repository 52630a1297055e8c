"""The web page: what it is allowed to do, what it is told of the lake, and what it makes of it."""

import base64
import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from chainlake.encoding import to_hex
from chainlake.lake.visibility import Commit, History, LedgerView
from chainlake.serve import overview
from chainlake.serve.control import LakeControl
from chainlake.serve.embedded import EmbeddedLake
from chainlake.serve.gateway import Gateway
from chainlake.serve.no_logs import NoLogs
from chainlake.serve.router import Request, Response, json_response
from chainlake.serve.settings import Settings
from chainlake.serve.web import STATIC, TYPES, wants_html
from tests.unit.control_tables import commit_row, made_lake
from tests.unit.serve_memory import Caller, MemoryControl, MemoryEngine, make_blocks, make_caller, serving
from tests.unit.test_serve_http import Address, fetch
from tests.unit.web_browser import Tab, open_tab

START = datetime(2026, 1, 31, tzinfo=timezone.utc)
EVIL = "<img src=x onerror=alert(1)>\"'&"
BROWSER = "text/html,application/xhtml+xml,*/*;q=0.8"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
VIEW = Path(str(STATIC)) / "view.js"


def commit(seq: int, kind: str, base: int, height: int, stage: str = "raw.logs", chain: str = "demo", **more: Any) -> Commit:
    at = START + timedelta(minutes=seq)
    return Commit(stage, chain, chain, seq, seq, kind, base, height, 1, at, rows={"raw_blocks": abs(height - base)}, **more)


LEDGER = [
    commit(1, "advance", 0, 100),
    commit(2, "advance", 100, 200),
    commit(3, "rollback", 200, 150, why=EVIL),
    commit(4, "advance", 150, 220),
    commit(5, "compact", 220, 120),
    commit(1, "advance", 0, 120, stage="bronze.logs", inputs={"raw.logs": 2}),
    commit(1, "advance", 0, 7, chain=EVIL),
]
HEALTH = [{"stage": "bronze.logs", "chain": "demo", "status": "degraded", "reason": EVIL, "at": START}]


@pytest.fixture(scope="module")
def page() -> Iterator[Address]:
    control = MemoryControl(list(LEDGER), {"health": list(HEALTH)})
    with serving(make_caller(MemoryEngine(make_blocks(10)), control)) as address:
        yield address


def test_browsers_get_the_page_and_programs_the_text(page: Address) -> None:
    status, headers, body = fetch(page, Accept=BROWSER)
    assert status == 200 and headers["Content-Type"].startswith("text/html") and body.startswith(b"<!doctype html>")
    status, headers, body = fetch(page, Accept="*/*")
    assert headers["Content-Type"].startswith("text/plain") and b"eth_getLogs" in body and b"/lake/status.json" in body
    assert not wants_html("") and not wants_html("application/json, text/htmlish") and wants_html("TEXT/HTML;q=0.1")


def test_a_lake_without_logs_does_not_name_another_chain_as_theirs() -> None:
    control = MemoryControl([commit(1, "advance", 0, 7, "silver.shards", "shard-3")])
    caller = Caller(Gateway("shard-3", NoLogs(), control, Settings(port=0)), MemoryEngine([]), StringIO())
    with serving(caller) as address:
        assert json.loads(fetch(address, "/lake/status.json")[2])["chain"] is None
        text = fetch(address)[2].decode()
        assert "logs of shard-3" not in text and "no evm chain" in text


def test_the_policy_allows_nothing_but_our_own_files(page: Address) -> None:
    for path in ("/", *(f"/static/{name}" for name in TYPES), "/lake/status.json"):
        _, headers, _ = fetch(page, path, Accept=BROWSER)
        policy = dict(part.split(None, 1) for part in headers["Content-Security-Policy"].split("; "))
        assert policy["default-src"] == "'none'" and policy["frame-ancestors"] == "'none'"
        assert policy["script-src"] == policy["connect-src"] == policy["style-src"] == "'self'"
        assert headers["X-Content-Type-Options"] == "nosniff"


class Loaded(HTMLParser):
    """What a page loads, and what it would run inline."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.inline: list[str] = []
        self.labelled = self.fields = 0
        self.nameless: list[dict[str, str | None]] = []
        self._in_label = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.addresses += [value for name, value in attrs if name in ("src", "href") and value]
        self.inline += [name for name in given if name.startswith("on") or name == "style"]
        self.inline += [tag] if tag == "style" or (tag == "script" and "src" not in given) else []
        if "tabindex" in given and not (given.get("role") and (given.get("aria-label") or given.get("aria-labelledby"))):
            self.nameless.append(given)
        self._in_label = self._in_label or tag == "label"
        if tag in ("input", "textarea"):
            self.fields += 1
            self.labelled += self._in_label

    def handle_endtag(self, tag: str) -> None:
        self._in_label = self._in_label and tag != "label"


def test_the_page_asks_nobody_else_and_every_field_has_a_label(page: Address) -> None:
    loaded = Loaded()
    loaded.feed(fetch(page, Accept=BROWSER)[2].decode())
    assert loaded.inline == [], "the policy would refuse it"
    assert all(address.startswith(("/", "#")) and not address.startswith("//") for address in loaded.addresses)
    for address in (one for one in loaded.addresses if one.startswith("/static/")):
        assert fetch(page, address)[0] == 200
    assert loaded.fields == loaded.labelled == 9
    assert loaded.nameless == [], "whoever comes here by the keyboard is not told what it is"
    for name in ("lake.js", "view.js", "lake.css"):
        text = (STATIC / name).read_text()
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|@import|url\(", text), name


def test_scripts_never_make_markup_of_what_they_are_told() -> None:
    for name in ("lake.js", "view.js"):
        text = (STATIC / name).read_text()
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|setTimeout\(\"", text)


def test_only_the_files_of_the_page_are_served(page: Address) -> None:
    for name in ("web.py", "..%2fweb.py", "%2e%2e%2fgateway.py", "nothing"):
        assert fetch(page, f"/static/{name}")[0] == 404
    assert fetch(page, "/static/lake.js", "POST", b"")[0] == 405


def test_the_status_tells_of_all_stages_and_the_stopped_first(page: Address) -> None:
    status = json.loads(fetch(page, "/lake/status.json")[2])
    assert [(one["stage"], one["chain"]) for one in status["stages"]] == [
        ("bronze.logs", "demo"),
        ("raw.logs", EVIL),
        ("raw.logs", "demo"),
    ]
    bronze, _, raw = status["stages"]
    assert (bronze["health"], bronze["reason"], bronze["lag"]) == ("degraded", EVIL, 100)
    assert (raw["head"], raw["commits"], raw["rollbacks"], raw["lag"], raw["health"]) == (220, 3, 1, 0, "ok")
    assert status["degraded"] == 1 and status["leftOff"] == 0 and status["chain"] == "test-chain"


def test_a_very_long_list_is_cut_and_says_so() -> None:
    many = LedgerView(commit(1, "advance", 0, 5, chain=f"shard-{number}") for number in range(overview.MOST_STAGES + 7))
    found = overview.overview(many, [])
    assert len(found["stages"]) == overview.MOST_STAGES and found["leftOff"] == 7
    history = History(commit(seq, "advance", seq - 1, seq) for seq in range(1, 1001))
    assert [row["seq"] for row in overview.commits(history)["commits"]] == list(range(701, 1001))
    assert overview.commits(history)["leftOff"] == 700


def test_the_ledger_tells_how_far_each_commit_can_be_seen(page: Address) -> None:
    status, _, body = fetch(page, "/lake/ledger.json?stage=raw.logs&chain=demo")
    rows = json.loads(body)["commits"]
    assert status == 200 and [row["visibleTo"] for row in rows] == [100, 150, None, 220, None]
    assert rows[2]["why"] == EVIL and rows[2]["kind"] == "rollback"
    status, _, body = fetch(page, "/lake/ledger.json?stage=raw.logs&chain=nobody")
    assert status == 400 and "no commits of chain" in json.loads(body)["error"]
    assert fetch(page, "/lake/ledger.json")[0] == 400


def test_a_lake_on_disk_is_followed_while_it_changes(tmp_path: Path) -> None:
    def status() -> dict[str, Any]:
        found = json.loads(fetch(address, "/lake/status.json")[2])
        return {one["stage"]: (one["head"], one["commits"], one["rollbacks"]) for one in found["stages"]}

    made_lake(tmp_path, [commit_row(1, 0, 9)])
    control = LakeControl(EmbeddedLake(tmp_path))
    with serving(make_caller(MemoryEngine(make_blocks(1)), control)) as address:
        assert status() == {"raw.logs": (9, 1, 0)}
        made_lake(tmp_path, [{**commit_row(2, 9, 4), "kind": "rollback", "why": "a fork"}], mode="append")
        deadline = time.monotonic() + 10
        while status() != {"raw.logs": (4, 1, 1)}:
            assert time.monotonic() < deadline, "the page still shows the old head"
            time.sleep(0.2)


RIGHT_OF_LAST = "Math.max(...[...document.querySelectorAll('#timeline rect')].map((one) => one.getBoundingClientRect().right))"


def run_view(expression: str) -> Any:
    """What an expression over view.js gives, in node."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed: the page's functions are not run")
    program = f"import * as v from {json.dumps(VIEW.as_uri())}; console.log(JSON.stringify({expression}));"
    done = subprocess.run([node, "--input-type=module", "-e", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_timeline_shows_what_rollbacks_hid() -> None:
    rows = overview.commits(History(LEDGER[:5]))["commits"]
    shapes = run_view(f"v.timelineShapes({json.dumps(rows)})")
    assert [one["kind"] for one in shapes["shapes"]] == ["seen", "seen", "hidden", "rollback", "seen", "compact"]
    assert (shapes["low"], shapes["high"]) == (0, 220)
    first, second, hidden, back, _, _ = shapes["shapes"]
    assert first["y"] == pytest.approx(second["y"] + second["height"]), "seq 2 begins where seq 1 ends"
    assert hidden["y"] + hidden["height"] == pytest.approx(second["y"]), "what is hidden lies above what is seen"
    assert back["y2"] > back["y1"], "a rollback points down"
    assert all(0 <= one["x"] <= 960 for one in shapes["shapes"]) and EVIL in back["label"]
    assert max(one["x"] for one in shapes["shapes"]) < shapes["end"] <= 960, "what has to be in view for the newest to be"
    assert run_view("v.timelineShapes([])")["shapes"] == []


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, {"fromBlock": "latest", "toBlock": "latest"}),
        ({"from": "16", "to": " latest "}, {"fromBlock": "0x10", "toBlock": "latest"}),
        ({"address": "0xaa, 0xbb"}, {"fromBlock": "latest", "toBlock": "latest", "address": ["0xaa", "0xbb"]}),
        ({"topic1": "0x01"}, {"fromBlock": "latest", "toBlock": "latest", "topics": [None, "0x01"]}),
    ],
)
def test_fields_become_the_filter_of_eth_get_logs(fields: dict[str, str], wanted: dict[str, Any]) -> None:
    assert run_view(f"v.filterOf({json.dumps(fields)})") == wanted


def test_a_proof_of_any_tree_is_shown_step_by_step() -> None:
    ics23 = {"exist": {"key": "aa", "value": "bb", "leaf": {"hash": "SHA256"}, "path": [{"prefix": "01"}, {"suffix": "02"}]}}
    found = run_view(f"v.proofParts({json.dumps(ics23)})")
    assert found["facts"] == [["exist.key", "aa"], ["exist.value", "bb"], ["exist.leaf.hash", "SHA256"]]
    assert found["lists"] == [{"name": "exist.path", "steps": [[["prefix", "01"]], [["suffix", "02"]]]}]
    forestry = [{"type": "branch", "skip": 0, "neighbors": "ff"}, {"type": "leaf", "neighbor": {"key": "aa"}}]
    (steps,) = run_view(f"v.proofParts({json.dumps(forestry)})")["lists"]
    assert steps["steps"][1] == [["type", "leaf"], ["neighbor.key", "aa"]]
    assert run_view("v.proofParts(null)")["facts"] == [["proof", "null"]]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("/stream/00/proof?a=1", "/stream/00/proof?a=1"),
        ("//evil.example/x", None),
        ("https://evil.example", None),
        ("/\\evil.example", None),
        ("javascript:alert(1)", None),
    ],
)
def test_proofs_are_fetched_from_this_server_only(text: str, path: str | None) -> None:
    assert run_view(f"v.ownPath({json.dumps(text)}, 'http://127.0.0.1:8545')") == path


def test_a_plan_is_told_in_sentences() -> None:
    clauses = [
        {"field": "topic0", "values": 2, "estimate": None, "actual": None, "order": None, "used": "exact check"},
        {"field": "address", "values": 1, "estimate": 7, "actual": 6, "order": 1, "used": "index"},
    ]
    plan = {"plan": "index", "first_block": 0, "last_block": 9, "log_ids": 40, "segments": 1, "clauses": clauses}
    told = run_view(f"v.planSentences({json.dumps({**plan, 'candidates': 6, 'results': 5, 'steps': {'plan': 0.5}})})")
    assert told[2:4] == ["address (1 value), about 7 expected, 6 found: index.", "topic0 (2 values): exact check."]
    assert told[-1] == "Time: plan 0.50 ms."


@pytest.mark.parametrize(
    ("shown", "told"),
    [
        ("1, 1, false", "1 log:"),
        ("50, 513, true", "The first 50 of 513 logs:"),
        ("50, 50, true", "The first 50 logs:"),
        ("50, null, true", "The first 50 logs:"),
        ("50, 12345, true", "The first 50 of 12,345 logs:"),
    ],
)
def test_a_cut_list_says_of_how_many(shown: str, told: str) -> None:
    assert run_view(f"v.logCount({shown})") == told


@pytest.fixture(scope="module")
def tab(page: Address, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    """The page in a real browser, as wide as a phone."""
    if CHROMIUM is None:
        pytest.skip("chromium is not installed (Debian: apt install chromium): the page is not opened in a browser")
    with open_tab(CHROMIUM, f"http://{page[0]}:{page[1]}/", tmp_path_factory.mktemp("chromium")) as found:
        yield found


def test_a_browser_shows_stages_ledger_and_health(tab: Tab) -> None:
    assert tab.wait("document.querySelectorAll('#stage-rows tr').length") == 3
    assert tab.wait("document.querySelectorAll('#timeline svg').length") == 1
    assert tab.run("document.querySelector('#timeline text').getBoundingClientRect().height") >= 11, "to be read on a telephone"
    assert tab.run(f"{RIGHT_OF_LAST} <= document.querySelector('#timeline').getBoundingClientRect().right"), "the newest is seen"
    assert tab.run("document.getElementById('health').textContent") == "1 stage has stopped; an operator is needed."
    tab.run("[...document.querySelectorAll('#stage-rows button')][2].click()")
    assert tab.wait("document.querySelectorAll('#timeline .hidden').length") == 1
    assert tab.run("document.querySelectorAll('#ledger-rows tr').length") == 5
    assert tab.run("document.documentElement.scrollWidth <= innerWidth"), "nothing sticks out at the width of a phone"


def test_a_browser_shows_hostile_text_as_text(tab: Tab) -> None:
    assert tab.wait("document.querySelectorAll('#stage-rows tr').length") == 3
    assert tab.run("document.querySelectorAll('img, main script').length") == 0
    assert EVIL in tab.run("document.getElementById('stage-rows').textContent")


def test_a_browser_finds_logs_and_explains_the_plan(tab: Tab) -> None:
    tab.run("document.querySelector('#query button').click()")
    found = tab.wait("document.querySelectorAll('#answer tbody tr').length")
    assert found == 50 or found == len(MemoryEngine(make_blocks(10)).logs())
    assert "Plan: scan." in tab.run("document.querySelector('#answer ol').textContent")
    tab.run("document.querySelector('#query [name=address]').value = '0xnonsense'")
    tab.run("document.querySelector('#query button').click()")
    assert tab.wait("document.querySelector('#answer .bad')?.textContent")


def test_a_browser_walks_through_a_proof(tab: Tab) -> None:
    proof = json.dumps({"exist": {"key": EVIL, "path": [{"prefix": "01"}, {"prefix": "02"}]}})
    tab.run(f"document.querySelector('#proof textarea').value = {json.dumps(proof)}")
    tab.run("document.getElementById('show-proof').click()")
    assert tab.run("document.querySelectorAll('#steps li').length") == 2
    assert EVIL in tab.run("document.getElementById('steps').textContent")
    tab.run("document.querySelector('#proof [name=path]').value = '/lake/ledger.json?stage=raw.logs&chain=demo'")
    tab.run("document.querySelector('#proof button').click()")
    assert tab.wait("document.querySelectorAll('#steps li').length === 5 || 0")


def test_a_browser_shows_at_once_which_stage_was_chosen_and_brings_its_ledger_into_view(tab: Tab) -> None:
    assert tab.wait("document.querySelectorAll('#stage-rows tr').length") == 3
    tab.run("scrollTo(0, 0)")
    assert tab.run("document.querySelector('#timeline').getBoundingClientRect().bottom > innerHeight"), "it is out of view"
    tab.run("[...document.querySelectorAll('#stage-rows button')][1].click()")
    assert tab.run("[...document.querySelectorAll('#stage-rows tr')].map((row) => row.className)") == ["", "chosen", ""]
    assert tab.run("document.querySelector('#timeline').getBoundingClientRect().bottom <= innerHeight")
    assert tab.wait(f"document.getElementById('ledger-of').textContent.startsWith('raw.logs ' + {json.dumps(EVIL)})")


def test_the_page_stays_where_it_was_scrolled_to_while_it_is_refreshed(tab: Tab) -> None:
    """The stage that was chosen has the focus, and its row is made anew with each answer."""
    assert tab.wait("document.querySelectorAll('#stage-rows tr').length") == 3
    tab.run("document.querySelector('#stage-rows button').focus(); scrollTo(0, document.body.scrollHeight)")
    tab.run("window.row = document.querySelector('#stage-rows tr'); window.place = scrollY")
    assert tab.run("place") > 0
    assert tab.wait("window.row !== document.querySelector('#stage-rows tr')"), "it was refreshed"
    assert tab.run("scrollY === place && document.activeElement.closest('#stage-rows') !== null")


def test_a_late_answer_does_not_replace_the_ledger_that_was_chosen_since(tab: Tab) -> None:
    """The first question is answered after the second."""
    assert tab.wait("document.querySelectorAll('#stage-rows tr').length") == 3
    tab.run("window.asking = fetch; window.late = 0; window.come = 0")
    slow = "new Promise((done) => setTimeout(done, 400)).then(() => asking(path, given)).finally(() => come++)"
    tab.run(f"fetch = (path, given) => path.includes('stage=bronze') && !late++ ? {slow} : asking(path, given)")
    tab.run("for (const place of [0, 2]) [...document.querySelectorAll('#stage-rows button')][place].click()")
    assert tab.wait("come") == 1
    assert tab.run(
        "new Promise((done) => setTimeout(() => done(document.getElementById('ledger-of').textContent), 50))"
    ).startswith("raw.logs demo:")
    tab.run("fetch = asking")


def test_a_browser_had_nothing_to_complain_about(tab: Tab) -> None:
    assert tab.complaints() == []


STREAM = bytes(range(100, 132))


def test_a_browser_finds_examples_of_what_can_be_proven(tmp_path: Path) -> None:
    """Somebody who looks around has no id to ask for."""

    async def streams(request: Request) -> Response:
        assert request.query["chain"] == EVIL
        return json_response({"streams": [{"streamId": base64.b64encode(STREAM).decode()}]})

    async def proof(request: Request) -> Response:
        assert request.query["chain"] == EVIL
        if request.params["id"] == to_hex(STREAM):
            return json_response({"exist": {"path": [{"prefix": "01"}, {"prefix": "02"}]}})
        return json_response({"code": 3, "message": "stream_id must be 32 bytes"}, 400)

    if CHROMIUM is None:
        pytest.skip("chromium is not installed (Debian: apt install chromium): the page is not opened in a browser")
    control = MemoryControl([commit(1, "advance", 0, 7, "silver.shards", EVIL)])
    caller = Caller(Gateway(EVIL, NoLogs(), control, Settings(port=0)), MemoryEngine([]), StringIO())
    caller.gateway.router.add("GET", "/streams", streams)
    caller.gateway.router.add("GET", "/stream/{id}/proof", proof)
    with serving(caller) as (host, port), open_tab(CHROMIUM, f"http://{host}:{port}/", tmp_path) as tab:
        buttons = "[...document.querySelectorAll('#examples button')].filter((one) => one.checkVisibility())"
        assert tab.wait(f"{buttons}.length") == 1, "there is no cage here"
        assert tab.run(f"{buttons}[0].textContent") == "a stream"
        assert "a lake without an evm chain" in tab.run("document.getElementById('serving').textContent")
        assert not tab.run("document.getElementById('query').checkVisibility()"), "there are no logs to find"
        tab.run("document.querySelector('#examples button').click()")
        assert tab.wait("document.querySelectorAll('#steps li').length") == 2
        tab.run(
            "document.querySelector('#proof [name=path]').value = '/stream/00/proof?chain=' + encodeURIComponent("
            + json.dumps(EVIL)
            + ")"
        )
        tab.run("document.querySelector('#proof button').click()")
        assert tab.wait("document.querySelector('#steps .bad')?.textContent") == "stream_id must be 32 bytes"
