"""The five models that serve a built engine through Triton's C++ backend, and a sixth for a draft engine (pure).

The types that upstream's templates leave open are chosen once and declared alike in every model; every parameter of
the release's templates is there, empty where the backend's own default is wanted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trtllm_kit.build.trtllm_build import DRAFT
from trtllm_kit.errors import RepositoryError
from trtllm_kit.plan.plan import Plan
from trtllm_kit.plan.serving_mode import device_sets, has_draft, instances, obstacle, orchestrated, spawns
from trtllm_kit.repository.model_config import Batching, EnsembleStep, InstanceGroup, ModelConfig, ModelTensor
from trtllm_kit.repository.places import MODEL, Places
from trtllm_kit.upstream.repositories import ordered_parameters
from trtllm_kit.upstream.triton_engines import EngineTensor, engine_tensors, fixed_type, joined

BACKEND = "tensorrtllm"
ENSEMBLE, PREPROCESSING, POSTPROCESSING, BLS = "ensemble", "preprocessing", "postprocessing", "tensorrt_llm_bls"
DRAFT_MODEL = f"{MODEL}_draft"
MAX_QUEUE_SIZE = 1024
PERIOD_MS = 100
"""How often the backend looks for cancelled requests and renews its figures."""
STATISTICS_KEPT = 1000
"""Iterations whose figures the executor keeps; with none the backend's metrics stay empty."""
WORKER = "/opt/tritonserver/backends/tensorrtllm/trtllmExecutorWorker"
"""Program of the ranks that an orchestrator spawns, where the release's container has it."""
_DECODING = ("medusa", "eagle", "redrafter", "lookahead")
"""Kinds of speculation that the decoder itself does; the backend calls them the same."""
_LOOKAHEAD = ("lookahead_window_size", "lookahead_ngram_size", "lookahead_verification_set_size")
_DEFAULT_TYPES = {"logits": "FP32", "features": "FP16", "prompts": "FP16"}
_LEFT_OUT = frozenset({"enable_trt_overlap", "recv_poll_period_ms"})
"""Parameters that the templates do not have: the one was given up, the other came with no place in them."""


def engine_models(plan: Plan, places: Places) -> tuple[ModelConfig, ...]:
    """Return the configurations of all models of a repository for the engine of a plan.

    Raises ``RepositoryError`` for instances that the mode of the server cannot have.
    """
    _require_servable(plan)
    drafting = has_draft(plan)
    engines = [_engine(plan, MODEL, places.engine)]
    if drafting:
        engines.append(_engine(plan, DRAFT_MODEL, f"{places.engine}/{DRAFT}"))
    return (
        _ensemble(plan),
        _python(plan, PREPROCESSING, _preprocessing(places), gathers=True),
        *engines,
        _python(plan, POSTPROCESSING, {"tokenizer_dir": places.tokenizer, "skip_special_tokens": "true"}, gathers=True),
        _python(plan, BLS, _bls(drafting=drafting), decoupled=True),
    )


def _require_servable(plan: Plan) -> None:
    found = obstacle(plan)
    if found is not None:
        why = f"{found.what} ({found.compared})"
        raise RepositoryError("no repository serves this engine", why=why, hint=found.way_out)


def _ensemble(plan: Plan) -> ModelConfig:
    version = plan.release.value
    steps = (
        EnsembleStep(model=model, inputs=joined(model, "input", version), outputs=joined(model, "output", version))
        for model in (PREPROCESSING, MODEL, POSTPROCESSING)
    )
    return ModelConfig(name=ENSEMBLE, max_batch_size=_batch(plan), **_tensors(plan, ENSEMBLE), steps=tuple(steps))


def _python(
    plan: Plan, name: str, parameters: Mapping[str, str], *, gathers: bool = False, decoupled: bool = False
) -> ModelConfig:
    """Return one of our own models. One instance: the pieces of a stream must pass postprocessing in their order."""
    return ModelConfig(
        name=name,
        backend="python",
        max_batch_size=_batch(plan),
        decoupled=decoupled,
        batching=Batching() if gathers else None,
        parameters=dict(parameters),
        **_tensors(plan, name),
    )


def _engine(plan: Plan, name: str, folder: str) -> ModelConfig:
    return ModelConfig(
        name=name,
        backend=BACKEND,
        max_batch_size=_batch(plan),
        decoupled=True,
        batching=Batching(preferred=(_batch(plan),), max_queue_size=MAX_QUEUE_SIZE),
        instance_group=InstanceGroup(count=instances(plan)),
        parameters=_complete(plan.release.value, dict(_settings(plan, name, folder))),
        **_tensors(plan, MODEL),
    )


def _preprocessing(places: Places) -> dict[str, str]:
    return {"tokenizer_dir": places.tokenizer, "add_special_tokens": "true"}


def _bls(*, drafting: bool) -> dict[str, str]:
    names = {"tensorrt_llm_model_name": MODEL, "tensorrt_llm_draft_model_name": DRAFT_MODEL if drafting else ""}
    return {"accumulate_tokens": "false", **names}


def _settings(plan: Plan, name: str, folder: str) -> Iterator[tuple[str, str]]:
    """Yield what is decided of an engine's parameters; the others stay empty, for the backend's own defaults."""
    runtime, limits = plan.runtime, plan.limits
    drafts = name == DRAFT_MODEL
    fraction = runtime.free_gpu_memory_fraction.value
    yield "max_beam_width", str(1 if drafts else limits.max_beam_width.value)
    yield "FORCE_CPU_ONLY_INPUT_TENSORS", "no"
    yield "gpt_model_type", "inflight_fused_batching"
    yield "gpt_model_path", folder
    yield "batch_scheduler_policy", runtime.scheduler_policy.value
    yield "kv_cache_free_gpu_mem_fraction", f"{fraction:g}"
    yield "kv_cache_host_memory_bytes", str(runtime.host_cache_bytes.value if runtime.host_cache_bytes else 0)
    yield "max_attention_window_size", ",".join(map(str, runtime.max_attention_window.value))
    yield "enable_kv_cache_reuse", _word(runtime.enable_block_reuse.value)
    yield "enable_chunked_context", _word(runtime.chunked_prefill.value)
    yield "exclude_input_in_output", "false"
    yield "cancellation_check_period_ms", str(PERIOD_MS)
    yield "stats_check_period_ms", str(PERIOD_MS)
    yield "iter_stats_max_iterations", str(STATISTICS_KEPT)
    yield "executor_worker_path", WORKER
    if has_draft(plan):  # a share of what is free would leave the engine that loads last hardly any
        yield "max_tokens_in_paged_kv_cache", str(max(1, plan.memory.kv_budget_bytes // plan.memory.kv_bytes_per_token))
    yield "decoding_mode", "" if drafts else _decoding_mode(plan)
    yield from (() if drafts else _lookahead(plan))
    yield from _ranks(plan, name)


def _ranks(plan: Plan, name: str) -> Iterator[tuple[str, str]]:
    """Yield which GPUs and ranks an orchestrator's engines have; the draft's come after the model's."""
    if not orchestrated(plan):
        return
    world, draft = plan.parallelism.world_size, name == DRAFT_MODEL
    own = plan.build.draft_ranks.value if draft and plan.build and plan.build.draft_ranks else world
    if not spawns(plan):
        first = 1 + (world if draft else 0)
        yield "participant_ids", ",".join(str(rank) for rank in range(first, first + own))
    else:
        yield "gpu_device_ids", ",".join(map(str, range(own))) if draft else device_sets(plan)


def _decoding_mode(plan: Plan) -> str:
    kind = plan.speculation.kind.value if plan.speculation else ""
    if kind in _DECODING:
        return kind
    return "beam_search" if plan.limits.max_beam_width.value > 1 else "top_k_top_p"


def _lookahead(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield the shape of lookahead decoding: the largest equal sizes that draft no more than was built for."""
    if plan.speculation is None or plan.speculation.kind.value != "lookahead":
        return
    drafts = plan.speculation.draft_tokens.value
    size = max((n for n in range(2, drafts + 2) if lookahead_drafts(n, n, n) <= drafts), default=0)
    yield from zip(_LOOKAHEAD, map(str, (size,) * 3 if size else (1, 2, 1)), strict=True)


def lookahead_drafts(window: int, ngram: int, verified: int) -> int:
    """Return the tokens that lookahead decoding of that shape drafts at most in a step.

    Recalled from the examples of TensorRT-LLM: 7, 7, 7 want ``--max_draft_len 83``.
    """
    return max(0, ngram - 2) + (window - 1 + verified) * (ngram - 1)


def _complete(version: str, given: Mapping[str, str]) -> dict[str, str]:
    """Return every parameter of the release's template in its order, and none that the release does not read."""
    return {key: given.get(key, "") for key in ordered_parameters(MODEL, version) if key not in _LEFT_OUT}


def _batch(plan: Plan) -> int:
    return plan.limits.max_batch_size.value


def _tensors(plan: Plan, model: str) -> dict[str, tuple[ModelTensor, ...]]:
    types, found = _types(plan), engine_tensors(model, plan.release.value)
    return {f"{side}s": tuple(_tensor(one, types) for one in found if one.side == side) for side in ("input", "output")}


def _tensor(tensor: EngineTensor, types: Mapping[str, str]) -> ModelTensor:
    return ModelTensor.model_validate(
        {
            "name": tensor.name,
            "data_type": f"TYPE_{types.get(tensor.data_type, tensor.data_type)}",
            "dims": tensor.dims,
            "optional": tensor.optional,
            "ragged": tensor.form == "ragged",
            "scalar": tensor.form == "scalar",
        }
    )


def _types(plan: Plan) -> dict[str, str]:
    """Return the types that hold in all models: what the release fixes, else what the engine computes in."""
    options = plan.build.options if plan.build is not None else {}
    half = "--logits_dtype" in options and options["--logits_dtype"].value == "float16"
    chosen = _DEFAULT_TYPES | {"prompts": "BF16" if plan.model.dtype == "bfloat16" else "FP16"}
    chosen |= {"logits": "FP16"} if half else {}
    return {choice: fixed_type(choice, plan.release.value) or kind for choice, kind in chosen.items()}


def _word(value: bool) -> str:
    return "true" if value else "false"
