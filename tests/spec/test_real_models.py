"""The recorded files of real models: which are read, and whether their parameters are the published ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from trtllm_kit.errors import UnknownArchitecture
from trtllm_kit.spec.hf_config import FAMILIES, read_model_spec
from trtllm_kit.spec.load import load_model
from trtllm_kit.spec.model import ModelSpec
from trtllm_kit.spec.tensors import active_parameters, outer_tensors, parameters, prediction_tensors


class Published(NamedTuple):
    """What is said of a model, in thousand millions of parameters."""

    total: float
    active: float
    source: str
    within: float = 0.006
    """What the rounding of the published figures allows, in thousand millions."""
    embedding: bool = True
    """Whether the active ones include the embedding."""


FILES = "the sizes of the model's 16-bit files on the hub; active ones from the experts of each token"
DEEPSEEK = "DeepSeek-V3 README: 671B total, 37B activated"
GPT_OSS = "gpt-oss model card, arXiv 2508.10925, table 1: the unembedding counts as active, the embedding does not"
KIMI = "arXiv 2507.20534, table 2: 32.6B activated; README: 1T, of which the files have 1.026T"
PUBLISHED = {
    "meta-llama--Meta-Llama-3.1-405B": Published(405.85, 405.85, FILES),
    "meta-llama--Meta-Llama-3.1-70B": Published(70.55, 70.55, FILES),
    "nvidia--Llama-3.1-70B-Instruct-FP8": Published(70.55, 70.55, FILES),
    "meta-llama--Meta-Llama-3.1-8B": Published(8.03, 8.03, FILES),
    "mistralai--Mixtral-8x7B-v0.1": Published(46.70, 12.88, "mistral.ai/news/mixtral-of-experts: 46.7B, 12.9B"),
    "mistralai--Mixtral-8x22B-v0.1": Published(140.62, 39.15, "mistral.ai/news/mixtral-8x22b: 141B, 39B"),
    "Qwen--Qwen3-0.6B": Published(0.596, 0.596, FILES),
    "Qwen--Qwen3-1.7B": Published(1.72, 1.72, FILES),
    "Qwen--Qwen3-8B": Published(8.19, 8.19, FILES),
    "Qwen--Qwen3-32B": Published(32.76, 32.76, FILES),
    "Qwen--Qwen3-32B-FP8": Published(32.76, 32.76, FILES),
    "Qwen--Qwen3-32B-FP8-Static-PerTensor": Published(32.76, 32.76, FILES),
    "Qwen--Qwen3-30B-A3B": Published(30.53, 3.35, FILES),
    "Qwen--Qwen3-30B-A3B-FP8": Published(30.53, 3.35, FILES),
    "Qwen--Qwen3-235B-A22B": Published(235.09, 22.19, FILES),
    "Qwen--Qwen3-235B-A22B-FP8": Published(235.09, 22.19, FILES),
    "nvidia--Qwen3-235B-A22B-NVFP4": Published(235.09, 22.19, FILES),
    "meta-llama--Llama-4-Maverick-17B-128E-Instruct": Published(
        400.71, 17.18, "Llama 4 model card: 400B, 17B activated; this is its text part"
    ),
    "deepseek-ai--DeepSeek-V3": Published(671, 37, DEEPSEEK, within=0.6),
    "deepseek-ai--DeepSeek-R1": Published(671, 37, DEEPSEEK, within=0.6),
    "nvidia--DeepSeek-V3.1-NVFP4": Published(671, 37, DEEPSEEK, within=0.6),
    "moonshotai--Kimi-K2-Instruct": Published(1026, 32.6, KIMI, within=0.5),
    "openai--gpt-oss-20b": Published(20.91, 3.61, GPT_OSS, embedding=False),
    "openai--gpt-oss-120b": Published(116.83, 5.13, GPT_OSS, embedding=False),
}

REFUSED = {
    "DeciLMForCausalLM": 1,
    "DeepseekV32ForCausalLM": 2,
    "DeepseekV4ForCausalLM": 5,
    "Gemma4ForConditionalGeneration": 1,
    "GlmMoeDsaForCausalLM": 8,
    "KimiK25ForConditionalGeneration": 1,
    "KimiK3ForConditionalGeneration": 1,
    "MiMoForCausalLM": 1,
    "MiMoV2FlashForCausalLM": 1,
    "MiniMaxM2ForCausalLM": 2,
    "MiniMaxM3SparseForConditionalGeneration": 1,
    "NemotronHForCausalLM": 6,
    "Qwen3VLForConditionalGeneration": 4,
    "Qwen3VLMoeForConditionalGeneration": 1,
    "Qwen3_5ForConditionalGeneration": 1,
    "Qwen3_5MoeForConditionalGeneration": 4,
    "Step3p7FlashForCausalLM": 1,
}
"""Architectures of recorded files that the kit does not read, with how many files there are of each."""


def documents(shared: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield name and document of every recorded ``config.json``."""
    for file in sorted((shared / "models").glob("*_config.json")):
        if not file.name.endswith("_hf_quant_config.json"):
            yield file.name.removesuffix("_config.json"), json.loads(file.read_text())


def spec_of(shared: Path, name: str) -> ModelSpec:
    """Read one recorded model."""
    return read_model_spec(dict(documents(shared))[name], name)


@pytest.mark.parametrize("name", PUBLISHED)
def test_counts_are_the_published_ones(shared: Path, name: str) -> None:
    """All and active parameters come out as published, to the last digit that is given."""
    known, spec = PUBLISHED[name], spec_of(shared, name)
    embedding = 0 if known.embedding else next(outer_tensors(spec)).elements
    total, active = parameters(spec) / 1e9, (active_parameters(spec) - embedding) / 1e9

    assert pytest.approx(known.total, abs=known.within, rel=0) == total
    assert pytest.approx(known.active, abs=known.within, rel=0) == active


def test_the_prediction_layer_of_deepseek_is_what_its_files_hold_beyond_the_model(shared: Path) -> None:
    """README_WEIGHTS: 11.5B parameters of its own, beside 0.9B each of the shared embedding and head: 685B in all."""
    spec = spec_of(shared, "deepseek-ai--DeepSeek-V3")
    behind = sum(fact.elements for fact in prediction_tensors(spec)) / 1e9
    shared_ends = 2 * spec.vocab * spec.hidden / 1e9

    assert pytest.approx(11.5, rel=0.01) == behind - shared_ends
    assert pytest.approx(685, abs=0.6) == parameters(spec) / 1e9 + behind


def test_every_file_of_a_known_architecture_is_read(shared: Path) -> None:
    """Each one that is read has a published count above, and no key of it is a false alarm, quantised or not."""
    known = [name for name, document in documents(shared) if document["architectures"][0] in FAMILIES]
    for name in known:
        spec_of(shared, name)

    assert sorted(PUBLISHED) == sorted(known)


def test_modelopt_exports_are_seen_as_quantised(shared: Path, tmp_path: Path) -> None:
    """Every recorded model with a ``hf_quant_config.json`` is quantised, also where ``config.json`` does not say so."""
    silent = []
    for name, document in documents(shared):
        beside = shared / "models" / f"{name}_hf_quant_config.json"
        if not beside.exists() or document["architectures"][0] not in FAMILIES:
            continue
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(document))
        (folder / "hf_quant_config.json").write_bytes(beside.read_bytes())
        assert load_model(folder).quantized_as is not None, name
        silent += [] if "quantization_config" in document else [name]

    assert "nvidia--DeepSeek-V3.1-NVFP4" in silent


def test_every_other_file_is_refused_for_its_architecture(shared: Path) -> None:
    """What is not read today is named here, so that an architecture is neither lost nor gained unseen."""
    refused: dict[str, int] = {}
    for name, document in documents(shared):
        architecture = document["architectures"][0]
        if architecture not in FAMILIES:
            with pytest.raises(UnknownArchitecture):
                read_model_spec(document, name)
            refused[architecture] = refused.get(architecture, 0) + 1

    assert REFUSED == refused
