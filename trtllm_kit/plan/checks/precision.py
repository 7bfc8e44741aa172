"""Checks of number formats against the GPU, the model and each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from trtllm_kit.findings import Finding, Severity
from trtllm_kit.plan.checks.case import Case, Rule
from trtllm_kit.plan.formats import Formats
from trtllm_kit.plan.quantization import fused_groups, idle_patterns, module_of, tensor_formats
from trtllm_kit.spec.profile_formats import PartFormat
from trtllm_kit.upstream import nearest_release, release
from trtllm_kit.upstream.combinations import combination
from trtllm_kit.upstream.precision import Part, formats_for, precision
from trtllm_kit.upstream.quant_algos import quant_algo

KV_SCALES = "TRTLLM_LOAD_KV_SCALES"
"""Variable of the server process that lets it read the KV scales of a checkpoint."""
_KEYS: dict[Part, str] = {"weights": "quantization.weights", "kv_cache": "quantization.kv_cache"}


def weight_format(case: Case) -> Iterator[Finding]:
    """PF7: the release, or the GPU, does not compute in the weights' format."""
    formats = case.plan.quantization.formats
    for chosen in formats.used or ("bf16",):
        unknown = list(_in_release(case, chosen))
        yield from unknown or _on_gpu(case, "PF7", "weights", chosen)


def _in_release(case: Case, chosen: PartFormat) -> Iterator[Finding]:
    """Yield that a release is not known to run a format in the plan's layout."""
    if chosen == "bf16" or case.hardware.is_rehearsal:
        return
    version, layout = case.plan.release.value, case.plan.layout.value
    known = quant_algo(chosen, layout, version)
    if known.in_release:
        return
    chain = case.plan.toolchain.value
    able = nearest_release(
        version, lambda name: chain in release(name).toolchains and quant_algo(chosen, layout, name).in_release
    )
    newer = f"trtllm_version: {able}, or " if able else ""
    yield Finding(
        rule="PF7",
        severity=Severity.WARNING,
        message=f"Release {version} is not known to run {chosen} weights of layout {layout}.",
        compared=f"{known.algo}{f', and {known.note}' if known.note else ''}; {known.source}",
        suggestion=f"{newer}{case.with_formats('quantization.weights: fp8')}",
    )


def kv_format(case: Case) -> Iterator[Finding]:
    """PF8: the GPU does not take the KV cache's format, or the model loses by it."""
    chosen, formats = case.plan.quantization.kv_cache.value, case.plan.quantization.formats
    yield from _on_gpu(case, "PF8", "kv_cache", chosen)
    if chosen in ("fp8", "int8") and not formats.quantises and case.plan.layout.value == "unified_hf":
        yield Finding(
            rule="PF8",
            severity=Severity.WARNING,
            message=f"Only a checkpoint with quantised weights carries KV scales, so this {chosen.upper()} KV cache "
            "has scale 1.",
            compared=f"weights {formats.weights}, kv_cache {chosen}",
            suggestion="quantization.weights: fp8, or quantization.kv_cache: bf16",
        )
    yield from _nvfp4_cache(case)
    yield from _with_cache(case, "fp8_kv_cache_with_qwen2", case.plan.model.family == "qwen2" and chosen == "fp8")
    reuses = case.plan.runtime.enable_block_reuse.value and case.plan.layout.value == "tensorrt_llm"
    yield from _with_cache(case, "int8_kv_cache_with_block_reuse", chosen == "int8" and reuses)
    yield from _with_cache(case, "fp8_kv_cache_with_w4a8_on_ada", chosen == "fp8" and _has_w4a8(formats))


def _has_w4a8(formats: Formats) -> bool:
    return "w4a8_awq" in formats.used


def _with_cache(case: Case, name: KvCombination, applies: bool) -> Iterator[Finding]:
    """Yield what is known of a KV cache format together with something else, where both are asked for."""
    known = combination(name, case.plan.release.value)
    if not applies or known is None or known.capability not in (None, case.plan.compute_capability):
        return
    what, compared, suggestion = _TOGETHER[name]
    asked = {"family": case.plan.model.family, "weights": case.plan.quantization.weights.value}
    yield Finding(
        rule="PF8",
        severity=Severity.ERROR
        if known.certainty == "read" and name == "int8_kv_cache_with_block_reuse"
        else Severity.WARNING,
        message=f"{what} together {known.note}.",
        compared=compared.format(**asked),
        suggestion=suggestion,
    )


KvCombination = Literal["fp8_kv_cache_with_qwen2", "int8_kv_cache_with_block_reuse", "fp8_kv_cache_with_w4a8_on_ada"]
_TOGETHER: dict[KvCombination, tuple[str, str, str]] = {
    "fp8_kv_cache_with_qwen2": (
        "Qwen2 models, whose keys have outliers, and an FP8 KV cache",
        "family {family}, kv_cache fp8",
        "quantization.kv_cache: bf16, or read the quality report in the manifest of convert",
    ),
    "int8_kv_cache_with_block_reuse": (
        "An INT8 KV cache and block reuse",
        "kv_cache int8, enable_block_reuse true",
        "kv_cache.enable_block_reuse: false",
    ),
    "fp8_kv_cache_with_w4a8_on_ada": (
        "W4A8 weights and an FP8 KV cache on compute capability 8.9",
        "weights {weights}, kv_cache fp8",
        "quantization.kv_cache: bf16",
    ),
}
"""What is said of each: the two, the numbers, and one thing to try."""


def _nvfp4_cache(case: Case) -> Iterator[Finding]:
    formats, version = case.plan.quantization.formats, case.plan.release.value
    if formats.kv_cache != "nvfp4":
        return
    known = combination("nvfp4_kv_cache_without_fp8_weights", version)
    if "fp8" not in formats.used and known is not None:
        yield Finding(
            rule="PF8",
            severity=Severity.WARNING,
            message=f"An NVFP4 KV cache and weights that are not FP8 {known.note} together.",
            compared=f"weights {formats.weights}, kv_cache nvfp4; {known.source}",
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


def exclusions(case: Case) -> Iterator[Finding]:
    """PF32: exclude patterns that name nothing, or that leave nothing to quantise."""
    model, formats = case.plan.model, case.plan.quantization.formats
    patterns = formats.exclude
    if not formats.quantises or formats.passed_through:
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
    if not any(tensor_formats(model, number, formats) for number in range(len(model.layers))):
        yield Finding(
            rule="PF32",
            severity=Severity.WARNING,
            message="The exclude patterns leave no weight to quantise.",
            compared=f"exclude {', '.join(patterns)}; 0 modules in {' and '.join(formats.used)}",
            suggestion="quantization.weights: bf16, or fewer patterns in quantization.exclude",
        )


def calibration_text(case: Case) -> Iterator[Finding]:
    """PF33: the calibration text cannot be read here, so nothing can tell whether it is still the same."""
    asked, formats = case.plan.calibration, case.plan.quantization.formats
    needless = not formats.calibrates and formats.kv_cache == "bf16"
    if asked.text is None or asked.text_sha256 is not None or needless:
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
    layout = case.plan.layout.value
    known = precision(part, chosen, version, layout)
    if known is not None and capability in known.capabilities:
        return
    takes = ", ".join(str(entry) for entry in known.capabilities) if known else "no GPU"
    certain = known is not None and known.certainty == "read"
    usable = formats_for(part, capability, version, layout)
    nearest = next((name for name in ("fp8", "bf16") if name in usable and name != chosen), None)
    yield Finding(
        rule=rule,
        severity=Severity.ERROR if certain else Severity.WARNING,
        message=f"{case.plan.gpu} does not take {chosen} for the {part.replace('_', ' ')} in release {version}.",
        compared=f"compute capability {capability}; {chosen} runs on {takes}",
        suggestion=case.with_formats(f"{_KEYS[part]}: {nearest}") if nearest else "choose hardware with a newer GPU",
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
    Rule("PF32", "Exclude patterns against the model", exclusions, keys=("quantization.exclude",)),
    Rule("PF33", "Calibration text", calibration_text, keys=("calibration.text",)),
)
