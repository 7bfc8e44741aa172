"""Formats by GPU and architectures by release, against the recorded matrices."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from trtllm_kit.plan.formats import FORMATS
from trtllm_kit.upstream import known_releases
from trtllm_kit.upstream.families import World, family_support, unlisted
from trtllm_kit.upstream.memory import activation_coefficient, buffer_bytes, holds_window_only, kv_reserved_share
from trtllm_kit.upstream.precision import Part, formats_for, precision

RECORDED_COLUMNS: dict[tuple[Part, str], str] = {
    ("weights", "fp8"): "FP8",
    ("kv_cache", "fp8"): "FP8_KV",
    ("weights", "nvfp4"): "NVFP4",
    ("weights", "fp8_block"): "FP8_BLOCK",
    ("weights", "fp8_rowwise"): "FP8_ROWWISE",
    ("weights", "w4a8_awq"): "W4A8_AWQ",
    ("weights", "int4_awq"): "W4A16_AWQ",
    ("kv_cache", "nvfp4"): "NVFP4_KV",
}
PARTS: tuple[Part, ...] = ("weights", "kv_cache")
RECORDED_ROWS = {"sm120": (120,), "sm100_103": (100, 103), "sm90": (90,), "sm89": (89,), "sm80_86": (80, 86)}


@pytest.mark.parametrize(("part", "number_format"), RECORDED_COLUMNS)
def test_the_matrix_of_1_2_1_is_as_recorded(shared: Path, part: Part, number_format: str) -> None:
    """FP8 weights from 89 on, an FP8 KV cache from 80 on, NVFP4 weights on Blackwell, its cache on two of them."""
    contract = yaml.safe_load((shared / "contract" / "llmapi-contract.yaml").read_text("utf-8"))
    matrix = contract["quant"]["hardware_1_2_1"]
    column = matrix["columns"].index(RECORDED_COLUMNS[part, number_format])
    wanted = {gpu for row, gpus in RECORDED_ROWS.items() if matrix[row][column] for gpu in gpus}
    found = precision(part, number_format, "1.2.1")
    assert found is not None
    assert wanted == set(found.capabilities)
    assert "read" == found.certainty


def test_an_ampere_gpu_takes_an_fp8_cache_and_no_fp8_weights() -> None:
    """The two parts have gates of their own."""
    assert ("bf16", "int4_awq", "int4_wo", "int8_wo") == formats_for("weights", 80, "1.2.1")
    assert ("bf16", "fp8") == formats_for("kv_cache", 80, "1.2.1")


@pytest.mark.parametrize("part", ["weights", "kv_cache"])
def test_blackwell_comes_with_0_17(part: Part) -> None:
    """B200 is served from 0.17.0 on, B300 and GB10 from releases whose matrix, or its neighbour, has them."""
    for version, gpus in (("0.16.0", set()), ("0.17.0", {100, 120}), ("1.2.1", {100, 103, 120, 121})):
        found = precision(part, "bf16", version)
        assert found is not None
        assert gpus == {capability for capability in found.capabilities if capability >= 100}
    fp8 = precision(part, "fp8", "0.16.0")
    assert fp8 is not None
    assert max(fp8.capabilities) == 90


@pytest.mark.parametrize("version", [*known_releases()])
def test_only_the_two_releases_whose_matrix_was_read_are_certain(version: str) -> None:
    """1.1.0 and 1.2.1 have the matrix, with no BF16 column: every other cell is taken from a neighbour."""
    certain = {
        (part, number_format)
        for part in PARTS
        for number_format in FORMATS
        if (row := precision(part, number_format, version)) is not None and row.certainty == "read"
    }
    both = {("kv_cache", "fp8"), *(("weights", name) for name in FORMATS if ("weights", name) in RECORDED_COLUMNS)}
    assert certain == {"1.1.0": both, "1.2.1": both | {("kv_cache", "nvfp4")}}.get(version, set())


@pytest.mark.parametrize("name", ["int8_wo", "int4_wo", "int4_awq", "int8_sq", "fp8_rowwise"])
def test_engines_of_blackwell_refuse_integer_weights_and_scales_by_row(name: str) -> None:
    """plugin.py refuses them from compute capability 10.0 on, which the PyTorch backend does not for int4."""
    found = precision("weights", name, "0.21.0", "tensorrt_llm")
    assert found is not None
    assert 90 == max(found.capabilities)
    assert "near" == found.certainty
    assert name.startswith("int4") == (name in formats_for("weights", 100, "1.2.1"))


def test_an_int8_cache_is_for_engines_alone() -> None:
    """The PyTorch backend has no INT8 KV cache."""
    assert "int8" in formats_for("kv_cache", 90, "0.21.0", "tensorrt_llm")
    assert precision("kv_cache", "int8", "1.2.1") is None


@pytest.mark.parametrize(("version", "takes"), [("1.2.1", False), ("1.3.0rc19", False), ("1.3.0rc20", True)])
def test_hopper_takes_nvfp4_weights_from_1_3_0rc20_on(version: str, takes: bool) -> None:
    """Marlin kernels unpack them there; the KV cache stays with Blackwell."""
    assert takes == ("nvfp4" in formats_for("weights", 90, version))
    assert "nvfp4" not in formats_for("kv_cache", 90, version)


def test_nvfp4_comes_with_blackwell() -> None:
    """No release before 0.17 takes it on any GPU."""
    assert precision("weights", "nvfp4", "0.16.0") is None
    found = precision("weights", "nvfp4", "0.17.0")
    assert found is not None
    assert ((100, 120), "near") == (found.capabilities, found.certainty)


@pytest.mark.parametrize(
    ("world", "version", "certainty"),
    [
        ("llm-api", "1.0.0", "read"),
        ("llm-api", "1.1.0", "near"),
        ("llm-api", "1.2.0", "near"),
        ("llm-api", "1.2.1", "read"),
        ("llm-api", "1.3.0rc20", "near"),
        ("trtllm-build", "0.16.0", "read"),
        ("trtllm-build", "0.17.0", "near"),
        ("trtllm-build", "1.2.1", "near"),
    ],
)
def test_a_list_is_certain_for_the_releases_it_was_read_in(world: World, version: str, certainty: str) -> None:
    """The lists of 1.0.0, 1.2.1 and main were read, and those of the engines from 0.12 to 0.16."""
    found = family_support("LlamaForCausalLM", world, version)
    assert found is not None
    assert certainty == found.certainty


def test_a_format_nobody_has_is_not_found() -> None:
    """There is no row for what no release takes."""
    assert precision("weights", "int3", "1.2.1") is None


@pytest.mark.parametrize("version", ["1.0.0", "1.2.1", "main"])
def test_every_family_loads_through_the_llm_api(version: str) -> None:
    """The seven families of the kit are listed for 1.0, 1.2.1 and main."""
    for architecture in ("Llama", "Mistral", "Mixtral", "Qwen2", "Qwen3", "Qwen3Moe"):
        found = family_support(f"{architecture}ForCausalLM", "llm-api", version)
        assert found is not None
        assert "read" == found.certainty
    assert family_support("Llama4ForConditionalGeneration", "llm-api", version) is not None


@pytest.mark.parametrize(
    ("architecture", "world", "version", "certainty"),
    [
        ("Gemma3ForCausalLM", "llm-api", "1.0.0", "read"),
        ("Gemma3ForCausalLM", "llm-api", "1.2.1", "near"),
        ("Gemma3ForConditionalGeneration", "llm-api", "1.2.1", "near"),
        ("Phi3ForCausalLM", "llm-api", "1.0.0", None),
        ("Phi3ForCausalLM", "llm-api", "1.1.0", "near"),
        ("Gemma2ForCausalLM", "llm-api", "1.2.1", None),
        ("Gemma2ForCausalLM", "trtllm-build", "1.2.1", "near"),
        ("Gemma2ForCausalLM", "trtllm-build", "0.16.0", "recalled"),
    ],
)
def test_where_gemma_and_phi_are_listed(architecture: str, world: World, version: str, certainty: str | None) -> None:
    """Phi-4 came to the PyTorch backend in 1.1.0rc4, and Gemma 2 never did."""
    found = family_support(architecture, world, version)
    assert certainty == (found.certainty if found is not None else None)


@pytest.mark.parametrize(
    ("architecture", "version", "certainty"),
    [
        ("DeepseekV3ForCausalLM", "1.0.0", "read"),
        ("DeepseekV3ForCausalLM", "1.2.1", "near"),
        ("GptOssForCausalLM", "1.0.0", None),
        ("GptOssForCausalLM", "1.2.1", "near"),
        ("GptOssForCausalLM", "main", "near"),
    ],
)
def test_deepseek_comes_with_1_0_and_gpt_oss_later(architecture: str, version: str, certainty: str | None) -> None:
    """The list of 1.0.0 has DeepSeek-V3 and not gpt-oss; later ones have both."""
    found = family_support(architecture, "llm-api", version)
    assert certainty == (found and found.certainty)


def test_llama_4_has_no_engines() -> None:
    """No release builds an engine of Llama 4."""
    assert family_support("Llama4ForConditionalGeneration", "trtllm-build", "1.2.1") is None


@pytest.mark.parametrize(("ranks", "coefficient"), [(1, 11), (2, 6.5), (3, 6.5), (4, 5), (8, 5), (32, 5)])
def test_activation_coefficients_take_the_nearest_lower_rank_count(ranks: int, coefficient: float) -> None:
    """Between two entries the lower rank count's, which is larger, is used."""
    assert coefficient == activation_coefficient("llama", ranks)


def test_fixed_buffers() -> None:
    """NCCL takes nothing on one rank, 342 MiB on two; the runtime 3.5 GiB; the pool keeps 1.5 %."""
    assert [0, 358612992, 411041792] == [buffer_bytes("communication", ranks) for ranks in (1, 2, 32)]
    assert 3758096384 == buffer_bytes("runtime", 8)
    assert 0.015 == kv_reserved_share()


def test_only_sliding_layers_are_known_to_free_tokens() -> None:
    """Chunked layers are counted with all their tokens, since no release was seen to free them."""
    assert [False, True, False] == [holds_window_only(kind) for kind in ("full", "sliding", "chunked")]


def test_every_model_that_people_serve_is_answered(shared: Path) -> None:
    """Each architecture of the recorded configurations has its releases, or a row that says none read lists it."""
    found = set()
    for path in sorted((shared / "models").glob("*_config.json")):
        found |= set(json.loads(path.read_text("utf-8")).get("architectures") or ())
    assert len(found) > 20
    listed = {name for name in found if family_support(name, "llm-api", "main") is not None}
    assert found - listed == {name for name in found if unlisted(name) is not None}


@pytest.mark.parametrize(
    ("architecture", "version", "certainty"),
    [
        ("DeepseekV32ForCausalLM", "1.0.0", None),
        ("DeepseekV32ForCausalLM", "1.2.1", "read"),
        ("Glm4MoeForCausalLM", "1.2.1", None),
        ("Glm4MoeForCausalLM", "1.3.0rc14", "recalled"),
        ("Glm4MoeForCausalLM", "1.3.0rc20", "read"),
        ("DeepseekV4ForCausalLM", "1.3.0rc20", None),
        ("DeepseekV4ForCausalLM", "1.4.0rc2", "near"),
        ("DeepseekV4ForCausalLM", "main", "read"),
        ("KimiK3ForConditionalGeneration", "main", None),
    ],
)
def test_a_family_is_sure_where_its_list_was_read(architecture: str, version: str, certainty: str | None) -> None:
    """Between two lists the answer is not certain; before the older one there is none."""
    found = family_support(architecture, "llm-api", version)
    assert certainty == (found.certainty if found else None)
