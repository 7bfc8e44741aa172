"""One HTTP GET that cannot hang, follow or flood: one deadline and one size for everything that is received.

The name look-up, the connection, the head and the body share the deadline, so a server that sends one byte a second
(slow loris) costs no more than one that is silent. Failures are data: nothing is raised for what a server does.
"""

from __future__ import annotations

import http.client
import re
import socket
import threading
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from trtllm_kit.health.snapshot import Outcome

MAX_BYTES = 16 << 20
"""Largest answer that is read; a page of 10,000 series is 1 MiB."""
_PRINTABLE = re.compile(r"[!-~]+")


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    outcome: Outcome
    reason: str
    """What happened, in words; empty when the answer is complete with status 200."""
    status: int | None = None
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class _Place:
    host: str
    port: int
    path: str


class _TooLarge(Exception):
    """More bytes than the bound were received."""


class _NoAddress(Exception):
    """The URL has no meaning, or its host name no address."""


class _BoundedSocket(socket.socket):
    """A socket on which all receiving together ends at one deadline and one size."""

    deadline = 0.0
    bytes_left = 0

    def recv_into(self, *args: Any) -> int:
        """Receive some bytes; raises ``TimeoutError`` after the deadline and ``_TooLarge`` beyond the size."""
        self.settimeout(_left(self.deadline))
        received = super().recv_into(*args)
        self.bytes_left -= received
        if self.bytes_left < 0:
            raise _TooLarge
        return received


def get(url: str, timeout_seconds: float, max_bytes: int = MAX_BYTES) -> Answer:
    """Fetch an ``http://`` URL within the time and the size; redirects, credentials and proxies are not used."""
    deadline = time.monotonic() + timeout_seconds
    try:
        place = _place(url)
        with _connect(place, deadline) as connection:
            connection.deadline, connection.bytes_left = deadline, max_bytes
            return _exchange(connection, place, max_bytes)
    except TimeoutError:
        return Answer(Outcome.TIMEOUT, f"no complete answer within {timeout_seconds:g} s")
    except _TooLarge:
        return Answer(Outcome.GARBAGE, f"the answer is larger than {max_bytes} bytes")
    except (_NoAddress, OSError, http.client.HTTPException) as error:
        return _failure(error)


def _failure(error: Exception) -> Answer:
    """Say what an error means; a connection that was cut is an ``OSError`` even where it is an HTTP error too."""
    if isinstance(error, _NoAddress):
        return Answer(Outcome.NO_ADDRESS, str(error))
    if isinstance(error, ConnectionRefusedError):
        return Answer(Outcome.REFUSED, "the port refuses connections")
    if isinstance(error, OSError | http.client.IncompleteRead):
        return Answer(Outcome.BROKEN, f"the connection failed: {_cause(error)}")
    return Answer(Outcome.GARBAGE, f"the answer is not HTTP: {type(error).__name__}")


def _place(url: str) -> _Place:
    """Take a URL apart."""
    if not _PRINTABLE.fullmatch(url):
        raise _NoAddress("the URL is empty or holds blanks or characters that a URL cannot have")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise _NoAddress(f"the URL has no meaning: {error}") from None
    if parts.scheme != "http" or not host:
        raise _NoAddress("the URL is not of the form http://host:port/path")
    if parts.username is not None or parts.password is not None:
        raise _NoAddress("the URL holds a user name or password, which do not belong on a command line")
    path = parts.path or "/"
    return _Place(host, 80 if port is None else port, f"{path}?{parts.query}" if parts.query else path)


def _connect(place: _Place, deadline: float) -> _BoundedSocket:
    """Connect to the first address that answers; when none does, a refusal is the error that counts."""
    failures: list[OSError] = []
    for family, kind, protocol, _, address in _addresses(place, deadline):
        connection = _BoundedSocket(family, kind, protocol)
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
    """Look the host up, in a thread because the system's look-up has no time-out of its own."""
    found: list[Any] = []

    def look_up() -> None:
        try:
            found.append(socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            found.append(error)

    thread = threading.Thread(target=look_up, daemon=True)
    thread.start()
    thread.join(_left(deadline))
    if not found:
        raise _NoAddress(f"the look-up of host {place.host!r} took too long")
    if isinstance(found[0], Exception):
        raise _NoAddress(f"host {place.host!r} has no address: {_cause(found[0])}")
    addresses: list[tuple[Any, ...]] = found[0]
    return addresses


def _exchange(connection: _BoundedSocket, place: _Place, max_bytes: int) -> Answer:
    client = http.client.HTTPConnection(place.host, place.port)
    client.sock = connection
    headers = {"Accept": "text/plain;version=0.0.4", "User-Agent": "trtkit", "Connection": "close"}
    client.request("GET", place.path, headers=headers)
    with client.getresponse() as response:
        if response.status != http.client.OK:
            reason = f"HTTP status {response.status} {response.reason[:40]}".strip()
            return Answer(Outcome.HTTP_ERROR, reason, response.status)
        body = response.read(max_bytes)
        if response.length:
            return Answer(Outcome.BROKEN, f"the answer ends {response.length} bytes too early", response.status)
        return Answer(Outcome.OK, "", response.status, body)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _cause(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
