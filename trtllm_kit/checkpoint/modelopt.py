"""Lets NVIDIA ModelOpt make the weights of a checkpoint, out of process, and takes over what it left, if it is right.

What every tensor must be called and look like was decided before (``checkpoint.layout``). Of what ModelOpt wrote only
the weight files are taken; configuration, tokenizer and record are trtkit's own, as for every other checkpoint.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from trtllm_kit.checkpoint.calibrate import Calibrated, Samples
from trtllm_kit.checkpoint.exported import exported_steps
from trtllm_kit.checkpoint.header import read_header
from trtllm_kit.checkpoint.identity import require_same_files
from trtllm_kit.checkpoint.job import Job
from trtllm_kit.checkpoint.layout import half_format, weight_formats
from trtllm_kit.checkpoint.reader import open_weights
from trtllm_kit.checkpoint.step import TensorStep
from trtllm_kit.checkpoint.worker import Tools, run_worker
from trtllm_kit.errors import InternalError, StorageError
from trtllm_kit.plan.quantization import module_of
from trtllm_kit.progress import Progress
from trtllm_kit.staging import Stage
from trtllm_kit.units import format_bytes

FILE = "trtkit-modelopt.json"
"""What made the weights, kept in the checkpoint; it is written when all of them are there."""
_EXPORT = "modelopt-export"
_HALF_BYTES = 2
_DTYPES = {"BF16": "bfloat16", "F16": "float16"}


def make_weights(stage: Stage, job: Job, progress: Progress) -> tuple[Job, Calibrated]:
    """Run ModelOpt, check every tensor it left, and record the weight files in the stage.

    Returns the job with the tensors that are there, and what was run. Raises ``WorkerFailed``, ``StorageError``.
    """
    tools, samples = _tools_and_samples(job)
    if not stage.has(FILE):
        require_memory(job, tools, _memory_here())
        export = stage.path / _EXPORT
        result = run_worker(tools, "modelopt_worker.py", _request(job, tools, samples, export), progress)
        require_same_files(job.weights)
        files = _take(stage, job, export, progress)
        document = {"tools": tools.identity, "device": result.get("device"), "files": files}
        stage.write_text(FILE, json.dumps(document, indent=1) + "\n")
    files = json.loads((stage.path / FILE).read_text("utf-8"))["files"]
    return replace(job, steps=_steps_in(job, stage.path, files)), _calibrated(samples)


def _tools_and_samples(job: Job) -> tuple[Tools, Samples]:
    if job.tools is None or job.texts is None or job.texts.calibration is None:
        raise InternalError("ModelOpt has nothing to run", why="the job names no environment or no text", hint="report")
    return job.tools, job.texts.calibration


def require_memory(job: Job, tools: Tools, memory_bytes: int) -> None:
    """Raise ``StorageError`` when nothing here can hold the model in 16 bit beside its result (PF14)."""
    before = sum(math.prod(stored.shape) * _HALF_BYTES for stored in job.weights.tensors.values())
    after = sum(step.nbytes for step in job.steps)
    had = max(memory_bytes, tools.gpu_bytes)
    if before + after > had:
        raise StorageError(
            "this machine has too little memory for NVIDIA ModelOpt with this model",
            why=f"{format_bytes(before)} in 16 bit + {format_bytes(after)} of the result, without activations; "
            f"{format_bytes(had)} here",
            hint="convert on a machine with more memory, or set a format that trtkit makes itself, such as fp8",
        )


def _memory_here() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _request(job: Job, tools: Tools, samples: Samples, export: Path) -> dict[str, Any]:
    formats = job.plan.quantization.formats
    return {
        "source": str(job.source.resolve()),
        "out": str(export.resolve()),
        "dtype": _DTYPES[half_format(job.plan.model)],
        "device": tools.device,
        "modules": module_patterns(weight_formats(job.plan.model, job.plan.quantization)),
        "kv_cache": formats.kv_cache,
        "group_size": formats.group_size,
        "windows": [list(map(int, piece)) for piece in samples.pieces],
    }


def module_patterns(chosen: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return patterns for the modules of each format, as the worker's ModelOpt matches the names of quantisers.

    A pattern begins at ``layers.``, since transformers may name what is around it otherwise than the files do; the
    experts of a layer, which all have one format, are one pattern.
    """
    patterns: dict[str, dict[str, None]] = {}
    for name, number_format in chosen.items():
        module = module_of(name)
        module = module[module.index(".layers.") :] if ".layers." in module else f".{module}"
        block, experts, _ = module.partition(".experts.")
        patterns.setdefault(number_format, {})[f"*{block}.experts.*" if experts else f"*{module}.*"] = None
    return [{"format": name, "patterns": list(found)} for name, found in patterns.items()]


def _take(stage: Stage, job: Job, export: Path, progress: Progress) -> list[str]:
    """Check an export and move its weight files into the stage; returns their names."""
    exported = open_weights(export)
    exported_steps(job, exported, progress)
    names = sorted(header.path.name for header in exported.files)
    for name in names:
        (export / name).rename(stage.path / name)
        stage.record(name)
    shutil.rmtree(export)
    return names


def _steps_in(job: Job, folder: Path, files: Iterable[str]) -> tuple[TensorStep, ...]:
    """Return the tensors of the weight files as steps: those that were decided, and the factors ModelOpt added."""
    known = {step.name: step for step in job.steps}
    return tuple(
        replace(known[name], file=file, shape=stored.shape)
        if name in known
        else TensorStep(name, stored.dtype, stored.shape, file, part=_part(name))
        for file in files
        for name, stored in read_header(folder / file).tensors.items()
    )


def _part(name: str) -> str:
    return name.rpartition(".")[2]


def _calibrated(samples: Samples) -> Calibrated:
    """Say what was run; ModelOpt shows every token to every expert, and keeps its amax to itself."""
    return Calibrated(
        text_sha256=samples.text.sha256,
        samples=len(samples.pieces),
        tokens_per_sample=samples.tokens_per_sample,
        seed=samples.seed,
        tokens=sum(len(piece) for piece in samples.pieces),
        experts_without_tokens=0,
        amax={},
    )
