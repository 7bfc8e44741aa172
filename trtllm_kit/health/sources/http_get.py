"""One HTTP GET that cannot hang, follow or flood: one deadline and one size for everything that is received.

The name look-up, the connection, the head and the body share the deadline, so a server that sends one byte a second
(slow loris) costs no more than one that is silent.

It stands on a plain socket: the standard library's client has no deadline for an answer as a whole, no bound for its
size, and costs a check from cron half its time to import.
"""

from __future__ import annotations

import os
import socket
import time
from typing import Any

from trtllm_kit.health.access import ANYBODY, Access, NoSecret, authorization
from trtllm_kit.health.snapshot import Outcome
from trtllm_kit.health.sources.http_answer import (
    MAX_BYTES,
    PIECE,
    Answer,
    Failed,
    Place,
    cause,
    no_answer,
    place_of,
    reading,
    request_of,
)


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
        place = place_of(url)
        secret = authorization(access, os.environ)
        with _connect(place, deadline, access) as connection:
            connection.settimeout(_left(deadline))
            connection.sendall(request_of(place, post, secret))
            return _received(connection, deadline, max_bytes)
    except Failed as failure:
        return failure.answer
    except NoSecret as missing:
        return Answer(Outcome.NO_SECRET, str(missing))
    except OSError as error:
        return no_answer(error, timeout_seconds)


def _received(connection: socket.socket, deadline: float, max_bytes: int) -> Answer:
    """Hand what comes to the reader of answers until it has one."""
    answer = reading(max_bytes)
    next(answer)
    while True:
        connection.settimeout(_left(deadline))
        try:
            answer.send(connection.recv(PIECE))
        except StopIteration as done:
            whole: Answer = done.value
            return whole


def _connect(place: Place, deadline: float, access: Access) -> socket.socket:
    """Connect to a server, and make the connection a secure one where its URL says so."""
    connection = _reached(place, deadline)
    if not place.secure:
        return connection
    from trtllm_kit.health.sources.secure import Refused, Untrusting, secured

    try:
        return secured(connection, place.host, access.ca_file)
    except Refused as refused:
        connection.close()
        raise Failed(Outcome.CERTIFICATE, str(refused)) from None
    except Untrusting as missing:
        connection.close()
        raise Failed(Outcome.NO_SECRET, str(missing)) from None
    except BaseException:
        connection.close()
        raise


def _reached(place: Place, deadline: float) -> socket.socket:
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


def _addresses(place: Place, deadline: float) -> list[tuple[Any, ...]]:
    """Look the host up, in a thread because the system's look-up has no time-out of its own; numbers need none."""
    if place.is_number:
        return look_up(place)
    import threading

    found: list[Any] = []

    def look() -> None:
        try:
            found.append(look_up(place))
        except Failed as failure:
            found.append(failure)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(_left(deadline))
    if not found:
        raise Failed(Outcome.NO_ADDRESS, f"the look-up of host {place.host} took too long")
    if isinstance(found[0], Failed):
        raise found[0]
    addresses: list[tuple[Any, ...]] = found[0]
    return addresses


def look_up(place: Place) -> list[tuple[Any, ...]]:
    """Return the addresses of a host, as ``getaddrinfo`` has them; raises ``Failed`` when there is none."""
    host = place.host.encode("ascii")  # of a text the standard library would load the tables of every script
    flags = socket.AI_NUMERICHOST if place.is_number else 0
    try:
        return list(socket.getaddrinfo(host, place.port, type=socket.SOCK_STREAM, flags=flags))
    except (OSError, UnicodeError) as error:
        raise Failed(Outcome.NO_ADDRESS, f"host {place.host} has no address: {cause(error)}") from None


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
