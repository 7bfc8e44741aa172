"""From rank files back to a Hugging Face folder, streamed: checked first, complete or absent, resumable."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trtllm_kit.artifact import Manifest, read_manifest
from trtllm_kit.checkpoint.brought_back import Brought, bring_back
from trtllm_kit.checkpoint.brought_scales import require_agreement
from trtllm_kit.checkpoint.given_ranks import read_small
from trtllm_kit.checkpoint.header import changed
from trtllm_kit.checkpoint.identity import identify
from trtllm_kit.checkpoint.layout import SHARD_BYTES, half_format
from trtllm_kit.checkpoint.shards import Shards, require_room, write_files
from trtllm_kit.progress import Progress
from trtllm_kit.staging import LOCK_SECONDS, require_apart, staged

_SUMMARY = ("architecture", "weights", "kv_cache", "tensors", "weight_bytes", "weight_files", "from")


@dataclass(frozen=True)
class Migrated:
    """A finished Hugging Face folder."""

    manifest: Manifest
    report: dict[str, Any]
    up_to_date: bool
    """It was there already, made of the same rank files."""
    resumed: bool = False
    """It went on with the files of a run that had been interrupted."""


def decide(folder: Path, tokenizer: Path | None = None, shard_bytes: int = SHARD_BYTES) -> Brought:
    """Check rank files and decide every tensor; raises what ``migrate`` raises before its first byte."""
    brought = bring_back(folder, tokenizer, shard_bytes)
    require_agreement(brought.weights)
    return brought


def migrate(
    folder: Path,
    out: Path,
    progress: Progress,
    tokenizer: Path | None = None,
    *,
    shard_bytes: int = SHARD_BYTES,
    lock_seconds: float = LOCK_SECONDS,
) -> Migrated:
    """Write the Hugging Face folder of an engine's checkpoint into ``out``; a rerun goes on, or does nothing.

    Raises, before the first byte: ``UsageError`` (one folder in the other, a tokenizer of another model),
    ``ModelNotFound``, ``ModelConfigError``, ``UnknownArchitecture``, ``WeightFileError``, ``TensorError``,
    ``FormatNotMade``, ``StorageError``, ``OutputOccupied``, ``LockTimeout``; while it works ``TensorError`` for ranks
    whose copies differ, for NaN and Inf, and ``WeightFileError`` when the source changes. After an error no output is
    left.
    """
    for source in (folder, *((tokenizer,) if tokenizer is not None else ())):
        require_apart(out, source, option="")
    brought = decide(folder, tokenizer, shard_bytes)
    with staged(out, "model", brought.key, lock_seconds) as stage:
        if stage is None:
            return Migrated(read_manifest(out, "model"), brought.report, up_to_date=True)
        resumed = stage.resumed
        require_room(stage, brought.steps)
        write_files(stage, Shards(brought.weights, brought.steps, half_format(brought.model)), progress)
        for name, data in brought.tokenizer.items():
            (stage.path / name).write_bytes(data)
            stage.record(name)
        for name, text in brought.texts.items():
            stage.write_text(name, text)
        _require_unchanged(brought, tokenizer)
        facts = {name: brought.report[name] for name in _SUMMARY}
        facts |= {
            "left_out": dict(Counter(brought.report["left_out"].values())),
            "findings": brought.report["findings"],
        }
        manifest = stage.publish({"checkpoint": brought.identity.digest}, facts)
        return Migrated(manifest, brought.report, up_to_date=False, resumed=resumed)


def _require_unchanged(brought: Brought, tokenizer: Path | None) -> None:
    """Raise ``WeightFileError`` when rank files or the tokenizer are no longer those that were checked."""
    given = brought.given
    now = read_small(given.folder, own=True) | (read_small(tokenizer, own=False) if tokenizer is not None else {})
    found = identify(given.everything, now)
    for was, is_now in ((brought.identity.weights, found.weights), (brought.identity.files, found.files)):
        for name in sorted(was.keys() | is_now.keys()):
            if was.get(name) != is_now.get(name):
                raise changed(given.folder / name, "its contents are not those that were checked at the start")
