"""Routes by pattern, for this and later domains."""

import asyncio

import pytest

from chainlake.serve.router import Request, Response, Router, json_response, text_response


async def show(request: Request) -> Response:
    return json_response(dict(request.params))


async def other(request: Request) -> Response:
    return text_response("other")


@pytest.fixture
def router() -> Router:
    router = Router()
    router.add("GET", "/stream/{id}", show)
    router.add("POST", "/stream/{id}", other)
    router.add("GET", "/replica/{id}/health", show)
    router.add("GET", "/notifications", other)
    return router


@pytest.mark.parametrize(
    ("path", "params"),
    [
        ("/stream/ab12", {"id": "ab12"}),
        ("/stream/a%2Fb/", {"id": "a/b"}),
        ("/replica/7/health", {"id": "7"}),
        ("/notifications", {}),
        ("//notifications//", {}),
    ],
)
def test_names_in_a_pattern_stand_for_one_part(router: Router, path: str, params: dict[str, str]) -> None:
    found = router.find("GET", path)
    assert not isinstance(found, Response) and found[1] == params


@pytest.mark.parametrize("path", ["/", "/stream", "/stream/", "/stream/a/b", "/replica/7", "/replica//health", "/Notifications"])
def test_what_no_pattern_fits_is_not_found(router: Router, path: str) -> None:
    found = router.find("GET", path)
    assert isinstance(found, Response) and found.status == 404


def test_a_path_has_its_methods(router: Router) -> None:
    get, post, head = (router.find(method, "/stream/x") for method in ("GET", "POST", "HEAD"))
    assert not isinstance(get, Response) and not isinstance(post, Response) and not isinstance(head, Response)
    assert (get[0], post[0], head[0]) == (show, other, show)
    refused = router.find("PUT", "/stream/x")
    assert isinstance(refused, Response) and (refused.status, refused.headers) == (405, {"Allow": "GET, POST"})


def test_handlers_get_the_values(router: Router) -> None:
    found = router.find("GET", "/stream/x")
    assert not isinstance(found, Response)
    assert asyncio.run(found[0](Request("GET", "/stream/x", found[1]))).body == b'{"id": "x"}\n'
