"""In-flight batching for runtimes that step themselves: admission, KV blocks, chunked prompts, one token a step.

Requests wait in one queue and are admitted in order while a batch slot and KV blocks for the whole of prompt and
answer are free (``guaranteed_no_evict``: an admitted request always runs to its end). A step serves every admitted
request: one token each, or a piece of prompt as long as the step's token budget lasts.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from dataclasses import dataclass, field, replace

from ask import BUSY, STOPPED, Ask, Refused
from runtime import Performance, Sink, Statistics
from sequence import Job, Sequence, advance
from text import StopTexts


@dataclass(frozen=True)
class Limits:
    """What the executor accepts at once."""

    max_batch_size: int
    max_num_tokens: int
    """Tokens in one step."""
    max_seq_len: int
    """Prompt plus answer, tokens."""
    chunked_prefill: bool
    """Split prompts over steps; without it a prompt must fit one."""
    tokens_per_block: int
    kv_blocks: int
    max_queue_size: int

    def blocks(self, tokens: int) -> int:
        """Return the KV blocks that many tokens take."""
        return -(-tokens // self.tokens_per_block)


@dataclass(frozen=True)
class _Step:
    """What one step did."""

    scheduled: int = 0
    context: int = 0
    context_tokens: int = 0
    timestamp_us: int = 0


@dataclass
class _State:
    """Everything the lock guards."""

    queue: deque[Job] = field(default_factory=deque)
    active: list[Job] = field(default_factory=list)
    used_blocks: int = 0
    iteration: int = 0
    last: _Step = _Step()
    ended: str | None = None
    """Why nothing is accepted any more."""


class Batcher:
    """Runs sequences on a thread of its own; ``step_seconds`` is the least time a step takes."""

    def __init__(self, limits: Limits, step_seconds: float = 0.0) -> None:
        self.limits = limits
        self._step_seconds = step_seconds
        self._due = 0.0
        self._state = _State()
        self._wake = threading.Condition()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="batcher", daemon=True)

    def start(self) -> None:
        """Begin to step."""
        self._thread.start()

    def submit(self, sequence: Sequence, ask: Ask, sink: Sink) -> Job:
        """Queue a request; raises ``Refused`` when it can never run or the queue is full."""
        blocks = self._check(sequence.prompt_tokens, ask)
        performance = Performance(arrival_ns=time.monotonic_ns(), kv_total_blocks=blocks, kv_new_blocks=blocks)
        performance.kv_missed_blocks = self.limits.blocks(sequence.prompt_tokens)
        job = Job(sequence, ask, sink, blocks, StopTexts(ask.stop), performance, self._withdraw)
        with self._wake:
            if self._state.ended is not None:
                raise Refused(self._state.ended, STOPPED)
            self._state.queue.append(job)
            self._admit()
            if len(self._state.queue) > self.limits.max_queue_size:
                self._state.queue.pop()
                raise Refused(f"queue full: {self.limits.max_queue_size} requests wait already", BUSY)
            self._wake.notify()
        return job

    def statistics(self) -> Statistics | None:
        """Report the state now, None after the end; what the last step did counts only while requests are active."""
        with self._wake:
            state = self._state
            if state.ended is not None:
                return None
            step = state.last if state.active else replace(state.last, scheduled=0, context=0, context_tokens=0)
            scheduled = min(step.scheduled, len(state.active))
            return Statistics(
                active=len(state.active),
                max_active=self.limits.max_batch_size,
                scheduled=scheduled,
                context=min(step.context, scheduled),
                queued=len(state.queue),
                kv_max_blocks=self.limits.kv_blocks,
                kv_free_blocks=self.limits.kv_blocks - state.used_blocks,
                kv_used_blocks=state.used_blocks,
                tokens_per_block=self.limits.tokens_per_block,
                context_tokens=step.context_tokens,
                generation_requests=scheduled - min(step.context, scheduled),
                iteration=state.iteration,
                timestamp_us=step.timestamp_us,
            )

    def close(self) -> None:
        """Stop stepping and fail what still runs."""
        self._closing.set()
        with self._wake:
            self._wake.notify()
        self._thread.join()

    def _check(self, prompt: int, ask: Ask) -> int:
        limits, total = self.limits, prompt + ask.max_tokens
        if prompt < 1:
            raise Refused("text_input has no tokens")
        if total > limits.max_seq_len:
            raise Refused(
                f"prompt of {prompt} tokens plus sampling_param_max_tokens {ask.max_tokens} is {total}, "
                f"above max_seq_len {limits.max_seq_len}"
            )
        if not limits.chunked_prefill and prompt > limits.max_num_tokens:
            raise Refused(f"prompt of {prompt} tokens is above max_num_tokens {limits.max_num_tokens}")
        if limits.blocks(total) > limits.kv_blocks:
            raise Refused(f"{total} tokens need {limits.blocks(total)} KV blocks, the pool has {limits.kv_blocks}")
        return limits.blocks(total)

    def _withdraw(self, job: Job) -> None:
        with self._wake:
            job.cancelled = True
            if job in self._state.queue:
                self._state.queue.remove(job)

    def _run(self) -> None:
        try:
            while self._wait():
                self._step()
        finally:
            error = sys.exc_info()[1]
            why = "the server is shutting down" if error is None else f"the engine has stopped: {error!r}"
            self._end(why)

    def _wait(self) -> bool:
        """Sleep until there is work; False when it is time to end."""
        with self._wake:
            self._wake.wait_for(lambda: self._closing.is_set() or self._state.active or self._state.queue)
        return not self._closing.is_set()

    def _step(self) -> None:
        with self._wake:
            self._drop_cancelled()
            self._admit()
            work = self._schedule()
        if not work:
            return
        self._pace()
        ended = [(job, finish) for job, chunk in work if (finish := advance(job, chunk)) is not None]
        with self._wake:
            for job, _ in ended:
                self._release(job)
            self._drop_cancelled()
        for job, finish in ended:
            job.sink.finish(finish)

    def _admit(self) -> None:
        state, limits = self._state, self.limits
        while state.queue and len(state.active) < limits.max_batch_size:
            if state.used_blocks + state.queue[0].blocks > limits.kv_blocks:
                return
            job = state.queue.popleft()
            state.active.append(job)
            state.used_blocks += job.blocks

    def _schedule(self) -> list[tuple[Job, int]]:
        """Choose this step's jobs, each with the prompt tokens to read (0 when it only generates)."""
        state, limits = self._state, self.limits
        generating = [job for job in state.active if not job.unread]
        budget = limits.max_num_tokens - len(generating)
        reading = []
        for job in state.active:
            chunk = min(job.unread, budget) if limits.chunked_prefill else job.unread
            if 0 < chunk <= budget:
                reading.append((job, chunk))
                budget -= chunk
        work = [(job, 0) for job in generating] + reading
        if work:
            self._note(work, reading)
        return work

    def _note(self, work: list[tuple[Job, int]], reading: list[tuple[Job, int]]) -> None:
        now = time.monotonic_ns()
        for job, _ in work:
            job.performance.first_scheduled_ns = job.performance.first_scheduled_ns or now
        self._state.iteration += 1
        self._state.last = _Step(
            scheduled=len(work),
            context=len(reading),
            context_tokens=sum(chunk for _, chunk in reading),
            timestamp_us=time.time_ns() // 1000,
        )

    def _pace(self) -> None:
        """Wait until the step is over by the clock. Steps that come late are made up for; idle time is not."""
        now = time.monotonic()
        if now - self._due > self._step_seconds:
            self._due = now
        self._due += self._step_seconds
        if self._due > now:
            self._closing.wait(self._due - now)

    def _drop_cancelled(self) -> None:
        for job in [job for job in self._state.active if job.cancelled]:
            self._release(job)

    def _release(self, job: Job) -> None:
        self._state.active.remove(job)
        self._state.used_blocks -= job.blocks

    def _end(self, why: str) -> None:
        with self._wake:
            self._state.ended = why
            left = [*self._state.active, *self._state.queue]
            self._state.active.clear()
            self._state.queue.clear()
            self._state.used_blocks = 0
        for job in left:
            job.sink.fail(Refused(why, STOPPED))
