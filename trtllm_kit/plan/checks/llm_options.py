"""Checks of ``llm_api.options``: keys of the LLM API that the profile names, as lint sees them in a YAML."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from trtllm_kit.findings import Finding, Severity
from trtllm_kit.plan.checks.case import Case
from trtllm_kit.plan.llm_options import GRAPH_SIZES, SECTION, nested, own_words, refusal
from trtllm_kit.plan.plan import Plan
from trtllm_kit.plan.serving_mode import serves_engines
from trtllm_kit.plan.speculation_keys import speculation_document
from trtllm_kit.units import format_bytes
from trtllm_kit.upstream.fit import fits, in_words
from trtllm_kit.upstream.llm_api import LlmApiKey, llm_api_key
from trtllm_kit.upstream.llm_api_inside import TAGS, InsideKey, inside_key
from trtllm_kit.upstream.memory import uncounted

_KEY = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_MOST_TOKENS = "kv_cache_config.max_tokens"
_SHARE = "peft_cache_config.device_cache_percent"


def options(case: Case) -> Iterator[Finding]:
    """PF24: options of the LLM API that have no place, no key or no such value in the release."""
    asked, plan = case.profile.llm_api.options, case.plan
    if not asked:
        return
    if serves_engines(plan):
        yield _found(
            Severity.WARNING,
            "A server of built engines takes no arguments of the LLM API, so they are left out.",
            f"{SECTION} sets {', '.join(asked)}; toolchain {plan.toolchain.value}",
            f"leave {SECTION} out, or toolchain: llm-api",
        )
        return
    for name in asked:
        why = refusal(plan, name, asked)
        if why is not None:
            compared = f"{SECTION}.{name} is {_spelt(asked[name])}; {why.why}"
            yield _found(Severity.ERROR, f"{SECTION} cannot set {name}.", compared, why.advice)
    kept = {name: decided.value for name, decided in (plan.llm_api or {}).items()}
    yield from _as_lint(plan, kept)
    for name, value in kept.items():
        yield from _value(plan, kept, name, value)
    yield from _graph_sizes(plan, kept)
    yield from _memory(case, kept)


def _as_lint(plan: Plan, kept: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield what lint finds in a document with these keys, and not in the plan's own."""
    from trtllm_kit.plan.given.documents import document  # few profiles have options
    from trtllm_kit.plan.given.values import values

    own, version = _own_document(plan), plan.release.value
    before = tuple(document(nested(own), version))
    names, whole = own_words(version), nested({**own, **kept})
    for finding in (*document(whole, version), *values(whole, version)):
        if finding not in before:
            yield finding.model_copy(update={"suggestion": _in_profile(finding.suggestion, kept, names)})


def _own_document(plan: Plan) -> dict[str, Any]:
    """Return the keys of the plan's own that rules about documents hold others against, dotted."""
    cache, drafts = plan.runtime.host_cache_bytes, speculation_document(plan)
    return {
        "kv_cache_config.enable_block_reuse": plan.runtime.enable_block_reuse.value,
        **({} if cache is None else {"kv_cache_config.host_cache_size": cache.value}),
        **{f"speculative_config.{name}": value for name, value in drafts.items()},
        "max_batch_size": plan.limits.max_batch_size.value,
    }


def _in_profile(advice: str, kept: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """Return an advice for a document as one for a profile: its keys, in the profile's words."""
    tags = {tag: f"{section}.{tag}" for section, tag in TAGS.items() if any(key.startswith(section) for key in kept)}

    def worded(found: re.Match[str]) -> str:
        key = tags.get(found[0], found[0])
        if key in names:
            return names[key]
        is_key = key in kept or "." in key or advice == f"write {key}"
        return f"{SECTION}.{key}" if is_key else key

    return _KEY.sub(worded, advice)


def _value(plan: Plan, kept: Mapping[str, Any], name: str, value: Any) -> Iterator[Finding]:
    """Yield a value of another type than the release takes; words that it does not take are lint's."""
    version, key = plan.release.value, f"{SECTION}.{name}"
    known = _known(plan, kept, name)
    if known is None or fits(value, known.type, known.allowed if isinstance(value, list) else ()):
        return
    surely = known.certainty == "read"
    takes = f"one of {', '.join(map(str, known.allowed))}" if known.allowed else in_words(known.type)
    has_default = isinstance(known.default, bool | int | float | str)
    yield _found(
        Severity.ERROR if surely else Severity.WARNING,
        f"Release {version} does not take that value of {name}{'' if surely else ' (not confirmed for this release)'}.",
        f"{key} is {_spelt(value)}; it takes {takes}",
        f"{key}: {_spelt(known.default)}, which is the default" if has_default else f"leave {key} out",
    )


def _known(plan: Plan, kept: Mapping[str, Any], name: str) -> LlmApiKey | InsideKey | None:
    """Return what the release says of a key, of the kind that its section is of."""
    version, section = plan.release.value, name.partition(".")[0]
    tag = f"{section}.{TAGS.get(section, '')}"
    kind = {**_own_document(plan), **kept}.get(tag)
    return llm_api_key(version, name) or inside_key(version, name, None if kind is None else str(kind))


def _graph_sizes(plan: Plan, kept: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield batch sizes of graphs that end elsewhere than the profile says."""
    sizes, largest = kept.get(GRAPH_SIZES), plan.engine.cuda_graph_max_batch_size
    if not isinstance(sizes, list) or not sizes or not all(type(one) is int for one in sizes):
        return
    if largest.source == "profile" and largest.value != max(sizes):
        yield _found(
            Severity.ERROR,
            "The largest batch of the CUDA graphs is given twice and differs.",
            f"engine.cuda_graph_max_batch_size {largest.value}, {SECTION}.{GRAPH_SIZES} up to {max(sizes)}",
            f"engine.cuda_graph_max_batch_size: {max(sizes)}, or leave it out",
        )


def _memory(case: Case, kept: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield options whose memory no sum of the plan has, and a KV cache that they make smaller than the sums' one."""
    taking: dict[str, list[str]] = {}
    for name, value in kept.items():
        row = uncounted(name, value)
        if row is not None:
            taking.setdefault(row.takes, []).append(f"{SECTION}.{name}")
    if taking:
        memory = case.plan.memory
        free = memory.capacity_bytes - sum(term.bytes for term in memory.terms)
        share = kept.get(_SHARE)
        cache = f"; the adapters' cache is {share:.0%} of that" if isinstance(share, float | int) else ""
        yield _found(
            Severity.WARNING,
            f"The plan's memory does not count {' and '.join(taking)}.",
            f"{', '.join(name for names in taking.values() for name in names)}; weights and buffers leave "
            f"{format_bytes(max(0, free))} of the fullest GPU{cache}, the KV cache is planned to take "
            f"{format_bytes(max(0, memory.kv_budget_bytes))}",
            "kv_cache.free_gpu_memory_fraction lower by what they take, and a look at the log of the first start",
        )
    yield from _most_tokens(case, kept.get(_MOST_TOKENS))


def _most_tokens(case: Case, most: object) -> Iterator[Finding]:
    """Yield a bound on the tokens of the KV cache below what the sums promise."""
    load, memory = case.profile.load, case.plan.memory
    if type(most) is not int or most < 1:
        return
    asked = -(-memory.min_sequences // memory.data_ranks) * (load.input_tokens + load.output_tokens)
    needed, what = max((asked, "the asked sequences"), (case.plan.limits.max_seq_len.value, "one of max_seq_len"))
    if most < needed:
        yield _found(
            Severity.WARNING,
            f"The KV cache is bounded below what the plan's memory promises: {what} do not fit in it at once.",
            f"{SECTION}.{_MOST_TOKENS} {most:,}, needed {needed:,} tokens; the sums count "
            f"{memory.sequences:,} sequences without that bound",
            f"{SECTION}.{_MOST_TOKENS}: {needed}, or lower load.min_concurrency and limits.max_seq_len",
        )


def _spelt(value: object) -> str:
    """Spell a value as the profile does, at a length that a line can hold."""
    if isinstance(value, bool) or value is None:
        return "null" if value is None else str(value).lower()
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _found(severity: Severity, message: str, compared: str, suggestion: str) -> Finding:
    return Finding(rule="PF24", severity=severity, message=message, compared=compared, suggestion=suggestion)
