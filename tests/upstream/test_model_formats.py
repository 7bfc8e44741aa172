"""Formats by architecture, against the recorded matrix of models."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from trtllm_kit.upstream.model_formats import listed_formats
from trtllm_kit.upstream.precision import Part

ROWS = {
    "DeepseekV3ForCausalLM": ("DeepSeek-R1",),
    "GptOssForCausalLM": ("GPT-OSS",),
    "LlamaForCausalLM": ("LLaMA-v2", "LLaMA 3"),
    "Llama4ForConditionalGeneration": ("LLaMA 4",),
    "MixtralForCausalLM": ("Mixtral",),
    "MistralForCausalLM": ("Mistral",),
    "Qwen2ForCausalLM": ("Qwen-2/2.5",),
    "Qwen3ForCausalLM": ("Qwen-3",),
    "Qwen3MoeForCausalLM": ("Qwen-3",),
    "Gemma3ForCausalLM": ("Gemma 3",),
    "Phi3ForCausalLM": ("Phi",),
}
COLUMNS: dict[Part, dict[str, str]] = {
    "weights": {
        "FP8": "fp8", "FP8_BLOCK": "fp8_block", "NVFP4": "nvfp4", "MXFP4": "mxfp4", "FP8_ROWWISE": "fp8_rowwise",
        "W4A8_AWQ": "w4a8_awq", "W4A16_AWQ": "int4_awq",
    },
    "kv_cache": {"FP8_KV": "fp8", "NVFP4_KV": "nvfp4"},
}  # fmt: skip


@pytest.mark.parametrize("architecture", ROWS)
@pytest.mark.parametrize("part", COLUMNS)
def test_the_matrix_of_1_2_1_is_as_recorded(shared: Path, architecture: str, part: Part) -> None:
    """Every format of a line that the kit has a word for, and no other."""
    contract = yaml.safe_load((shared / "contract" / "llmapi-contract.yaml").read_text("utf-8"))
    matrix = contract["quant"]["model_matrix_1_2_1"]
    wanted = {
        COLUMNS[part][column]
        for line in ROWS[architecture]
        for column, held in zip(matrix["columns"], matrix[line], strict=True)
        if held and column in COLUMNS[part]
    }
    found = listed_formats(architecture, part, "1.2.1")
    assert found is not None
    assert wanted == set(found.formats)
    assert "read" == found.certainty


def test_a_line_of_another_release_is_only_near() -> None:
    """The matrix was read in 1.2.1; engines have none of it."""
    found = listed_formats("DeepseekV3ForCausalLM", "weights", "main")
    assert found is not None
    assert ("near", ("1.2.1",)) == (found.certainty, found.read_in)
    assert listed_formats("LlamaForCausalLM", "weights", "0.21.0") is None
    assert listed_formats("Gemma2ForCausalLM", "weights", "1.2.1") is None
