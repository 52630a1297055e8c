"""Cardano items: spans, hashes over the original bytes, Byron's boundary blocks, and hostile bytes."""

import time
from pathlib import Path

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainlake.demo import cardano as demo
from chainlake.demo.cardano import array, mapping, octets, uint
from chainlake.errors import BadInput
from chainlake.merkle.blake import blake
from chainlake.sources import cardano
from chainlake.sources.base import ZERO_HASH, BadBlock, Split
from chainlake.sources.cardano import MAX_BLOCK
from chainlake.sources.cbor_spans import Truncated, children, skip
from chainlake.sources.formats import format_of
from tests.unit.sources_reading import cursor_of, good, read_all, read_batch, read_splits, reason

MAGIC = uint(764824073)


def boundary(parent: bytes, epoch: int, difficulty: int) -> tuple[bytes, bytes]:
    """(item, hash) of an epoch boundary block."""
    header = array(MAGIC, octets(parent), octets(bytes(32)), array(uint(epoch), array(uint(difficulty))), array())
    return array(uint(0), array(header, b"\x9f\xff", array())), blake(b"\x82\x00" + header)


def byron(parent: bytes, difficulty: int, transactions: list[bytes], epoch: int = 0, slot: int = 0) -> tuple[bytes, bytes]:
    """(item, hash) of a Byron main block; its list of transactions is indefinite, as real ones are."""
    consensus = array(array(uint(epoch), uint(slot)), octets(bytes(64)), array(uint(difficulty)), array())
    header = array(MAGIC, octets(parent), array(), consensus, array())
    payload = b"\x9f" + b"".join(array(one, array()) for one in transactions) + b"\xff"
    return array(uint(1), array(header, array(payload, array(), array(), array()), array())), blake(b"\x82\x01" + header)


def chunk(folder: Path, *items: bytes) -> str:
    (folder / "a.chunk").write_bytes(b"".join(items))
    return str(folder / "a.chunk")


@settings(max_examples=60, deadline=None)
@given(
    st.recursive(
        st.integers(-(2**64), 2**64 - 1) | st.binary(max_size=300) | st.text(max_size=40) | st.floats() | st.booleans(),
        lambda inner: st.lists(inner, max_size=30) | st.dictionaries(st.integers(), inner, max_size=5),
        max_leaves=40,
    ),
    st.binary(max_size=5),
)
def test_an_item_ends_where_an_independent_encoder_ended_it(value: object, rest: bytes) -> None:
    encoded = cbor2.dumps(value)
    assert skip(encoded + rest, 0, MAX_BLOCK) == len(encoded)
    with pytest.raises(Truncated):
        skip(encoded[:-1], 0, MAX_BLOCK)


@pytest.mark.parametrize(
    ("hexed", "spans"),
    [
        ("80", []),
        ("820102", [(1, 2), (2, 3)]),
        ("9f01820203ff", [(1, 2), (2, 5)]),
        ("819f9f01ffbf0102ffff", [(1, 10)]),
        ("825f4101420203ffd9010281f6", [(1, 8), (8, 13)]),
        ("82f97e001affffffff", [(1, 4), (4, 9)]),
    ],
)
def test_spans_of_a_list(hexed: str, spans: list[tuple[int, int]]) -> None:
    assert children(bytes.fromhex(hexed), 0, 10) == spans


@pytest.mark.parametrize("hexed", ["ff", "81ff", "9f81ffff", "bf01ff", "5f01ff", "5f6101ff", "1c", "3f", "df", "fe"])
def test_what_is_not_cbor_is_refused(hexed: str) -> None:
    with pytest.raises(BadInput):
        skip(bytes.fromhex(hexed) + bytes(8), 0, MAX_BLOCK)


@pytest.mark.parametrize(
    "data",
    [
        b"\x9f" * 100_000,
        b"\x81" * 100_000,
        b"\xd8\x18" * 50_000,
        bytes.fromhex("9bffffffffffffffff") + bytes(1000),
        bytes.fromhex("5bffffffffffffffff") + bytes(1000),
        bytes.fromhex("bb7fffffffffffffff") * 1000,
        bytes.fromhex("82079b0000000100000000"),
    ],
)
def test_bytes_that_claim_too_much_are_refused_at_once(tmp_path: Path, data: bytes) -> None:
    began = time.monotonic()
    (found,) = read_batch("cardano", [chunk(tmp_path, data)])
    assert isinstance(found, BadBlock)
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("start", [b"\x81", b"\x82\x07\x9f"])
def test_an_endless_item_costs_as_much_as_one_block_not_as_the_file(
    tmp_path: Path, start: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cardano, "MAX_BLOCK", 1 << 16)
    monkeypatch.setattr(cardano, "WINDOW", 1 << 12)
    began = time.monotonic()
    found = read_batch("cardano", [chunk(tmp_path, start + b"\x81" * (16 << 20))])
    assert "longer than 65536 bytes" in reason(found)
    assert time.monotonic() - began < 20


def test_hashes_are_those_of_the_original_bytes(tmp_path: Path) -> None:
    loose = bytes.fromhex("b900021800d90102801a000000018080")[:-1]
    header = array(array(uint(7), uint(140), octets(b"\x01" * 32)), octets(bytes(64)))
    item = array(uint(7), array(header, array(loose), array(mapping({})), mapping({}), array()))
    (found,) = good(read_batch("cardano", [chunk(tmp_path, item)]))
    assert cbor2.dumps(cbor2.loads(loose)) != loose
    assert (found.height, found.hash, found.parent_hash) == (7, blake(header), b"\x01" * 32)
    assert (found.payload, found.timestamp_us) == (item, None)
    assert [(one.hash, one.payload) for one in found.transactions] == [(blake(loose), loose)]


def test_a_time_needs_the_start_of_the_network(tmp_path: Path) -> None:
    path = chunk(tmp_path, *demo.blocks(2))
    splits = format_of("cardano").plan([path], None, 10, 10**9, {})
    found = good(read_splits("cardano", splits, {"network_start": "1000"}))
    assert [1000 <= (block.timestamp_us or 0) // 10**6 < 1040 for block in found] == [True, True]


@pytest.mark.parametrize(
    ("start", "byron_slots", "shelley_slot", "seconds"),
    [
        (1506203091, 4492800, 4492800, (1506203091 + 20 * (2 * 21600 + 7), 1596059091)),  # mainnet: its first day after Byron
        (1654041600, 86400, 86400 + 30, (1654041600 + 20 * (2 * 21600 + 7), 1655769630)),  # preprod
    ],
)
def test_byron_slots_count_epochs_and_last_longer(
    tmp_path: Path, start: int, byron_slots: int, shelley_slot: int, seconds: tuple[int, int]
) -> None:
    first, first_hash = byron(b"\x05" * 32, 1, [], epoch=2, slot=7)
    header = array(array(uint(2), uint(shelley_slot), octets(first_hash)), octets(bytes(64)))
    path = chunk(tmp_path, first, array(uint(2), array(header, array(), array(), mapping({}))))
    splits = format_of("cardano").plan([path], None, 10, 10**9, {})
    found = good(read_splits("cardano", splits, {"network_start": str(start), "byron_slots": str(byron_slots)}))
    assert tuple((block.timestamp_us or 0) // 10**6 for block in found) == seconds


def test_slots_that_no_clock_shows_are_refused(tmp_path: Path) -> None:
    first, _ = byron(b"\x05" * 32, 1, [], epoch=1, slot=21_600)
    assert "Byron epochs have 21600" in reason(read_batch("cardano", [chunk(tmp_path, first)]))
    splits = format_of("cardano").plan([chunk(tmp_path, *demo.blocks(1))], None, 10, 10**9, {})
    assert "correct the options network_start" in reason(read_splits("cardano", splits, {"network_start": "9" * 18}))


def test_a_block_file_is_the_hex_of_one_item(tmp_path: Path) -> None:
    items = list(demo.blocks(3))
    for number, item in enumerate(items):
        (tmp_path / f"{number}.block").write_text(item.hex() + "\n")
    found = good(read_all("cardano", format_of("cardano").expand(str(tmp_path)), max_blocks=2))
    assert [block.payload for block in found] == items
    (tmp_path / "3.block").write_text(items[2].hex() + "00")
    assert "something follows" in reason(read_batch("cardano", [str(tmp_path / "3.block")]))


def test_blocks_link_through_an_epoch_boundary(tmp_path: Path) -> None:
    start, start_hash = boundary(b"\x05" * 32, 0, 0)
    first, first_hash = byron(start_hash, 1, [array(b"\x9f\xff", array(), mapping({}))])
    middle, middle_hash = boundary(first_hash, 1, 1)
    second, second_hash = byron(middle_hash, 2, [])
    path = chunk(tmp_path, start, first, middle, second)
    whole = good(read_batch("cardano", [path]))
    assert [(block.height, block.hash, block.parent_hash) for block in whole] == [
        (1, first_hash, b"\x05" * 32),
        (2, second_hash, first_hash),
    ]
    assert [one.hash for one in whole[0].transactions] == [blake(array(b"\x9f\xff", array(), mapping({})))]
    assert good(read_all("cardano", [path], max_blocks=1)) == whole
    assert read_batch("cardano", [path], cursor_of(whole[0])) == whole[1:]


def test_a_boundary_that_is_cut_off_from_its_block_is_refused(tmp_path: Path) -> None:
    first, first_hash = byron(b"\x05" * 32, 1, [])
    middle, middle_hash = boundary(first_hash, 1, 1)
    second, _ = byron(middle_hash, 2, [])
    path = chunk(tmp_path, first, middle, second)
    found = read_splits("cardano", [Split(path, 0, len(first + middle), 10)])
    assert "epoch boundary block ends the split" in reason(found)
    assert "epoch boundary block ends the split" in reason(read_batch("cardano", [chunk(tmp_path, first, middle)]))


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (b"hello world", "not [era, block]"),
        (array(uint(7)), "not [era, block]"),
        (array(uint(8), array()), "era 8 is not known"),
        (array(octets(b""), array()), "the era is not an unsigned number"),
        (array(uint(7), array()), "the block has 0 parts"),
        (array(uint(7), array(array(array(uint(1)), array()), array())), "the header body has 1 parts"),
        (
            array(uint(7), array(array(array(uint(1), uint(2), octets(b"x")), array()), array())),
            "the parent hash is not",
        ),
        (array(uint(7), array(array(array(uint(1), uint(2), b"\xf6"), array()), array(uint(1)))), "not a CBOR map"),
        (array(uint(7), array(array(array(uint(1 << 63), uint(2), b"\xf6"), array()), array())), "the block number is"),
    ],
)
def test_an_item_that_is_not_a_block_says_what_is_wrong(tmp_path: Path, item: bytes, message: str) -> None:
    found = read_batch("cardano", [chunk(tmp_path, *demo.blocks(1), item)])
    assert message in reason(found)
    assert [block.height for block in good(found[:-1])] == [0]
    assert found[-1].position == len(b"".join(demo.blocks(1)))


def test_a_cut_file_keeps_its_whole_blocks(tmp_path: Path) -> None:
    data = b"".join(demo.blocks(3))
    found = read_batch("cardano", [chunk(tmp_path, data[:-1])])
    assert [block.height for block in good(found[:-1])] == [0, 1]
    assert "cut short or still being written" in reason(found)


@settings(max_examples=150, deadline=None)
@given(data=st.binary(max_size=200), era=st.integers(0, 7))
def test_any_bytes_give_blocks_or_one_bad_block(tmp_path_factory: pytest.TempPathFactory, data: bytes, era: int) -> None:
    path = chunk(tmp_path_factory.mktemp("any"), array(uint(era), array(data, array())), data)
    found = read_all("cardano", [path], max_blocks=3)
    assert not [block for block in found[:-1] if isinstance(block, BadBlock)]


def test_the_first_block_has_no_parent(tmp_path: Path) -> None:
    first, *_ = good(read_batch("cardano", [chunk(tmp_path, *demo.blocks(1))]))
    assert (first.height, first.parent_hash) == (0, ZERO_HASH)
