"""What a card reaches: ``python -m benchmarks.gpu.ceilings FILE.json``.

gemm, moe     matrix products by format and shape, those of experts grouped
context       attention of prompts; ``generation``: of one token over a cache
memory        copies, reads, writes; ``launch``: kernels one by one and in a graph; ``small``: norms and the like
sustained     rate, power and clock over seconds of load
links         collectives of all cards of the machine, where there are several
steps         whole steps of Llama 3.1 shapes out of the same kernels, captured in one graph

All but ``sustained`` and ``steps`` is what ``trtkit doctor calibrate`` runs. It needs torch and triton and an NVIDIA
card; ``--only NAMES`` picks, ``--small`` is a minute's selection, which also runs on a CPU without a time.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from benchmarks.gpu import ceiling_load as load
from benchmarks.gpu import step_chain
from trtllm_kit.doctor_worker.calibrate import run

HEADS = run.HEADS | load.HEADS | step_chain.HEADS
PARTS = run.PARTS | {"sustained": load.sustained}


def chosen(names: list[str], small: bool) -> Iterator[tuple[str, run.Rows]]:
    """Yield the parts that are asked for, with their rows yet to be measured."""
    yield from run.chosen(names, small, PARTS)
    if "steps" in names:
        torch.cuda.empty_cache()
        run.warmed()
        yield "steps", step_chain.measured("cuda" if torch.cuda.is_available() else "cpu", small)


def main() -> int:
    """Measure, write and say how long each part took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="the JSON to write")
    parser.add_argument("--only", nargs="+", choices=[*HEADS], default=[name for name in HEADS if name != "steps"])
    parser.add_argument("--small", action="store_true", help="a minute's selection")
    asked = parser.parse_args()
    torch.manual_seed(0)
    results = run.Results(asked.file, HEADS)
    with torch.inference_mode():
        for name, rows in chosen(asked.only, asked.small):
            results.take(name, rows)
    return 1 if results.told["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
