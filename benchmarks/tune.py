"""How long a whole tuning takes: Llama 3.1 70B on eight H200, a promise, a load; and one estimate.

The first line is the run that has a limit: at least 5,000 legal configurations bounded, 200 simulations where their
requests allow, in ``MOST_SECONDS`` on two cores and ``MOST_MEMORY``. Exits with 1 when one of them is missed.

With the interpreter of an environment that has aiconfigurator and a folder of the model in FP8 (``tune.py PYTHON
FOLDER``), its ``default`` is asked the first promise at the best load, as it does, and both answers are printed.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.specs import llama_70b  # noqa: E402  # needs the path above
from trtllm_kit.spec.load import hardware_for, load_profile  # noqa: E402
from trtllm_kit.tune.decision import Decision  # noqa: E402
from trtllm_kit.tune.question import Question, slo_of  # noqa: E402
from trtllm_kit.tune.room import Asked  # noqa: E402
from trtllm_kit.tune.run import estimate_of, tune  # noqa: E402

PROFILE = "h200x8-offline"
MOST_SECONDS, MOST_MEMORY, MOST_ESTIMATE = 10.0, 300 << 20, 0.050
LEAST_CONFIGURATIONS = 5000
QUESTIONS = {
    "64 at once, ttft 500 ms, tpot 15 ms": Question(1024, 1024, concurrency=64, slo=slo_of("ttft=500ms,tpot=15ms")),
    "1,024 at once": Question(1024, 1024, concurrency=1024),
    "20 requests a second, ttft 1 s": Question(1024, 256, rate=20.0, slo=slo_of("ttft=1s")),
    "the most that keeps tpot 20 ms": Question(1024, 1024, slo=slo_of("tpot=20ms")),
}


def main() -> int:
    """Print a line for each question; return 1 when the first misses a limit."""
    print(f"{'question':38} {'bounded':>9} {'simulated':>10} {'wall':>8} {'all cores':>10}  winner")
    first, missed = True, False
    for name, question in QUESTIONS.items():
        seconds, decision = line(name, question)
        search = decision.search
        if first:
            missed = seconds > MOST_SECONDS or search.bounded < LEAST_CONFIGURATIONS
            missed |= one_estimate(decision) > MOST_ESTIMATE
        first = False
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    print(f"memory at its peak: {peak / 2**20:.0f} MiB, of each process beside it {children() / 2**20:.0f} MiB")
    if len(sys.argv) > 2:
        beside_aiconfigurator(Path(sys.argv[1]), Path(sys.argv[2]))
    return 1 if missed or peak > MOST_MEMORY else 0


def line(name: str, question: Question) -> tuple[float, Decision]:
    """Tune once and print it; return the seconds and the decision."""
    loaded = load_profile(PROFILE)
    machine = hardware_for(loaded.profile)
    begun, spent = time.perf_counter(), cpu()
    decision = tune(Asked(llama_70b(), loaded, {machine.name: machine}, question))
    seconds, search = time.perf_counter() - begun, decision.search
    words = decision.shown.point.candidate.words() if decision.shown else decision.blocking
    print(f"{name:38} {search.bounded:9,} {search.simulated:10,} {seconds:6.2f} s {cpu() - spent:8.2f} s  {words}")
    return seconds, decision


def one_estimate(decision: Decision) -> float:
    """Print and return the seconds of the winner's estimate, of three the quickest."""
    shown = decision.shown
    if shown is None:
        return 0.0
    taken = []
    for _ in range(3):
        begun = time.perf_counter()
        estimate_of(decision, shown)
        taken.append(time.perf_counter() - begun)
    print(f"{'  its estimate':38} {min(taken) * 1e3:29.1f} ms")
    return min(taken)


def beside_aiconfigurator(python: Path, folder: Path) -> None:
    """Ask both for the most tokens under the same promise, and print times and answers."""
    question = Question(1024, 1024, slo=slo_of("ttft=500ms,tpot=15ms"))
    _, decision = line("the most that keeps 500 ms and 15 ms", question)
    if decision.winner is not None:
        point = decision.winner.point
        print(f"  {point.concurrency} at once, {point.tokens_per_s_per_gpu:,.0f} tokens/s/GPU")
    command = [str(python.parent / "aiconfigurator"), "cli", "default", "--model-path", str(folder), "--no-color"]
    asked = "--total-gpus 8 --system h200_sxm --backend trtllm --serving-mode agg --isl 1024 --osl 1024"
    begun = time.perf_counter()
    ran = subprocess.run(
        [*command, *asked.split(), "--ttft", "500", "--tpot", "15"], capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - begun
    rows = [text.strip() for text in (ran.stdout + ran.stderr).splitlines() if text.lstrip().startswith("|  1 ")]
    print(f"{'aiconfigurator default':38} {'':9} {'':10} {seconds:6.2f} s  {rows[0] if rows else 'no answer'}")
    print("  columns: rank, backend, tokens/s/gpu, tokens/s/user, req/s, TTFT, latency, concurrency, GPUs, replicas")


def cpu() -> float:
    """Return the seconds of all cores so far, of this process and those that ended."""
    return time.process_time() + sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


def children() -> int:
    """Return the most memory that a process beside this one took, bytes."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10


if __name__ == "__main__":
    sys.exit(main())
