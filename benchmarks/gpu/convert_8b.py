"""Conversion of a model of 8B parameters on a machine with a GPU: ``python -m benchmarks.gpu.convert_8b WORK``.

A Llama of the shape of 3.1 8B with random weights (16 GB) is made in the folder ``WORK``, which needs 60 GB. Then

native    trtkit converts it to FP8 with an FP8 KV cache on the CPU: time and anonymous memory of each phase
modelopt  nvidia-modelopt does the same on the GPU, on the same tokens: in BF16 with an export, and in float32
scales    both checkpoints tensor by tensor, and the magnitudes that calibration measured
answers   logits and greedy answers of both FP8 checkpoints against the BF16 model, by transformers on the card
rates     BF16, FP8 row-wise and INT8 weight-only against ``cp`` and fsync of the same files, medians of rounds

needs torch, transformers and nvidia-modelopt beside the kit's own packages. ``WORK/results.json`` holds every figure;
a second run goes on behind the last stage that is in it. ``--tiny`` rehearses everything on a CPU in a minute.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu.convert_table import table
from trtllm_kit.checkpoint.calibrate import FILE as CALIBRATION
from trtllm_kit.checkpoint.evaluate import WINDOW
from trtllm_kit.checkpoint.load import load_tokenizer
from trtllm_kit.checkpoint.reader import open_weights
from trtllm_kit.checkpoint.text import held_text
from trtllm_kit.checkpoint.text import read as read_text

HELD_TOKENS = 768
"""What the quality report of ``convert`` reads."""
MEASURED = (".input_scale", ".k_scale", ".v_scale")


class Run:
    """The folder and what was asked."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.work: Path = asked.work.resolve()
        self.tiny: bool = asked.tiny
        self.samples, self.tokens, self.rounds = asked.samples, asked.tokens, asked.rounds
        self.model = self.work / "model"

    def child(self, module: str, *arguments: str | Path) -> dict[str, Any]:
        """Run a program of this folder in a process of its own, and return the object it prints last."""
        argv = [sys.executable, "-m", f"benchmarks.gpu.{module}", *map(str, arguments)]
        done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True)
        told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return told

    def profile(self, weights: str, kv_cache: str) -> Path:
        """Write the profile of a format."""
        path = self.work / f"{weights}.yaml"
        path.write_text(
            f"base: h200x1-llama3.1-8b-fp8\nname: {weights.replace('_', '-')}\n"
            f"quantization: {{weights: {weights}, kv_cache: {kv_cache}}}\n"
            f"calibration: {{samples: {self.samples}, tokens_per_sample: {self.tokens}}}\n"
        )
        return path

    def convert(self, weights: str, kv_cache: str = "bf16") -> dict[str, Any]:
        """Convert anew, up to where everything is flushed to the disk."""
        shutil.rmtree(self.work / weights, ignore_errors=True)
        return self.child("native", self.model, self.profile(weights, kv_cache), self.work / weights)


def machine(run: Run) -> dict[str, Any]:
    """Return what the figures were measured on."""
    import torch

    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    card = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip() if _has_card() else "none"
    packages = {name: _version(name) for name in ("numpy", "torch", "transformers", "nvidia-modelopt")}
    return {
        "card": card,
        "cuda": torch.version.cuda,
        "processors": len(os.sched_getaffinity(0)),
        "processor": _processor(),
        "file_system": _file_system(run.work),
        "python": sys.version.split()[0],
    } | packages


def make_model(run: Run) -> dict[str, Any]:
    """Make the model, and the token ids that everything runs on."""
    shutil.rmtree(run.model, ignore_errors=True)
    told = run.child("random_llama", run.model, *(["--tiny"] if run.tiny else []))
    tokenizer = load_tokenizer(run.model)
    pieces = read_text(None).samples(tokenizer, run.samples, run.tokens)
    held = held_text().first(tokenizer, HELD_TOKENS, WINDOW)
    for name, windows in (("calibration", pieces), ("held", held)):
        (run.work / f"{name}.json").write_text(json.dumps([window.tolist() for window in windows]))
    return told | {"samples": len(pieces), "tokens": sum(map(len, pieces))}


def native(run: Run) -> dict[str, Any]:
    """Convert to FP8 with the kit."""
    return run.convert("fp8", "fp8")


def modelopt(run: Run) -> dict[str, Any]:
    """Calibrate with ModelOpt twice, and export."""
    shutil.rmtree(run.work / "modelopt", ignore_errors=True)
    common = run.model, run.work / "calibration.json"
    return {
        "bf16": run.child("modelopt_fp8", *common, run.work / "amax-bf16.json", run.work / "modelopt"),
        "float32": run.child("modelopt_fp8", *common, run.work / "amax-float32.json"),
    }


def scales(run: Run) -> dict[str, Any]:
    """Compare both checkpoints."""
    ours, theirs = open_weights(run.work / "fp8"), open_weights(run.work / "modelopt")
    same_facts = {name: (one.dtype, one.shape) for name, one in ours.tensors.items()} == {
        name: (one.dtype, one.shape) for name, one in theirs.tensors.items()
    }
    fixed = [name for name in ours.tensors if not name.endswith(MEASURED)]
    different = [name for name in fixed if not np.array_equal(ours.read(name), theirs.read(name))]
    measured = json.loads((run.work / "fp8" / CALIBRATION).read_text())["amax"]
    return {
        "names_types_shapes_equal": same_facts,
        "weights": sum(name.endswith(".weight") for name in fixed),
        "weight_scales": sum(name.endswith(".weight_scale") for name in fixed),
        "bytes_compared": sum(ours.tensors[name].nbytes for name in fixed),
        "different": {kind: sum(name.endswith(kind) for name in different) for kind in (".weight", ".weight_scale")},
        "rules": run.child("modelopt_division", run.model, run.work / "modelopt"),
        "magnitudes": {
            dtype: magnitudes(measured, json.loads((run.work / f"amax-{dtype}.json").read_text()))
            for dtype in ("bf16", "float32")
        },
    }


def magnitudes(ours: dict[str, float], theirs: dict[str, float]) -> dict[str, Any]:
    """Return how far measured magnitudes lie apart: the kit's over ModelOpt's, less one."""
    apart = {kind: [abs(ours[name] / theirs[name] - 1) for name in ours if name.endswith(kind)] for kind in MEASURED}
    return {
        kind: {"count": len(one), "median": statistics.median(one), "largest": max(one), "within_1_percent":
               sum(value <= 0.01 for value in one)}
        for kind, one in apart.items()
    }  # fmt: skip


def answers(run: Run) -> dict[str, Any]:
    """Compare logits and greedy answers on the card."""
    return run.child("fp8_on_card", run.model, run.work / "held.json", run.work / "fp8", run.work / "modelopt")


def rates(run: Run) -> dict[str, Any]:
    """Time conversions that measure nothing, each beside a copy."""
    size = sum(path.stat().st_size for path in run.model.glob("*.safetensors"))
    shutil.rmtree(run.work / "modelopt", ignore_errors=True)  # room
    told: dict[str, Any] = {"source_bytes": size}
    for weights in ("bf16", "fp8_rowwise", "int8_wo"):
        copied, converted = [], []
        for _ in range(run.rounds):
            copied.append(copy(run))
            converted.append(run.convert(weights))
            os.sync()
        shutil.rmtree(run.work / weights)
        seconds = statistics.median(one["seconds"] for one in converted)
        told[weights] = {
            "copy_seconds": statistics.median(copied),
            "seconds": seconds,
            "source_bytes_per_second": size / seconds,
            "rate_over_copy": statistics.median(copied) / seconds,
            "anonymous_bytes": max(one["anonymous_bytes"] for one in converted),
            "all_copy_seconds": copied,
            "all_seconds": [one["seconds"] for one in converted],
        }
    return told


def copy(run: Run) -> float:
    """Copy the weights without sharing blocks and flush them; seconds."""
    target = run.work / "copy"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    begun = time.perf_counter()
    for path in sorted(run.model.glob("*.safetensors")):
        subprocess.run(["cp", "--reflink=never", str(path), str(target)], check=True)
        with (target / path.name).open("rb") as copied:
            os.fsync(copied.fileno())
    seconds = time.perf_counter() - begun
    shutil.rmtree(target)
    return seconds


STAGES: tuple[tuple[str, Callable[[Run], dict[str, Any]]], ...] = (
    ("machine", machine),
    ("model", make_model),
    ("modelopt", modelopt),
    ("native", native),
    ("scales", scales),
    ("answers", answers),
    ("rates", rates),
)


def _has_card() -> bool:
    import torch

    return torch.cuda.is_available()


def _version(package: str) -> str:
    from importlib.metadata import version

    return version(package)


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _file_system(folder: Path) -> str:
    argv = ["df", "--output=fstype", str(folder)]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()[-1]


def main() -> int:
    """Run the stages that are left and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path, help="folder for the model, the checkpoints and results.json")
    parser.add_argument("--tiny", action="store_true", help="a model of four narrow layers")
    parser.add_argument("--samples", type=int, default=16, help="pieces of calibration text")
    parser.add_argument("--tokens", type=int, default=512, help="tokens of a piece")
    parser.add_argument("--rounds", type=int, default=3, help="of each rate")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no stage after so long")
    asked = parser.parse_args()
    begun, run = time.perf_counter(), Run(asked)
    run.work.mkdir(parents=True, exist_ok=True)
    file = run.work / "results.json"
    results = json.loads(file.read_text()) if file.exists() else {}
    failed: list[str] = []
    for name, stage in STAGES:
        if name in results:
            continue
        if time.perf_counter() - begun > asked.seconds:
            print(f"left for another run: from {name} on", flush=True)
            break
        started = time.perf_counter()
        try:
            results[name] = stage(run)
        except subprocess.CalledProcessError as error:
            print(f"{name} failed: {error}", flush=True)
            failed.append(name)
            continue
        file.write_text(json.dumps(results, indent=1) + "\n")
        print(f"{name}: {time.perf_counter() - started:.1f} s", flush=True)
    print(table(results))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
