"""A tab of headless Chromium, driven over its own debugging protocol: nothing to install beside the browser."""

import asyncio
import json
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType

SECONDS = 30.0
OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--window-size=390,844",
)


class Tab:
    """One page."""

    def __init__(self, loop: asyncio.AbstractEventLoop, socket: ClientWebSocketResponse) -> None:
        self._loop, self._socket, self._last = loop, socket, 0
        self._events: list[dict[str, Any]] = []

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, expression: str) -> Any:
        """Its value as soon as it is true."""
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            if value := self.run(expression):
                return value
            time.sleep(0.1)
        raise AssertionError(f"{expression} did not come true")

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        return self._loop.run_until_complete(asyncio.wait_for(self._send(method, params), SECONDS))

    def complaints(self) -> list[str]:
        """What the browser logged as an error, a refusal by the policy among it."""
        self.run("1")
        logged = [event["params"]["entry"] for event in self._events if event["method"] == "Log.entryAdded"]
        thrown = [str(event["params"]) for event in self._events if event["method"] == "Runtime.exceptionThrown"]
        return [entry["text"] for entry in logged if entry["level"] == "error" and "400" not in entry["text"]] + thrown

    async def _send(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._last += 1
        await self._socket.send_json({"id": self._last, "method": method, "params": params})
        async for message in self._socket:
            assert message.type is WSMsgType.TEXT
            value: dict[str, Any] = json.loads(message.data)
            if value.get("id") == self._last:
                result: dict[str, Any] = value["result"]
                return result
            self._events.append(value)
        raise AssertionError("the browser went away")


@contextmanager
def open_tab(chromium: str, url: str, profile: Path) -> Iterator[Tab]:
    """A page in a browser of its own."""
    command = [chromium, *OPTIONS, f"--user-data-dir={profile}", "--remote-debugging-port=0", "about:blank"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    loop = asyncio.new_event_loop()
    session = loop.run_until_complete(_session())
    try:
        socket = loop.run_until_complete(session.ws_connect(_debugger(profile), max_msg_size=0))
        tab = Tab(loop, socket)
        for domain in ("Log", "Runtime", "Page"):
            tab.send(f"{domain}.enable")
        tab.send("Page.navigate", url=url)
        yield tab
    finally:
        process.terminate()
        process.wait(20)
        loop.run_until_complete(session.close())
        loop.close()


async def _session() -> ClientSession:
    return ClientSession()


def _debugger(profile: Path) -> str:
    """Where the first page listens, once the browser has said so."""
    file = profile / "DevToolsActivePort"
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        if file.exists() and (lines := file.read_text().split()):
            with urllib.request.urlopen(f"http://127.0.0.1:{lines[0]}/json/list", timeout=10) as answer:
                pages = [page for page in json.loads(answer.read()) if page["type"] == "page"]
            if pages:
                return str(pages[0]["webSocketDebuggerUrl"])
        time.sleep(0.1)
    raise AssertionError("chromium did not start")
