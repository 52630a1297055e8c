"""Kinds of chains, their options, and how far they can be rolled back."""

from pathlib import Path

import pytest

from chainlake.errors import BadInput
from chainlake.sources.formats import DOMAIN_OF, FORMATS, OPTIONS, check_files, check_options, format_of, placed, rollback_window


def test_files_of_options_are_remembered_by_their_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook runs in a directory of its own, where a name alone would be looked for in vain."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nodes.jsonl").touch()
    check_files({"registry": "nodes.jsonl", "app_hash": "tree"})
    assert placed({"registry": "nodes.jsonl", "app_hash": "tree"}) == {"registry": f"{tmp_path}/nodes.jsonl", "app_hash": "tree"}
    with pytest.raises(BadInput, match="option streams: there is no file 'ids'"):
        check_files({"streams": "ids"})


def test_every_kind_has_a_format_a_domain_and_options() -> None:
    assert set(FORMATS) == set(DOMAIN_OF) == set(OPTIONS)
    assert all("\n" not in text for options in OPTIONS.values() for text in options.values())


def test_an_unknown_kind_names_the_known_ones() -> None:
    with pytest.raises(BadInput, match="'solana' is not a kind of chain: choose one of evm, comet, cardano, raft, river"):
        format_of("solana")


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("evm", {"registry": "x"}, "evm chains have no option 'registry': they know finalized, window"),
        ("evm", {"finalized": "yes"}, "option finalized is 'yes': choose true or false"),
        ("cardano", {"window": "-1"}, "option window is '-1': a whole number is expected"),
        ("cardano", {"network_start": "²"}, "a whole number is expected"),
        ("comet", {"app_hash": "real"}, "choose tree or placeholder"),
    ],
)
def test_wrong_options_say_what_is_right(kind: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(BadInput) as error:
        check_options(kind, options)
    assert message in str(error.value)


def test_known_options_are_accepted() -> None:
    check_options("cardano", {"window": "2160", "network": "mainnet", "cage_policy": "ab" * 28})
    check_options("river", {"streams": "file", "page_size": "200"})


@pytest.mark.parametrize(
    ("kind", "options", "window"),
    [
        ("evm", {}, 0),
        ("evm", {"finalized": "true", "window": "9"}, 0),
        ("evm", {"finalized": "false"}, 64),
        ("evm", {"finalized": "false", "window": "9"}, 9),
        ("cardano", {}, 2160),
        ("cardano", {"window": "10"}, 10),
        ("comet", {}, 0),
        ("raft", {}, 0),
        ("river", {}, 0),
    ],
)
def test_the_rollback_window_of_each_kind(kind: str, options: dict[str, str], window: int) -> None:
    assert rollback_window(kind, options) == window
