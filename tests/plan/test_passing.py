"""Checkpoints that come quantised: passed through where nothing asks for other formats, refused by name otherwise."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.spec.configs import config
from tests.support.specs import deepseek_v3, gpt_oss_120b, hardware, llama_8b, profile, rehearsal
from trtllm_kit.checkpoint.formats import DECODERS
from trtllm_kit.checkpoint.formats.searched import SEARCHED_DECODERS
from trtllm_kit.findings import Finding, Severity
from trtllm_kit.plan.formats import FORMATS
from trtllm_kit.plan.parallelism import Split
from trtllm_kit.plan.passing import PASSED_THROUGH
from trtllm_kit.plan.plan import Plan
from trtllm_kit.plan.quantization import tensor_formats
from trtllm_kit.plan.settle import settle
from trtllm_kit.plan.weights import held_by_stage
from trtllm_kit.spec.hf_config import FAMILIES, read_model_spec
from trtllm_kit.spec.model import ModelSpec, StoredFormats
from trtllm_kit.spec.profile_formats import PartFormat
from trtllm_kit.spec.tensors import EXPERT

NVFP4 = StoredFormats(method="modelopt", scheme="NVFP4", weights="nvfp4", kv_cache="fp8")
FP8 = StoredFormats(method="modelopt", scheme="FP8", weights="fp8", kv_cache="fp8")
AWQ = StoredFormats(method="modelopt", scheme="W4A16_AWQ", weights="int4_awq", group_size=128)
MIXED = StoredFormats(
    method="modelopt", scheme="MIXED_PRECISION", weights="mixed", group_size=64,
    layers=(("model.layers.*.self_attn.*", "fp8"), ("model.layers.3.mlp.*", "w4a8_awq")),
)  # fmt: skip
BLOCKS = StoredFormats(method="fp8", scheme="FP8_BLOCK_SCALES", weights="fp8_block")


def planned(stored: StoredFormats, changes: Mapping[str, Any] | None = None, model: ModelSpec | None = None) -> Plan:
    """Plan a Llama 8B, or another model, that is stored so."""
    given = (model or llama_8b()).model_copy(update={"stored": stored})
    return settle(given, profile(changes), hardware(1, 192, capability=100))


def refusals(plan: Plan) -> list[Finding]:
    """Return what PF12 says."""
    return [finding for finding in plan.findings if finding.rule == "PF12"]


def test_keys_that_are_left_out_take_what_the_checkpoint_holds() -> None:
    """Value, source and reason say that nobody asked; nothing is measured, and no format is refused."""
    plan = planned(NVFP4.model_copy(update={"exclude": ("model.layers.*.self_attn.*",)}))
    decided = plan.quantization
    assert ("nvfp4", "model") == (decided.weights.value, decided.weights.source)
    assert ("fp8", "model") == (decided.kv_cache.value, decided.kv_cache.source)
    assert ("model.layers.*.self_attn.*",) == decided.exclude.value
    assert decided.algo is not None
    assert "NVFP4" == decided.algo.value
    assert decided.passed_through is not None
    assert "the checkpoint is stored so (modelopt: NVFP4)" == decided.passed_through.reason
    assert (True, False) == (decided.formats.quantises, decided.formats.calibrates)
    assert [] == refusals(plan)


def test_keys_that_agree_are_the_profiles() -> None:
    """A profile written for a format takes a checkpoint in it."""
    plan = planned(NVFP4, {"quantization.weights": "nvfp4", "quantization.kv_cache": "fp8"})
    assert ("profile", "profile") == (plan.quantization.weights.source, plan.quantization.kv_cache.source)
    assert [] == refusals(plan)


@pytest.mark.parametrize(
    ("stored", "changes", "compared", "suggestion"),
    [
        (NVFP4, {"quantization.weights": "fp8"}, "fp8 asked, nvfp4 held (modelopt: NVFP4)",
         "quantization.weights: nvfp4, or give the folder of the model's BF16 original"),
        (FP8, {"quantization.weights": "bf16"}, "bf16 asked, fp8 held", "quantization.weights: fp8"),
        (FP8, {"quantization.kv_cache": "bf16"}, "bf16 asked, fp8 held", "quantization.kv_cache: fp8"),
        (BLOCKS, {"quantization.kv_cache": "nvfp4"}, "nvfp4 asked, bf16 held", "quantization.kv_cache: bf16"),
        (FP8, {"quantization.exclude": ["*.o_proj"]}, "model.layers.0.self_attn.o_proj asked, fp8 there held",
         "leave quantization.exclude out"),
        (FP8, {"trtllm_version": "0.20.0", "toolchain": "trtllm-build"},
         "layout tensorrt_llm keeps q, k and v under one scale",
         "toolchain: llm-api, or give the folder of the model's BF16 original with quantization.weights: fp8"),
        (AWQ, {"trtllm_version": "0.20.0", "toolchain": "trtllm-build"},
         "is written from 16-bit weights alone; the checkpoint is W4A16_AWQ", "toolchain: llm-api, or give the folder"),
        (AWQ, {"quantization.weights": "w4a8_awq"}, "w4a8_awq asked, int4_awq held", "quantization.weights: int4_awq"),
        (AWQ, {"quantization.weights": "int4_awq", "quantization.group_size": 64}, "64 asked, 128 held",
         "quantization.group_size: 128"),
        (MIXED, {"quantization.weights": "fp8"}, "fp8 asked, mixed held", "quantization.weights: mixed"),
        (MIXED, {"quantization.weights": "mixed", "quantization.groups": {"attention": "fp8"}},
         "bf16 for model.layers.3.mlp.gate_proj asked, w4a8_awq there held", "leave the section quantization out"),
    ],
)  # fmt: skip
def test_a_key_that_asks_for_something_else_is_refused(
    stored: StoredFormats, changes: dict[str, Any], compared: str, suggestion: str
) -> None:
    """What is stored cannot be quantised again: the finding has both formats and the line that agrees."""
    (said,) = refusals(planned(stored, changes))
    assert compared in said.compared
    assert said.suggestion is not None
    assert said.suggestion.startswith(suggestion)


@pytest.mark.parametrize(
    ("weights", "scheme", "changes", "severities"),
    [
        ("fp8", "FP8", {}, [Severity.WARNING]),
        ("nvfp4", "NVFP4", {}, [Severity.WARNING]),
        ("fp8_rowwise", "FP8_PER_CHANNEL_PER_TOKEN", {}, []),
        ("fp8", "FP8", {"quantization.weights": "bf16"}, [Severity.ERROR]),
        ("fp8_block", "FP8_BLOCK_SCALES", {}, [Severity.ERROR]),
        ("int8_sq", "W8A8_SQ_PER_CHANNEL", {}, [Severity.ERROR]),
    ],
)
def test_stored_codes_go_into_ranks_where_their_scales_may_allow_it(
    weights: Any, scheme: str, changes: dict[str, Any], severities: list[Severity]
) -> None:
    """Only the scales tell whether q, k and v have one: a warning; scales of rows always fit; other codes never do."""
    stored = StoredFormats(method="modelopt", scheme=scheme, weights=weights)
    asked = {"trtllm_version": "0.20.0", "toolchain": "trtllm-build"} | changes
    plan = planned(stored, asked)
    assert severities == [finding.severity for finding in refusals(plan)]
    told = [finding for finding in plan.findings if finding.rule == "PF34" and "quantised model" in finding.message]
    assert [] == told


def test_ranks_are_told_before_any_format() -> None:
    """Where files of ranks take no stored codes at all, no format is advised that they would refuse next."""
    asked = {"trtllm_version": "0.20.0", "toolchain": "trtllm-build", "quantization.weights": "bf16"}
    (said,) = refusals(planned(FP8, asked))
    assert said.suggestion.startswith("toolchain: llm-api")
    (then,) = refusals(planned(FP8, asked | {"trtllm_version": "1.2.1", "toolchain": "llm-api"}))
    assert then.suggestion.startswith("quantization.weights: fp8")


def test_plain_int4_is_asked_for_by_its_own_name_or_by_that_of_awq() -> None:
    """W4A16_AWQ is the word for both, and codes, groups and scales lie alike, so neither name is a conflict."""
    for name in ("int4_wo", "int4_awq"):
        plan = planned(AWQ, {"quantization.weights": name})
        assert [] == refusals(plan)
        assert (name, 128) == (plan.quantization.formats.weights, plan.quantization.formats.group_size)


def test_layers_that_come_in_several_formats_are_planned_each_in_its_own() -> None:
    """The first pattern that names a layer holds; others are 16 bit, and no calibration is planned for them."""
    plan = planned(MIXED)
    (said,) = refusals(plan)
    assert (Severity.WARNING, True) == (said.severity, "on one request" in (said.suggestion or ""))
    formats = plan.quantization.formats
    assert (("fp8", "w4a8_awq"), 64, False) == (formats.used, formats.group_size, formats.calibrates)
    third, fourth = (tensor_formats(plan.model, number, formats) for number in (2, 3))
    assert {"fp8"} == set(third.values())
    assert {"fp8", "w4a8_awq"} == set(fourth.values())


def test_a_profile_that_asks_for_the_parts_that_are_held_agrees() -> None:
    """Parts and patterns that come to the formats of every layer are no conflict."""
    layers = (("model.layers.*.self_attn.*", "fp8"), ("model.layers.*.mlp.*", "nvfp4"))
    held = MIXED.model_copy(update={"layers": layers, "group_size": None})
    asked = {"quantization.weights": "mixed", "quantization.groups": {"attention": "fp8", "feed_forward": "nvfp4"}}
    assert [] == [one for one in refusals(planned(held, asked)) if one.severity is Severity.ERROR]


def modelopt(algo: str, **more: Any) -> StoredFormats | None:
    """Read a Llama of two layers with this section of ModelOpt's."""
    document = config("llama", num_hidden_layers=2)
    beside = {"quant_algo": algo, "kv_cache_quant_algo": None, **more}
    return read_model_spec(document, "config.json", beside).stored


@pytest.mark.parametrize(
    ("algo", "more", "scheme"),
    [
        ("W4A16_AWQ", {"group_size": 32}, "W4A16_AWQ in groups of 32"),
        ("W4A8_AWQ", {"group_size": 128, "has_zero_point": True}, "W4A8_AWQ with zero points"),
        ("MIXED_PRECISION", {}, "MIXED_PRECISION without quantized_layers"),
        ("MIXED_PRECISION", {"quantized_layers": {"model.layers.0.mlp.up_proj": {"quant_algo": "NVFP4_AWQ"}}},
         "MIXED_PRECISION with NVFP4_AWQ"),
    ],
)  # fmt: skip
def test_what_no_reader_takes_is_refused_by_its_own_words(algo: str, more: dict[str, Any], scheme: str) -> None:
    """A group size, zero points or a layer's format that is not read stands in the refusal, not the word alone."""
    stored = modelopt(algo, **more)
    assert stored is not None
    assert (None, scheme) == (stored.weights, stored.scheme)
    assert any(scheme in one.message for one in refusals(planned(stored)))


def test_quantized_layers_become_few_patterns() -> None:
    """A format that all layers of a kind have is one pattern; one that a single layer has names it."""
    listed = {f"model.layers.{number}.self_attn.o_proj": {"quant_algo": "FP8"} for number in (0, 1)}
    listed["model.layers.1.mlp.down_proj"] = {"quant_algo": "W4A16_AWQ", "group_size": 64}
    stored = modelopt("MIXED_PRECISION", quantized_layers=listed)
    assert stored is not None
    wanted = (("model.layers.*.self_attn.o_proj", "fp8"), ("model.layers.1.mlp.down_proj", "int4_awq"))
    assert (wanted, 64) == (stored.layers, stored.group_size)


def test_all_keys_that_disagree_are_told() -> None:
    """One finding each."""
    changes = {"quantization.weights": "fp8", "quantization.kv_cache": "bf16", "quantization.exclude": ["*.o_proj"]}
    assert 3 == len(refusals(planned(NVFP4, changes)))


def test_an_fp8_cache_may_stand_beside_weights_without_scales_for_it() -> None:
    """The runtime stores keys and values with a scale of 1, as beside plain weights; DeepSeek is served so."""
    plan = planned(BLOCKS, {"quantization.kv_cache": "fp8"}, deepseek_v3(2))
    assert [] == refusals(plan)
    assert "fp8" == plan.quantization.kv_cache.value


def test_a_pattern_for_what_is_in_16_bit_anyway_is_no_conflict() -> None:
    """The profile may name the head, which no checkpoint of these has quantised."""
    assert [] == refusals(planned(FP8, {"quantization.exclude": ["lm_head"]}))


COMPRESSED = {"quant_method": "compressed-tensors"}


def compressed(kind: str, bits: int, strategy: str) -> dict[str, Any]:
    """Return the configuration of compressed-tensors weights."""
    weights = {"type": kind, "num_bits": bits, "strategy": strategy}
    return COMPRESSED | {"config_groups": {"group_0": {"weights": weights, "targets": ["Linear"]}}}


METHODS: list[tuple[dict[str, Any], str, str]] = [
    (compressed("float", 8, "channel"), "compressed-tensors: float8 channel", "weights: fp8_rowwise on the original"),
    (compressed("float", 8, "block"), "compressed-tensors: float8 block", "weights: fp8_block on the original"),
    (compressed("float", 8, "tensor"), "compressed-tensors: float8 tensor", "weights: fp8 on the original"),
    (compressed("int", 8, "channel"), "compressed-tensors: int8 channel", "weights: int8_wo or fp8 on the original"),
    (compressed("int", 4, "group"), "compressed-tensors: int4 group", "weights: int4_awq on the original"),
    (compressed("float", 4, "tensor_group"), "float4 tensor_group", "weights: nvfp4 on the original"),
    (COMPRESSED, "(compressed-tensors)", "serve the given folder as it is if it is FP8"),
    ({"quant_method": "gptq", "bits": 4}, "gptq: 4 bits", "weights: int4_awq on the original"),
    ({"quant_method": "gptq", "bits": 8}, "gptq: 8 bits", "weights: int8_wo on the original"),
    ({"quant_method": "awq", "bits": 4}, "awq: 4 bits", "weights: int4_awq on the original"),
    ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "sandbytes: 4 bits", "weights: int4_wo on the original"),
    ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "sandbytes: 8 bits", "weights: int8_wo on the original"),
    ({"quant_method": "fbgemm_fp8"}, "fbgemm_fp8", "weights: fp8_rowwise on the original"),
    ({"quant_method": "fp8"}, "fp8: float8 tensor", "weights: fp8 or fp8_block on the original"),
    ({"quant_method": "fp8", "weight_block_size": [64, 64]}, "float8 in blocks of [64, 64]", "in blocks of 128 x 128"),
    ({"quant_method": "mxfp4"}, "mxfp4: MXFP4", "give the folder of the model's BF16 original"),
    ({"quant_method": "modelopt", "quant_algo": "W4A16_NVFP4"}, "W4A16_NVFP4", "that was read has the word W4A16_"),
    ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, "MIXED", "serve the given folder as it is"),
    ({"quant_method": "zip"}, "already (zip)", "give the folder of the model's BF16 original"),
]  # fmt: skip


@pytest.mark.parametrize(("section", "named", "advice"), METHODS, ids=[named for _, named, _ in METHODS])
def test_a_method_that_is_not_passed_through_is_refused_by_name(
    section: dict[str, Any], named: str, advice: str
) -> None:
    """The finding names method and scheme, and what to do with that very scheme."""
    model = read_model_spec(config("llama", quantization_config=section), "config.json")
    (said,) = refusals(settle(model, profile({"limits.max_seq_len": 128}), rehearsal()))
    assert named in said.message
    assert said.suggestion is not None
    assert advice in said.suggestion


def test_what_is_passed_through_is_counted_and_read() -> None:
    """Every such format has its cost, and a decoder for the reference runtime."""
    assert {"mixed"} == set(PASSED_THROUGH) - set(FORMATS)
    assert {"mixed"} == set(PASSED_THROUGH) - set(DECODERS) - set(SEARCHED_DECODERS)


@pytest.mark.parametrize(("layers", "published"), [(36, 60.8), (24, 12.8)])
def test_the_weights_of_gpt_oss_are_those_of_its_model_card(layers: int, published: float) -> None:
    """Table 1 of arXiv 2508.10925: checkpoints of 60.8 GiB and 12.8 GiB, experts in MXFP4 and the rest in BF16."""
    model = gpt_oss_120b(layers)
    if layers == 24:
        layer = model.layers[0]
        experts = layer.feed_forward.model_copy(update={"experts": 32})
        model = model.model_copy(
            update={"layers": tuple(one.model_copy(update={"feed_forward": experts}) for one in model.layers)}
        )
    stored = StoredFormats(method="mxfp4", scheme="MXFP4", weights="mxfp4", exclude=("model.layers.*.self_attn.*",))
    formats = planned(stored, model=model).quantization.formats
    assert published == round(held_by_stage(model, Split(), formats, range(layers)).bytes / 2**30, 1)


def recorded(shared: Path) -> Iterator[tuple[str, ModelSpec]]:
    """Yield every recorded model that comes quantised and whose architecture is read."""
    for file in sorted((shared / "models").glob("*_config.json")):
        document = json.loads(file.read_text())
        if file.name.endswith("_hf_quant_config.json") or document["architectures"][0] not in FAMILIES:
            continue
        beside = file.with_name(file.name.replace("_config.json", "_hf_quant_config.json"))
        section = json.loads(beside.read_text())["quantization"] if beside.exists() else None
        model = read_model_spec(document, file.name, section)
        if model.stored is not None:
            yield file.name.removesuffix("_config.json"), model


RECORDED = {
    "Qwen--Qwen3-235B-A22B-FP8": ("fp8_block", "bf16", 0),
    "Qwen--Qwen3-30B-A3B-FP8": ("fp8_block", "bf16", 0),
    "Qwen--Qwen3-32B-FP8": ("fp8_block", "bf16", 0),
    "Qwen--Qwen3-32B-FP8-Static-PerTensor": ("fp8", "fp8", 0),
    "XiaomiMiMo--MiMo-V2-Flash": ("fp8_block", "bf16", 0),
    "deepseek-ai--DeepSeek-R1": ("fp8_block", "bf16", 0),
    "deepseek-ai--DeepSeek-V3": ("fp8_block", "bf16", 0),
    "deepseek-ai--DeepSeek-V3.2": ("fp8_block", "bf16", 0),
    "deepseek-ai--DeepSeek-V4-Pro": ("mixed", "bf16", 0),
    "moonshotai--Kimi-K2-Instruct": ("fp8_block", "bf16", 0),
    "moonshotai--Kimi-K3": ("mxfp4", "bf16", 18),
    "nvidia--DeepSeek-V3.1-NVFP4": ("nvfp4", "fp8", 4),
    "nvidia--DeepSeek-V3.2-NVFP4": ("nvfp4", "fp8", 5),
    "nvidia--DeepSeek-V4-Flash-NVFP4": ("mixed", "bf16", 0),
    "nvidia--DeepSeek-V4-Pro-NVFP4": ("mixed", "bf16", 0),
    "nvidia--GLM-5-NVFP4": ("nvfp4", "fp8", 6),
    "nvidia--GLM-5.1-NVFP4": ("nvfp4", "fp8", 79),
    "nvidia--GLM-5.2-NVFP4": ("nvfp4", "fp8", 79),
    "nvidia--GLM-5.3-NVFP4": ("nvfp4", "fp8", 79),
    "nvidia--Kimi-K2.5-NVFP4": ("nvfp4", "fp8", 1),
    "nvidia--Llama-3.1-70B-Instruct-FP8": ("fp8", "fp8", 0),
    "nvidia--MiniMax-M2.5-NVFP4": ("nvfp4", "fp8", 1),
    "nvidia--MiniMax-M2.7-NVFP4": ("nvfp4", "fp8", 1),
    "nvidia--MiniMax-M3-NVFP4": ("mixed", "bf16", 0),
    "nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4": ("nvfp4", "fp8", 0),
    "nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-FP8": ("fp8", "fp8", 0),
    "nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-NVFP4": ("nvfp4", "fp8", 0),
    "nvidia--Qwen3-235B-A22B-NVFP4": ("nvfp4", "fp8", 0),
    "nvidia--Qwen3.5-122B-A10B-NVFP4": ("nvfp4", "fp8", 4),
    "nvidia--Qwen3.5-397B-A17B-NVFP4": ("nvfp4", "fp8", 5),
    "openai--gpt-oss-120b": ("mxfp4", "bf16", 1),
    "openai--gpt-oss-20b": ("mxfp4", "bf16", 1),
    "sgl-project--DeepSeek-V4-Flash-FP8": ("fp8_block", "bf16", 0),
    "sgl-project--DeepSeek-V4-Pro-FP8": ("fp8_block", "bf16", 0),
    "zai-org--GLM-5.3-FP8": ("fp8_block", "bf16", 0),
}
"""Formats of weights and cache, and how many patterns say what hundreds of names in the file do."""
NOT_PASSED = dict.fromkeys(
    ("nvidia--Qwen3.6-27B-NVFP4", "nvidia--Qwen3.6-35B-A3B-NVFP4"), "MIXED_PRECISION with W4A16_NVFP4"
)
"""A layer's format that no reader here takes, by the words of the refusal."""


def test_every_recorded_model_of_a_known_architecture_is_passed_through(shared: Path) -> None:
    """Each is planned in the formats it holds, and PF12 refuses those of a format that is not read."""
    found, refused = {}, {}
    for name, model in recorded(shared):
        plan = settle(model, profile(), hardware(8, 288, capability=100))
        formats = plan.quantization.formats
        if not formats.passed_through:
            assert any(one.severity is Severity.ERROR for one in refusals(plan)), name
            refused[name] = model.stored.scheme if model.stored else ""
            continue
        assert [] == [one for one in refusals(plan) if one.severity is Severity.ERROR], name
        found[name] = (formats.weights, formats.kv_cache, len(formats.exclude))
    assert RECORDED == found
    assert NOT_PASSED == refused


MIXED_IN = {
    "deepseek-ai--DeepSeek-V4-Pro": ({"mxfp4"}, {"fp8_block"}),
    "nvidia--DeepSeek-V4-Flash-NVFP4": ({"nvfp4"}, {"fp8_block"}),
    "nvidia--DeepSeek-V4-Pro-NVFP4": ({"nvfp4"}, {"fp8_block"}),
    "nvidia--MiniMax-M3-NVFP4": ({"nvfp4"}, {"mxfp8"}),
}
"""Formats of the routed experts, and of all other linear layers, of the recorded models that mix them."""


def test_recorded_models_that_mix_formats_do_so_in_the_experts(shared: Path) -> None:
    """By each module of every layer, whether a file lists its layers or gives the experts a type of their own."""
    found: dict[str, tuple[set[PartFormat], set[PartFormat]]] = {}
    for name, model in recorded(shared):
        formats = settle(model, profile(), hardware(8, 288, capability=100)).quantization.formats
        if formats.weights != "mixed":
            continue
        layers = (tensor_formats(model, number, formats) for number in range(len(model.layers)))
        chosen = [pair for layer in layers for pair in layer.items()]
        routed = {one for module, one in chosen if EXPERT in module}
        found[name] = routed, {one for module, one in chosen if EXPERT not in module}
    assert MIXED_IN == found
