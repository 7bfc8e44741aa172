"""A measured row's load, run on the estimate's clock."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.closed_loop import Times, run_loop
from benchmarks.points import Point
from trtllm_kit.estimate.batching import simulate
from trtllm_kit.estimate.step_time import StepClock
from trtllm_kit.estimate.workload import ClosedLoop, Workload, within

__all__ = ["Times", "run_point", "workload_of"]


def run_point(point: Point, clock: StepClock) -> Times:
    """Return the mean times of a row's requests.

    What a request spends outside the engine counts to its first token, and does not put off the slot's next request:
    with lengths of one size it would put all slots in step, which the measured rows do not show.
    """
    outside = clock.request_seconds + clock.reply_seconds
    if point.run.wait or point.run.balance:
        times = run_loop(point, clock)
        return replace(times, ttft_s=times.ttft_s + outside)
    outcome = simulate(point.subject, _Inside(clock), workload_of(point))
    return Times(outcome.ttft.mean + outside, outcome.tpot.mean, outcome.seconds)


class _Inside:
    """A clock that knows of no time outside the engine."""

    def __init__(self, clock: StepClock) -> None:
        self.seconds, self.decode_run = clock.seconds, clock.decode_run


def workload_of(point: Point) -> Workload:
    """Return the load of one replica: a closed loop whose slots all start together."""
    row, run = point.row, point.run
    return Workload(
        prompts=within(run.shortest, row.prompt),
        answers=within(run.shortest, row.answer),
        arrivals=ClosedLoop(point.run.slots),
        requests=run.requests,
    )
