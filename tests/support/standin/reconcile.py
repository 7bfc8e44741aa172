"""What the builder makes of its options before it builds, release by release, as the contract lists it."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

from trtllm_kit.upstream.facts import in_range
from trtllm_kit.upstream.trtllm_build import build_fields, build_flags, speculative_mode

EIGHT_BIT = ("FP8", "W4A8_AWQ", "NVFP4")


@dataclass
class Settings:
    """The settings of one build, while the rules rewrite them."""

    release: str
    algo: str | None
    cache: str | None
    build: dict[str, Any] = field(default_factory=dict)

    @property
    def plugins(self) -> dict[str, Any]:
        """The plugin section."""
        section: dict[str, Any] = self.build["plugin_config"]
        return section

    def within(self, since: str | None, until: str | None) -> bool:
        """Whether the release is in that range."""
        return in_range(self.release, since, until)


def reconciled(release: str, given: dict[str, Any], pretrained: dict[str, Any], sm: int) -> Settings:
    """Return what the builder makes of its options; ends the program where it would."""
    quantization = pretrained["quantization"]
    made = Settings(release, quantization.get("quant_algo"), quantization.get("kv_cache_quant_algo"))
    made.build = _read(release, given)
    _lengths(made, given, pretrained)
    _drafts(made, given)
    _tokens(made, given)
    _cache(made, given)
    _attention(made, sm)
    _plugins(made, pretrained)
    return made


def _read(release: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return ``BuildConfig`` with its defaults, and what the options set in it."""
    build: dict[str, Any] = {row.field: row.default for row in build_fields(release) if row.written}
    for name in given:
        if name in build and name != "plugin_config":
            build[name] = given[name]
    names = [flag.flag.removeprefix("--") for flag in build_flags(release) if flag.plugin]
    build["plugin_config"] = {name: _plugin(given[name]) for name in names}
    build["lora_config"] = {}
    return build


def _plugin(value: Any) -> Any:
    return {"enable": True, "disable": None}.get(value, value)


def _lengths(made: Settings, given: dict[str, Any], pretrained: dict[str, Any]) -> None:
    longest = pretrained.get("max_position_embeddings") or 2048
    if given["max_seq_len"] is None:
        made.build["max_seq_len"] = longest
    made.build["max_input_len"] = min(given["max_input_len"], made.build["max_seq_len"])


def _drafts(made: Settings, given: dict[str, Any]) -> None:
    mode = given["speculative_decoding_mode"] or "none"
    made.build["speculative_decoding_mode"] = speculative_mode(made.release, mode)
    if mode == "none":
        return
    if given["gather_context_logits"] and given["max_draft_len"] > 0:
        sys.exit("RuntimeError: context logits cannot be gathered with drafts")
    if mode == "eagle" and (made.build["max_batch_size"] > 512 or given["max_draft_len"] > 256):
        sys.exit("AssertionError: eagle takes batches up to 512 and 256 drafts")
    made.build["max_seq_len"] += given["max_draft_len"]


def _tokens(made: Settings, given: dict[str, Any]) -> None:
    """Apply the rules of max_num_tokens and opt_num_tokens in their order."""
    batch, longest = made.build["max_batch_size"], made.build["max_seq_len"]
    tokens = given["max_num_tokens"] if made.plugins["remove_input_padding"] else batch * longest
    tokens = min(tokens, batch * longest)
    if not made.plugins["context_fmha"]:
        tokens = max(tokens, made.build["max_input_len"])
    tokens = max(tokens, made.plugins["tokens_per_block"])
    if given["speculative_decoding_mode"]:
        tokens = max(tokens, batch * (given["max_draft_len"] + 1))
    if given["multiple_profiles"] == "enable" and given["opt_num_tokens"] is not None:
        sys.exit("RuntimeError: multiple profiles have their own opt_num_tokens")
    usual = given["opt_num_tokens"] or batch * made.build["max_beam_width"]
    made.build |= {"max_num_tokens": tokens, "opt_num_tokens": min(usual, tokens)}


def _cache(made: Settings, given: dict[str, Any]) -> None:
    kind, paged = given.get("kv_cache_type"), given.get("paged_kv_cache")
    if kind is not None and paged is not None and (kind.lower() == "paged") != (paged == "enable"):
        sys.exit("AssertionError: kv_cache_type and paged_kv_cache differ")
    kind = kind or ("continuous" if paged == "disable" else "paged")
    made.build["kv_cache_type"] = kind.upper()
    made.plugins["paged_kv_cache"] = kind.lower() == "paged"


def _attention(made: Settings, sm: int) -> None:
    plugins = made.plugins
    paged = plugins["use_paged_context_fmha"]
    if made.within(None, "0.19"):
        if paged and made.cache == "INT8":
            sys.exit("RuntimeError: paged context FMHA cannot read an INT8 KV cache")
        if paged and made.cache == "FP8" and made.algo not in EIGHT_BIT[: 1 if made.within(None, "0.17") else 3]:
            sys.exit("RuntimeError: paged context FMHA with an FP8 KV cache needs FP8 weights")
        if paged and made.cache == "FP8":
            plugins["use_fp8_context_fmha"] = True
        return
    if not plugins["context_fmha"]:
        plugins["use_paged_context_fmha"] = plugins["use_fp8_context_fmha"] = None
    elif made.algo not in EIGHT_BIT or sm < 89:
        plugins["use_fp8_context_fmha"] = None
        plugins["use_paged_context_fmha"] = None if made.cache == "FP8" else paged
    elif paged:
        plugins["use_fp8_context_fmha"] = made.cache == "FP8" or None
    if made.cache == "INT8":
        plugins["use_paged_context_fmha"] = None


def _plugins(made: Settings, pretrained: dict[str, Any]) -> None:
    plugins, mapping = made.plugins, pretrained["mapping"]
    plugins["nccl_plugin"] = pretrained["dtype"] if mapping["world_size"] > 1 else None
    for name in [name for name in plugins if name.endswith("_plugin") and plugins[name] == "auto"]:
        plugins[name] = pretrained["dtype"]
    families = ("LlamaForCausalLM", "Gemma2ForCausalLM", "MedusaForCausalLM")
    if mapping["tp_size"] == 1 or pretrained["architecture"] not in families:
        plugins["reduce_fusion"] = None
    if mapping["pp_size"] > 1 and made.within(None, "0.19"):
        plugins["reduce_fusion"] = None
    if not plugins["reduce_fusion"] and "user_buffer" in plugins:
        plugins["user_buffer"] = None
    if made.algo == "NVFP4":
        plugins["gemm_plugin"] = "nvfp4"
    if plugins["gemm_swiglu_plugin"] and not plugins["use_fused_mlp"]:
        sys.exit("RuntimeError: gemm_swiglu_plugin needs use_fused_mlp")
