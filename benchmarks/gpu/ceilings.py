"""What a card reaches: ``python -m benchmarks.gpu.ceilings FILE.json``.

gemm, moe     matrix products by format and shape, those of experts grouped
context       attention of prompts; ``generation``: of one token over a cache
memory        copies, reads, writes; ``launch``: kernels one by one and in a graph; ``small``: norms and the like
sustained     rate, power and clock over seconds of load
links         collectives of all cards of the machine, where there are several
steps         whole steps of Llama 3.1 shapes out of the same kernels, captured in one graph

needs torch and triton and an NVIDIA card; ``--only NAMES`` picks, ``--small`` is a minute's selection, which also runs
on a CPU without a time. Random inputs, as many sets as three times the L2; device events around graph replays; medians.
``FILE.json`` is written after every part: ``{"machine": {}, "parts": {name: {"columns": [], "rows": [[]]}}}``.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu import ceiling_attention as attention
from benchmarks.gpu import ceiling_dense as dense
from benchmarks.gpu import ceiling_links as links
from benchmarks.gpu import ceiling_load as load
from benchmarks.gpu import step_chain
from benchmarks.gpu.device_clock import Pool

Rows = Iterable[tuple[Any, ...]]
HEADS = dense.HEADS | attention.HEADS | load.HEADS | links.HEADS | step_chain.HEADS
PARTS: dict[str, Callable[[Pool, bool], Rows]] = {
    "launch": dense.launch,
    "gemm": dense.gemm,
    "generation": attention.generation,
    "context": attention.context,
    "moe": dense.moe,
    "memory": dense.memory,
    "sustained": load.sustained,
    "small": dense.small_operations,
}
POOL_ELEMENTS = 1 << 33
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
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip()


class Results:
    """What is measured, in the file that it is written to."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.told: dict[str, Any] = {"machine": machine(), "parts": {}, "failed": {}}

    def take(self, name: str, rows: Rows) -> None:
        """Run a part to its end, and write it; what breaks it is told in the file."""
        begun = time.perf_counter()
        taken: list[list[Any]] = []
        self.told["parts"][name] = {"columns": HEADS[name], "rows": taken}
        try:
            taken.extend([_short(value) for value in row] for row in rows)
        except Exception as error:  # noqa: BLE001  # the card's time is dear: the next part is measured all the same
            self.told["failed"][name] = f"{type(error).__name__}: {str(error)[:500]}"
            print(f"{name} failed: {error}", file=sys.stderr, flush=True)
        seconds = time.perf_counter() - begun
        self.told["parts"][name]["seconds"] = round(seconds, 1)
        self.file.write_text(json.dumps(self.told, separators=(",", ":")) + "\n")
        print(f"{name}: {len(taken)} rows, {seconds:.1f} s", flush=True)


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


def chosen(names: list[str], small: bool) -> Iterator[tuple[str, Rows]]:
    """Yield the parts that are asked for, with their rows yet to be measured."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if any(name in PARTS for name in names):
        pool = Pool(POOL_ELEMENTS if device == "cuda" and not small else SMALL_POOL_ELEMENTS[device], device)
        warmed()
        yield from ((name, part(pool, small)) for name, part in PARTS.items() if name in names)
        del pool
    if "links" in names and torch.cuda.device_count() > 1:
        torch.cuda.empty_cache()
        yield "links", links.measured(torch.cuda.device_count(), small)
    if "steps" in names:
        torch.cuda.empty_cache()
        warmed()
        yield "steps", step_chain.measured(device, small)


def main() -> int:
    """Measure, write and print how long each part took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="the JSON to write")
    parser.add_argument("--only", nargs="+", choices=[*HEADS], default=[name for name in HEADS if name != "steps"])
    parser.add_argument("--small", action="store_true", help="a minute's selection")
    asked = parser.parse_args()
    torch.manual_seed(0)
    results = Results(asked.file)
    with torch.inference_mode():
        for name, rows in chosen(asked.only, asked.small):
            results.take(name, rows)
    return 1 if results.told["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
