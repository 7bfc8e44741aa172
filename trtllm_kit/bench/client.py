"""Streams answers over HTTP and stamps every piece the moment it is there: one thread, the standard library.

A piece is stamped before it is looked at. Connections are used again; a server that closed an idle one in the
meantime costs a second try and no failure. Nothing can hang: silence ends a request after ``silence`` seconds.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

from trtllm_kit.bench.dialects import Ask, Dialect
from trtllm_kit.bench.heard import Heard
from trtllm_kit.bench.http_stream import Malformed, Response
from trtllm_kit.bench.record import Failure
from trtllm_kit.bench.secure import trusting
from trtllm_kit.errors import UsageError

clock = time.monotonic
"""Seconds; the one clock of a run, and on Linux that of every process of the machine."""


class Client(Protocol):
    """What asks a server."""

    arrived: Callable[[], float]
    """Gives the reading of the clock at which what is being read had come."""

    async def ask(self, ask: Ask, heard: Heard) -> None:
        """Send a request and hear its answer to the end, in ``heard``, failures included."""

    async def close(self) -> None:
        """Give back what is open."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens."""

    host: str
    port: int
    secure: bool
    prefix: str = ""
    """Path in front of the interface's own."""
    ca: str = ""
    """File of certificates to trust over TLS; empty: the system's."""

    @property
    def place(self) -> str:
        """Host and port as URLs spell them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def address_of(url: str) -> Address:
    """Return the address in ``http://HOST:PORT[/PREFIX]``; raises ``UsageError``."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, host, port = urlsplit(""), None, None
    if parts.scheme not in _USUAL_PORTS or not host:
        raise UsageError(
            f"{url!r} is no address of a server",
            why="it must be http://HOST:PORT, or begin with https://, grpc:// or grpcs://",
            hint="http://127.0.0.1:8000",
        )
    if parts.username is not None or parts.query or parts.fragment:
        raise UsageError(
            f"the URL of {host} holds more than a path",
            why="names, keys and questions in a URL are not sent",
            hint=f"{parts.scheme}://{host}, and --header 'Authorization: Bearer KEY' for a key",
        )
    path = quote(parts.path.rstrip("/"), safe="/%")
    return Address(host, port or _USUAL_PORTS[parts.scheme], parts.scheme in ("https", "grpcs"), path)


_USUAL_PORTS = {"http": 80, "https": 443, "grpc": 8001, "grpcs": 8001}


class _Connection(asyncio.Protocol):
    """One connection, which serves one exchange at a time."""

    def __init__(self, arrived: Callable[[], float]) -> None:
        self._arrived = arrived
        self.transport: asyncio.Transport | None = None
        self.exchange: _Exchange | None = None
        self.open = False
        self.used = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101  # of a stream
        self.transport, self.open = transport, True

    def data_received(self, data: bytes) -> None:
        stamp = self._arrived()
        if self.exchange is None:
            self.drop()
        else:
            self.exchange.take(data, stamp)

    def connection_lost(self, error: Exception | None) -> None:
        self.open = False
        if self.exchange is not None:
            self.exchange.lost(error, clock())

    def drop(self) -> None:
        self.open = False
        if self.transport is not None:
            self.transport.abort()


class _Exchange:
    """One request on a connection, and the answer as it comes."""

    def __init__(self, dialect: Dialect, heard: Heard, done: asyncio.Future[None]) -> None:
        self.heard, self.done = heard, done
        heard.may_repeat = dialect.may_repeat
        self.response = Response()
        self._dialect = dialect
        self._read = dialect.read

    @property
    def untouched(self) -> bool:
        """Whether not a byte has come back."""
        return not self.response.status and not self.heard.stamps

    def take(self, data: bytes, stamp: float) -> None:
        heard = self.heard
        heard.latest = stamp
        try:
            for event in self.response.feed(data):
                heard.take(self._read(event), stamp)
        except Malformed as error:
            heard.fail(Failure.MALFORMED, str(error), stamp)
        if self.response.complete or heard.failure is not None:
            self.finish(stamp)

    def lost(self, error: Exception | None, stamp: float) -> None:
        self.response.end()
        if not self.response.complete:
            what = f"{type(error).__name__}: {error}" if error else "the connection was closed"
            self.heard.fail(Failure.BROKEN, f"{what} after {len(self.heard.stamps)} pieces", stamp)
        self.finish(stamp)

    def finish(self, stamp: float) -> None:
        if self.done.done():
            return
        heard, response = self.heard, self.response
        if heard.failure is None:
            self._judge(heard, response, stamp)
        if heard.failure is None:
            heard.end(stamp)
        self.done.set_result(None)

    def _judge(self, heard: Heard, response: Response, stamp: float) -> None:
        """See whether an answer that the protocol calls complete is one."""
        if response.status != 200:
            heard.fail(Failure.STATUS, f"status {response.status}: {_words(response.body)}", stamp)
        elif not response.streams:
            kind = response.headers.get(b"content-type", b"no type").decode("latin-1")
            heard.fail(Failure.MALFORMED, f"no stream of events but {kind}: {_words(response.body)}", stamp)
        elif self._dialect.says_done and not heard.said_done and not heard.finish:
            heard.fail(Failure.BROKEN, f"the stream ended unfinished after {len(heard.stamps)} pieces", stamp)


class HttpClient:
    """Asks one server over HTTP."""

    def __init__(
        self,
        address: Address,
        dialect: Dialect,
        model: str,
        *,
        silence: float,
        exact: bool = False,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Take where to ask and how; ``silence`` is the longest wait for the next byte, seconds.

        Raises ``UsageError`` where the file of certificates to trust holds none.
        """
        self.arrived: Callable[[], float] = clock
        self._address, self._dialect, self._model = address, dialect, model
        self._silence, self._exact = silence, exact
        self._idle: list[_Connection] = []
        self._ssl = trusting(address.ca) if address.secure else None
        lines = [
            f"POST {address.prefix}{dialect.path(quote(model, safe=''))} HTTP/1.1",
            f"Host: {address.place}",
        ]
        lines += ["Content-Type: application/json", "Accept: text/event-stream"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        self._head = "\r\n".join(lines).encode() + b"\r\nContent-Length: "

    async def ask(self, ask: Ask, heard: Heard) -> None:
        """Send a request and hear its answer to the end, in ``heard``, failures included."""
        body = json.dumps(self._dialect.body(self._model, ask, self._exact)).encode()
        data = self._head + str(len(body)).encode() + b"\r\n\r\n" + body
        while not await self._tried(data, heard):
            heard.failure, heard.why, heard.ended = None, "", 0.0

    async def close(self) -> None:
        """Close every connection."""
        for connection in self._idle:
            connection.drop()
        self._idle.clear()

    async def _tried(self, data: bytes, heard: Heard) -> bool:
        """Ask once; False when a connection that had served before turned out to be closed."""
        connection = await self._connected(heard)
        if connection is None:
            return True
        again = connection.used
        loop = asyncio.get_running_loop()
        exchange = _Exchange(self._dialect, heard, loop.create_future())
        connection.exchange, connection.used = exchange, True
        assert connection.transport is not None  # noqa: S101  # it is connected
        heard.sent = heard.latest = clock()
        connection.transport.write(data)
        watch = loop.call_later(self._silence, self._listen, connection, exchange)
        try:
            await exchange.done
        except asyncio.CancelledError:  # why is told by who ended it
            connection.drop()
            raise
        finally:
            watch.cancel()
            connection.exchange = None
        if exchange.response.keeps_alive and connection.open and heard.failure in (None, Failure.STATUS):
            self._idle.append(connection)
        else:
            connection.drop()
        return not (again and exchange.untouched and heard.failure is Failure.BROKEN)

    async def _connected(self, heard: Heard) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.open:
                return connection
        loop, place = asyncio.get_running_loop(), self._address
        begun = clock()
        try:
            opening = loop.create_connection(lambda: _Connection(self.arrived), place.host, place.port, ssl=self._ssl)
            _, connection = await asyncio.wait_for(opening, self._silence)
        except TimeoutError:
            heard.fail(Failure.REFUSED, f"no connection within {self._silence:g} s", clock())
            return None
        except OSError as error:
            heard.fail(Failure.REFUSED, str(error), clock())
            return None
        except asyncio.CancelledError:
            heard.sent = begun
            raise
        return connection

    def _listen(self, connection: _Connection, exchange: _Exchange) -> None:
        """End an exchange that has been silent for too long; look again later otherwise."""
        now = clock()
        left = exchange.heard.latest + self._silence - now
        if exchange.done.done():
            return
        if left > 0:
            asyncio.get_running_loop().call_later(left, self._listen, connection, exchange)
            return
        pieces = len(exchange.heard.stamps)
        exchange.heard.fail(Failure.STALLED, f"nothing for {self._silence:g} s after {pieces} pieces", now)
        exchange.finish(now)


def _words(body: Any) -> str:
    text = bytes(body)[:160].decode("utf-8", "replace")
    return " ".join(text.split()) or "no text"
