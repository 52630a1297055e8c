"""One HTTP request after another to one node, over a connection that is kept: bounded in time and size."""

import http.client
import io
import socket
import ssl
import time
import zlib
from datetime import datetime, timezone
from email.message import Message
from email.utils import parsedate_to_datetime
from typing import Any

from chainlake.errors import Unavailable
from chainlake.sources.endpoint import Endpoint

PIECE = 1 << 16
CONNECT_SECONDS, LONGEST_SECONDS = 10.0, 86_400.0

Answer = tuple[int, Message, bytes]


class Passing(Exception):
    """A failure that the next try may not meet. `wait` is how many seconds the node asked us to stay away."""

    def __init__(self, reason: str, wait: float | None = None) -> None:
        super().__init__(reason)
        self.wait = wait


class TooMuch(Passing):
    """A failure that a smaller request may not meet."""


class Poster:
    """Posts to one node. Not for several threads at once."""

    def __init__(self, endpoint: Endpoint, timeout: float, max_response: int) -> None:
        self._endpoint = endpoint
        self._timeout = min(timeout, LONGEST_SECONDS)
        self._max_response = max_response
        self._connection: http.client.HTTPConnection | None = None

    def post(self, body: bytes, target: str = "") -> Answer:
        """Status, headers and body of the answer. `target` is a path other than the endpoint's own."""
        try:
            connection = self._connected()
            return self._exchange(connection, body, target or self._endpoint.target)
        except TimeoutError:
            self.close()
            raise TooMuch(f"gave no whole answer within {self._timeout:g} s") from None
        except ssl.SSLCertVerificationError as error:
            self.close()
            raise Unavailable(f"{self._endpoint.shown} shows a certificate that is not trusted: {error.verify_message}") from None
        except Passing:
            self.close()
            raise
        except (OSError, http.client.HTTPException, zlib.error) as error:
            self.close()
            raise Passing(f"broke off the connection ({_name(error)})") from None

    def close(self) -> None:
        """End the connection; the next post opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connected(self) -> http.client.HTTPConnection:
        if self._connection is None:
            make = http.client.HTTPSConnection if self._endpoint.secure else http.client.HTTPConnection
            connection = make(self._endpoint.host, self._endpoint.port, timeout=min(self._timeout, CONNECT_SECONDS))
            try:
                connection.connect()
            except ssl.SSLCertVerificationError:
                raise
            except (OSError, UnicodeError) as error:
                raise Passing(f"cannot be reached ({_name(error)})") from None
            connection.sock.settimeout(self._timeout)
            self._connection = connection
        return self._connection

    def _exchange(self, connection: http.client.HTTPConnection, body: bytes, target: str) -> Answer:
        deadline = time.monotonic() + self._timeout
        connection.sock.sendall(self._request(body, target))  # at once: to send is what costs most of a small request
        response = http.client.HTTPResponse(_Until(connection.sock, deadline), method="POST")  # type: ignore[arg-type]
        response.begin()
        pieces, size = [], 0
        while piece := response.read1(PIECE):
            pieces.append(piece)
            size += len(piece)
            if size > self._max_response:
                raise self._too_large()
        if response.length:
            raise http.client.IncompleteRead(b"", response.length)
        response.close()
        if response.will_close:
            self.close()
        data = b"".join(pieces)
        packed = response.headers.get("Content-Encoding", "").lower() == "gzip"
        return response.status, response.headers, self._unpacked(data) if packed else data

    def _request(self, body: bytes, target: str) -> bytes:
        host = self._endpoint.shown.partition("://")[2]
        headers = {
            "Host": host if host.isascii() else host.encode("idna").decode(),
            "Content-Length": str(len(body)),
            **self._endpoint.headers,
        }
        lines = [f"POST {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        return "\r\n".join(lines).encode() + body

    def _unpacked(self, data: bytes) -> bytes:
        unpacker = zlib.decompressobj(wbits=31)
        found = unpacker.decompress(data, self._max_response + 1)
        if len(found) > self._max_response:
            raise self._too_large()
        if not unpacker.eof:
            raise http.client.IncompleteRead(b"")
        return found

    def _too_large(self) -> TooMuch:
        return TooMuch(f"answered with more than {self._max_response} bytes (option max_response)")


class _Until(io.RawIOBase):
    """What comes out of a socket up to a moment, however it is dripped: headers, chunks and bodies alike."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._deadline = deadline
        self._raw = sock.makefile("rb", buffering=0)

    def makefile(self, *_: Any) -> io.BufferedReader:
        """What `http.client` asks a socket for."""
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if time.monotonic() > self._deadline:
            raise TimeoutError
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def retry_after(headers: Message) -> float | None:
    """Seconds to wait by a `Retry-After` header, which has seconds or a date."""
    text = headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        moment = parsedate_to_datetime(text)
    except (TypeError, ValueError, OverflowError):
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
    return max(0.0, (moment - datetime.now(timezone.utc)).total_seconds())


def _name(error: BaseException) -> str:
    """What went wrong below HTTP. Messages of `http.client` may repeat what was sent, so only their kind is told."""
    return (isinstance(error, OSError) and error.strerror) or type(error).__name__
