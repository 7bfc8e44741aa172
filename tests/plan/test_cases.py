"""Failures from the field: a plan that must speak of each, one near it that must not, and the list of all of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from tests.cli.test_plan_against import AGAINST
from tests.plan.test_checks import sliding, stretched, with_facts
from tests.plan.test_given import TRIALS
from tests.plan.test_speculation_checks import HEAD
from tests.support.specs import figure, hardware, llama, llama_8b, llama_70b, profile, qwen3_moe
from trtllm_kit.findings import Finding, Severity
from trtllm_kit.plan.settle import settle
from trtllm_kit.spec.hardware import Hardware
from trtllm_kit.spec.hf_config import read_model_spec
from trtllm_kit.spec.load import load_hardware
from trtllm_kit.spec.model import ModelSpec, Rope, StoredFormats

ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO
CASES: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "cases.yaml").read_text("utf-8"))
Asked = tuple[ModelSpec, Hardware, dict[str, Any]]


def qwen2() -> ModelSpec:
    """Make a Qwen2 of 8B."""
    return with_facts(llama_8b(), family="qwen2", architecture="Qwen2ForCausalLM")


def named(architecture: str) -> ModelSpec:
    """Make an 8B of another name."""
    return with_facts(llama_8b(), architecture=architecture)


def with_memory(gib: int) -> Hardware:
    """Make a machine of two GPUs and so much memory of its CPUs."""
    return hardware(2).model_copy(update={"host_memory_bytes": figure(gib * 2**30)})


LLAMA2 = llama(32, 4096, 32, 32, 11008, vocab=32000)
SMALL = {"limits.max_seq_len": 2560, "load.input_tokens": 512, "load.output_tokens": 512}
DRAFTS = {"speculation": {"kind": "ngram", "draft_tokens": 3}}
GATE = {"speculation": {"kind": "ngram", "draft_tokens": 3, "acceptance_threshold": 0.6, "acceptance_window": 32}}
W4A8 = {"quantization.weights": "w4a8_awq", "quantization.kv_cache": "fp8"}
HOST = {"kv_cache.host_cache_bytes": 2**36}
MIXED = {"quantization.weights": "mixed", "quantization.groups": {"attention": "fp8", "experts": "nvfp4"}}
FAR = {"load.input_tokens": 9351, "limits.max_seq_len": 16384, "limits.max_num_tokens": 8192}
ENGINE = {"toolchain": "trtllm-build"}
PROMPTS = ENGINE | {"load.input_tokens": 2048}
OLDER = ENGINE | {"trtllm_version": "0.20.0"}
GATHERED = {"gather_generation_logits": True}
TRITON = "nvcr.io/nvidia/tritonserver:{}-trtllm-python-py3"
TWO_NODES = hardware(8, nodes=2)
L40S = load_hardware("l40sx8")
SPEAKS: dict[str, tuple[str, Severity, str, Asked, Asked]] = {
    "C03": ("PF1", ERROR, "28 heads / 8 tensor ranks", (llama(2, 3584, 28, 4, 2560), hardware(8),
        {"parallelism.tensor": 8}),
            (llama(2, 3584, 28, 4, 2560), hardware(8), {"parallelism.tensor": 4})),
    "C04": ("PF2", ERROR, "6 KV heads, 4 tensor ranks", (llama(2, 4096, 32, 6, 11008), hardware(8),
        {"parallelism.tensor": 4}),
            (llama(2, 4096, 32, 6, 11008), hardware(8), {"parallelism.tensor": 2})),
    "C05": ("PF3", WARNING, "100 is not a multiple of 8", (llama(2, 3200, 32, 32, 8640), hardware(), {}),
            (llama(2, 3328, 32, 32, 8640), hardware(), {})),
    "C06": ("PF4", INFO, "32,001 words padded to 32,002 over 2 ranks",
            (llama(2, 4096, 32, 8, 14336, vocab=32001), hardware(2), {"parallelism.tensor": 2}),
            (llama(2, 4096, 32, 8, 14336, vocab=32000), hardware(2), {"parallelism.tensor": 2})),
    "C07": ("PF4", INFO, "32,016 words padded to 32,064, a multiple of 64",
            (llama(2, 4096, 32, 8, 11264, vocab=32016), hardware(), {"trtllm_version": "0.16",
            "quantization.weights": "int4_awq"}),
            (llama(2, 4096, 32, 8, 11264, vocab=32016), hardware(), {"trtllm_version": "1.2.1",
            "quantization.weights": "int4_awq"})),
    "C15": ("PF34", WARNING, "it applies default, linear, llama3", (stretched("yarn", 4.0), hardware(8),
        {"trtllm_version": "0.16"}),
            (stretched("yarn", 4.0), hardware(8), {"trtllm_version": "1.2.1"})),
    "C17": ("PF23", WARNING, "fp8_rowwise, a model with experts",
            (qwen3_moe(2), hardware(8), {"trtllm_version": "0.12", "quantization.weights": "fp8_rowwise"}),
            (llama_8b(), hardware(8), {"trtllm_version": "0.12", "quantization.weights": "fp8_rowwise"})),
    "C18": ("PF14", WARNING, "131.42 GiB in 16 bit + 67.70 GiB of the result",
            (llama_70b(), hardware(1, 72), {"quantization.weights": "int8_sq"}),
            (llama_70b(), hardware(4, 80), {"quantization.weights": "int8_sq"})),
    "C26": ("PF6", INFO, "1,536 features / 8 ranks is not a multiple of 128",
            (qwen3_moe(2), hardware(8), {"quantization.weights": "fp8_block", "parallelism.tensor": 8}),
            (qwen3_moe(2), hardware(8), {"quantization.weights": "fp8_block", "parallelism.tensor": 4})),
    "C27": ("PF12", ERROR, "beside it says awq", (with_facts(llama_8b(), stored=StoredFormats(method="awq")),
        hardware(), {}),
            (llama_8b(), hardware(), {})),
    "C28": ("PF23", WARNING, "int4_awq, Qwen3_5ForCausalLM",
            (named("Qwen3_5ForCausalLM"), hardware(), {"trtllm_version": "1.3.0rc15",
            "quantization.weights": "int4_awq"}),
            (named("Qwen3_5ForCausalLM"), hardware(), {"trtllm_version": "1.3.0rc15", "quantization.weights": "fp8"})),
    "C29": ("PF12", WARNING, "fp8 and nvfp4 make MIXED_PRECISION", (qwen3_moe(2), hardware(8, 192,
        capability=100), MIXED),
            (qwen3_moe(2), hardware(8, 192, capability=100), MIXED | {"trtllm_version": "main"})),
    "C32": ("PF8", WARNING, "family qwen2, kv_cache fp8",
            (qwen2(), hardware(), {"quantization.weights": "fp8", "quantization.kv_cache": "fp8"}),
            (llama_8b(), hardware(), {"quantization.weights": "fp8", "quantization.kv_cache": "fp8"})),
    "C35": ("PF7", ERROR, "compute capability 90; nvfp4 runs on 100, 103, 120",
            (llama_8b(), hardware(), {"quantization.weights": "nvfp4"}),
            (llama_8b(), hardware(), {"quantization.weights": "nvfp4", "trtllm_version": "main"})),
    "C36": ("PF8", WARNING, "weights w4a8_awq, kv_cache fp8", (llama_8b(), hardware(capability=89), W4A8),
            (llama_8b(), hardware(capability=90), W4A8)),
    "C37": ("PF7", WARNING, "compute capability 75; bf16 runs on", (llama_8b(), hardware(capability=75), {}),
            (llama_8b(), hardware(capability=80), {})),
    "E01": ("PF16", WARNING, "gemm_plugin float16, dtype bfloat16",
            (llama_8b(), hardware(), ENGINE | {"build": {"options": {"gemm_plugin": "float16"}}}),
            (llama_8b(), hardware(), ENGINE | {"build": {"options": {"gemm_plugin": "bfloat16"}}})),
    "E02": ("PF16", WARNING, "gpt_attention_plugin float16, dtype float32",
            (with_facts(llama_8b(), dtype="float32"), hardware(),
             ENGINE | {"build": {"options": {"gpt_attention_plugin": "float16"}}}),
            (with_facts(llama_8b(), dtype="float16"), hardware(),
             ENGINE | {"build": {"options": {"gpt_attention_plugin": "float16"}}})),
    "E03": ("PF17", WARNING, "4,096 x 4,096 scores of 6 bytes = 3.00 GiB for every head",
            (llama_8b(), hardware(), ENGINE | {"build": {"options": {"context_fmha": "disable"}}}),
            (llama_8b(), hardware(), ENGINE | {"build": {"options": {"context_fmha": "enable"}}})),
    "E06": ("PF41", ERROR, "build.options.max_output_len is set",
            (llama_8b(), hardware(), ENGINE | {"build": {"options": {"max_output_len": 512}}}),
            (llama_8b(), hardware(), ENGINE | {"build": {"options": {"max_input_len": 2048}}})),
    "E07": ("PF22", WARNING, "prompt 2,048, max_input_len 1,024; not confirmed",
            (llama_8b(), hardware(), PROMPTS | {"build": {"options": {"max_input_len": 1024}}}),
            (llama_8b(), hardware(), PROMPTS | {"build": {"options": {"max_input_len": 2048}}})),
    "E08": ("PF11", ERROR, "max_seq_len 16,384, the model's positions 8,192",
            (with_facts(llama_8b(), max_position=8192), hardware(), {"limits.max_seq_len": 16384}),
            (with_facts(llama_8b(), max_position=8192), hardware(), {"limits.max_seq_len": 8192})),
    "R01": ("PF19", ERROR, "engine of 0.19.0 with TensorRT 10.9.0.34, served by 0.20.0 with 10.10",
            (llama_8b(), hardware(), OLDER | {"build": {"runner": "docker", "image": TRITON.format("25.05")}}),
            (llama_8b(), hardware(), OLDER | {"build": {"runner": "docker", "image": TRITON.format("25.06")}})),
    "R06": ("PF41", ERROR, "build.options.tp_size is set",
            (llama_8b(), hardware(2), ENGINE | {"build": {"options": {"tp_size": 2}}}),
            (llama_8b(), hardware(2), ENGINE | {"parallelism.tensor": 2})),
    "M14": ("PF21", WARNING, "gathered logits, logits_dtype float16",
            (llama_8b(), hardware(), ENGINE | {"build": {"options": GATHERED | {"logits_dtype": "float16"}}}),
            (llama_8b(), hardware(), ENGINE | {"build": {"options": GATHERED}})),
    "M15": ("PF22", INFO, "max_beam_width 4; not confirmed",
            (llama_8b(), hardware(), {"limits.max_beam_width": 4}),
            (llama_8b(), hardware(), {"limits.max_beam_width": 4, "trtllm_version": "main"})),
    "D01": ("PF25", WARNING, "3 draft tokens, max_draft_len 1",
            (llama_8b(), hardware(), ENGINE | DRAFTS | {"build": {"options": {"max_draft_len": 1}}}),
            (llama_8b(), hardware(), ENGINE | DRAFTS)),
    "E04": ("PF14", WARNING, "2 ranks at once, each holds its weights 2 times: near: 29.92 GiB, 24.00 GiB in a node",
            (llama_8b(), with_memory(24), ENGINE | {"parallelism.tensor": 2}),
            (llama_8b(), with_memory(64), ENGINE | {"parallelism.tensor": 2})),
    "E05": ("PF18", ERROR, "the other terms take 20.81 GiB of 24.00 GiB",
            (llama_8b(), hardware(1, 24),
             {"limits.max_batch_size": 2048, "limits.max_num_tokens": 16384, "load.min_concurrency": 16}),
            (llama_8b(), hardware(1, 24), {"limits.max_batch_size": 64, "load.min_concurrency": 16})),
    "R04": ("PF19", WARNING, "1.3.0rc14 is in no container, 1.2.1 is the nearest",
            (llama_8b(), hardware(), {"trtllm_version": "1.3.0rc14"}), (llama_8b(), hardware(), {})),
    "M16": ("PF22", WARNING, "max_beam_width 128, 16 were seen to work",
            (llama_8b(), hardware(), {"limits.max_beam_width": 128}), (llama_8b(), hardware(),
            {"limits.max_beam_width": 16})),
    "L05": ("PF20", WARNING, "over PCIe 4 x16", (llama_8b(), L40S, {"parallelism.tensor": 4}),
            (llama_8b(), hardware(8), {"parallelism.tensor": 4})),
    "L06": ("PF20", INFO, "16 ranks, 8 GPUs a node, 2 nodes", (llama_70b(), TWO_NODES, {"parallelism.pipeline": 2,
        "parallelism.tensor": 8}),
            (llama_70b(), TWO_NODES, {"parallelism.tensor": 8})),
    "L07": ("PF20", INFO, "16 ranks, 8 GPUs a node, 2 nodes", (llama_70b(), TWO_NODES, {"parallelism.pipeline": 2,
        "parallelism.tensor": 8}),
            (llama_70b(), TWO_NODES, {"parallelism.replicas": 2, "parallelism.tensor": 8})),
    "L12": ("PF20", INFO, "16 ranks, 8 GPUs a node, 2 nodes", (llama_70b(), hardware(8, nodes=2, nvlink=16),
        {"parallelism.tensor": 16}),
            (llama_70b(), hardware(8, nodes=2, nvlink=16), {"parallelism.tensor": 8})),
    "L09": ("PF20", WARNING, "none of UCX_TLS",
            (llama_8b(), load_hardware("gh200-nvl32"), {"trtllm_version": "0.17.0"}),
            (llama_8b(), load_hardware("gh200-nvl32"), {"trtllm_version": "1.2.1"})),
    "K02": ("PF18", ERROR, "lacking before it; the other terms take 136.31 GiB of 80.00 GiB",
            (llama_70b(), hardware(), {"kv_cache.free_gpu_memory_fraction": 0.1}), (llama_70b(), hardware(4), {})),
    "K03": ("PF18", ERROR, "for the KV cache", (LLAMA2,
        hardware(1, 24), SMALL | {"kv_cache.free_gpu_memory_fraction": 0.02}),
            (LLAMA2, hardware(1, 24), SMALL)),
    "K05": ("PF8", ERROR, "kv_cache int8, enable_block_reuse true",
            (llama_8b(), hardware(), {"quantization.weights": "int8_wo",
            "quantization.kv_cache": "int8", "trtllm_version": "0.16"}),
            (llama_8b(), hardware(), {"quantization.weights": "int8_wo",
            "quantization.kv_cache": "int8", "trtllm_version": "0.16",
                                      "kv_cache.enable_block_reuse": False})),
    "K07": ("PF22", ERROR, "9,351 input tokens, max_num_tokens 8,192, chunked_prefill false",
            (llama_8b(), hardware(), FAR | {"scheduler.chunked_prefill": False}), (llama_8b(), hardware(), FAR)),
    "K10": ("PF18", ERROR, "needed for the KV cache",
            (llama_8b(), hardware(1, 24), {"load.min_concurrency": 64, "limits.max_batch_size": 64}),
            (llama_8b(), hardware(), {"load.min_concurrency": 64, "limits.max_batch_size": 64})),
    "K11": ("PF18", WARNING, "free_gpu_memory_fraction 0.98, above 0.95",
            (llama_8b(), hardware(), {"kv_cache.free_gpu_memory_fraction": 0.98}),
            (llama_8b(), hardware(), {"kv_cache.free_gpu_memory_fraction": 0.95})),
    "K12": ("PF23", WARNING, "window 1,024, max_seq_len 4,096", (sliding(1024), hardware(), {}),
            (sliding(1024), hardware(), {"trtllm_version": "1.3.0rc12"})),
    "K13": ("PF39", WARNING, "enable_block_reuse", (llama_8b(), hardware(), HOST | {"trtllm_version": "1.1.0"}),
            (llama_8b(), hardware(), HOST)),
    "D05": ("PF25", WARNING, "acceptance_window is 32", (llama_8b(),
        hardware(), GATE | {"trtllm_version": "1.3.0rc14"}),
            (llama_8b(), hardware(), GATE)),
    "D06": ("PF25", WARNING, "engine.overlap_scheduler true",
            (llama_8b(), hardware(), DRAFTS | {"engine.overlap_scheduler": True}), (llama_8b(), hardware(), DRAFTS)),
    "X05": ("PF13", WARNING, "Qwen3ForCausalLM through trtllm-build: listed for 1.0.0",
            (named("Qwen3ForCausalLM"), hardware(), {"trtllm_version": "0.19"}),
            (named("Qwen3ForCausalLM"), hardware(), {"trtllm_version": "1.0.0"})),
}  # fmt: skip


def findings(asked: Asked, rule: str, severity: Severity) -> list[Finding]:
    """Return what a rule says of a plan with that severity."""
    model, machine, changes = asked
    found = settle(model, profile(changes), machine).findings
    return [finding for finding in found if (finding.rule, finding.severity) == (rule, severity)]


@pytest.mark.parametrize("case", SPEAKS)
def test_a_plan_decides_it(case: str) -> None:
    """The plan names the numbers that the failure came from."""
    rule, severity, compared, asked, _ = SPEAKS[case]
    found = findings(asked, rule, severity)
    assert [True] == [compared in finding.compared for finding in found if compared in finding.compared][:1], found


@pytest.mark.parametrize("case", SPEAKS)
def test_a_near_plan_is_not_accused(case: str) -> None:
    """What is legal beside it, in another release or on another machine, has no such finding."""
    rule, severity, compared, _, near = SPEAKS[case]
    marks = re.sub(r"[\d,.]+", "", compared)
    assert [] == [f for f in findings(near, rule, severity) if marks in re.sub(r"[\d,.]+", "", f.compared)]


NO_CONTAINER = "PF19"
BESIDE: dict[str, set[str]] = {
    **{case: {NO_CONTAINER} for case in ("C29", "C35", "M15", "K12")},
    "C17": {"PF34"},
    "C18": {"PF7", "PF45"},
    "C26": {"PF45"},
    "C28": {NO_CONTAINER, "PF13"},
    "K05": {"PF23"},
}
"""Rules that rightly warn of a near plan: of its toolchain, its release, or a format nobody listed for the model."""


@pytest.mark.parametrize("case", SPEAKS)
def test_no_other_rule_accuses_a_near_plan(case: str) -> None:
    """A near plan is legal for every rule: what warns of it is listed, and nothing refuses it."""
    model, machine, changes = SPEAKS[case][4]
    found = [one for one in settle(model, profile(changes), machine).findings if one.severity is not INFO]
    assert (BESIDE.get(case, set()), []) == (
        {one.rule for one in found}, [one for one in found if one.severity is ERROR],
    )  # fmt: skip


def c13_llama3_rope_is_no_obstacle() -> None:
    """The oldest release that trtkit plans for applies llama3 rope, however config.json spells it."""
    rope = Rope(theta=5e5, kind="llama3", factor=8.0)
    found = settle(with_facts(llama_8b(), rope=rope), profile({"trtllm_version": "0.12"}), hardware(2)).findings
    assert set() == {"PF11", "PF34"} & {finding.rule for finding in found}


def c24_a_group_of_32_is_refused() -> None:
    """Kernels take groups of 64 and 128, so the profile is refused before anything is planned."""
    with pytest.raises(ValidationError, match="group_size"):
        profile({"quantization.weights": "int4_wo", "quantization.group_size": 32})


def c30_sizes_of_text_config_are_found() -> None:
    """A model whose sizes stand in text_config is planned with them."""
    sizes = {"model_type": "gemma3_text", "vocab_size": 2048, "hidden_size": 64, "intermediate_size": 128,
             "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
             "sliding_window": 32, "max_position_embeddings": 512, "rope_theta": 1e6, "rms_norm_eps": 1e-6,
             "query_pre_attn_scalar": 16, "hidden_activation": "gelu_pytorch_tanh"}  # fmt: skip
    document = {"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "text_config": sizes,
                "torch_dtype": "bfloat16", "vision_config": {"model_type": "siglip_vision_model"}}  # fmt: skip
    model = read_model_spec(document, "config.json")
    assert (2048, 2) == (model.vocab, len(model.layers))


def k01_the_budget_is_a_number_of_bytes() -> None:
    """The plan says what the KV cache will take, and what a fraction of it would."""
    whole = settle(LLAMA2, profile(), hardware()).memory.kv_budget_bytes
    tenth = settle(LLAMA2, profile({"kv_cache.free_gpu_memory_fraction": 0.09}), hardware()).memory.kv_budget_bytes
    assert (True, 10) == (whole > 50 * 2**30, round(whole / tenth))


def test_the_fabric_is_spoken_of_where_tensor_ranks_use_it() -> None:
    """NVLink between nodes needs IMEX; stages that talk over a network do not."""
    fabric, network = SPEAKS["L12"][3], SPEAKS["L07"][3]
    said = [finding.suggestion for asked in (fabric, network) for finding in findings(asked, "PF20", INFO)]
    assert [True, False] == ["nvidia-imex" in suggestion for suggestion in said]
    assert [True, True] == ["gpus_per_node 8" in suggestion for suggestion in said]


def d03_a_draft_of_the_first_eagle_is_told_from_an_eagle3_head() -> None:
    """The draft's own config.json names its architecture, whatever the profile calls the kind."""
    asked = profile({"speculation": {"kind": "eagle3", "draft_tokens": 3, "draft_checkpoint": "x"}})
    said = {
        name: [finding.compared for finding in settle(llama_8b(), loaded, hardware(2, 192, 100)).findings
               if finding.rule == "PF25"]
        for name in ("LlamaForCausalLMEagle", "LlamaForCausalLMEagle3")
        for loaded in [replace(asked, draft=HEAD.model_copy(update={"architectures": (name,)}))]
    }  # fmt: skip
    assert {"LlamaForCausalLMEagle": ["architecture LlamaForCausalLMEagle"], "LlamaForCausalLMEagle3": []} == said


OTHERWISE: dict[str, Callable[[], None]] = {
    "C13": c13_llama3_rope_is_no_obstacle,
    "C24": c24_a_group_of_32_is_refused,
    "D03": d03_a_draft_of_the_first_eagle_is_told_from_an_eagle3_head,
    "C30": c30_sizes_of_text_config_are_found,
    "K01": k01_the_budget_is_a_number_of_bytes,
}


@pytest.mark.parametrize("case", OTHERWISE)
def test_a_plan_decides_it_otherwise(case: str) -> None:
    """The failure is decided by something else than a finding: a refusal, a figure, or a model that is read."""
    OTHERWISE[case]()


def test_every_case_has_a_test_or_a_reason() -> None:
    """What the page claims is what is tried: by a plan, by rules about given things, or not at all and why."""
    tried = SPEAKS.keys() | OTHERWISE.keys() | {"C08", "C09", "C10", "C12"}
    for case in CASES:
        given = case.get("given", [])
        assert set(given) <= TRIALS.keys(), case
        assert bool(case.get("plan")) == (case["id"] in tried), case
        assert bool(case.get("against")) == (case["id"] in AGAINST), case
        by_plan = bool(case.get("plan") or case.get("against"))
        assert by_plan != bool(case.get("unseen")), case
        assert by_plan or given, case  # the page says that a rule knows each of them
    assert tried <= {case["id"] for case in CASES}


def test_nine_in_ten_of_the_recorded_cases_are_decided(shared: Path) -> None:
    """Every recorded failure that names a preflight rule is on the list, and a plan decides nine in ten of them."""
    rows = re.findall(r"^\| ([A-Z]\d\d) \|(.*)$", (shared / "cases.md").read_text("utf-8"), re.MULTILINE)
    wanted = {name: set(re.findall(r"\bPF\d+", text)) for name, text in rows if re.search(r"\bPF\d+", text)}
    listed = {case["id"]: set(case["rules"]) for case in CASES}
    assert set() == wanted.keys() ^ listed.keys()
    assert [] == [name for name, rules in wanted.items() if not rules <= listed[name]]
    decided = [case["id"] for case in CASES if case.get("plan") or case.get("against")]
    assert len(decided) >= 0.9 * len(wanted)


def test_upstream_links_are_those_recorded(shared: Path) -> None:
    """A case on the page leads to the thread that it was recorded from."""
    text = (shared / "cases.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| ([A-Z]\d\d) \|(.*)$", text, re.MULTILINE))
    for case in CASES:
        for link in case["see"]:
            short = link if re.fullmatch(r"[A-Z]\d+p?", link) else link.rpartition("#")[2].removesuffix("p")
            assert short in rows[case["id"]], (case["id"], link)
