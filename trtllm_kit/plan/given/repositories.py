"""Rules about a rendered Triton repository, whoever rendered it (PF21)."""

from __future__ import annotations

from collections.abc import Iterator

from trtllm_kit.findings import Finding, Severity
from trtllm_kit.plan.given.facts import RepositoryFacts, TritonModel
from trtllm_kit.plan.given.finding import found, of_failure
from trtllm_kit.units import format_seconds
from trtllm_kit.upstream.failures import Failure, failure
from trtllm_kit.upstream.repositories import backends_of, parameter_keys, required_parameters

RULE = "PF21"
_ENGINE_ONLY = ("max_input_len", "max_seq_len", "max_num_tokens", "max_output_len", "max_batch_size")
_ON = frozenset({"true", "True", "TRUE", "1"})


def repository(facts: RepositoryFacts) -> Iterator[Finding]:
    """Run every rule about a repository."""
    for model in facts.models:
        yield from _placeholders(facts, model)
        yield from _keys(facts, model)
        yield from _batching(facts, model)
        yield from _instances(facts, model)
        yield from _backend(facts, model)
    yield from _streaming(facts)
    yield from _paths(facts)
    yield from _tensors(facts)
    yield from logits(facts)


def _placeholders(facts: RepositoryFacts, model: TritonModel) -> Iterator[Finding]:
    known = failure("unfilled_placeholder", facts.release)
    if known is not None and model.bare_placeholders:
        yield of_failure(
            RULE,
            known,
            f"A placeholder outside quotes {known.note}.",
            f"{model.name}: {', '.join(model.bare_placeholders)}",
            f"fill {model.bare_placeholders[0]}",
        )
    for key, value in model.parameters.items():
        if "${" not in value:
            continue
        needed = key in required_parameters(model.name)
        yield found(
            RULE,
            Severity.ERROR if needed else Severity.INFO,
            "A placeholder is left where a value is needed." if needed else "A placeholder is left: the default holds.",
            f"{model.name}: parameter {key} is {value}",
            f"fill {key}" if needed else "nothing to do, or an empty value",
        )


def _keys(facts: RepositoryFacts, model: TritonModel) -> Iterator[Finding]:
    known, length = failure("parameter_nobody_reads", facts.release), failure("length_in_pbtxt", facts.release)
    read = parameter_keys(model.name, facts.release)
    if model.llmapi or read is None or known is None or length is None:
        return
    for key in model.parameters:
        if key in read:
            continue
        engines = key in _ENGINE_ONLY
        why = length if engines else known
        yield of_failure(
            RULE,
            why,
            f"Parameter {key} {why.note}: " + ("it is the engine's." if engines else "the templates have no such key."),
            f"{model.name}: {key} {model.parameters[key]}",
            f"build the engine with it, and leave {key} out here" if engines else f"leave {key} out",
        )


def _batching(facts: RepositoryFacts, model: TritonModel) -> Iterator[Finding]:
    above = [size for size in model.preferred_batch_sizes if size > model.max_batch_size]
    known = failure("preferred_above_batch", facts.release)
    if above and known is not None:
        yield of_failure(
            RULE,
            known,
            f"A preferred batch size above max_batch_size {known.note}.",
            f"{model.name}: preferred {', '.join(map(str, above))}, max_batch_size {model.max_batch_size}",
            "dynamic_batching {} without preferred sizes: the engine batches in flight",
        )
    slow = failure("queue_delay", facts.release)
    if slow is not None and model.queue_delay_microseconds > slow.value:
        yield of_failure(
            RULE,
            slow,
            f"Every request {slow.note} before the engine sees it.",
            f"{model.name}: max_queue_delay_microseconds {model.queue_delay_microseconds:,} is "
            f"{format_seconds(model.queue_delay_microseconds / 1e6)}",
            "max_queue_delay_microseconds: 0",
        )
    most = facts.engine.limits.get("max_batch_size") if facts.engine else None
    cut = failure("batch_above_engine", facts.release)
    if cut is not None and most is not None and _of_engine(model) and model.max_batch_size > most:
        yield of_failure(
            RULE,
            cut,
            f"max_batch_size above the engine's {cut.note}.",
            f"{model.name}: max_batch_size {model.max_batch_size}, the engine's {most}",
            f"max_batch_size: {most}",
        )


def _instances(facts: RepositoryFacts, model: TritonModel) -> Iterator[Finding]:
    ignored = failure("gpus_of_instances", facts.release)
    spread = [group for group in model.instances if group.kind == "KIND_GPU" and (group.count > 1 or group.gpus)]
    if _of_engine(model) and spread and ignored is not None and not model.parameters.get("gpu_device_ids"):
        group = spread[0]
        yield of_failure(
            RULE,
            ignored,
            f"A GPU list or count of instance_group {ignored.note} by this backend.",
            f"{model.name}: KIND_GPU, count {group.count}, gpus {list(group.gpus)}",
            "KIND_CPU with count 1; gpu_device_ids places an engine, and a copy of the folder makes a second instance",
        )
    first = failure("llmapi_instances", facts.release)
    several = sum(group.count for group in model.instances)
    if model.llmapi and several > 1 and first is not None and not _places_itself(model):
        yield of_failure(
            RULE,
            first,
            f"Several instances of the llmapi model {first.note}.",
            f"{model.name}: {several} instances",
            "one server an instance, or a release from 1.3.0rc3 on with gpu_device_ids",
        )


def _places_itself(model: TritonModel) -> bool:
    """Whether it is trtkit's own llmapi model, which names its runtime and always reads ``gpu_device_ids``."""
    return "runtime" in model.parameters and bool(model.parameters.get("gpu_device_ids"))


def _backend(facts: RepositoryFacts, model: TritonModel) -> Iterator[Finding]:
    known = failure("backend_of_image", facts.release)
    held, named = backends_of(facts.image or ""), model.backend or model.platform
    if known is None or held is None or not named or named in held:
        return
    yield of_failure(
        RULE,
        known,
        f"Backend {named} {known.note}.",
        f"{model.name}: {named}; image {facts.image} has {', '.join(held)}",
        f"another image, or one of these: {', '.join(held)}",
    )


def _streaming(facts: RepositoryFacts) -> Iterator[Finding]:
    by_name = {model.name: model for model in facts.models}
    engine, bls = by_name.get("tensorrt_llm"), by_name.get("tensorrt_llm_bls")
    known = failure("decoupled_differs", facts.release)
    if engine and bls and known is not None and engine.decoupled != bls.decoupled:
        yield of_failure(
            RULE,
            known,
            f"decoupled differs, and so the server {known.note}.",
            f"tensorrt_llm {str(engine.decoupled).lower()}, tensorrt_llm_bls {str(bls.decoupled).lower()}",
            f"decoupled: {str(engine.decoupled or bls.decoupled).lower()} in both",
        )
    gathers = bls is not None and bls.parameters.get("accumulate_tokens", "") in _ON
    lost = failure("words_without_spaces", facts.release)
    if engine is not None and engine.decoupled and "ensemble" in by_name and not gathers and lost is not None:
        yield found(
            RULE,
            Severity.INFO,
            f"A stream through the ensemble {lost.note}, since each token is decoded alone.",
            "ensemble and decoupled, accumulate_tokens off",
            "stream from tensorrt_llm_bls with accumulate_tokens true, or decode in the client",
        )
    yield from _accumulating(facts, engine, gathers=gathers, streams=bls is not None and bls.decoupled)


def _accumulating(
    facts: RepositoryFacts, engine: TritonModel | None, *, gathers: bool, streams: bool
) -> Iterator[Finding]:
    known = failure("accumulate_with_beams", facts.release)
    beams = _whole_number(engine.parameters.get("max_beam_width")) if engine else None
    if gathers and streams and known is not None and beams is not None and beams > 1:
        yield of_failure(
            RULE,
            known,
            f"A streamed answer of several beams {known.note} while tokens are accumulated.",
            f"accumulate_tokens and decoupled true, max_beam_width {beams}",
            "accumulate_tokens false, or max_beam_width 1",
        )


def _paths(facts: RepositoryFacts) -> Iterator[Finding]:
    known, stops = failure("tokenizer_not_there", facts.release), failure("engine_folder_not_there", facts.release)
    for model in facts.models:
        engine = model.parameters.get("gpt_model_path", "")
        if stops is not None and _of_engine(model) and facts.paths.get(engine) is False:
            yield of_failure(
                RULE,
                stops,
                f"A model whose engine folder is not in the image {stops.note}.",
                f"{model.name}: gpt_model_path {engine}",
                f"mount {engine} into the container",
            )
        path = model.parameters.get("tokenizer_dir", "")
        if known is not None and facts.paths.get(path) is False:
            yield of_failure(
                RULE,
                known,
                f"A tokenizer folder that is not in the image {known.note}.",
                f"{model.name}: tokenizer_dir {path}",
                f"mount {path} into the container",
            )


def _tensors(facts: RepositoryFacts) -> Iterator[Finding]:
    known = failure("tensor_of_other_type", facts.release)
    for model in facts.models:
        for name, sent in facts.client_tensors.items():
            expected = model.tensors.get(name, sent)
            if known is not None and expected != sent:
                yield of_failure(
                    RULE,
                    known,
                    f"A tensor of another type {known.note}.",
                    f"{model.name}: {name} is {expected}, the client sends {sent}",
                    "a client of the repository's own tag",
                )


def logits(facts: RepositoryFacts) -> Iterator[Finding]:
    """PF21: gathered logits of half precision, which the C++ backend reads as float32."""
    known, engine = failure("logits_of_half_precision", facts.release), facts.engine
    if known is None or engine is None or not engine.gathers_logits:
        return
    half = (engine.logits_dtype or engine.dtype) == "float16"
    if half and any(model.backend == "tensorrtllm" for model in facts.models):
        yield _half(known, engine.logits_dtype)


def _half(known: Failure, stated: str | None) -> Finding:
    return of_failure(
        RULE,
        known,
        f"Half-precision logits of the C++ backend {known.note}.",
        f"gathered logits, logits_dtype {stated or 'of the weights: float16'}",
        "build with --logits_dtype float32, or backend python",
    )


def _of_engine(model: TritonModel) -> bool:
    return model.backend in ("tensorrtllm", "tensorrt_llm") or (model.name == "tensorrt_llm" and not model.llmapi)


def _whole_number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None
