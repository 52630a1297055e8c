"""ABCI's socket protocol: each message has its length before it as a varint; answers come in the order of the questions.

CometBFT opens four connections (consensus, mempool, query, snapshot). Each is read on its own, and the application answers one
question at a time, but for queries about earlier blocks. Answers are buffered until a Flush asks for them.
"""

import asyncio
import sys

from chainlake.abci.application import Application
from chainlake.abci.messages import Method, exception, read_request, response
from chainlake.errors import LakeError
from chainlake.sources.wire import to_varint

MAX_MESSAGE = 128 << 20


class AbciServer:
    """Serves an application."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._turn = asyncio.Lock()
        self._server: asyncio.Server | None = None
        self.ended = asyncio.Event()
        """Set when a question could not be answered: the application and the chain no longer agree."""

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen, and say where."""
        self._server = await asyncio.start_server(self._talk, host, port, limit=1 << 20)
        found = self._server.sockets[0].getsockname()
        return str(found[0]), int(found[1])

    async def stop(self) -> None:
        """Take no more connections."""
        if self._server is not None:
            self._server.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (data := await read_message(reader)) is not None:
                method, answer = await self._answered(data)
                writer.write(to_varint(len(answer)) + answer)
                if method in (None, Method.FLUSH):
                    await writer.drain()
                if method is None:
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answered(self, data: bytes) -> tuple[Method | None, bytes]:
        """The answer to a request, and its method; None if that failed."""
        try:
            method, request = read_request(data)
            apart = self._application.apart(method, request)
            if apart is not None:
                return method, response(method, await asyncio.to_thread(apart))
            async with self._turn:
                return method, response(method, await asyncio.to_thread(self._application.answer, method, request))
        except Exception as error:  # whatever it is: CometBFT has to hear of it, or it waits for ever
            text = str(error) if isinstance(error, LakeError) else f"{type(error).__name__}: {error}"
            sys.stderr.write(f"lake abci: {text}\n")
            self.ended.set()
            return None, exception(text)


async def read_message(reader: asyncio.StreamReader) -> bytes | None:
    """The next message; None at the end of the connection."""
    size = shift = 0
    while True:
        byte = await reader.read(1)
        if not byte:
            return None
        size |= (byte[0] & 0x7F) << shift
        shift += 7
        if byte[0] < 0x80:
            break
        if shift > 28:
            raise ConnectionError("a message claims more than this server takes")
    if size > MAX_MESSAGE:
        raise ConnectionError("a message claims more than this server takes")
    return await reader.readexactly(size)
