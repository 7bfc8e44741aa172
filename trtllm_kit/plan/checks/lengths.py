"""Checks of lengths and counts against each other: prompts, answers, batches, beams, blocks."""

from __future__ import annotations

from collections.abc import Iterator

from trtllm_kit.findings import Finding, Severity
from trtllm_kit.plan.checks.case import Case, Rule

MANY_BEAMS = 16
"""More beams than this have kept requests from ending."""


def positions(case: Case) -> Iterator[Finding]:
    """PF11: sequences longer than the model was made for."""
    longest, claimed = case.plan.limits.max_seq_len.value, case.plan.model.max_position
    if longest <= claimed:
        return
    yield Finding(
        rule="PF11",
        severity=Severity.ERROR,
        message="Sequences may grow longer than the positions the model knows.",
        compared=f"max_seq_len {longest:,}, the model's positions {claimed:,}",
        suggestion=f"limits.max_seq_len: {claimed}",
    )


def lengths(case: Case) -> Iterator[Finding]:
    """PF22: prompts, answers and batches that the limits do not let in."""
    load, limits = case.profile.load, case.profile.limits
    asked = load.input_tokens + load.output_tokens
    if asked > limits.max_seq_len:
        sum_of = f"{load.input_tokens:,} input + {load.output_tokens:,} output = {asked:,}"
        compared = f"{sum_of}, max_seq_len {limits.max_seq_len:,}"
        yield _error(
            "A request of the asked length is longer than max_seq_len.", compared, f"limits.max_seq_len: {asked}"
        )
    if load.input_tokens > limits.max_num_tokens and not case.profile.scheduler.chunked_prefill:
        compared = (
            f"{load.input_tokens:,} input tokens, max_num_tokens {limits.max_num_tokens:,}, chunked_prefill false"
        )
        yield _error("A prompt of the asked length does not fit one step.", compared, "scheduler.chunked_prefill: true")
    if load.min_concurrency > limits.max_batch_size:
        compared = f"min_concurrency {load.min_concurrency:,}, max_batch_size {limits.max_batch_size:,}"
        suggestion = f"limits.max_batch_size: {load.min_concurrency}"
        yield _error("Fewer requests may run at once than the load asks for.", compared, suggestion)
    yield from _wide_batches(case)


def _wide_batches(case: Case) -> Iterator[Finding]:
    limits = case.profile.limits
    rows = limits.max_batch_size * limits.max_beam_width
    if rows > limits.max_num_tokens:
        yield _warning(
            "A full batch has more tokens to generate than one step may hold.",
            f"{rows:,} tokens (requests x beams), max_num_tokens {limits.max_num_tokens:,}",
            f"limits.max_num_tokens: {rows}",
        )
    if limits.max_beam_width > MANY_BEAMS:
        yield _warning(
            "Very wide beams have kept requests from ending.",
            f"max_beam_width {limits.max_beam_width}, {MANY_BEAMS} were seen to work",
            f"limits.max_beam_width: {MANY_BEAMS}",
        )


def block_size(case: Case) -> Iterator[Finding]:
    """PF27: a KV block size that is no power of two above one."""
    size = case.plan.runtime.tokens_per_block.value
    if size > 1 and size & (size - 1) == 0:
        return
    nearest = max(2, 1 << round(size - 1).bit_length() - 1)
    yield Finding(
        rule="PF27",
        severity=Severity.ERROR,
        message="The tokens of a KV block must be a power of two above one.",
        compared=f"tokens_per_block {size}",
        suggestion=f"kv_cache.tokens_per_block: {nearest}",
    )


def _error(message: str, compared: str, suggestion: str) -> Finding:
    return Finding(rule="PF22", severity=Severity.ERROR, message=message, compared=compared, suggestion=suggestion)


def _warning(message: str, compared: str, suggestion: str) -> Finding:
    return Finding(rule="PF22", severity=Severity.WARNING, message=message, compared=compared, suggestion=suggestion)


RULES = (
    Rule("PF11", "Sequence length against the model's positions", positions),
    Rule("PF22", "Lengths and batches against the limits", lengths),
    Rule("PF27", "Tokens of a KV block", block_size),
)
