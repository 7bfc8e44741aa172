"""Asked, default, effective: what a release makes of the plan's settings without an error or a word (pure)."""

from __future__ import annotations

from collections.abc import Iterator

from trtllm_kit.frozen import Frozen
from trtllm_kit.plan.plan import Plan
from trtllm_kit.spec.load import LoadedProfile
from trtllm_kit.spec.profile import DeployProfile
from trtllm_kit.upstream.facts import Certainty
from trtllm_kit.upstream.rewrites import Name, rewrite

_TWO_MODELS = ("ngram", "draft_target", "auto")
_OWN_LENGTH: dict[str, Name] = {"mtp": "drafts_of_mtp", "auto": "drafts_of_auto"}


class Effective(Frozen):
    """One setting: what was asked, what holds without a word, what the release makes of it."""

    key: str
    """Of the deploy profile."""
    asked: str | None
    """None when the profile leaves it to the default."""
    default: str | None
    """None when there is none to speak of."""
    effective: str
    why: str
    certainty: Certainty


def effective(plan: Plan, loaded: LoadedProfile) -> tuple[Effective, ...]:
    """Return every setting that the release changes by itself, or that means something else than it says."""
    rewritten = _engine(plan) if plan.toolchain.value == "trtllm-build" else _llm_api(plan)
    return tuple(_row(plan, loaded, key, becomes, name) for key, becomes, name in rewritten if _does(plan, name))


def _engine(plan: Plan) -> Iterator[tuple[str, str, Name]]:
    """Yield what the builder settles, in its own order."""
    limits, drafts = plan.limits, plan.speculation.draft_tokens.value if plan.speculation else 0
    longest, batch, tokens = limits.max_seq_len.value, limits.max_batch_size.value, limits.max_num_tokens.value
    if drafts:
        yield "limits.max_seq_len", f"{longest + drafts}", "length_with_drafts"
    if tokens > batch * longest:
        yield "limits.max_num_tokens", f"{batch * longest}", "tokens_cut"
    if tokens < plan.runtime.tokens_per_block.value:
        yield "limits.max_num_tokens", f"{plan.runtime.tokens_per_block.value}", "tokens_of_a_block"
    if drafts and tokens < batch * (drafts + 1):
        yield "limits.max_num_tokens", f"{batch * (drafts + 1)}", "tokens_for_drafts"
    yield from _paged_context(plan)


def _paged_context(plan: Plan) -> Iterator[tuple[str, str, Name]]:
    """Yield what needs paged context attention, where the builder switches it off or leaves it off."""
    formats = plan.quantization.formats
    needs = {"kv_cache.enable_block_reuse": plan.runtime.enable_block_reuse.value,
             "scheduler.chunked_prefill": plan.runtime.chunked_prefill.value}  # fmt: skip
    lost = formats.kv_cache == "int8" or (formats.kv_cache == "fp8" and not {"fp8", "nvfp4"} & set(formats.used))
    for key, wanted in needs.items():
        if wanted and lost:
            yield key, "false", "paged_context_off"
        if wanted:
            yield key, "false unless --use_paged_context_fmha enable", "paged_context_default"


def _llm_api(plan: Plan) -> Iterator[tuple[str, str, Name]]:
    drafting, longest = plan.speculation, plan.limits.max_seq_len.value
    if drafting is not None and drafting.kind.value in _TWO_MODELS:
        yield "engine.overlap_scheduler", "false", "overlap_off"
    if drafting is not None and drafting.kind.value in _OWN_LENGTH:
        yield "speculation.draft_tokens", f"{drafting.draft_tokens.value}", _OWN_LENGTH[drafting.kind.value]
    if drafting is not None and drafting.acceptance_threshold is not None:
        yield "speculation.acceptance_threshold", "off until the server is started again", "speculation_off"
    yield "limits.max_batch_size", f"{plan.limits.max_batch_size.value}", "limits_reset"
    together = _whole_sequences(plan)
    if plan.runtime.scheduler_policy.value == "guaranteed_no_evict" and together < plan.limits.max_batch_size.value:
        shown = f"{together} at once without max_tokens in the request ({longest:,} tokens reserved for each)"
        yield "limits.max_batch_size", shown, "reserved_to_the_end"
    fraction = plan.runtime.free_gpu_memory_fraction.value
    if plan.runtime.runtime.value == "tensorrt_llm":
        yield "kv_cache.free_gpu_memory_fraction", f"{fraction:g} of what the first pass leaves", "profiling_pass"


def _whole_sequences(plan: Plan) -> int:
    """Return how many requests of ``max_seq_len`` the KV cache holds at once."""
    memory = plan.memory
    return max(0, memory.kv_budget_bytes // memory.kv_bytes_longest) if memory.kv_bytes_longest else 0


def _does(plan: Plan, name: Name) -> bool:
    return rewrite(name, plan.toolchain.value, plan.release.value) is not None


def _row(plan: Plan, loaded: LoadedProfile, key: str, becomes: str, name: Name) -> Effective:
    known = rewrite(name, plan.toolchain.value, plan.release.value)
    if known is None:
        raise LookupError(name)
    asked = _asked(loaded, key) if loaded.source(key) == "profile" else None
    return Effective(
        key=key, asked=asked, default=_default(key), effective=becomes, why=known.note, certainty=known.certainty
    )


def _asked(loaded: LoadedProfile, key: str) -> str:
    """Return what the profile says of a key, which the plan may have decided otherwise."""
    section, _, name = key.partition(".")
    return _text(getattr(getattr(loaded.profile, section), name))


def _default(key: str) -> str | None:
    """Return the default of a profile key, where its section has one."""
    section, _, name = key.partition(".")
    model = DeployProfile.model_fields[section].get_default(call_default_factory=True, validated_data={})
    value = getattr(model, name, None)
    return None if value is None else _text(value)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
