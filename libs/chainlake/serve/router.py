"""Which handler answers which path. Every domain adds its routes here: `router.add("GET", "/stream/{id}", handler)`."""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

TEXT = "text/plain; charset=utf-8"
JSON = "application/json"


@dataclass(frozen=True)
class Request:
    """An HTTP request that was read completely."""

    method: str
    path: str
    params: Mapping[str, str] = field(default_factory=dict)
    """Values of the {names} in the route."""
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    remote: str = ""


@dataclass(frozen=True)
class Response:
    """What is sent back."""

    status: int
    body: bytes = b""
    content_type: str = TEXT
    headers: Mapping[str, str] = field(default_factory=dict)


Handler = Callable[[Request], Awaitable[Response]]


def json_response(value: Any, status: int = 200) -> Response:
    return Response(status, (json.dumps(value, default=str) + "\n").encode(), JSON)


def text_response(text: str, status: int = 200) -> Response:
    return Response(status, text.encode())


class Router:
    """Routes by method and path; `{name}` stands for one part of a path."""

    def __init__(self) -> None:
        self._routes: list[tuple[str, tuple[str, ...], Handler]] = []

    def add(self, method: str, pattern: str, handler: Handler) -> None:
        self._routes.append((method, _parts(pattern), handler))

    def find(self, method: str, path: str) -> tuple[Handler, dict[str, str]] | Response:
        """The handler and the values of its pattern's names, or the response that there is none."""
        parts = _parts(path)
        matching = [
            (way, handler, params) for way, pattern, handler in self._routes if (params := _matched(pattern, parts)) is not None
        ]
        if not matching:
            return json_response({"error": f"there is nothing at {path[:200]}: GET / lists what there is"}, 404)
        wanted = "GET" if method == "HEAD" else method
        for way, handler, params in matching:
            if way == wanted:
                return handler, params
        allowed = ", ".join(sorted({way for way, _, _ in matching}))
        refused = json_response({"error": f"{method[:20]} is not possible here: use {allowed}"}, 405)
        return Response(405, refused.body, refused.content_type, {"Allow": allowed})


def _parts(path: str) -> tuple[str, ...]:
    return tuple(path.strip("/").split("/")) if path.strip("/") else ()


def _matched(pattern: tuple[str, ...], parts: tuple[str, ...]) -> dict[str, str] | None:
    if len(pattern) != len(parts):
        return None
    found = {}
    for wanted, part in zip(pattern, parts, strict=True):
        if wanted.startswith("{") and part:
            found[wanted[1:-1]] = unquote(part)
        elif wanted != part:
            return None
    return found
