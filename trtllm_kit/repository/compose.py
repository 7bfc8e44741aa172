"""From a plan and an engine to the model repository that Triton reads.

``compose`` is pure: a plan and the model sources make a set of files. ``deploy`` writes them with a manifest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from trtllm_kit.artifact import Manifest, read_manifest
from trtllm_kit.build.engine import EngineFacts, open_engine
from trtllm_kit.build.llm_api import CHECKPOINT, llm_api_document
from trtllm_kit.checkpoint.link import point
from trtllm_kit.checkpoint.plan_file import PLAN_FILE, plan_text
from trtllm_kit.errors import PlanDrift, RepositoryError
from trtllm_kit.plan.conversion import conversion_of
from trtllm_kit.plan.plan import Plan, digest_of
from trtllm_kit.plan.serving_mode import device_sets, instances, obstacle, orchestrated, serves_engines, spawns
from trtllm_kit.repository.inflight import BLS, ENSEMBLE, POSTPROCESSING, PREPROCESSING, engine_models
from trtllm_kit.repository.model_config import InstanceGroup, ModelConfig, ModelTensor
from trtllm_kit.repository.pbtxt import write_pbtxt
from trtllm_kit.repository.places import ENGINE_LINK, LINK, MODEL, VERSION_FOLDER, Places, places_of
from trtllm_kit.resources import triton_models
from trtllm_kit.staging import LOCK_SECONDS, Stage, require_apart, staged
from trtllm_kit.upstream import release
from trtllm_kit.upstream.triton import Tensor, llmapi_tensors

METRICS_PATH = "/metrics"
KEEP = ".keep"
"""Stands in the version folder of a model without files: tools that copy folders leave empty ones out."""
MAX_QUEUE_SIZE = 1024
CANCELLATION_CHECK_PERIOD_MS = 100


@dataclass(frozen=True)
class Deployment:
    """What a deploy came to."""

    manifest: Manifest
    up_to_date: bool
    """The repository was there already, and nothing was written."""


def repository_files(plan: Plan, out: Path) -> dict[str, str]:
    """Return the text of every file of a plan's repository by relative path, as ``deploy`` would write it to ``out``.

    A repository of the llmapi model is the same wherever it stands; one of engines names where its links are.
    """
    if serves_engines(plan):
        return engine_files(plan, places_of(plan, out), engine_sources())
    return compose(plan, model_sources())


def engine_files(plan: Plan, places: Places, sources: Mapping[str, str]) -> dict[str, str]:
    """Return every file of a repository for an engine; ``sources`` are our models' Python files by relative path.

    Raises ``RepositoryError`` when the release's Triton has no backend for engines, or no instances as asked.
    """
    if "trtllm-build" not in release(plan.release.value).toolchains:
        raise RepositoryError(
            f"release {plan.release.value} serves no engines",
            why="its Triton container has no C++ backend for them",
            hint="set toolchain: llm-api in the profile, or trtllm_version: 1.2.1",
        )
    models = engine_models(plan, places)
    folders = {f"{model.name}/1/{KEEP}": "" for model in models if model.backend != "python"}
    configs = {f"{model.name}/config.pbtxt": write_pbtxt(model) for model in models}
    return {PLAN_FILE: plan_text(plan), **configs, **folders, **dict(sorted(sources.items()))}


def compose(plan: Plan, sources: Mapping[str, str]) -> dict[str, str]:
    """Return every file of a repository of the llmapi model; ``sources`` are its Python files by name.

    Raises ``RepositoryError`` when the release has no llmapi model, or the runtime cannot run the engine.
    """
    _check_servable(plan)
    return {
        PLAN_FILE: plan_text(plan),
        f"{MODEL}/config.pbtxt": write_pbtxt(model_config(plan)),
        f"{VERSION_FOLDER}/model.yaml": model_yaml(plan),
        **{f"{VERSION_FOLDER}/{name}": text for name, text in sorted(sources.items())},
    }


def model_config(plan: Plan) -> ModelConfig:
    """Return the model's configuration: the tensors of the plan's release, the policy and the runtime's parameters."""
    inputs, outputs = llmapi_tensors(plan.release.value)
    return ModelConfig(
        name=MODEL,
        backend="python",
        decoupled=True,
        instance_group=InstanceGroup(count=instances(plan)),
        inputs=tuple(_tensor(tensor, optional=tensor.optional) for tensor in inputs),
        outputs=tuple(_tensor(tensor, optional=False) for tensor in outputs),
        parameters=dict(_parameters(plan)),
    )


def model_yaml(plan: Plan) -> str:
    """Return the LLM arguments of the plan with the settings of the Triton model, as ``model.yaml``."""
    arguments = llm_api_document(plan) | {"model": plan.serve.checkpoint_path or CHECKPOINT}
    triton = {
        "max_batch_size": 0,
        "decoupled": True,
        "cancellation_check_period_ms": CANCELLATION_CHECK_PERIOD_MS,
    }
    head = f"# Arguments of tensorrt_llm.LLM {plan.release.value}; triton_config is for the model files beside it.\n"
    return head + yaml.safe_dump(arguments | {"triton_config": triton}, sort_keys=False, width=120)


def model_sources() -> dict[str, str]:
    """Read the Python files of the model that trtkit ships."""
    return {path.name: path.read_text("utf-8") for path in sorted((triton_models() / "llmapi").glob("*.py"))}


def engine_sources() -> dict[str, str]:
    """Read the Python files of our models around an engine, by their place in a repository.

    A file of ``shared`` is beside each model, for Triton puts the folder of one model alone on its path.
    """
    folder = triton_models() / "inflight_batcher_llm"
    shared = [*sorted((folder / "shared").glob("*.py")), triton_models() / "llmapi" / "text.py"]
    found = {}
    for model in (PREPROCESSING, POSTPROCESSING, BLS):
        for path in (*shared, *sorted((folder / model).glob("*.py"))):
            found[f"{model}/1/{path.name}"] = path.read_text("utf-8")
    return found


def deploy(engine: Path, plan: Plan, out: Path, *, lock_seconds: float = LOCK_SECONDS) -> Deployment:
    """Write the repository of an engine into ``out``, or do nothing when it is there.

    Raises ``PlanDrift`` when the engine was built for another plan, ``ManifestError`` when it is not whole,
    ``RepositoryError`` when the runtime cannot run it, and the errors of ``staging.staged``.
    """
    opened = engine_for(plan, engine, out)
    files = repository_files(plan, out)
    key = digest_of({"engine": opened.manifest.digest, "files": {name: _sha256(files[name]) for name in files}})
    with staged(out, "repository", key, lock_seconds) as stage:
        if stage is None:
            _link(out, opened, plan)  # what the links lead to may have moved since
            return Deployment(read_manifest(out, "repository"), up_to_date=True)
        _write(stage, files)
        _link(stage.path, opened, plan)
        inputs = {"plan": plan.digest, "engine": opened.manifest.digest}
        return Deployment(stage.publish(inputs, repository_facts(plan)), up_to_date=False)


def engine_for(plan: Plan, engine: Path, out: Path) -> EngineFacts:
    """Return what ``deploy`` would make the repository of; raises ``PlanDrift``, ``ManifestError``, ``UsageError``."""
    require_apart(out, engine)
    opened = open_engine(engine)
    _require_same_engine(opened, plan)
    return opened


def _link(repository: Path, opened: EngineFacts, plan: Plan) -> None:
    if not plan.serve.checkpoint_path:
        point(repository / LINK, opened.checkpoint)
    if serves_engines(plan) and not plan.serve.engine_path:
        point(repository / ENGINE_LINK, opened.folder)


def _check_servable(plan: Plan) -> None:
    runtime, toolchain, version = plan.runtime.runtime.value, plan.toolchain.value, plan.release.value
    if not release(version).triton_llmapi_model:
        raise RepositoryError(
            f"release {version} has no llmapi model for Triton",
            why="it serves engines through the C++ backend only, and trtkit writes llmapi repositories",
            hint="set trtllm_version: 1.2.1 in the profile",
        )
    if runtime == "tensorrt_llm" and toolchain != "llm-api":
        raise RepositoryError(
            f"runtime {runtime} cannot run an engine of toolchain {toolchain}",
            why="it runs what toolchain llm-api makes: a checkpoint with LLM-API arguments",
            hint="set runtime: simulated in the profile, or toolchain: llm-api",
        )
    found = obstacle(plan)
    if found is not None:
        raise RepositoryError(found.what, why=found.compared, hint=f"set {found.way_out} in the profile")


def _tensor(tensor: Tensor, *, optional: bool) -> ModelTensor:
    return ModelTensor.model_validate(
        {"name": tensor.name, "data_type": tensor.data_type, "dims": tensor.dims, "optional": optional}
    )


def _parameters(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield the model's parameters. The limits stand here too, for runtimes that read no LLM arguments."""
    yield "runtime", plan.runtime.runtime.value
    yield "max_batch_size", str(plan.limits.max_batch_size.value)
    yield "max_num_tokens", str(plan.limits.max_num_tokens.value)
    yield "max_seq_len", str(plan.limits.max_seq_len.value)
    yield "chunked_prefill", str(int(plan.runtime.chunked_prefill.value))
    yield "tokens_per_block", str(plan.runtime.tokens_per_block.value)
    yield "kv_cache_blocks", str(kv_cache_blocks(plan))
    yield "max_queue_size", str(MAX_QUEUE_SIZE)
    yield "token_seconds", repr(plan.serve.token_seconds)
    if plan.serve.warm_up_requests:
        yield "warm_up_requests", str(plan.serve.warm_up_requests)
    if instances(plan) > 1:
        yield "gpu_device_ids", device_sets(plan)


def kv_cache_blocks(plan: Plan) -> int:
    """Return the KV blocks of all caches: a rank's budget over bytes a token over tokens a block, by ranks with one."""
    block_bytes = plan.memory.kv_bytes_per_token * plan.runtime.tokens_per_block.value
    return max(1, plan.memory.kv_budget_bytes // block_bytes * plan.memory.data_ranks)


def repository_facts(plan: Plan) -> dict[str, Any]:
    """Return what the manifest says of a plan's repository: what is served, by how many ranks or servers, and where."""
    serve = plan.serve
    return {
        "model": ENSEMBLE if serves_engines(plan) else MODEL,
        **({"engines": True, "servers": _servers(plan)} if serves_engines(plan) else {}),
        **({"ranks": plan.parallelism.world_size} if _has_ranks(plan) else {}),
        **({"instances": instances(plan)} if instances(plan) > 1 else {}),
        "runtime": plan.runtime.runtime.value,
        "release": plan.release.value,
        "profile": plan.profile,
        "start_grace_seconds": serve.start_grace,
        "ports": {"http": serve.http_port, "grpc": serve.grpc_port, "metrics": serve.metrics_port},
        "metrics_path": METRICS_PATH,
    }


def _has_ranks(plan: Plan) -> bool:
    """Whether ranks have to be started beside the one server of the LLM API; rehearsals run in it alone.

    Several instances each start ranks of their own.
    """
    return not serves_engines(plan) and plan.runtime.runtime.value == "tensorrt_llm" and instances(plan) == 1


def _servers(plan: Plan) -> int:
    """Return the servers that serve together: a leader's ranks, or an orchestrator with ranks that wait for it."""
    if not orchestrated(plan):
        return plan.parallelism.world_size
    return 1 if spawns(plan) else 1 + plan.parallelism.world_size


def _require_same_engine(opened: EngineFacts, plan: Plan) -> None:
    """Refuse an engine that was built with other arguments; how it is served may differ."""
    before, now = _engine_settings(opened.plan), _engine_settings(plan)
    differs = [f"{key} (was {before.get(key)}, now {now.get(key)})" for key in now if before.get(key) != now[key]]
    differs += [f"{key} (was {before[key]}, now absent)" for key in before if key not in now]
    if differs:
        raise PlanDrift(
            f"{opened.folder} was built for another plan",
            why=f"they differ in {'; '.join(differs)}",
            hint="run trtkit build again with this profile, or deploy with the profile the engine was built for",
        )


def _engine_settings(plan: Plan) -> dict[str, object]:
    return {
        "toolchain": plan.toolchain.value,
        "release": plan.release.value,
        "checkpoint": conversion_of(plan).digest[:12],
        **(built_with(plan) if serves_engines(plan) else llm_api_document(plan)),
    }


def built_with(plan: Plan) -> dict[str, object]:
    """Return what a built engine depends on beside its checkpoint."""
    split, limits = plan.parallelism, plan.limits
    options = plan.build.options if plan.build is not None else {}
    return {
        "tensor": split.tensor.value,
        "pipeline": split.pipeline.value,
        **({"context": split.context.value} if split.context else {}),
        "max_batch_size": limits.max_batch_size.value,
        "max_num_tokens": limits.max_num_tokens.value,
        "max_seq_len": limits.max_seq_len.value,
        "max_beam_width": limits.max_beam_width.value,
        **{name: decided.value for name, decided in options.items()},
    }


def _write(stage: Stage, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        if not stage.has(name):
            stage.write_text(name, text)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
