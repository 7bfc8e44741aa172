"""Checks of number formats against the GPU, the model and each other."""

from __future__ import annotations

from collections.abc import Iterator

from trtllm_kit.findings import Finding, Severity
from trtllm_kit.plan.checks.case import Case, Rule
from trtllm_kit.upstream.precision import Part, formats_for, precision

NO_FP8_LAYOUT = frozenset({"llama4"})
"""Families whose experts `convert` cannot write in FP8."""
_KEYS: dict[Part, str] = {"weights": "quantization.weights", "kv_cache": "quantization.kv_cache"}


def weight_format(case: Case) -> Iterator[Finding]:
    """PF7: the GPU does not compute in the weights' format."""
    yield from _on_gpu(case, "PF7", "weights", case.plan.quantization.weights.value)


def kv_format(case: Case) -> Iterator[Finding]:
    """PF8: the GPU does not take the KV cache's format, or the model loses by it."""
    chosen = case.plan.quantization.kv_cache.value
    yield from _on_gpu(case, "PF8", "kv_cache", chosen)
    if chosen == "fp8" and case.plan.quantization.weights.value == "bf16":
        yield Finding(
            rule="PF8",
            severity=Severity.WARNING,
            message="Only a checkpoint with quantised weights carries KV scales, so this FP8 KV cache has scale 1.",
            compared=f"weights {case.plan.quantization.weights.value}, kv_cache {chosen}",
            suggestion="quantization.weights: fp8, or quantization.kv_cache: bf16",
        )
    if chosen == "fp8" and case.plan.model.family == "qwen2":
        yield Finding(
            rule="PF8",
            severity=Severity.WARNING,
            message="Qwen2 models have outliers in their keys and lose accuracy with an FP8 KV cache.",
            compared=f"family {case.plan.model.family}, kv_cache {chosen}",
            suggestion="quantization.kv_cache: bf16, or compare both with trtkit evaluate",
        )


def source_format(case: Case) -> Iterator[Finding]:
    """PF12: the given checkpoint is quantised already, or cannot be converted to the asked format."""
    weights, family = case.plan.quantization.weights.value, case.plan.model.family
    if weights == "fp8" and family in NO_FP8_LAYOUT:
        yield Finding(
            rule="PF12",
            severity=Severity.WARNING,
            message="The plan stands, but trtkit convert writes no FP8 layout for experts fused into one tensor.",
            compared=f"weights {weights}, family {family}",
            suggestion="quantization.weights: bf16",
        )
    method = case.plan.model.quantized_as
    if method is None:
        return
    yield Finding(
        rule="PF12",
        severity=Severity.ERROR,
        message="The model is quantised already, and trtkit converts 16-bit checkpoints.",
        compared=f"quantization_config.quant_method is {method}, wanted none",
        suggestion="give the folder of the model's 16-bit original",
    )


def _on_gpu(case: Case, rule: str, part: Part, chosen: str) -> Iterator[Finding]:
    if case.hardware.is_rehearsal:
        return  # the runtimes of a rehearsal compute in float32
    version, capability = case.plan.release.value, case.plan.compute_capability
    known = precision(part, chosen, version)
    if known is not None and capability in known.capabilities:
        return
    takes = ", ".join(str(entry) for entry in known.capabilities) if known else "no GPU"
    certain = known is not None and known.certainty == "read"
    usable = formats_for(part, capability, version)
    yield Finding(
        rule=rule,
        severity=Severity.ERROR if certain else Severity.WARNING,
        message=f"{case.plan.gpu} does not take {chosen} for the {part.replace('_', ' ')} in release {version}.",
        compared=f"compute capability {capability}; {chosen} runs on {takes}",
        suggestion=f"{_KEYS[part]}: {usable[-1]}" if usable else "choose hardware with a newer GPU",
    )


RULES = (
    Rule("PF7", "Weight format against the GPU", weight_format),
    Rule("PF8", "KV cache format against the GPU and the model", kv_format),
    Rule("PF12", "Format of the given checkpoint", source_format),
)
