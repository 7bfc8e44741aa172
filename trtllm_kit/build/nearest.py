"""Whether an engine that is there is the one asked for, field by field, and which of a store comes nearest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trtllm_kit.artifact import Manifest
from trtllm_kit.build.differences import Difference, Origin, differences
from trtllm_kit.build.store import Entry, Store
from trtllm_kit.checkpoint.plan_file import read_stored_plan
from trtllm_kit.errors import ManifestError
from trtllm_kit.plan.plan import Plan
from trtllm_kit.spec.hardware import Hardware
from trtllm_kit.spec.profile import DeployProfile
from trtllm_kit.upstream.releases import release

_NOT_SAID = "not recorded"
_LIMITS = ("max_batch_size", "max_num_tokens", "max_seq_len", "max_beam_width")


def origin_of(folder: Path, manifest: Manifest) -> Origin:
    """Return what an engine of ours was made of; raises ``ManifestError``."""
    driver = manifest.facts.get("driver")
    return Origin(read_stored_plan(folder), manifest.inputs, driver, manifest.kit_version)


def asked_of(plan: Plan, manifest: Manifest, driver: str | None, kit_version: str) -> Origin:
    """Return what a plan asks for from the inputs of an engine that is there."""
    return Origin(plan, manifest.inputs, driver, kit_version)


def nearest(store: Store, asked: Origin) -> tuple[Entry, tuple[Difference, ...]] | None:
    """Return the engine of the same model that differs in the fewest fields, and the fields; None when there is none.

    Of equally near ones the one used last.
    """
    found: list[tuple[Entry, tuple[Difference, ...]]] = []
    for entry in store.entries():
        try:
            there = origin_of(entry.folder, entry.manifest)
        except ManifestError:
            continue  # of a trtkit whose plans this one cannot read
        if there.plan.model == asked.plan.model:
            found.append((entry, differences(there, asked)))
    return min(found, key=lambda one: len(one[1]), default=None)


def sentence(found: tuple[Difference, ...], most: int = 3) -> str:
    """Say what stands between an engine that is there and the one asked for."""
    first, *rest = found or (Difference("plan", "another", "its own"),)
    more = f"; and {len(rest) - most + 1} more" if len(rest) >= most else ""
    others = "".join(f"; {one}" for one in rest[: most - 1])
    return f"an engine is there for {first.field} {first.there}, this asks {first.asked}{others}{more}"


def profile_differences(told: Mapping[str, Any], asked: DeployProfile, hardware: Hardware) -> tuple[Difference, ...]:
    """Compare what anyone's engine tells (``explain``) with a profile; what it does not tell is a difference too."""
    pairs = _pairs(told, asked, hardware)
    return tuple(Difference(name, str(there), str(wanted)) for name, there, wanted in pairs if there != wanted)


def _pairs(told: Mapping[str, Any], asked: DeployProfile, hardware: Hardware) -> Iterator[tuple[str, object, object]]:
    runs_on, limits = told["runs_on"], told.get("limits", {})
    yield "release", runs_on["release"], release(asked.trtllm_version).version
    yield "compute_capability", _NOT_SAID, hardware.gpu.compute_capability
    split = runs_on.get("split", {})
    yield "parallelism.pipeline", split.get("pp_size", 1), asked.parallelism.pipeline
    yield "parallelism.context", split.get("cp_size", 1), asked.parallelism.context
    if asked.parallelism.tensor != "auto":
        yield "parallelism.tensor", split.get("tp_size", 1), asked.parallelism.tensor
    for name in _LIMITS:
        yield f"limits.{name}", limits.get(name, _NOT_SAID), getattr(asked.limits, name)
