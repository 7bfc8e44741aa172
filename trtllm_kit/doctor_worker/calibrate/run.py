"""Runs the parts and writes what they measure: ``{"machine": {}, "parts": {name: {"columns": [], "rows": [[]]}}}``.

gemm, moe     matrix products by format and shape, those of experts grouped
context       attention of prompts; ``generation``: of one token over a cache
memory        copies, reads, writes; ``launch``: kernels one by one and in a graph; ``small``: norms and the like
links         collectives of all cards of the machine, where there are several

needs torch and triton and an NVIDIA card; ``small`` is a minute's selection, which also runs on a CPU without a time.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from . import attention, dense, links
from .device_clock import Pool

Rows = Iterable[tuple[Any, ...]]
Part = Callable[[Pool, bool], Rows]
HEADS: dict[str, tuple[str, ...]] = {**dense.HEADS, **attention.HEADS, **links.HEADS}
PARTS: dict[str, Part] = {
    "launch": dense.launch,
    "gemm": dense.gemm,
    "generation": attention.generation,
    "context": attention.context,
    "moe": dense.moe,
    "memory": dense.memory,
    "small": dense.small_operations,
}
POOL_ELEMENTS = 1 << 33
"""Of 2 and of 1 byte: 24 GiB, or what three quarters of the card's free memory hold."""
SMALL_POOL_ELEMENTS = {"cuda": 1 << 30, "cpu": 1 << 27}


def machine() -> dict[str, Any]:
    """Return what the figures are measured on."""
    told: dict[str, Any] = {"torch": torch.__version__, "cuda": torch.version.cuda, "date": time.strftime("%Y-%m-%d")}
    if not torch.cuda.is_available():
        return told | {"card": None, "cards": 0}
    import triton

    fields = "name,driver_version,memory.total,power.limit,clocks.max.sm,clocks.max.mem,clocks.sm,temperature.gpu"
    facts = torch.cuda.get_device_properties(0)
    return told | {
        "card": facts.name,
        "cards": torch.cuda.device_count(),
        "multiprocessors": facts.multi_processor_count,
        "l2_bytes": facts.L2_cache_size,
        "cudnn": torch.backends.cudnn.version(),
        "nccl": ".".join(map(str, torch.cuda.nccl.version())),
        "triton": triton.__version__,
        fields: _output("nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader").splitlines(),
        "topology": _output("nvidia-smi", "topo", "-m"),
        "links": _output("nvidia-smi", "nvlink", "--status"),
    }


def _output(*argv: str) -> str:
    try:
        return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=20).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


class Results:
    """What is measured, in the file that it is written to; after ``seconds`` no further row is measured."""

    def __init__(self, file: Path, heads: Mapping[str, Sequence[str]], seconds: float = math.inf) -> None:
        self.file, self.heads, self.until = file, heads, time.perf_counter() + seconds
        self.told: dict[str, Any] = {"machine": machine(), "parts": {}, "failed": {}}

    def take(self, name: str, rows: Rows) -> None:
        """Run a part to its end, and write it; what breaks it is told in the file, and so is what cut it short."""
        begun = time.perf_counter()
        taken: list[list[Any]] = []
        self.told["parts"][name] = {"columns": self.heads[name], "rows": taken}
        try:
            for row in rows:
                taken.append([_short(value) for value in row])
                if time.perf_counter() > self.until:
                    self.told["parts"][name]["cut"] = True
                    break
        except Exception as error:  # noqa: BLE001  # the card's time is dear: the next part is measured all the same
            self.told["failed"][name] = f"{type(error).__name__}: {str(error)[:500]}"
            say(f"{name} failed: {error}")
        seconds = time.perf_counter() - begun
        self.told["parts"][name]["seconds"] = round(seconds, 1)
        self.write()
        say(f"{name}: {len(taken)} rows, {seconds:.1f} s")

    def write(self) -> None:
        """Replace the file by all that was measured up to now; who is killed in it leaves the one before."""
        partial = self.file.with_name(f"{self.file.name}.partial")
        partial.write_text(json.dumps(self.told, separators=(",", ":")) + "\n")
        partial.replace(self.file)


def say(line: str) -> None:
    """Tell of the advance."""
    print(line, file=sys.stderr, flush=True)  # noqa: T201  # a program of its own


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return None if math.isnan(value) else float(f"{value:.5g}")
    return value


def warmed(seconds: float = 1.0) -> None:
    """Bring the card's clocks up."""
    if torch.cuda.is_available():
        matrix, begun = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16), time.perf_counter()
        while time.perf_counter() - begun < seconds:
            for _ in range(10):
                torch.mm(matrix, matrix)
            torch.cuda.synchronize()


def chosen(names: Sequence[str], small: bool, parts: Mapping[str, Part] = PARTS) -> Iterator[tuple[str, Rows]]:
    """Yield the parts that are asked for, with their rows yet to be measured; links last."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if any(name in parts for name in names):
        pool = Pool(_pool_elements(device, small), device)
        warmed()
        yield from ((name, part(pool, small)) for name, part in parts.items() if name in names)
        del pool
    if "links" in names and torch.cuda.device_count() > 1:
        torch.cuda.empty_cache()
        yield "links", links.measured(torch.cuda.device_count(), small)


def _pool_elements(device: str, small: bool) -> int:
    """Return how many elements of 2 bytes, and as many of 1, fit beside what is measured."""
    if device == "cpu" or small:
        return SMALL_POOL_ELEMENTS[device]
    free = torch.cuda.mem_get_info()[0]
    return min(POOL_ELEMENTS, int(free * 0.6) // 3)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure the parts that are asked for; returns 1 where one broke."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="the JSON to write")
    parser.add_argument("--only", nargs="+", choices=[*HEADS], default=[*HEADS])
    parser.add_argument("--small", action="store_true", help="a minute's selection")
    parser.add_argument("--seconds", type=float, default=math.inf, help="measure nothing more after these")
    asked = parser.parse_args(argv)
    torch.manual_seed(0)
    results = Results(asked.file, HEADS, asked.seconds)
    results.write()
    with torch.inference_mode():
        for name, rows in chosen(asked.only, asked.small):
            if time.perf_counter() < results.until:
                results.take(name, rows)
    return 1 if results.told["failed"] else 0
