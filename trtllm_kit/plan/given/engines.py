"""Rules about an engine folder: files, where it runs, types, lengths, requests (PF11, PF16, PF17, PF19, PF22-25)."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import InvalidVersion, Version

from trtllm_kit.findings import Finding, Severity
from trtllm_kit.plan.given.facts import EngineFacts, ServingFacts
from trtllm_kit.plan.given.finding import found, of_failure
from trtllm_kit.units import format_bytes
from trtllm_kit.upstream.failures import failure
from trtllm_kit.upstream.stack import built_with, container, oldest_driver

_TYPES = frozenset({"float16", "bfloat16", "float32"})
_ON = frozenset({True, "true", "enable", "enabled"})


def files(engine: EngineFacts) -> Iterator[Finding]:
    """PF19: a folder without ``config.json``, or without one whole file for each rank."""
    if not engine.config:
        yield found(
            "PF19",
            Severity.ERROR,
            "The engine folder has no config.json.",
            f"{len(engine.files)} rank files, 0 config.json",
            "copy config.json of the build beside the rank files",
        )
        return
    missing = sorted(set(range(engine.ranks)) - engine.files.keys())
    empty = sorted(rank for rank, size in engine.files.items() if size == 0)
    more = sorted(engine.files.keys() - set(range(engine.ranks)))
    if missing or empty:
        yield found(
            "PF19",
            Severity.ERROR,
            "The engine folder does not hold one whole file for each rank.",
            f"{engine.ranks} ranks by its mapping; missing {missing or 'none'}, empty {empty or 'none'}",
            "copy the folder again, or build it again: a build that was killed leaves such files",
        )
    if more:
        yield found(
            "PF19",
            Severity.WARNING,
            "The engine folder holds rank files that its config.json does not speak of.",
            f"{engine.ranks} ranks by its mapping, more files for {more}",
            "build into an empty folder",
        )


def serving(engine: EngineFacts, where: ServingFacts) -> Iterator[Finding]:
    """PF19: an engine of another release, TensorRT or GPU than it is to run with; a driver or NCCL that does not do."""
    yield from _release(engine, where)
    known = failure("engine_of_other_gpu", where.release)
    built, served = engine.compute_capability, where.compute_capability
    if known is not None and None not in (built, served) and built != served:
        yield of_failure(
            "PF19",
            known,
            f"An engine built on another kind of GPU {known.note}.",
            f"built on compute capability {built}, served on {served}",
            "build it on the GPU that serves it",
        )
    yield from driver(where)
    yield from _nccl(where)


def _release(engine: EngineFacts, where: ServingFacts) -> Iterator[Finding]:
    old = failure("engine_of_old_builder", where.release)
    if engine.config and engine.version is None and old is not None:
        yield of_failure(
            "PF19",
            old,
            f"The engine's config.json states no version and {old.note}.",
            f"version absent, served by {where.release}",
            f"build it again with {where.release}",
        )
    gone = failure("engine_flow_gone", where.release)
    if gone is not None and engine.config:
        yield of_failure(
            "PF19",
            gone,
            f"The engine backend {gone.note} in release {where.release}.",
            f"engine of {engine.version}, served by {where.release}",
            "serve the Hugging Face checkpoint (toolchain: llm-api), or an image of 1.2.1",
        )
        return
    yield from _other_tensorrt(engine, where)


def _other_tensorrt(engine: EngineFacts, where: ServingFacts) -> Iterator[Finding]:
    known = failure("engine_of_other_tensorrt", where.release)
    if engine.version is None or known is None:
        return
    one, other = _tensorrt(engine.tensorrt, engine.version), _tensorrt(where.tensorrt, where.release)
    if one and other and not _same_patch(one, other):
        yield of_failure(
            "PF19",
            known,
            f"An engine of another TensorRT {known.note}: the numbers in that message are serialisation versions.",
            f"engine of {engine.version} with TensorRT {one}, served by {where.release} with {other}",
            f"build it in the image that serves it, or serve it with {engine.version}",
        )
    elif engine.version != where.release:
        yield found(
            "PF19",
            Severity.WARNING,
            "The engine is of another release than the one that serves it; whether their TensorRT is equal is "
            "not confirmed for this release.",
            f"engine of {engine.version}, served by {where.release}",
            "build and serve in one image",
        )


def driver(where: ServingFacts) -> Iterator[Finding]:
    """PF19: a driver of an older CUDA than the container's, which a data-centre GPU bridges and a consumer GPU not."""
    brings = container(where.container) if where.container else None
    known = failure("driver_of_image", where.release)
    if brings is None or where.driver is None or known is None:
        return
    least = oldest_driver(brings.cuda) or brings.driver
    if _at_least(where.driver, least):
        return  # one of the same major CUDA runs it too
    compared = f"driver {where.driver}; container {brings.tag} has CUDA {brings.cuda}, which runs on {least} and newer"
    if where.consumer_gpu:
        message = f"A container with a newer CUDA {known.note} on a consumer GPU, which has no forward compatibility."
        yield of_failure("PF19", known, message, compared, f"install driver {least} or newer")
    else:
        yield found(
            "PF19",
            Severity.WARNING,
            "The driver is of an older CUDA than the container's, so it needs CUDA's forward compatibility package.",
            compared,
            f"install driver {least} or newer, or check `nvidia-smi` inside the container",
        )


def _nccl(where: ServingFacts) -> Iterator[Finding]:
    known = failure("nccl_all_reduce", where.release)
    if known is None or where.nccl is None or _at_least(where.nccl, known.text):
        return
    yield of_failure(
        "PF19",
        known,
        f"NCCL {where.nccl} {known.note} with release {where.release}.",
        f"NCCL {where.nccl}, {known.text} was seen to work",
        f"install NCCL {known.text} or newer",
    )


def plugin_types(engine: EngineFacts, release: str) -> Iterator[Finding]:
    """PF16: a plugin of another type than the weights."""
    known = failure("plugin_of_other_type", release)
    if engine.dtype is None or known is None:
        return
    for name, value in engine.plugins.items():
        if name.endswith("_plugin") and value in _TYPES and value != engine.dtype:
            yield of_failure(
                "PF16",
                known,
                f"{name} {value} on {engine.dtype} weights {known.note}.",
                f"{name} {value}, dtype {engine.dtype}",
                f"{name} auto",
            )


def lengths(engine: EngineFacts, release: str, free_bytes: float | None = None) -> Iterator[Finding]:
    """PF11 and PF17: lengths beyond what the rope was told, and attention that keeps the scores of a whole batch.

    ``free_bytes`` is what the engine's weights leave of a GPU, where it is known: scores that fit are a remark.
    """
    longest, known = engine.limits.get("max_seq_len"), failure("rope_lost", release)
    drafts = engine.limits.get("max_draft_len", 0)
    if longest and engine.positions and known and engine.rope_scaling is None and longest - drafts > engine.positions:
        yield of_failure(
            "PF11",
            known,
            f"Text beyond the model's positions {known.note}, and the checkpoint states no rope scaling.",
            f"max_seq_len {longest:,}, max_position_embeddings {engine.positions:,}, rotary_scaling absent",
            "convert again and see that rope_scaling of the model's config.json is in the checkpoint's",
        )
    if engine.plugins.get("context_fmha") in (False, "disable", "disabled"):
        yield from _kept_scores(engine, release, free_bytes)


def _kept_scores(engine: EngineFacts, release: str, free_bytes: float | None) -> Iterator[Finding]:
    known = failure("scores_in_memory", release)
    if known is None:
        return
    batch, prompt = engine.limits.get("max_batch_size", 1), engine.limits.get("max_input_len", 0)
    each = batch * prompt * prompt * known.value
    compared = f"{batch} x {prompt:,} x {prompt:,} scores of {known.value} bytes = {format_bytes(each)} for every head"
    message, way_out = f"Attention without context FMHA {known.note}.", "context_fmha enable"
    if free_bytes is None or engine.heads is None:
        yield of_failure("PF17", known, message, compared, way_out)
        return
    whole = engine.heads * each
    compared += f", {format_bytes(whole)} for the {engine.heads} of a rank; {format_bytes(max(free_bytes, 0))} free"
    if whole <= free_bytes:
        yield found("PF17", Severity.INFO, message, compared, way_out)
    else:
        yield of_failure("PF17", known, f"{message[:-1]}, and a GPU has less.", compared, way_out)


def reuse(engine: EngineFacts, release: str, *, wants_reuse: bool, wants_chunks: bool) -> Iterator[Finding]:
    """PF23: block reuse or chunked context of an engine without paged context attention."""
    paged = engine.plugins.get("use_paged_context_fmha")
    if paged is None or paged in _ON:
        return
    asked = (
        ("block reuse", wants_reuse, failure("reuse_without_paged_context", release)),
        ("chunked context", wants_chunks, failure("chunks_without_paged_context", release)),
    )
    for name, wanted, known in asked:
        if not wanted or known is None:
            continue
        yield of_failure(
            "PF23",
            known,
            f"{name.capitalize()} {known.note}: the engine has no paged context attention.",
            f"{name} asked, use_paged_context_fmha {str(paged).lower()}",
            "build with --use_paged_context_fmha enable",
        )


def request(
    engine: EngineFacts, release: str, *, beams: int = 1, drafts: int = 0, prompt: int = 0
) -> Iterator[Finding]:
    """PF22 and PF25: a request's beams, drafts or prompt against what the engine was built for."""
    widest, known = engine.limits.get("max_beam_width", 1), failure("beams_of_request", release)
    if known is not None and beams > widest:
        yield of_failure(
            "PF22",
            known,
            f"A request with more beams than the engine's {known.note}.",
            f"{beams} beams asked, max_beam_width {widest}",
            f"ask for {widest} beams, or build with max_beam_width {beams}",
        )
    longest, known = engine.limits.get("max_draft_len", 0), failure("drafts_of_request", release)
    if known is not None and drafts > longest:
        yield of_failure(
            "PF25",
            known,
            f"A request with more drafts than the engine takes {known.note}.",
            f"{drafts} draft tokens, max_draft_len {longest}",
            f"build the target with --max_draft_len {drafts} and a speculative mode",
        )
    chunked, refused = engine.plugins.get("use_paged_context_fmha") in _ON, failure("prompt_of_engine", release)
    for name in ("max_input_len", *(() if chunked else ("max_num_tokens",))):
        most = engine.limits.get(name, prompt)
        if refused is not None and prompt > most:
            yield of_failure(
                "PF22",
                refused,
                f"A prompt longer than {name} of the engine {refused.note}, and nothing in config.pbtxt changes that.",
                f"prompt {prompt:,}, {name} {most:,}",
                f"build with --{name} {prompt}",
            )


def _tensorrt(stated: str | None, release: str) -> str | None:
    """Return the TensorRT that somebody looked up, or the one the release was built with."""
    built = built_with(release)
    return stated or (built.tensorrt if built else None)


def _same_patch(one: str, other: str) -> bool:
    """Whether two versions agree as far as both are stated."""
    pairs = zip(one.split("."), other.split("."), strict=False)
    return all(left == right for left, right in pairs)


def _at_least(version: str, least: str) -> bool:
    """Whether a version is no older; one that cannot be read is not doubted."""
    try:
        return Version(version) >= Version(least)
    except InvalidVersion:
        return True
