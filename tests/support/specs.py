"""Model specs, hardware and profiles for tests, made without any file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trtllm_kit.spec.hardware import Figure, Gpu, Hardware
from trtllm_kit.spec.load import LoadedProfile
from trtllm_kit.spec.model import Attention, Dense, Experts, Latent, Layer, ModelSpec, Rope, Routing
from trtllm_kit.spec.profile import DeployProfile

GIB = 1 << 30


def llama(
    layers: int, hidden: int, heads: int, kv_heads: int, intermediate: int, vocab: int = 128256, **changes: Any
) -> ModelSpec:
    """Make a Llama-shaped dense model."""
    attention = Attention(kind="full", heads=heads, kv_heads=kv_heads, head_dim=hidden // heads)
    layer = Layer(mixer=attention, feed_forward=Dense(intermediate=intermediate))
    return ModelSpec.model_validate(_common(hidden, vocab) | {"layers": (layer,) * layers} | changes)


def llama_8b() -> ModelSpec:
    """Llama 3.1 8B."""
    return llama(32, 4096, 32, 8, 14336)


def llama_70b() -> ModelSpec:
    """Llama 3.1 70B."""
    return llama(80, 8192, 64, 8, 28672)


def llama_405b() -> ModelSpec:
    """Llama 3.1 405B."""
    return llama(126, 16384, 128, 8, 53248)


def smollm2() -> ModelSpec:
    """SmolLM2-135M."""
    return llama(30, 576, 9, 3, 1536, 49152, tied_embeddings=True, max_position=8192)


def qwen3_moe(layers: int = 94) -> ModelSpec:
    """Qwen3-235B-A22B, or fewer layers of it."""
    attention = Attention(kind="full", heads=64, kv_heads=4, head_dim=128, qk_norm="per_head")
    block = Experts(experts=128, per_token=8, intermediate=1536, layout="qwen")
    layer = Layer(mixer=attention, feed_forward=block)
    facts = _common(4096, 151936) | {"family": "qwen3_moe", "architecture": "Qwen3MoeForCausalLM"}
    return ModelSpec.model_validate(facts | {"layers": (layer,) * layers, "max_position": 40960})


def phi4_mini() -> ModelSpec:
    """Phi-4-mini: fused projections, a long rope over three quarters of each head."""
    attention = Attention(kind="full", heads=24, kv_heads=8, head_dim=128, rotary_dim=96, fused_qkv=True)
    layer = Layer(mixer=attention, feed_forward=Dense(intermediate=8192, fused_gate_up=True))
    rope = Rope(
        theta=1e4,
        kind="longrope",
        factor=32.0,
        original_max_position=4096,
        short_factors=(1.0,) * 48,
        long_factors=(8.0,) * 48,
    )
    facts = _common(3072, 200064) | {"family": "phi3", "architecture": "Phi3ForCausalLM", "tied_embeddings": True}
    return ModelSpec.model_validate(facts | {"layers": (layer,) * 32, "rope": rope})


def gemma3_27b() -> ModelSpec:
    """Gemma 3 27B's text part: five layers with a window of 1024 to one without."""
    block = Dense(intermediate=21504)
    full = Attention(kind="full", heads=32, kv_heads=16, head_dim=128, qk_norm="per_head", scale=168**-0.5)
    local = full.model_copy(update={"kind": "sliding", "window": 1024, "rope": Rope(theta=1e4)})
    layers = tuple(
        Layer(mixer=local if (number + 1) % 6 else full, feed_forward=block, post_norms=True) for number in range(62)
    )
    facts = _common(5376, 262208) | {"family": "gemma3", "architecture": "Gemma3ForConditionalGeneration"}
    names = {"prefix": "language_model.model.", "head_name": "language_model.lm_head.weight"}
    form = {"activation": "gelu_tanh", "embedding_scale": 5376**0.5, "unit_offset_norms": True}
    return ModelSpec.model_validate(facts | names | form | {"layers": layers, "tied_embeddings": True})


def maverick() -> ModelSpec:
    """Llama 4 Maverick's text part: experts in every other layer, three chunked layers to a full one."""
    wide = Dense(intermediate=16384)
    routed = Experts(experts=128, per_token=1, intermediate=8192, shared_intermediate=8192, layout="llama4")
    chunked = Attention(kind="chunked", heads=40, kv_heads=8, head_dim=128, window=8192, qk_norm="none")
    full = Attention(kind="full", heads=40, kv_heads=8, head_dim=128, rotary=False)
    layers = tuple(
        Layer(mixer=full if number % 4 == 3 else chunked, feed_forward=routed if number % 2 else wide)
        for number in range(48)
    )
    facts = _common(5120, 202048) | {"family": "llama4", "architecture": "Llama4ForConditionalGeneration"}
    names = {"prefix": "language_model.model.", "head_name": "language_model.lm_head.weight"}
    return ModelSpec.model_validate(facts | names | {"layers": layers, "max_position": 1048576})


def deepseek_v3(layers: int = 61) -> ModelSpec:
    """DeepSeek-V3, or fewer layers of it: latent attention, three dense layers, 256 experts in eight groups."""
    latent = Latent(query_rank=1536, kv_rank=512, nope_dim=128, rope_dim=64, value_dim=128)
    attention = Attention(kind="full", heads=128, kv_heads=1, head_dim=192, latent=latent)
    routing = Routing(scoring="sigmoid", choice_bias=True, groups=8, groups_per_token=4, scale=2.5)
    block = Experts(
        experts=256, per_token=8, intermediate=2048, shared_intermediate=2048, layout="deepseek", routing=routing
    )
    dense = Layer(mixer=attention, feed_forward=Dense(intermediate=18432))
    routed = Layer(mixer=attention, feed_forward=block)
    facts = _common(7168, 129280) | {"family": "deepseek_v3", "architecture": "DeepseekV3ForCausalLM"}
    rope = Rope(theta=1e4, kind="yarn", factor=40.0, original_max_position=4096, magnitude=1.0, interleaved=True)
    stack = ((dense,) * 3 + (routed,) * max(layers - 3, 0))[:layers]
    return ModelSpec.model_validate(facts | {"layers": stack, "rope": rope, "max_position": 163840})


def gpt_oss_120b(layers: int = 36) -> ModelSpec:
    """gpt-oss-120b, or fewer layers of it: a window of 128 on every other layer, experts with biases."""
    full = Attention(kind="full", heads=64, kv_heads=8, head_dim=64, qkv_bias=True, out_bias=True, sinks=True)
    local = full.model_copy(update={"kind": "sliding", "window": 128})
    block = Experts(
        experts=128, per_token=4, intermediate=2880, layout="gpt_oss", bias=True, routing=Routing(bias=True)
    )
    stack = tuple(Layer(mixer=full if number % 2 else local, feed_forward=block) for number in range(layers))
    rope = Rope(theta=1.5e5, kind="yarn", factor=32.0, original_max_position=4096, truncate=False)
    facts = _common(2880, 201088) | {"family": "gpt_oss", "architecture": "GptOssForCausalLM"}
    form = {"activation": "clipped_swiglu", "activation_limit": 7.0}
    return ModelSpec.model_validate(facts | form | {"layers": stack, "rope": rope})


def hardware(
    gpus: int = 1, memory_gib: float = 80.0, capability: int = 90, nodes: int = 1, nvlink: int | None = None
) -> Hardware:
    """Make a machine; one NVLink domain spans a node unless told otherwise."""
    gpu = Gpu(
        name="Test GPU",
        architecture="hopper",
        compute_capability=capability,
        memory_bytes=figure(memory_gib * GIB),
        memory_bandwidth=figure(3.35e12),
        dense_flops={"bf16": figure(1e15)},
    )
    domain = gpus if nvlink is None else nvlink
    return Hardware(name="test", summary="", gpu=gpu, gpus_per_node=gpus, nodes=nodes, nvlink_domain=domain)


def rehearsal(memory_gib: float = 8.0) -> Hardware:
    """Make the CPU that stands in for a GPU."""
    machine = hardware(1, memory_gib, 0)
    cpu = machine.gpu.model_copy(update={"kind": "cpu", "architecture": "cpu", "name": "Test CPU"})
    return machine.model_copy(update={"name": "cpu-rehearsal", "gpu": cpu})


def figure(value: float) -> Figure:
    """Make a figure."""
    return Figure(value=value, source="test")


def profile(changes: Mapping[str, Any] | None = None) -> LoadedProfile:
    """Make a loaded profile for release 1.2.1; ``changes`` are dotted keys, counted as set by it."""
    document: dict[str, Any] = {
        "schema_version": 1, "name": "test", "hardware": "test", "trtllm_version": "1.2.1",
    }  # fmt: skip
    for key, value in (changes or {}).items():
        _put(document, key.split("."), value)
    origins = dict.fromkeys(changes or {}, "test.yaml:1")
    return LoadedProfile(profile=DeployProfile.model_validate(document), origins=origins)


def _put(document: dict[str, Any], path: list[str], value: Any) -> None:
    for name in path[:-1]:
        document = document.setdefault(name, {})
    document[path[-1]] = value


def _common(hidden: int, vocab: int) -> dict[str, Any]:
    return {
        "family": "llama",
        "architecture": "LlamaForCausalLM",
        "hidden": hidden,
        "vocab": vocab,
        "max_position": 131072,
        "norm_epsilon": 1e-5,
        "tied_embeddings": False,
        "rope": Rope(theta=500000.0),
        "dtype": "bfloat16",
    }
