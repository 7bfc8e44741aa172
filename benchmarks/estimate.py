"""How much quicker a simulation is than the run it simulates: Llama 3.1 70B in FP8 on one node of H200.

Each line says how long the run would take, how long the simulation took on one core, and the ratio of the two; the
last column is the same with every step taken by itself. A ratio below ``LEAST`` of the first line is a failure.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.specs import llama_70b  # noqa: E402  # needs the path above
from trtllm_kit.estimate.batching import simulate  # noqa: E402
from trtllm_kit.estimate.disaggregated import Side, Transfer, simulate_disaggregated  # noqa: E402
from trtllm_kit.estimate.step_time import StepClock  # noqa: E402
from trtllm_kit.estimate.subject import Speculation, Subject  # noqa: E402
from trtllm_kit.estimate.work import StepWork  # noqa: E402
from trtllm_kit.estimate.workload import ClosedLoop, Poisson, Workload, closed_loop, within  # noqa: E402
from trtllm_kit.plan.formats import Formats  # noqa: E402
from trtllm_kit.plan.parallelism import Split  # noqa: E402
from trtllm_kit.spec.load import load_hardware  # noqa: E402

LEAST = 1000
RUNS = 3
CHAT = closed_loop(within(0.8, 1024), within(0.8, 1024), 64)


def main() -> int:
    """Print a line for each kind of run."""
    subject = replica()
    print(f"{'run':44} {'it takes':>10} {'simulated in':>13} {'ratio':>9} {'step by step':>13}")
    ratios = [line(name, case, workload) for name, case, workload in cases(subject)]
    apart(subject)
    clock(subject)
    return int(ratios[0] < LEAST)


def replica() -> Subject:
    """Return the 70B on four GPUs, as its profile runs it."""
    return Subject(
        model=llama_70b(),
        hardware=load_hardware("h200x8-700w"),
        formats=Formats("fp8"),
        split=Split(4),
        release="1.2.1",
        max_batch_size=64,
        max_num_tokens=8192,
        max_seq_len=16384,
        kv_tokens=2_000_000,
        chunked_prefill=True,
    )


def cases(subject: Subject) -> Iterator[tuple[str, Subject, Workload]]:
    """Yield what is timed; the first is what the promise is about."""
    small = replace(subject, kv_tokens=60_000, block_reuse=True)
    drafts = Speculation("eagle3", 3, (0.8, 0.7, 0.6), draft_bytes=500_000_000)
    yield "64 users, 1,024 in, 1,024 out", subject, CHAT
    yield "64 users, 8,192 in, 1,024 out", subject, closed_loop(within(0.8, 8192), within(0.8, 1024), 64)
    yield "8 users, 1,024 in, 8,192 out", subject, closed_loop(within(0.8, 1024), within(0.8, 8192), 8)
    yield "16 requests/s at random", replace(subject, max_batch_size=256), Workload(*CHAT_LENGTHS, Poisson(16), 1600)
    yield "512 users on 512 slots", replace(subject, max_batch_size=512), closed_loop(*CHAT_LENGTHS, 512, rounds=4)
    yield "a small cache, reserved", small, CHAT
    yield "a small cache, with pauses", replace(small, scheduler_policy="MAX_UTILIZATION"), CHAT
    yield "3 drafts a step", replace(subject, speculation=drafts), CHAT
    yield "2 pipeline stages", replace(subject, split=Split(2, pipeline=2)), CHAT
    yield "attention data parallelism of 4", replace(subject, split=replace(subject.split, attention_dp=True)), CHAT
    talk = Workload(within(0.8, 512), within(0.8, 256), ClosedLoop(64), 3200, turns=10, shared_prefix=300)
    yield "conversations of 10 turns, reuse", replace(subject, block_reuse=True), talk


CHAT_LENGTHS = (CHAT.prompts, CHAT.answers)


def line(name: str, subject: Subject, workload: Workload) -> float:
    """Time one case, print it and return its ratio."""
    clock = StepClock(subject)
    quick, span = min(timed(subject, clock, workload, exact=False) for _ in range(RUNS))
    slow, _ = timed(subject, clock, workload, exact=True)
    print(f"{name:44} {span:8.1f} s {1000 * quick:10.1f} ms {span / quick:9,.0f} {span / slow:13,.0f}")
    return span / quick


def timed(subject: Subject, clock: StepClock, workload: Workload, *, exact: bool) -> tuple[float, float]:
    """Return the seconds of a simulation, and those it simulates."""
    begun = time.process_time()
    outcome = simulate(subject, clock, workload, exact=exact)
    return time.process_time() - begun, max(served.last for served in outcome.served)


def apart(subject: Subject) -> None:
    """Time prompts and answers on servers of their own."""
    side, link = Side(subject, StepClock(subject)), Transfer(160e3, 50e9, 2e-3)
    begun = time.process_time()
    outcome = simulate_disaggregated(replace(side, servers=2), side, link, CHAT)
    quick, span = time.process_time() - begun, max(served.last for served in outcome.served)
    print(f"{'2 prompt servers, 1 answering server':44} {span:8.1f} s {1000 * quick:10.1f} ms {span / quick:9,.0f}")


def clock(subject: Subject) -> None:
    """Print what a step's time costs to ask for."""
    timer = StepClock(subject)
    decode = StepWork(sequences=64, context=64 * 1500)
    asks: dict[str, Callable[[], float]] = {
        "one generation step": lambda: timer.seconds(decode),
        "a run of 100 of them": lambda: timer.decode_run(64, 64 * 1500, 100),
    }
    for name, ask in asks.items():
        begun = time.process_time()
        for _ in range(10_000):
            ask()
        print(f"{'the clock, ' + name:44} {(time.process_time() - begun) * 100:8.2f} µs")


if __name__ == "__main__":
    sys.exit(main())
