"""Checks of context parallelism: what makes it, which architectures take it, and what it does not go with."""

from __future__ import annotations

from collections.abc import Iterator

from trtllm_kit.findings import Finding, Severity
from trtllm_kit.plan.checks.case import Case, Rule
from trtllm_kit.spec.model import Experts
from trtllm_kit.units import counted
from trtllm_kit.upstream import nearest_release
from trtllm_kit.upstream.combinations import combination
from trtllm_kit.upstream.families import context_parallel_support

_KEY = "parallelism.context"


def context_parallel(case: Case) -> Iterator[Finding]:
    """PF47: context parallelism where nothing makes it, or what it is not known to go with."""
    if case.split.context == 1:
        return
    chosen = case.plan.toolchain.value
    if case.split.attention_dp:
        yield _found(
            Severity.ERROR,
            "A sequence is either on one rank or cut into parts.",
            f"parallelism.attention_dp true, {_KEY} {case.split.context}",
            f"{_KEY}: 1",
        )
    if chosen == "llm-api":
        yield _of_servers(case)
    elif chosen == "trtllm-build":
        yield from _of_engines(case)


def _of_servers(case: Case) -> Finding:
    """Refuse it for the PyTorch backend: trtkit sets up servers that read prompts and answer them."""
    known = combination("context_parallel_with_pytorch", case.plan.release.value)
    why = f"; there context ranks {known.note}" if known is not None else ""
    return _found(
        Severity.ERROR,
        "trtkit sets up no server of the PyTorch backend that cuts sequences over ranks.",
        f"{_KEY} {case.split.context}, toolchain llm-api{why}",
        f"{_KEY}: 1, or toolchain: trtllm-build in a release that builds engines",
    )


def _of_engines(case: Case) -> Iterator[Finding]:
    architecture, version = case.plan.model.architecture, case.plan.release.value
    if context_parallel_support(architecture, version) is None:
        nearest = nearest_release(version, lambda name: context_parallel_support(architecture, name) is not None)
        yield _found(
            Severity.WARNING,
            f"Release {version} is not known to cut sequences of {architecture} over ranks.",
            f"{_KEY} {case.split.context}; {f'known of {nearest}' if nearest else 'known of no release'}; "
            "not confirmed for this release",
            f"{_KEY}: 1" + (f", or trtllm_version: {nearest}" if nearest else ""),
        )
    yield from _padding(case)
    known = combination("context_parallel_with_experts", version)
    if known is not None and any(isinstance(layer.feed_forward, Experts) for layer in case.plan.model.layers):
        yield _found(
            Severity.WARNING,
            f"Context ranks and experts {known.note} in releases like {version}.",
            f"{_KEY} {case.split.context}, {counted(case.split.expert, 'expert rank')}; not confirmed for this release",
            f"{_KEY}: 1",
        )


def _padding(case: Case) -> Iterator[Finding]:
    """Yield input that is padded, which the model's graph cannot cut."""
    version, build = case.plan.release.value, case.plan.build
    known, chosen = combination("context_parallel_with_padding", version), build and build.options.get(_PACKED)
    if known is not None and chosen and chosen.value in ("disable", False):
        yield _found(
            Severity.WARNING,
            f"Context ranks and padded input {known.note} in releases like {version}.",
            f"{_KEY} {case.split.context}, {_PACKED} {chosen.value}; not confirmed for this release",
            "leave build.options.remove_input_padding out",
        )


_PACKED = "--remove_input_padding"


def _found(severity: Severity, message: str, compared: str, suggestion: str) -> Finding:
    return Finding(rule="PF47", severity=severity, message=message, compared=compared, suggestion=suggestion)


RULES = (
    Rule(
        "PF47",
        "Context parallelism",
        context_parallel,
        keys=(_KEY, "parallelism.attention_dp", "build.options", "toolchain", "trtllm_version"),
    ),
)
