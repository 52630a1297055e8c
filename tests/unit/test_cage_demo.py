"""The demo chain of the cage has all that can happen, so that tests and benchmarks which use it mean something."""

from collections import Counter
from collections.abc import Iterator

from chainlake.cage.datums import State, read_datum
from chainlake.cage.decode import decode_block
from chainlake.cage.rules import Event
from chainlake.cage.transaction import Tx, TxIn
from chainlake.demo import cage
from chainlake.demo.cage_world import CAGE, OTHER_POLICY, POLICY
from tests.unit.cage_making import replayed

LONG = b"\x5f\x58\x40"
"""A byte string in chunks, of which the first has 64 bytes."""


def of_events(events: list[Event]) -> Iterator[str]:
    """What the events of one block show."""
    updates = Counter(event.token_id for event in events if event.kind == "update")
    if len(updates) > 1:
        yield "two tokens updated in a block"
    if max(updates.values(), default=0) > 1:
        yield "a token updated twice in a block"
    made = {used.place for event in events if event.kind == "request" for used in event.requests}
    for event in events:
        yield event.kind
        if event.kind == "update":
            if len(event.requests) > 1:
                yield "several operations"
            if made & {used.place for used in event.requests}:
                yield "made and processed in one block"
            if event.state and event.was and event.state.owner != event.was.owner:
                yield "another owner"


def of_transactions(txs: list[Tx]) -> Iterator[str]:
    """What the transactions of one block show."""
    made: set[TxIn] = set()
    for tx in txs:
        if made & set(tx.spends()):
            yield "made and spent in one block"
        made |= {place for place, _ in tx.creates()}
        if not tx.is_valid:
            yield "failed"
        if list(tx.inputs) != sorted(tx.inputs):
            yield "inputs out of order"
        yield from (f"minted {mint.quantity} of {'ours' if mint.policy == POLICY else 'others'}" for mint in tx.mints)
        for output in tx.outputs if tx.is_valid else ():
            datum = read_datum(output.datum)
            if output.address == CAGE.address and output.datum and datum is None:
                yield "garbage at the cage"
            if output.address == CAGE.address and output.datum_hash:
                yield "only a hash at the cage"
            if output.address == b"\x70" + OTHER_POLICY and datum is not None:
                yield "a request elsewhere"
            if output.datum and LONG in output.datum:
                yield "a value over 64 bytes"
            if isinstance(datum, State) and output.datum:
                yield "an indefinite list" if output.datum[2] == 0x9F else "a definite list"


def test_the_demo_chain_has_every_event_every_decoy_and_every_form() -> None:
    made = list(cage.chain(130, 2))
    blocks = [decode_block(block.raw) for block in made if not block.abandoned]
    seen = {shown for txs in blocks for shown in of_transactions(txs)}
    seen |= {shown for _, events in replayed(blocks, 2) for shown in of_events([event for _, event in events])}
    assert seen >= {
        *("boot", "request", "update", "retract", "reject", "burn"),
        *("two tokens updated in a block", "a token updated twice in a block", "several operations", "another owner"),
        *("made and processed in one block", "made and spent in one block", "failed", "inputs out of order"),
        *("minted 1 of ours", "minted -1 of ours", "minted 2 of ours", "minted 1 of others"),
        *("garbage at the cage", "only a hash at the cage", "a request elsewhere", "a value over 64 bytes"),
        *("an indefinite list", "a definite list"),
    }


def test_the_demo_chain_forks_from_one_block_deep_to_fifty() -> None:
    depths, run = set(), 0
    for block in cage.chain(130, 1):
        run = run + 1 if block.abandoned else 0
        depths.add(run)
    assert {1, 50} <= depths and max(depths) == 50
