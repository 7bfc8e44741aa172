"""Which tensors leave 16 bit."""

from __future__ import annotations

import pytest

from tests.support.specs import llama_8b, maverick, qwen3_moe
from trtllm_kit.plan.quantization import is_excluded, quantised_tensors
from trtllm_kit.spec.tensors import Role, TensorFact


def suffixes(names: frozenset[str]) -> set[str]:
    """Cut what every tensor of a layer begins with."""
    return {name.partition(".layers.0.")[2] for name in names}


def test_the_seven_linears_of_a_dense_layer_are_quantised() -> None:
    """Norms are not."""
    wanted = {f"self_attn.{name}_proj.weight" for name in "qkvo"}
    wanted |= {f"mlp.{name}_proj.weight" for name in ("gate", "up", "down")}
    assert wanted == suffixes(quantised_tensors(llama_8b(), 0, ("lm_head",)))


def test_what_is_fused_with_an_excluded_tensor_stays_with_it() -> None:
    """The runtime fuses q, k and v: excluding one keeps all three in 16 bit."""
    found = suffixes(quantised_tensors(llama_8b(), 0, ("*.q_proj",)))
    assert {"self_attn.o_proj.weight", "mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight"} == found


def test_routers_stay_in_16_bit_and_experts_do_not() -> None:
    """A router decides with small differences; its experts are plain linears."""
    found = suffixes(quantised_tensors(qwen3_moe(1), 0, ()))
    assert "mlp.experts.{expert}.down_proj.weight" in found
    assert "mlp.gate.weight" not in found


def test_fused_experts_are_counted_as_quantised() -> None:
    """Llama 4's two expert tensors hold linears too."""
    found = quantised_tensors(maverick(), 1, ("*lm_head",))
    assert "language_model.model.layers.1.feed_forward.experts.gate_up_proj" in found
    assert "language_model.model.layers.1.feed_forward.router.weight" not in found


@pytest.mark.parametrize(
    ("tensor", "pattern", "excluded"),
    [
        ("lm_head.weight", "lm_head", True),
        ("model.layers.3.mlp.up_proj.weight", "model.layers.3.*", True),
        ("model.layers.31.mlp.up_proj.weight", "model.layers.3.*", False),
        ("model.layers.3.mlp.up_proj.weight", "up_proj", False),
        ("model.layers.3.mlp.up_proj.weight", "*up_proj", True),
        ("model.layers.3.mlp.experts.{expert}.up_proj.weight", "*.experts.7.*", True),
        ("model.layers.3.mlp.experts.{expert}.up_proj.weight", "*.experts.8.*", False),
        ("model.layers.3.mlp.experts.{expert}.up_proj.weight", "*.experts.*", True),
        ("model.layers.3.mlp.experts.{expert}.up_proj.weight", "*.experts.[0-3].*", True),
    ],
)
def test_patterns_match_whole_module_names(tensor: str, pattern: str, excluded: bool) -> None:
    """A star matches anything, no star means the whole name, and each of eight experts has a name of its own."""
    copies = 8 if "{expert}" in tensor else 1
    fact = TensorFact(name=tensor, shape=(4, 4), role=Role.UP, layer=3, copies=copies)
    assert excluded == is_excluded(fact, (pattern,))


def test_naming_one_expert_keeps_all_of_its_layer_in_16_bit() -> None:
    """The runtime holds all experts of a layer in one tensor of one format."""
    kept = quantised_tensors(qwen3_moe(1), 0, ("*.experts.5.up_proj",))
    assert {
        "self_attn.q_proj.weight",
        "self_attn.k_proj.weight",
        "self_attn.v_proj.weight",
        "self_attn.o_proj.weight",
    } == (suffixes(kept))
