"""Checks of how ``trtllm-build`` is run: its options against the release, the model, the GPU and each other."""

from __future__ import annotations

from collections.abc import Iterator

from trtllm_kit.findings import Finding, Severity
from trtllm_kit.plan.build_options import largest_rank, words
from trtllm_kit.plan.checks.case import Case, Rule
from trtllm_kit.plan.plan import BuildPlan
from trtllm_kit.plan.settle_build import CONTAINERS, PLACES
from trtllm_kit.upstream import known_releases, nearest_release, release
from trtllm_kit.upstream.builder import Conflict, conflicts, mode_bounds
from trtllm_kit.upstream.facts import Certainty
from trtllm_kit.upstream.speculation import builder_kinds, decoding_type
from trtllm_kit.upstream.trtllm_build import (
    build_flag,
    build_flags,
    gone_flag,
    near_build_flag,
    releases_with_build_flag,
)

_UNSURE = " (not confirmed for this release)"


def options(case: Case) -> Iterator[Finding]:
    """PF41: options of trtllm-build that the release does not take, or not together."""
    build = case.plan.build
    if build is None:
        return
    for name, value in case.profile.build.options.items():
        yield from _one(case, f"--{name}", value)
    yield from _together(case, build)
    yield from _drafts(case, build)
    yield from _adapters(case, build)
    if build.runner.value in CONTAINERS and build.image is None:
        version = case.plan.release.value
        held = nearest_release(version, lambda name: bool(release(name).images and build_flags(name)))
        yield _found(
            Severity.ERROR,
            f"No container is known to hold release {version}.",
            f"build.runner {build.runner.value}, no build.image",
            f"build.image: one of yours, or trtllm_version: {held}, or build.runner: local",
        )


def _one(case: Case, name: str, value: object) -> Iterator[Finding]:
    """Yield what is wrong with one option that the profile sets."""
    version, key = case.plan.release.value, f"build.options.{name.removeprefix('--')}"
    if name in PLACES:
        compared = f"{key} is {value}; trtkit sets it, or needs the engine it would leave out"
        yield _found(Severity.ERROR, f"{key} cannot be set.", compared, f"leave {key} out")
        return
    flag = build_flag(version, name)
    if flag is None:
        yield _unknown(version, name, key)
    elif not flag.accepts(value if isinstance(value, bool | int | str | tuple) else str(value)):
        near = flag.nearest(value if isinstance(value, bool | int | str | tuple) else str(value))
        yield _found(
            _severity(flag.certainty),
            f"trtllm-build of {version} does not take that value of {flag.flag}{_doubt(flag.certainty)}.",
            f"{key} is {_spelt(value)}; it takes {flag.values}",
            f"{key}: {near}" if near else f"leave {key} out",
        )


def _spelt(value: object) -> str:
    """Spell a value as the profile does."""
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _unknown(version: str, name: str, key: str) -> Finding:
    """Say that the release has no such option: surely only where its own options were read."""
    read_in = {one for row in build_flags(version) for one in row.read_in}
    certainty: Certainty = "read" if version in read_in else "near"
    gone, near = gone_flag(version, name), near_build_flag(version, name)
    having = releases_with_build_flag(name, known_releases())
    instead = f"{gone.instead} takes its place" if gone else f"{', '.join(having) or 'no release'} has it"
    advice = f"leave {key} out"
    if near and not gone and not having:
        advice = f"build.options.{near.removeprefix('--')}, which is near"
    elif having and not gone:
        advice += f", or trtllm_version: {having[0]}"
    left_out = "" if certainty == "read" else ", so it is left out"
    return _found(
        _severity(certainty),
        f"trtllm-build of {version} has no option {name}{left_out}{_doubt(certainty)}.",
        f"{key} is set; {instead}",
        advice,
    )


def _together(case: Case, build: BuildPlan) -> Iterator[Finding]:
    values = {name: decided.value for name, decided in build.options.items()}
    for row in conflicts(case.plan.release.value):
        if row.matches(values) and _concerns(case, row):
            shown = ", ".join(f"{name.removeprefix('--')} {values.get(name, 0)}" for name in row.when)
            compared = f"{shown}; {_facts(case)}"
            yield _found(_severity(row.certainty), row.note, compared, row.advice)


def _concerns(case: Case, row: Conflict) -> bool:
    plan = case.plan
    algo = plan.quantization.algo.value if plan.quantization.algo else None
    if row.formats and algo not in row.formats:
        return False
    if algo in row.unless_formats or plan.model.architecture in row.unless_architectures:
        return False
    if row.caches and plan.quantization.kv_cache.value not in row.caches:
        return False
    return row.capability is None or row.capability[0] <= plan.compute_capability < row.capability[1]


def _facts(case: Case) -> str:
    plan = case.plan
    weights, cache = plan.quantization.weights.value, plan.quantization.kv_cache.value
    return (
        f"{weights} weights, {cache} KV cache, {plan.model.architecture}, compute capability {plan.compute_capability}"
    )


def _drafts(case: Case, build: BuildPlan) -> Iterator[Finding]:
    """Yield kinds of speculation that engines do not know, and what a mode bounds."""
    version, speculation = case.plan.release.value, case.plan.speculation
    mode = build.options.get("--speculative_decoding_mode")
    kinds = builder_kinds(version)
    if speculation is not None and speculation.kind.value not in kinds and mode is None:
        yield _found(
            Severity.ERROR,
            f"Engines of {version} have no speculation of kind {speculation.kind.value}.",
            f"toolchain trtllm-build; it drafts with {', '.join(kinds)}",
            "speculation.kind: draft_target"
            + (", or toolchain: llm-api" if decoding_type(speculation.kind.value, version) else ""),
        )
    for row in mode_bounds(str(mode.value), version) if mode else ():
        found = build.options.get(row.option)
        if found is not None and isinstance(found.value, int) and found.value > row.most:
            name = row.option.removeprefix("--")
            yield _found(
                _severity(row.certainty),
                f"Mode {row.mode} takes {name} up to {row.most:,}{_doubt(row.certainty)}.",
                f"{name} is {found.value:,}",
                f"{'limits' if name == 'max_batch_size' else 'build.options'}.{name}: {row.most}",
            )


def _adapters(case: Case, build: BuildPlan) -> Iterator[Finding]:
    """Yield adapters that the builder would look for in its own folder, or whose rank is larger than asked."""
    places = words(case.profile.build.options.get("lora_dir"))
    relative = [place for place in places if not place.startswith("/")]
    if relative:
        yield _found(
            Severity.ERROR,
            "The builder runs in the engine's folder, where it finds no adapters by a relative path.",
            f"build.options.lora_dir names {', '.join(relative)}",
            "build.options.lora_dir with absolute paths",
        )
    most, adapters = build.options.get("--max_lora_rank"), case.loaded.adapters
    if most is not None and isinstance(most.value, int) and adapters and most.value < largest_rank(adapters):
        largest = max(adapters, key=lambda one: one.rank)
        yield _found(
            Severity.WARNING,
            f"An adapter has a larger rank than the engine is built for{_UNSURE}.",
            f"r {largest.rank} of {largest.folder}, max_lora_rank {most.value}",
            f"build.options.max_lora_rank: {largest.rank}",
        )


def _severity(certainty: Certainty) -> Severity:
    return Severity.ERROR if certainty == "read" else Severity.WARNING


def _doubt(certainty: Certainty) -> str:
    return "" if certainty == "read" else _UNSURE


def _found(severity: Severity, message: str, compared: str, suggestion: str) -> Finding:
    return Finding(rule="PF41", severity=severity, message=message, compared=compared, suggestion=suggestion)


RULES = (
    Rule(
        "PF41",
        "Options of trtllm-build",
        options,
        keys=("build", "speculation.kind", "speculation.draft_tokens", "quantization", "trtllm_version", "toolchain"),
    ),
)
