"""Which files are read, and that no way of cutting or resuming them loses or repeats a block."""

import gzip
import itertools
import json
import os
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainlake.demo import write_pieces
from chainlake.demo.write import write_demo
from chainlake.errors import BadInput
from chainlake.sources import files
from chainlake.sources.base import BadBlock, RawBlock, Split
from chainlake.sources.formats import format_of
from tests.unit.sources_reading import ALL, cursor_of, good, read_all, read_batch, read_splits

KINDS = ("evm", "comet", "cardano", "raft", "river")


@pytest.fixture(scope="module")
def chains(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    written = write_demo(tmp_path_factory.mktemp("demo"), size="tiny")
    return {chain.kind: format_of(chain.kind).expand(str(chain.path)) for chain in written}


def test_a_pipe_is_refused_since_nobody_may_ever_write_to_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    for kind in ("evm", "comet", "cardano", "raft"):
        with pytest.raises(BadInput, match=r"pipe\.jsonl is neither a file nor a directory: .* write them to a file"):
            format_of(kind).expand(str(tmp_path / "pipe.jsonl"))


def test_a_directory_means_its_files_by_name_and_only_those_the_format_takes(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.jsonl.gz", "c.txt", ".hidden.jsonl"):
        (tmp_path / name).write_text("x")
    (tmp_path / "d.jsonl").mkdir()
    assert [os.path.basename(path) for path in files.expand(str(tmp_path), (".jsonl", ".jsonl.gz"))] == [
        "a.jsonl.gz",
        "b.jsonl",
    ]


def test_a_relative_path_becomes_absolute_so_that_cursors_hold_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.jsonl").write_text("x")
    monkeypatch.chdir(tmp_path)
    assert files.expand("a.jsonl", (".jsonl",)) == [str(tmp_path / "a.jsonl")]


@pytest.mark.parametrize(
    ("name", "message"), [("missing", "does not exist"), ("empty.jsonl", "is empty"), ("folder", "holds no .jsonl")]
)
def test_a_path_without_blocks_is_bad_input_in_one_line(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(BadInput, match=message) as error:
        files.expand(str(tmp_path / name), (".jsonl",))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15, deadline=None)
@given(max_blocks=st.integers(1, 30), max_bytes=st.sampled_from([1, 500, 5_000, 50_000, ALL]))
def test_batches_of_any_size_give_the_same_blocks(
    chains: dict[str, list[str]], kind: str, max_blocks: int, max_bytes: int
) -> None:
    assert read_all(kind, chains[kind], max_blocks, max_bytes) == read_batch(kind, chains[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_resuming_from_any_block_gives_the_rest(chains: dict[str, list[str]], kind: str) -> None:
    whole = good(read_batch(kind, chains[kind]))
    for index, block in enumerate(whole):
        assert read_batch(kind, chains[kind], cursor_of(block)) == whole[index + 1 :]


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_planned_after_the_last_block(chains: dict[str, list[str]], kind: str) -> None:
    last = read_batch(kind, chains[kind])[-1]
    assert format_of(kind).plan(chains[kind], cursor_of(last), 10, 10, {}) == []


@settings(max_examples=20, deadline=None)
@given(cuts=st.lists(st.integers(0, 700_000), max_size=8))
def test_any_cut_of_a_file_of_lines_gives_every_block_once(chains: dict[str, list[str]], cuts: list[int]) -> None:
    (path,) = chains["evm"]
    edges = sorted({0, *cuts, os.path.getsize(path)})
    splits = [Split(path, start, end, ALL) for start, end in itertools.pairwise(edges)]
    assert read_splits("evm", splits) == read_batch("evm", [path])


@pytest.mark.parametrize("kind", ["evm", "cardano"])
def test_a_large_batch_is_cut_into_about_four_splits_between_blocks(
    chains: dict[str, list[str]], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = read_batch(kind, chains[kind])
    monkeypatch.setattr(files, "MIN_SPLIT", 100)
    splits = format_of(kind).plan(chains[kind], None, ALL, ALL, {})
    assert 3 <= len(splits) <= 5
    assert [split.start for split in splits[1:]] == [split.end for split in splits[:-1]]
    assert read_splits(kind, splits) == whole


def _parts(folder: Path, lines: list[bytes], seed: int) -> list[str]:
    """The lines in several files, some compressed, one empty, with blank lines here and there."""
    rng, paths = random.Random(seed), []
    for number in range(4):
        piece = b"".join(line + rng.choice([b"", b"\n", b" \r\n"]) for line in lines[number * 5 : number * 5 + 5])
        packed = gzip.compress(piece, mtime=0) if number % 2 else piece
        paths.append(str(write_pieces(folder / f"{number}.jsonl{'.gz' if number % 2 else ''}", [packed])))
    return [paths[0], str(write_pieces(folder / "0a.jsonl", [b""])), *paths[1:]]


@pytest.mark.parametrize("kind", ["evm", "comet", "raft"])
@pytest.mark.parametrize("max_blocks", [1, 3, 7, ALL])
def test_many_files_plain_and_compressed_read_like_one(
    chains: dict[str, list[str]], kind: str, max_blocks: int, tmp_path: Path
) -> None:
    lines = Path(chains[kind][0]).read_bytes().splitlines(keepends=True)
    parts = read_all(kind, _parts(tmp_path, lines, max_blocks), max_blocks)
    whole = read_batch(kind, chains[kind])
    assert [(block.height, block.hash, block.parent_hash, block.transactions) for block in good(parts)] == [
        (block.height, block.hash, block.parent_hash, block.transactions) for block in good(whole)
    ]


@pytest.mark.parametrize("kind", ["evm", "comet", "raft", "cardano"])
@settings(max_examples=35, deadline=None)
@given(at=st.floats(0, 1), flip=st.integers(0, 255), packed=st.booleans())
def test_damage_gives_bad_blocks_and_never_an_exception(
    chains: dict[str, list[str]],
    kind: str,
    at: float,
    flip: int,
    packed: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    data = bytearray(Path(chains[kind][0]).read_bytes())
    data = bytearray(gzip.compress(data, mtime=0)) if packed and kind != "cardano" else data
    place = int(at * (len(data) - 1))
    if flip:
        data[place] ^= flip
    else:
        del data[place:]
    name = "blocks.chunk" if kind == "cardano" else "blocks.jsonl"
    path = write_pieces(tmp_path_factory.mktemp("damage") / name, [bytes(data)])
    found = read_all(kind, [str(path)], max_blocks=7)
    assert all(isinstance(block, RawBlock) for block in found[:-1])
    assert all(block.hash for block in found if isinstance(block, RawBlock))


def test_a_vanished_file_is_a_bad_block_not_an_exception(tmp_path: Path) -> None:
    for kind in ("evm", "comet", "raft", "cardano"):
        (found,) = read_batch(kind, [str(tmp_path / "gone.chunk")])
        assert isinstance(found, BadBlock)
        assert "No such file" in found.reason


def test_a_line_without_end_is_refused_before_it_fills_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_LINE", 1_000)
    path = write_pieces(tmp_path / "a.jsonl.gz", [gzip.compress(json.dumps("x" * 100_000).encode())])
    (found,) = read_batch("evm", [str(path)])
    assert isinstance(found, BadBlock)
    assert "longer than 1000 bytes" in found.reason


@pytest.mark.parametrize("kind", ["evm", "comet", "raft"])
@pytest.mark.parametrize("lost", [1, 2, 9, 40])
def test_a_last_block_that_is_still_being_written_is_for_the_next_run_not_for_an_operator(
    chains: dict[str, list[str]], kind: str, lost: int, tmp_path: Path
) -> None:
    data = Path(chains[kind][0]).read_bytes().rstrip(b"\n")
    path = tmp_path / os.path.basename(chains[kind][0])
    path.write_bytes(data[:-lost])
    found = read_all(kind, [str(path)], max_blocks=7)
    cut = found[-1]
    assert isinstance(cut, BadBlock) and cut.unavailable and f"{path} at {cut.position}: " in cut.reason
    before = good(found[:-1])
    path.write_bytes(data)
    rest = good(read_batch(kind, [str(path)], cursor_of(before[-1])))
    assert [block.hash for block in before + rest] == [block.hash for block in good(read_batch(kind, chains[kind]))]


@pytest.mark.parametrize("lost", [1, 2, 9, 40])
def test_binary_blocks_that_do_not_end_are_malformed(chains: dict[str, list[str]], lost: int, tmp_path: Path) -> None:
    """A damaged length says that there should be more as well: the two cannot be told apart."""
    path = tmp_path / "a.chunk"
    path.write_bytes(Path(chains["cardano"][0]).read_bytes()[:-lost])
    *_, cut = read_all("cardano", [str(path)])
    assert isinstance(cut, BadBlock) and not cut.unavailable and "ends in the middle" in cut.reason


def test_a_packed_file_that_is_not_whole_yet_is_for_the_next_run(chains: dict[str, list[str]], tmp_path: Path) -> None:
    packed = gzip.compress(Path(chains["evm"][0]).read_bytes())
    path = write_pieces(tmp_path / "a.jsonl.gz", [packed[:-100]])
    *_, cut = read_all("evm", [str(path)])
    assert isinstance(cut, BadBlock) and cut.unavailable and str(path) in cut.reason
    path.write_bytes(packed[:-8] + b"damaged!")
    *_, broken = read_all("evm", [str(path)])
    assert isinstance(broken, BadBlock) and not broken.unavailable


@pytest.mark.parametrize(
    "line", ['{"block": {}} x', '{"block": NaN}', "hello", '{"block": {"number": "0x3"\n', '"' + "x" * 10, '{"a": "\\"}"}']
)
def test_what_is_whole_but_wrong_is_not_taken_for_unfinished(line: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(line)
    (found,) = read_batch("evm", [str(tmp_path / "a.jsonl")])
    assert isinstance(found, BadBlock) and not found.unavailable


def test_numbers_in_names_count_so_that_a_tenth_file_comes_after_the_ninth(chains: dict[str, list[str]], tmp_path: Path) -> None:
    lines = Path(chains["evm"][0]).read_bytes().splitlines(keepends=True)
    for number in range(1, 10):
        (tmp_path / f"blocks-{number}.jsonl").write_bytes(lines[number])
    last = good(read_all("evm", format_of("evm").expand(str(tmp_path))))[-1]
    (tmp_path / "blocks-10.jsonl").write_bytes(lines[10])
    paths = format_of("evm").expand(str(tmp_path))
    assert [block.height for block in good(read_batch("evm", paths, cursor_of(last)))] == [last.height + 1], "not passed over"
    assert good(read_all("evm", paths))[-1].height == last.height + 1


def test_a_url_of_a_kind_that_has_no_nodes_is_not_repeated() -> None:
    for kind in ("cardano", "raft"):
        with pytest.raises(BadInput, match="not read from a URL") as caught:
            format_of(kind).expand("https://me:hunter2@node.example/v3/KEY")
        assert "hunter2" not in str(caught.value) and "KEY" not in str(caught.value)


@pytest.mark.parametrize("kind", ["evm", "comet", "raft", "cardano"])
@pytest.mark.parametrize("form", ["longer", "shorter", "packed"])
def test_a_file_that_was_written_anew_is_read_from_its_beginning(
    chains: dict[str, list[str]], kind: str, form: str, tmp_path: Path
) -> None:
    whole = good(read_batch(kind, chains[kind]))
    data = Path(chains[kind][0]).read_bytes()
    cuts = [*(block.position for block in whole), len(data)]
    path = tmp_path / os.path.basename(chains[kind][0])
    packed = form == "packed" and kind != "cardano"
    write = gzip.compress if packed else bytes
    path.write_bytes(write(data[: cuts[6]]))
    held = good(read_batch(kind, [str(path)]))
    assert held[-1].height == whole[5].height
    path.write_bytes(write(data[cuts[6] : cuts[7 if form == "shorter" else 10]]))
    new = good(read_batch(kind, [str(path)], cursor_of(held[-1])))
    assert [block.hash for block in new] == [block.hash for block in whole[6 : 7 if form == "shorter" else 10]]
    again = read_batch(kind, [str(path)], cursor_of(new[-1]))
    assert not again, "and then from where it was left"


def test_a_document_whose_oldest_blocks_were_dropped_is_read_from_its_beginning(
    chains: dict[str, list[str]], tmp_path: Path
) -> None:
    blocks = [json.loads(line) for line in Path(chains["comet"][0]).read_bytes().splitlines()]
    path = tmp_path / "latest.json"
    path.write_text(json.dumps(blocks[:5]))
    held = good(read_batch("comet", [str(path)]))[-1]
    path.write_text(json.dumps(blocks[3:8]))
    found = good(read_batch("comet", [str(path)], cursor_of(held)))
    assert [block.height for block in found] == [4, 5, 6, 7, 8], "what is held is skipped later"
