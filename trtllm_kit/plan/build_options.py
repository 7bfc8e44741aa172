"""Which options ``trtllm-build`` is given for a plan, each with the reason (pure).

Everything that matters is passed, since defaults changed between releases; what a release does not take is left out.
"""

from __future__ import annotations

from collections.abc import Iterator

from trtllm_kit.light import dataclass
from trtllm_kit.plan.plan import Decided, Plan, Source
from trtllm_kit.spec.adapter import AdapterFacts
from trtllm_kit.spec.model import Experts
from trtllm_kit.spec.profile_build import OptionValue
from trtllm_kit.units import counted
from trtllm_kit.upstream.builder import (
    fp8_attention_capability,
    fp8_attention_formats,
    reduces_in_norm,
    takes_stages_in_norm,
)
from trtllm_kit.upstream.speculation import builder_mode
from trtllm_kit.upstream.trtllm_build import adapter_module, build_flag

Option = tuple[str, Decided[OptionValue]]
ON, OFF = "enable", "disable"
_BY_ROW = "FP8_PER_CHANNEL_PER_TOKEN"


@dataclass(frozen=True)
class Subject:
    """What an engine is built of: the model of a plan, or the draft model beside it."""

    algo: str | None
    """Upstream's word for the weights; None for 16 bit."""
    kv_cache: str
    architecture: str
    dtype: str
    """Type of what is in 16 bit, as config.json spells it."""
    experts: bool
    tensor: int
    pipeline: int
    context: int = 1

    @property
    def ranks(self) -> int:
        """Files of the engine."""
        return self.tensor * self.pipeline * self.context


def subject_of(plan: Plan) -> Subject:
    """Return what the engine of a plan is built of."""
    algo, model, split = plan.quantization.algo, plan.model, plan.parallelism
    return Subject(
        algo=algo.value if algo else None,
        kv_cache=plan.quantization.kv_cache.value,
        architecture=model.architecture,
        dtype=model.dtype,
        experts=any(isinstance(layer.feed_forward, Experts) for layer in model.layers),
        tensor=split.tensor.value,
        pipeline=split.pipeline.value,
        context=split.split.context,
    )


@dataclass(frozen=True)
class BuildCase:
    """What the options depend on."""

    plan: Plan
    of: Subject
    asked: dict[str, OptionValue]
    """Options the profile sets, by name with dashes."""
    gpus_per_node: int
    nvlink_domain: int
    is_draft: bool = False
    """Whether it is the draft model's engine: it drafts for the plan's, and nobody for it."""
    adapters: tuple[AdapterFacts, ...] = ()
    """What is known of the folders of ``--lora_dir``."""

    @property
    def version(self) -> str:
        """The release."""
        return self.plan.release.value

    @property
    def mode(self) -> str | None:
        """The speculative mode; None without, and for a draft."""
        if self.is_draft:
            return None
        asked = self.asked.get("--speculative_decoding_mode")
        if asked is not None:
            return str(asked)
        drafting = self.plan.speculation
        return builder_mode(drafting.kind.value, self.version) if drafting is not None else None


def chosen_options(case: BuildCase) -> dict[str, Decided[OptionValue]]:
    """Return every option of a build in the order it is passed, without those the release does not take."""
    found: dict[str, Decided[OptionValue]] = {}
    for name, decided in (*_limits(case), *_cache(case), *_kernels(case), *_attention(case), *_fusions(case),
                          *_drafts(case), *_lora(case), *_work(case)):  # fmt: skip
        flag = build_flag(case.version, name)
        if flag is None:
            continue
        value: OptionValue = decided.value == ON if flag.takes == "flag" else decided.value
        found[name] = decided.model_copy(update={"value": value})
    return found


def _limits(case: BuildCase) -> Iterator[Option]:
    limits = case.plan.limits
    for name in ("max_batch_size", "max_seq_len", "max_num_tokens", "max_beam_width"):
        decided = getattr(limits, name)
        yield f"--{name}", Decided(value=decided.value, source=decided.source, reason=f"limits.{name}")
    yield "--max_input_len", _rule(limits.max_seq_len.value, "a prompt may fill limits.max_seq_len; else 1,024 tokens")
    if case.asked.get("--multiple_profiles") == ON:
        return  # the two refuse each other
    usual = min(limits.max_batch_size.value * limits.max_beam_width.value, limits.max_num_tokens.value)
    yield "--opt_num_tokens", _rule(usual, "kernels are tuned for a full batch of one token a sequence")


def _cache(case: BuildCase) -> Iterator[Option]:
    if build_flag(case.version, "--kv_cache_type") is not None:
        yield "--kv_cache_type", _rule("paged", "in-flight batching needs a cache of blocks")
    else:
        yield "--paged_kv_cache", _rule(ON, "in-flight batching needs a cache of blocks")
    blocks = case.plan.runtime.tokens_per_block
    yield "--tokens_per_block", Decided(value=blocks.value, source=blocks.source, reason="kv_cache.tokens_per_block")
    yield "--remove_input_padding", _rule(ON, "in-flight batching packs prompts without padding")
    yield "--paged_state", _rule(OFF, "the model keeps no recurrent state")
    yield "--streamingllm", _rule(OFF, "it gives up block reuse, and later releases refuse it")


def _kernels(case: BuildCase) -> Iterator[Option]:
    dtype = case.of.dtype
    yield "--gpt_attention_plugin", _rule("auto", f"the checkpoint's own type, {dtype}")
    yield "--gemm_plugin", _gemm(case)
    rowwise = case.of.algo == _BY_ROW
    why = "scales by row are multiplied in that plugin" if rowwise else "the weights have no scales by row"
    yield "--fp8_rowwise_gemm_plugin", _rule("auto" if rowwise else OFF, why)
    experts = case.of.experts
    yield "--moe_plugin", _rule("auto" if experts else OFF, "the model has experts" if experts else "it has no experts")
    yield "--low_latency_gemm_plugin", _rule(OFF, "it pays at batches of four and fewer alone")
    yield "--low_latency_gemm_swiglu_plugin", _rule(OFF, "it pays at batches of four and fewer alone")
    yield "--gemm_swiglu_plugin", _rule(OFF, "it drops one of two scales, which costs accuracy")


def _gemm(case: BuildCase) -> Decided[OptionValue]:
    flag = build_flag(case.version, "--gemm_plugin")
    if case.of.algo == "NVFP4" and flag is not None and flag.accepts("nvfp4"):
        return _rule("nvfp4", "NVFP4 weights are multiplied in that plugin")
    if case.asked.get("--weight_streaming") is True:
        return _rule(OFF, "weights inside a plugin cannot be streamed")
    if case.of.algo in ("FP8", "MIXED_PRECISION"):
        return _rule(OFF, "TensorRT's own FP8 kernels are the quicker ones at large batches")
    return _rule("auto", "the plugin's kernels, in the checkpoint's own type")


def _attention(case: BuildCase) -> Iterator[Option]:
    yield "--context_fmha", _rule(ON, "without it attention scores of a whole batch are kept")
    paged, why = _paged(case)
    yield "--use_paged_context_fmha", _rule(ON if paged else OFF, why)
    eight, why = _fp8_attention(case, paged=case.asked.get("--use_paged_context_fmha", ON if paged else OFF) == ON)
    yield "--use_fp8_context_fmha", _rule(ON if eight else OFF, why)


def _paged(case: BuildCase) -> tuple[bool, str]:
    cache, runtime = case.of.kv_cache, case.plan.runtime
    if cache == "int8":
        return False, "it cannot read an INT8 KV cache"
    if cache == "fp8" and case.of.algo not in fp8_attention_formats(case.version):
        return False, f"with an FP8 KV cache it needs {' or '.join(fp8_attention_formats(case.version))} weights"
    least = fp8_attention_capability(case.version)
    if cache == "fp8" and case.plan.compute_capability < least:
        return False, f"with an FP8 KV cache it needs compute capability {least}"
    needs = {"block reuse": runtime.enable_block_reuse.value, "chunked prefill": runtime.chunked_prefill.value,
             "speculation": case.is_draft or case.mode is not None}  # fmt: skip
    wanted = [name for name, needed in needs.items() if needed]
    return bool(wanted), f"{', '.join(wanted)} cannot do without it" if wanted else "nothing asked for needs it"


def _fp8_attention(case: BuildCase, *, paged: bool) -> tuple[bool, str]:
    if case.of.kv_cache != "fp8":
        return False, "the KV cache is not FP8"
    if case.of.algo not in fp8_attention_formats(case.version):
        return False, "the weights have no FP8 scales for it"
    least = fp8_attention_capability(case.version)
    if case.plan.compute_capability < least:
        return False, f"it needs compute capability {least}"
    return True, "paged attention over an FP8 KV cache" if paged else "the KV cache and the weights are FP8"


def _fusions(case: BuildCase) -> Iterator[Option]:
    fused = case.of.algo in (None, "FP8", "MIXED_PRECISION")
    yield "--use_fused_mlp", _rule(ON if fused else OFF, "one GEMM for gate and up" if fused else "not for that format")
    reduced, why = _reduce_fusion(case)
    yield "--reduce_fusion", _rule(ON if reduced else OFF, why)
    asked = case.asked.get("--reduce_fusion", ON if reduced else OFF) == ON
    near = case.of.tensor <= case.nvlink_domain
    buffer = asked and near and case.of.algo == "FP8" and case.of.architecture == "LlamaForCausalLM"
    why = "FP8 Llama with fused reductions" + ("" if buffer else " over NVLink alone")
    yield "--user_buffer", _rule(ON if buffer else OFF, why)
    norm = case.of.algo == "NVFP4" and not asked and case.of.architecture == "LlamaForCausalLM"
    why = "NVFP4 Llama without fused reductions" if norm else "made for NVFP4 Llama without fused reductions"
    yield "--norm_quant_fusion", _rule(ON if norm else OFF, why)
    yield "--multiple_profiles", _rule(OFF, "several profiles cost several times the time of the build")


def _reduce_fusion(case: BuildCase) -> tuple[bool, str]:
    split, architecture = case.of, case.of.architecture
    if split.tensor == 1:
        return False, "there is nothing to reduce with one tensor rank"
    if split.pipeline > 1 and not takes_stages_in_norm(case.version):
        return False, "the release switches it off with pipeline stages"
    if architecture not in reduces_in_norm(case.version):
        return False, f"the release has it for {', '.join(reduces_in_norm(case.version))} alone"
    return True, "all-reduce, residual and norm in one kernel"


def _drafts(case: BuildCase) -> Iterator[Option]:
    speculation = case.plan.speculation
    if case.mode is None:
        return
    kind = f"speculation.kind {speculation.kind.value}" if speculation else "the mode asked for"
    yield "--speculative_decoding_mode", _rule(case.mode, kind)
    if speculation is not None:
        drafts = speculation.draft_tokens
        yield "--max_draft_len", Decided(value=drafts.value, source=drafts.source, reason="speculation.draft_tokens")


def _lora(case: BuildCase) -> Iterator[Option]:
    used = not case.is_draft and any(case.asked.get(name) for name in ("--lora_target_modules", "--lora_dir"))
    why = f"adapters in the layers' own type, {case.of.dtype}" if used else "no adapters are asked for"
    yield "--lora_plugin", _rule(case.of.dtype if used else OFF, why)
    places = words(case.asked.get("--lora_dir")) if used else ()
    if places:
        nemo = all(place.endswith(".nemo") for place in places)
        yield "--lora_ckpt_source", _rule("nemo" if nemo else "hf", "by the names in lora_dir")
    if places and case.adapters:
        ranks, modules = largest_rank(case.adapters), target_modules(case.adapters)
        yield "--max_lora_rank", _rule(ranks, f"the largest r of {counted(len(case.adapters), 'adapter')}")
        if modules:
            yield "--lora_target_modules", _rule(modules, "target_modules of the adapters")


def words(value: OptionValue | None) -> tuple[str, ...]:
    """Return the words of an option that takes several; none where it is not set."""
    return tuple(map(str, value)) if isinstance(value, tuple) else () if value is None else (str(value),)


def largest_rank(adapters: tuple[AdapterFacts, ...]) -> int:
    """Return the rank that holds every adapter."""
    return max(one.rank for one in adapters)


def target_modules(adapters: tuple[AdapterFacts, ...]) -> tuple[str, ...]:
    """Return what the builder calls the layers that adapters change; none where one changes what it has no name for."""
    named = [adapter_module(layer) for one in adapters for layer in one.layers]
    return () if None in named else tuple(dict.fromkeys(name for name in named if name is not None))


def _work(case: BuildCase) -> Iterator[Option]:
    ranks = case.of.ranks
    workers = min(ranks, case.gpus_per_node)
    yield (
        "--workers",
        _rule(
            workers,
            f"{counted(ranks, 'rank')}, {counted(case.gpus_per_node, 'GPU')} in a node; each loads a rank's weights",
        ),
    )
    yield "--logits_dtype", _rule("float32", "half-precision logits are misread by the C++ backend")
    yield "--profiling_verbosity", _rule("layer_names_only", "details make a larger engine")
    yield "--log_level", _rule("info", "the log names the phases of a build")


def _rule(value: OptionValue, reason: str, source: Source = "rule") -> Decided[OptionValue]:
    return Decided[OptionValue](value=value, source=source, reason=reason)
