"""Installed filters: each new log is reported once, and none is lost."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from chainlake.logs.filter import Criteria, Limits, RpcError
from chainlake.serve.engine import Found
from chainlake.serve.filters import FilterMethods, FilterTable, Installed
from chainlake.serve.methods import Note, Raw
from chainlake.serve.pool import CLIENT
from chainlake.serve.queries import Queries
from chainlake.serve.settings import Settings
from tests.unit.serve_memory import Caller, MemoryEngine, make_blocks, make_caller

BLOCKS = make_blocks(20)
NOT_FOUND = (-32000, "filter not found")


def at(head: int, **settings: Any) -> Caller:
    return make_caller(MemoryEngine(BLOCKS[: head + 1]), **settings)


def logs_of(first: int, last: int) -> list[Any]:
    return [log.to_json() for one in BLOCKS[first : last + 1] for log in one.logs]


def test_a_log_filter_reports_what_comes_after_it_and_once() -> None:
    caller = at(4)
    name = caller.result("eth_newFilter", {})
    assert name.startswith("0x") and caller.result("eth_getFilterChanges", name) == []
    caller.engine.advance(BLOCKS[5:9])
    assert caller.result("eth_getFilterChanges", name) == logs_of(5, 8)
    assert caller.result("eth_getFilterChanges", name) == []
    caller.engine.advance(BLOCKS[9:10])
    assert caller.result("eth_getFilterChanges", name) == logs_of(9, 9)


@pytest.mark.parametrize("most", [1, 3, 7])
def test_what_one_answer_cannot_hold_comes_with_the_next(most: int) -> None:
    caller = at(4, max_results=most)
    name = caller.result("eth_newFilter", {"address": None})
    caller.engine.advance(BLOCKS[5:15])
    found: list[Any] = []
    while part := caller.result("eth_getFilterChanges", name):
        assert len(part) <= most
        found += part
    assert found == logs_of(5, 14)


def test_the_range_and_content_of_a_filter_hold_for_its_changes() -> None:
    caller = at(4)
    first = caller.result("eth_newFilter", {"fromBlock": "0x7", "toBlock": "0x9", "address": "0x" + "01" * 20})
    later = caller.result("eth_newFilter", {"fromBlock": "0x2"})
    caller.engine.advance(BLOCKS[5:])
    expected = [log for log in logs_of(7, 9) if log["address"] == "0x" + "01" * 20]
    assert caller.result("eth_getFilterChanges", first) == expected
    assert caller.result("eth_getFilterChanges", later) == logs_of(5, 19)
    assert caller.result("eth_getFilterChanges", first) == []


def test_filter_logs_are_those_of_get_logs_at_the_present_head() -> None:
    caller = at(4)
    wanted = {"fromBlock": "0x1", "toBlock": "latest"}
    name = caller.result("eth_newFilter", wanted)
    assert caller.result("eth_getFilterLogs", name) == logs_of(1, 4)
    caller.engine.advance(BLOCKS[5:9])
    assert caller.result("eth_getFilterLogs", name) == caller.result("eth_getLogs", wanted) == logs_of(1, 8)
    assert caller.result("eth_getFilterChanges", name) == logs_of(5, 8)


def test_a_block_filter_reports_hashes() -> None:
    caller = at(4)
    name = caller.result("eth_newBlockFilter")
    caller.engine.advance(BLOCKS[5:8])
    assert caller.result("eth_getFilterChanges", name) == ["0x" + one.block.hash.hex() for one in BLOCKS[5:8]]
    assert caller.result("eth_getFilterChanges", name) == []
    assert caller.error("eth_getFilterLogs", name) == NOT_FOUND


def test_an_uninstalled_filter_is_gone() -> None:
    caller = at(4)
    name = caller.result("eth_newFilter", {})
    assert caller.result("eth_uninstallFilter", name) is True
    assert caller.result("eth_uninstallFilter", name) is False
    for method in ("eth_getFilterLogs", "eth_getFilterChanges"):
        assert caller.error(method, name) == NOT_FOUND
        assert caller.error(method, "0x1") == caller.error(method, None) == NOT_FOUND


@pytest.mark.parametrize("again", [[], make_blocks(5, 3, seed=2, parent=BLOCKS[2].block.hash)])
def test_a_rollback_takes_filters_that_saw_the_blocks_with_it(again: Any) -> None:
    caller = at(4)
    name = caller.result("eth_newFilter", {})
    caller.engine.rollback(2)
    caller.engine.advance(again)
    assert caller.error("eth_getFilterChanges", name) == NOT_FOUND
    assert caller.result("eth_uninstallFilter", name) is False


@pytest.mark.parametrize(
    ("wanted", "code", "message"),
    [
        ({"fromBlock": "pending"}, -32602, "pending logs are not supported"),
        ({"fromBlock": "0x5", "toBlock": "0x4"}, -32602, "invalid block range params"),
        ({"toBlock": "0x4"}, -32602, "invalid block range params"),
        ({"address": ["0x" + "01" * 20] * 1001}, -32000, "exceed max addresses or topics per search position"),
        ({"fromBlock": 5}, -32602, "invalid argument 0: hex string without 0x prefix"),
    ],
)
def test_filters_that_could_report_nothing_are_refused(wanted: Any, code: int, message: str) -> None:
    assert at(4).error("eth_newFilter", wanted) == (code, message)


@pytest.mark.parametrize("wanted", [{"fromBlock": "0x64", "toBlock": "0xc8"}, {"fromBlock": "earliest", "toBlock": "0x3"}])
def test_a_filter_may_ask_for_blocks_to_come(wanted: Any) -> None:
    caller = at(4)
    assert caller.result("eth_getFilterChanges", caller.result("eth_newFilter", wanted)) == []


def test_the_clip_rule_holds_for_filters_too() -> None:
    blocks = make_blocks(5, first=17)
    wanted = {"fromBlock": "0x0"}
    assert make_caller(MemoryEngine(blocks)).error("eth_newFilter", wanted)[0] == 4444
    caller = make_caller(MemoryEngine(blocks), filters=Limits(range_rule="clip"))
    assert caller.result("eth_getFilterLogs", caller.result("eth_newFilter", wanted)) == caller.result("eth_getLogs", wanted)


def test_the_table_is_bounded_and_forgets_what_nobody_asks_about() -> None:
    now = [0.0]
    table = FilterTable(2, 300, lambda: now[0])
    installed = Installed(Criteria(), (1, 1), BLOCKS[1].block)
    first, second = table.install(installed), table.install(installed)
    with pytest.raises(RpcError, match="too many filters: 2 are installed") as raised:
        table.install(installed)
    assert raised.value.code == -32005
    now[0] = 200
    assert table.get(first) is installed
    now[0] = 400
    with pytest.raises(RpcError, match="filter not found"):
        table.get(second)
    assert table.get(first) is installed and len(table) == 1
    assert table.install(installed) != first


def test_one_client_never_keeps_all_filters_from_others() -> None:
    now = [0.0]
    table = FilterTable(4, 300, lambda: now[0])
    installed = Installed(Criteria(), (1, 1), BLOCKS[1].block)
    greedy = []
    for now[0] in range(4):
        greedy.append(table.install(installed, "greedy"))
    table.get(greedy[0])
    kept = [table.install(installed, "other") for _ in range(2)]
    with pytest.raises(RpcError, match="too many filters: 4 are installed"):
        table.install(installed, "other")
    for name in (greedy[1], greedy[2]):
        with pytest.raises(RpcError, match="filter not found"):
            table.get(name)
    assert all(table.get(name) is installed for name in (greedy[0], greedy[3], *kept))


def test_filters_belong_to_the_client_that_asked_for_them() -> None:
    caller = at(4, max_filters=3)
    CLIENT.set("greedy")
    first, *_ = (caller.result("eth_newFilter", {}) for _ in range(3))
    assert caller.error("eth_newFilter", {})[0] == -32005
    CLIENT.set("other")
    assert caller.result("eth_getFilterChanges", caller.result("eth_newFilter", {})) == []
    assert caller.error("eth_getFilterChanges", first) == NOT_FOUND
    CLIENT.set("")


class Overtaken(MemoryEngine):
    """While it looks for one caller, another asks the same and is answered."""

    meanwhile: Callable[[], None] | None = None

    def query(self, *given: Any, **options: Any) -> Found:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return super().query(*given, **options)


def test_two_callers_at_the_same_time_get_each_log_once() -> None:
    engine = Overtaken(BLOCKS[:5])
    made = FilterMethods(Queries(engine, Settings()), FilterTable(2, 300)).methods()
    run = {method.name: method.run for method in made}
    name = run["eth_newFilter"](Note("0"), Criteria())
    engine.advance(BLOCKS[5:9])
    answers: list[Any] = []
    engine.meanwhile = lambda: answers.append(run["eth_getFilterChanges"](Note("2"), name))
    answers.append(run["eth_getFilterChanges"](Note("1"), name))
    assert [json.loads(one.text) if isinstance(one, Raw) else one for one in answers] == [logs_of(5, 8), []]
