"""Checks against the TensorRT-LLM release: family, container, toolchain, keys, runtime."""

from __future__ import annotations

from collections.abc import Iterator

from trtllm_kit.findings import Finding, Severity
from trtllm_kit.plan.checks.case import Case, Rule
from trtllm_kit.plan.llm_keys import FIXED_WITHOUT_KEY, LLM_API_KEYS
from trtllm_kit.spec.model import ModelSpec
from trtllm_kit.upstream import known_releases, release
from trtllm_kit.upstream.families import World, family_support
from trtllm_kit.upstream.llm_api import llm_api_key, releases_with_key

KIT_TOOLCHAINS = ("llm-api", "mock")
"""Toolchains this version of trtkit has a row for."""


def family(case: Case) -> Iterator[Finding]:
    """PF13: the release is not known to load the architecture."""
    version, architecture = case.plan.release.value, case.plan.model.architecture
    world: World = "llm-api" if case.plan.toolchain.value == "llm-api" else "trtllm-build"
    support = family_support(architecture, world, version)
    if support is not None and support.certainty == "read":
        return
    loads = [name for name in known_releases() if family_support(architecture, world, name)]
    seen = f"listed for {loads[0]} to {loads[-1]}" if loads else "listed for no release"
    if support is not None:
        message = f"{architecture} is listed for releases beside {version}, not for {version} itself."
    else:
        message = f"Release {version} is not known to load {architecture} through {world}."
    yield Finding(
        rule="PF13",
        severity=Severity.WARNING,
        message=message,
        compared=f"{architecture} through {world}: {seen}",
        suggestion=f"trtllm_version: {loads[-1]}" if loads else "toolchain: llm-api with trtllm_version: 1.2.1",
    )


def container(case: Case) -> Iterator[Finding]:
    """PF19: no Triton container holds the release."""
    known = release(case.plan.release.value)
    if known.images or case.plan.runtime.runtime.value != "tensorrt_llm":
        return
    held = [name for name in known_releases() if release(name).images]
    yield Finding(
        rule="PF19",
        severity=Severity.WARNING,
        message=f"No Triton container holds TensorRT-LLM {known.version}; you have to install it into one.",
        compared=f"containers are known for releases up to {held[-1]}",
        suggestion=f"trtllm_version: {held[-1]}",
    )


def reuse_with_windows(case: Case) -> Iterator[Finding]:
    """PF23: block reuse together with sliding windows, which failed in some releases."""
    window = _shortest_window(case.plan.model)
    if window is None or window >= case.plan.limits.max_seq_len.value:
        return
    if not case.plan.runtime.enable_block_reuse.value:
        return
    yield Finding(
        rule="PF23",
        severity=Severity.WARNING,
        message="Block reuse together with sliding windows failed in releases up to 1.3.0rc11 under load.",
        compared=f"window {window:,}, max_seq_len {case.plan.limits.max_seq_len.value:,}, enable_block_reuse true",
        suggestion="kv_cache.enable_block_reuse: false",
    )


def keys(case: Case) -> Iterator[Finding]:
    """PF24: a setting that the release's LLM API has no key for."""
    if case.plan.toolchain.value != "llm-api":
        return
    version, decided = case.plan.release.value, dict(case.plan.decisions())
    for name, key in LLM_API_KEYS.items():
        fixed, value = FIXED_WITHOUT_KEY.get(name), decided[name].value
        if llm_api_key(version, key) is not None or (fixed is not None and value == fixed):
            continue
        takes = releases_with_key(key)
        yield Finding(
            rule="PF24",
            severity=Severity.ERROR,
            message=f"Release {version} has no LLM-API key {key}, so {name} cannot be set.",
            compared=f"{name} is {value}, {version} always uses {fixed}; the key is in {', '.join(takes) or 'none'}",
            suggestion=f"{_profile_key(name)}: {fixed}, or trtllm_version: {takes[-1] if takes else 'another'}",
        )


def toolchain(case: Case) -> Iterator[Finding]:
    """PF26: the release, or trtkit, does not have the toolchain."""
    chosen, known = case.plan.toolchain.value, release(case.plan.release.value)
    if chosen not in known.toolchains:
        yield Finding(
            rule="PF26",
            severity=Severity.ERROR,
            message=f"Toolchain {chosen} does not exist for release {known.version}.",
            compared=f"{known.version} has {', '.join(known.toolchains)}",
            suggestion="toolchain: auto" if "llm-api" in known.toolchains else "toolchain: mock",
        )
    elif chosen not in KIT_TOOLCHAINS:
        yield Finding(
            rule="PF26",
            severity=Severity.ERROR,
            message=f"Release {known.version} needs engines built with {chosen}, which trtkit does not run.",
            compared=f"trtkit runs {', '.join(KIT_TOOLCHAINS)}",
            suggestion="trtllm_version: 1.2.1, or toolchain: mock to rehearse the engine road",
        )


def runtime(case: Case) -> Iterator[Finding]:
    """PF29: the runtime does not run on that hardware."""
    chosen = case.plan.runtime.runtime.value
    if chosen != "tensorrt_llm" or not case.hardware.is_rehearsal:
        return
    yield Finding(
        rule="PF29",
        severity=Severity.ERROR,
        message="The tensorrt_llm runtime needs an NVIDIA GPU.",
        compared=f"hardware {case.hardware.name} is a {case.hardware.gpu.kind}",
        suggestion="runtime: reference (real text) or runtime: simulated (paced tokens)",
    )


def _shortest_window(model: ModelSpec) -> int | None:
    windows = (layer.attention.window for layer in model.layers if layer.attention.kind == "sliding")
    return min((window for window in windows if window is not None), default=None)


def _profile_key(decision: str) -> str:
    """Return the profile key behind a decision; the runtime's settings stand in two sections of a profile."""
    section, name = decision.split(".")
    if section != "runtime":
        return decision
    return {"scheduler_policy": "scheduler.policy", "chunked_prefill": "scheduler.chunked_prefill"}.get(
        name, f"kv_cache.{name}"
    )


RULES = (
    Rule("PF13", "Architecture known to the release", family),
    Rule("PF19", "Triton container for the release", container),
    Rule("PF23", "Features that fail together", reuse_with_windows),
    Rule("PF24", "Settings the release has a key for", keys),
    Rule("PF26", "Toolchain for the release", toolchain),
    Rule("PF29", "Runtime against the hardware", runtime),
)
