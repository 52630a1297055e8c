"""The read-only web page of the gateway: static files of the package, and the two answers that they poll.

Everything comes from this server, so the page works offline, and its policy lets the browser ask and run nothing else.
"""

from datetime import datetime, timezone
from importlib.resources import files
from typing import Any

from chainlake import __version__
from chainlake.errors import BadInput
from chainlake.lake.visibility import LedgerView
from chainlake.serve import overview
from chainlake.serve.engine import ControlTables
from chainlake.serve.fresh import Fresh
from chainlake.serve.router import Request, Response, Router, json_response

STATIC = files("chainlake.serve") / "static"
TYPES = {
    "index.html": "text/html; charset=utf-8",
    "lake.css": "text/css; charset=utf-8",
    "lake.js": "text/javascript; charset=utf-8",
    "view.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


class WebPage:
    """Routes of the page."""

    def __init__(self, chain: str | None, control: ControlTables) -> None:
        """`chain` is the one whose logs are served, if there is one."""
        self._chain = chain
        self._control = control
        self._fresh = Fresh("page")
        self._files = {name: (STATIC / name).read_bytes() for name in TYPES}

    def add_routes(self, router: Router) -> None:
        router.add("GET", "/static/{name}", self._static)
        router.add("GET", "/lake/status.json", self._status)
        router.add("GET", "/lake/ledger.json", self._ledger)

    def home(self) -> Response:
        """The page itself."""
        return self._file("index.html")

    def close(self) -> None:
        self._fresh.close()

    async def _static(self, request: Request) -> Response:
        name = request.params["name"]
        if name not in self._files:
            return json_response({"error": f"there is no file {name[:100]!r} here"}, 404)
        return self._file(name)

    def _file(self, name: str) -> Response:
        return Response(200, self._files[name], TYPES[name], {**HEADERS, "Vary": "Accept"})

    async def _status(self, request: Request) -> Response:
        state: dict[str, Any] = await self._fresh.get("status", self._read_status)
        return _json(state)

    def _read_status(self) -> dict[str, Any]:
        found = overview.overview(self._control.ledger(), self._control.rows("health"))
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        return {"version": __version__, "chain": self._chain, "at": now, **found}

    async def _ledger(self, request: Request) -> Response:
        """Commits of one stage and chain: ?stage=…&chain=…"""
        stage, chain = request.query.get("stage", ""), request.query.get("chain", "")
        ledger: LedgerView = await self._fresh.get("ledger", self._control.ledger)
        history = ledger.of(stage, chain)
        if not history.commits:
            raise BadInput(f"stage {stage[:60]!r} has no commits of chain {chain[:60]!r}: /lake/status.json lists what there is")
        return _json({"stage": stage, "chain": chain, **overview.commits(history)})


def wants_html(accept: str) -> bool:
    """Browsers name text/html; programs do not, and get the plain text."""
    return any(part.split(";")[0].strip().lower() == "text/html" for part in accept.split(","))


def _json(value: Any) -> Response:
    plain = json_response(value)
    return Response(plain.status, plain.body, plain.content_type, HEADERS)
