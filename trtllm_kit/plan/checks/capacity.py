"""Checks of memory: do the asked sequences fit, and the longest allowed one."""

from __future__ import annotations

from collections.abc import Iterator

from trtllm_kit.findings import Finding, Severity
from trtllm_kit.plan.checks.case import Case, Rule
from trtllm_kit.plan.memory import kv_bytes_per_sequence, sequence_tokens
from trtllm_kit.plan.parallelism import stages
from trtllm_kit.plan.plan import MemoryPlan
from trtllm_kit.units import format_bytes

MEMORY_RULE = "PF18"


def sequences(case: Case) -> Iterator[Finding]:
    """PF18: the asked sequences, or one of the longest length, do not fit the KV cache."""
    memory = case.plan.memory
    if not memory.fits:
        yield _too_few(case, memory)
        return
    longest = case.plan.limits.max_seq_len.value
    needed = _longest_bytes(case, longest)
    if needed <= memory.kv_budget_bytes:
        return
    fits = _longest_that_fits(case, memory.kv_budget_bytes, longest)
    yield Finding(
        rule=MEMORY_RULE,
        severity=Severity.ERROR,
        message=f"One sequence of max_seq_len {longest:,} tokens does not fit the KV cache.",
        compared=f"{format_bytes(needed)} needed, {format_bytes(memory.kv_budget_bytes)} for the KV cache",
        suggestion=f"limits.max_seq_len: {fits}",
    )


def binding_term(memory: MemoryPlan) -> tuple[str, int]:
    """Return the largest use of memory, the KV cache of the asked sequences included: its name and its bytes."""
    asked = memory.min_sequences * memory.kv_bytes_per_sequence
    uses = [("KV cache of the asked sequences", asked), *((term.name, term.bytes) for term in memory.terms)]
    return max(uses, key=lambda use: use[1])


def _too_few(case: Case, memory: MemoryPlan) -> Finding:
    tokens = sequence_tokens(case.profile.load, case.profile.limits.max_beam_width)
    asked = memory.min_sequences * memory.kv_bytes_per_sequence
    name, size = binding_term(memory)
    taken, left = sum(term.bytes for term in memory.terms), max(0, memory.kv_budget_bytes)
    if memory.kv_budget_bytes < 0:
        message = f"The model does not fit: {format_bytes(taken)} are needed before the KV cache."
    else:
        count = f"{memory.sequences:,} of the {memory.min_sequences:,} asked sequences"
        message = f"The KV cache holds {count} of {tokens:,} tokens."
    return Finding(
        rule=MEMORY_RULE,
        severity=Severity.ERROR,
        message=f"{message} The binding term is {name} with {format_bytes(size)}.",
        compared=(
            f"{format_bytes(asked)} needed for the KV cache, {format_bytes(left)} left for it; "
            f"the other terms take {format_bytes(taken)} of {format_bytes(memory.capacity_bytes)}"
        ),
        suggestion="lower load.min_concurrency or choose hardware with more memory",
    )


def _longest_bytes(case: Case, tokens: int) -> int:
    """Return the KV bytes of one sequence of that length on the fullest rank."""
    model = case.plan.model
    layers_by_stage = (tuple(model.layers[number] for number in stage) for stage in stages(model, case.split.pipeline))
    return max(kv_bytes_per_sequence(layers, case.sizing, tokens) for layers in layers_by_stage)


def _longest_that_fits(case: Case, budget: int, most: int) -> int:
    """Return the longest sequence, in whole blocks, whose KV cache is within the budget."""
    block = case.sizing.kv_cache.tokens_per_block
    low, high = 0, most // block
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _longest_bytes(case, middle * block) <= budget else (low, middle - 1)
    return low * block


RULES = (Rule(MEMORY_RULE, "KV cache against the asked sequences", sequences),)
