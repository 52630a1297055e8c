"""As much of a Databricks workspace as `databricks bundle validate` and `bundle deploy` ask: who one is, folders, files, the
warehouse, and a place for jobs and dashboards. It checks nothing of them; it keeps what it is sent."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

WAREHOUSE = {"id": "0a1b", "name": "Serverless Starter Warehouse"}
IMPORT = "/api/2.0/workspace-files/import-file"
STATE = ("resources.json", "terraform.tfstate", "deployment.json", "deploy.lock")
"""Files of an earlier deployment, of which there is none."""


class Workspace:
    """What one user finds in a workspace, and has put there."""

    def __init__(self, user: str) -> None:
        self.user = user
        self.url = ""
        self.files: set[str] = set()
        self.jobs: list[dict[str, Any]] = []
        self.dashboards: list[dict[str, Any]] = []

    def answer(self, path: str, query: dict[str, list[str]], body: bytes) -> object:
        """What it says to a call; None if it has no such thing. Every folder exists and belongs to the user."""
        if path == "/api/2.0/preview/scim/v2/Me":
            return {"id": "1", "userName": self.user}
        if path == "/api/2.0/sql/warehouses":
            return {"warehouses": [WAREHOUSE]}
        if path == "/api/2.0/workspace/get-status":
            is_there = not query["path"][0].endswith(STATE)
            return {"object_type": "DIRECTORY", "object_id": 1, "path": query["path"][0]} if is_there else None
        if path.startswith("/api/2.0/permissions/"):
            who = "user_name" if "@" in self.user else "service_principal_name"
            return {"access_control_list": [{who: self.user, "all_permissions": [{"permission_level": "CAN_MANAGE"}]}]}
        return self._keep(path, body)

    def _keep(self, path: str, body: bytes) -> object:
        if path.startswith(IMPORT):
            self.files.add(unquote(path.removeprefix(IMPORT)))
        elif path == "/api/2.2/jobs/create":
            self.jobs.append(json.loads(body))
            return {"job_id": len(self.jobs)}
        elif path == "/api/2.0/lakeview/dashboards":
            self.dashboards.append(json.loads(body))
            return {"dashboard_id": str(len(self.dashboards)), "etag": "1"}
        elif not path.startswith(("/api/2.0/workspace/", "/api/2.2/jobs/", "/api/2.0/lakeview/", "/telemetry")):
            return None
        return {}


@contextmanager
def workspace(user: str) -> Iterator[Workspace]:
    """A workspace in which one is `user`, while it is needed."""
    held = Workspace(user)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            asked = urlsplit(self.path)
            found = held.answer(asked.path, parse_qs(asked.query), body)
            missing = {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": f"nothing at {asked.path}"}
            said = json.dumps(missing if found is None else found).encode()
            self.send_response(404 if found is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        do_POST = do_PUT = do_PATCH = do_GET

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        held.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield held
        server.shutdown()
