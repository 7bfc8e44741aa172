"""Checks of lengths and counts against each other: prompts, answers, batches, beams, blocks."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from trtllm_kit.findings import Finding, Severity
from trtllm_kit.plan.checks import built
from trtllm_kit.plan.checks.case import Case, Rule
from trtllm_kit.plan.llm_keys import LLM_API_KEYS
from trtllm_kit.plan.positions import usable_positions
from trtllm_kit.plan.speculation import logit_rows
from trtllm_kit.upstream.bounds import bound
from trtllm_kit.upstream.combinations import combination
from trtllm_kit.upstream.failures import failure
from trtllm_kit.upstream.llm_api import llm_api_key


def positions(case: Case) -> Iterator[Finding]:
    """PF11: sequences longer than the positions the model can tell apart."""
    longest, usable = case.plan.limits.max_seq_len.value, usable_positions(case.plan.model)
    if longest <= usable.sure:
        return
    doubtful = longest <= usable.most
    yield Finding(
        rule="PF11",
        severity=Severity.WARNING if doubtful else Severity.ERROR,
        message="Sequences may grow longer than the positions the model knows"
        + (", unless its config.json is read generously." if doubtful else "."),
        compared=f"max_seq_len {longest:,}, the model's positions {usable.sure:,} ({usable.how})",
        suggestion=_within(case, usable.sure),
    )


def long_rope(case: Case) -> Iterator[Finding]:
    """PF40: sequences beyond the trained length of a long rope, whose factors releases choose in ways of their own."""
    rope, longest, version = case.plan.model.rope, case.plan.limits.max_seq_len.value, case.plan.release.value
    known = combination("long_rope_beyond_trained_length", version)
    trained = rope.original_max_position
    if rope.kind != "longrope" or trained is None or longest <= trained or known is None:
        return
    yield Finding(
        rule="PF40",
        severity=Severity.WARNING,
        message=f"A long rope and sequences beyond its trained length {known.note} in release {version}.",
        compared=f"max_seq_len {longest:,}, trained length {trained:,}, the model's positions "
        f"{usable_positions(case.plan.model).sure:,}",
        suggestion=_within(case, trained),
    )


def lengths(case: Case) -> Iterator[Finding]:
    """PF22: prompts, answers and batches that the limits do not let in."""
    load, limits = case.profile.load, case.profile.limits
    asked = load.input_tokens + load.output_tokens
    if asked > limits.max_seq_len:
        usable = usable_positions(case.plan.model)
        yield _error(
            "A request of the asked length is longer than max_seq_len.",
            f"{load.input_tokens:,} input + {load.output_tokens:,} output = {asked:,}, "
            f"max_seq_len {limits.max_seq_len:,}",
            f"limits.max_seq_len: {asked}" if asked <= usable.most else _within(case, usable.sure),
        )
    if load.input_tokens > limits.max_num_tokens and not case.profile.scheduler.chunked_prefill:
        compared = (
            f"{load.input_tokens:,} input tokens, max_num_tokens {limits.max_num_tokens:,}, chunked_prefill false"
        )
        yield _error("A prompt of the asked length does not fit one step.", compared, "scheduler.chunked_prefill: true")
    places = case.split.places(limits.max_batch_size)
    if load.min_concurrency > places:
        batches = case.split.places(1)
        each = f" in each of {batches} batches" if batches > 1 else ""
        compared = f"min_concurrency {load.min_concurrency:,}, max_batch_size {limits.max_batch_size:,}{each}"
        suggestion = f"limits.max_batch_size: {ceil(load.min_concurrency / batches)}"
        yield _error("Fewer requests may run at once than the load asks for.", compared, suggestion)
    yield from _wide_batches(case)
    yield from _exact_beams(case)
    yield from (finding for finding in built.requests(case) if finding.rule == "PF22")


def _wide_batches(case: Case) -> Iterator[Finding]:
    limits, most = case.profile.limits, round(bound("beam_width").value)
    drafts = logit_rows(case.sizing.drafting)
    rows = limits.max_batch_size * limits.max_beam_width * drafts
    counted = "requests x beams" + (" x drafts and one" if drafts > 1 else "")
    if rows > limits.max_num_tokens:
        yield _warning(
            "A full batch has more tokens to generate than one step may hold.",
            f"{rows:,} tokens ({counted}), max_num_tokens {limits.max_num_tokens:,}",
            f"limits.max_num_tokens: {rows}",
        )
    if limits.max_beam_width > most:
        yield _warning(
            "Very wide beams have kept requests from ending.",
            f"max_beam_width {limits.max_beam_width}, {most} were seen to work",
            f"limits.max_beam_width: {most}",
        )


def _exact_beams(case: Case) -> Iterator[Finding]:
    """Yield that plain requests are refused beside beams, where the backend takes one number of beams alone."""
    beams, known = case.plan.limits.max_beam_width.value, failure("beams_must_equal", case.plan.release.value)
    if beams > 1 and known is not None and case.plan.toolchain.value == "llm-api":
        yield Finding(
            rule="PF22",
            severity=Severity.INFO,  # who asks for beams may well ask for as many in every request
            message=f"A request that does not ask for exactly max_beam_width beams {known.note}, a plain one too.",
            compared=f"max_beam_width {beams}; not confirmed for this release",
            suggestion="nothing to do with trtkit's Triton model, which asks for them; or limits.max_beam_width: 1",
        )


def block_size(case: Case) -> Iterator[Finding]:
    """PF27: a KV block size that is no power of two above one."""
    size, version = case.plan.runtime.tokens_per_block.value, case.plan.release.value
    if size > 1 and size & (size - 1) == 0:
        return
    key = llm_api_key(version, LLM_API_KEYS["runtime.tokens_per_block"])
    refused = key is not None and key.power_of_two
    known = f"{version} refuses it" if refused else f"{version} is not known to check it; later releases do"
    yield Finding(
        rule="PF27",
        severity=Severity.ERROR if refused and key and key.certainty == "read" else Severity.WARNING,
        message="The tokens of a KV block should be a power of two above one.",
        compared=f"tokens_per_block {size}; {known}",
        suggestion=f"kv_cache.tokens_per_block: {nearest_power_of_two(size)}",
    )


def nearest_power_of_two(size: int) -> int:
    """Return the power of two above one that is nearest to ``size``, the smaller of two equally near ones."""
    below = max(2, 1 << size.bit_length() - 1)
    return min((below, 2 * below), key=lambda power: (abs(power - size), power))


def _within(case: Case, tokens: int) -> str:
    """Return the keys that bring the longest sequence, and with it the asked request, down to that many tokens."""
    load, changes = case.profile.load, []
    if case.profile.limits.max_seq_len != tokens:
        changes.append(f"limits.max_seq_len: {tokens}")
    if load.output_tokens >= tokens:
        changes += [f"load.input_tokens: {tokens - tokens // 2}", f"load.output_tokens: {tokens // 2}"]
    elif load.input_tokens + load.output_tokens > tokens:
        changes.append(f"load.input_tokens: {tokens - load.output_tokens}")
    return ", ".join(changes)


def _error(message: str, compared: str, suggestion: str) -> Finding:
    return Finding(rule="PF22", severity=Severity.ERROR, message=message, compared=compared, suggestion=suggestion)


def _warning(message: str, compared: str, suggestion: str) -> Finding:
    return Finding(rule="PF22", severity=Severity.WARNING, message=message, compared=compared, suggestion=suggestion)


RULES = (
    Rule("PF11", "Sequence length against the model's positions", positions, keys=("limits.max_seq_len", "load")),
    Rule(
        "PF22",
        "Lengths and batches against the limits",
        lengths,
        keys=("load", "limits", "scheduler.chunked_prefill", "speculation.draft_tokens", "build.options"),
    ),
    Rule("PF40", "Long rope beyond its trained length", long_rope, keys=("limits.max_seq_len", "trtllm_version")),
    Rule("PF27", "Tokens of a KV block", block_size, keys=("kv_cache.tokens_per_block",)),
)
