"""Rules about the parameters of the models of an ``inflight_batcher_llm`` repository (PF21, PF23)."""

from __future__ import annotations

from collections.abc import Iterator

from trtllm_kit.findings import Finding, Severity
from trtllm_kit.plan.given.facts import TritonModel
from trtllm_kit.plan.given.finding import found
from trtllm_kit.upstream.triton_parameters import conflicts, needed_parameters, parameter_value

_DOUBT = "not confirmed for this release"


def parameters(model: TritonModel, release: str) -> Iterator[Finding]:
    """Run every rule about a model's parameters; the llmapi model has others."""
    if model.llmapi:
        return
    for key, value in model.parameters.items():
        yield from _value(model, key, value, release)
    yield from _needed(model, release)
    yield from _conflicts(model, release)


def _value(model: TritonModel, key: str, value: str, release: str) -> Iterator[Finding]:
    known = parameter_value(model.name, key, release)
    if known is None or not value or "${" in value or known.takes(value):
        return
    yield found(
        "PF21",
        Severity.WARNING,
        f"Parameter {key} with a value that it does not take {known.otherwise}.",
        f"{model.name}: {key} is {value}; it takes {known.wanted}; {_DOUBT}",
        f"{key}: {known.values[0]}" if known.values else f"{key} with {known.wanted}, or empty",
    )


def _needed(model: TritonModel, release: str) -> Iterator[Finding]:
    if model.backend != "tensorrtllm":
        return
    missing = [key for key in needed_parameters(release) if key not in model.parameters]
    if missing:
        yield found(
            "PF21",
            Severity.WARNING,
            "The C++ backend looks up parameters that are not there, even where their value would be empty.",
            f"{model.name}: {', '.join(missing)} absent; {_DOUBT}",
            f'parameters {{ key: "{missing[0]}" value {{ string_value: "" }} }}',
        )


def _conflicts(model: TritonModel, release: str) -> Iterator[Finding]:
    for row in conflicts(release):
        backend = row.backend in ("", model.backend)
        if model.name != "tensorrt_llm" or not backend or model.parameters.get(row.key, "").lower() != row.value:
            continue
        yield found(
            "PF21" if row.backend else "PF23",
            Severity.WARNING,
            f"{row.key} {row.value} {row.otherwise}.",
            f"{model.name}: {row.key} {row.value}, backend {model.backend}; {_DOUBT}",
            f"leave {row.key} out",
        )
