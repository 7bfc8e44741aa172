"""Checks of quantised weights against the split: groups and blocks of scales stay whole, rows fit the kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from trtllm_kit.findings import Finding, Severity
from trtllm_kit.light import dataclass
from trtllm_kit.plan.checks.case import Case, Rule
from trtllm_kit.plan.formats import FORMATS, GROUP_SIZE, number_format
from trtllm_kit.plan.parallelism import Split, legal_tensors
from trtllm_kit.plan.quantization import kinds_by_format, module_of, part_of, tensor_formats
from trtllm_kit.plan.weights import ROW_PARALLEL, input_features, input_parts
from trtllm_kit.spec.profile_formats import GROUP_SIZES, GROUPED, PartFormat
from trtllm_kit.spec.tensors import Role, TensorFact, layer_tensors
from trtllm_kit.units import counted
from trtllm_kit.upstream.bounds import Bound, bound

_WEIGHT_ONLY: tuple[PartFormat, ...] = ("int8_wo", "int4_wo")
_BLOCKS: tuple[PartFormat, ...] = ("nvfp4", "mxfp8")
"""Formats whose scale belongs to a run of input elements of one row, which no kernel pads."""


@dataclass(frozen=True)
class Place:
    """A quantised weight, and in how many layers it is found alike."""

    number: int
    layers: int
    fact: TensorFact
    format: PartFormat

    @property
    def module(self) -> str:
        """The module's name behind the number of its layer, ``*`` for the number of an expert."""
        name = module_of(next(self.fact.names())).partition(f".{self.number}.")[2]
        return name.replace(".experts.0.", ".experts.*.")


@dataclass(frozen=True)
class Problem:
    """A quantised weight that a rank cannot hold as it is."""

    place: Place
    severity: Severity
    message: str
    """Behind the names of modules."""
    compared: str


Search = Callable[[Case, Split], Iterator[Problem]]


def groups(case: Case) -> Iterator[Finding]:
    """PF5: int4 scales belong to groups of input elements, which a rank cannot hold in part."""
    yield from _all(case, "PF5", _broken_groups, _smaller_group(case))


def blocks(case: Case) -> Iterator[Finding]:
    """PF35: NVFP4 and MXFP8 scales belong to blocks of input elements, which a rank cannot hold in part."""
    yield from _all(case, "PF35", _broken_blocks)


def rows_of_bytes(case: Case) -> Iterator[Finding]:
    """PF6: rows of integer weights that the kernels do not take, and blocks of FP8 that a rank cuts."""
    yield from _all(case, "PF6", _unfit_rows)
    yield from _all(case, "PF6", _cut_blocks)


def _all(case: Case, rule: str, search: Search, *other_ways: str) -> Iterator[Finding]:
    """Report all problems of a search, those alike in one finding, with the nearest rank count that has none."""
    alike: dict[tuple[Severity, str], list[Problem]] = {}
    for problem in search(case, case.split):
        alike.setdefault((problem.severity, problem.message), []).append(problem)
    for (severity, message), problems in alike.items():
        modules = _layers_of(problems)
        where = [f"{name} of {counted(layers, 'layer')}" for name, layers in modules.items()]
        yield Finding(
            rule=rule,
            severity=severity,
            message=f"{', '.join(where)} {message}.",
            compared=_numbers(problems),
            suggestion="nothing to do" if severity is Severity.INFO else _ways(case, search, list(modules), other_ways),
        )


def _layers_of(problems: list[Problem]) -> dict[str, int]:
    """Return how many layers have a problem with a module, by its name."""
    layers: dict[str, int] = {}
    for problem in problems:
        layers[problem.place.module] = layers.get(problem.place.module, 0) + problem.place.layers
    return layers


def _numbers(problems: list[Problem]) -> str:
    """Return what was compared, with the modules before it where they differ."""
    modules: dict[str, dict[str, None]] = {}
    for problem in problems:
        modules.setdefault(problem.compared, {})[problem.place.module] = None
    if len(modules) == 1:
        return problems[0].compared
    return "; ".join(f"{', '.join(names)}: {compared}" for compared, names in modules.items())


def _ways(case: Case, search: Search, modules: list[str], others: tuple[str, ...]) -> str:
    """Return what can be changed: the ranks, something of the rule's own, the modules in 16 bit."""
    patterns = ", ".join(dict.fromkeys(f'"*{module.rpartition(".")[2]}"' for module in modules))
    excluded = f"add {patterns} to quantization.exclude"
    if case.plan.quantization.formats.passed_through:
        excluded = case.with_formats(f"quantization.exclude: [{patterns}]")
    legal = legal_tensors(case.plan.model, case.hardware, case.split)
    wholes = [size for size in legal if next(search(case, replace(case.split, tensor=size)), None) is None]
    nearest = min(wholes, key=lambda size: (abs(size - case.split.tensor), size), default=None)
    ranks = () if nearest is None else (f"parallelism.tensor: {nearest}",)
    return ", or ".join(filter(None, (*ranks, *others, excluded)))


def _smaller_group(case: Case) -> str:
    """Return the group size of a profile that leaves every group whole on this split; empty when none does."""
    asked = case.plan.quantization.formats.group_size or GROUP_SIZE
    parts = [
        (input_features(fact), input_parts(fact, case.split))
        for fact in (place.fact for place in _quantised(case, GROUPED))
    ]
    smaller = (size for size in GROUP_SIZES if size < asked)
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
    for place in _quantised(case, formats):
        fact, name = place.fact, place.format
        width, parts = input_features(fact), input_parts(fact, split)
        step = number_format(name, case.plan.quantization.formats.group_size).block
        if width % (step * parts):
            compared = f"{width:,} input features / {counted(parts, 'rank')} is not a multiple of {step}"
            yield Problem(place, severity, what, compared)


def _unfit_rows(case: Case, split: Split) -> Iterator[Problem]:
    step, of_experts = bound("weight_only_row_bytes"), bound("int8_expert_step")
    for place in _quantised(case, _WEIGHT_ONLY):
        number, fact, name = place.number, place.fact, place.format
        width, parts = _shared_out(case, number, fact, split)
        held, bits = f"{width:,} features / {counted(parts, 'rank')}", FORMATS[name].bits
        if width * bits % (8 * parts * step.value):
            compared = f"{held} x {bits} bits is no multiple of {step.value:g} bytes"
            yield Problem(place, _severity(step), "has rows that the kernels do not take", compared)
        elif name == "int8_wo" and _is_expert(case, number, fact) and width % (parts * of_experts.value):
            compared = f"{held} is no multiple of {of_experts.value:g}"
            yield Problem(place, _severity(of_experts), "is no width that the kernels of experts take", compared)


def _cut_blocks(case: Case, split: Split) -> Iterator[Problem]:
    """Yield weights whose FP8 blocks a rank cuts: those of experts are padded, of others that was not read."""
    step = number_format("fp8_block").block
    found: list[Problem] = []
    for place in _quantised(case, ("fp8_block",)):
        number, fact = place.number, place.fact
        width, parts = _shared_out(case, number, fact, split)
        if parts == 1 or width % (step * parts) == 0:
            continue
        compared = f"{width:,} features / {counted(parts, 'rank')} is not a multiple of {step}"
        if _is_expert(case, number, fact):
            found.append(Problem(place, Severity.INFO, "is padded to whole blocks on every rank", compared))
        else:
            found.append(Problem(place, Severity.WARNING, "is cut inside a block of FP8", compared))
    yield from sorted(found, key=lambda problem: problem.severity is Severity.INFO)


def _quantised(case: Case, formats: tuple[PartFormat, ...]) -> Iterator[Place]:
    """Yield the weights of some formats, of one layer of each kind."""
    model, chosen = case.plan.model, case.plan.quantization.formats
    for number, layers in kinds_by_format(model, chosen):
        taken = tensor_formats(model, number, chosen)
        for fact in layer_tensors(model, number):
            if taken.get(fact.name) in formats:
                yield Place(number, layers, fact, taken[fact.name])


def _shared_out(case: Case, number: int, fact: TensorFact, split: Split) -> tuple[int, int]:
    """Return the features that ranks share out, input or output, and how many of them do."""
    inputs = input_features(fact)
    if fact.role in ROW_PARALLEL:
        return inputs, input_parts(fact, split)
    copies = fact.copies * (fact.shape[0] if len(fact.shape) == 3 else 1)
    outputs = fact.elements // copies // inputs
    if _is_expert(case, number, fact):
        return outputs, split.expert_tensor
    if fact.role not in _BY_KV_HEADS:
        return outputs, split.dense
    return outputs, min(split.dense, case.plan.model.layers[number].attention.kv_heads)


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
