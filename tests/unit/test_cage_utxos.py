"""What stops a batch of the UTxO set: outputs made twice, inputs of a complete chain that are not known, rows of another root."""

from typing import Any

import pytest

from chainlake.cage.settings import Settings
from chainlake.cage.utxos import _count_before, _refuse, refuse_first
from chainlake.errors import BrokenPromise

COMPLETE, SEGMENT = Settings(None, "genesis.jsonl", True), Settings(None, None, False)


def told(*errors: tuple[int, str], unresolved: tuple[tuple[int, int], ...] = ()) -> Any:
    return {
        "error": [{"_height": height, "error": text} for height, text in errors],
        "unresolved": [{"_height": height, "spent": count} for height, count in unresolved],
    }


def test_an_input_that_does_not_resolve_stops_a_chain_that_says_it_has_all_outputs() -> None:
    with pytest.raises(BrokenPromise, match="c: block 4 spends 2 outputs that are not known or spent already") as broken:
        _refuse("c", told(unresolved=((7, 1), (4, 2))), COMPLETE)
    assert broken.value.height == 4, "blocks before it can be committed"
    _refuse("c", told(), COMPLETE)


def test_a_chain_that_begins_in_the_middle_takes_inputs_that_do_not_resolve() -> None:
    _refuse("c", told(unresolved=((4, 2),)), SEGMENT)


@pytest.mark.parametrize("settings", [COMPLETE, SEGMENT])
def test_the_lowest_block_that_is_wrong_is_named(settings: Settings) -> None:
    with pytest.raises(BrokenPromise, match="block 3: an output") as broken:
        _refuse("c", told((5, "block 5: an output"), (3, "block 3: an output"), unresolved=((4, 1),)), settings)
    assert broken.value.height == 3
    refuse_first("c", [])


def test_rows_of_another_root_than_that_of_the_block_before_are_refused() -> None:
    root: Any = {"node": b"\x01" * 32, "error": "17"}
    assert _count_before("c", 9, [root], b"\x01" * 32) == 17
    assert _count_before("c", -1, [], None) == 0
    for said, found in (([root], b"\x02" * 32), ([root], None), ([], b"\x01" * 32)):
        with pytest.raises(BrokenPromise, match=r"c: the UTxO tree at block 9 has root .* run lake verify"):
            _count_before("c", 9, said, found)
