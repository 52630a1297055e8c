"""Root updates alone: the tree over many streams, folded block by block in processes of their own, as Spark's tasks do it.

`python -m chainlake.bench.shards_roots STREAMS BLOCKS PROCESSES NUMBER` makes one process's share and prints the seconds that its
updates took.
"""

import gc
import hashlib
import subprocess
import sys
import time
from collections import defaultdict

from chainlake.merkle.smt import leaf_hash
from chainlake.merkle.smt_fold import PART_DIGITS, Part, Update
from chainlake.merkle.smt_nodes import path_digits

UPDATES = 1000


def key_of(number: int) -> bytes:
    """The id of the stream with a number."""
    return b"\x20" + hashlib.sha256(b"stream %d" % number).digest()[1:]


def updates_per_second(streams: int, blocks: int, processes: int = 2) -> float:
    """Updates a second of all processes together; each has the parts of the tree that fall to it."""
    command = [sys.executable, "-m", __name__, *map(str, (streams, blocks, processes))]
    running = [subprocess.Popen([*command, str(number)], stdout=subprocess.PIPE) for number in range(processes)]
    seconds = [float(process.communicate()[0]) for process in running]
    return blocks * UPDATES / max(seconds)


def share(streams: int, blocks: int, processes: int, number: int) -> float:
    """Seconds for the updates of one process's share, the hash of the new value included."""
    parts: dict[str, list[Update]] = defaultdict(list)
    for name in map(key_of, range(streams)):
        prefix = path_digits(name)[:PART_DIGITS]
        if int(prefix, 16) % processes == number:
            parts[prefix].append(Update(0, name, leaf_hash(name, b"value")))
    trees = {prefix: Part(prefix, ()) for prefix in parts}
    for prefix, planted in parts.items():
        trees[prefix].fold(planted)
    changes: dict[str, list[tuple[int, bytes, bytes]]] = defaultdict(list)
    for place in range(blocks * UPDATES):
        name = key_of(place * 7919 % streams)
        prefix = path_digits(name)[:PART_DIGITS]
        if prefix in trees:
            changes[prefix].append((1 + place // UPDATES, name, b"%d" % place))
    started = time.monotonic()
    for prefix, some in changes.items():
        trees[prefix].fold(Update(block, name, leaf_hash(name, value)) for block, name, value in some)
    return time.monotonic() - started


if __name__ == "__main__":
    gc.disable()  # as in Spark's tasks: there are no cycles to be found
    sys.stdout.write(f"{share(*map(int, sys.argv[1:5]))}\n")
