"""URLs of nodes, and that nothing secret in or beside them is stored, logged or shown."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from chainlake.errors import BadInput, LakeError
from chainlake.sources import evm_rpc, rpc_client
from chainlake.sources.base import BadBlock, Split
from chainlake.sources.datasource import BlockReader
from chainlake.sources.endpoint import check_url, endpoint, environment, shown
from chainlake.sources.formats import format_of
from chainlake.sources.http_post import Poster
from tests.unit.evm_node import FakeNode, Reply, serving

SECRET = "s3cret-Key"


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeNode]:
    monkeypatch.setattr(rpc_client, "FIRST_PAUSE", 0.001)
    with serving(FakeNode(count=3)) as running:
        yield running


def at(node: FakeNode, user: str = "", path: str = "") -> str:
    return node.url.replace("://", f"://{user}@" if user else "://") + path


@pytest.mark.parametrize(
    "url", ["http://localhost", "https://node.example:443/v3/${KEY}", "http://[::1]:8545", "http://me:${PW}@h/x?y=z"]
)
def test_the_url_of_a_node_is_kept_as_it_is(url: str) -> None:
    assert format_of("evm").expand(url) == [url]


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ws://h:8546", "'ws': give its http:// or https:// URL"),
        ("ftp://h", "give its http:// or https:// URL"),
        ("http://", "is not the URL of a node"),
        ("http://h:99999", "cannot be read"),
        ("http://h:port", "cannot be read"),
        ("http://[::1", "cannot be read"),
        ("http://${HOST}:1/", "its host and port in full"),
        ("http://h/#part", "is not the URL of a node"),
        (f"http://me:{SECRET}@h:1", "write ${NAME} in its place and set the environment variable NAME"),
        (f"http://me:x${{PW}}{SECRET}@h:1", "the URL has a password"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_repeating_it(url: str, words: str) -> None:
    with pytest.raises(BadInput) as error:
        check_url(url)
    assert words in str(error.value) and SECRET not in str(error.value) and "\n" not in str(error.value)


def test_only_scheme_host_and_port_are_shown() -> None:
    assert shown(f"https://me:{SECRET}@Node.example:1234/{SECRET}?k={SECRET}") == "https://node.example:1234"
    assert shown("http://[::1]:8545/x") == "http://[::1]:8545"


def test_basic_auth_takes_its_password_from_the_environment(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODE_PW", "p@ss/w:rd")
    assert evm_rpc.network(at(node, "me:${NODE_PW}"), {}) == "7"
    assert base64.b64decode(node.headers[0]["Authorization"].removeprefix("Basic ")) == b"me:p@ss/w:rd"


def test_a_header_comes_from_the_environment(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODE_AUTH", f"Bearer {SECRET}")
    assert evm_rpc.network(node.url, {"header_env": "NODE_AUTH"}) == "7"
    assert node.headers[0]["Authorization"] == f"Bearer {SECRET}"


def test_keys_in_path_and_query_come_from_the_environment(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "a b/c")
    evm_rpc.network(at(node, path="/v3/${KEY}?token=${KEY}&x=1"), {})
    assert node.paths[0] == "/v3/a%20b/c?token=a%20b/c&x=1"


def test_secrets_are_not_shown_in_any_spelling_that_a_node_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTH", f"Bearer {SECRET}")
    monkeypatch.setenv("KEY", "a b/c")
    told = endpoint("http://h", {"header_env": "AUTH"}).without_secrets(f"token {SECRET} is not valid, sent as Bearer {SECRET}")
    assert told == "token … is not valid, sent as …"
    assert endpoint("http://h/${KEY}", {}).without_secrets("no project /a%20b/c, a b/c") == "no project /…, …"
    pair = base64.b64encode(b"me:a b/c").decode()
    assert endpoint("http://me:${KEY}@h", {}).without_secrets(f"refused {pair}") == "refused …"


@pytest.mark.parametrize(("value", "words"), [(None, "the environment variable KEY is not set"), ("a\nb", "more than one line")])
def test_a_variable_that_is_missing_or_cannot_be_sent_is_named(
    value: str | None, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KEY", raising=False)
    if value:
        monkeypatch.setenv("KEY", value)
    for url, options in (("http://h/${KEY}", {}), ("http://h", {"header_env": "KEY"})):
        with pytest.raises(BadInput, match=words):
            endpoint(url, options)


def test_readers_in_other_processes_get_the_variables_by_name(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", SECRET)
    url = at(node, path="/${KEY}")
    given = environment(url, {"header_env": "KEY"})
    assert given == {"env:KEY": SECRET}
    assert environment(node.url, {}) == {}
    monkeypatch.delenv("KEY")
    options = {
        "kind": "evm",
        "paths": json.dumps([url]),
        "cursor": "null",
        "max_blocks": "1",
        "max_bytes": "1",
        "chain_options": "{}",
        "secrets": json.dumps(given),
        "splits": json.dumps([{"source": url, "start": 0, "end": 3, "max_blocks": 3}]),
    }
    source = BlockReader(options)
    rows = [row for part in source.partitions() for batch in source.read(part) for row in batch.to_pylist()]
    assert [(row["height"], row["source"]) for row in rows] == [(0, node.url), (1, node.url), (2, node.url)]
    assert node.paths[-1] == f"/{SECRET}"


def repeating(request: Any, found: Any) -> Reply:
    error = {"code": -32000, "message": f"bad key {SECRET}\nin /{SECRET}"}
    return Reply(json.dumps([{"id": one["id"], "error": error} for one in found]).encode())


@pytest.mark.parametrize(
    "fault",
    [
        repeating,
        lambda request, found: Reply(SECRET.encode(), 401),
        lambda request, found: Reply(SECRET.encode(), 302, {"Location": f"http://h/{SECRET}"}),
        lambda request, found: Reply(SECRET.encode(), 500),
        lambda request, found: Reply(SECRET.encode()),
        lambda request, found: Reply(b"x", promised=9),
    ],
)
def test_no_error_shows_a_secret_even_if_the_node_repeats_it(node: FakeNode, fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", SECRET)
    node.always = fault
    options = {"header_env": "KEY", "retries": "1"}
    url = at(node, "me:${KEY}", "/${KEY}?${KEY}")
    (bad,) = evm_rpc.read(Split(url, 0, 2, 2), options)
    assert isinstance(bad, BadBlock)
    with pytest.raises(LakeError) as error:
        evm_rpc.network(url, options)
    for text in (str(error.value), bad.reason, bad.source, repr(endpoint(url, options))):
        assert SECRET not in text and base64.b64encode(f"me:{SECRET}".encode()).decode() not in text and "\n" not in text


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://Node.example", "node.example"),
        ("http://[::1]:8545/x", "[::1]:8545"),
        ("https://me@bücher.example:85", "xn--bcher-kva.example:85"),
    ],
)
def test_a_request_names_its_host_as_http_wants_it(url: str, host: str) -> None:
    lines = Poster(endpoint(url, {}), 1, 1)._request(b"body", "/x").split(b"\r\n")
    assert lines[0] == b"POST /x HTTP/1.1" and f"Host: {host}".encode() in lines and lines[-1] == b"body"
