"""What each family's reader makes of its own keys."""

from __future__ import annotations

from typing import Any

import pytest

from trtllm_kit.errors import ModelConfigError
from trtllm_kit.spec.hf_config import read_model_spec
from trtllm_kit.spec.model import Attention, Dense, Experts, ModelSpec, QueryTemperature, Routing

from .configs import config, read, without


def windows(spec: ModelSpec) -> list[int | None]:
    """Return the window of each layer."""
    return [layer.attention.window for layer in spec.layers]


def experts_on(spec: ModelSpec) -> list[int]:
    """Return the numbers of the layers with experts."""
    return [number for number, layer in enumerate(spec.layers) if isinstance(layer.feed_forward, Experts)]


def attention(spec: ModelSpec, layer: int = 0) -> Attention:
    """Return the attention of a layer."""
    return spec.layers[layer].attention


@pytest.mark.parametrize(
    ("family", "changes", "qkv", "out"),
    [
        ("llama", {}, False, False),
        ("llama", {"attention_bias": True}, True, True),
        ("mistral", {}, False, False),
        ("mixtral", {}, False, False),
        ("qwen2", {}, True, False),
        ("qwen2", {"attention_bias": True}, True, False),
        ("qwen3", {}, False, False),
        ("qwen3", {"attention_bias": True}, True, True),
        ("qwen3_moe", {"attention_bias": True}, True, True),
        ("llama4", {"attention_bias": True}, True, True),
    ],
)
def test_attention_biases(family: str, changes: dict[str, Any], qkv: bool, out: bool) -> None:
    """Qwen2 has q, k and v biases without a key; the others only with ``attention_bias``, and then on o too."""
    read_attention = attention(read(family, **changes))

    assert (qkv, out) == (read_attention.qkv_bias, read_attention.out_bias)


@pytest.mark.parametrize("bias", [False, True])
def test_llama_has_feed_forward_biases_when_stated(bias: bool) -> None:
    """``mlp_bias`` is Llama's."""
    assert Dense(intermediate=48, bias=bias) == read("llama", mlp_bias=bias).layers[0].feed_forward


@pytest.mark.parametrize(
    ("family", "changes", "head_dim"),
    [
        ("llama", {}, 8),
        ("llama", {"head_dim": None}, 8),
        ("llama", {"head_dim": 6}, 6),
        ("llama", {"hidden_size": 30, "head_dim": 6}, 6),
        ("qwen3", {"head_dim": None}, 128),
        ("qwen3", {"head_dim": 16}, 16),
        ("qwen3_moe", {"head_dim": None}, 8),
    ],
)
def test_width_of_a_head(family: str, changes: dict[str, Any], head_dim: int) -> None:
    """``head_dim`` wins; else Qwen3 has 128 and the others hidden size over heads."""
    assert head_dim == attention(read(family, **changes)).head_dim


def test_old_llamas_have_as_many_kv_heads_as_heads() -> None:
    """A Llama without ``num_key_value_heads`` is multi-head."""
    assert 4 == attention(read_model_spec(without("llama", "num_key_value_heads"), "c")).kv_heads


@pytest.mark.parametrize(
    ("family", "changes", "expected"),
    [
        ("llama", {}, [None] * 4),
        ("llama", {"layer_types": ["full_attention"] * 4, "sliding_window": None}, [None] * 4),
        ("mistral", {}, [None] * 4),
        ("mistral", {"sliding_window": 64}, [64] * 4),
        ("mistral", {"sliding_window": 64, "layer_types": ["sliding_attention"] * 4}, [64] * 4),
        ("mixtral", {"sliding_window": 64}, [64] * 4),
        ("qwen2", {"sliding_window": 64, "max_window_layers": 2}, [None] * 4),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 3}, [None, None, None, 64]),
        ("qwen3", {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 0}, [64] * 4),
        (
            "qwen3",
            {
                "use_sliding_window": True,
                "sliding_window": 64,
                "layer_types": ["sliding_attention", "full_attention"] * 2,
            },
            [64, None, 64, None],
        ),
        ("qwen3_moe", {"use_sliding_window": False, "sliding_window": 64, "max_window_layers": 1}, [None] * 4),
    ],
)
def test_sliding_windows(family: str, changes: dict[str, Any], expected: list[int | None]) -> None:
    """Mistral slides everywhere, Qwen from ``max_window_layers`` on or where ``layer_types`` says, others never."""
    spec = read(family, **changes)

    assert expected == windows(spec)
    assert ["full" if window is None else "sliding" for window in expected] == [
        layer.attention.kind for layer in spec.layers
    ]


def test_mistral_without_the_key_slides_over_4096() -> None:
    """An absent ``sliding_window`` is ``MistralConfig``'s 4096; Mixtral's default is none."""
    assert [4096] * 4 == windows(read_model_spec(without("mistral", "sliding_window"), "c"))
    assert [None] * 4 == windows(read("mixtral"))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [0, 1, 2, 3]),
        ({"decoder_sparse_step": 2}, [1, 3]),
        ({"mlp_only_layers": [1]}, [0, 2, 3]),
        ({"decoder_sparse_step": 2, "mlp_only_layers": [3]}, [1]),
    ],
)
def test_which_qwen3_layers_have_experts(changes: dict[str, Any], expected: list[int]) -> None:
    """Every ``decoder_sparse_step``-th layer that ``mlp_only_layers`` leaves; the rest are dense and wide."""
    spec = read("qwen3_moe", **changes)

    assert expected == experts_on(spec)
    assert all(Dense(intermediate=48) == spec.layers[number].feed_forward for number in {0, 1, 2, 3} - set(expected))


@pytest.mark.parametrize(("key", "value"), [("norm_topk_prob", True), ("norm_topk_prob", False)])
def test_qwen3_experts(key: str, value: bool) -> None:
    """Counts, width and the normalisation of the routing weights."""
    assert (
        Experts(experts=4, per_token=2, intermediate=16, layout="qwen", routing=Routing(normalise=value))
        == read("qwen3_moe", **{key: value}).layers[0].feed_forward
    )


def test_both_spellings_of_the_expert_count() -> None:
    """Transformers 5 writes ``num_local_experts`` where Qwen's own files have ``num_experts``."""
    document = without("qwen3_moe", "num_experts") | {"num_local_experts": 4}

    assert read("qwen3_moe") == read_model_spec(document, "c")


def test_mixtral_experts() -> None:
    """Mixtral's experts are as wide as ``intermediate_size`` and always normalised."""
    assert (
        Experts(experts=4, per_token=2, intermediate=48, layout="mixtral", routing=Routing(normalise=True))
        == read("mixtral").layers[0].feed_forward
    )


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [0, 1, 2, 3]),
        ({"interleave_moe_layer_step": 2}, [1, 3]),
        ({"moe_layers": [0]}, [0]),
        ({"moe_layers": [], "interleave_moe_layer_step": 1}, []),
    ],
)
def test_which_llama4_layers_have_experts(changes: dict[str, Any], expected: list[int]) -> None:
    """``moe_layers`` wins over ``interleave_moe_layer_step``; dense layers have ``intermediate_size_mlp``."""
    spec = read("llama4", **changes)

    assert expected == experts_on(spec)
    assert all(Dense(intermediate=40) == spec.layers[number].feed_forward for number in {0, 1, 2, 3} - set(expected))


def test_llama4_experts_have_a_shared_one() -> None:
    """The shared expert is as wide as a routed one, and routing weights are not normalised."""
    assert (
        Experts(
            experts=4,
            per_token=1,
            intermediate=48,
            shared_intermediate=48,
            layout="llama4",
            routing=Routing(normalise=False),
        )
        == read("llama4").layers[0].feed_forward
    )


def test_llama4_attention_by_layer() -> None:
    """Three chunked layers with rope and l2 norm, then a full one without rope, whose queries grow."""
    with_rope, without = attention(read("llama4"), 0), attention(read("llama4"), 3)

    assert [with_rope] * 3 + [without] == [layer.attention for layer in read("llama4").layers]
    assert ("chunked", 8192, True, "l2", None) == (
        with_rope.kind,
        with_rope.window,
        with_rope.rotary,
        with_rope.qk_norm,
        with_rope.temperature,
    )
    assert ("full", None, False, "none", QueryTemperature(floor=8192, scale=0.1)) == (
        without.kind,
        without.window,
        without.rotary,
        without.qk_norm,
        without.temperature,
    )


@pytest.mark.parametrize(
    ("changes", "rotary"),
    [
        ({"no_rope_layer_interval": 2}, [True, False, True, False]),
        ({"no_rope_layers": [0, 1, 1, 0]}, [False, True, True, False]),
        ({"no_rope_layers": [1, 1, 1, 1, 0]}, [True, True, True, True]),
        ({"no_rope_layers": []}, [True, True, True, False]),
    ],
)
def test_llama4_layers_without_rope(changes: dict[str, Any], rotary: list[bool]) -> None:
    """1 in ``no_rope_layers`` means rope; an empty list leaves every ``no_rope_layer_interval``-th without."""
    assert rotary == [layer.attention.rotary for layer in read("llama4", **changes).layers]


def test_llama4_layer_types_decide_the_chunks() -> None:
    """``layer_types`` says which layers are chunked, apart from rope."""
    spec = read("llama4", layer_types=["full_attention"] * 3 + ["chunked_attention"], attention_chunk_size=16)

    assert [None, None, None, 16] == windows(spec)
    assert [True, True, True, False] == [layer.attention.rotary for layer in spec.layers]


@pytest.mark.parametrize(
    ("changes", "temperature"),
    [
        ({"attn_temperature_tuning": False}, None),
        ({"attn_temperature_tuning": 0}, None),
        ({"attn_temperature_tuning": 4, "floor_scale": 16}, QueryTemperature(floor=16, scale=0.1)),
        ({"attn_temperature_tuning": True, "attn_scale": 0.2}, QueryTemperature(floor=8192, scale=0.2)),
    ],
)
def test_llama4_query_temperature(changes: dict[str, Any], temperature: QueryTemperature | None) -> None:
    """The switch may be the number of early files; ``floor_scale`` and ``attn_scale`` shape it."""
    assert temperature == attention(read("llama4", **changes), 3).temperature


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("qwen2", {"attention_bias": False}, "Qwen2 always has biases"),
        ("qwen3_moe", {"use_sliding_window": True}, "use_sliding_window is true"),
        ("qwen2", {"use_sliding_window": True, "max_window_layers": 1}, "sliding_window is missing"),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 8}, "max_window_layers is missing"),
        ("qwen2", {"layer_types": ["sliding_attention"] * 4}, "use_sliding_window is off"),
        ("qwen2", {"layer_types": ["full_attention"]}, "one entry for each of the 4 layers"),
        ("qwen2", {"layer_types": ["linear_attention"] * 4}, "one of full_attention, sliding_attention"),
        ("llama", {"layer_types": ["sliding_attention"] * 4}, "a list of full_attention"),
        ("llama", {"sliding_window": 8}, "sliding_window is 8"),
        ("mistral", {"layer_types": ["sliding_attention"] * 4}, "a list of full_attention"),
        ("mistral", {"sliding_window": 0}, "sliding_window is 0"),
        ("mistral", {"attention_bias": True}, "attention_bias is true"),
        ("qwen3_moe", {"mlp_only_layers": [4]}, "layer numbers below 4"),
        ("qwen3_moe", {"mlp_only_layers": "none"}, "a list of whole numbers"),
        ("llama4", {"moe_layers": [9]}, "layer numbers below 4"),
        ("llama4", {"no_rope_layers": [1]}, "one entry for each of the 4 layers"),
        ("llama4", {"attention_chunk_size": None}, "since some layers are chunked"),
        ("llama4", {"attn_temperature_tuning": "on"}, "attn_temperature_tuning is"),
        ("llama4", {"intermediate_size_mlp": None, "interleave_moe_layer_step": 2}, "intermediate_size_mlp is null"),
    ],
)
def test_contradictions_are_refused(family: str, changes: dict[str, Any], message: str) -> None:
    """A key that its family cannot honour, or that contradicts another, is an error by name."""
    with pytest.raises(ModelConfigError, match=message) as caught:
        read_model_spec(config(family, **changes), "c")

    assert () == caught.value.problems
