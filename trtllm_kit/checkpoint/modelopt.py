"""Lets NVIDIA ModelOpt make the weights of a checkpoint, out of process, and takes over what it left, if it is right.

What every tensor must be called and look like was decided before (``checkpoint.layout``). Of what ModelOpt wrote only
the weight files are taken; configuration, tokenizer and record are trtkit's own, as for every other checkpoint.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from trtllm_kit.checkpoint.calibrate import Calibrated, Samples
from trtllm_kit.checkpoint.exported import open_exported, require_as_decided
from trtllm_kit.checkpoint.header import read_header
from trtllm_kit.checkpoint.identity import require_same_files
from trtllm_kit.checkpoint.job import Job
from trtllm_kit.checkpoint.layout import half_format, weight_formats
from trtllm_kit.checkpoint.step import TensorStep
from trtllm_kit.checkpoint.worker import Tools, memory_of, require_memory, run_worker
from trtllm_kit.errors import InternalError
from trtllm_kit.plan.quantization import module_of
from trtllm_kit.plan.ranks import LAYOUT, order_of
from trtllm_kit.progress import Progress
from trtllm_kit.staging import Stage
from trtllm_kit.upstream.trtllm_checkpoint import kv_scale_parts, rank_model

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
        require_room(job, memory_of(tools))
        export = stage.path / _EXPORT
        shutil.rmtree(export, ignore_errors=True)  # what a run left that was killed before it had taken all of it
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


def require_room(job: Job, memory_bytes: int) -> None:
    """Raise ``StorageError`` when the memory cannot hold the model in 16 bit beside its result (PF14)."""
    before = sum(math.prod(stored.shape) * _HALF_BYTES for stored in job.weights.tensors.values())
    after = sum(step.nbytes for step in job.steps)
    require_memory(before, after, memory_bytes, "16 bit", ", or set a format that trtkit makes itself, such as fp8")


def _request(job: Job, tools: Tools, samples: Samples, export: Path) -> dict[str, Any]:
    formats = job.plan.quantization.formats
    request = {
        "source": str(job.source.resolve()),
        "out": str(export.resolve()),
        "dtype": _DTYPES[half_format(job.plan.model)],
        "device": tools.device,
        "modules": module_patterns(weight_formats(job.plan.model, job.plan.quantization)),
        "kv_cache": formats.kv_cache,
        "group_size": formats.group_size,
        "windows": [list(map(int, piece)) for piece in samples.pieces],
    }
    return request | (_ranks(job) if job.plan.layout.value == LAYOUT else {})


def _ranks(job: Job) -> dict[str, Any]:
    """Return what is asked of an export into rank files: the split, ModelOpt's word for the family, cache scales."""
    order = order_of(job.plan)
    row = rank_model(order.model.architecture, order.release)
    scales = kv_scale_parts(order.release) if order.formats.kv_cache != "bf16" else ()
    return {
        "ranks": {
            "tensor": order.split.tensor,
            "pipeline": order.split.pipeline,
            "decoder": row.modelopt if row is not None else "",
            "cache_scales": [f"{part.removesuffix('_scale')}_cache_scaling_factor" for part in scales],
        }
    }


def module_patterns(chosen: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return patterns for the modules of each format, as the worker's ModelOpt matches the names of quantisers.

    A pattern begins at ``layers.``, since transformers may name what is around it otherwise than the files do; the
    experts of a layer, which all have one format, are one pattern, without the name of the block around them.
    """
    patterns: dict[str, dict[str, None]] = {}
    for name, number_format in chosen.items():
        module = module_of(name)
        module = module[module.index(".layers.") :] if ".layers." in module else f".{module}"
        block, experts, _ = module.partition(".experts.")
        pattern = f"*{block.rpartition('.')[0]}.*.experts.*" if experts else f"*{module}.*"
        patterns.setdefault(number_format, {})[pattern] = None
    return [{"format": name, "patterns": list(found)} for name, found in patterns.items()]


def _take(stage: Stage, job: Job, export: Path, progress: Progress) -> list[str]:
    """Check an export and move its weight files into the stage; returns their names."""
    exported = open_exported(job, export)
    require_as_decided(job, exported, progress)
    names = sorted(header.path.name for part in exported for header in part.weights.files)
    for name in names:
        (export / name).rename(stage.path / name)
        stage.record(name)
    shutil.rmtree(export)
    return names


def _steps_in(job: Job, folder: Path, files: Iterable[str]) -> tuple[TensorStep, ...]:
    """Return the tensors of the weight files as steps: those that were decided, and the factors ModelOpt added."""
    if job.plan.layout.value == LAYOUT:
        return job.steps
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
