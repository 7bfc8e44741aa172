"""What the server told of itself during a run, on the client's clock."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from trtllm_kit import child

INTERVAL_SECONDS = 1.0
_MOST_BYTES = 1 << 20
"""Of what was written since the last look: more is read with the next."""
MOST_SERIES = 60
"""Series that are kept of a run: those that changed."""


ENERGY = {"nv_energy_consumption": 1.0, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 1e-3, "trtkit_gpu_energy_joules": 1.0}
"""Counters of a GPU's energy: Triton's in joules, DCGM's in millijoules, and NVML's of this machine."""


class Scraped:
    """Readings of a metrics page; complete once the reading has ended."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.readings: list[dict[str, Any]] = []
        self._file: IO[bytes] | None = None
        self._read = 0

    def come_to(self, file: IO[bytes]) -> None:
        """Name the file to which readings are written meanwhile, a line each."""
        self._file = file

    def newest(self) -> str:
        """Return the newest line that was written whole since it was asked last; empty where there is none."""
        if self._file is None:
            return ""
        lines = os.pread(self._file.fileno(), _MOST_BYTES, self._read).split(b"\n")
        self._read += sum(len(line) + 1 for line in lines[:-1])
        return lines[-2].decode("utf-8", "replace") if len(lines) > 1 else ""

    def document(self, begun: float, seconds: float) -> dict[str, Any]:
        """Return the series that changed, as values over seconds from the start of the run, and failed readings."""
        within = [one for one in self.readings if -INTERVAL_SECONDS <= one["clock"] - begun <= seconds]
        good = [one for one in within if one["ok"]]
        names = sorted({name for one in good for name in one["values"]})
        series = {name: [one["values"].get(name) for one in good] for name in names}
        changing = [name for name in names if len(set(series[name])) > 1][:MOST_SERIES]
        watts = _watts([one["clock"] for one in good], series)
        return ({} if watts is None else {"watts": watts}) | {
            "seconds": [round(one["clock"] - begun, 3) for one in good],
            "series": {name: series[name] for name in changing},
            "failed": len(within) - len(good),
            "reason": next((one["reason"] for one in within if not one["ok"]), ""),
        }


def _watts(clocks: list[float], series: dict[str, list[float | None]]) -> float | None:
    """Return the mean power of all GPUs by their counters of energy; None where there is none, or one began anew."""
    for family, unit in ENERGY.items():
        counters = [values for name, values in series.items() if name.partition("{")[0] == family]
        ends = [(values[0], values[-1]) for values in counters if values]
        grown = [last - first for first, last in ends if first is not None and last is not None]
        if grown and len(grown) == len(counters) and min(grown) >= 0 and clocks[-1] > clocks[0]:
            return unit * sum(grown) / (clocks[-1] - clocks[0])
    return None


@contextmanager
def scraping(url: str | None, ca: str = "", *, nvml: bool = False) -> Iterator[Scraped]:
    """Read a metrics page every second beside what is done meanwhile; nothing where neither is asked.

    ``ca`` names a file of certificates to trust; ``nvml`` reads the GPUs of this machine from their driver too.
    """
    scraped = Scraped()
    if url is None and not nvml:
        yield scraped
        return
    with tempfile.TemporaryFile() as out:
        argv = [sys.executable, "-m", "trtllm_kit.bench.scraper", url or "", str(INTERVAL_SECONDS), ca, "nvml" * nvml]
        running = child.start(argv, stdout=out, stderr=out)
        scraped.come_to(out)
        try:
            yield scraped
        finally:
            child.end(running)
            out.seek(0)
            scraped.readings = list(_lines(out.read()))


def _lines(raw: bytes) -> Iterator[dict[str, Any]]:
    """Yield the readings that are whole; the last may have been cut."""
    for line in raw.splitlines():
        try:
            reading = json.loads(line)
        except ValueError:
            continue
        if isinstance(reading, dict) and "clock" in reading:
            yield reading
