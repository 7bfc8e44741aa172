"""Formats by GPU and architectures by release, against the recorded matrices."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from trtllm_kit.upstream.families import family_support
from trtllm_kit.upstream.memory import activation_coefficient, buffer_bytes, holds_window_only, kv_reserved_share
from trtllm_kit.upstream.precision import Part, formats_for, precision

RECORDED_COLUMNS: dict[tuple[Part, str], str] = {("weights", "fp8"): "FP8", ("kv_cache", "fp8"): "FP8_KV"}
RECORDED_ROWS = {"sm120": (120,), "sm100_103": (100, 103), "sm90": (90,), "sm89": (89,), "sm80_86": (80, 86)}


@pytest.mark.parametrize(("part", "number_format"), RECORDED_COLUMNS)
def test_the_matrix_of_1_2_1_is_as_recorded(shared: Path, part: Part, number_format: str) -> None:
    """FP8 weights from 89 on, an FP8 KV cache from 80 on."""
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
    assert ("bf16",) == formats_for("weights", 80, "1.2.1")
    assert ("bf16", "fp8") == formats_for("kv_cache", 80, "1.2.1")


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
