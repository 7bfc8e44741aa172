"""Checks of memory: do the asked sequences fit, and the longest allowed one."""

from __future__ import annotations

from collections.abc import Iterator

from trtllm_kit.findings import Finding, Severity
from trtllm_kit.plan.checks.case import Case, Rule
from trtllm_kit.plan.memory import sequence_tokens
from trtllm_kit.plan.plan import MemoryPlan
from trtllm_kit.spec.hardware import Figure
from trtllm_kit.spec.load import hardware_names, load_hardware
from trtllm_kit.units import format_bytes
from trtllm_kit.upstream.bounds import bound

MEMORY_RULE = "PF18"


def sequences(case: Case) -> Iterator[Finding]:
    """PF18: the asked sequences, or one of the longest length, do not fit the KV cache, or it leaves too little."""
    yield from _headroom(case)
    memory = case.plan.memory
    if memory.fits or _stands_in(case):
        return
    if not memory.holds_asked:
        yield _too_few(case, memory)
        return
    longest = case.plan.limits.max_seq_len.value
    needed, had = format_bytes(memory.kv_bytes_longest), format_bytes(memory.kv_budget_bytes)
    beams = case.profile.limits.max_beam_width
    wide = f" with {beams} beams for the last {case.profile.load.output_tokens:,} tokens" if beams > 1 else ""
    yield Finding(
        rule=MEMORY_RULE,
        severity=Severity.ERROR,
        message=f"One sequence of max_seq_len {longest:,} tokens does not fit the KV cache.",
        compared=f"{needed} needed{wide}, {had} for the KV cache",
        suggestion=f"limits.max_seq_len: {memory.longest_sequence}",
    )


def gpu_memory(case: Case) -> Iterator[Finding]:
    """PF31: the profile plans with more memory than the GPU of the hardware profile has."""
    asked, real = case.profile.gpu_memory, _catalogued_memory(case)
    if asked is None or real is None or asked <= real.value:
        return
    yield Finding(
        rule="PF31",
        severity=Severity.ERROR,
        message=f"gpu_memory is more than {case.plan.gpu} has.",
        compared=f"gpu_memory {format_bytes(asked)}, {format_bytes(real.value)} on the GPU ({real.source})",
        suggestion=f"gpu_memory: {int(real.value)}",
    )


def binding_term(memory: MemoryPlan) -> tuple[str, int]:
    """Return the largest use of memory, the KV cache of the asked sequences included: its name and its bytes."""
    uses = [
        ("KV cache of the asked sequences", memory.asked_bytes),
        *((term.name, term.bytes) for term in memory.terms),
    ]
    return max(uses, key=lambda use: use[1])


def _headroom(case: Case) -> Iterator[Finding]:
    """Yield a KV cache that leaves less than peaks of memory have been seen to need."""
    asked, most = case.plan.runtime.free_gpu_memory_fraction.value, bound("free_gpu_memory_fraction")
    memory = case.plan.memory
    if asked <= most.value or case.hardware.is_rehearsal or memory.kv_budget_bytes < 0:
        return
    left = memory.capacity_bytes - sum(term.bytes for term in memory.terms) - memory.kv_budget_bytes
    rows = case.plan.limits.max_num_tokens.value * case.plan.model.vocab * 4
    yield Finding(
        rule=MEMORY_RULE,
        severity=Severity.WARNING,
        message="The KV cache leaves next to nothing for peaks that the first pass does not show.",
        compared=f"free_gpu_memory_fraction {asked:g}, above {most.value:g}; {format_bytes(left)} left, "
        f"logits of every row of a step would take {format_bytes(rows)}",
        suggestion=f"kv_cache.free_gpu_memory_fraction: {most.value:g}",
    )


def _stands_in(case: Case) -> bool:
    """Whether the plan's split is none that could run, put there because no rank count is legal."""
    return case.profile.parallelism.tensor == "auto" and any(obstacle.hard for obstacle in case.obstacles)


def _catalogued_memory(case: Case) -> Figure | None:
    """Return the memory of the hardware profile's real GPU; None for a CPU, whose memory is an allowance."""
    if case.hardware.is_rehearsal or case.hardware.name not in hardware_names():
        return None
    return load_hardware(case.hardware.name).gpu.memory_bytes


def _too_few(case: Case, memory: MemoryPlan) -> Finding:
    tokens = sequence_tokens(case.profile.load, case.profile.limits.max_beam_width)
    name, size = binding_term(memory)
    taken = sum(term.bytes for term in memory.terms)
    if memory.kv_budget_bytes < 0:
        message = f"The model does not fit: {format_bytes(taken)} are needed before the KV cache."
        left = f"{format_bytes(-memory.kv_budget_bytes)} lacking before it"
    else:
        count = f"{memory.sequences:,} of the {memory.min_sequences:,} asked sequences"
        message = f"The KV cache holds {count} of {tokens:,} tokens."
        left = f"{format_bytes(memory.kv_budget_bytes)} left for it"
    return Finding(
        rule=MEMORY_RULE,
        severity=Severity.ERROR,
        message=f"{message} The binding term is {name} with {format_bytes(size)}.",
        compared=(
            f"{format_bytes(memory.asked_bytes)} needed for the KV cache, {left}; "
            f"the other terms take {format_bytes(taken)} of {format_bytes(memory.capacity_bytes)}"
        ),
        suggestion="lower load.min_concurrency or choose hardware with more memory",
    )


RULES = (
    Rule(
        MEMORY_RULE,
        "KV cache against the asked sequences",
        sequences,
        keys=(
            "load",
            "limits",
            "kv_cache",
            "parallelism",
            "speculation",
            "engine.expert_slots",
            "gpu_memory",
            "quantization",
        ),
    ),
    Rule("PF31", "GPU memory against the hardware", gpu_memory, keys=("gpu_memory", "hardware")),
)
