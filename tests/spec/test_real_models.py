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
GEMMA = "Gemma 4 model card, as others quote it: 25.2B total, 3.8B active"
MINIMAX = "229B on the hub, 10B active as its README says"
TEXT = "the text part is that of the Qwen3 of this size; the name counts vision too"
NAME = "the name, whose figures are whole; vision apart"
NANO = "NVIDIA's page of Nemotron 3: 31.6B in total, 3.2B active, 3.6B with embeddings"
SUPER = "NVIDIA's model card: 120B, 12B active; 124B on the hub, with the prediction layer"
KIMI = "arXiv 2507.20534, table 2: 32.6B activated; README: 1T, of which the files have 1.026T"
SPARSE = "DeepSeek-V3's 671.03B and 37.55B with 61 indexers of 13.96M each"
V4_PRO = "a reading of all headers: 1598.84B with the prediction layer, 48.86B active; DeepSeek says 1.6T and 49B"
V4_FLASH = "DeepSeek-V4 model card: 284B, 13B activated"
GLM = "NVIDIA's card of GLM-5-NVFP4: 744B in total, 40B activated; the hub counts 754B with the prediction layer"
GLM_SHARED = "as GLM-5, less 57 of 78 indexers; the hub counts 753B with the prediction layer"
KIMI_K3 = "Kimi-K3 model card: 2.8T total, 104B activated"
MINIMAX_M3 = "MiniMax-M3 model card: about 428B with the vision part, about 23B activated"
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
    "deepseek-ai--DeepSeek-V3.2": Published(671.88, 38.40, SPARSE),
    "nvidia--DeepSeek-V3.2-NVFP4": Published(671.88, 38.40, SPARSE),
    "deepseek-ai--DeepSeek-V4-Pro": Published(1573.00, 48.86, V4_PRO, embedding=False),
    "nvidia--DeepSeek-V4-Pro-NVFP4": Published(1573.00, 48.86, V4_PRO, embedding=False),
    "sgl-project--DeepSeek-V4-Pro-FP8": Published(1573.00, 48.86, V4_PRO, embedding=False),
    "nvidia--DeepSeek-V4-Flash-NVFP4": Published(284, 13, V4_FLASH, within=0.6, embedding=False),
    "sgl-project--DeepSeek-V4-Flash-FP8": Published(284, 13, V4_FLASH, within=0.6, embedding=False),
    "zai-org--GLM-5": Published(744, 40, GLM, within=1, embedding=False),
    "nvidia--GLM-5-NVFP4": Published(744, 40, GLM, within=1, embedding=False),
    "nvidia--GLM-5.1-NVFP4": Published(744, 40, GLM, within=1, embedding=False),
    "zai-org--GLM-5.2": Published(743.4, 40, GLM_SHARED, within=1, embedding=False),
    "zai-org--GLM-5.3": Published(743.4, 40, GLM_SHARED, within=1, embedding=False),
    "zai-org--GLM-5.3-FP8": Published(743.4, 40, GLM_SHARED, within=1, embedding=False),
    "nvidia--GLM-5.2-NVFP4": Published(743.4, 40, GLM_SHARED, within=1, embedding=False),
    "nvidia--GLM-5.3-NVFP4": Published(743.4, 40, GLM_SHARED, within=1, embedding=False),
    "nvidia--Kimi-K2.5-NVFP4": Published(1026, 32.6, KIMI, within=0.5),
    "moonshotai--Kimi-K3": Published(2800, 104, KIMI_K3, within=50, embedding=False),
    "nvidia--MiniMax-M3-NVFP4": Published(428, 23, MINIMAX_M3, within=3, embedding=False),
    "openai--gpt-oss-20b": Published(20.91, 3.61, GPT_OSS, embedding=False),
    "openai--gpt-oss-120b": Published(116.83, 5.13, GPT_OSS, embedding=False),
    "Qwen--Qwen3-VL-2B-Instruct": Published(1.72, 1.72, TEXT),
    "Qwen--Qwen3-VL-4B-Instruct": Published(4.02, 4.02, TEXT),
    "Qwen--Qwen3-VL-8B-Instruct": Published(8.19, 8.19, TEXT),
    "Qwen--Qwen3-VL-32B-Thinking": Published(32.76, 32.76, TEXT),
    "Qwen--Qwen3-VL-235B-A22B-Instruct": Published(235.09, 22.19, TEXT),
    "Qwen--Qwen3.5-397B-A17B": Published(397, 17, NAME, within=0.7),
    "nvidia--Qwen3.5-397B-A17B-NVFP4": Published(397, 17, NAME, within=0.7),
    "nvidia--Qwen3.5-122B-A10B-NVFP4": Published(122, 10, NAME, within=0.5),
    "nvidia--Qwen3.6-27B-NVFP4": Published(27, 27, NAME, within=0.5),
    "nvidia--Qwen3.6-35B-A3B-NVFP4": Published(35, 3, NAME, within=0.5, embedding=False),
    "google--gemma-4-26B-A4B": Published(
        25.2, 3.8, "Gemma 4 model card, as others quote it: 25.2B, 3.8B active", within=0.05
    ),
    "nvidia--Llama-3_3-Nemotron-Super-49B-v1": Published(49.87, 49.87, FILES),
    "nvidia--Nemotron-H-56B-Base-8K": Published(56, 56, "arXiv 2504.03624: 56B", within=0.5),
    "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": Published(31.6, 3.2, NANO, within=0.05, embedding=False),
    "nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4": Published(120, 12, SUPER, within=0.7, embedding=False),
    "nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16": Published(550, 55, NAME, within=0.8, embedding=False),
    "nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-FP8": Published(550, 55, NAME, within=0.8, embedding=False),
    "nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-NVFP4": Published(550, 55, NAME, within=0.8, embedding=False),
    "XiaomiMiMo--MiMo-7B-Base": Published(7.62, 7.62, FILES),
    "XiaomiMiMo--MiMo-V2-Flash": Published(309, 15, "README: 309B total, 15B active", within=0.5),
    "nvidia--MiniMax-M2.5-NVFP4": Published(229, 10, MINIMAX, within=0.5, embedding=False),
    "nvidia--MiniMax-M2.7-NVFP4": Published(229, 10, MINIMAX, within=0.5, embedding=False),
    "stepfun-ai--Step-3.7-Flash": Published(196, 11, "Step-3.5-Flash README: 196B total, 11B active", within=0.5),
}

REFUSED: dict[str, int] = {}
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


@pytest.mark.parametrize(
    ("name", "behind"),
    [
        ("XiaomiMiMo--MiMo-7B-Base", 0.211),  # README: 7.83B with its prediction layer
        ("nvidia--Qwen3.6-27B-NVFP4", 0.425),
        ("nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4", 2.942),
        (
            "stepfun-ai--Step-3.7-Flash",
            2.326,
        ),  # three heads of 0.528B; a file of the layers alone has 2.96B, with 96 heads
    ],
)
def test_prediction_layers_of_other_families(shared: Path, name: str, behind: float) -> None:
    """A MiMo predicts with a layer like its own, Qwen3.5 with one that attends, Nemotron with two, Step with heads.

    Counted by hand from the widths: of Qwen 2 x 5120² to join, attention 5120 x (2 x 6144 + 2 x 1024 + 6144), dense
    3 x 5120 x 17408.
    """
    assert (
        pytest.approx(behind, abs=0.001)
        == sum(fact.elements for fact in prediction_tensors(spec_of(shared, name))) / 1e9
    )


@pytest.mark.parametrize(
    ("name", "total"),
    [
        ("deepseek-ai--DeepSeek-V4-Pro", 1598.84),  # a reading of all headers of its files
        ("nvidia--GLM-5.1-NVFP4", 753.87),  # 754B on the hub; its prediction layer is a file of 19.9 GB in 16 bit
        ("zai-org--GLM-5.2", 753.33),  # 753B on the hub
    ],
)
def test_all_parameters_of_files_with_prediction_layers(shared: Path, name: str, total: float) -> None:
    """Model and prediction layers together are what the files hold."""
    spec = spec_of(shared, name)
    behind = sum(fact.elements for fact in prediction_tensors(spec))

    assert pytest.approx(total, abs=0.006) == (parameters(spec) + behind) / 1e9


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
