"""What a conversion costs against the least that any could cost, measured in turns in the same run.

``streams.py [GIGABYTES ...]`` (default 1): for a model of each size

* BF16 against ``cp --reflink=never`` of the same files with a flush: at least 70 % of its rate is asked
* FP8 by row and INT8 weight-only against a bare loop that reads, casts by a table, writes and flushes, with no scale,
  check or hash: at least 60 % of its rate
* the most anonymous memory: at most 600 MiB, and the same for every size
* and the dry run of a 405B model, of which only headers are there: at most 2 s
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.synthetic import headers_of_405b, random_model

RUNS = 5
PIECE = 1 << 20
ONCE = Path(__file__).with_name("convert_once.py")
MEMORY: dict[float, dict[str, float]] = {}


def main(sizes: list[float]) -> int:
    """Run every comparison and print one line each."""
    with tempfile.TemporaryDirectory(prefix="trtkit-streams-", dir=os.environ.get("TRTKIT_BENCH_DIR")) as scratch:
        folder = Path(scratch)
        dry_run(folder)
        for size in sizes:
            of_size(folder, size)
    return 0


def of_size(folder: Path, gigabytes: float) -> None:
    """Compare on a model of one size."""
    source = folder / "model"
    size = random_model(source, gigabytes)
    peaks: dict[str, float] = {}

    def conversion(number_format: str) -> Callable[[Path], None]:
        def work(out: Path) -> None:
            command = [sys.executable, str(ONCE), str(source), number_format, str(out)]
            said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            peaks[number_format] = max(peaks.get(number_format, 0.0), float(said))

        return work

    pairs: list[tuple[str, Callable[[Path], None], str]] = [("bf16", lambda out: copy(source, out), "cp and sync")]
    pairs += [(name, lambda out: cast(source, out), "read, cast, write, sync") for name in ("fp8_rowwise", "int8_wo")]
    for number_format, baseline, said in pairs:
        ratio, seconds = in_turns(conversion(number_format), baseline, folder / "out")
        print(
            f"convert {number_format:12} {size / 1e9:6.2f} GB {seconds:7.2f} s {size / seconds / 1e9:5.2f} GB/s "
            f"{ratio * 100:4.0f} % of the rate of {said}; at most {peaks[number_format]:.0f} MiB anonymous",
            flush=True,
        )
    shutil.rmtree(source)


def in_turns(work: Callable[[Path], None], baseline: Callable[[Path], None], out: Path) -> tuple[float, float]:
    """Return the median of the pairs' ratios of rates, and the median seconds of ``work``."""
    ratios, seconds = [], []
    for _ in range(RUNS):
        least, took = timed(baseline, out), timed(work, out)
        ratios.append(least / took)
        seconds.append(took)
    return statistics.median(ratios), statistics.median(seconds)


def timed(work: Callable[[Path], None], out: Path) -> float:
    """Return the seconds of one run into an empty place, on a disk with nothing left to do."""
    shutil.rmtree(out, ignore_errors=True)
    os.sync()
    begun = time.perf_counter()
    work(out)
    taken = time.perf_counter() - begun
    shutil.rmtree(out)
    return taken


def copy(source: Path, out: Path) -> None:
    """Copy the weights with the system's own command and flush them."""
    out.mkdir()
    files = sorted(map(str, source.glob("*.safetensors")))
    subprocess.run(["cp", "--reflink=never", *files, str(out)], check=True)
    subprocess.run(["sync", *map(str, out.iterdir())], check=True)


def cast(source: Path, out: Path) -> None:
    """Read, look every element up in a table of 65,536 codes, write, flush."""
    out.mkdir()
    table = np.arange(1 << 16, dtype=np.uint32).astype(np.uint8)
    for path in sorted(source.glob("*.safetensors")):
        with path.open("rb", buffering=0) as read, (out / path.name).open("wb", buffering=0) as write:
            while piece := read.read(PIECE):
                elements = np.frombuffer(piece[: len(piece) // 2 * 2], np.uint16)
                write.write(np.take(table, elements, mode="wrap").data)
            os.fsync(write.fileno())


def dry_run(folder: Path) -> None:
    """Time the list of all tensors that would be written for a 405B model."""
    claimed = headers_of_405b(folder / "large")
    command = [sys.executable, str(ONCE), str(folder / "large"), "fp8_rowwise"]
    seconds = [float(subprocess.run(command, check=True, capture_output=True, text=True).stdout) for _ in range(RUNS)]
    print(f"dry run of {claimed / 1e9:.0f} GB {statistics.median(seconds):6.2f} s", flush=True)
    shutil.rmtree(folder / "large")


if __name__ == "__main__":
    sys.exit(main([float(size) for size in sys.argv[1:]] or [1.0]))
