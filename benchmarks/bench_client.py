"""How true the client's stamps are: gaps it measures against those of a stub that writes the time into each token.

``bench_client.py [STREAMS TOKENS_A_SECOND]``: without arguments 64 streams at 5,000 tokens/s, where measured gaps must
lie within 1 ms of the true ones at the median and 5 ms at p99, and 256 streams at 20,000 tokens/s, where the client
either keeps that or says that it is the bottleneck. The stub is a process of its own on the same machine and clock.
"""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from trtllm_kit.bench.client import HttpClient, address_of
from trtllm_kit.bench.dialects import DIALECTS
from trtllm_kit.bench.drive import Driven, Limits, drive
from trtllm_kit.bench.histogram import Histogram
from trtllm_kit.bench.load import Load
from trtllm_kit.bench.prompts import Prompts
from trtllm_kit.estimate.workload import ClosedLoop, Workload, fixed

STUB = Path(__file__).resolve().parents[1] / "tests" / "support" / "token_server.py"
TOKENS = 200
RUNS = 3
"""Of each load; the one counts that the machine disturbed least."""
MEDIAN, P99 = 1e-3, 5e-3


def main(loads: list[tuple[int, float]]) -> int:
    """Measure each load; return 1 when the client was wrong and did not say so."""
    return max(judged(streams, rate) for streams, rate in loads)


def judged(streams: int, rate: float) -> int:
    """Print how far off the client was at one load."""
    runs = [measured(streams, rate) for _ in range(RUNS)]
    driven, off, late = min(runs, key=lambda run: run[0].lag.woken)
    lag = driven.lag
    tokens = sum(len(sent.heard.stamps) for sent in driven.sent)
    good = off.at(0.5) <= MEDIAN and off.at(0.99) <= P99
    print(
        f"{streams} streams, {tokens / driven.seconds:,.0f} of {rate:,.0f} tokens/s: gaps off by "
        f"{off.at(0.5) * 1e3:.3f} ms at the median ({off.at(0.5) / MEDIAN:.2f} of the limit), "
        f"{off.at(0.99) * 1e3:.3f} ms at p99 ({off.at(0.99) / P99:.2f}); stamps late by {late.at(0.5) * 1e3:.3f} and "
        f"{late.at(0.99) * 1e3:.3f} ms, of its own doing {lag.median * 1e3:.3f} and "
        f"{lag.p99 * 1e3:.3f} ms; woken late by {lag.woken * 1e3:.3f} ms at p99; "
        f"busy {lag.busy:.0%}; {lag.bottleneck or 'no bottleneck'}"
    )
    return int(not good and not lag.bottleneck)


def measured(streams: int, rate: float) -> tuple[Driven, Histogram, Histogram]:
    """Run one load against the stub; return by how much gaps were off, and how late stamps were, seconds."""
    gap = streams / rate
    command = [sys.executable, str(STUB), str(gap), str(gap)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as stub:
        assert stub.stdout is not None
        address = address_of(f"http://127.0.0.1:{int(stub.stdout.readline())}")
        load = Load(Workload(fixed(16), fixed(TOKENS), ClosedLoop(streams), streams * 2))
        driven = drive(
            load,
            Prompts(load),
            lambda: HttpClient(address, DIALECTS["triton"], "tensorrt_llm", silence=10),
            Limits(),
        )
        assert stub.stdin is not None
        stub.stdin.close()
        stub.terminate()
    off, late = Histogram(), Histogram()
    for sent in driven.sent:
        true = [float(text) for text in sent.heard.texts]
        for stamp, written in zip(sent.heard.stamps, true, strict=True):
            late.add(stamp - written)
        for seen, sent_gap in zip(pairwise(sent.heard.stamps), pairwise(true), strict=True):
            off.add(abs((seen[1] - seen[0]) - (sent_gap[1] - sent_gap[0])))
    return driven, off, late


if __name__ == "__main__":
    given = sys.argv[1:]
    sys.exit(main([(int(given[0]), float(given[1]))] if given else [(64, 5000), (256, 20_000)]))
