"""Sends a load to a server and hears the answers: one loop, which is late for nothing and waits for nothing for ever.

In an open loop requests are sent when they are due, whatever the server does, and their latency counts from when they
were due (no coordinated omission). In a closed loop a user goes on when the answer is there.
"""

from __future__ import annotations

import asyncio
import gc
import secrets
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from trtllm_kit.bench.client import Client, clock
from trtllm_kit.bench.dialects import Ask
from trtllm_kit.bench.heard import Heard
from trtllm_kit.bench.lag import Lag, LagWatch, WatchedSelector
from trtllm_kit.bench.live import Glance, Watch
from trtllm_kit.bench.load import Load
from trtllm_kit.bench.prompts import Prompts
from trtllm_kit.bench.record import Counted, Failure, Record
from trtllm_kit.estimate.workload import Traffic

BACK_OFF_SECONDS = 0.2
"""How long a user waits after a failure, so that a server that is away is not asked a thousand times a second."""
_SPIN = 0.0015
"""Seconds before a request is due from which on the loop looks at the clock: the system's timer rounds up to 1 ms."""
_PREPARED = 1 << 28
"""Most characters of prompts that are made before the run."""


@dataclass(slots=True)
class Sent:
    """A request that was sent, or was to be."""

    number: int
    intended: float
    prompt: str
    heard: Heard


@dataclass(frozen=True, slots=True)
class Driven:
    """What came of a run."""

    sent: tuple[Sent, ...]
    begun: float
    """Reading of the clock at second 0."""
    seconds: float
    lag: Lag
    stopped: KeyboardInterrupt | None = None
    """What interrupted the run, where something did: then this is what was heard up to it."""


Told = Callable[[Glance], None]
"""Is told of the run while it goes on, once a second."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds after which a run goes no further."""

    run: float | None = None
    """Nothing more is sent; what is under way may end."""
    answer: float = 600.0
    """An answer is given up that has not ended."""


def drive(
    load: Load, prompts: Prompts, client: Callable[[], Client], limits: Limits, told: Told | None = None
) -> Driven:
    """Run a load to its end, or until Ctrl-C or a signal interrupts it; ``client`` is made in the loop."""
    selector, run = WatchedSelector(), _Run(load, prompts, limits, told)
    try:
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner, _undisturbed():
            return runner.run(run.run(client, selector))
    except KeyboardInterrupt as stop:
        if run.driven is None:  # it had not begun
            raise
        return replace(run.driven, stopped=stop)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Collect no garbage during a run: a pass over a grown heap takes longer than a token."""
    was = gc.isenabled()
    with _signals_later():
        gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@contextmanager
def _signals_later() -> Iterator[None]:
    """Hold signals that end a run until it is over: what a handler raises while garbage is collected is lost."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    held = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    for number in held:
        signal.signal(number, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for number, handler in held.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
    if came:
        signal.raise_signal(came[0])


class _Run:
    """One run."""

    def __init__(self, load: Load, prompts: Prompts, limits: Limits, told: Told | None) -> None:
        self._load, self._prompts, self._limits = load, prompts, limits
        self._traffic = Traffic(load.workload)
        self._most, self._told = limits.run, told
        self._sent: list[Sent] = []
        self._running: set[asyncio.Task[None]] = set()
        self._failed = 0
        self._begun = 0.0
        self._first_identity = secrets.randbelow(1 << 62)
        self._stirred = asyncio.Event()
        self._ready: dict[int, str] = {}
        self._adds = False
        self._fault: BaseException | None = None
        self.driven: Driven | None = None
        """What came of it, once it has ended one way or the other."""

    async def run(self, make: Callable[[], Client], selector: WatchedSelector) -> Driven:
        """Run to the end."""
        client = make()
        self._prepare()
        watch = LagWatch(selector)
        client.arrived = watch.arrived
        self._begun = clock()
        ticker = asyncio.ensure_future(self._tell())
        try:
            await self._send_all(client)
        except (asyncio.CancelledError, KeyboardInterrupt):
            await self._give_up()
            raise
        finally:
            ticker.cancel()
            self.driven = Driven(tuple(self._sent), self._begun, clock() - self._begun, watch.stop())
            await client.close()
        return self.driven

    def _prepare(self) -> None:
        """Make prompts beforehand, as far as they do not depend on answers: making them would make the client late."""
        if self._load.workload.turns > 1:
            return
        size = 0
        for number in range(self._load.workload.requests):
            text = self._ready[number] = self._prompts.text(number)
            size += len(text)
            if size > _PREPARED:
                return

    async def _send_all(self, client: Client) -> None:
        """Send what is due until nothing comes any more and nothing is under way."""
        while True:
            if self._fault is not None:
                raise self._fault
            now = clock() - self._begun
            over = self._most is not None and now >= self._most
            if not over:
                for due, number in self._traffic.due(now):
                    self._open(client, number, due)
            coming = self._traffic.next_time
            waits = coming != float("inf") and not over and (self._most is None or coming < self._most)
            if not waits and not self._running:
                return
            await self._pause(coming - now if waits else None)

    async def _pause(self, seconds: float | None) -> None:
        """Wait until a request is due or one has ended."""
        if seconds is not None and seconds <= _SPIN:
            await asyncio.sleep(0)
            return
        self._stirred.clear()
        limit = None if seconds is None else seconds - _SPIN
        if self._most is not None:
            left = max(self._most - (clock() - self._begun), 0.0) + 0.001
            limit = left if limit is None or limit > left else limit
            limit = None if left <= 0.001 else limit
        try:
            async with asyncio.timeout(limit):
                await self._stirred.wait()
        except TimeoutError:
            return

    def _open(self, client: Client, number: int, due: float) -> None:
        prompt = self._ready.pop(number, None) or self._prompts.text(number)
        sent = Sent(number, due, prompt, Heard())
        self._sent.append(sent)
        task = asyncio.ensure_future(self._ask(client, sent))
        self._running.add(task)
        task.add_done_callback(self._ended)

    async def _ask(self, client: Client, sent: Sent) -> None:
        load, request = self._load, self._load.request(sent.number)
        chosen = load.sampling
        ask = Ask(
            sent.prompt, request.most, chosen.temperature, chosen.top_p,
            greedy=chosen.greedy, whole=load.whole, identity=str(self._first_identity + sent.number),
        )  # fmt: skip
        try:
            async with asyncio.timeout(self._limits.answer):
                await client.ask(ask, sent.heard)
        except TimeoutError:
            sent.heard.fail(Failure.UNFINISHED, f"no end within {self._limits.answer:g} s", clock())
        except (asyncio.CancelledError, KeyboardInterrupt):
            sent.heard.fail(Failure.CUT, "the run was interrupted", clock())
            raise
        failed = sent.heard.failure is not None
        self._failed += failed
        self._adds = self._adds or sent.heard.adds
        self._prompts.answered(sent.number, sent.heard.said(adds=self._adds))
        end = clock() - self._begun
        self._traffic.end(sent.number, end + (BACK_OFF_SECONDS if failed else 0.0))

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._stirred.set()
        if not task.cancelled() and task.exception() is not None:
            self._fault = self._fault or task.exception()

    async def _give_up(self) -> None:
        for task in list(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _tell(self) -> None:
        """Tell once a second what came since: of requests under way, and of those that ended meanwhile."""
        watch, known, going = Watch(), 0, list[Sent]()
        while self._told is not None:
            await asyncio.sleep(1.0)
            seen = [*going, *self._sent[known:]]
            known = len(self._sent)
            pieces, firsts, paces = watch.look((one.number, self._begun + one.intended, one.heard) for one in seen)
            going = [one for one in seen if not one.heard.ended]
            running = len(self._running)
            now = clock() - self._begun
            self._told(Glance(now, known - running, self._failed, running, pieces, firsts, paces))


def records_of(driven: Driven, load: Load, prompts: Prompts) -> tuple[Record, ...]:
    """Return what was sent as records, by number, with times from the start of the run."""
    counted = load.workload.counted
    adds = any(sent.heard.adds for sent in driven.sent)
    made = [_record(sent, driven.begun, load, prompts, adds=adds) for sent in driven.sent]
    made.sort(key=lambda record: record.number)
    return tuple(record if record.number in counted else replace(record, warm=True) for record in made)


def _record(sent: Sent, begun: float, load: Load, prompts: Prompts, *, adds: bool) -> Record:
    heard = sent.heard
    answer, counted = _answer_tokens(sent, load, prompts, adds=adds)
    prompt = heard.prompt_tokens or prompts.tokens(sent.prompt)
    return Record(
        number=sent.number,
        intended=sent.intended,
        sent=(heard.sent or begun + sent.intended) - begun,
        stamps=tuple(stamp - begun for stamp in heard.stamps),
        ended=(heard.ended or begun + sent.intended) - begun,
        prompt=prompt,
        answer=answer,
        counted=counted,
        failure=heard.failure if heard.ended else Failure.CUT,
        why=heard.why,
    )


def _answer_tokens(sent: Sent, load: Load, prompts: Prompts, *, adds: bool) -> tuple[int, Counted]:
    """Count the tokens of an answer by the surest source there is; ``adds`` says that pieces are new text."""
    heard = sent.heard
    if heard.answer_tokens:
        return heard.answer_tokens, Counted.SERVER
    if prompts.exact and heard.texts:
        return max(prompts.tokens(heard.said(adds=adds)), 1), Counted.TOKENIZER
    if heard.finish == "length" and heard.failure is None:
        return load.request(sent.number).most, Counted.LIMIT
    return len(heard.stamps), Counted.PIECES
