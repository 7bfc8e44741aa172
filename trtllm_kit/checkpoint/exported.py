"""Looks whether weights that another program exported are those that were asked for: every tensor, every problem."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trtllm_kit.checkpoint.formats.bits import to_float32
from trtllm_kit.checkpoint.formats.searched import PRE_QUANT_SCALE
from trtllm_kit.checkpoint.header import StoredTensor, read_header
from trtllm_kit.checkpoint.job import Job
from trtllm_kit.checkpoint.layout import half_format
from trtllm_kit.checkpoint.matrix import tile_ranges, whole
from trtllm_kit.checkpoint.names import part_name
from trtllm_kit.checkpoint.numpy_types import NUMPY_TYPES
from trtllm_kit.checkpoint.problems import raise_all
from trtllm_kit.checkpoint.reader import WeightFolder, open_weights
from trtllm_kit.checkpoint.step import PLAIN, WEIGHT, TensorStep
from trtllm_kit.checkpoint.values import rows_in
from trtllm_kit.dtypes import decode_e4m3
from trtllm_kit.errors import KitError, WorkerFailed
from trtllm_kit.plan.ranks import LAYOUT
from trtllm_kit.progress import Progress

_HALVES = ("BF16", "F16")
_HINT = "this version of NVIDIA ModelOpt exports the model otherwise than trtkit expects; try version 0.47"


@dataclass(frozen=True)
class Exported:
    """Weights within which every tensor has a name of its own, and what was decided of them."""

    weights: WeightFolder
    steps: tuple[TensorStep, ...]


def open_exported(job: Job, folder: Path) -> tuple[Exported, ...]:
    """Open what was exported: the unified layout as one, ranks each by itself; raises ``WorkerFailed``."""
    if job.plan.layout.value != LAYOUT:
        return (Exported(open_weights(folder), job.steps),)
    wanted = {step.file for step in job.steps}
    found = {path.name for path in folder.glob("*.safetensors")}
    if wanted != found:
        raise _wrong(f"ModelOpt exported {_listed(found)}", f"the ranks of the plan are {_listed(wanted)}")
    headers = [read_header(folder / name) for name in sorted(wanted)]
    return tuple(
        Exported(
            WeightFolder(folder, (header,), header.tensors),
            tuple(step for step in job.steps if step.file == header.path.name),
        )
        for header in headers
    )


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "no file"


def require_as_decided(job: Job, exported: Sequence[Exported], progress: Progress) -> None:
    """Raise every difference at once: names, shapes, dtypes, scales that are none, 16-bit weights that changed."""
    folder = exported[0].weights.folder
    problems = [problem for part in exported for problem in _names(part)]
    raise_all(problems, folder)
    tensors = sum(len(part.weights.tensors) for part in exported)
    progress.start("checking what ModelOpt exported", tensors, "tensors")
    for part in exported:
        decided = {step.name: step for step in part.steps}
        for name, stored in part.weights.tensors.items():
            problems += _values(job, part.weights, stored, decided.get(name))
            progress.advance(1)
    progress.finish()
    raise_all(problems, folder)


def _names(part: Exported) -> Iterator[KitError]:
    exported = part.weights
    factors = {part_name(step.name, PRE_QUANT_SCALE): step for step in part.steps if step.part == WEIGHT}
    decided = {step.name for step in part.steps}
    for step in part.steps:
        stored = exported.tensors.get(step.name)
        if stored is None:
            yield _wrong(f"tensor {step.name} is missing", f"{step.format} weights have it")
        elif (stored.dtype, stored.shape or (1,)) != (step.dtype, step.shape or (1,)):
            yield _wrong(f"tensor {step.name} is {_shape(stored)}", f"it should be {step.dtype} {list(step.shape)}")
    for name in exported.tensors.keys() - decided:
        step_of = factors.get(name)
        if step_of is None or step_of.format == PLAIN:
            yield _wrong(f"tensor {name} was not asked for", "no weight of the plan has it")
        elif not _is_factor(exported.tensors[name], step_of):
            stored = exported.tensors[name]
            yield _wrong(f"tensor {name} is {_shape(stored)}", "it should be one 16-bit factor an input element")


def _is_factor(stored: StoredTensor, weight: TensorStep) -> bool:
    columns = None if weight.source is None else weight.source.columns
    return stored.dtype in _HALVES and stored.shape == (columns,)


def _shape(stored: StoredTensor) -> str:
    return f"{stored.dtype} {list(stored.shape)}"


def _values(job: Job, exported: WeightFolder, stored: StoredTensor, step: TensorStep | None) -> Iterator[KitError]:
    if step is not None and step.part == WEIGHT:
        changes = job.plan.layout.value != LAYOUT and _is_norm(step.name)
        if step.format == PLAIN and not changes and not _same(job, exported, step):
            yield _wrong(f"tensor {step.name} changed", "it was to stay as it is")
        elif step.format == PLAIN and changes:
            yield from _scale_problem(exported, stored, positive=False)
        return
    yield from _scale_problem(exported, stored, positive=True)


def _is_norm(name: str) -> bool:
    """Whether ModelOpt changes a 16-bit tensor for the unified layout: norms take over the factors behind them."""
    return "norm" in name


def _same(job: Job, exported: WeightFolder, step: TensorStep) -> bool:
    if step.source is None:
        return False
    ours, theirs = step.source, whole(exported.tensors[step.name])
    dtype = half_format(job.plan.model) if step.dtype in _HALVES else step.dtype
    return all(
        np.array_equal(
            rows_in(job.weights, ours, *rows, dtype).reshape(-1), rows_in(exported, theirs, *rows, dtype).reshape(-1)
        )
        for rows in tile_ranges(ours)
    )


def _scale_problem(exported: WeightFolder, stored: StoredTensor, *, positive: bool) -> Iterator[KitError]:
    raw = exported.read(stored.name)
    values = decode_e4m3(raw) if stored.dtype == "F8_E4M3" else raw
    if stored.dtype in _HALVES:
        values = to_float32(raw, stored.dtype)
    bad = ~np.isfinite(values) | ((values <= 0) if positive else False)
    if NUMPY_TYPES[stored.dtype].kind != "i" and bad.any():
        kind = "finite and above zero" if positive else "finite"
        yield _wrong(f"{stored.name} holds {values[bad].ravel()[:3].tolist()}", f"every number of it must be {kind}")


def _wrong(what: str, why: str) -> WorkerFailed:
    return WorkerFailed(what, why=why, hint=_HINT)
