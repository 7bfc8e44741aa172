"""The engine of ``trtllm_kit.estimate`` on a wall clock: in-flight batching for runtimes that make tokens themselves.

One thread takes the engine's steps. Each step lasts as long as the engine's clock says; then every request is told
how many tokens its answer has, and what must be cancelled is. A runtime whose tokens take real time to compute gives
a clock of next to nothing, and its steps last as long as their tokens take.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from ask import BUSY, STOPPED, Refused
from faults import Faults
from runtime import Performance, Statistics

_MOST_BEHIND_SECONDS = 0.25
"""Steps that come late are made up for, as long as they are not later than this."""
_BEFORE = 1e-9
_POLL_SECONDS = 0.05
"""How often a stalled engine looks whether it may go on."""


class Turn(Protocol):
    """What becomes of one request; called from the pacer's thread."""

    def tokens(self, count: int) -> bool:
        """Take so many more tokens; whether the answer ended with them though more were asked for."""

    def end(self) -> None:
        """Give the end of the answer; its performance is whole."""

    def fail(self, refused: Refused) -> None:
        """Take the reason why there is no whole answer."""


class Together(Protocol):
    """What computes the tokens of a step for all its requests at once, where a runtime does."""

    def step(self, turns: list[Any]) -> None:
        """Compute the next token of each; called from the pacer's thread, before the turns are told."""

    def leave(self, turn: Any) -> None:
        """Forget a request that is over, or whose client has gone; called under the pacer's lock, from any thread."""


@dataclass(eq=False)
class Entry:
    """A request inside the pacer."""

    number: int
    turn: Turn
    most: int
    job: Any
    performance: Performance
    withdraw: Callable[[Entry], None]
    given: int = 0
    """Tokens that it was told of."""
    ended: bool = False

    def cancel(self) -> None:
        """Stop generating and free what it holds; safe at any time and more than once."""
        self.withdraw(self)


@dataclass
class _State:
    """Everything the lock guards."""

    entries: dict[int, Entry] = field(default_factory=dict)
    next_number: int = 0
    last: Any = None
    """What the last step did."""
    drafted: int = 0
    accepted: int = 0
    reused_blocks: int = 0
    timestamp_us: int = 0
    ended: str | None = None
    """Why nothing is accepted any more."""


class Pacer:
    """One engine and its thread."""

    def __init__(
        self, engine: Any, max_queue_size: int, faults: Faults | None = None, together: Together | None = None
    ) -> None:
        """Take an engine that nobody else steps; ``max_queue_size`` requests may wait for a slot."""
        self._engine = engine
        self._together = together
        self._max_queue_size = max_queue_size
        self._faults = faults or Faults(None)
        self._origin = time.monotonic()
        self._state = _State()
        self._wake = threading.Condition()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pacer", daemon=True)

    def start(self) -> None:
        """Begin to step."""
        self._thread.start()

    def submit(self, request: Any, turn: Turn) -> Entry:
        """Queue a request of ``estimate.workload``; raises ``Refused`` when it can never run or the queue is full."""
        from trtllm_kit.estimate.fits import NeverFits

        with self._wake:
            if self._state.ended is not None:
                raise Refused(self._state.ended, STOPPED)
            self._faults.refuse()
            self._require_room()
            number = self._state.next_number
            try:
                job = self._engine.submit(number, request, self._arrival())
            except NeverFits as error:
                raise Refused(str(error)) from None
            self._state.next_number += 1
            performance = Performance(arrival_ns=time.monotonic_ns())
            entry = Entry(number, turn, request.answer, job, performance, self._withdraw)
            self._state.entries[number] = entry
            self._wake.notify()
        return entry

    def statistics(self) -> Statistics | None:
        """Report the state now, None after the end; what the last step did counts only while requests are active."""
        with self._wake:
            if self._state.ended is not None:
                return None
            self._faults.exhaust(self._engine)
            return self._faults.seen(self._statistics())

    def close(self) -> None:
        """Stop stepping and fail what still runs."""
        self._closing.set()
        with self._wake:
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join()

    # --- under the lock ------------------------------------------------------------------------------------------

    def _arrival(self) -> float:
        """Return the time of the engine's clock at which a request comes: never later than the next step begins."""
        now = time.monotonic() - self._origin
        return now if self._engine.idle else min(now, self._engine.time) - _BEFORE

    def _require_room(self) -> None:
        state = self._engine.state()
        free = max(0, self._engine.subject.slots - state.active)
        if state.queued - free >= self._max_queue_size:
            raise Refused(f"queue full: {self._max_queue_size} requests wait already", BUSY)

    def _statistics(self) -> Statistics:
        state, run, held = self._engine.state(), self._state.last, self._state
        busy = run is not None and state.active > 0
        scheduled = min(run.sequences + run.prompts, state.active) if busy else 0
        context = min(run.prompts, scheduled) if busy else 0
        return Statistics(
            active=state.active,
            max_active=self._engine.subject.slots,
            scheduled=scheduled,
            context=context,
            queued=state.queued,
            kv_max_blocks=state.kv_blocks,
            kv_free_blocks=state.kv_blocks - state.kv_held,
            kv_used_blocks=state.kv_held,
            tokens_per_block=state.tokens_per_block,
            kv_reused_blocks=held.reused_blocks,
            context_tokens=run.prompt_tokens if busy else 0,
            generation_requests=scheduled - context,
            paused=state.paused,
            iteration=state.step,
            timestamp_us=held.timestamp_us,
            drafted_tokens=held.drafted,
            accepted_tokens=held.accepted,
        )

    def _withdraw(self, entry: Entry) -> None:
        with self._wake:
            if not entry.ended:
                self._remove(entry)

    def _release(self) -> None:
        """Let an engine that is idle now give back what the next step would have freed."""
        if self._engine.idle:
            self._engine.advance()

    def _remove(self, entry: Entry) -> None:
        entry.ended = True
        self._engine.cancel(entry.number)
        self._state.entries.pop(entry.number, None)
        if self._together is not None:
            self._together.leave(entry.turn)
        self._release()

    # --- the thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._wait():
                self._step()
        finally:
            error = sys.exc_info()[1]
            self._end("the server is shutting down" if error is None else f"the engine has stopped: {error!r}")

    def _wait(self) -> bool:
        """Sleep until there is work; False when it is time to end."""
        with self._wake:
            self._wake.wait_for(lambda: self._closing.is_set() or not self._engine.idle)
        while self._faults.stalled() and not self._closing.is_set():
            self._closing.wait(_POLL_SECONDS)
        return not self._closing.is_set()

    def _step(self) -> None:
        with self._wake:
            run = self._advance()
            due = [] if run is None else self._due(run)
        if run is None:
            self._closing.wait(_POLL_SECONDS)
            return
        self._until(run.end)
        if self._together is not None:
            self._together.step([entry.turn for entry, count, _ in due if count and not entry.ended])
        ended = []
        for entry, count, whole in due:
            self._tell(entry, run)
            over = entry.turn.tokens(count) if count and not entry.ended else False
            if (over or whole) and not entry.ended:
                ended.append(entry)
        with self._wake:
            for entry in ended:
                self._finish(entry)
            self._release()
        for entry in ended:
            entry.turn.end()

    def _advance(self) -> Any:
        """Take a step; None where there is none, for nobody is here, or blocks that a fault holds let nobody in."""
        taken = self._faults.exhaust(self._engine)
        try:
            run = None if self._engine.idle else self._engine.advance(most_steps=1)
        except RuntimeError:
            if not taken:
                raise
            return None
        if run is not None:
            self._state.last, self._state.timestamp_us = run, time.time_ns() // 1000
        return run

    def _due(self, run: Any) -> list[tuple[Entry, int, bool]]:
        """Return the requests that get tokens with this step, how many, and whether they have all they asked for."""
        entries, done = self._state.entries, {job.number for job in run.ended}
        found = []
        for number, entry in list(entries.items()):
            told = entry.most if number in done else self._engine.emitted(number)
            if told > entry.given or number in done:
                found.append((entry, told - entry.given, number in done))
                entry.given = told
        return found

    def _tell(self, entry: Entry, run: Any) -> None:
        """Note when a request was first in a step and when its tokens come, in nanoseconds of the steady clock."""
        cost, now = entry.performance, time.monotonic_ns()
        if not cost.first_token_ns:
            waited = max(0.0, run.end - entry.job.scheduled)
            cost.first_scheduled_ns = max(cost.arrival_ns, now - int(waited * 1e9))
            cost.first_token_ns = now
        cost.last_token_ns = now

    def _finish(self, entry: Entry) -> None:
        """Free what an answer held, and count what it cost."""
        job, cost, block = entry.job, entry.performance, self._engine.subject.tokens_per_block
        steps, drafts = _drafted(job, entry.given, self._engine.subject)
        cost.draft_tokens, cost.accepted_draft_tokens = steps * drafts, max(0, entry.given - 1 - steps) if drafts else 0
        cost.acceptance_rate = cost.accepted_draft_tokens / cost.draft_tokens if cost.draft_tokens else 0.0
        total = -(-(job.request.prompt + entry.given) // block)
        cost.kv_total_blocks, cost.kv_reused_blocks = total, job.reused // block
        cost.kv_new_blocks = total - cost.kv_reused_blocks
        prompt = -(-job.request.prompt // block)
        cost.kv_missed_blocks = prompt - cost.kv_reused_blocks
        cost.kv_hit_rate = cost.kv_reused_blocks / prompt
        self._faults.spoil(cost)
        self._state.drafted += cost.draft_tokens
        self._state.accepted += cost.accepted_draft_tokens
        self._state.reused_blocks += cost.kv_reused_blocks
        self._remove(entry)

    def _until(self, end: float) -> None:
        """Wait until the engine's clock has come so far; one that is left far behind is set again."""
        behind = time.monotonic() - self._origin - end
        if behind < 0:
            self._closing.wait(-behind)
        elif behind > _MOST_BEHIND_SECONDS:
            self._origin += behind

    def _end(self, why: str) -> None:
        with self._wake:
            self._state.ended = why
            left = list(self._state.entries.values())
            for entry in left:
                entry.ended = True
            self._state.entries.clear()
        for entry in left:
            entry.turn.fail(Refused(why, STOPPED))


def _drafted(job: Any, tokens: int, subject: Any) -> tuple[int, int]:
    """Return the generation steps of an answer of so many tokens, and the tokens that each of them drafted."""
    if subject.speculation is None or tokens <= 1:
        return 0, 0
    return job.pace.steps_for(tokens - 1), subject.speculation.draft_tokens
