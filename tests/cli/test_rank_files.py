"""``trtkit convert`` for a release that needs engines, from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checkpoint.ranks import RankFolder
from tests.support.cli import trtkit
from tests.support.tiny_model import write_tiny_model

PROFILE = """\
name: engines
base: h200x8-offline
trtllm_version: 0.17.0
limits: {max_seq_len: 512}
load: {input_tokens: 256, output_tokens: 256}
parallelism: {tensor: 4, pipeline: 2, replicas: 1}
calibration: {samples: 2, tokens_per_sample: 64}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tiny model and a profile of a release without the PyTorch backend."""
    write_tiny_model(tmp_path / "model", "llama", num_attention_heads=8, num_hidden_layers=4)
    (tmp_path / "profile.yaml").write_text(PROFILE)
    return tmp_path


def test_convert_writes_a_file_a_rank_and_says_so_again(folder: Path) -> None:
    """The plan's warning about building does not stop convert; the second run has nothing to do."""
    command = ("convert", folder / "model", "-p", folder / "profile.yaml", "--out", folder / "out", "--json")
    first, second = trtkit(*command), trtkit(*command)
    assert (0, False) == (first.code, first.json["up_to_date"]), first.err
    assert (0, True) == (second.code, second.json["up_to_date"]), second.err
    made = RankFolder(folder / "out")
    assert (4, 2) == (made.tp, made.pp)
    assert {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}.items() <= made.config["quantization"].items()
    assert (folder / "out" / "tokenizer.json").exists()
    assert not (folder / "out" / "hf_quant_config.json").exists()


def test_the_dry_run_names_rank_files_and_writes_nothing(folder: Path) -> None:
    """Every tensor of every rank is listed with its file."""
    out = folder / "out"
    ran = trtkit("convert", folder / "model", "-p", folder / "profile.yaml", "--out", out, "--dry-run", "--json")
    assert {f"rank{number}.safetensors" for number in range(8)} == {row["file"] for row in ran.json["tensors"]}
    assert {"plain", "fp8"} == {row["format"] for row in ran.json["tensors"]}
    assert not out.exists()


def test_evaluate_reads_the_rank_files(folder: Path) -> None:
    """A checkpoint for engines is compared with its source like any other."""
    trtkit("convert", folder / "model", "-p", folder / "profile.yaml", "--out", folder / "out")
    ran = trtkit("evaluate", folder / "model", folder / "out", "--tokens", "256", "--json")
    assert 0 == ran.code, ran.err
    assert 0.9 < ran.json["logit_cosine"] < 1.0
