"""What an engine folder says of itself, whoever made it: who built it, its limits and options, and where it can run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trtllm_kit.artifact import MANIFEST, Manifest, read_manifest
from trtllm_kit.build.llm_api import CHECKPOINT
from trtllm_kit.build.toolchain import ENGINE_CONFIG, LLM_ARGS
from trtllm_kit.errors import ManifestError, storage_error
from trtllm_kit.files import UnfitFile, read_file
from trtllm_kit.plan.given.facts import EngineFacts, engine_facts
from trtllm_kit.strict_json import parse_json
from trtllm_kit.upstream.releases import release, unknown_release
from trtllm_kit.upstream.stack import built_with
from trtllm_kit.upstream.trtllm_build import speculative_mode_name

Section = dict[str, Any]
_PARTS = ("encoder", "decoder", "draft")
"""Folders of further engines: of an encoder-decoder model, and of a draft model."""
_NOT_SAID = "not recorded"
_OLD = "before 0.8"
_OFF = (None, False, "disable")


def explain(folder: Path) -> Section:
    """Return all that an engine folder tells, in sections; raises ``ManifestError`` for no engine, ``StorageError``."""
    manifest = read_manifest(folder, "engine") if (folder / MANIFEST).is_file() else None
    config = _config(folder)
    if config is not None:
        document = _compiled(folder, config, manifest)
    elif manifest is not None:
        document = _for_llm_api(folder, manifest)
    else:
        raise _no_engine(folder, f"it holds neither {ENGINE_CONFIG} nor {MANIFEST}")
    parts = {part: explain(folder / part) for part in _PARTS if (folder / part / ENGINE_CONFIG).is_file()}
    return {"engine": str(folder), **document, **({"parts": parts} if parts else {})}


def _compiled(folder: Path, config: Mapping[str, Any], manifest: Manifest | None) -> Section:
    facts = engine_facts(config, _sizes(folder))
    model = _section(config, "pretrained_config")
    build = _section(config, "build_config") or _section(config, "builder_config")
    if not model and not build:
        raise _no_engine(folder, f"its {ENGINE_CONFIG} has neither build_config nor builder_config")
    made = manifest.facts if manifest is not None else {}
    quantization = _section(model, "quantization")
    return {
        "kind": "mock" if made.get("toolchain") == "mock" else "compiled",
        "built_by": _built_by(facts, made, manifest),
        "model": {name: model.get(name, _NOT_SAID) for name in ("architecture", "dtype", "max_position_embeddings")},
        "quantization": {
            "weights": quantization.get("quant_algo") or "16 bit",
            "kv_cache": quantization.get("kv_cache_quant_algo") or "as the model",
        },
        "limits": {name: value for name, value in build.items() if name.startswith(("max_", "opt_"))},
        "options": _options(build, facts),
        "runs_on": _runs_on(facts, made) | {"split": _split(_section(model, "mapping"))},
        "files": _files(facts),
    }


def _for_llm_api(folder: Path, manifest: Manifest) -> Section:
    """Say of arguments for the LLM API what there is to say: nothing is compiled, so no GPU is written into them."""
    made = manifest.facts
    link = folder / CHECKPOINT
    return {
        "kind": "arguments for the LLM API",
        "built_by": _built_by(EngineFacts(version=made.get("release")), made, manifest),
        "model": {"architecture": made.get("architecture", _NOT_SAID)},
        "runs_on": {
            "release": made.get("release", _NOT_SAID),
            "gpu": "any that the checkpoint's formats run on: nothing is compiled before it starts",
            "world_size": made.get("world_size", _NOT_SAID),
        },
        "files": {
            LLM_ARGS: (folder / LLM_ARGS).is_file(),
            "checkpoint": str(link.resolve()) if link.is_dir() else "gone",
        },
    }


def _built_by(facts: EngineFacts, made: Mapping[str, Any], manifest: Manifest | None) -> Section:
    found: Section = {"release": facts.version or _OLD}
    if facts.version is not None and (unknown := _unknown(facts.version)):
        found["note"] = f"no release that trtkit knows: {unknown}"
    if manifest is not None:
        found |= {"trtkit": manifest.kit_version, "inputs": dict(manifest.inputs)}
        found |= {name: made[name] for name in ("toolchain", "profile", "image", "driver") if made.get(name)}
    return found


def _options(build: Mapping[str, Any], facts: EngineFacts) -> Section:
    mode = build.get("speculative_decoding_mode")
    kept = {"kv_cache_type": build.get("kv_cache_type"), "speculative_decoding_mode": _mode(facts.version, mode)}
    lora = _section(build, "lora_config").get("lora_target_modules")
    kept |= {"lora_target_modules": lora} if lora else {}
    plugins = {name: value for name, value in facts.plugins.items() if value not in _OFF}
    return {name: value for name, value in kept.items() if value is not None} | plugins


def _mode(version: str | None, number: object) -> object:
    if version is None or not isinstance(number, int) or _unknown(version):
        return number
    return speculative_mode_name(version, number) or number


def _runs_on(facts: EngineFacts, made: Mapping[str, Any]) -> Section:
    """Say where it runs: TensorRT refuses an engine of another version and another kind of GPU."""
    capability = made.get("compute_capability")
    gpu = f"compute capability {capability // 10}.{capability % 10}" if isinstance(capability, int) else None
    if made.get("toolchain") == "mock":
        gpu = "none: nothing is compiled in it"
    found: Section = {
        "release": facts.version or _OLD,
        "gpu": f"{gpu} ({made['gpu']})" if gpu and made.get("gpu") else gpu or f"{_NOT_SAID}; the kind that built it",
        "world_size": facts.ranks,
    }
    if facts.version is None or _unknown(facts.version):
        return found
    known = release(facts.version)
    built = built_with(known.version)
    tensorrt = {"tensorrt": built.tensorrt} if built is not None and built.tensorrt else {}
    return found | tensorrt | {"containers": list(known.images)}


def _split(mapping: Mapping[str, Any]) -> Section:
    return {
        name: mapping[name]
        for name in ("tp_size", "pp_size", "cp_size", "moe_tp_size", "moe_ep_size")
        if name in mapping
    }


def _files(facts: EngineFacts) -> Section:
    missing = sorted(set(range(facts.ranks)) - facts.files.keys())
    return {
        "ranks": len(facts.files),
        "bytes": sum(facts.files.values()),
        "missing": [f"rank{rank}.engine" for rank in missing],
    }


def _unknown(version: str) -> str:
    return unknown_release(version)


def _config(folder: Path) -> Mapping[str, Any] | None:
    try:
        document = parse_json(read_file(folder / ENGINE_CONFIG))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, UnfitFile) as error:
        why = error.unfit if isinstance(error, UnfitFile) else f"it is not JSON: {error}"
        raise _no_engine(folder, f"its {ENGINE_CONFIG} cannot be read: {why}") from None
    except OSError as error:
        raise storage_error(error, "reading an engine") from None
    if not isinstance(document, dict):
        raise _no_engine(folder, f"its {ENGINE_CONFIG} holds a {type(document).__name__}, not an object")
    return document


def _sizes(folder: Path) -> dict[str, int]:
    try:
        return {path.name: path.stat().st_size for path in folder.glob("rank*.engine") if path.is_file()}
    except OSError as error:
        raise storage_error(error, "looking into an engine") from None


def _section(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = document.get(name)
    return found if isinstance(found, dict) else {}


def _no_engine(folder: Path, why: str) -> ManifestError:
    return ManifestError(f"{folder} is no engine", why=why, hint="give a folder that trtkit build or trtllm-build made")
