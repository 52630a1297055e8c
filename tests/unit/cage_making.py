"""Demo blocks of the cage, read and replayed."""

from collections.abc import Sequence

from chainlake.cage.decode import decode_block, decode_output
from chainlake.cage.rules import Event
from chainlake.cage.transaction import Tx
from chainlake.demo import cage
from chainlake.demo.cage import Made
from chainlake.demo.cage_world import CAGE
from tests.unit.cage_replay import Replay

Found = list[tuple[int, Event]]


def start(seed: int = 1) -> Replay:
    """Before the first demo block."""
    return Replay.starting(CAGE, {place: decode_output(raw) for place, raw in cage.genesis(seed).items()})


def canonical(made: Sequence[Made]) -> list[list[Tx]]:
    """The transactions of the blocks that stay, by height."""
    return [decode_block(block.raw) for block in made if not block.abandoned]


def branches(made: Sequence[Made]) -> dict[str, list[list[Tx]]]:
    """Every branch from its first block on, by the height where it parts: `kept`, and those that are abandoned."""
    kept = canonical(made)
    found = {"kept": kept}
    for at, block in enumerate(made):
        if block.abandoned and not made[at - 1].abandoned:
            end = next((place for place in range(at, len(made)) if not made[place].abandoned), len(made))
            lost = [decode_block(one.raw) for one in made[at:end]]
            found[f"abandoned from {block.height}"] = [*kept[: block.height], *lost]
    return found


def replayed(blocks: Sequence[Sequence[Tx]], seed: int = 1) -> list[tuple[Replay, Found]]:
    """The state after each block and what happened in it."""
    now, found = start(seed), []
    for height, txs in enumerate(blocks):
        events = now.apply(height, txs)
        found.append((now.copy(), events))
    return found
