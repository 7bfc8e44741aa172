"""Carries answers to Triton and cancellations back, on one thread.

A stub sends its responses one at a time, some six thousand a second, whatever thread sends them. The engine never
waits for that: it drops pieces here, and pieces of one stream that pile up travel as one response.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import triton_python_backend_utils as pb_utils

from ask import BUSY, CANCELLED, Ask, Refused
from replies import Replies
from runtime import Felt, Finish, Ticket


@dataclass(eq=False)
class Exchange:
    """One request with its open channel back to the client. It is the ``Sink`` of its answer."""

    courier: Courier
    ask: Ask
    identity: str
    """The request id the client gave; empty when it gave none."""
    sender: Any
    """Triton's response sender."""
    ticket: Ticket | None = None
    pending: list[str] = field(default_factory=list)
    end: Finish | Refused | None = None
    opened: float = field(default_factory=time.monotonic)
    first: float | None = None
    """When the first text came."""
    ended: float = 0.0

    def felt(self, finish: Finish) -> Felt | None:
        """Return what the client of a stream felt; None of a whole answer, and of one without text."""
        if self.first is None or not self.ask.streaming:
            return None
        later = finish.output_tokens - 1
        each = (self.ended - self.first) / later if later > 0 else None
        return Felt(self.first - self.opened, each)

    def late(self, now: float) -> bool:
        """Whether the answer is wanted no more at that moment of the steady clock."""
        return self.ask.seconds is not None and now > self.opened + self.ask.seconds

    def runs_as(self, ticket: Ticket) -> None:
        """Take the runtime's handle; it is cancelled at once when the client has gone meanwhile."""
        self.ticket = ticket
        if self.end is not None:
            ticket.cancel()

    def piece(self, text: str) -> None:
        """Take the next piece; a whole answer keeps it until the end."""
        self.courier.post(self, text, None)

    def finish(self, finish: Finish) -> None:
        """Take the end of the answer."""
        self.courier.post(self, finish.text, finish)

    def fail(self, refused: Refused) -> None:
        """Take the reason why there is no answer."""
        self.courier.post(self, "", refused)


class Courier:
    """Owns every response channel: only its thread sends and asks whether a client has gone."""

    def __init__(
        self, replies: Replies, check_seconds: float, on_finish: Callable[[Finish, Felt | None], None]
    ) -> None:
        self._replies, self._check_seconds, self._on_finish = replies, check_seconds, on_finish
        self._open: dict[Exchange, None] = {}
        self._ready: dict[Exchange, None] = {}
        self._next_check = 0.0
        self._closed = False
        self._wake = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="courier", daemon=True)
        self._thread.start()

    def open(self, ask: Ask, identity: str, sender: Any) -> Exchange:
        """Take over a request's response channel."""
        exchange = Exchange(self, ask, identity, sender)
        with self._wake:
            self._open[exchange] = None
            self._wake.notify()
        return exchange

    def post(self, exchange: Exchange, text: str, end: Finish | Refused | None) -> None:
        """Add to an answer; after its end nothing more is taken."""
        with self._wake:
            if exchange.end is not None:
                return
            exchange.end = end
            if text:
                exchange.pending.append(text)
                exchange.first = exchange.first or time.monotonic()
            if end is not None:
                exchange.ended = time.monotonic()
            if end is not None or exchange.ask.streaming:
                self._ready[exchange] = None
                self._wake.notify()

    def cancel(self, identity: str) -> int:
        """Cancel the running requests of a client's id; return how many there were."""
        with self._wake:
            found = [one for one in self._open if one.identity == identity and one.end is None]
        for exchange in found:
            self._cancel(exchange, "cancelled by a stop request")
        return len(found)

    def close(self) -> None:
        """Send what is ready and end the thread. Answers must have ended before."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._ready or self._closed or self._open, timeout=None)
                if not self._ready and not self._closed:
                    self._wake.wait_for(lambda: self._ready or self._closed, timeout=self._patience())
                ready, self._ready = list(self._ready), {}
                if self._closed and not ready:
                    return
            for exchange in ready:
                self._deliver(exchange)
            if not self._patience():
                self._check()

    def _patience(self) -> float:
        return max(0.0, self._next_check - time.monotonic())

    def _deliver(self, exchange: Exchange) -> None:
        with self._wake:
            text, end = "".join(exchange.pending), exchange.end
            exchange.pending.clear()
            self._ready.pop(exchange, None)
            if end is not None:
                del self._open[exchange]
        if isinstance(end, Refused):
            self._send(exchange, self._replies.error(end), last=True)
        elif end is not None:
            self._on_finish(end, exchange.felt(end))
            self._send(exchange, self._replies.last(exchange.ask, text, end), last=True)
        elif text:
            self._send(exchange, self._replies.piece(text), last=False)

    def _send(self, exchange: Exchange, response: Any, *, last: bool) -> None:
        flags = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL if last else 0
        try:
            exchange.sender.send(response, flags=flags)
        except pb_utils.TritonModelException as error:
            pb_utils.Logger.log_warn(f"a response could not be sent: {error}")
            self._cancel(exchange, str(error))

    def _check(self) -> None:
        """Ask for every open request whether its client has gone, or its time is over."""
        self._next_check = time.monotonic() + self._check_seconds
        with self._wake:
            waiting = [exchange for exchange in self._open if exchange.end is None]
        now = time.monotonic()
        for exchange in waiting:
            if exchange.sender.is_cancelled():
                self._cancel(exchange, "cancelled by the client")
            elif exchange.late(now):
                self._cancel(exchange, f"timed out: no whole answer within {exchange.ask.seconds:g} s", BUSY)

    def _cancel(self, exchange: Exchange, why: str, status: str = CANCELLED) -> None:
        self.post(exchange, "", Refused(why, status))
        if exchange.ticket is not None:
            exchange.ticket.cancel()
