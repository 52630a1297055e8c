"""Writers that commit at the same moment: real processes, one ledger, no lease to keep them apart."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

from chainlake.lake.records import open_records
from chainlake.paths import project_root
from tests.unit.control_tables import commit_row, made_lake, with_control

LAST = 12
WRITER = """
import sys
from dataclasses import replace
from chainlake.errors import Fenced
from chainlake.lake.clock import new_commit_id
from chainlake.lake.records import open_records

ledger = open_records(sys.argv[1]).ledger
first = ledger.read().of("raw.logs", "c").commits[0]
print("ready", flush=True)
sys.stdin.readline()
for seq in range(2, int(sys.argv[2]) + 1):
    row = replace(first, seq=seq, base_height=seq - 1, height=seq, commit_id=new_commit_id())
    try:
        ledger.append([row])
        print(row.commit_id)
    except Fenced:
        print("Fenced")
"""


def writer(home: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", WRITER, str(home), str(LAST)]
    return subprocess.Popen(command, cwd=project_root(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_every_seq_is_committed_by_exactly_one_process_and_the_other_is_told(tmp_path: Path) -> None:
    with_control(made_lake(tmp_path, [commit_row(1, 0, 1)]))
    writers = [writer(tmp_path) for _ in range(2)]
    assert [one.stdout and one.stdout.readline() for one in writers] == ["ready\n", "ready\n"]
    for one in writers:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    said = Counter(word for one in writers for word in one.communicate(timeout=120)[0].split())
    assert [one.returncode for one in writers] == [0, 0]
    records = open_records(tmp_path)
    assert records is not None
    commits = records.ledger.read().of("raw.logs", "c").commits
    assert [commit.seq for commit in commits] == list(range(1, LAST + 1))
    assert said.pop("Fenced") == LAST - 1
    assert said == Counter(str(commit.commit_id) for commit in commits[1:]), "who was told of success is in the ledger, once"
