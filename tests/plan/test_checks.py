"""Every rule: a case in which it speaks, what it says, and that it is silent otherwise; and the page about them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.plan.test_engine_checks import SPEAKS as ENGINE_SPEAKS
from tests.support.specs import (
    deepseek_v3,
    gpt_oss_120b,
    hardware,
    llama,
    llama_8b,
    llama_70b,
    llama_405b,
    maverick,
    phi4_mini,
    profile,
    qwen3_moe,
    rehearsal,
    smollm2,
)
from trtllm_kit.findings import Finding, Severity
from trtllm_kit.plan.checks import RULES
from trtllm_kit.plan.checks.lengths import nearest_power_of_two
from trtllm_kit.plan.given import TITLES
from trtllm_kit.plan.quantization import idle_patterns
from trtllm_kit.plan.settle import settle
from trtllm_kit.spec.hardware import Hardware
from trtllm_kit.spec.load import load_hardware
from trtllm_kit.spec.model import Attention, Layer, ModelSpec, Rope, StoredFormats

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "checks.md"


def findings(model: ModelSpec, machine: Hardware, changes: Mapping[str, Any] | None = None) -> tuple[Finding, ...]:
    """Plan and return what the checks found."""
    return settle(model, profile(changes), machine).findings


def sliding(window: int) -> ModelSpec:
    """Make a small Mistral with one window."""
    attention = Attention(kind="sliding", heads=32, kv_heads=8, head_dim=128, window=window)
    layers = tuple(Layer(mixer=attention, feed_forward=layer.feed_forward) for layer in llama_8b().layers)
    changes = {"layers": layers, "family": "mistral", "architecture": "MistralForCausalLM"}
    return llama_8b().model_copy(update=changes)


def stretched(kind: str, factor: float) -> ModelSpec:
    """Make Qwen3 8B's lengths, with a rope that is stretched."""
    rope = Rope.model_validate({"theta": 1e6, "kind": kind, "factor": factor, "original_max_position": 32768})
    return with_facts(llama_8b(), max_position=40960, rope=rope)


def narrow_experts() -> Layer:
    """Make a layer whose experts are 1,500 wide, which eight ranks cannot split and four can."""
    layer = qwen3_moe(1).layers[0]
    return layer.model_copy(update={"feed_forward": layer.feed_forward.model_copy(update={"intermediate": 1500})})


def narrow_moe() -> ModelSpec:
    """Make a model whose experts are 1,504 wide, whole 32 bytes and no whole 64."""
    layer = qwen3_moe(1).layers[0]
    narrow = layer.model_copy(update={"feed_forward": layer.feed_forward.model_copy(update={"intermediate": 1504})})
    return with_facts(qwen3_moe(1), layers=(narrow,))


def with_facts(model: ModelSpec, **facts: Any) -> ModelSpec:
    """Return a model with some facts changed."""
    return model.model_copy(update=facts)


ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO
SPLIT = {"parallelism.tensor": 8}
MIXED = {"quantization.weights": "mixed", "quantization.groups": {"attention": "fp8", "experts": "nvfp4"}}
INT8_CACHE = {"quantization.weights": "int8_wo", "quantization.kv_cache": "int8"}
NVFP4_CACHE = {"quantization.weights": "fp8", "quantization.kv_cache": "nvfp4"}
SPEAKS: list[tuple[str, Severity, ModelSpec, Hardware, dict[str, Any], str, str]] = [
    ("PF1", ERROR, smollm2(), hardware(8), {"parallelism.tensor": 2},
     "9 heads / 2 tensor ranks", "parallelism.tensor: 1 (legal here: 1, 3)"),
    ("PF2", ERROR, smollm2(), hardware(8), {"parallelism.tensor": 2},
     "3 KV heads, 2 tensor ranks", "parallelism.tensor: 1 (legal here: 1, 3)"),
    ("PF2", INFO, llama_8b(), hardware(16), {"parallelism.tensor": 16}, "8 KV heads, 16 tensor ranks, 1 a rank",
     "parallelism.tensor: 8 (holds what is asked too, and leaves 8 GPUs idle)"),
    ("PF2", INFO, qwen3_moe(), hardware(8), {"parallelism.tensor": 8},
     "4 KV heads, 8 tensor ranks, 1 a rank", "nothing to do: parallelism.tensor 4 holds too little"),
    ("PF2", INFO, qwen3_moe(), hardware(8, 192), {"parallelism.tensor": 8, "parallelism.expert": 8},
     "4 KV heads, 8 tensor ranks, 1 a rank",
     "nothing to do: parallelism.tensor 4 is not legal here, 4 tensor ranks / 8 expert ranks is not whole"),
    ("PF3", WARNING, llama(2, 3200, 32, 32, 8640), hardware(), {},
     "100 is not a multiple of 8", "pad the weights to heads of 104, or use another model"),
    ("PF4", INFO, llama(2, 4096, 32, 8, 14336, vocab=32001), hardware(2), {"parallelism.tensor": 2},
     "32,001 words padded to 32,002 over 2 ranks", "nothing to do"),
    ("PF6", ERROR, llama(2, 64, 8, 8, 100), hardware(8), {"parallelism.tensor": 8},
     "100 / 8 ranks", "parallelism.tensor: 4 (legal here: 1, 2, 4)"),
    ("PF7", ERROR, llama_8b(), hardware(capability=80), {"quantization.weights": "fp8"},
     "compute capability 80; fp8 runs on 89, 90, 100, 103, 120", "quantization.weights: bf16"),
    ("PF7", WARNING, llama_8b(), hardware(capability=80), {"quantization.weights": "fp8", "trtllm_version": "main"},
     "compute capability 80", "quantization.weights: bf16"),
    ("PF7", WARNING, llama_8b(), hardware(capability=100),
     {"trtllm_version": "0.16.0", "toolchain": "mock", "runtime": "simulated"},
     "compute capability 100; bf16 runs on 80, 86, 89, 90", "choose hardware with a newer GPU"),
    ("PF8", ERROR, llama_8b(), hardware(capability=75), {"quantization.kv_cache": "fp8"},
     "compute capability 75; fp8 runs on 80, 86", "choose hardware with a newer GPU"),
    ("PF8", WARNING, llama_8b(), hardware(), {"quantization.kv_cache": "fp8"},
     "weights bf16, kv_cache fp8", "quantization.weights: fp8, or quantization.kv_cache: bf16"),
    ("PF8", WARNING, with_facts(llama_8b(), family="qwen2", architecture="Qwen2ForCausalLM"), hardware(),
     {"quantization.kv_cache": "fp8", "quantization.weights": "fp8"},
     "family qwen2, kv_cache fp8",
     "quantization.kv_cache: bf16, or read the quality report in the manifest of convert"),
    ("PF11", ERROR, smollm2(), hardware(), {"limits.max_seq_len": 16384},
     "max_seq_len 16,384, the model's positions 8,192", "limits.max_seq_len: 8192"),
    ("PF40", WARNING, phi4_mini(), hardware(), {"limits.max_seq_len": 8192},
     "max_seq_len 8,192, trained length 4,096, the model's positions 131,072",
     "limits.max_seq_len: 4096"),
    ("PF40", WARNING, phi4_mini(), hardware(), {"limits.max_seq_len": 8192, "trtllm_version": "1.1.0"},
     "max_seq_len 8,192, trained length 4,096", "limits.max_seq_len: 4096"),
    ("PF12", ERROR, with_facts(llama_8b(), stored=StoredFormats(method="awq")), hardware(), {}, "beside it says awq",
     "give the folder of the model's BF16 original, or set quantization.weights: int4_awq on the original; "
     "no PyTorch backend reads AutoAWQ files"),
    ("PF12", WARNING, qwen3_moe(2), hardware(8, 192, capability=100), MIXED, "fp8 and nvfp4 make MIXED_PRECISION",
     "one format for all quantised parts, and bf16 for the others"),
    ("PF14", WARNING, llama_70b(), hardware(1, 80), {"quantization.weights": "int4_awq"},
     "131.42 GiB in 16 bit + 37.80 GiB of the result, without activations; 80.00 GiB in all GPUs",
     "convert on 3 such GPUs or more, or on a CPU with that memory"),
    ("PF5", ERROR, llama(2, 1024, 8, 8, 1216), hardware(), {"quantization.weights": "int4_wo"},
     "1,216 input features / 1 rank is not a multiple of 128",
     'quantization.group_size: 64, or add "*down_proj" to quantization.exclude'),
    ("PF5", ERROR, llama(2, 1024, 8, 8, 1184), hardware(), {"quantization.weights": "int4_wo"},
     "1,184 input features / 1 rank is not a multiple of 128", 'add "*down_proj" to quantization.exclude'),
    ("PF5", ERROR, llama(2, 1024, 8, 8, 1536), hardware(8), SPLIT | {"quantization.weights": "int4_awq"},
     "1,536 input features / 8 ranks is not a multiple of 128",
     'parallelism.tensor: 4, or quantization.group_size: 64, or add "*down_proj" to quantization.exclude'),
    ("PF6", WARNING, llama(2, 1024, 8, 8, 1344), hardware(8), SPLIT | {"quantization.weights": "int8_wo"},
     "1,344 features / 8 ranks x 8 bits is no multiple of 32 bytes",
     'parallelism.tensor: 2, or add "*gate_proj", "*up_proj", "*down_proj" to quantization.exclude'),
    ("PF6", WARNING, narrow_moe(), hardware(), {"quantization.weights": "int8_wo"},
     "1,504 features / 1 rank is no multiple of 64",
     'add "*gate_proj", "*up_proj", "*down_proj" to quantization.exclude'),
    ("PF6", INFO, qwen3_moe(2), hardware(8), {"quantization.weights": "fp8_block", "parallelism.tensor": 8},
     "1,536 features / 8 ranks is not a multiple of 128", "nothing to do"),
    ("PF7", WARNING, llama_8b(), hardware(capability=100), {"quantization.weights": "mxfp8"},
     "MXFP8; NVIDIA/TensorRT-LLM QuantAlgo", "trtllm_version: main, or quantization.weights: fp8"),
    ("PF7", WARNING, llama_8b(), hardware(), {"quantization.weights": "int8_sq"},
     "and the PyTorch backend has no kernel of SmoothQuant", "quantization.weights: fp8"),
    ("PF7", WARNING, llama_8b(), hardware(capability=100),
     {"quantization.weights": "int8_wo", "trtllm_version": "0.21", "runtime": "simulated"},
     "compute capability 100; int8_wo runs on 80, 86, 89, 90", "quantization.weights: fp8"),
    ("PF8", WARNING, llama_8b(), hardware(), {"quantization.weights": "fp8", "quantization.kv_cache": "int8"},
     "compute capability 90; int8 runs on no GPU", "quantization.kv_cache: fp8"),
    ("PF8", ERROR, llama_8b(), hardware(), INT8_CACHE | {"trtllm_version": "0.16"},
     "kv_cache int8, enable_block_reuse true", "kv_cache.enable_block_reuse: false"),
    ("PF8", WARNING, llama_8b(), hardware(), INT8_CACHE | {"trtllm_version": "0.21"},
     "kv_cache int8, enable_block_reuse true", "kv_cache.enable_block_reuse: false"),
    ("PF8", WARNING, llama_8b(), hardware(capability=89),
     {"quantization.weights": "w4a8_awq", "quantization.kv_cache": "fp8"},
     "weights w4a8_awq, kv_cache fp8", "quantization.kv_cache: bf16"),
    ("PF35", WARNING, llama(2, 1024, 8, 8, 1104), hardware(capability=100),
     {"quantization.weights": "mxfp8", "trtllm_version": "main"},
     "1,104 input features / 1 rank is not a multiple of 32", 'add "*down_proj" to quantization.exclude'),
    ("PF11", ERROR, smollm2(), hardware(), {"limits.max_seq_len": 16384, "load.input_tokens": 9000},
     "max_seq_len 16,384", "limits.max_seq_len: 8192, load.input_tokens: 7168"),
    ("PF11", ERROR, stretched("yarn", 4.0), hardware(8, 141), {"limits.max_seq_len": 131_073},
     "max_seq_len 131,073, the model's positions 131,072 (32,768 x yarn factor 4)", "limits.max_seq_len: 131072"),
    ("PF11", WARNING, stretched("yarn", 1.0), hardware(8, 141), {"limits.max_seq_len": 40_960},
     "the model's positions 32,768 (32,768 x yarn factor 1)", "limits.max_seq_len: 32768"),
    ("PF11", WARNING, stretched("linear", 4.0), hardware(8, 141), {"limits.max_seq_len": 163_840},
     "the model's positions 40,960 (40,960, times linear factor 4", "limits.max_seq_len: 40960"),
    ("PF11", ERROR, stretched("dynamic", 2.0), hardware(8, 141), {"limits.max_seq_len": 81_921},
     "the model's positions 40,960", "limits.max_seq_len: 40960"),
    ("PF13", WARNING, maverick(), hardware(8), {"toolchain": "mock"},
     "through trtllm-build: listed for no release", "toolchain: llm-api"),
    ("PF13", WARNING, with_facts(maverick(), architecture="Llama4ForCausalLM"), hardware(8), {},
     "listed for 1.0.0 to main", "nothing to do but to try it"),
    ("PF13", WARNING, qwen3_moe(4), hardware(8),
     {"trtllm_version": "0.20", "toolchain": "mock", "runtime": "simulated"},
     "through trtllm-build: listed for 1.0.0 to 1.3.0rc20", "trtllm_version: 1.0.0"),
    ("PF13", INFO, llama_8b(), hardware(), {"trtllm_version": "1.1.0"},
     "LlamaForCausalLM through llm-api: read in 1.0.0, 1.2.1, main", "nothing to do but to try it"),
    ("PF18", ERROR, llama_70b(), hardware(), {},
     "640.00 MiB needed for the KV cache, 56.31 GiB lacking before it; the other terms take 136.31 GiB of 80.00 GiB",
     "lower load.min_concurrency or choose hardware with more memory"),
    ("PF18", ERROR, llama_8b(), hardware(1, 24), {"limits.max_seq_len": 131072},
     "16.00 GiB needed, ", "limits.max_seq_len: 35136"),
    ("PF18", ERROR, llama_8b(), hardware(1, 24), {"limits.max_seq_len": 34_816, "limits.max_beam_width": 4},
     "4.62 GiB needed with 4 beams for the last 1,024 tokens, ", "limits.max_seq_len: 31712"),
    ("PF19", WARNING, llama_8b(), hardware(), {"trtllm_version": "1.3.0rc14"},
     "1.3.0rc14 is in no container, 1.2.1 is the nearest that is in one", "trtllm_version: 1.2.1"),
    ("PF19", WARNING, llama_8b(), hardware(), {"trtllm_version": "1.0.2"},
     "1.0.2 is in no container", "trtllm_version: 1.0.3.2510"),
    ("PF20", ERROR, llama_70b(), hardware(2), {"parallelism.tensor": 4},
     "4 ranks, 2 GPUs", "parallelism.tensor: 2 (legal here: 1, 2)"),
    ("PF20", WARNING, llama_70b(), hardware(8, nodes=2), {"parallelism.tensor": 16},
     "16 tensor ranks, 8 GPUs", "parallelism.tensor: 8 with parallelism.pipeline: 2"),
    ("PF20", ERROR, llama_70b(), hardware(8), {"parallelism.tensor": 4, "parallelism.replicas": 3},
     "4 tensor x 1 pipeline x 3 replicas = 12 ranks, 8 GPUs", "parallelism.replicas: 2"),
    ("PF20", WARNING, llama_70b(), hardware(6, nodes=2), {"parallelism.tensor": 4, "parallelism.replicas": 3},
     "3 groups of 4 tensor ranks, room for 2 within nodes or NVLink domains of 6 GPUs",
     "parallelism.tensor: 2 (legal here: 1, 2)"),
    ("PF20", WARNING, llama_8b(), load_hardware("l40sx8"), {"parallelism.tensor": 2},
     "2 tensor ranks, each GPU sends 0.5 GB for 1,024 tokens, 17 ms at best over PCIe 4 x16 at 32 GB/s",
     "parallelism.tensor: 1 with parallelism.pipeline: 2 (only the ends of stages talk); or keep them, on GPUs that "
     "`nvidia-smi topo -m` shows as PIX or PXB; a first all-reduce that hangs is the IOMMU or ACS, and ends with "
     "NCCL_P2P_DISABLE=1"),
    ("PF22", ERROR, llama_8b(), hardware(), {"load.input_tokens": 4000, "load.output_tokens": 1000},
     "4,000 input + 1,000 output = 5,000, max_seq_len 4,096", "limits.max_seq_len: 5000"),
    ("PF22", ERROR, smollm2(), hardware(), {"load.input_tokens": 50_000},
     "50,000 input + 1,024 output = 51,024, max_seq_len 4,096", "limits.max_seq_len: 8192, load.input_tokens: 7168"),
    ("PF22", ERROR, smollm2(), hardware(), {"load.output_tokens": 9000, "limits.max_seq_len": 8192},
     "1,024 input + 9,000 output = 10,024, max_seq_len 8,192", "load.input_tokens: 4096, load.output_tokens: 4096"),
    ("PF22", ERROR, llama_8b(), hardware(),
     {"load.input_tokens": 3000, "limits.max_num_tokens": 2048, "scheduler.chunked_prefill": False},
     "3,000 input tokens, max_num_tokens 2,048", "scheduler.chunked_prefill: true"),
    ("PF22", ERROR, llama_8b(), hardware(), {"load.min_concurrency": 64},
     "min_concurrency 64, max_batch_size 32", "limits.max_batch_size: 64"),
    ("PF22", WARNING, llama_8b(), hardware(), {"limits.max_batch_size": 1024, "limits.max_num_tokens": 512},
     "1,024 tokens (requests x beams), max_num_tokens 512", "limits.max_num_tokens: 1024"),
    ("PF22", WARNING, llama_8b(), hardware(), {"limits.max_beam_width": 32},
     "max_beam_width 32, 16 were seen to work", "limits.max_beam_width: 16"),
    ("PF23", WARNING, sliding(1024), hardware(), {},
     "window 1,024, max_seq_len 4,096", "kv_cache.enable_block_reuse: false"),
    ("PF23", WARNING, llama_8b(), hardware(2), {"parallelism.pipeline": 2},
     "pipeline 2, chunked_prefill true", "scheduler.chunked_prefill: false"),
    ("PF23", WARNING, llama_8b(), hardware(2),
     {"parallelism.pipeline": 2, "load.input_tokens": 2000, "limits.max_num_tokens": 1024},
     "pipeline 2, chunked_prefill true", "scheduler.chunked_prefill: false, limits.max_num_tokens: 2000"),
    ("PF24", ERROR, llama_8b(), hardware(), {"trtllm_version": "1.0.0", "kv_cache.tokens_per_block": 64},
     "runtime.tokens_per_block is 64, 1.0.0 always uses 32; the key is in 1.1.0",
     "kv_cache.tokens_per_block: 32, or trtllm_version: 1.1.0"),
    ("PF24", WARNING, llama_8b(), hardware(), {"trtllm_version": "1.0.2", "kv_cache.tokens_per_block": 64},
     "runtime.tokens_per_block is 64, ", "kv_cache.tokens_per_block: 32, or trtllm_version: 1.1.0"),
    ("PF26", ERROR, llama_8b(), hardware(), {"trtllm_version": "main", "toolchain": "mock"},
     "main has llm-api", "toolchain: auto"),
    ("PF27", ERROR, llama_8b(), hardware(), {"kv_cache.tokens_per_block": 48, "trtllm_version": "main"},
     "tokens_per_block 48; main refuses it", "kv_cache.tokens_per_block: 32"),
    ("PF27", WARNING, llama_8b(), hardware(), {"kv_cache.tokens_per_block": 31},
     "tokens_per_block 31; 1.2.1 is not known to check it", "kv_cache.tokens_per_block: 32"),
    ("PF28", ERROR, qwen3_moe(2), hardware(8), {"parallelism.tensor": 8, "parallelism.expert": 3},
     "8 tensor ranks / 3 expert ranks", "parallelism.expert: 2 (legal with tensor 8: 1, 2, 4, 8)"),
    ("PF20", ERROR, llama_70b(), hardware(2), {"parallelism.pipeline": 4},
     "4 ranks, 2 GPUs", "parallelism.pipeline: 1 and parallelism.tensor: auto; test has 2 GPUs"),
    ("PF28", ERROR, llama_70b(), hardware(2), {"parallelism.expert": 2},
     "expert 2, 0 experts", "parallelism.expert: 1 (legal with tensor 1: 1)"),
    ("PF28", ERROR, qwen3_moe(2).model_copy(update={"layers": (narrow_experts(),)}), hardware(8),
     {"parallelism.tensor": 8, "parallelism.expert": 3},
     "8 tensor ranks / 3 expert ranks", "parallelism.expert: 2 (legal with tensor 8: 2, 4, 8)"),
    ("PF29", ERROR, smollm2(), rehearsal(), {},
     "hardware cpu-rehearsal is a cpu", "runtime: reference (real text) or runtime: simulated (paced tokens)"),
    ("PF29", ERROR, llama_8b(), hardware(), {"toolchain": "mock"},
     "runtime tensorrt_llm, toolchain mock", "runtime: simulated (paced tokens), or toolchain: llm-api"),
    ("PF29", ERROR, llama_8b(), hardware(8),
     {"toolchain": "trtllm-build", "parallelism.tensor": 1, "parallelism.replicas": 2,
      "environment": {"TRTLLM_ORCHESTRATOR": "1", "TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES": "0"}},
     "2 instances, TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES=0", "parallelism.replicas: 1"),
    ("PF30", ERROR, llama_8b(), hardware(), {"serve.grpc_port": 8000},
     "serve.http_port 8000, serve.grpc_port 8000", "serve.grpc_port: 8003"),
    ("PF30", ERROR, llama_8b(), hardware(), {"serve.http_port": 65535, "serve.metrics_port": 65535},
     "serve.http_port 65535, serve.metrics_port 65535", "serve.metrics_port: 8000"),
    ("PF31", ERROR, llama_8b(), load_hardware("h200x1"), {"gpu_memory": "200 GiB"},
     "gpu_memory 200.00 GiB, 140.40 GiB on the GPU", "gpu_memory: 150754820096"),
    ("PF32", WARNING, llama_8b(), hardware(),
     {"quantization.weights": "fp8", "quantization.exclude": ("lm_head", "model.layer.5.*")},
     "no module is named by model.layer.5.*",
     "quantization.exclude: [lm_head]; modules have names like model.layers.0.self_attn.q_proj"),
    ("PF32", WARNING, llama_8b(), hardware(), {"quantization.weights": "fp8", "quantization.exclude": ("*",)},
     "exclude *; 0 modules in fp8", "quantization.weights: bf16, or fewer patterns in quantization.exclude"),
    ("PF33", WARNING, llama_8b(), hardware(), {"quantization.weights": "fp8", "calibration.text": "none.txt"},
     "calibration.text is none.txt", "put the text there, or leave calibration.text out for the bundled one"),
    ("PF7", ERROR, llama_8b(), hardware(), {"quantization.weights": "nvfp4"},
     "compute capability 90; nvfp4 runs on 100, 103, 120", "quantization.weights: fp8"),
    ("PF8", ERROR, llama_8b(), hardware(capability=120), NVFP4_CACHE,
     "compute capability 120; nvfp4 runs on 100, 103", "quantization.kv_cache: fp8"),
    ("PF8", WARNING, llama_8b(), hardware(capability=100), NVFP4_CACHE | {"trtllm_version": "1.1.0"},
     "compute capability 100; nvfp4 runs on no GPU", "quantization.kv_cache: fp8"),
    ("PF8", WARNING, llama_8b(), hardware(capability=100), NVFP4_CACHE | {"quantization.weights": "nvfp4"},
     "weights nvfp4, kv_cache nvfp4", "quantization.kv_cache: fp8"),
    ("PF8", WARNING, llama_8b(), hardware(capability=100), NVFP4_CACHE,
     "TRTLLM_LOAD_KV_SCALES is not set, wanted 1", 'environment: {TRTLLM_LOAD_KV_SCALES: "1"}'),
    ("PF34", WARNING, llama_8b(), hardware(), {"quantization.weights": "int4_awq", "calibration.backend": "native"},
     "weights int4_awq; convert writes bf16 and fp8 and",
     "serve a checkpoint that NVIDIA ModelOpt made or somebody published, or quantization.weights: fp8"),
    ("PF34", WARNING, llama_8b(), hardware(capability=100),
     {"quantization.weights": "fp8", "quantization.kv_cache": "nvfp4", "trtllm_version": "0.21"},
     "it writes bf16, fp8, int8 in this layout", "set quantization.kv_cache: fp8"),
    ("PF34", WARNING, llama_8b(), hardware(), {"quantization.weights": "fp8_block", "trtllm_version": "0.21"},
     "the kit knows bf16, fp8, fp8_rowwise, int8_wo, int4_wo, nvfp4, int4_awq, w4a8_awq, int8_sq, mixed for it",
     "set quantization.weights to one of them, or toolchain: llm-api with trtllm_version: 1.2.1, which loads the "
     "unified layout"),
    ("PF34", WARNING, qwen3_moe(2), hardware(), {"quantization.weights": "int4_awq"},
     "Qwen3MoeForCausalLM has experts, on which the exporter of version 0.47 fails",
     "set quantization.weights: fp8"),
    ("PF34", WARNING, llama_8b(), hardware(),
     {"quantization.weights": "int4_wo", "quantization.group_size": 64, "trtllm_version": "0.21"},
     "group_size 64, weights int4_wo", "leave quantization.group_size out, or quantization.weights: int4_awq"),
    ("PF35", WARNING, llama(2, 1024, 8, 8, 1096), hardware(capability=100), {"quantization.weights": "nvfp4"},
     "1,096 input features / 1 rank is not a multiple of 16", 'add "*down_proj" to quantization.exclude'),
    ("PF35", WARNING, llama(2, 1024, 16, 16, 1088), hardware(8, capability=100),
     {"quantization.weights": "nvfp4", "parallelism.tensor": 8},
     "1,088 input features / 8 ranks is not a multiple of 16",
     'parallelism.tensor: 4, or add "*down_proj" to quantization.exclude'),
    ("PF35", WARNING, qwen3_moe(2), hardware(64, capability=100),
     {"quantization.weights": "nvfp4", "parallelism.tensor": 64},
     "1,536 input features / 64 ranks is not a multiple of 16",
     'parallelism.tensor: 32, or add "*down_proj" to quantization.exclude'),
    ("PF45", WARNING, gpt_oss_120b(2), hardware(), {"quantization.weights": "fp8"}, "GptOssForCausalLM: mxfp4",
     "quantization.weights: bf16, or try it on one request before you rely on it"),
    ("PF45", WARNING, deepseek_v3(4), hardware(8), {"quantization.weights": "fp8", "trtllm_version": "main"},
     "DeepseekV3ForCausalLM: fp8_block, nvfp4 (read in 1.2.1)",
     "quantization.weights: bf16, or try it on one request before you rely on it"),
    ("PF46", WARNING, llama_8b(), hardware(2), {"parallelism.tensor": 2, "parallelism.attention_dp": True},
     "known of no release; not confirmed for this release", "parallelism.attention_dp: false"),
    ("PF47", ERROR, llama_8b(), hardware(2), {"parallelism.context": 2},
     "parallelism.context 2, toolchain llm-api; there context ranks are for generation alone",
     "parallelism.context: 1, or toolchain: trtllm-build in a release that builds engines"),
    ("PF2", INFO, deepseek_v3(4), hardware(8), {"parallelism.tensor": 8},
     "1 KV head, 8 tensor ranks, 1 a rank", "parallelism.tensor: 1 (holds what is asked too, and leaves 7 GPUs idle)"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "severity", "model", "machine", "changes", "compared", "suggestion"), SPEAKS)
def test_a_rule_names_the_numbers_and_what_works(
    rule: str, severity: Severity, model: ModelSpec, machine: Hardware, changes: dict[str, Any], compared: str,
    suggestion: str,
) -> None:  # fmt: skip
    """Each finding has its severity, the numbers compared and the nearest setting that works."""
    said = [finding for finding in findings(model, machine, changes) if finding.rule == rule]
    assert [severity] == [finding.severity for finding in said if compared in finding.compared][:1], said
    assert suggestion in [finding.suggestion for finding in said]


def test_every_kind_of_module_is_told_with_its_layers_and_numbers() -> None:
    """PF5 counts the layers of each kind, and one change of exclude names them all and ends the finding."""
    model, asked = llama(24, 1088, 17, 1, 4800), {"quantization.weights": "int4_wo"}
    (said,) = [finding for finding in findings(model, hardware(), asked) if finding.rule == "PF5"]
    for name in ("self_attn.q_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.down_proj"):
        assert f"{name} of 24 layers" in said.message
    assert "mlp.gate_proj, mlp.up_proj: 1,088 input features / 1 rank is not a multiple of 128" in said.compared
    assert "mlp.down_proj: 4,800 input features / 1 rank is not a multiple of 128" in said.compared
    patterns = re.findall(r'"([^"]+)"', said.suggestion or "")
    assert 7 == len(patterns)
    again = findings(model, hardware(), asked | {"quantization.exclude": ["lm_head", *patterns]})
    assert "PF5" not in {finding.rule for finding in again}


def test_layers_that_differ_are_counted_apart() -> None:
    """Of Llama's 24 layers three are kept in 16 bit by name, and PF35 tells of the others alone."""
    asked = {"quantization.weights": "nvfp4", "quantization.exclude": ["lm_head", "model.layers.[013].mlp.*"]}
    found = findings(llama(24, 1024, 8, 8, 1096), hardware(capability=100), asked)
    assert ["mlp.down_proj of 21 layers cannot be cut into whole NVFP4 blocks on every rank."] == [
        finding.message for finding in found if finding.rule == "PF35"
    ]


SUGGESTED = re.compile(r"([a-z_]+(?:\.[a-z_]+)?): ([a-z0-9._-]+)")


@pytest.mark.parametrize(
    ("rule", "model", "machine", "changes", "suggestion"),
    [(row[0], row[2], row[3], row[4], row[6]) for row in SPEAKS if SUGGESTED.match(row[6])],
)
def test_the_suggested_setting_silences_the_rule(
    rule: str, model: ModelSpec, machine: Hardware, changes: dict[str, Any], suggestion: str
) -> None:
    """Following a suggestion of the form ``key: value`` ends the finding it came with."""
    numbers = {
        key: yaml_value(value) for key, value in SUGGESTED.findall(suggestion.partition(" (")[0].partition(", or")[0])
    }
    before = [finding for finding in findings(model, machine, changes) if finding.suggestion == suggestion]
    after = findings(model, machine, changes | numbers)
    assert before
    assert not [finding for finding in after if finding.rule == rule and finding.message == before[0].message]


def yaml_value(text: str) -> object:
    """Read a suggested value as YAML would."""
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.isdigit() else text


@pytest.mark.parametrize(
    ("model", "machine", "changes"),
    [
        (llama_8b(), hardware(), {}),
        (llama_70b(), hardware(8), {}),
        (qwen3_moe(), hardware(8, 141), {"parallelism.tensor": 4}),
        (
            smollm2(),
            rehearsal(),
            {"runtime": "reference", "quantization.weights": "fp8", "quantization.kv_cache": "fp8"},
        ),
        (stretched("yarn", 4.0), hardware(8, 141), {"limits.max_seq_len": 131_072}),
        (
            with_facts(llama_8b(), rope=Rope(theta=5e5, kind="llama3", factor=8.0)),
            hardware(8),
            {"limits.max_seq_len": 131_072},
        ),
        (maverick(), hardware(8, 192), {"quantization.weights": "fp8", "quantization.kv_cache": "fp8"}),
        (llama_8b(), hardware(2), {"parallelism.pipeline": 2, "scheduler.chunked_prefill": False}),
        (llama_8b(), load_hardware("h200x1"), {"gpu_memory": "140 GiB"}),
        (smollm2(), load_hardware("cpu-rehearsal"), {"runtime": "simulated", "gpu_memory": "1 TiB"}),
        (llama_8b(), hardware(), {"calibration.text": "none.txt"}),
        (sliding(1024), hardware(), {"limits.max_seq_len": 4096, "kv_cache.enable_block_reuse": False}),
        (llama_8b(), hardware(capability=120), {"quantization.weights": "fp8", "quantization.kv_cache": "fp8"}),
        (sliding(4096), hardware(), {}),
        (llama_8b(), hardware(), {"trtllm_version": "1.0.0"}),
    ],
)
def test_a_sound_profile_has_no_finding(model: ModelSpec, machine: Hardware, changes: dict[str, Any]) -> None:
    """Rules are silent when nothing is wrong."""
    assert () == findings(model, machine, changes)


@pytest.mark.parametrize("weights", ["nvfp4", "fp8_block", "int4_awq"])
def test_what_a_blackwell_gpu_takes_is_not_spoken_of(weights: str) -> None:
    """A plan with what the release's matrix names for GPU and model has no finding."""
    found = findings(llama_8b(), hardware(2, capability=100), {"quantization.weights": weights})
    of_the_matrix = {"fp8_block": ["PF45"]}.get(weights, [])
    assert of_the_matrix == [finding.rule for finding in found]


@pytest.mark.parametrize("weights", ["int8_wo", "int4_awq", "int8_sq"])
def test_an_int8_cache_of_an_engine_is_made(weights: str) -> None:
    """A conversion into ranks writes scales of an INT8 cache, so PF34 does not speak of it."""
    asked = INT8_CACHE | {"quantization.weights": weights, "trtllm_version": "0.21"}
    assert "PF34" not in {finding.rule for finding in findings(llama_8b(), hardware(), asked)}


def test_expert_ranks_keep_the_blocks_of_an_expert_whole() -> None:
    """64 tensor ranks cut an expert of 1,536 into 24, no multiple of 16; as 64 expert ranks they leave it whole."""
    changes = {"quantization.weights": "nvfp4", "parallelism.tensor": 64, "parallelism.expert": 64}
    found = findings(qwen3_moe(2), hardware(64, capability=100), changes)
    assert "PF35" not in {finding.rule for finding in found}


def test_pipeline_stages_on_pcie_are_not_spoken_of() -> None:
    """Stages exchange the hidden state once, so PCIe carries them."""
    found = findings(llama_8b(), load_hardware("l40sx8"), {"parallelism.pipeline": 2})
    assert "PF20" not in {finding.rule for finding in found}


def test_every_pipeline_stage_has_a_batch_under_way() -> None:
    """Two stages hold two batches of 32, so 64 requests at once are legal, and of 100 each batch needs 50."""
    two = {"parallelism.pipeline": 2, "limits.max_batch_size": 32}
    assert "PF22" not in {
        finding.rule for finding in findings(llama_8b(), hardware(2), two | {"load.min_concurrency": 64})
    }
    found = findings(llama_8b(), hardware(2), two | {"load.min_concurrency": 100})
    assert [("min_concurrency 100, max_batch_size 32 in each of 2 batches", "limits.max_batch_size: 50")] == [
        (finding.compared, finding.suggestion) for finding in found if finding.rule == "PF22"
    ]


def test_errors_come_first() -> None:
    """What stops a verb is shown before what only warns."""
    changes = {"parallelism.tensor": 16, "load.min_concurrency": 64, "limits.max_beam_width": 32}
    severities = [finding.severity for finding in findings(llama_8b(), hardware(16), changes)]
    assert [Severity.ERROR, Severity.WARNING, Severity.INFO, Severity.INFO] == severities


OF_ENGINES = ("PF16", "PF17", "PF21")
"""Made to speak in ``test_cases.py``, and to be silent in ``test_built.py``."""


def test_every_rule_has_a_case_above_and_an_id_of_its_own() -> None:
    """A rule without a case that makes it speak is not tested; PF25, PF41 and OF_ENGINES have theirs elsewhere."""
    ids = [rule.id for rule in RULES]
    assert len(ids) == len(set(ids))
    assert set(ids) == {row[0] for row in (*SPEAKS, *ENGINE_SPEAKS)} | {"PF25", "PF41", *OF_ENGINES}


def test_the_page_has_a_heading_for_every_rule() -> None:
    """docs/reference/checks.md lists exactly the rules that run, of plans and of given things, with their titles."""
    headings = re.findall(r"^## (PF\d+): (.+)$", PAGE.read_text("utf-8"), re.MULTILINE)
    assert sorted({*((rule.id, rule.title) for rule in RULES), *TITLES.items()}) == sorted(headings)


@pytest.mark.parametrize(
    ("model", "machine", "changes", "compared"),
    [
        (
            llama_8b(),
            hardware(),
            {"quantization.weights": "fp8"},
            "quantization.weights fp8, quantization.kv_cache bf16",
        ),
        (
            llama_8b(),
            hardware(),
            {"quantization.kv_cache": "fp8"},
            "quantization.weights bf16, quantization.kv_cache fp8",
        ),
        (llama_8b(), hardware(2), {"parallelism.tensor": 2}, "the plan has 2 ranks"),
        (llama_8b(), hardware(), {"toolchain": "trtllm-build"}, "runtime transformers, toolchain trtllm-build"),
        (sliding(1024), hardware(), {}, "has layers of kind sliding"),
        (deepseek_v3(4), hardware(8, 141), {"parallelism.tensor": 1}, "has layers of kind latent"),
    ],
)
def test_what_the_transformers_runtime_cannot_is_refused(
    model: ModelSpec, machine: Hardware, changes: dict[str, Any], compared: str
) -> None:
    """Scales, several ranks, engines, and layers that keep something else than whole sequences."""
    found = findings(model, machine, {"runtime": "transformers"} | changes)
    assert any(compared in one.compared for one in found if (one.rule, one.severity) == ("PF29", Severity.ERROR))


@pytest.mark.parametrize("machine", [hardware(), rehearsal(64.0)])
def test_a_plain_model_on_one_device_may_be_served_by_transformers(machine: Hardware) -> None:
    """16-bit weights and cache on one GPU, or on the CPU that stands in for it: nothing is found."""
    assert () == findings(llama_8b(), machine, {"runtime": "transformers"})


def test_a_rehearsal_has_no_gpu_gate() -> None:
    """The CPU runtimes compute in float32, so no format is refused there."""
    changes = {"runtime": "reference", "quantization.weights": "fp8", "quantization.kv_cache": "fp8"}
    assert () == findings(smollm2(), rehearsal(), changes)


def test_405b_over_32_ranks_as_asked_is_no_warning() -> None:
    """Who asks for copied KV heads on every GPU is told what fewer ranks would do, and not to idle 24 of 32 GPUs."""
    changes = {"quantization.weights": "fp8", "quantization.kv_cache": "fp8", "parallelism.tensor": 32}
    found = findings(llama_405b(), hardware(2, 95, nodes=16, nvlink=32), changes)
    assert [("PF2", Severity.INFO), ("PF20", Severity.INFO)] == [(one.rule, one.severity) for one in found]


def test_what_is_known_of_windows_and_block_reuse_ends_with_1_3_0rc11() -> None:
    """1.0 and 1.1 mark the two as unfinished, 1.2 to rc11 failed, and later releases are not accused of it."""
    said = {
        version: [finding.message for finding in findings(sliding(1024), hardware(), {"trtllm_version": version})
                  if finding.rule == "PF23"]
        for version in ("1.0.0", "1.1.0", "1.2.1", "1.3.0rc11", "1.3.0rc12", "1.3.0rc20", "main")
    }  # fmt: skip
    assert ["1.0.0", "1.1.0", "1.2.1", "1.3.0rc11"] == [version for version, messages in said.items() if messages]
    assert ["Block reuse and sliding windows together have failed under load in release 1.2.1."] == said["1.2.1"]
    assert "marked as work in progress" in said["1.0.0"][0]


def test_a_network_between_nodes_is_not_spoken_of_where_ranks_are_lacking() -> None:
    """Sixteen ranks on one node of eight GPUs are too many, and there is no other node to be slow with."""
    found = findings(llama_70b(), hardware(8), {"parallelism.tensor": 16})
    assert ["test has fewer GPUs than the split has ranks."] == [f.message for f in found if f.rule == "PF20"]


@pytest.mark.parametrize(
    ("size", "nearest"), [(1, 2), (3, 2), (31, 32), (33, 32), (47, 32), (48, 32), (49, 64), (63, 64)]
)
def test_the_nearest_block_size_is_the_nearest(size: int, nearest: int) -> None:
    """31 is told 32 and not 16; of two equally near ones the smaller is named."""
    assert nearest == nearest_power_of_two(size)


def test_a_split_that_only_stands_in_is_not_judged_by_its_memory() -> None:
    """70B fits no single GPU, but tensor 1 is there only because expert ranks leave no legal count."""
    made = settle(llama_70b(), profile({"parallelism.expert": 2}), hardware(8))
    assert ["PF28"] == [finding.rule for finding in made.findings]
    assert not made.memory.fits
    reason = "no tensor rank count is legal with pipeline 1 and expert 2 on 8 GPUs; 1 stands in"
    assert reason == made.parallelism.tensor.reason


def test_patterns_for_parts_that_are_passed_through_name_something() -> None:
    """Llama 4's vision tower is not of the text model, and excluding it is no mistake; nor is a head that is tied."""
    patterns = ("*lm_head", "*router", "vision_model*", "multi_modal_projector*")
    assert () == idle_patterns(maverick(), patterns)
    assert ("vision_model*",) == idle_patterns(llama_8b(), ("vision_model*",))
    assert () == idle_patterns(smollm2(), ("lm_head", "model.layers.29.*"))
    assert ("model.layers.30.*",) == idle_patterns(smollm2(), ("model.layers.30.*",))
