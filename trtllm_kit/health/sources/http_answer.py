"""One question and one answer of HTTP/1.1 (RFC 9112), the little that a page needs, apart from any connection.

An answer is read by a generator that takes pieces as they come, so that one that is waited for and one of many that
are watched at the same time are read alike. Failures are data: nothing is raised for what a server does.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Generator
from typing import TypeVar

from trtllm_kit.health.snapshot import Outcome
from trtllm_kit.light import dataclass

MAX_BYTES = 16 << 20
"""Largest answer that is read, head and body; a page of 10,000 series is 1 MiB."""
PIECE = 1 << 16
"""Most bytes that are taken from a connection at once."""
_MAX_LINE = 1 << 16
_MAX_HEADERS = 100
_URL = re.compile(
    r"http(?P<secure>s?)://(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]+))(?::(?P<port>[0-9]{1,5}))?(?P<path>/[!\"$-~]*)?"
)
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: (.*))?")
_LENGTH = re.compile(rb"[0-9]{1,18}")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;.*)?")
_OK = 200
_NO_ROOM = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS))
_Made = TypeVar("_Made")
Taking = Generator[None, bytes, _Made]
"""Asks for the next piece by yielding, is sent it (empty: the connection has ended), and returns what it made."""


@dataclass(frozen=True)
class Answer:
    """What came back."""

    outcome: Outcome
    reason: str
    """What happened, in words; empty when the answer is complete with status 200."""
    status: int | None = None
    body: bytes = b""


@dataclass(frozen=True)
class Place:
    """A URL taken apart."""

    host: str
    port: int
    path: str
    secure: bool

    @property
    def is_number(self) -> bool:
        """Whether the host is an address itself and no name to be looked up."""
        return ":" in self.host or self.host.replace(".", "").isdigit()


class Failed(Exception):
    """The question cannot be asked or the answer not be read."""

    def __init__(self, outcome: Outcome, reason: str) -> None:
        super().__init__(reason)
        self.answer = Answer(outcome, reason)


def place_of(url: str) -> Place:
    """Take a URL apart; raises ``Failed`` for one that has no meaning here."""
    match = _URL.fullmatch(url)
    port = int(match["port"] or (443 if match["secure"] else 80)) if match else 0
    if match is None or not 0 < port < 1 << 16:
        raise Failed(Outcome.NO_ADDRESS, "the URL is not of the form http(s)://host:port/path, without a user name")
    return Place(match["six"] or match["name"], port, match["path"] or "/", bool(match["secure"]))


def request_of(place: Place, post: bytes | None, secret: str) -> bytes:
    """Write the question; ``post`` is JSON to send with it, ``secret`` the header that says who asks."""
    host = f"[{place.host}]" if ":" in place.host else place.host
    lines = (
        f"{'GET' if post is None else 'POST'} {place.path} HTTP/1.1",
        f"Host: {host}:{place.port}",
        "Accept-Encoding: identity",
        "Accept: text/plain;version=0.0.4" if post is None else "Accept: application/json",
        "User-Agent: trtkit",
        "Connection: close",
        *((f"Authorization: {secret}",) if secret else ()),
        *(() if post is None else ("Content-Type: application/json", f"Content-Length: {len(post)}")),
    )
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode("ascii") + (post or b"")


def no_answer(error: OSError, timeout_seconds: float) -> Answer:
    """Return what an error of a connection means."""
    if isinstance(error, TimeoutError):
        return Answer(Outcome.TIMEOUT, f"no complete answer within {timeout_seconds:g} s")
    if isinstance(error, ConnectionRefusedError):
        return Answer(Outcome.REFUSED, "the port refuses connections")
    if error.errno in _NO_ROOM:
        return Answer(Outcome.NO_ROOM, f"this machine could not ask: {cause(error)}")
    return Answer(Outcome.BROKEN, f"the connection failed: {cause(error)}")


def cause(error: BaseException) -> str:
    """Return the words of an error, without its number."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def reading(max_bytes: int) -> Taking[Answer]:
    """Read one answer of at most ``max_bytes``; the body of a status other than 200 is not looked at.

    Raises ``Failed``.
    """
    received = _Received(max_bytes)
    match = _STATUS.fullmatch((yield from received.line()))
    if match is None:
        raise _not_http("it has no status line")
    status = int(match[1])
    if status != _OK:
        reason = f"HTTP status {status} {(match[2] or b'').decode('latin-1')[:40]}".strip()
        return Answer(Outcome.HTTP_ERROR, reason, status)
    headers = yield from _headers(received)
    if (coding := headers.get(b"content-encoding", b"identity").lower()) != b"identity":
        raise Failed(
            Outcome.GARBAGE, f"the answer is packed ({coding[:20].decode('latin-1')}), which was not asked for"
        )
    if b"transfer-encoding" in headers:
        return Answer(Outcome.OK, "", status, (yield from _chunks(received, headers[b"transfer-encoding"])))
    if b"content-length" not in headers:
        return Answer(Outcome.OK, "", status, (yield from received.rest()))
    if _LENGTH.fullmatch(headers[b"content-length"]) is None:
        raise _not_http("its length is no number of bytes")
    return Answer(Outcome.OK, "", status, (yield from received.exactly(int(headers[b"content-length"]))))


class _Received:
    """What a connection has received, up to one size."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._left = max_bytes
        self._held = bytearray()

    def line(self) -> Taking[bytes]:
        """Take the next line, without its end."""
        while (end := self._held.find(b"\n")) < 0:
            if len(self._held) > _MAX_LINE:
                raise _not_http("a line is too long")
            yield from self._more()
        return self._take(end + 1).rstrip(b"\r\n")

    def exactly(self, count: int) -> Taking[bytes]:
        """Take ``count`` bytes."""
        if count > self._left + len(self._held):
            raise self._too_large()
        while len(self._held) < count:
            yield from self._more()
        return self._take(count)

    def rest(self) -> Taking[bytes]:
        """Take everything up to the end of the connection."""
        while piece := (yield):
            self._keep(piece)
        return self._take(len(self._held))

    def _more(self) -> Taking[None]:
        piece = yield
        if not piece:
            raise Failed(Outcome.BROKEN, "the connection ended before the answer did")
        self._keep(piece)

    def _keep(self, piece: bytes) -> None:
        self._left -= len(piece)
        if self._left < 0:
            raise self._too_large()
        self._held += piece

    def _take(self, count: int) -> bytes:
        taken = bytes(self._held[:count])
        del self._held[:count]
        return taken

    def _too_large(self) -> Failed:
        return Failed(Outcome.TOO_MUCH, f"the answer is larger than {self._max_bytes} bytes")


def _headers(received: _Received) -> Taking[dict[bytes, bytes]]:
    """Read the head, names in lower case; of a header given twice the last one counts."""
    headers: dict[bytes, bytes] = {}
    for _ in range(_MAX_HEADERS):
        line = yield from received.line()
        if not line:
            return headers
        name, _, value = line.partition(b":")
        headers[name.strip().lower()] = value.strip()
    raise _not_http("it has too many headers")


def _chunks(received: _Received, encoding: bytes) -> Taking[bytes]:
    """Put a chunked body together; trailers are not looked at."""
    if encoding.lower() != b"chunked":
        raise _not_http("its encoding is not one that was asked for")
    body = bytearray()
    while True:
        match = _CHUNK.fullmatch((yield from received.line()))
        if match is None:
            raise _not_http("a chunk has no size")
        size = int(match[1], 16)
        if size == 0:
            return bytes(body)
        body += yield from received.exactly(size)
        if (yield from received.line()):
            raise _not_http("a chunk does not end")


def _not_http(why: str) -> Failed:
    return Failed(Outcome.GARBAGE, f"the answer is not HTTP: {why}")
