"""Lints a Hugging Face folder: ``config.json``, the index and headers of its weights, and with a profile its plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from trtllm_kit.checkpoint.weight_facts import weight_facts
from trtllm_kit.findings import Finding, Severity
from trtllm_kit.lint.context import Context
from trtllm_kit.lint.report import Located, Read, in_order, located
from trtllm_kit.plan.given.weights import weights
from trtllm_kit.spec.load import beside_target, load_model
from trtllm_kit.spec.model import ModelSpec
from trtllm_kit.upstream.families import family_support
from trtllm_kit.upstream.releases import known_releases

CONFIG, INDEX = "config.json", "model.safetensors.index.json"


def lint_model(folder: Path, kind: str, context: Context) -> Read:
    """Lint a folder; raises what ``load_model`` raises, and the errors of an index that cannot be read."""
    model = load_model(folder)
    release, said_by = context.settle()
    found = [*_weights(folder, model, release), *_rules(folder, model, release, context)]
    shown = {"architecture": model.architecture, "layers": len(model.layers)}
    return Read(kind, release, said_by, shown, in_order(found))


def _weights(folder: Path, model: ModelSpec, release: str) -> Iterator[Located]:
    facts = weight_facts(folder, model)
    if facts is not None:
        file = INDEX if facts.indexed is not None else ""
        yield from located(weights(facts, model, release), file)
    elif (folder / INDEX).exists() or any(folder.glob("*.safetensors")):
        _say_why(folder)


def _say_why(folder: Path) -> None:
    """Read the weights as convert does, which says what is wrong with the index."""
    from trtllm_kit.checkpoint.reader import open_weights

    open_weights(folder)


def _rules(folder: Path, model: ModelSpec, release: str, context: Context) -> Iterator[Located]:
    """Yield what a plan of the profile says, or without one whether the release loads the architecture."""
    if context.loaded is None or context.hardware is None:
        yield from located(_family(model.architecture, release), CONFIG)
        return
    from trtllm_kit.plan.decide import make_plan

    profile = context.loaded.profile.model_copy(update={"trtllm_version": release})
    loaded = beside_target(replace(context.loaded, profile=profile), folder)
    yield from located(make_plan(model, loaded, context.hardware).findings, "")


def _family(architecture: str, release: str) -> Iterator[Finding]:
    """PF13: an architecture that no list of the release names, for the LLM API or for engines."""
    if any(family_support(architecture, world, release) for world in ("llm-api", "trtllm-build")):
        return
    loads = [name for name in known_releases() if family_support(architecture, "llm-api", name)]
    yield Finding(
        rule="PF13",
        severity=Severity.WARNING,
        message=f"Release {release} is not known to load {architecture}.",
        compared=f"{architecture}: {f'listed for {loads[0]} to {loads[-1]}' if loads else 'listed for no release'}; "
        "not confirmed for this release",
        suggestion=f"--trtllm-version {loads[0]}" if loads else "another model: no release lists this one",
    )
