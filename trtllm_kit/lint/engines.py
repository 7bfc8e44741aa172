"""Lints an engine folder, whoever built it: ``config.json``, a file for each rank, and where it is to run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from trtllm_kit.artifact import MANIFEST
from trtllm_kit.errors import NotLinted
from trtllm_kit.findings import Finding
from trtllm_kit.lint.context import Context
from trtllm_kit.lint.read import read_json, sizes_in
from trtllm_kit.lint.report import Located, Read, in_order, located
from trtllm_kit.plan.given.engines import files, lengths, plugin_types, request, reuse, serving
from trtllm_kit.plan.given.facts import EngineFacts, LaunchFacts, ServingFacts, engine_facts
from trtllm_kit.plan.given.launches import launch

if TYPE_CHECKING:
    from trtllm_kit.spec.profile import DeployProfile

CONFIG = "config.json"
PARTS = ("encoder", "decoder", "draft")
"""Folders of further engines: of an encoder-decoder model, and of a draft model that trtkit built."""
_ENGINE = re.compile(r"rank\d+\.engine")


def lint_engine(folder: Path, kind: str, context: Context) -> Read:
    """Lint an engine folder; raises ``NotLinted`` and ``StorageError``."""
    engines = {part: read_engine(folder / part) for part in ("", *PARTS) if holds_engine(folder / part)}
    versions = [engine.version for engine in engines.values() if engine.version]
    release, said_by = context.settle(next(iter(versions), None))
    found = [one for part, engine in engines.items() for one in engine_findings(engine, part, release, context)]
    facts = {
        "engines": len(engines),
        "built with": ", ".join(dict.fromkeys(versions)) or "a release that config.json does not state",
        "ranks": ", ".join(str(engine.ranks) for engine in engines.values()),
    }
    return Read(kind, release, said_by, facts, in_order(found))


def holds_engine(folder: Path) -> bool:
    """Whether a folder holds an engine, or a part of one."""
    if not folder.is_dir():
        return False
    return (folder / CONFIG).is_file() or any(_ENGINE.fullmatch(path.name) for path in folder.glob("rank*.engine"))


def read_engine(folder: Path) -> EngineFacts:
    """Return what an engine folder says of itself; raises ``NotLinted`` and ``StorageError``."""
    config = read_json(folder / CONFIG) if (folder / CONFIG).exists() else None
    engine = engine_facts(config, sizes_in(folder, ".engine"))
    return replace(engine, compute_capability=_capability(folder))


def engine_findings(
    engine: EngineFacts, part: str, release: str, context: Context, *, reuses: bool = True
) -> Iterator[Located]:
    """Yield what the rules say of an engine; ``part`` is its folder inside what was given.

    ``reuses`` is whether the profile decides what is reused; the parameters of a Triton model do it otherwise.
    """
    config = f"{part}/{CONFIG}" if part else CONFIG
    yield from located(files(engine), part)
    if not engine.config:
        return
    yield from located(serving(engine, _where(release, context)), config)
    yield from located(plugin_types(engine, release), config)
    yield from located(lengths(engine, release, _free(engine, context)), config)
    if context.loaded is not None and part != "draft":
        yield from located(_asked(engine, release, context, context.loaded.profile, reuses=reuses), config)


def _asked(
    engine: EngineFacts, release: str, context: Context, profile: DeployProfile, *, reuses: bool
) -> Iterator[Finding]:
    """Yield what does not go with the profile: its ranks, its requests, the reuse it wants."""
    if context.ranks is not None:
        yield from launch(LaunchFacts(release, ranks=context.ranks, wanted_ranks=engine.ranks))
    yield from reuse(
        engine,
        release,
        wants_reuse=reuses and profile.kv_cache.enable_block_reuse,
        wants_chunks=reuses and profile.scheduler.chunked_prefill,
    )
    drafts = profile.speculation.draft_tokens if profile.speculation else 0
    beams = profile.limits.max_beam_width
    yield from request(engine, release, beams=beams, drafts=drafts, prompt=profile.load.input_tokens)


def _where(release: str, context: Context) -> ServingFacts:
    gpu = context.hardware.gpu if context.hardware is not None else None
    capability = gpu.compute_capability if gpu is not None and gpu.kind == "gpu" else None
    return ServingFacts(release, compute_capability=capability)


def _free(engine: EngineFacts, context: Context) -> float | None:
    """Return what the largest rank's file leaves of a GPU, bytes; None where no machine is known."""
    gpu = context.hardware.gpu if context.hardware is not None else None
    if gpu is None or gpu.kind != "gpu" or not engine.files:
        return None
    return gpu.memory_bytes.value - max(engine.files.values())


def _capability(folder: Path) -> int | None:
    """Return the GPU that an engine of trtkit's was built for; nobody else's folder says it."""
    if not (folder / MANIFEST).is_file():
        return None
    try:
        facts = read_json(folder / MANIFEST).get("facts")
    except NotLinted:
        return None
    found = facts.get("compute_capability") if isinstance(facts, dict) else None
    return found if isinstance(found, int) and found > 0 else None
