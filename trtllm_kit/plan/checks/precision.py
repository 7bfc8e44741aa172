"""Checks of number formats against the GPU, the model and each other."""

from __future__ import annotations

from collections.abc import Iterator

from trtllm_kit.findings import Finding, Severity
from trtllm_kit.plan.checks.case import Case, Rule
from trtllm_kit.plan.quantization import fused_groups, idle_patterns, module_of, plain_weights_advice, quantised_tensors
from trtllm_kit.upstream.combinations import combination
from trtllm_kit.upstream.precision import Part, formats_for, precision

KV_SCALES = "TRTLLM_LOAD_KV_SCALES"
"""Variable of the server process that lets it read the KV scales of a checkpoint."""
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
    yield from _nvfp4_cache(case)
    known = combination("fp8_kv_cache_with_qwen2", case.plan.release.value)
    if chosen == "fp8" and case.plan.model.family == "qwen2" and known is not None:
        yield Finding(
            rule="PF8",
            severity=Severity.WARNING,
            message=f"Qwen2 models, whose keys have outliers, and an FP8 KV cache together {known.note}.",
            compared=f"family {case.plan.model.family}, kv_cache {chosen}",
            suggestion="quantization.kv_cache: bf16, or read the quality report in the manifest of convert",
        )


def _nvfp4_cache(case: Case) -> Iterator[Finding]:
    formats, version = case.plan.quantization, case.plan.release.value
    if formats.kv_cache.value != "nvfp4":
        return
    known = combination("nvfp4_kv_cache_without_fp8_weights", version)
    if formats.weights.value != "fp8" and known is not None:
        yield Finding(
            rule="PF8",
            severity=Severity.WARNING,
            message=f"An NVFP4 KV cache and weights that are not FP8 {known.note} together.",
            compared=f"weights {formats.weights.value}, kv_cache nvfp4; {known.source}",
            suggestion="quantization.kv_cache: fp8",
        )
    variable, known = case.plan.variables.get(KV_SCALES), combination("nvfp4_kv_cache_without_its_variable", version)
    if variable != "1" and known is not None:
        yield Finding(
            rule="PF8",
            severity=Severity.WARNING,
            message=f"An NVFP4 KV cache and an environment without {KV_SCALES} {known.note}.",
            compared=f"{KV_SCALES} is {variable or 'not set'}, wanted 1; {known.source}",
            suggestion=f'environment: {{{KV_SCALES}: "1"}}',
        )


def source_format(case: Case) -> Iterator[Finding]:
    """PF12: the given checkpoint is quantised already; convert reads 16-bit weights, whatever format is asked."""
    method = case.plan.model.quantized_as
    if method is None:
        return
    yield Finding(
        rule="PF12",
        severity=Severity.ERROR,
        message="The model is quantised already, and trtkit converts 16-bit checkpoints.",
        compared=f"quantization_config.quant_method is {method}, wanted none",
        suggestion=plain_weights_advice(case.plan.model),
    )


def exclusions(case: Case) -> Iterator[Finding]:
    """PF32: exclude patterns that name nothing, or that leave nothing to quantise."""
    model, formats = case.plan.model, case.plan.quantization
    patterns = formats.exclude.value
    if formats.weights.value == "bf16":
        return
    idle = idle_patterns(model, patterns)
    if idle:
        kept = ", ".join(pattern for pattern in patterns if pattern not in idle)
        yield Finding(
            rule="PF32",
            severity=Severity.WARNING,
            message="An exclude pattern names no module of the model, so it keeps nothing in 16 bit.",
            compared=f"no module is named by {', '.join(idle)}",
            suggestion=f"quantization.exclude: [{kept}]; modules have names like {_an_example(case)}",
        )
    if not any(quantised_tensors(model, number, patterns) for number in range(len(model.layers))):
        yield Finding(
            rule="PF32",
            severity=Severity.WARNING,
            message="The exclude patterns leave no weight to quantise.",
            compared=f"exclude {', '.join(patterns)}; 0 modules in {formats.weights.value}",
            suggestion="quantization.weights: bf16, or fewer patterns in quantization.exclude",
        )


def calibration_text(case: Case) -> Iterator[Finding]:
    """PF33: the calibration text cannot be read here, so nothing can tell whether it is still the same."""
    asked, formats = case.plan.calibration, case.plan.quantization
    if asked.text is None or asked.text_sha256 is not None or formats.weights.value == formats.kv_cache.value == "bf16":
        return
    yield Finding(
        rule="PF33",
        severity=Severity.WARNING,
        message="The calibration text cannot be read, so trtkit convert will stop, and build and deploy see a drift.",
        compared=f"calibration.text is {asked.text}, which is no UTF-8 file here",
        suggestion="put the text there, or leave calibration.text out for the bundled one",
    )


def _an_example(case: Case) -> str:
    return next(module_of(fact.name) for group in fused_groups(case.plan.model, 0) for fact in group)


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
    Rule(
        "PF7",
        "Weight format against the GPU",
        weight_format,
        keys=("quantization.weights", "hardware", "trtllm_version"),
    ),
    Rule(
        "PF8",
        "KV cache format against the GPU and the model",
        kv_format,
        keys=("quantization.kv_cache", "quantization.weights", "hardware", "trtllm_version"),
    ),
    Rule("PF12", "Format of the given checkpoint", source_format, keys=("quantization.weights",)),
    Rule("PF32", "Exclude patterns against the model", exclusions, keys=("quantization.exclude",)),
    Rule("PF33", "Calibration text", calibration_text, keys=("calibration.text",)),
)
