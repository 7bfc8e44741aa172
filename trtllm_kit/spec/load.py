"""From files to what is true and what is asked: models, deploy profiles, hardware profiles.

Reads ``config.json`` of a model folder, profiles (YAML, ``base:`` inheritance, all problems at once) and the
hardware catalogue that ships with the kit.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from trtllm_kit.errors import (
    KitError,
    ModelConfigError,
    ModelNotFound,
    ProfileError,
    ProfileNotFound,
    UnknownHardware,
    UsageError,
    storage_error,
)
from trtllm_kit.files import NOTHING, UnfitFile, is_handed_over, read_file, read_text, what_is
from trtllm_kit.light import dataclass
from trtllm_kit.resources import deploy_profiles, package_file
from trtllm_kit.shipped_yaml import read_shipped
from trtllm_kit.spec.adapter import AdapterFacts, read_adapters
from trtllm_kit.spec.document import Problem
from trtllm_kit.spec.draft import DraftFacts, draft_facts
from trtllm_kit.spec.hardware import Figure, Hardware
from trtllm_kit.spec.hf_config import read_model_spec
from trtllm_kit.spec.hf_stored import unsound_list
from trtllm_kit.spec.inherit import BASE, is_file_name, origins, read_with_bases
from trtllm_kit.spec.model import ModelSpec
from trtllm_kit.spec.profile import DeployProfile
from trtllm_kit.spec.profile_formats import Calibration
from trtllm_kit.spec.schema_words import SchemaWords
from trtllm_kit.spec.yaml_errors import did_you_mean, refused_value, schema_problems, unknown_word
from trtllm_kit.strict_json import parse_json
from trtllm_kit.upstream.releases import unknown_release

_CONFIG = "config.json"
_MODELOPT = "hf_quant_config.json"
_TOKENIZER = "tokenizer.json"
_LFS_POINTER = b"version https://git-lfs"
_MOST_TOKENIZER_BYTES = 128 << 20
_MOST_CONFIG_VALUES = 200_000
"""Keys and values of a ``config.json``; those that list every module of a large model have some 50,000."""


# --- models --------------------------------------------------------------------------------------------------------


def load_model(folder: Path) -> ModelSpec:
    """Read the model of a Hugging Face folder from its ``config.json``.

    A ``hf_quant_config.json`` beside it marks the weights as quantised by ModelOpt, whose exports do not always say
    so in ``config.json``. Raises ``ModelNotFound``, ``ModelConfigError``, ``UnknownArchitecture``, ``StorageError``.
    """
    return parse_model(read_config(folder), folder, _read_modelopt(folder))


def read_config(folder: Path) -> bytes:
    """Return the bytes of a folder's ``config.json``.

    Raises ``ModelNotFound``, ``ModelConfigError`` when there is no such file, ``StorageError``.
    """
    path = folder / _CONFIG
    try:
        if not folder.is_dir():
            raise _not_a_folder(folder)
        return read_file(path)
    except UnfitFile as error:
        raise ModelConfigError(
            f"{path} cannot be read", why=error.unfit, hint="put the model's own config.json there"
        ) from None
    except FileNotFoundError:
        raise ModelConfigError(
            f"{folder} holds no {_CONFIG}",
            why="the kit reads models in the Hugging Face layout, which describes itself there",
            hint="name the folder that holds config.json beside the .safetensors files",
        ) from None
    except OSError as error:
        raise storage_error(error, "reading the model") from error


def parse_model(raw: bytes, folder: Path, modelopt: bytes | None = None) -> ModelSpec:
    """Return the model that the bytes of ``folder``'s ``config.json`` and ``hf_quant_config.json`` describe.

    Raises ``ModelConfigError`` and ``UnknownArchitecture``.
    """
    path = folder / _CONFIG
    section = None if modelopt is None else _modelopt_section(modelopt, folder / _MODELOPT)
    return read_model_spec(parse_config(raw, path), str(path), section)


def _read_modelopt(folder: Path) -> bytes | None:
    path = folder / _MODELOPT
    if not os.path.lexists(path):
        return None
    try:
        return read_file(path)
    except UnfitFile as error:
        raise _bad_modelopt(path, error.unfit) from None
    except OSError as error:
        raise storage_error(error, "reading how the checkpoint is quantised") from None


def _modelopt_section(raw: bytes, path: Path) -> dict[str, Any]:
    """Return ``quantization`` of ModelOpt's file; raises ``ModelConfigError``."""
    document = parse_config(raw, path)
    section = document.get("quantization")
    if not isinstance(section, dict):
        raise _bad_modelopt(path, "it holds no object named quantization")
    unsound = unsound_list(section)
    if unsound is not None:
        raise _bad_modelopt(path, f"its {unsound} is not a list of module names")
    return section


def _bad_modelopt(path: Path, why: str) -> ModelConfigError:
    return ModelConfigError(f"{path} cannot be used", why=why, hint=f"download {path.name} again, or convert again")


def _not_a_folder(folder: Path) -> ModelNotFound:
    found = what_is(folder)
    why = "there is no folder of that name" if found == NOTHING else f"that is {found or 'a file'}"
    return ModelNotFound(f"no model at {folder}", why=why, hint="name the folder that holds the model's config.json")


def parse_config(raw: bytes, path: Path) -> dict[str, Any]:
    """Return the JSON object in the bytes of a ``config.json``; raises ``ModelConfigError``."""
    if raw.startswith(_LFS_POINTER):
        raise ModelConfigError(
            f"{path} is a git-LFS pointer",
            why=f"it holds {len(raw)} bytes that stand for the file, not the file",
            hint="run `git lfs pull` in that folder, or download the model again",
        )
    try:
        config = parse_json(raw, _MOST_CONFIG_VALUES)
    except ValueError as error:
        raise _not_json(path, f"the parser says: {error}") from None
    if not isinstance(config, dict):
        raise _not_json(path, f"it holds a {type(config).__name__}, not an object")
    return config


def _not_json(path: Path, why: str) -> ModelConfigError:
    return ModelConfigError(f"{path} is not a JSON object", why=why, hint=f"download the model's {path.name} again")


# --- deploy profiles -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LoadedProfile:
    """A profile, and which line of which document set each of its keys."""

    profile: DeployProfile
    origins: Mapping[str, str]
    """From dotted key to ``file:line``; keys the documents leave to their defaults are absent."""
    calibration_sha256: str | None = None
    """SHA-256 of the text that ``calibration.text`` names; None when it names none, or none that can be read."""
    for_one_run: tuple[str, ...] = ()
    """Keys of ``calibration`` that the command line set in place of the documents."""
    draft: DraftFacts | str | None = None
    """What ``speculation.draft_checkpoint`` names, or why it cannot be read; None when it is not here."""
    adapters: tuple[AdapterFacts, ...] = ()
    """What the folders of ``build.options.lora_dir`` say that are here."""
    target_tokenizer_sha256: str | None = None
    """SHA-256 of the served model's ``tokenizer.json``, where whoever plans has its folder."""

    def source(self, key: str) -> Literal["profile", "default"]:
        """Say whether the documents set a dotted key or its default holds."""
        return "profile" if key in self.origins else "default"


def load_profile(name_or_path: str) -> LoadedProfile:
    """Read a shipped profile or a file, with its bases.

    Raises ``ProfileNotFound``, ``StorageError``, or ``ProfileError`` with every problem as ``file:line: key: text``.
    """
    path = profile_file(name_or_path)
    label = name_or_path if is_file_name(name_or_path) or name_or_path not in _shipped() else path.name
    try:
        document = read_with_bases(path, label, _shipped())
    except OSError as error:  # of a base whose name no file system takes
        raise storage_error(error, "reading a profile") from error
    problems = list(document.problems)
    hardware, version = document.data.get("hardware"), document.data.get("trtllm_version")
    if isinstance(hardware, str) and hardware not in hardware_names() and not is_file_name(hardware):
        problems.append(unknown_word(("hardware",), hardware_names(), document))
    if isinstance(version, str) and (why := unknown_release(version)):
        problems.append(refused_value(("trtllm_version",), why, document))
    try:
        profile = DeployProfile.model_validate(document.data, strict=True)
    except ValidationError as error:
        problems += schema_problems(error, document, SchemaWords(profile_schema()))
        raise _profile_error(label, problems) from None
    if problems:
        raise _profile_error(label, problems)
    return LoadedProfile(profile, origins(document), _text_sha256(profile.calibration.text), draft=_draft_of(profile),
                         adapters=read_adapters(profile.build.options.get("lora_dir")))  # fmt: skip


def _draft_of(profile: DeployProfile) -> DraftFacts | str | None:
    """Read the draft model; one that lies where only the server sees it, or on the hub, is no error."""
    named = profile.speculation and profile.speculation.draft_checkpoint
    folder = Path(named) if named else None
    try:
        if folder is None or not folder.is_dir():
            return None
        config = parse_config(read_config(folder), folder / _CONFIG)
    except KitError as error:
        return error.what
    except (OSError, ValueError):  # a name that no file system takes
        return None
    return draft_facts(config, tokenizer_sha256(folder))


def beside_target(loaded: LoadedProfile, folder: Path) -> LoadedProfile:
    """Return the profile with the tokenizer of the served model's folder, where there is a draft to compare it with."""
    if not isinstance(loaded.draft, DraftFacts) or loaded.draft.tokenizer_sha256 is None:
        return loaded
    return replace(loaded, target_tokenizer_sha256=tokenizer_sha256(folder))


def tokenizer_sha256(folder: Path) -> str | None:
    """Return the SHA-256 of a folder's ``tokenizer.json``; None without one that can be read."""
    try:
        return hashlib.sha256(read_file(folder / _TOKENIZER, _MOST_TOKENIZER_BYTES)).hexdigest()
    except (OSError, UnfitFile):
        return None


def with_calibration(loaded: LoadedProfile, changes: Mapping[str, Any]) -> LoadedProfile:
    """Return the profile with these keys of ``calibration`` for one run; raises ``UsageError`` for a bad value.

    Another text does not take over the ``field`` of the profile's own.
    """
    own = loaded.profile.calibration.model_dump() | ({"field": None} if "text" in changes else {})
    try:
        asked = Calibration.model_validate(own | dict(changes))
    except ValidationError as error:
        wrong = error.errors()[0]
        key = ".".join(map(str, wrong["loc"]))
        raise UsageError(
            f"calibration.{key} cannot be {wrong['input']}", why=wrong["msg"], hint="trtkit convert --help"
        ) from None
    profile = loaded.profile.model_copy(update={"calibration": asked})
    return replace(
        loaded, profile=profile, calibration_sha256=_text_sha256(asked.text), for_one_run=tuple(sorted(changes))
    )


def _text_sha256(path: str | None) -> str | None:
    """Hash a text as ``convert`` reads it; verbs that need no calibration run without the file, so none is no error."""
    if path is None:
        return None
    try:
        return hashlib.sha256(read_text(Path(path)).encode()).hexdigest()
    except (OSError, UnicodeDecodeError):
        return None


def shipped_profiles() -> tuple[str, ...]:
    """Return the names of the profiles that come with the kit, sorted."""
    return tuple(_shipped())


def shipped_files() -> dict[str, Path]:
    """Return the files of the profiles that come with the kit, by name."""
    return dict(_shipped())


def profile_file(name: str) -> Path:
    """Return the file of a shipped profile, or of a path that is one.

    Raises ``ProfileNotFound`` for a path that is no file, and for a named pipe, which could keep a verb waiting for
    ever; standard input and process substitutions are taken.
    """
    shipped = _shipped()
    if name in shipped:
        return shipped[name]
    try:
        path = Path(name).expanduser()
        found = what_is(path)
    except OSError as error:
        raise storage_error(error, "reading a profile") from error
    except RuntimeError:  # there is no user of that name
        found = NOTHING
    if found is None or is_handed_over(name):
        return path
    state = "there is no such file" if found == NOTHING else f"that is {found}"
    raise ProfileNotFound(
        f"no profile {name}",
        why=f"{state}, and the shipped profiles are {', '.join(shipped)}",
        hint=f"`trtkit profiles list`{did_you_mean(name, shipped)}",
    )


def profile_schema() -> dict[str, Any]:
    """Return the JSON schema of a profile document, for editors: every key described, ``base`` allowed."""
    schema = DeployProfile.model_json_schema()
    required = schema.pop("required")
    base = {"type": "string", "description": "Profile to start from: a shipped name, or a file relative to this one."}
    schema["properties"] = {BASE: base} | schema["properties"]
    named = {"enum": list(hardware_names())}
    place = {"type": "string", "pattern": r"/|\.ya?ml$", "format": "yaml-path"}
    schema["properties"]["hardware"] |= {"anyOf": [named, place]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "required": ["name"],
        "anyOf": [{"required": [BASE]}, {"required": required}],
    }


@cache
def _shipped() -> dict[str, Path]:
    return {file.stem: file for file in sorted(deploy_profiles().glob("*.yaml"))}


def _profile_error(label: str, problems: list[Problem]) -> ProfileError:
    """Make one error of all problems, those of the document itself first, in the order of its lines."""
    ordered = sorted(problems, key=lambda one: (one.place.file != label, one.place))
    count = f"{len(problems)} problems" if len(problems) > 1 else "a problem"
    return ProfileError(
        f"profile {label} has {count}",
        why="what stands in these lines has no meaning in a profile",
        hint=f"correct them, then `trtkit profiles validate {label}`",
        problems=tuple(f"{problem}{_way_out(problem, label)}" for problem in ordered),
    )


def _way_out(problem: Problem, label: str) -> str:
    """Say how to be rid of what a base sets, which is often not for the operator to edit."""
    inherited = problem.key and problem.place.file != label
    return f"; it is inherited: {label} may set it otherwise, or to null for none" if inherited else ""


# --- hardware ------------------------------------------------------------------------------------------------------


def load_hardware(name: str) -> Hardware:
    """Return a hardware profile of the catalogue, or of a file. Raises ``UnknownHardware``, ``StorageError``."""
    if is_file_name(name):
        from trtllm_kit.spec.hardware_file import read_hardware

        return read_hardware(name)
    return _catalogued(name)


@cache
def _catalogued(name: str) -> Hardware:
    machines = _catalogue()["machines"]
    if name not in machines:
        raise UnknownHardware(
            f"no hardware profile {name}",
            why=f"the catalogue has {', '.join(machines)}",
            hint=f"set `hardware:` to one of these{did_you_mean(name, machines)}",
        )
    machine = machines[name]
    return Hardware.model_validate({"name": name} | machine | {"gpu": _catalogue()["gpus"][machine["gpu"]]})


def hardware_for(profile: DeployProfile) -> Hardware:
    """Return the hardware of a profile, with the ``gpu_memory`` it states instead of the catalogue's."""
    hardware = load_hardware(profile.hardware)
    if profile.gpu_memory is None:
        return hardware
    memory = Figure(value=profile.gpu_memory, source="gpu_memory of the deploy profile")
    return hardware.model_copy(update={"gpu": hardware.gpu.model_copy(update={"memory_bytes": memory})})


def hardware_names() -> tuple[str, ...]:
    """Return the names of the catalogue's hardware profiles, in its order."""
    return tuple(_catalogue()["machines"])


@cache
def _catalogue() -> dict[str, Any]:
    return read_shipped(CATALOGUE, parse_catalogue)


CATALOGUE = package_file("spec", "hardware.yaml")


def parse_catalogue(path: Path) -> dict[str, Any]:
    """Return the catalogue's document."""
    from trtllm_kit.spec.yaml_tree import read_document

    return read_document(path, path.name).data
