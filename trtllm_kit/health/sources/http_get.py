"""One HTTP GET that cannot hang, follow or flood: one deadline and one size for everything that is received.

The name look-up, the connection, the head and the body share the deadline, so a server that sends one byte a second
(slow loris) costs no more than one that is silent. Failures are data: nothing is raised for what a server does.

It speaks the little of HTTP/1.1 (RFC 9112) that one answer needs, on a plain socket: the standard library's client
has no deadline for an answer as a whole, no bound for its size, and costs a check from cron half its time to import.
"""

from __future__ import annotations

import os
import re
import socket
import time
from typing import Any

from trtllm_kit.health.access import ANYBODY, Access, NoSecret, authorization
from trtllm_kit.health.snapshot import Outcome
from trtllm_kit.light import dataclass

MAX_BYTES = 16 << 20
"""Largest answer that is read, head and body; a page of 10,000 series is 1 MiB."""
_MAX_LINE = 1 << 16
_MAX_HEADERS = 100
_PIECE = 1 << 16
_URL = re.compile(
    r"http(?P<secure>s?)://(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]+))(?::(?P<port>[0-9]{1,5}))?(?P<path>/[!\"$-~]*)?"
)
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: (.*))?")
_LENGTH = re.compile(rb"[0-9]{1,18}")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;.*)?")
_OK = 200


@dataclass(frozen=True)
class Answer:
    """What came back."""

    outcome: Outcome
    reason: str
    """What happened, in words; empty when the answer is complete with status 200."""
    status: int | None = None
    body: bytes = b""


@dataclass(frozen=True)
class _Place:
    host: str
    port: int
    path: str
    secure: bool


class _Failed(Exception):
    """The question cannot be asked or the answer not be read."""

    def __init__(self, outcome: Outcome, reason: str) -> None:
        super().__init__(reason)
        self.answer = Answer(outcome, reason)


def get(
    url: str,
    timeout_seconds: float,
    max_bytes: int = MAX_BYTES,
    post: bytes | None = None,
    access: Access = ANYBODY,
) -> Answer:
    """Fetch a URL within the time and the size; redirects and proxies are not used.

    ``post`` is JSON to send with it. With ``https://`` the server's certificate must be good.
    """
    deadline = time.monotonic() + timeout_seconds
    try:
        place = _place(url)
        secret = authorization(access, os.environ)
        with _connect(place, deadline, access) as connection:
            connection.settimeout(_left(deadline))
            connection.sendall(_request(place, post, secret))
            return _read(_Received(connection, deadline, max_bytes))
    except _Failed as failure:
        return failure.answer
    except NoSecret as missing:
        return Answer(Outcome.NO_SECRET, str(missing))
    except TimeoutError:
        return Answer(Outcome.TIMEOUT, f"no complete answer within {timeout_seconds:g} s")
    except ConnectionRefusedError:
        return Answer(Outcome.REFUSED, "the port refuses connections")
    except OSError as error:
        return Answer(Outcome.BROKEN, f"the connection failed: {_cause(error)}")


def _place(url: str) -> _Place:
    """Take a URL apart."""
    match = _URL.fullmatch(url)
    port = int(match["port"] or (443 if match["secure"] else 80)) if match else 0
    if match is None or not 0 < port < 1 << 16:
        raise _Failed(Outcome.NO_ADDRESS, "the URL is not of the form http(s)://host:port/path, without a user name")
    return _Place(match["six"] or match["name"], port, match["path"] or "/", bool(match["secure"]))


def _request(place: _Place, post: bytes | None, secret: str) -> bytes:
    host = f"[{place.host}]" if ":" in place.host else place.host
    lines = (
        f"{'GET' if post is None else 'POST'} {place.path} HTTP/1.1",
        f"Host: {host}:{place.port}",
        "Accept: text/plain;version=0.0.4" if post is None else "Accept: application/json",
        "User-Agent: trtkit",
        "Connection: close",
        *((f"Authorization: {secret}",) if secret else ()),
        *(() if post is None else ("Content-Type: application/json", f"Content-Length: {len(post)}")),
    )
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode("ascii") + (post or b"")


def _connect(place: _Place, deadline: float, access: Access) -> socket.socket:
    """Connect to a server, and make the connection a secure one where its URL says so."""
    connection = _reached(place, deadline)
    if not place.secure:
        return connection
    from trtllm_kit.health.sources.secure import Refused, secured

    try:
        return secured(connection, place.host, access.ca_file)
    except Refused as refused:
        connection.close()
        raise _Failed(Outcome.CERTIFICATE, str(refused)) from None
    except BaseException:
        connection.close()
        raise


def _reached(place: _Place, deadline: float) -> socket.socket:
    """Connect to the first address that answers; when none does, a refusal is the error that counts."""
    failures: list[OSError] = []
    for family, kind, protocol, _, address in _addresses(place, deadline):
        connection = socket.socket(family, kind, protocol)
        try:
            connection.settimeout(_left(deadline))
            connection.connect(address)
        except OSError as error:
            connection.close()
            failures.append(error)
        else:
            return connection
    raise next((error for error in failures if isinstance(error, ConnectionRefusedError)), failures[-1])


def _addresses(place: _Place, deadline: float) -> list[tuple[Any, ...]]:
    """Look the host up, in a thread because the system's look-up has no time-out of its own; numbers need none."""
    host = place.host.encode("ascii")  # of a text the standard library would load the tables of every script
    if ":" in place.host or place.host.replace(".", "").isdigit():
        try:
            return list(socket.getaddrinfo(host, place.port, type=socket.SOCK_STREAM))
        except OSError as error:
            raise _Failed(Outcome.NO_ADDRESS, f"host {place.host} has no address: {_cause(error)}") from None
    import threading

    found: list[Any] = []

    def look_up() -> None:
        try:
            found.append(socket.getaddrinfo(host, place.port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            found.append(error)

    thread = threading.Thread(target=look_up, daemon=True)
    thread.start()
    thread.join(_left(deadline))
    if not found:
        raise _Failed(Outcome.NO_ADDRESS, f"the look-up of host {place.host} took too long")
    if isinstance(found[0], Exception):
        raise _Failed(Outcome.NO_ADDRESS, f"host {place.host} has no address: {_cause(found[0])}")
    addresses: list[tuple[Any, ...]] = found[0]
    return addresses


class _Received:
    """What a connection has received, up to one deadline and one size."""

    def __init__(self, connection: socket.socket, deadline: float, max_bytes: int) -> None:
        self._connection = connection
        self._deadline = deadline
        self._max_bytes = max_bytes
        self._left = max_bytes
        self._held = bytearray()

    def line(self) -> bytes:
        """Take the next line, without its end."""
        while (end := self._held.find(b"\n")) < 0:
            if len(self._held) > _MAX_LINE:
                raise _not_http("a line is too long")
            self._more()
        return self._take(end + 1).rstrip(b"\r\n")

    def exactly(self, count: int) -> bytes:
        """Take ``count`` bytes."""
        if count > self._left + len(self._held):
            raise self._too_large()
        while len(self._held) < count:
            self._more()
        return self._take(count)

    def rest(self) -> bytes:
        """Take everything up to the end of the connection."""
        while self._receive():
            pass
        return self._take(len(self._held))

    def _more(self) -> None:
        if not self._receive():
            raise _Failed(Outcome.BROKEN, "the connection ended before the answer did")

    def _receive(self) -> bool:
        self._connection.settimeout(_left(self._deadline))
        piece = self._connection.recv(_PIECE)
        self._left -= len(piece)
        if self._left < 0:
            raise self._too_large()
        self._held += piece
        return bool(piece)

    def _take(self, count: int) -> bytes:
        taken = bytes(self._held[:count])
        del self._held[:count]
        return taken

    def _too_large(self) -> _Failed:
        return _Failed(Outcome.TOO_MUCH, f"the answer is larger than {self._max_bytes} bytes")


def _read(received: _Received) -> Answer:
    """Read one answer; the body of a status other than 200 is not looked at."""
    match = _STATUS.fullmatch(received.line())
    if match is None:
        raise _not_http("it has no status line")
    status = int(match[1])
    if status != _OK:
        reason = f"HTTP status {status} {(match[2] or b'').decode('latin-1')[:40]}".strip()
        return Answer(Outcome.HTTP_ERROR, reason, status)
    headers = _headers(received)
    if b"transfer-encoding" in headers:
        return Answer(Outcome.OK, "", status, _chunks(received, headers[b"transfer-encoding"]))
    if b"content-length" not in headers:
        return Answer(Outcome.OK, "", status, received.rest())
    if _LENGTH.fullmatch(headers[b"content-length"]) is None:
        raise _not_http("its length is no number of bytes")
    return Answer(Outcome.OK, "", status, received.exactly(int(headers[b"content-length"])))


def _headers(received: _Received) -> dict[bytes, bytes]:
    """Read the head, names in lower case; of a header given twice the last one counts."""
    headers: dict[bytes, bytes] = {}
    for _ in range(_MAX_HEADERS):
        line = received.line()
        if not line:
            return headers
        name, _, value = line.partition(b":")
        headers[name.strip().lower()] = value.strip()
    raise _not_http("it has too many headers")


def _chunks(received: _Received, encoding: bytes) -> bytes:
    """Put a chunked body together; trailers are not looked at."""
    if encoding.lower() != b"chunked":
        raise _not_http("its encoding is not one that was asked for")
    pieces: list[bytes] = []
    while True:
        match = _CHUNK.fullmatch(received.line())
        if match is None:
            raise _not_http("a chunk has no size")
        size = int(match[1], 16)
        if size == 0:
            return b"".join(pieces)
        pieces.append(received.exactly(size))
        if received.line():
            raise _not_http("a chunk does not end")


def _not_http(why: str) -> _Failed:
    return _Failed(Outcome.GARBAGE, f"the answer is not HTTP: {why}")


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _cause(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
