"""How many bytes a model's files take, by the formats that their configuration states."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.checkpoint.plans import plan_for
from tests.spec.configs import read
from tests.spec.test_real_models import documents
from tests.support.tiny_model import write_tiny_model
from trtllm_kit.checkpoint.convert import conversion_steps
from trtllm_kit.plan.stored_size import size_in, stored_size
from trtllm_kit.spec.hf_config import FAMILIES, read_model_spec
from trtllm_kit.spec.model import ModelSpec
from trtllm_kit.spec.profile_formats import KvFormat, WeightFormat


def spec_of(shared: Path, name: str) -> ModelSpec:
    """Read one recorded model with the file of ModelOpt beside it."""
    beside = shared / "models" / f"{name}_hf_quant_config.json"
    section = json.loads(beside.read_text())["quantization"] if beside.exists() else None
    return read_model_spec(json.loads((shared / "models" / f"{name}_config.json").read_text()), name, section)


def bytes_of(shared: Path, name: str) -> int:
    """Return the bytes of one recorded model."""
    size = stored_size(spec_of(shared, name))
    assert size is not None
    return size.bytes


@pytest.mark.parametrize(
    ("name", "expected"), [("openai--gpt-oss-120b", 65_248_815_744), ("openai--gpt-oss-20b", 13_761_264_768)]
)
def test_total_size_of_published_files(shared: Path, name: str, expected: int) -> None:
    """MXFP4 experts beside 16-bit ones, to the byte: ``total_size`` of the index, read in copies of it."""
    assert expected == bytes_of(shared, name)


@pytest.mark.parametrize(
    ("name", "terabytes", "within"),
    [
        ("moonshotai--Kimi-K3", 1.56, 0.005),  # the load that a builder of its test checkpoints states
        ("meta-llama--Meta-Llama-3.1-405B", 0.8117, 0.0001),  # 16-bit files of 405.85B parameters
    ],
)
def test_published_sizes_of_files(shared: Path, name: str, terabytes: float, within: float) -> None:
    """The size that is said of a model's files, to the last digit that is given."""
    assert pytest.approx(terabytes, abs=within) == bytes_of(shared, name) / 1e12


def test_deepseek_v4_pro_counted_by_hand(shared: Path) -> None:
    """Headers of its files: experts MXFP4, projections and shared experts FP8 in blocks, all else 16 bit here."""
    expert = 3 * 3072 * 7168
    attention = 1536 * 7168 + 65536 * 1536 + 512 * 7168 + 16384 * 4096 + 7168 * 16384
    mxfp4 = 61 * 384 * expert
    blocks = 61 * (attention + expert) + 30 * 8192 * 1536
    size = stored_size(spec_of(shared, "deepseek-ai--DeepSeek-V4-Pro"))

    assert size is not None
    assert (mxfp4, blocks) == (size.elements["mxfp4"], size.elements["fp8_block"])
    assert mxfp4 // 32 + blocks // 128**2 * 4 == size.scale_bytes


def test_nvfp4_of_deepseek_v32_counted_by_hand(shared: Path) -> None:
    """Experts, dense blocks and the attention's output in 4 bit; what its file leaves out, indexers too, in 16."""
    dense, expert, output = 3 * 3 * 18432 * 7168, 3 * 2048 * 7168, 7168 * 16384
    four = dense + 58 * 257 * expert + 61 * output
    left_out = 1536 * 7168 + 24576 * 1536 + 576 * 7168 + 32768 * 512 + 8192 * 1536 + 128 * 7168 + 64 * 7168
    norms = 7168 + 61 * (2 * 7168 + 1536 + 512 + 2 * 128)
    routers = 58 * (256 * 7168 + 256)
    size = stored_size(spec_of(shared, "nvidia--DeepSeek-V3.2-NVFP4"))

    assert size is not None
    assert four == size.elements["nvfp4"]
    assert 2 * 129280 * 7168 + 61 * left_out + norms + routers == size.elements["bf16"]
    assert four // 16 + 8 * (9 + 58 * 257 * 3 + 61) == size.scale_bytes


def test_formats_of_minimax_m3_by_layer(shared: Path) -> None:
    """Its map gives routed experts NVFP4, and attention, indexer, dense and shared blocks MXFP8."""
    experts = 57 * 128 * 3 * 3072 * 6144
    attention = 60 * (2 * 8192 + 2 * 512) * 6144 + 57 * (512 + 128) * 6144
    blocks = 3 * 3 * 12288 * 6144 + 57 * 3 * 3072 * 6144
    size = stored_size(spec_of(shared, "nvidia--MiniMax-M3-NVFP4"))

    assert size is not None
    assert (experts, attention + blocks) == (size.elements["nvfp4"], size.elements["mxfp8"])


def test_experts_of_a_modelopt_file_over_fp8_blocks(shared: Path) -> None:
    """DeepSeek-V4 as NVIDIA quantises it: what the file leaves out has kept the blocks it came in."""
    size = stored_size(spec_of(shared, "nvidia--DeepSeek-V4-Flash-NVFP4"))
    expert = 3 * 2048 * 4096
    attention = 1024 * 4096 + 32768 * 1024 + 512 * 4096 + 8192 * 4096 + 4096 * 8192

    assert size is not None
    assert 43 * 256 * expert == size.elements["nvfp4"]
    assert 43 * (attention + expert) + 21 * 8192 * 1024 == size.elements["fp8_block"]


def test_expressions_of_compressed_tensors(shared: Path) -> None:
    """Kimi-K3 leaves out attention and shared experts by ``re:``; its routed experts alone are MXFP4."""
    size = stored_size(spec_of(shared, "moonshotai--Kimi-K3"))

    assert size is not None
    assert 92 * 896 * 3 * 3072 * 3584 == size.elements["mxfp4"]


def test_every_quantised_file_that_is_read_has_a_size(shared: Path) -> None:
    """All of them but those with a word that no release's table has, which are named here."""
    unknown = []
    for name, document in documents(shared):
        if document["architectures"][0] in FAMILIES and stored_size(spec_of(shared, name)) is None:
            unknown.append(name)

    assert ["nvidia--Qwen3.6-27B-NVFP4", "nvidia--Qwen3.6-35B-A3B-NVFP4"] == unknown


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3_moe", "mixtral", "gemma2", "gemma3", "phi3"])
@pytest.mark.parametrize(
    ("weights", "kv_cache"), [("bf16", "bf16"), ("fp8", "fp8"), ("fp8_block", "bf16"), ("nvfp4", "nvfp4")]
)
def test_converted_files_to_the_byte(tmp_path: Path, family: str, weights: WeightFormat, kv_cache: KvFormat) -> None:
    """What ``convert`` writes, scales of weights and cache among it, is as large as was said."""
    folder = write_tiny_model(tmp_path / "model", family)
    plan = plan_for(folder, weights, kv_cache)
    written = sum(step.nbytes for step in conversion_steps(folder, plan))

    assert written == size_in(plan.model, plan.quantization.formats).bytes


@pytest.mark.parametrize(("family", "less"), [("deepseek_v3", 16), ("llama4", -48), ("gpt_oss", -96)])
def test_where_converted_files_differ(tmp_path: Path, family: str, less: int) -> None:
    """The choice bias of 4 experts is float32 in files, and experts fused into one tensor have one pair of scales."""
    folder = write_tiny_model(tmp_path / "model", family)
    plan = plan_for(folder, "fp8", "fp8")
    written = sum(step.nbytes for step in conversion_steps(folder, plan))

    assert less == written - size_in(plan.model, plan.quantization.formats).bytes


def test_plain_weights() -> None:
    """Two bytes an element, and no scales."""
    size = stored_size(read("llama"))

    assert size is not None
    assert {"bf16"} == set(size.elements)
    assert 0 == size.scale_bytes


def test_a_format_without_a_word() -> None:
    """GPTQ of 3 bits is not guessed at."""
    section = {"quant_method": "gptq", "bits": 3}

    assert stored_size(read("llama", quantization_config=section)) is None
