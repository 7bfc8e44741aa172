"""Checks of number formats against the architecture."""

from __future__ import annotations

from collections.abc import Iterator

from trtllm_kit.findings import Finding, Severity
from trtllm_kit.plan.checks.case import Case, Rule
from trtllm_kit.upstream.model_formats import listed_formats
from trtllm_kit.upstream.precision import Part


def listed(case: Case) -> Iterator[Finding]:
    """PF45: a format that the release's model matrix does not name for the architecture."""
    if case.hardware.is_rehearsal or case.plan.toolchain.value != "llm-api":
        return
    formats = case.plan.quantization.formats
    for chosen in formats.used:
        yield from _part(case, "weights", chosen)
    yield from _part(case, "kv_cache", formats.kv_cache)


def _part(case: Case, part: Part, chosen: str) -> Iterator[Finding]:
    version, architecture = case.plan.release.value, case.plan.model.architecture
    known = listed_formats(architecture, part, version)
    if chosen == "bf16" or known is None or chosen in known.formats:
        return
    named = ", ".join(known.formats) or "none"
    read = f" (read in {', '.join(known.read_in)})" if known.certainty != "read" else ""
    yield Finding(
        rule="PF45",
        severity=Severity.WARNING,
        message=f"The model matrix of release {version} does not name {chosen} {part.replace('_', ' ')} here.",
        compared=f"{architecture}: {named}{read}",
        suggestion=f"{case.with_formats(f'quantization.{part}: bf16')}, or try it on one request before you rely on it",
    )


RULES = (
    Rule(
        "PF45",
        "Number formats against the architecture",
        listed,
        keys=("quantization.weights", "quantization.kv_cache", "trtllm_version"),
    ),
)
