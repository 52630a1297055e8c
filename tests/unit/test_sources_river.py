"""Recorded passes over river streams, and the protobuf walk under them."""

import base64
import hashlib
import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainlake.demo import river as demo
from chainlake.demo.comet import field_bytes, field_int
from chainlake.errors import BadInput
from chainlake.sources import wire
from chainlake.sources.base import ZERO_HASH
from chainlake.sources.formats import format_of
from tests.unit.sources_reading import ALL, cursor_of, good, read_batch, read_splits, reason


@pytest.fixture
def passes(tmp_path: Path) -> Path:
    demo.write(tmp_path, 3)
    return tmp_path


def test_a_pass_is_hashed_over_its_answers_and_the_pass_before(passes: Path) -> None:
    first, second, _ = good(read_batch("river", [str(passes)]))
    names = sorted((passes / "2").iterdir())
    linked = first.hash + b"".join(bytes.fromhex(name.stem) + hashlib.sha256(name.read_bytes()).digest() for name in names)
    assert (first.parent_hash, second.hash) == (ZERO_HASH, hashlib.sha256(linked).digest())
    assert (second.source, second.position, second.height) == (str(passes), 2, 2)


def test_every_miniblock_is_a_transaction_of_its_stream_with_its_real_hash(passes: Path) -> None:
    for block in good(read_batch("river", [str(passes)])):
        payload, at = json.loads(block.payload), 0
        assert payload["pass"] == block.height
        for stream, count, rest in zip(payload["streams"], payload["miniblocks"], payload["rest"], strict=True):
            answer = (passes / str(block.height) / f"{stream}.bin").read_bytes()
            mine = block.transactions[at : at + count]
            assert [one.payload for one in mine] == wire.messages(wire.message(answer, 1), 3)
            for one in mine:
                assert one.hash == demo.river_hash(wire.message(wire.message(one.payload, 2), 3))
            cookie = wire.message(base64.b64decode(rest), 2)
            assert wire.message(cookie, 2).hex() == stream
            assert wire.message(cookie, 5) == mine[-1].hash
            at += count
        assert at == len(block.transactions)


def test_miniblocks_are_in_order_of_number_even_if_the_answer_is_not(tmp_path: Path) -> None:
    ((stream_id, answer),) = next(demo.blocks(1, seed=3, streams=1)).items()
    miniblocks = wire.messages(wire.message(answer, 1), 3)
    assert len(miniblocks) > 2
    (tmp_path / "1").mkdir()
    shuffled = field_bytes(1, b"".join(field_bytes(3, one) for one in reversed(miniblocks)))
    (tmp_path / "1" / f"{stream_id.hex()}.bin").write_bytes(shuffled)
    (block,) = good(read_batch("river", [str(tmp_path)]))
    assert [one.payload for one in block.transactions] == miniblocks


def test_a_miniblock_without_header_is_kept_for_a_later_stage_to_judge(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "20aa.bin").write_bytes(field_bytes(1, field_bytes(3, b"\xff\xff")))
    (block,) = good(read_batch("river", [str(tmp_path)]))
    assert [(one.hash, one.payload) for one in block.transactions] == [(ZERO_HASH, b"\xff\xff")]


def test_passes_are_ordered_by_number_and_bounded_by_bytes(tmp_path: Path) -> None:
    demo.write(tmp_path, 11)
    whole = good(read_batch("river", [str(tmp_path)]))
    assert [block.height for block in whole] == list(range(1, 12))
    assert read_batch("river", [str(tmp_path)], max_bytes=1) == whole[:1]
    assert read_batch("river", [str(tmp_path)], cursor_of(whole[8]), max_blocks=1) == whole[9:10]


def test_a_demo_pass_is_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    demo.write(tmp_path / "whole", 3)
    written, write_pieces = 0, demo.write_pieces

    def killed(path: Path, pieces: list[bytes]) -> Path:
        nonlocal written
        written += 1
        if written == demo.STREAMS + 3:
            raise KeyboardInterrupt
        return write_pieces(path, pieces)

    monkeypatch.setattr(demo, "write_pieces", killed)
    with pytest.raises(KeyboardInterrupt):
        demo.write(tmp_path / "cut", 3)
    first = good(read_batch("river", [str(tmp_path / "cut")]))
    monkeypatch.undo()
    found = demo.write(tmp_path / "cut", 3)
    assert all(path.is_file() for path in found) and {path.name for path in (tmp_path / "cut").iterdir()} == {"1", "2", "3"}
    rest = good(read_batch("river", [str(tmp_path / "cut")], cursor_of(first[-1])))
    assert [one.hash for one in first + rest] == [one.hash for one in good(read_batch("river", [str(tmp_path / "whole")]))]


def test_a_pass_whose_parent_nobody_knows_is_refused(passes: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    whole = good(read_batch("river", [str(passes)]))
    other = tmp_path_factory.mktemp("moved")
    shutil.copytree(passes / "3", other / "3")
    assert good(read_batch("river", [str(other)], cursor_of(whole[1])))[0].hash == whole[2].hash
    assert "delivery 3 is neither 1 nor the one after" in reason(read_batch("river", [str(other)], cursor_of(whole[0])))


@pytest.mark.parametrize(("name", "message"), [("xyz.bin", "not named by a stream id"), ("20.bin", "GetStreamResponse")])
def test_an_answer_that_cannot_be_read_is_named(passes: Path, name: str, message: str) -> None:
    (passes / "2" / name).write_bytes(b"\x0a\xff")
    found = read_batch("river", [str(passes)])
    assert message in reason(found)
    assert name in reason(found)
    assert [block.height for block in good(found[:-1])] == [1]


def test_a_pass_that_vanished_is_a_bad_block(passes: Path) -> None:
    splits = format_of("river").plan([str(passes)], None, ALL, ALL, {})
    shutil.rmtree(passes)
    assert "No such file" in reason(read_splits("river", splits))


def test_a_directory_without_passes_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="holds no pass"):
        format_of("river").expand(str(tmp_path))
    with pytest.raises(BadInput, match="not a directory"):
        format_of("river").expand(str(tmp_path / "missing"))


@settings(max_examples=40, deadline=None)
@given(at=st.floats(0, 1), flip=st.integers(0, 255))
def test_damage_never_raises(tmp_path_factory: pytest.TempPathFactory, at: float, flip: int) -> None:
    folder = tmp_path_factory.mktemp("damage")
    path = demo.write(folder, 1)[0]
    data = bytearray(path.read_bytes())
    place = int(at * (len(data) - 1))
    data[place:] = bytes([data[place] ^ flip]) + data[place + 1 :] if flip else b""
    path.write_bytes(data)
    assert len(read_batch("river", [str(folder)], max_blocks=ALL)) == 1


@given(st.binary(max_size=60))
def test_the_walk_over_any_bytes_stays_inside_them(data: bytes) -> None:
    try:
        found = list(wire.fields(data))
    except BadInput:
        with pytest.raises(BadInput):
            wire.spans(data)
        return
    assert sum(len(field.data) for field in found) <= len(data)
    assert wire.without(data, 0) == data
    assert [(f.number, f.data) for f in found] == [(number, data[start:end]) for number, _, start, end in wire.spans(data)]


def test_numbers_are_signed_and_the_last_value_of_a_field_counts() -> None:
    assert wire.number(field_int(1, (1 << 64) - 1), 1) == -1
    assert wire.number(field_int(1, 5) + field_int(1, 6), 1) == 6
    assert wire.message(b"", 1) == b""
    with pytest.raises(BadInput, match="more than 10 bytes"):
        wire.varint(b"\xff" * 11, 0)
