"""Folders made of rank files, read by the loader of Hugging Face transformers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.checkpoint.foreign_ranks import copied, described
from tests.checkpoint.ranks import RankFolder, rank_plan
from tests.support.tiny_model import write_tiny_model
from trtllm_kit.checkpoint.convert import convert
from trtllm_kit.checkpoint.from_ranks import migrate
from trtllm_kit.checkpoint.load import open_checkpoint
from trtllm_kit.progress import Silent

pytestmark = pytest.mark.oracle
torch = pytest.importorskip("torch", reason="the oracle needs torch and transformers")
transformers = pytest.importorskip("transformers", reason="the oracle needs torch and transformers")


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3", "mixtral", "qwen3_moe"])
def test_transformers_loads_the_folder_and_gives_the_same_logits(tmp_path: Path, family: str) -> None:
    """No tensor is missing or left over, and logits are those of the model that was converted, bit by bit."""
    source = write_tiny_model(tmp_path / "source", family, seed=3, vocab_size=269)
    convert(source, rank_plan(source, 4), tmp_path / "ranks", Silent())
    migrate(copied(tmp_path / "ranks", tmp_path / "theirs"), tmp_path / "out", Silent())
    tokens = torch.tensor(np.random.default_rng(1).integers(0, 269, size=(1, 24)))
    logits = []
    for folder in (source, tmp_path / "out"):
        model, told = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
        )
        assert [set(), set()] == [set(told["missing_keys"]), set(told["unexpected_keys"])]
        with torch.no_grad():
            logits.append(model.eval()(tokens).logits.numpy())
    assert np.array_equal(*logits)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert "the hen" == tokenizer.decode(tokenizer("the hen").input_ids)


@pytest.mark.parametrize(
    ("family", "split", "weights"),
    [
        ("llama", (2, 2), "fp8"),
        ("qwen2", (2, 1), "nvfp4"),
        ("llama", (2, 1), "int4_awq"),
        pytest.param("llama", (4, 1), "bf16", marks=pytest.mark.slow),
        pytest.param("qwen3_moe", (2, 1), "fp8", marks=pytest.mark.slow),
        pytest.param("llama", (1, 1), "fp8_rowwise", marks=pytest.mark.slow),
        pytest.param("qwen2", (2, 1), "w4a8_awq", marks=pytest.mark.slow),
        pytest.param("llama", (1, 2), "int8_sq", marks=pytest.mark.slow),
    ],
)
def test_what_modelopt_exported_for_engines_comes_back(
    tmp_path: Path, family: str, split: tuple[int, int], weights: str
) -> None:
    """Its own rank files: every weight has the values that an independent reader of the ranks has."""
    exporter = pytest.importorskip("tests.checkpoint.test_rank_oracle", reason="the oracle needs modelopt")
    wide = exporter.WIDE if weights in exporter.SEARCHED else {}
    source = write_tiny_model(tmp_path / "source", family, seed=5, **exporter.SHAPE, **wide)
    exporter.modelopt_export(source, tmp_path / "theirs", exporter.DECODERS[family], split, weights)
    made = migrate(tmp_path / "theirs", tmp_path / "out", Silent(), source)
    assert weights == made.report["weights"]
    described(tmp_path / "theirs", qk_layernorm=family.startswith("qwen3"), mlp_bias=False)  # for the test's own reader
    opened, wanted = open_checkpoint(tmp_path / "out"), RankFolder(tmp_path / "theirs").reassembled()
    for name, values in wanted.items():
        if name == "lm_head.weight" and opened.model.tied_embeddings:
            continue
        factor = opened.weights.input_factor(name.removesuffix(".weight")) if name.endswith("proj.weight") else None
        found = opened.weights.tensor(name)
        kept = values[: len(found)]
        if factor is None:
            assert np.array_equal(kept, found), name
        else:  # a product of three numbers, rounded twice in another order
            np.testing.assert_allclose(kept, found * factor, rtol=2**-22, atol=0, err_msg=name)
