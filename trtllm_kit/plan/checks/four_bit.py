"""Checks of NVFP4: who makes the checkpoint, and whether its blocks survive the split over ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from trtllm_kit.findings import Finding, Severity
from trtllm_kit.plan.checks.case import Case, Rule
from trtllm_kit.plan.parallelism import Split, legal_tensors
from trtllm_kit.plan.quantization import MADE_HERE, module_of, one_of_each_kind, quantised_tensors
from trtllm_kit.spec.tensors import Role, TensorFact, layer_tensors
from trtllm_kit.upstream.bounds import bound

_ROW_PARALLEL = (Role.ATTENTION_OUT, Role.DOWN, Role.SHARED_DOWN, Role.EXPERT_DOWN)
"""Weights whose input features are shared out over the ranks; of the others each rank keeps whole rows."""


def maker(case: Case) -> Iterator[Finding]:
    """PF34: a format that trtkit plans with and does not write."""
    formats = case.plan.quantization
    asked = {"weights": formats.weights.value, "kv_cache": formats.kv_cache.value}
    elsewhere = {part: chosen for part, chosen in asked.items() if chosen not in MADE_HERE}
    if not elsewhere:
        return
    nearest = ", ".join(f"quantization.{part}: fp8" for part in elsewhere)
    yield Finding(
        rule="PF34",
        severity=Severity.WARNING,
        message="trtkit convert does not make this checkpoint: the plan stands, and convert will refuse it.",
        compared=f"{', '.join(f'{part} {chosen}' for part, chosen in elsewhere.items())}; "
        f"convert writes {' and '.join(MADE_HERE)}",
        suggestion=f"serve a checkpoint that NVIDIA ModelOpt made or somebody published, or {nearest}",
    )


def blocks(case: Case) -> Iterator[Finding]:
    """PF35: NVFP4 scales belong to blocks of input elements, which a rank cannot hold in part."""
    formats, step = case.plan.quantization, bound("nvfp4_input_step")
    if formats.weights.value != "nvfp4":
        return
    broken = list(_broken(case, case.split))
    if not broken:
        return
    fact, width, parts = broken[0]
    whole = [size for size in _legal(case) if not any(_broken(case, replace(case.split, tensor=size)))]
    nearest = min(whole, key=lambda size: (abs(size - case.split.tensor), size), default=None)
    excluded = f'add "*{module_of(fact.name).rpartition(".")[2]}" to quantization.exclude'
    yield Finding(
        rule="PF35",
        severity=Severity.ERROR if step.certainty == "read" else Severity.WARNING,
        message=f"{module_of(fact.name)} cannot be cut into whole NVFP4 blocks on every rank.",
        compared=f"{width:,} input features / {parts} ranks is not a multiple of {step.value:g}",
        suggestion=excluded if nearest is None else f"parallelism.tensor: {nearest}, or {excluded}",
    )


def _broken(case: Case, split: Split) -> Iterator[tuple[TensorFact, int, int]]:
    """Yield the NVFP4 weights whose blocks do not fit, with their input width and the ranks that share it."""
    model, step = case.plan.model, round(bound("nvfp4_input_step").value)
    for number in one_of_each_kind(model):
        chosen = quantised_tensors(model, number, case.plan.quantization.exclude.value)
        for fact in layer_tensors(model, number):
            width, parts = _inputs(fact), _parts(fact, split)
            if fact.name in chosen and width % (step * parts):
                yield fact, width, parts


def _inputs(fact: TensorFact) -> int:
    """Return the input features: the last axis, but the middle one of experts fused into one tensor."""
    return fact.shape[1] if len(fact.shape) == 3 else fact.shape[-1]


def _parts(fact: TensorFact, split: Split) -> int:
    if fact.role not in _ROW_PARALLEL:
        return 1
    routed = fact.copies > 1 or fact.role is Role.EXPERT_DOWN
    return split.expert_tensor if routed else split.tensor


def _legal(case: Case) -> tuple[int, ...]:
    return legal_tensors(case.plan.model, case.hardware, case.split)


RULES = (
    Rule("PF34", "Formats that trtkit writes", maker, keys=("quantization.weights", "quantization.kv_cache")),
    Rule(
        "PF35",
        "NVFP4 blocks over the ranks",
        blocks,
        keys=("quantization.weights", "quantization.exclude", "parallelism.tensor"),
    ),
)
