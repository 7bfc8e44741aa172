"""Rate, power and clock of a card over seconds of one kind of work; see ``ceilings``."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from trtllm_kit.doctor_worker.calibrate.device_clock import E4M3, Pool, captured

HEADS = {
    "sustained": (
        "what", "seconds", "unit", "rate_first_second", "rate_last_second",
        "watts_last_second", "sm_mhz_first_second", "sm_mhz_last_second", "celsius", "reasons",
    ),
}  # fmt: skip
BF16 = torch.bfloat16
SIZE = 8192


class Watch:
    """Samples power (W), clock of the multiprocessors (MHz), temperature and the reasons of a lower clock, by NVML."""

    def __init__(self) -> None:
        import pynvml

        pynvml.nvmlInit()
        self._nvml, self._card = pynvml, pynvml.nvmlDeviceGetHandleByIndex(0)
        self.samples: list[tuple[float, float, float, float, int]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def _sample(self) -> None:
        nvml = self._nvml
        while not self._over.wait(0.02):
            self.samples.append((
                time.perf_counter(),
                nvml.nvmlDeviceGetPowerUsage(self._card) / 1e3,
                nvml.nvmlDeviceGetClockInfo(self._card, nvml.NVML_CLOCK_SM),
                nvml.nvmlDeviceGetTemperature(self._card, nvml.NVML_TEMPERATURE_GPU),
                nvml.nvmlDeviceGetCurrentClocksEventReasons(self._card),
            ))  # fmt: skip

    def __enter__(self) -> Watch:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        self._over.set()
        self._thread.join()

    def median(self, column: int, begun: float, ended: float) -> float:
        """Return the median of a column between two times."""
        return statistics.median(one[column] for one in self.samples if begun <= one[0] <= ended)

    def reasons(self, begun: float, ended: float) -> int:
        """Return the union of NVML's reasons between two times, as its bits."""
        found = 0
        for one in self.samples:
            found |= one[4] if begun <= one[0] <= ended else 0
        return found


def sustained(pool: Pool, small: bool) -> Iterator[tuple[Any, ...]]:
    """Run each kind of work for seconds, behind a pause that lets the card cool."""
    if pool.device == "cpu":
        return
    seconds = 1.5 if small else 6.0
    rows, rows_fp8 = pool.one((SIZE, SIZE)), pool.one((SIZE, SIZE), E4M3)
    scale = torch.ones((), device=pool.device)
    product = [partial(torch.mm, rows, one.t()) for one in pool.sets((SIZE, SIZE), BF16)]
    fp8 = [
        partial(torch._scaled_mm, rows_fp8, one.t(), scale_a=scale, scale_b=scale, out_dtype=BF16, use_fast_accum=True)
        for one in pool.sets((SIZE, SIZE), E4M3)
    ]
    big = pool.sets((1 << 17, 4096), BF16)
    read = [partial(torch.amax, one, 1) for one in big]
    out = torch.empty_like(big[0])
    copy = [partial(torch.neg, one, out=out) for one in big]
    yield ("idle", seconds, "", *idle(seconds))
    yield ("gemm bf16 8192^3", seconds, "TFLOP/s", *loaded(product, seconds, 2e-12 * SIZE**3))
    yield ("gemm fp8 8192^3", seconds, "TFLOP/s", *loaded(fp8, seconds, 2e-12 * SIZE**3))
    yield ("read", seconds, "TB/s", *loaded(read, seconds, 1e-12 * (1 << 30)))
    yield ("kernel copy", seconds, "TB/s", *loaded(copy, seconds, 2e-12 * (1 << 30)))


def idle(seconds: float) -> tuple[Any, ...]:
    """Return the figures of a card that waits."""
    torch.cuda.synchronize()
    with Watch() as watch:
        begun = time.perf_counter()
        time.sleep(seconds)
    return (0.0, 0.0, *_told(watch, begun, begun + seconds))


def loaded(calls: list[Callable[[], object]], seconds: float, of_one: float) -> tuple[Any, ...]:
    """Return the figures of calls, each of which does ``of_one`` of the unit of the rate."""
    graph = captured([calls[index % len(calls)] for index in range(20)])
    graph.replay()
    torch.cuda.synchronize()
    time.sleep(1.0)
    ended: list[float] = []
    with Watch() as watch:
        begun = time.perf_counter()
        while time.perf_counter() - begun < seconds:
            graph.replay()
            torch.cuda.synchronize()
            ended.append(time.perf_counter())
    last = ended[-1]
    first_rate = _rate([begun, *(one for one in ended if one <= begun + 1)], of_one)
    return (first_rate, _rate([one for one in ended if one >= last - 1], of_one), *_told(watch, begun, last))


def _rate(times: list[float], of_one: float) -> float:
    return 20 * of_one * (len(times) - 1) / (times[-1] - times[0])


def _told(watch: Watch, begun: float, last: float) -> tuple[float, float, float, float, int]:
    end = (last - 1, last)
    clocks = watch.median(2, begun, begun + 1), watch.median(2, *end)
    return watch.median(1, *end), *clocks, watch.median(3, *end), watch.reasons(*end)
