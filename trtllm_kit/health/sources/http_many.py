"""Many pages at the same time in one thread: what a selector says is ready is read, and nobody waits for anybody.

Each question has the bounds of ``http_get``. It is for addresses that are numbers, without TLS: a look-up and a
handshake would make all others wait.
"""

from __future__ import annotations

import errno
import heapq
import os
import socket
import time
from collections import deque
from collections.abc import Iterator
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector
from typing import NamedTuple

from trtllm_kit.health.access import Access, NoSecret, authorization
from trtllm_kit.health.snapshot import Outcome
from trtllm_kit.health.sources.http_answer import (
    MAX_BYTES,
    PIECE,
    Answer,
    Failed,
    Taking,
    no_answer,
    place_of,
    reading,
    request_of,
)
from trtllm_kit.health.sources.http_get import look_up

AT_ONCE = 100
"""Most connections that are open at the same time."""
OWN_BYTES = 1 << 20
"""What the answer of each may hold whatever the others do: a page of 10,000 series."""
SHARED_BYTES = 64 << 20
"""What all answers together may hold beyond that, each up to ``MAX_BYTES``."""
_PIECES = 16
"""Most pieces that are taken from one connection in a row: as much as the system holds for it."""
_MARGIN = 8
"""File descriptors that are left to others where there are too few."""
_IN_PROGRESS = frozenset((0, errno.EINPROGRESS, errno.EWOULDBLOCK))


class Came(NamedTuple):
    """An answer, and when it was asked for and came."""

    number: int
    answer: Answer
    wall_seconds: float
    monotonic_seconds: float
    """When it was asked for."""
    seconds: float
    """How long it took."""


class _Later(NamedTuple):
    """A question whose time has not come; the earliest first."""

    at: float
    number: int
    url: str
    access: Access


class _Open:
    """A question that was asked, as far as its answer has come."""

    def __init__(self, question: _Later, now: float) -> None:
        self.question = question
        self.wall, self.start = time.time(), now
        self.connection: socket.socket | None = None
        self.unsent = b""
        self.held = 0
        """Bytes of its answer that have come."""
        self.answer: Taking[Answer] = reading(MAX_BYTES)
        next(self.answer)

    def came(self, answer: Answer) -> Came:
        """Return an answer to it, come now."""
        return Came(self.question.number, answer, self.wall, self.start, time.monotonic() - self.start)


def is_for_many(url: str) -> bool:
    """Whether a page can be read beside others: its host is a number, and it asks for no TLS."""
    try:
        place = place_of(url)
    except Failed:
        return True  # it is answered without asking
    return place.is_number and not place.secure


class Many:
    """Questions that are asked side by side, each within the same time."""

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout = timeout_seconds
        self._selector = DefaultSelector()
        self._later: list[_Later] = []
        self._open: dict[int, _Open] = {}
        """In the order in which they were asked, which is that of their deadlines."""
        self._came: deque[Came] = deque()
        self._most = AT_ONCE
        self._shared = 0
        """Bytes that answers hold beyond ``OWN_BYTES``."""

    def ask(self, number: int, url: str, access: Access, at: float = 0.0) -> None:
        """Ask for a page at some time of the monotonic clock, or as soon as there is room; ``number`` names it."""
        heapq.heappush(self._later, _Later(at, number, url, access))

    def answers(self) -> Iterator[Came]:
        """Return each answer as it comes, until nothing is asked any more; meanwhile more may be asked."""
        with self._selector:
            while self._later or self._open or self._came:
                self._begin()
                for key, _ in self._selector.select(self._wait()):
                    self._go_on(key.data)
                self._end_late()
                if self._came:
                    came = self._came.popleft()
                    self._shared -= _beyond(len(came.answer.body))
                    yield came

    def _wait(self) -> float:
        """Return the seconds in which something may be to do without an answer that comes."""
        if self._came:
            return 0.0
        times = [one.start + self._timeout for one in self._open.values()][:1]
        if self._later and len(self._open) < self._most:
            times.append(self._later[0].at)
        return max(0.0, min(times) - time.monotonic())

    def _begin(self) -> None:
        """Ask what it is time for."""
        now = time.monotonic()
        while self._later and self._later[0].at <= now and len(self._open) < self._most:
            one = _Open(heapq.heappop(self._later), now)
            try:
                self._connect(one)
            except Failed as failure:
                self._came.append(one.came(failure.answer))
            except NoSecret as missing:
                self._came.append(one.came(Answer(Outcome.NO_SECRET, str(missing))))
            except OSError as error:
                answer = no_answer(error, self._timeout)
                if answer.outcome is Outcome.NO_ROOM and self._open:  # there is, when some of these are done
                    self._most = max(1, len(self._open) - _MARGIN)
                    heapq.heappush(self._later, one.question)
                else:
                    self._close(one, answer)

    def _connect(self, one: _Open) -> None:
        place = place_of(one.question.url)
        one.unsent = request_of(place, None, authorization(one.question.access, os.environ))
        family, kind, protocol, _, address = look_up(place)[0]
        one.connection = socket.socket(family, kind, protocol)
        one.connection.setblocking(False)
        code = one.connection.connect_ex(address)
        if code not in _IN_PROGRESS:
            raise OSError(code, os.strerror(code))
        self._selector.register(one.connection, EVENT_WRITE, one)
        self._open[one.question.number] = one

    def _go_on(self, one: _Open) -> None:
        """Send or take what can be sent or taken now."""
        try:
            if one.unsent:
                self._send(one)
            else:
                self._take(one)
        except BlockingIOError:
            return
        except Failed as failure:
            self._close(one, failure.answer)
        except OSError as error:
            self._close(one, no_answer(error, self._timeout))

    def _send(self, one: _Open) -> None:
        assert one.connection is not None  # noqa: S101  # it is open
        code = one.connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        one.unsent = one.unsent[one.connection.send(one.unsent) :]
        if not one.unsent:
            self._selector.modify(one.connection, EVENT_READ, one)

    def _take(self, one: _Open) -> None:
        assert one.connection is not None  # noqa: S101  # it is open
        try:
            for _ in range(_PIECES):
                piece = one.connection.recv(PIECE)
                self._count(one, len(piece))
                one.answer.send(piece)
        except StopIteration as done:
            self._close(one, done.value)

    def _count(self, one: _Open, size: int) -> None:
        """Note what came; raises ``Failed`` when all answers together hold too much."""
        before, one.held = one.held, one.held + size
        self._shared += _beyond(one.held) - _beyond(before)
        if one.held > OWN_BYTES and self._shared > SHARED_BYTES:
            raise Failed(Outcome.TOO_MUCH, f"the answers of many servers at once are larger than {SHARED_BYTES} bytes")

    def _end_late(self) -> None:
        """Give up what has had its time."""
        now = time.monotonic()
        while self._open and (oldest := next(iter(self._open.values()))).start + self._timeout <= now:
            self._close(oldest, no_answer(TimeoutError(), self._timeout))

    def _close(self, one: _Open, answer: Answer) -> None:
        if self._open.pop(one.question.number, None) is not None and one.connection is not None:
            self._selector.unregister(one.connection)
        if one.connection is not None:
            one.connection.close()
        self._shared += _beyond(len(answer.body)) - _beyond(one.held)
        self._came.append(one.came(answer))


def _beyond(size: int) -> int:
    return max(0, size - OWN_BYTES)
