"""Prompts on some servers, answers on others, and keys and values sent from the one to the other.

The client hears the first token when the answering server has the keys and values and begins: the transfer is part of
the time to first token. A prompt server sends one request after the other; its blocks are taken to be free when the
prompt is read, so a prompt server whose cache is full of what still has to be sent looks better than it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from heapq import heappop, heappush
from math import inf

from trtllm_kit.estimate.engine import Engine
from trtllm_kit.estimate.fits import NeverFits
from trtllm_kit.estimate.outcome import Outcome
from trtllm_kit.estimate.recorder import Recorder, host_of
from trtllm_kit.estimate.scheduler import Job
from trtllm_kit.estimate.subject import Subject
from trtllm_kit.estimate.work import Clock
from trtllm_kit.estimate.workload import Traffic, Workload
from trtllm_kit.light import dataclass


@dataclass(frozen=True)
class Side:
    """Servers alike that do one half."""

    subject: Subject
    clock: Clock
    servers: int = 1


@dataclass(frozen=True)
class Transfer:
    """How keys and values get from a prompt server to an answering one."""

    bytes_per_token: float
    """Of all layers and heads: what one server's ranks send together."""
    bytes_per_second: float
    """Of all links that one prompt server sends over together."""
    latency_seconds: float = 0.0

    def seconds(self, tokens: int) -> float:
        """Return the seconds a request of that many cached tokens takes."""
        return self.latency_seconds + tokens * self.bytes_per_token / self.bytes_per_second


def simulate_disaggregated(prompts: Side, answers: Side, transfer: Transfer, workload: Workload) -> Outcome:
    """Serve a workload on both sides and return what was found; blocks and timeline are those of the answering side.

    What a request takes beside all steps is what the prompt servers' clock says, as in ``batching.simulate``.
    """
    return _Both(prompts, answers, transfer, Traffic(workload)).outcome()


class _Both:
    """All servers, and what is on its way between them."""

    def __init__(self, prompts: Side, answers: Side, transfer: Transfer, traffic: Traffic) -> None:
        self._prompts = [Engine(prompts.subject, prompts.clock) for _ in range(prompts.servers)]
        self._answers = [Engine(answers.subject, answers.clock) for _ in range(answers.servers)]
        self._transfer = transfer
        self._traffic = traffic
        self._recorder = Recorder(traffic.workload.counted, host_of(prompts.clock))
        self._sending = [0.0] * prompts.servers
        """When each prompt server has sent everything."""
        self._sent: list[tuple[float, int]] = []
        """When requests arrive at an answering server, and their numbers."""
        self._read: dict[int, Job] = {}
        """Requests whose prompt was read, as the prompt server knows them."""

    def outcome(self) -> Outcome:
        """Run until nothing is left."""
        while not self._recorder.complete:
            busy = [engine for engine in (*self._prompts, *self._answers) if not engine.idle]
            engine = min(busy, key=lambda engine: engine.time, default=None)
            coming = min(self._traffic.next_time, self._sent[0][0] if self._sent else inf)
            if engine is None and coming == inf:
                break
            if engine is None or coming <= engine.time:
                self._deliver(coming)
            elif engine in self._prompts:
                self._read_prompts(engine)
            else:
                first = min((other.time for other in self._prompts if not other.idle), default=inf)
                self._answer(engine, min(coming, first))
        return self._recorder.outcome(sum(engine.evicted_blocks for engine in self._answers))

    def _deliver(self, now: float) -> None:
        """Give what has come by now to the server of its side with the fewest requests."""
        for time, number in self._traffic.due(now):
            self._recorder.arrive(number, time)
            self._submit(number, time)
        while self._sent and self._sent[0][0] <= now:
            time, number = heappop(self._sent)
            request = self._traffic.workload.request(number)
            _least_loaded(self._answers).submit(number, request, time, cached=True)

    def _submit(self, number: int, time: float) -> None:
        request = self._traffic.workload.request(number)
        try:
            self._answers[0].check(request)
            prompt = replace(request, answer=1, asked=1, answer_key=0)
            _least_loaded(self._prompts).submit(number, prompt, time)
        except NeverFits as refused:
            self._recorder.refuse(number, str(refused))
            self._traffic.end(number, time)

    def _read_prompts(self, engine: Engine) -> None:
        run = engine.advance(self._traffic.next_time)
        if run is None:
            return
        self._recorder.read(run)
        server = self._prompts.index(engine)
        for job in run.ended:
            if self._traffic.workload.request(job.number).answer == 1:
                self._end(job, job)
                continue
            begin = max(run.end, self._sending[server])
            self._sending[server] = begin + self._transfer.seconds(job.request.prompt)
            self._read[job.number] = job
            heappush(self._sent, (self._sending[server], job.number))

    def _answer(self, engine: Engine, until: float) -> None:
        run = engine.advance(until)
        if run is None:
            return
        self._recorder.step(run)
        for job in run.ended:
            self._end(job, self._read.pop(job.number))

    def _end(self, job: Job, read: Job) -> None:
        """Note an answer, with what the prompt server knows of it."""
        job.scheduled, job.reused = read.scheduled, read.reused
        self._recorder.end(job, read.arrival)
        self._traffic.end(job.number, job.last)


def _least_loaded(engines: Sequence[Engine]) -> Engine:
    return min(engines, key=lambda engine: engine.load)
