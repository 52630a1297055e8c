"""A cluster in files: what each replica receives, when it is cut off, and after it has rejoined."""

import errno
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from chainlake.cli.main import main
from chainlake.errors import BadInput
from chainlake.lake.chains import Chain
from chainlake.lake.records import open_records
from chainlake.replica import commands
from chainlake.replica.cluster import Cluster
from chainlake.replica.entries import read_entry
from chainlake.replica.replica import Replica
from tests.unit.control_tables import commit_row, made_lake, with_control
from tests.unit.test_replica_rules import ALICE, SETUP, insert


def played(cluster: Cluster, replica: str) -> Replica:
    """A replica that has received its file."""
    made = Replica(cluster.started_unified)
    for number, line in enumerate((cluster.directory / f"{replica}.jsonl").read_bytes().split(b"\n")[:-1], 1):
        delivery: dict[str, Any] = json.loads(line)
        assert delivery["delivery"] == number
        made.deliver([read_entry(entry) for entry in delivery["entries"]])
    return made


def test_a_replica_that_is_cut_off_from_meta_waits_and_catches_up_after_it_rejoins(tmp_path: Path) -> None:
    cluster = Cluster.create(tmp_path / "shop", "abc")
    cluster.isolate("c", "meta")
    cluster.isolate("b")
    cluster.propose([*SETUP, insert("alice", 1), insert("bob", 1)])
    cluster = Cluster.load(tmp_path / "shop")
    assert cluster.deliver() == {"a": 6, "b": 0, "c": 2}
    assert cluster.deliver() == {"a": 0, "b": 0, "c": 0}, "nothing is sent twice"
    assert len(played(cluster, "c").waiting()) == 2 and played(cluster, "c").visible_rows() == {}
    cluster.rejoin("c")
    cluster.rejoin("b")
    assert cluster.deliver("c", only="meta", most=3) == {"c": 3}
    assert len(played(cluster, "c").waiting()) == 2
    assert cluster.deliver() == {"a": 0, "b": 6, "c": 1}
    ends = [played(cluster, name).visible_rows() for name in "abc"]
    assert ends[0] == ends[1] == ends[2] and len(ends[0]) == 2


def test_a_cluster_with_three_meta_logs_is_migrated_once(tmp_path: Path) -> None:
    cluster = Cluster.create(tmp_path / "shop", "a", unified=False)
    cluster.propose([*SETUP, insert("alice", 1)])
    assert not cluster.unified and {entry.required for entry in cluster.log()} == {0}
    cluster.propose([{"type": "Blank"}], "data:user:00", new_term=True)
    assert cluster.migrate()[1:3] == (5, 2)
    assert cluster.unified
    (stamped,) = cluster.propose([insert("alice", 2)])
    assert stamped.required == 5
    cluster.deliver()
    assert len(played(cluster, "a").visible_rows()) == 2
    with pytest.raises(BadInput, match="no second migration and no way back"):
        cluster.migrate()


def test_a_snapshot_that_is_too_long_for_a_command_is_not_appended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster.create(tmp_path / "shop", "a", unified=False)
    cluster.propose(SETUP)
    monkeypatch.setattr(commands, "MAX_TEXT", 100)
    with pytest.raises(BadInput, match="characters long: at most 100"):
        cluster.migrate()
    assert len(cluster.log()) == 4 and not cluster.unified


def test_a_wrong_command_appends_nothing(tmp_path: Path) -> None:
    cluster = Cluster.create(tmp_path / "shop", "ab")
    with pytest.raises(BadInput, match="'Fly' is not a kind of command"):
        cluster.propose([ALICE, {"type": "Fly"}])
    assert cluster.log() == []
    (first,), (second,) = cluster.propose([ALICE]), cluster.propose([{"type": "Blank"}], "meta", new_term=True)
    assert (first.log_term, second.log_term, second.log_index) == (1, 2, 2)


def test_texts_may_hold_any_character_that_has_bytes(tmp_path: Path) -> None:
    cluster = Cluster.create(tmp_path / "shop", "a")
    odd = "a\u2028b\u2029c\x85d\x0be\x1cf\r\ng"
    cluster.propose([*SETUP, insert("alice", odd, name=odd)])
    assert [entry.command.get("rows") for entry in cluster.log()][-1] == [{"id": odd, "name": odd}]
    assert cluster.deliver() == {"a": 5} and cluster.deliver() == {"a": 0}
    assert len(played(cluster, "a").visible_rows()) == 1
    held = (tmp_path / "shop" / "log.jsonl").read_bytes()
    for value in ("\ud800", 1e999, [[]]):
        for _ in range(200 if value == [[]] else 0):
            value = [value]
        with pytest.raises(BadInput, match=r"surrogate|too large|nested"):
            cluster.propose([insert("alice", 2, name=value)])
    assert (tmp_path / "shop" / "log.jsonl").read_bytes() == held, "what cannot be read back is not appended"


def test_leaders_that_propose_and_deliver_at_the_same_time_give_no_index_to_two_entries(tmp_path: Path) -> None:
    Cluster.create(tmp_path / "shop", "ab")

    def work(which: int) -> None:
        cluster = Cluster.load(tmp_path / "shop")
        for number in range(20):
            cluster.propose([{**ALICE, "user_id": f"user-{which}-{number}"}])
            cluster.deliver()
            (cluster.isolate if number % 2 else cluster.rejoin)("ab"[which % 2])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    cluster = Cluster.load(tmp_path / "shop")
    assert [entry.log_index for entry in cluster.log()] == list(range(1, 81))
    assert cluster.cut_off == {"a": "all", "b": "all"}
    for name in "ab":
        cluster.rejoin(name)
        cluster.deliver()
        assert len(played(cluster, name).meta.objects) == 80


def test_a_line_that_a_crash_has_cut_off_does_not_count_and_is_replaced(tmp_path: Path) -> None:
    cluster = Cluster.create(tmp_path / "shop", "a")
    cluster.propose(SETUP[:2])
    cluster.deliver()
    for name in ("log", "a"):
        with (tmp_path / "shop" / f"{name}.jsonl").open("a") as file:
            file.write('{"delivery":2,"entries":[{"group":"me')
    assert len(cluster.log()) == 2
    cluster.propose(SETUP[2:])
    assert cluster.deliver() == {"a": 2}
    assert played(cluster, "a").meta_index == 4 and len(cluster.log()) == 4


def test_what_a_full_disk_does_not_keep_is_not_appended_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster.create(tmp_path / "shop", "a")
    cluster.propose(SETUP[:2])

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            cluster.propose(SETUP[2:])
    assert len(cluster.log()) == 2
    cluster.propose(SETUP[2:])
    assert [entry.log_index for entry in cluster.log()] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["propose", "none", "{}"], "there is no cluster 'none': there are shop"),
        (["propose", "../shop", "{}"], "is no name for a cluster"),
        (["propose", "shop", "{}"], "is not a kind of command"),
        (["propose", "shop", "[]"], "a command is a JSON object"),
        (["propose", "shop", "{"], "not JSON"),
        (["propose", "shop", '{"type":"Blank"}'], "say in which group"),
        (["propose", "shop", '{"type":"Insert","table_id":"a.b","user_id":"\\ud800","rows":[]}'], "half of a surrogate pair"),
        (["propose", "shop", '{"type":"Blank"}', "--group", "data:user:99"], "is not a group"),
        (["isolate", "shop", "z"], "shop has no replica 'z': there are a, b"),
        (["crash", "shop", "z"], "shop has no replica 'z': there are a, b"),
        (["restart", "shop", "z"], "shop has no replica 'z': there are a, b"),
        (["deliver", "shop", "--most", "x"], "a whole number is expected"),
        (["deliver", "shop", "--most", "0"], "at least 1"),
        (["deliver", "shop", "--only", "data:user:99"], "is not a group"),
        (["migrate", "shop"], "united already"),
        (["start", "shop"], "shop exists already"),
        (["start", "other", "--replicas", "a,a"], "different names of letters and digits are expected"),
        (["start", "other", "--replicas", "log"], "different names of letters and digits are expected"),
        (["health"], "there is no lake in"),
    ],
)
def test_what_users_get_wrong_is_said_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.setenv("LAKE_HOME", str(tmp_path))
    Cluster.create(tmp_path / "clusters" / "shop", "ab")
    assert main(["replica", *arguments, "--home", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        ("_shop", "chain name '_shop-a': use up to 63 letters"),
        ("s" * 62, "use up to 63 letters"),
        ("mine", "chain 'mine-b' exists already"),
    ],
)
def test_a_cluster_of_which_a_replica_cannot_be_a_new_chain_is_not_begun(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, cluster: str, message: str
) -> None:
    """Else the next try would find its files and say that it exists already."""
    monkeypatch.setenv("LAKE_HOME", str(tmp_path))
    records = open_records(with_control(made_lake(tmp_path, [commit_row(1, 0, 1)])))
    assert records is not None
    records.chains.add(Chain("mine-b", "evm", "somewhere", {}))
    assert main(["replica", "start", cluster, "--replicas", "a,b", "--home", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "clusters" / cluster).exists()
