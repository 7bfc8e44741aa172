"""Checks against the TensorRT-LLM release: family, container, toolchain, keys, combinations."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from trtllm_kit.findings import Finding, Severity
from trtllm_kit.plan.checks import built, llm_options
from trtllm_kit.plan.checks.case import Case, Rule
from trtllm_kit.plan.given.finding import of_failure
from trtllm_kit.plan.llm_keys import LLM_API_KEYS, Setting, settings_of, spelt
from trtllm_kit.plan.plan import profile_key
from trtllm_kit.spec.model import Experts
from trtllm_kit.upstream import known_releases, nearest_release, release
from trtllm_kit.upstream.combinations import combination
from trtllm_kit.upstream.failures import failure
from trtllm_kit.upstream.families import World, family_support, unlisted
from trtllm_kit.upstream.llm_api import llm_api_key, releases_read, releases_with_key, value_without_key

KIT_TOOLCHAINS = ("llm-api", "trtllm-build", "mock")
"""Toolchains this version of trtkit has a row for."""


def family(case: Case) -> Iterator[Finding]:
    """PF13: the release is not known to load the architecture."""
    version, architecture = case.plan.release.value, case.plan.model.architecture
    world = _world(case)
    support = family_support(architecture, world, version)
    if support is not None and support.certainty == "read":
        return
    loads = [name for name in known_releases() if family_support(architecture, world, name)]
    seen = f"listed for {loads[0]} to {loads[-1]}" if loads else _nowhere(architecture, world)
    if support is not None and support.read_in:
        severity, seen = Severity.INFO, f"read in {', '.join(support.read_in)}"
        message = f"{architecture} is listed by releases beside {version}; its own list was not read."
    elif support is not None:
        severity, message = Severity.WARNING, f"{architecture} is not listed for {version} by this very name."
    else:
        severity = Severity.WARNING
        message = f"Release {version} is not known to load {architecture} through {world}."
    yield Finding(
        rule="PF13",
        severity=severity,
        message=message,
        compared=f"{architecture} through {world}: {seen}",
        suggestion=_family_advice(case, world) if support is None else "nothing to do but to try it",
    )


def container(case: Case) -> Iterator[Finding]:
    """PF19: no Triton container holds the release, or the one that builds the engine holds another TensorRT."""
    yield from built.image(case)
    known, chosen = release(case.plan.release.value), case.plan.toolchain.value
    if known.images or case.plan.runtime.runtime.value != "tensorrt_llm":
        return
    nearest = nearest_release(known.version, lambda name: bool(release(name).images) and _makes(name, chosen))
    yield Finding(
        rule="PF19",
        severity=Severity.WARNING,
        message=f"No Triton container holds TensorRT-LLM {known.version}; you have to install it into one.",
        compared=f"{known.version} is in no container, {nearest} is the nearest that is in one",
        suggestion=f"trtllm_version: {nearest}",
    )


def together(case: Case) -> Iterator[Finding]:
    """PF23: features that fail together, or that nobody tested together, in the release."""
    if case.plan.toolchain.value == "llm-api":
        yield from _reuse_with_windows(case)
        yield from _chunks_with_stages(case)
        yield from _format_of_family(case)
    elif case.plan.toolchain.value == "trtllm-build":
        yield from _rows_of_experts(case)
        yield from built.reuse(case)


def _reuse_with_windows(case: Case) -> Iterator[Finding]:
    version, longest = case.plan.release.value, case.plan.limits.max_seq_len.value
    window = min(case.plan.runtime.max_attention_window.value, default=None)
    known = combination("block_reuse_with_sliding_window", version)
    if window is None or window >= longest or not case.plan.runtime.enable_block_reuse.value or known is None:
        return
    yield Finding(
        rule="PF23",
        severity=Severity.WARNING,
        message=f"Block reuse and sliding windows together {known.note} in release {version}.",
        compared=f"window {window:,}, max_seq_len {longest:,}, enable_block_reuse true",
        suggestion="kv_cache.enable_block_reuse: false",
    )


def _chunks_with_stages(case: Case) -> Iterator[Finding]:
    version, load, limits = case.plan.release.value, case.profile.load, case.profile.limits
    known = combination("chunked_prefill_with_pipeline", version)
    if case.split.pipeline == 1 or not case.plan.runtime.chunked_prefill.value or known is None:
        return
    longer = f", limits.max_num_tokens: {load.input_tokens}" if load.input_tokens > limits.max_num_tokens else ""
    yield Finding(
        rule="PF23",
        severity=Severity.WARNING,
        message=f"Chunked prefill and pipeline stages together {known.note} in release {version}.",
        compared=f"pipeline {case.split.pipeline}, chunked_prefill true",
        suggestion=f"scheduler.chunked_prefill: false{longer}",
    )


def _format_of_family(case: Case) -> Iterator[Finding]:
    """Yield a number format that the release was seen to stop at in models of that architecture."""
    version, architecture = case.plan.release.value, case.plan.model.architecture
    known = failure("packed_awq_scales", version)
    formats = case.plan.quantization.formats.used
    if known is None or architecture not in known.architectures or not set(formats) & set(known.formats):
        return
    yield of_failure(
        "PF23",
        known,
        f"{' and '.join(known.formats)} weights of {architecture} {known.note} in releases like {version}.",
        f"quantization.weights {' and '.join(formats)}, {architecture}",
        "quantization.weights: fp8",
    )


def _rows_of_experts(case: Case) -> Iterator[Finding]:
    """Yield FP8 by row for experts, which engines were not made for."""
    known = failure("rowwise_experts", case.plan.release.value)
    routed = any(isinstance(layer.feed_forward, Experts) for layer in case.plan.model.layers)
    if known is None or not routed or "fp8_rowwise" not in case.plan.quantization.formats.used:
        return
    yield of_failure(
        "PF23",
        known,
        f"Scales by row for experts {known.note} in releases like {case.plan.release.value}.",
        "quantization.weights fp8_rowwise, a model with experts",
        "quantization.weights: fp8",
    )


def keys(case: Case) -> Iterator[Finding]:
    """PF24: a setting that the release's LLM API has no key for, and keys of it that the profile names."""
    yield from llm_options.options(case)
    if case.plan.toolchain.value != "llm-api":
        return
    version, decided = case.plan.release.value, dict(case.plan.decisions())
    yield from _settings(case)
    for name, key in LLM_API_KEYS.items():
        fixed, value = value_without_key(version, key), decided[name].value
        if llm_api_key(version, key) is not None or (fixed is not None and value == fixed):
            continue
        nearest = nearest_release(version, partial(_has_key, key))
        known = "what it does is not known" if fixed is None else f"{version} always uses {fixed}"
        ways = [] if fixed is None else [f"{profile_key(name)}: {fixed}"]
        ways += [f"trtllm_version: {nearest}"] if nearest else []
        severity, message = _without(version, key, name)
        yield Finding(
            rule="PF24",
            severity=severity,
            message=message,
            compared=f"{name} is {value}, {known}; the key is in {', '.join(releases_with_key(key)) or 'none'}",
            suggestion=", or ".join(ways) or "another release",
        )


def _settings(case: Case) -> Iterator[Finding]:
    """Yield what is written only where it is asked for, and the release has no key or no such value for."""
    version = case.plan.release.value
    for setting, value in settings_of(case.plan):
        name, key = profile_key(setting.decision), llm_api_key(version, setting.key)
        if key is None:
            yield _no_key(setting, name, value, version)
        elif key.allowed and value not in key.allowed:
            surely = key.certainty == "read"
            yield Finding(
                rule="PF24",
                severity=Severity.ERROR if surely else Severity.WARNING,
                message=f"Release {version} {'has' if surely else 'is known to have'} no value {value} for "
                f"{setting.key}.",
                compared=f"{name} becomes {value}; {setting.key} takes {', '.join(map(str, key.allowed))}",
                suggestion=f"{name}: {spelt(setting.quiet)}",
            )


def _no_key(setting: Setting, name: str, value: object, version: str) -> Finding:
    nearest = nearest_release(version, partial(_has_key, setting.key))
    newer = f", or trtllm_version: {nearest}" if nearest else ""
    severity, message = _without(version, setting.key, name)
    return Finding(
        rule="PF24",
        severity=severity,
        message=message,
        compared=f"{name} is {value}; the key is in {', '.join(releases_with_key(setting.key)) or 'none'}",
        suggestion=f"{name}: {spelt(setting.quiet)}{newer}",
    )


def _without(version: str, key: str, name: str) -> tuple[Severity, str]:
    """Say that a release has no key: surely only where its own keys were read."""
    if version in releases_read():
        return Severity.ERROR, f"Release {version} has no LLM-API key {key}, so {name} cannot be set."
    return Severity.WARNING, f"Release {version} is not known to have LLM-API key {key}, so {name} is left out."


def toolchain(case: Case) -> Iterator[Finding]:
    """PF26: the release does not have the toolchain."""
    chosen, known = case.plan.toolchain.value, release(case.plan.release.value)
    if chosen not in known.toolchains:
        yield Finding(
            rule="PF26",
            severity=Severity.ERROR,
            message=f"Toolchain {chosen} does not exist for release {known.version}.",
            compared=f"{known.version} has {', '.join(known.toolchains)}",
            suggestion="toolchain: auto" if "llm-api" in known.toolchains else "toolchain: mock",
        )


def _world(case: Case) -> World:
    return "llm-api" if case.plan.toolchain.value == "llm-api" else "trtllm-build"


def _nowhere(architecture: str, world: World) -> str:
    """Say that no release lists the architecture, and which lists were read for it."""
    looked_for = unlisted(architecture) if world == "llm-api" else None
    if looked_for is None:
        return "listed for no release"
    return f"in none of the lists that were read, of {', '.join(looked_for.read_in)}"


def _makes(version: str, toolchain: str) -> bool:
    return toolchain in release(version).toolchains


def _has_key(key: str, version: str) -> bool:
    return _makes(version, "llm-api") and llm_api_key(version, key) is not None


def _family_advice(case: Case, world: World) -> str:
    """Return the nearest release that loads the architecture the same way, else the other way."""
    version, architecture = case.plan.release.value, case.plan.model.architecture
    nearest = nearest_release(version, lambda name: family_support(architecture, world, name) is not None)
    if nearest is not None:
        return f"trtllm_version: {nearest}"
    if family_support(architecture, "llm-api", version) is not None:
        return "toolchain: llm-api"
    other = nearest_release(version, lambda name: family_support(architecture, "llm-api", name) is not None)
    return f"toolchain: llm-api with trtllm_version: {other}" if other else "another model: no release lists this one"


RULES = (
    Rule("PF13", "Architecture known to the release", family, keys=("trtllm_version", "toolchain")),
    Rule("PF19", "Triton container for the release", container, keys=("trtllm_version", "runtime", "build.image")),
    Rule(
        "PF23",
        "Features that fail, or are untested, together",
        together,
        keys=(
            "kv_cache.enable_block_reuse",
            "kv_cache.max_attention_window",
            "limits.max_seq_len",
            "scheduler.chunked_prefill",
            "parallelism.pipeline",
            "quantization.weights",
            "trtllm_version",
        ),
    ),
    Rule(
        "PF24",
        "Settings the release has a key for",
        keys,
        keys=("engine", "kv_cache", "scheduler", "parallelism", "quantization.kv_cache", "llm_api", "trtllm_version"),
    ),
    Rule("PF26", "Toolchain for the release", toolchain, keys=("toolchain", "trtllm_version")),
)
