"""A checkpoint for ``trtllm-build`` that somebody else made: whether it is the plan's, and what its bytes are."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

from trtllm_kit.artifact import MANIFEST, read_manifest, require_intact
from trtllm_kit.errors import ManifestError, PlanDrift, storage_error
from trtllm_kit.files import UnfitFile, open_file, read_file
from trtllm_kit.plan.plan import Plan, digest_of
from trtllm_kit.plan.ranks import heads_of
from trtllm_kit.strict_json import parse_json
from trtllm_kit.upstream.quant_algos import kv_algo
from trtllm_kit.upstream.trtllm_build import Mode, mode_of

CONFIG = "config.json"
_MOST_BYTES, _MOST_VALUES = 16 << 20, 200_000


def is_given(folder: Path) -> bool:
    """Whether a folder is no checkpoint of trtkit's; one without a manifest was made by somebody else."""
    return not os.path.lexists(folder / MANIFEST)


def checkpoint_digest(folder: Path) -> str:
    """Return what stands for a checkpoint's bytes: the digest of its manifest, or of its files where it has none.

    Raises ``ManifestError`` when a file is missing or was edited since, and ``StorageError``.
    """
    if is_given(folder):
        return files_digest(folder)
    manifest = read_manifest(folder, "checkpoint")
    require_intact(folder, manifest)
    return manifest.digest


def named_digest(folder: Path) -> str:
    """Return the same without a look at the files that a manifest lists."""
    return files_digest(folder) if is_given(folder) else read_manifest(folder, "checkpoint").digest


def files_digest(folder: Path) -> str:
    """Return the digest of every file below a folder, by path; raises ``ManifestError`` for none, ``StorageError``."""
    try:
        found = {path.relative_to(folder).as_posix(): _digest(path) for path in _files(folder)}
    except OSError as error:
        raise storage_error(error, "reading what an engine is built of") from None
    except UnfitFile as error:
        raise ManifestError(
            f"{folder} cannot be read whole", why=error.unfit, hint="take out what is no regular file"
        ) from None
    if not found:
        raise ManifestError(f"{folder} holds no files", why="an engine is built of a checkpoint", hint="check the path")
    return digest_of(found)


def _files(folder: Path) -> Iterator[Path]:
    for place, _, names in os.walk(folder, onerror=_refuse):
        yield from (Path(place) / name for name in sorted(names))


def _refuse(error: OSError) -> None:
    raise error


def _digest(path: Path) -> str:
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def require_given(folder: Path, plan: Plan) -> None:
    """Raise ``PlanDrift`` naming what differs when ``config.json`` of a given checkpoint is not of the plan's model."""
    config = _config(folder)
    found = [*_of_model(config, plan), *_of_heads(config, plan)]
    if found:
        raise PlanDrift(
            f"checkpoint {folder} is not the one that the plan asks for",
            why="; ".join(found),
            hint="give the checkpoint of that model and mapping, or a profile that asks for this one",
        )


def require_heads(folder: Path, plan: Plan) -> None:
    """Raise ``PlanDrift`` when the plan's mode drafts with heads that a checkpoint does not hold."""
    if not heads_of(plan):
        return
    found = list(_of_heads(_config(folder), plan))
    if found:
        raise PlanDrift(
            f"checkpoint {folder} does not hold the heads that the plan drafts with",
            why="; ".join(found),
            hint="give one of upstream's converter with --model MODEL, or speculation.kind: lookahead",
        )


def _config(folder: Path) -> dict[str, Any]:
    try:
        config = parse_json(read_file(folder / CONFIG, _MOST_BYTES), _MOST_VALUES)
    except FileNotFoundError:
        raise _unreadable(folder, f"it holds no {CONFIG}") from None
    except UnfitFile as error:
        raise _unreadable(folder, error.unfit) from None
    except OSError as error:
        raise storage_error(error, "reading a checkpoint") from None
    except ValueError as error:
        raise _unreadable(folder, f"its {CONFIG} is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise _unreadable(folder, f"its {CONFIG} holds no object")
    return config


def _unreadable(folder: Path, why: str) -> ManifestError:
    return ManifestError(f"{folder} is no checkpoint for trtllm-build", why=why, hint="give its converter's folder")


def _of_model(config: Mapping[str, Any], plan: Plan) -> Iterator[str]:
    """Yield each fact of a checkpoint that is not the plan's; what it does not state is not compared."""
    mode, model, split = _mode(plan), plan.model, plan.parallelism
    algo = plan.quantization.algo
    wanted: dict[str, object] = {
        "num_hidden_layers": len(model.layers),
        "hidden_size": model.hidden,
        "num_attention_heads": max((one.heads for one in model.attentions), default=None),
        "num_key_value_heads": max((one.kv_heads for one in model.attentions), default=None),
        "mapping.tp_size": split.tensor.value,
        "mapping.pp_size": split.pipeline.value,
        "mapping.cp_size": split.split.context,
        "mapping.world_size": split.world_size,
        "quantization.quant_algo": algo.value if algo else None,
        "quantization.kv_cache_quant_algo": kv_algo(plan.quantization.kv_cache.value),
    }
    if mode is None:  # a mode with heads has architectures of its own
        wanted = {"architecture": model.architecture, **wanted}
    for key, value in wanted.items():
        section, _, name = key.rpartition(".")
        held = config.get(section, {}) if section else config
        if isinstance(held, Mapping) and name in held and held[name] != value:
            yield f"{key} is {_spelt(held[name])}, planned is {_spelt(value)}"


def _of_heads(config: Mapping[str, Any], plan: Plan) -> Iterator[str]:
    """Yield what a mode reads of heads and the checkpoint does not state, or states otherwise than planned."""
    mode = _mode(plan)
    if mode is None:
        return
    if config.get("architecture") not in mode.heads:
        named = _spelt(config.get("architecture"))
        yield f"mode {mode.mode} reads {' or '.join(mode.heads)}, the checkpoint is {named}"
    missing = [key for key in mode.reads if config.get(key) is None]
    if missing:
        yield f"mode {mode.mode} reads {', '.join(missing)}, which {CONFIG} does not state"
    counts = [config[key] for key in mode.fixed if isinstance(config.get(key), int)]
    planned = plan.speculation.draft_tokens.value if plan.speculation else None
    if counts and len(counts) == len(mode.fixed) and planned is not None and prod(counts) != planned:
        yield f"{' x '.join(mode.fixed)} is {prod(counts)}, speculation.draft_tokens is {planned}"


def _mode(plan: Plan) -> Mode | None:
    heads = heads_of(plan)
    return mode_of(plan.release.value, heads) if heads else None


def _spelt(value: object) -> str:
    return "absent" if value is None else str(value)
