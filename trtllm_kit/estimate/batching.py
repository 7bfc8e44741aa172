"""Simulates a replica under a workload: ``simulate(subject, clock, workload)``.

Runs of equal steps are jumped over, so a simulation takes a thousandth of the time it simulates or less. It says what
the scheduler's rules give on the clock's step times; it knows nothing of a client's network, and of the host only what
the clock counts.
"""

from __future__ import annotations

from math import inf

from trtllm_kit.estimate.engine import Engine
from trtllm_kit.estimate.fits import NeverFits
from trtllm_kit.estimate.hold import EveryRank, FullStep
from trtllm_kit.estimate.outcome import Outcome
from trtllm_kit.estimate.recorder import Recorder, host_of
from trtllm_kit.estimate.subject import Subject
from trtllm_kit.estimate.work import Clock
from trtllm_kit.estimate.workload import Traffic, Workload


def simulate(
    subject: Subject,
    clock: Clock,
    workload: Workload,
    *,
    hold: FullStep | EveryRank | None = None,
    exact: bool = False,
) -> Outcome:
    """Serve a workload and return what was found.

    ``hold`` lets prompts wait for others, in place of the subject's ``balance``. ``exact`` takes every step by itself.

    What the clock says a request takes beside all steps (``request_seconds`` before them, ``reply_seconds`` after)
    counts to its first and last token. It does not put off a user's next request: with answers of one length that
    would put all users in step, which measured servers do not show.
    """
    engine = Engine(subject, clock, hold=hold, seed=workload.seed if workload.draws else None, exact=exact)
    traffic, recorder = Traffic(workload), Recorder(workload.counted, host_of(clock))
    while not recorder.complete and (not engine.idle or traffic.next_time < inf):
        now = max(engine.time, traffic.next_time) if engine.idle else engine.time
        for time, number in traffic.due(now):
            _send(engine, traffic, recorder, number, time)
        run = engine.advance(traffic.next_time)
        if run is not None:
            recorder.step(run)
            for job in run.ended:
                recorder.end(job, job.arrival)
                traffic.end(job.number, job.last)
    return recorder.outcome(engine.evicted_blocks)


def _send(engine: Engine, traffic: Traffic, recorder: Recorder, number: int, time: float) -> None:
    recorder.arrive(number, time)
    try:
        engine.submit(number, traffic.workload.request(number), time)
    except NeverFits as refused:
        recorder.refuse(number, str(refused))
        traffic.end(number, time)
