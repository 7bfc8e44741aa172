"""Checks of who makes the checkpoint: its source, formats trtkit does not write, the memory of their calibration."""

from __future__ import annotations

from collections.abc import Iterator

from trtllm_kit.errors import KitError
from trtllm_kit.findings import Finding, Severity
from trtllm_kit.plan.checks.case import Case, Rule
from trtllm_kit.plan.formats import FORMATS
from trtllm_kit.plan.given.finding import of_failure
from trtllm_kit.plan.passing import LAYOUT, PASSED_THROUGH, TO_RANKS, conflicts
from trtllm_kit.plan.quantization import KV_MADE_HERE, MADE_HERE, not_made_here, plain_weights_advice
from trtllm_kit.plan.rank_problems import rank_problems
from trtllm_kit.plan.ranks import LAYOUT as RANKS
from trtllm_kit.plan.ranks import order_of
from trtllm_kit.plan.room import build_memory, calibration_bytes
from trtllm_kit.plan.searched import searched_problem
from trtllm_kit.spec.model import StoredFormats
from trtllm_kit.spec.planned import planned_problem
from trtllm_kit.spec.profile_formats import WeightFormat
from trtllm_kit.units import format_bytes
from trtllm_kit.upstream.combinations import combination
from trtllm_kit.upstream.quant_algos import MIXED_PRECISION


def source_format(case: Case) -> Iterator[Finding]:
    """PF12: the given checkpoint comes quantised otherwise than asked, or the asked one is refused by its reader."""
    yield from _layers(case)
    stored = case.plan.model.stored
    if stored is None:
        return
    if stored.weights not in PASSED_THROUGH:
        named = f"{stored.method}: {stored.scheme}" if stored.scheme else stored.method
        yield _refused(
            f"The model is quantised already ({named}), and trtkit passes on none of that kind.",
            f"config.json or hf_quant_config.json beside it says {stored.method}; passed on are "
            f"{', '.join(PASSED_THROUGH)} as ModelOpt, DeepSeek and gpt-oss store them",
            plain_weights_advice(case.plan.model),
        )
        return
    if _cut_into_ranks(case):
        yield from _one_scale(case, stored)
        return
    if case.plan.layout.value != LAYOUT:
        yield _refused(
            "A checkpoint that is quantised already is passed on to the PyTorch backend alone.",
            f"layout {case.plan.layout.value} {_in_ranks(stored.weights)}; the checkpoint is {stored.scheme}",
            f"toolchain: llm-api, or give the folder of the model's BF16 original with {_weights_key(stored.weights)}",
        )
        return  # no format that the profile could ask for helps there
    for key, asked, held, way_out in conflicts(case.plan.model, case.loaded):
        yield _refused(
            f"The profile's {key} is not what the checkpoint holds, and its weights cannot be quantised again.",
            f"{asked} asked, {held} held ({stored.method}: {stored.scheme})",
            f"{way_out}, or {plain_weights_advice(case.plan.model)}",
        )


def _cut_into_ranks(case: Case) -> bool:
    """Whether stored codes go into an engine's ranks as they are."""
    formats = case.plan.quantization.formats
    return case.plan.layout.value == RANKS and formats.passed_through and formats.weights in TO_RANKS


def _one_scale(case: Case, stored: StoredFormats) -> Iterator[Finding]:
    """Yield what only the scales themselves tell; those of rows are never shared."""
    if stored.weights != "fp8_rowwise":
        yield Finding(
            rule="PF12",
            severity=Severity.WARNING,
            message="Codes of a quantised checkpoint are cut into ranks only where q, k and v have one scale.",
            compared=f"layout {case.plan.layout.value} {_in_ranks(stored.weights)}; the checkpoint is {stored.scheme}, "
            "and trtkit convert looks at its scales",
            suggestion="toolchain: llm-api, or give the folder of the model's BF16 original with "
            f"{_weights_key(stored.weights)}, unless trtkit migrate made this one of rank files",
        )


def _in_ranks(weights: WeightFormat | None) -> str:
    """Return, as a clause, what keeps given codes out of an engine's checkpoint."""
    if weights in TO_RANKS:
        return "keeps q, k and v under one scale, where codes mostly come with three"
    return "packs codes and scales otherwise, and is written from 16-bit weights alone"


def _weights_key(weights: WeightFormat | None) -> str:
    return f"quantization.weights: {weights if weights in MADE_HERE else 'fp8'}"


def _refused(message: str, compared: str, suggestion: str) -> Finding:
    return Finding(rule="PF12", severity=Severity.ERROR, message=message, compared=compared, suggestion=suggestion)


def _layers(case: Case) -> Iterator[Finding]:
    """Yield that a list of formats by layer was seen to be refused."""
    stored = case.plan.model.stored
    if stored is not None and stored.scheme != MIXED_PRECISION:
        return  # a maker's own mixture has no list by layer
    algo, known = case.plan.quantization.algo, combination("mixed_precision_layers", case.plan.release.value)
    if algo is None or algo.value != MIXED_PRECISION or known is None or case.plan.layout.value != "unified_hf":
        return
    yield Finding(
        rule="PF12",
        severity=Severity.WARNING,
        message=f"Checkpoints whose layers differ in format {known.note} in releases like {case.plan.release.value}.",
        compared=f"{' and '.join(case.plan.quantization.formats.used)} make {MIXED_PRECISION}; {known.source}",
        suggestion="one format for all quantised parts, and bf16 for the others"
        if stored is None
        else "a checkpoint in one format, or try this one on one request before you rely on it",
    )


def maker(case: Case) -> Iterator[Finding]:
    """PF34: a checkpoint that trtkit plans with and does not write."""
    planned = planned_problem(case.plan.model)
    if planned is not None:
        yield _will_refuse(planned)
        return
    if case.plan.layout.value == RANKS:
        yield from _ranks(case)
        return
    formats = case.plan.quantization.formats
    searched = case.plan.calibration.maker == "modelopt"
    problem = searched_problem(case.plan.model, formats, case.plan.layout.value) if searched else None
    if problem is not None:
        yield _will_refuse(problem)
    elsewhere = not_made_here(formats, case.plan.calibration.maker)
    if not elsewhere:
        return
    made = {"weights": MADE_HERE, "kv_cache": KV_MADE_HERE}
    asked = ", ".join(f"{part} {' and '.join(chosen)}" for part, chosen in elsewhere.items())
    writes = ", ".join(f"{' and '.join(made[part])} {part}" for part in elsewhere)
    nearest = ", ".join(f"quantization.{part}: fp8" for part in elsewhere)
    yield Finding(
        rule="PF34",
        severity=Severity.WARNING,
        message="trtkit convert does not make this checkpoint: the plan stands, and convert will refuse it.",
        compared=f"{asked}; convert writes {writes}",
        suggestion=f"serve a checkpoint that NVIDIA ModelOpt made or somebody published, or {nearest}",
    )


def _ranks(case: Case) -> Iterator[Finding]:
    """Yield everything that keeps an engine's checkpoint from being laid out, for the same reasons as ``convert``."""
    if case.plan.model.stored is not None and not _cut_into_ranks(case):
        return  # PF12 refuses it already
    yield from map(_will_refuse, rank_problems(order_of(case.plan)))
    size, planned = case.profile.quantization.group_size, case.plan.quantization.group_size
    if size != "auto" and planned is None:
        yield Finding(
            rule="PF34",
            severity=Severity.WARNING,
            message="trtllm-build makes these weights itself, with one scale for each row: groups have no meaning.",
            compared=f"group_size {size}, weights {case.plan.quantization.weights.value}",
            suggestion="leave quantization.group_size out, or quantization.weights: int4_awq",
        )


def _will_refuse(problem: KitError) -> Finding:
    return Finding(
        rule="PF34",
        severity=Severity.WARNING,
        message=f"trtkit convert will refuse this plan: {problem.what}.",
        compared=problem.why,
        suggestion=problem.hint,
    )


def memory(case: Case) -> Iterator[Finding]:
    """PF14: a calibration by ModelOpt does not fit the GPUs, or an engine build the memory of the CPUs."""
    yield from _calibration(case)
    yield from _build(case)


def _calibration(case: Case) -> Iterator[Finding]:
    formats, machine = case.plan.quantization.formats, case.hardware
    searched = [chosen for chosen in formats.used if FORMATS[chosen].modelopt]
    if not searched or machine.is_rehearsal or formats.passed_through:
        return
    before, after = calibration_bytes(case.plan.model, formats)
    had = machine.gpus * machine.gpu.memory_bytes.value
    if before + after <= had:
        return
    fewest = -(-(before + after) // int(machine.gpu.memory_bytes.value))
    yield Finding(
        rule="PF14",
        severity=Severity.WARNING,  # calibration may run on another machine than the one that serves
        message=f"NVIDIA ModelOpt does not fit {machine.name} while it calibrates {' and '.join(searched)}.",
        compared=f"{format_bytes(before)} in 16 bit + {format_bytes(after)} of the result, without activations; "
        f"{format_bytes(had)} in all GPUs",
        suggestion=f"convert on {fewest} such GPUs or more, or on a CPU with that memory",
    )


def _build(case: Case) -> Iterator[Finding]:
    """Yield a build whose ranks do not fit the memory of a node's CPUs, where the hardware profile states it."""
    needed, had = build_memory(case.plan), case.hardware.host_memory_bytes
    if needed is None or had is None or needed[0].bytes <= had.value:
        return
    term, known = needed
    yield of_failure(
        "PF14",
        known,
        f"trtllm-build {known.note} in CPU memory, and a node of {case.hardware.name} has less than its ranks need.",
        f"{term.how}: {format_bytes(term.bytes)}, {format_bytes(had.value)} in a node",
        "build.options: {workers: 1}, or more ranks",
    )


RULES = (
    Rule(
        "PF12",
        "Format of the given checkpoint",
        source_format,
        keys=(
            "quantization.weights",
            "quantization.kv_cache",
            "quantization.exclude",
            "quantization.groups",
            "toolchain",
            "trtllm_version",
        ),
    ),
    Rule(
        "PF14",
        "Memory of a calibration and of a build",
        memory,
        keys=("quantization.weights", "hardware", "parallelism", "build.options", "toolchain", "trtllm_version"),
    ),
    Rule(
        "PF34",
        "Checkpoints that trtkit writes",
        maker,
        keys=(
            "quantization.weights",
            "quantization.kv_cache",
            "quantization.exclude",
            "parallelism",
            "toolchain",
            "trtllm_version",
        ),
    ),
)
