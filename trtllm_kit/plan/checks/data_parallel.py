"""Checks of attention data parallelism: the toolchain, the architecture, the ranks, and what goes with it."""

from __future__ import annotations

from collections.abc import Iterator

from trtllm_kit.findings import Finding, Severity
from trtllm_kit.plan.checks.case import Case, Rule
from trtllm_kit.spec.model import Experts
from trtllm_kit.units import counted
from trtllm_kit.upstream import nearest_release
from trtllm_kit.upstream.families import attention_dp_support

_KEY = "parallelism.attention_dp"
_BALANCE = ("attention_dp_balance", "attention_dp_timeout_iters", "attention_dp_wait_iters")


def attention_dp(case: Case) -> Iterator[Finding]:
    """PF46: attention data parallelism where nothing makes it, where it does nothing, and its settings without it."""
    yield from _settings(case)
    if not case.split.attention_dp:
        return
    if case.plan.toolchain.value == "trtllm-build":
        yield _found(
            Severity.ERROR,
            "Built engines share out every layer: trtkit makes none with attention data parallelism.",
            f"{_KEY} true, toolchain trtllm-build",
            f"toolchain: llm-api, or {_KEY}: false",
        )
        return
    yield from _architecture(case)
    yield from _ranks(case)


def _architecture(case: Case) -> Iterator[Finding]:
    """Yield an architecture that the release is not known to run so."""
    architecture, version = case.plan.model.architecture, case.plan.release.value
    if case.plan.toolchain.value != "llm-api" or attention_dp_support(architecture, version) is not None:
        return
    nearest = nearest_release(version, lambda name: attention_dp_support(architecture, name) is not None)
    yield _found(
        Severity.WARNING,
        f"Release {version} is not known to run {architecture} with attention data parallelism.",
        f"{_KEY} true; {f'known of {nearest}' if nearest else 'known of no release'}; not confirmed for this release",
        f"{_KEY}: false" + (f", or trtllm_version: {nearest}" if nearest else ""),
    )


def _ranks(case: Case) -> Iterator[Finding]:
    """Yield ranks that share nothing: a single one, or those of a model without experts."""
    split = case.split
    if split.tensor == 1:
        message = "Attention data parallelism does nothing with one tensor rank."
        yield _found(Severity.INFO, message, f"{_KEY} true, parallelism.tensor 1", f"{_KEY}: false")
        return
    if any(isinstance(layer.feed_forward, Experts) for layer in case.plan.model.layers):
        return
    yield _found(
        Severity.WARNING,
        "The model has no experts to share out: every rank holds all of it, and still waits for the others each step.",
        f"{_KEY} true, {counted(split.tensor, 'tensor rank')}, 0 experts",
        f"{_KEY}: false with parallelism.tensor: 1 and parallelism.replicas: {split.tensor * split.replicas}",
    )


def _settings(case: Case) -> Iterator[Finding]:
    """Yield settings of the balance that nothing reads."""
    engine = case.plan.engine
    asked = [name for name in _BALANCE if getattr(engine, name) is not None]
    if asked and not case.split.attention_dp:
        yield _found(
            Severity.WARNING,
            "Nothing waits for other ranks without attention data parallelism.",
            f"{', '.join(f'engine.{name}' for name in asked)} set, {_KEY} false",
            f"{_KEY}: true, or leave {asked[0]} out",
        )
    elif asked and engine.attention_dp_balance is None:
        yield _found(
            Severity.WARNING,
            "Times to wait for other ranks do nothing unless ranks wait for each other.",
            f"{', '.join(f'engine.{name}' for name in asked)} set, engine.attention_dp_balance false",
            f"engine.attention_dp_balance: true, or leave {asked[0]} out",
        )


def _found(severity: Severity, message: str, compared: str, suggestion: str) -> Finding:
    return Finding(rule="PF46", severity=severity, message=message, compared=compared, suggestion=suggestion)


RULES = (
    Rule(
        "PF46",
        "Attention data parallelism",
        attention_dp,
        keys=(
            _KEY,
            "parallelism.tensor",
            "toolchain",
            "trtllm_version",
            *(f"engine.{name}" for name in _BALANCE),
        ),
    ),
)
