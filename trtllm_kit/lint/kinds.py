"""Says what stands under a path, by the files that are there."""

from __future__ import annotations

import re
import shlex
from enum import StrEnum
from pathlib import Path
from typing import Any

from trtllm_kit.errors import NotLinted
from trtllm_kit.files import NOTHING, what_is
from trtllm_kit.lint.read import names_in, read_bytes, read_json
from trtllm_kit.shell.dockerfile import NAMES as DOCKERFILES

CONFIG, MODEL_CONFIG, ARGUMENTS = "config.json", "config.pbtxt", "llm_args.yaml"
INDEX = "model.safetensors.index.json"
_RANK_ENGINE = re.compile(r"rank\d+\.engine")
_ENCODER_DECODER = ("encoder", "decoder")
"""Folders of the two engines of an encoder-decoder model."""
_RANK_WEIGHTS = re.compile(r"rank\d+\.safetensors")
_SCRIPTS = (".sh", ".bash", ".sbatch", ".slurm")
"""Endings of scripts, of a shell and of batch jobs that Slurm runs with one."""
_MANIFEST = (re.compile(rb"^apiVersion:", re.MULTILINE), re.compile(rb"^kind:", re.MULTILINE))
"""Keys that every document of Kubernetes has."""
_KEY = re.compile(rb"^([A-Za-z_]\w*)\s*:", re.MULTILINE)
_OF_PROFILES = frozenset({"trtllm_version", "hardware", "base"})
"""Keys of which a profile has one at least."""


class Kind(StrEnum):
    """What can be linted."""

    ENGINE = "engine folder"
    ARGUMENTS = "engine folder of the LLM API"
    CHECKPOINT = "TensorRT-LLM checkpoint"
    DOCUMENT = "LLM-API YAML"
    MANIFEST = "Kubernetes manifest"
    SCRIPT = "shell script"
    DOCKERFILE = "Dockerfile"
    REPOSITORY = "Triton repository"
    TRITON_MODEL = "model of a Triton repository"
    MODEL = "Hugging Face folder"


LOOKED_FOR = (
    "config.json with build_config, or rank*.engine (an engine folder)",
    "llm_args.yaml (an engine folder of the LLM API)",
    "config.json with architecture and mapping, or rank*.safetensors (a TensorRT-LLM checkpoint)",
    "a .yaml file (LLM-API YAML, or a Kubernetes manifest with apiVersion and kind)",
    "a .sh, .bash, .sbatch or .slurm file (a script that builds or starts a server)",
    "a file named Dockerfile or Containerfile, with an ending or as one (commands that build and start)",
    "*/config.pbtxt (a Triton repository), config.pbtxt (a model of one)",
    "config.json with architectures or model_type, or *.safetensors (a Hugging Face folder)",
)


def kind_of(path: Path) -> Kind:
    """Return what stands under a path; raises ``NotLinted`` naming what was looked for, and ``StorageError``."""
    if path.is_dir():
        return _folder(path)
    found = what_is(path)
    if found is not None:
        missing = found == NOTHING
        raise NotLinted(
            f"{path} cannot be linted",
            why="nothing stands there" if missing else f"it is {found}",
            hint="check the path" if missing else "give a folder or a regular file",
        )
    if path.suffix in (".yaml", ".yml"):
        return _yaml(path, read_bytes(path))
    if path.suffix in _SCRIPTS:
        return Kind.SCRIPT
    if DOCKERFILES.fullmatch(path.name):
        return Kind.DOCKERFILE
    if path.suffix == ".pbtxt":
        raise NotLinted(
            f"{path} cannot be linted alone",
            why="what a model's configuration is compared with lies in the folders around it",
            hint=f"trtkit lint {path.resolve().parent}",
        )
    raise _unknown(path, f"a file named {path.name}")


def _yaml(path: Path, raw: bytes) -> Kind:
    """Return which YAML file it is; a deploy profile is refused, since another verb knows its hardware and bases."""
    if is_manifest(raw):
        return Kind.MANIFEST
    if _is_profile({match[1].decode() for match in _KEY.finditer(raw)}):
        raise NotLinted(
            f"{path} is a deploy profile",
            why="its keys are those of a profile, and no server reads them",
            hint=f"trtkit profiles validate {shlex.quote(str(path))}",
        )
    return Kind.DOCUMENT


def _is_profile(keys: set[str]) -> bool:
    """Whether at least half of a document's keys are a profile's, one of them a key that nothing else has."""
    if not _OF_PROFILES & keys:
        return False
    from trtllm_kit.spec.profile import DeployProfile

    return 2 * len(keys & {*DeployProfile.model_fields, "base"}) >= len(keys)


def is_manifest(raw: bytes) -> bool:
    """Whether a YAML file is one of Kubernetes'."""
    return all(mark.search(raw) for mark in _MANIFEST)


def _folder(path: Path) -> Kind:
    names = names_in(path)
    by_name = (
        (Kind.TRITON_MODEL, MODEL_CONFIG in names),
        (Kind.REPOSITORY, any((path / name / MODEL_CONFIG).is_file() for name in names)),
        (Kind.ENGINE, any(_RANK_ENGINE.fullmatch(name) for name in names)),
        (Kind.ARGUMENTS, ARGUMENTS in names),
        (Kind.CHECKPOINT, any(_RANK_WEIGHTS.fullmatch(name) for name in names)),
        (Kind.ENGINE, CONFIG not in names and all((path / part / CONFIG).is_file() for part in _ENCODER_DECODER)),
        (Kind.MODEL, CONFIG not in names and any(name == INDEX or name.endswith(".safetensors") for name in names)),
    )
    found = next((kind for kind, applies in by_name if applies), None)
    if found is not None:
        return found
    if CONFIG in names:
        return _by_config(path, read_json(path / CONFIG))
    raise _unknown(path, f"a folder of {len(names)} entries: {', '.join(names[:5]) or 'none'}")


def _by_config(path: Path, config: dict[str, Any]) -> Kind:
    if "build_config" in config or "builder_config" in config:
        return Kind.ENGINE
    if "architecture" in config and "mapping" in config:
        return Kind.CHECKPOINT
    if "architectures" in config or "model_type" in config:
        return Kind.MODEL
    raise _unknown(path, f"a folder whose config.json holds {', '.join(list(config)[:5]) or 'nothing'}")


def _unknown(path: Path, found: str) -> NotLinted:
    return NotLinted(
        f"{path} is nothing that trtkit lints",
        why=f"it is {found}, and none of these was found",
        hint="trtkit lint FOLDER, with a folder that holds one of these",
        problems=LOOKED_FOR,
    )
