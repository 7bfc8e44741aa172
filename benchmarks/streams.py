"""What a conversion costs against the least that any could cost, measured in turns in the same run.

``streams.py [GIGABYTES ...]`` (default 1): for a model of the first size

* BF16 against ``cp --reflink=never`` of the same files with a flush: at least 70 % of its rate is asked
* FP8 by row and INT8 weight-only against a bare loop that reads, casts by a table, writes and flushes, with no scale,
  check or hash: at least 60 % of its rate
* the most anonymous memory: at most 600 MiB, and within 10 % the same for every other size (one run of each)
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
FORMATS = ("bf16", "fp8_rowwise", "int8_wo")


def main(sizes: list[float]) -> int:
    """Run every comparison and print one line each."""
    with tempfile.TemporaryDirectory(prefix="trtkit-streams-", dir=os.environ.get("TRTKIT_BENCH_DIR")) as scratch:
        folder = Path(scratch)
        dry_run(folder)
        peaks = [of_size(folder, size, speed=size == sizes[0]) for size in sizes]
        for number_format in FORMATS:
            most = [peak[number_format] for peak in peaks]
            said = ", ".join(f"{peak:.0f} MiB at {size:g} GB" for peak, size in zip(most, sizes, strict=True))
            print(f"anonymous memory of {number_format:12} at most {said}: {(max(most) / min(most) - 1) * 100:.0f} %")
    return 0


def of_size(folder: Path, gigabytes: float, *, speed: bool) -> dict[str, float]:
    """Return the most anonymous memory of each format, MiB, for a model of one size; compare the rates if ``speed``."""
    source = folder / "model"
    size = random_model(source, gigabytes)
    peaks = dict.fromkeys(FORMATS, 0.0)

    def conversion(number_format: str) -> Callable[[Path], None]:
        def work(out: Path) -> None:
            command = [sys.executable, str(ONCE), str(source), number_format, str(out)]
            said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            peaks[number_format] = max(peaks[number_format], float(said))

        return work

    for number_format in FORMATS:
        if speed:
            compare(number_format, conversion(number_format), source, size)
        else:
            timed(conversion(number_format), folder / "out")
    shutil.rmtree(source)
    return peaks


def compare(number_format: str, work: Callable[[Path], None], source: Path, size: int) -> None:
    """Print the rate of a conversion against the least that it could cost."""
    said, baseline = ("cp and sync", copy) if number_format == "bf16" else ("read, cast, write, sync", cast)
    ratio, seconds = in_turns(work, lambda out: baseline(source, out), source.with_name("out"))
    print(
        f"convert {number_format:12} {size / 1e9:6.2f} GB {seconds:7.2f} s {size / seconds / 1e9:5.2f} GB/s "
        f"{ratio * 100:4.0f} % of the rate of {said}",
        flush=True,
    )


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
