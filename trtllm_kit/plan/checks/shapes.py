"""Checks of quantised weights against the split: groups and blocks of scales stay whole, rows fit the kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from trtllm_kit.findings import Finding, Severity
from trtllm_kit.plan.checks.case import Case, Rule
from trtllm_kit.plan.formats import FORMATS, number_format
from trtllm_kit.plan.parallelism import Split, legal_tensors
from trtllm_kit.plan.quantization import module_of, one_of_each_kind, part_of, tensor_formats
from trtllm_kit.plan.weights import input_features, input_parts
from trtllm_kit.spec.profile_formats import GROUPED, PartFormat
from trtllm_kit.spec.tensors import TensorFact, layer_tensors
from trtllm_kit.units import counted
from trtllm_kit.upstream.bounds import Bound, bound

_WEIGHT_ONLY: tuple[PartFormat, ...] = ("int8_wo", "int4_wo")
_BLOCKS: tuple[PartFormat, ...] = ("nvfp4", "mxfp8")
"""Formats whose scale belongs to a run of input elements of one row, which no kernel pads."""


@dataclass(frozen=True)
class Cut:
    """A quantised weight as one rank holds it."""

    fact: TensorFact
    format: PartFormat
    width: int
    """Elements on the axis that the ranks share out."""
    parts: int
    of_experts: bool


def groups(case: Case) -> Iterator[Finding]:
    """PF5: int4 scales belong to groups of input elements, which a rank cannot hold in part."""
    size = case.plan.quantization.formats.group_size
    if size is None:
        return
    yield from _first_broken(case, GROUPED, "PF5", Severity.ERROR, f"groups of {size} input elements")


def blocks(case: Case) -> Iterator[Finding]:
    """PF35: NVFP4 and MXFP8 scales belong to blocks of input elements, which a rank cannot hold in part."""
    for name in _BLOCKS:
        yield from _first_broken(case, (name,), "PF35", _severity(bound("nvfp4_input_step")), f"{name} blocks")


def rows_of_bytes(case: Case) -> Iterator[Finding]:
    """PF6: rows of integer weights that the kernels do not take, and blocks of FP8 that are padded."""
    step, of_experts = bound("weight_only_row_bytes"), bound("int8_expert_step")
    for cut in _cuts(case, case.split, _WEIGHT_ONLY):
        size, rest = divmod(cut.width * FORMATS[cut.format].bits, 8 * cut.parts)
        if rest or size % step.value:
            compared = (
                f"{cut.width:,} features / {counted(cut.parts, 'rank')} x {FORMATS[cut.format].bits} bits is no multiple"
                f" of {step.value:g} bytes"
            )
            yield _found(case, cut, "PF6", _severity(step), compared, "has rows that the kernels do not take")
            return
        if cut.of_experts and cut.format == "int8_wo" and cut.width // cut.parts % of_experts.value:
            compared = f"{cut.width:,} features / {counted(cut.parts, 'rank')} is no multiple of {of_experts.value:g}"
            yield _found(case, cut, "PF6", _severity(of_experts), compared, "is narrower than the kernels of experts take")
            return
    yield from _padded(case)


def _padded(case: Case) -> Iterator[Finding]:
    """Yield the first weight whose FP8 blocks a rank cuts: experts are padded, of others that was not read."""
    step = number_format("fp8_block").block
    for cut in _cuts(case, case.split, ("fp8_block",)):
        if cut.width % (step * cut.parts) and cut.parts > 1:
            severity = Severity.INFO if cut.of_experts else Severity.WARNING
            compared = f"{cut.width:,} features / {counted(cut.parts, 'rank')} is not a multiple of {step}"
            what = "is padded to whole blocks on every rank" if cut.of_experts else "is cut inside a block of FP8"
            yield _found(case, cut, "PF6", severity, compared, what)
            return


def _first_broken(
    case: Case, formats: tuple[PartFormat, ...], rule: str, severity: Severity, what: str
) -> Iterator[Finding]:
    size = case.plan.quantization.formats.group_size

    def is_broken(fact: TensorFact, name: PartFormat, split: Split) -> bool:
        step = number_format(name, size).block
        return input_features(fact) % (step * input_parts(fact, split)) != 0

    broken = [
        (fact, name) for fact, name in _quantised(case) if name in formats and is_broken(fact, name, case.split)
    ]
    if not broken:
        return
    fact, name = broken[0]
    width, parts = input_features(fact), input_parts(fact, case.split)
    wholes = [
        tensor
        for tensor in legal_tensors(case.plan.model, case.hardware, case.split)
        if not any(
            is_broken(one, other, replace(case.split, tensor=tensor))
            for one, other in _quantised(case)
            if other in formats
        )
    ]
    yield Finding(
        rule=rule,
        severity=severity,
        message=f"{module_of(fact.name)} cannot be cut into whole {what} on every rank.",
        compared=f"{width:,} input features / {counted(parts, 'rank')} is not a multiple of "
        f"{number_format(name, size).block}",
        suggestion=_other_ranks(case, wholes, fact),
    )


def _other_ranks(case: Case, wholes: list[int], fact: TensorFact) -> str:
    """Name the nearest rank count that keeps everything whole, and the pattern that keeps the weight in 16 bit."""
    excluded = f'add "*{module_of(fact.name).rpartition(".")[2]}" to quantization.exclude'
    nearest = min(wholes, key=lambda size: (abs(size - case.split.tensor), size), default=None)
    return excluded if nearest is None else f"parallelism.tensor: {nearest}, or {excluded}"


def _quantised(case: Case) -> Iterator[tuple[TensorFact, PartFormat]]:
    """Yield the quantised weights of one layer of each kind."""
    model = case.plan.model
    for number in one_of_each_kind(model):
        chosen = tensor_formats(model, number, case.plan.quantization.formats)
        yield from ((fact, chosen[fact.name]) for fact in layer_tensors(model, number) if fact.name in chosen)


def _cuts(case: Case, split: Split, formats: tuple[PartFormat, ...]) -> Iterator[Cut]:
    """Yield the weights of some formats along the axis that the ranks share out."""
    model = case.plan.model
    for number in one_of_each_kind(model):
        chosen = tensor_formats(model, number, case.plan.quantization.formats)
        for fact in (fact for fact in layer_tensors(model, number) if chosen.get(fact.name) in formats):
            of_experts = part_of(model, number, fact) == "experts"
            columns, inputs = input_features(fact), input_parts(fact, split)
            outputs = fact.elements // fact.copies // columns // (fact.shape[0] if len(fact.shape) == 3 else 1)
            shared = split.expert_tensor if of_experts else split.tensor
            width, parts = (columns, inputs) if inputs > 1 else (outputs, shared)
            yield Cut(fact, chosen[fact.name], width, parts, of_experts)


def _found(case: Case, cut: Cut, rule: str, severity: Severity, compared: str, what: str) -> Finding:
    module = module_of(cut.fact.name)
    legal = legal_tensors(case.plan.model, case.hardware, case.split)
    fewer = [size for size in legal if size < case.split.tensor]
    ways = [f"parallelism.tensor: {fewer[-1]}"] if fewer else []
    ways.append(f'add "*{module.rpartition(".")[2]}" to quantization.exclude')
    return Finding(
        rule=rule,
        severity=severity,
        message=f"{module} {what}.",
        compared=compared,
        suggestion="nothing to do" if severity is Severity.INFO else ", or ".join(ways),
    )


def _severity(known: Bound) -> Severity:
    return Severity.ERROR if known.certainty == "read" else Severity.WARNING


RULES = (
    Rule(
        "PF5",
        "Groups of int4 over the ranks",
        groups,
        keys=("quantization.group_size", "quantization.weights", "quantization.exclude", "parallelism.tensor"),
    ),
    Rule(
        "PF35",
        "NVFP4 and MXFP8 blocks over the ranks",
        blocks,
        keys=("quantization.weights", "quantization.exclude", "parallelism.tensor"),
    ),
)
