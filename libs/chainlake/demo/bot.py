"""A bot that deals with each notification once, even if it is killed: `python -m chainlake.demo.bot FILE CHAIN`.

It keeps what it has done, and so the offset it has come to, in a SQLite file. Dealing with an event and moving on is one
transaction, so whenever the process ends, the next one goes on with the first event that was not dealt with.
"""

import argparse
import sqlite3
from pathlib import Path

from chainlake.lake import Lake, open_lake
from chainlake.lake.failpoint import failpoint, run_and_die

PAGE = 50
TABLE = "CREATE TABLE IF NOT EXISTS done (offset INTEGER PRIMARY KEY, event_hash BLOB NOT NULL, historical INTEGER NOT NULL)"


def work(lake: Lake, file: Path, chain: str = "") -> int:
    """Deal with everything that there is to deal with; how many events that was."""
    database = sqlite3.connect(file)
    database.execute(TABLE)
    count = 0
    while page := lake.notifications(_last(database) + 1, PAGE, chain):
        for note in page:
            with database:
                database.execute("INSERT INTO done VALUES (?, ?, ?)", (note.offset, note.event_hash, note.historical))
            count += 1
            failpoint("bot_after_event")
    database.close()
    return count


def done(file: Path) -> list[tuple[int, bytes]]:
    """Offset and hash of every event that was dealt with, in order."""
    with sqlite3.connect(file) as database:
        return list(database.execute("SELECT offset, event_hash FROM done ORDER BY offset"))


def run(file: Path, chain: str, *, catalog: str = "", schema_prefix: str = "", die_after: int = 0) -> int:
    """The bot in a process of its own, which is killed after so many events if asked; how the process ended."""
    code = f"from chainlake.demo import bot; bot.start({str(file)!r}, {chain!r}, {catalog!r}, {schema_prefix!r})"
    return run_and_die(code, f"bot_after_event:{die_after}" if die_after else "")[0]


def start(file: str, chain: str, catalog: str = "", schema_prefix: str = "") -> None:
    """Open the lake, and work."""
    lake = open_lake(catalog=catalog, schema_prefix=schema_prefix)
    print(f"dealt with {work(lake, Path(file), chain)} events")


def _last(database: sqlite3.Connection) -> int:
    found: int = database.execute("SELECT coalesce(max(offset), 0) FROM done").fetchone()[0]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Deal with the notifications of a chain of streams, each once.")
    parser.add_argument("file")
    parser.add_argument("chain", nargs="?", default="")
    parser.add_argument("--catalog", default="")
    parser.add_argument("--schema-prefix", default="")
    given = parser.parse_args()
    start(given.file, given.chain, given.catalog, given.schema_prefix)


if __name__ == "__main__":
    main()
