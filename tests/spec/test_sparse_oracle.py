"""Sparse and compressed attention against transformers: every tensor that its classes write is known here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from trtllm_kit.spec.tensors import parameters  # noqa: E402

from .test_oracle import DEEPSEEK, SHAPE, expected, written  # noqa: E402
from .test_real_models import spec_of  # noqa: E402

pytestmark = pytest.mark.oracle

INDEXER = {"index_n_heads": 2, "index_head_dim": 8, "index_topk": 16}
GLM = DEEPSEEK | INDEXER | {"n_group": 1, "topk_group": 1}
SHARED = {
    "indexer_types": ["full", "full", "shared", "full"],
    "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"],
    "index_topk_freq": 2,
}
V4: dict[str, Any] = INDEXER | {
    "intermediate_size": 16,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "q_lora_rank": 12,
    "qk_rope_head_dim": 4,
    "o_groups": 2,
    "o_lora_rank": 6,
    "moe_intermediate_size": 16,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "compress_ratios": [0, 4, 128, 4, 0],
    "num_nextn_predict_layers": 1,
    "sliding_window": 16,
    "num_hash_layers": 1,
    "hc_mult": 2,
    "rope_parameters": {
        "type": "yarn",
        "factor": 4,
        "original_max_position_embeddings": 32,
        "beta_fast": 32,
        "beta_slow": 1,
    },
}


@pytest.mark.parametrize(
    ("family", "changes"), [("DeepseekV32", DEEPSEEK | INDEXER), ("GlmMoeDsa", GLM), ("GlmMoeDsa", GLM | SHARED)]
)
def test_names_and_shapes_with_an_indexer(tmp_path: Path, family: str, changes: dict[str, Any]) -> None:
    """Every tensor of a saved model is expected under its name and in its shape, and no other."""
    config = getattr(transformers, f"{family}Config")(**SHAPE | changes)
    model = getattr(transformers, f"{family}ForCausalLM")(config).to(torch.bfloat16)

    assert written(tmp_path, model) == expected(tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        "deepseek-ai--DeepSeek-V3.2",
        "deepseek-ai--DeepSeek-V4-Pro",
        "nvidia--DeepSeek-V4-Flash-NVFP4",
        "zai-org--GLM-5",
        "zai-org--GLM-5.2",
    ],
)
def test_the_parameters_of_recorded_files(shared: Path, name: str) -> None:
    """The class that transformers builds of a file, on no device, has as many parameters and buffers as are counted."""
    config = transformers.AutoConfig.from_pretrained(shared / "models" / f"{name}_config.json")
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)

    assert sum(tensor.numel() for tensor in model.state_dict().values()) == parameters(spec_of(shared, name))


def test_the_text_part_of_minimax_m3(shared: Path) -> None:
    """Of MiniMax-M3's class, what is neither vision tower nor projector has as many parameters as are counted."""
    name = "nvidia--MiniMax-M3-NVFP4"
    config = transformers.AutoConfig.from_pretrained(shared / "models" / f"{name}_config.json")
    with torch.device("meta"):
        model = transformers.AutoModelForImageTextToText.from_config(config)
    beside = ("model.vision_tower.", "model.multi_modal_projector.")
    text = (tensor.numel() for key, tensor in model.state_dict().items() if not key.startswith(beside))

    assert sum(text) == parameters(spec_of(shared, name))


def test_shapes_of_compressed_attention(tmp_path: Path) -> None:
    """DeepSeek-V4's files have names of their own; the shapes of all tensors are those of transformers' class."""
    config = transformers.DeepseekV4Config(**SHAPE | V4)
    model = transformers.DeepseekV4ForCausalLM(config)
    theirs = sorted(tuple(tensor.shape) for tensor in model.state_dict().values() if tensor.ndim < 3)
    document = SHAPE | V4 | {"architectures": ["DeepseekV4ForCausalLM"], "torch_dtype": "bfloat16"}
    (tmp_path / "config.json").write_text(json.dumps(document))
    ours = sorted(shape for name, shape in expected(tmp_path).items() if ".experts." not in name)

    assert theirs == ours
