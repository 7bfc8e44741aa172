"""Checks of quantised weights against the split: groups and blocks of scales stay whole, rows fit the kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from trtllm_kit.findings import Finding, Severity
from trtllm_kit.plan.checks.case import Case, Rule
from trtllm_kit.plan.formats import FORMATS, GROUP_SIZE, number_format
from trtllm_kit.plan.parallelism import Split, legal_tensors
from trtllm_kit.plan.quantization import module_of, one_of_each_kind, part_of, tensor_formats
from trtllm_kit.plan.weights import ROW_PARALLEL, input_features, input_parts
from trtllm_kit.spec.profile_formats import GROUPED, PartFormat
from trtllm_kit.spec.tensors import Role, TensorFact, layer_tensors
from trtllm_kit.units import counted
from trtllm_kit.upstream.bounds import Bound, bound

_WEIGHT_ONLY: tuple[PartFormat, ...] = ("int8_wo", "int4_wo")
_GROUP_SIZES = (128, 64)
"""What a profile can ask for, the most accurate last."""
_BLOCKS: tuple[PartFormat, ...] = ("nvfp4", "mxfp8")
"""Formats whose scale belongs to a run of input elements of one row, which no kernel pads."""


@dataclass(frozen=True)
class Problem:
    """A quantised weight that a rank cannot hold as it is."""

    fact: TensorFact
    severity: Severity
    message: str
    compared: str


Search = Callable[[Case, Split], Iterator[Problem]]


def groups(case: Case) -> Iterator[Finding]:
    """PF5: int4 scales belong to groups of input elements, which a rank cannot hold in part."""
    yield from _first(case, "PF5", _broken_groups, _smaller_group(case))


def blocks(case: Case) -> Iterator[Finding]:
    """PF35: NVFP4 and MXFP8 scales belong to blocks of input elements, which a rank cannot hold in part."""
    yield from _first(case, "PF35", _broken_blocks)


def rows_of_bytes(case: Case) -> Iterator[Finding]:
    """PF6: rows of integer weights that the kernels do not take, and blocks of FP8 that a rank cuts."""
    yield from _first(case, "PF6", _unfit_rows)
    yield from _first(case, "PF6", _cut_blocks)


def _first(case: Case, rule: str, search: Search, *other_ways: str) -> Iterator[Finding]:
    """Report the first problem of a search, with the nearest rank count that has none, and other ways out."""
    problem = next(search(case, case.split), None)
    if problem is None:
        return
    pattern = f'"*{module_of(problem.fact.name).rpartition(".")[2]}"'
    excluded = f"add {pattern} to quantization.exclude"
    if case.plan.quantization.formats.passed_through:
        excluded = case.with_formats(f"quantization.exclude: [{pattern}]")
    legal = legal_tensors(case.plan.model, case.hardware, case.split)
    wholes = [size for size in legal if next(search(case, replace(case.split, tensor=size)), None) is None]
    nearest = min(wholes, key=lambda size: (abs(size - case.split.tensor), size), default=None)
    ranks = () if nearest is None else (f"parallelism.tensor: {nearest}",)
    way = ", or ".join(filter(None, (*ranks, *other_ways, excluded)))
    yield Finding(
        rule=rule,
        severity=problem.severity,
        message=f"{module_of(problem.fact.name)} {problem.message}.",
        compared=problem.compared,
        suggestion="nothing to do" if problem.severity is Severity.INFO else way,
    )


def _smaller_group(case: Case) -> str:
    """Return the group size of a profile that leaves every group whole on this split; empty when none does."""
    asked = case.plan.quantization.formats.group_size or GROUP_SIZE
    parts = [(input_features(fact), input_parts(fact, case.split)) for _, fact, _ in _quantised(case, GROUPED)]
    smaller = (size for size in _GROUP_SIZES if size < asked)
    fits = next((size for size in smaller if all(width % (size * ranks) == 0 for width, ranks in parts)), None)
    return "" if fits is None else f"quantization.group_size: {fits}"


def _broken_groups(case: Case, split: Split) -> Iterator[Problem]:
    size = case.plan.quantization.formats.group_size
    what = f"cannot be cut into whole groups of {size} input elements on every rank"
    return _broken(case, split, GROUPED, Severity.ERROR, what)


def _broken_blocks(case: Case, split: Split) -> Iterator[Problem]:
    severity = _severity(bound("nvfp4_input_step"))
    for name in _BLOCKS:
        what = f"cannot be cut into whole {name.upper()} blocks on every rank"
        yield from _broken(case, split, (name,), severity, what)


def _broken(
    case: Case, split: Split, formats: tuple[PartFormat, ...], severity: Severity, what: str
) -> Iterator[Problem]:
    """Yield the weights of some formats whose input features a rank cannot hold in whole blocks."""
    for _, fact, name in _quantised(case, formats):
        width, parts = input_features(fact), input_parts(fact, split)
        step = number_format(name, case.plan.quantization.formats.group_size).block
        if width % (step * parts):
            compared = f"{width:,} input features / {counted(parts, 'rank')} is not a multiple of {step}"
            yield Problem(fact, severity, what, compared)


def _unfit_rows(case: Case, split: Split) -> Iterator[Problem]:
    step, of_experts = bound("weight_only_row_bytes"), bound("int8_expert_step")
    for number, fact, name in _quantised(case, _WEIGHT_ONLY):
        width, parts = _shared_out(case, number, fact, split)
        held, bits = f"{width:,} features / {counted(parts, 'rank')}", FORMATS[name].bits
        if width * bits % (8 * parts * step.value):
            compared = f"{held} x {bits} bits is no multiple of {step.value:g} bytes"
            yield Problem(fact, _severity(step), "has rows that the kernels do not take", compared)
        elif name == "int8_wo" and _is_expert(case, number, fact) and width % (parts * of_experts.value):
            compared = f"{held} is no multiple of {of_experts.value:g}"
            yield Problem(fact, _severity(of_experts), "is no width that the kernels of experts take", compared)


def _cut_blocks(case: Case, split: Split) -> Iterator[Problem]:
    """Yield weights whose FP8 blocks a rank cuts: those of experts are padded, of others that was not read."""
    step = number_format("fp8_block").block
    found: list[Problem] = []
    for number, fact, _ in _quantised(case, ("fp8_block",)):
        width, parts = _shared_out(case, number, fact, split)
        if parts == 1 or width % (step * parts) == 0:
            continue
        compared = f"{width:,} features / {counted(parts, 'rank')} is not a multiple of {step}"
        if _is_expert(case, number, fact):
            found.append(Problem(fact, Severity.INFO, "is padded to whole blocks on every rank", compared))
        else:
            found.append(Problem(fact, Severity.WARNING, "is cut inside a block of FP8", compared))
    yield from sorted(found, key=lambda problem: problem.severity is Severity.INFO)


def _quantised(case: Case, formats: tuple[PartFormat, ...]) -> Iterator[tuple[int, TensorFact, PartFormat]]:
    """Yield the weights of some formats, of one layer of each kind, with its number."""
    model = case.plan.model
    for number in one_of_each_kind(model):
        chosen = tensor_formats(model, number, case.plan.quantization.formats)
        for fact in layer_tensors(model, number):
            if chosen.get(fact.name) in formats:
                yield number, fact, chosen[fact.name]


def _shared_out(case: Case, number: int, fact: TensorFact, split: Split) -> tuple[int, int]:
    """Return the features that ranks share out, input or output, and how many of them do."""
    inputs = input_features(fact)
    if fact.role in ROW_PARALLEL:
        return inputs, input_parts(fact, split)
    copies = fact.copies * (fact.shape[0] if len(fact.shape) == 3 else 1)
    outputs = fact.elements // copies // inputs
    if _is_expert(case, number, fact):
        return outputs, split.expert_tensor
    heads = case.plan.model.layers[number].attention.kv_heads
    return outputs, min(split.tensor, heads) if fact.role in _BY_KV_HEADS else split.tensor


_BY_KV_HEADS = (Role.KEY, Role.VALUE, Role.QKV)


def _is_expert(case: Case, number: int, fact: TensorFact) -> bool:
    return part_of(case.plan.model, number, fact) == "experts"


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
