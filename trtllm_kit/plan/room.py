"""Disk and memory that a model takes on its way to the GPUs: the checkpoint's files, conversion, engine build."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from trtllm_kit.plan.formats import Formats
from trtllm_kit.plan.parallelism import Split, stages
from trtllm_kit.plan.plan import BuildPlan, MemoryTerm, Plan
from trtllm_kit.plan.quantization import not_made_here
from trtllm_kit.plan.ranks import LAYOUT as RANKS
from trtllm_kit.plan.ranks import order_of
from trtllm_kit.plan.stored_size import size_in, stored_size
from trtllm_kit.plan.weights import held_by_stage
from trtllm_kit.spec.model import ModelSpec
from trtllm_kit.spec.planned import planned_problem
from trtllm_kit.units import counted, format_bytes
from trtllm_kit.upstream.failures import Failure, failure
from trtllm_kit.upstream.trtllm_checkpoint import rank_format

OWN_CONVERSION = 600 << 20
"""Bytes that trtkit's own conversion stays under, whatever the size of the model; ``benchmarks/passes.py`` asks it."""


def room(plan: Plan) -> tuple[MemoryTerm, ...]:
    """Return what is taken beside the GPUs that serve, a line each; what no figure is known of has none."""
    return (*_files(plan), *_conversion(plan), *_build(plan))


def _files(plan: Plan) -> Iterator[MemoryTerm]:
    stored, formats = stored_size(plan.model), plan.quantization.formats
    if stored is not None:
        how = f"{'its own formats' if plan.model.stored else '16 bit'}, prediction layers and vision part not counted"
        yield MemoryTerm(name="checkpoint as it comes, disk", bytes=stored.bytes, how=how)
    if formats.passed_through or planned_problem(plan.model):
        return
    if plan.layout.value == RANKS:
        ranks = rank_bytes(plan)
        how = f"{counted(len(ranks), 'rank file')}, what ranks share in each of them"
        yield MemoryTerm(name="checkpoint as converted, disk", bytes=sum(ranks), how=how)
        return
    how = f"{' and '.join(formats.used) or '16 bit'}, prediction layers and vision part not counted"
    yield MemoryTerm(name="checkpoint as converted, disk", bytes=size_in(plan.model, formats).bytes, how=how)


def _conversion(plan: Plan) -> Iterator[MemoryTerm]:
    formats, maker = plan.quantization.formats, plan.calibration.maker
    if formats.passed_through or planned_problem(plan.model) or not_made_here(formats, maker):
        return
    if maker == "modelopt":
        before, after = calibration_bytes(plan.model, formats)
        how = f"{format_bytes(before)} in 16 bit + {format_bytes(after)} of the result, without activations"
        yield MemoryTerm(name="calibration by ModelOpt, memory", bytes=before + after, how=how)
    else:
        how = "at most: it reads, makes and writes in pieces, whatever the model's size"
        yield MemoryTerm(name="conversion, memory", bytes=OWN_CONVERSION, how=how)


def calibration_bytes(model: ModelSpec, formats: Formats) -> tuple[int, int]:
    """Return the bytes of all weights in 16 bit, and of what ModelOpt makes of them, which it holds at once."""
    every = range(len(model.layers))
    before, after = (held_by_stage(model, Split(), chosen, every).bytes for chosen in (Formats(), formats))
    return before, after


def _build(plan: Plan) -> Iterator[MemoryTerm]:
    needed = build_memory(plan)
    if needed is not None:
        yield needed[0]


def build_memory(plan: Plan) -> tuple[MemoryTerm, Failure] | None:
    """Return the CPU memory that ``trtllm-build`` takes on a node, and what it is known from; None without a build."""
    known = failure("build_in_cpu_memory", plan.release.value)
    if plan.build is None or known is None:
        return None
    at_once = _workers(plan.build)
    fullest = sorted(rank_bytes(plan), reverse=True)[:at_once]
    size = known.value * sum(fullest)
    how = f"{counted(len(fullest), 'rank')} at once, each holds its weights {known.value} times: {known.certainty}"
    return MemoryTerm(name="engine build, CPU memory", bytes=size, how=how), known


def _workers(build: BuildPlan) -> int:
    chosen = build.options.get("--workers")
    return chosen.value if chosen is not None and isinstance(chosen.value, int) else 1


def rank_bytes(plan: Plan) -> list[int]:
    """Return the bytes of each rank's file, every tensor rank of a stage as the fullest."""
    order = order_of(plan)
    row = rank_format(order.formats.weights, order.release)
    made_later = row is not None and not row.packed  # trtllm-build makes the format of weights in 16 bit
    written = replace(order.formats, weights="bf16") if made_later else order.formats
    held = (
        held_by_stage(order.model, order.split, written, stage).bytes
        for stage in stages(order.model, order.split.pipeline)
    )
    return [size for size in held for _ in range(order.split.tensor)]
