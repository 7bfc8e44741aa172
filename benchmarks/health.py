"""How fast check-health is: the whole process, two hundred targets, and a page of ten thousand series.

process   one target with the profile's rules and a memory, against an interpreter with argparse, json, http.client
targets   200 local targets in one call against one target, each of its files remembered and written anew
page      parse and judge 10,000 series, milliseconds

The pages come from a process of their own that costs next to nothing (``health_pages.py``). Two hundred targets take
every core there is, so on a machine that does other things beside it the second row says little: the least of some
runs is printed too.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from trtllm_kit.health.evaluate import evaluate  # noqa: E402  # the checkout is no package
from trtllm_kit.health.load import rules_for  # noqa: E402
from trtllm_kit.health.snapshot import Outcome, Snapshot, Target  # noqa: E402
from trtllm_kit.health.sources.prometheus_text import parse  # noqa: E402

TRTKIT = [sys.executable, "-c", "import sys; from trtllm_kit.cli.entry import main; sys.exit(main())"]
BARE = [sys.executable, "-c", "import argparse, json, http.client"]
PROFILE = "cpu-rehearsal-simulated"
PAGE = ROOT / "tests" / "health" / "pages" / "triton-2.51-heartbeat-idle-1.prom"
TARGETS, SERIES, RUNS = 200, 10_000, 15


def main() -> int:
    """Print one line a row, each with what it may be at most."""
    with tempfile.TemporaryDirectory(prefix="trtkit-bench-") as folder, page_servers(TARGETS) as urls:
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment = kept | {"TRTKIT_STATE": folder}
        one = [*TRTKIT, "check-health", "-p", PROFILE, "--url", urls[0]]
        all_of_them = [*TRTKIT, "check-health", "-p", PROFILE, *(word for url in urls for word in ("--url", url))]
        for words in (one, all_of_them, one, all_of_them, BARE):
            run(words, environment)  # what is asked is compiled and remembered
        rows = [[timed(run, words, environment) for words in (one, BARE, all_of_them)] for _ in range(RUNS)]
        process, bare, fleet = (statistics.median(seconds) for seconds in zip(*rows, strict=True))
        memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        least = min(row[2] for row in rows) / min(row[0] for row in rows)
        print(f"process  {process * 1e3:6.0f} ms  {process / bare:5.2f} x bare ({bare * 1e3:.0f} ms), at most 1.5")
        print(f"targets  {fleet * 1e3:6.0f} ms  {fleet / process:5.2f} x one (least {least:.2f}), at most 5;", end=" ")
        print(f"{memory:.0f} MB, at most 150")
    page = median(ten_thousand_series(), 5)
    print(f"page     {page * 1e3:6.0f} ms  of {SERIES} series, at most 150")
    return 0


def run(words: list[str], environment: dict[str, str]) -> None:
    """Run a command; its verdict does not matter, a crash does."""
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert "Traceback" not in done.stderr, done.stderr


def median(work: Callable[[], object], runs: int) -> float:
    """Return the median duration of some runs, seconds."""
    return statistics.median(timed(work) for _ in range(runs))


def timed(work: Callable[..., object], *given: object) -> float:
    """Return the duration of one run, seconds."""
    begun = time.perf_counter()
    work(*given)
    return time.perf_counter() - begun


def ten_thousand_series() -> Callable[[], object]:
    """Return the work of one reading: a page as many models make it, taken apart and judged by every rule."""
    models = SERIES // 20
    family = "nv_trt_llm_request_metrics"
    lines = [PAGE.read_text("utf-8")]
    for model in range(models):
        labels = f'model="m{model}",version="1"'
        lines += [f'nv_inference_request_success{{{labels},gpu_uuid="GPU-{n}"}} {n}\n' for n in range(15)]
        lines += [
            f'{family}{{request_type="{kind}",{labels}}} 1\n' for kind in ("active", "max", "queued", "scheduled", "x")
        ]
    text, rules = "".join(lines), rules_for()

    def work() -> object:
        page = parse(text)
        sample = Snapshot(Outcome.OK, "", 0.0, 0.0, 0.0, series=page.series, timestamps=page.timestamps)
        return evaluate(Target("http://127.0.0.1/"), (sample,), rules)

    return work


@contextmanager
def page_servers(count: int) -> Iterator[list[str]]:
    """Serve a page that beats on loopback, under as many addresses as targets."""
    program = Path(__file__).with_name("health_pages.py")
    server = subprocess.Popen([sys.executable, str(program), str(PAGE)], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        yield [f"http://127.0.0.1:{port}/metrics?target={number}" for number in range(count)]
    finally:
        server.kill()
        server.wait()


if __name__ == "__main__":
    sys.exit(main())
