"""What an engine folder tells, whoever made it, release by release; and what is no engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.build.conftest import MakeCheckpoint
from tests.build.test_engine import MOCK, plan_of
from trtllm_kit.build.engine import build
from trtllm_kit.build.explain import explain
from trtllm_kit.errors import ManifestError
from trtllm_kit.progress import Silent

LLAMA = {
    "architecture": "LlamaForCausalLM",
    "dtype": "float16",
    "max_position_embeddings": 4096,
    "mapping": {"world_size": 4, "tp_size": 2, "pp_size": 2},
    "quantization": {"quant_algo": "W4A16_AWQ", "kv_cache_quant_algo": "INT8"},
}
LIMITS = {"max_input_len": 1024, "max_seq_len": 2048, "max_batch_size": 64, "max_num_tokens": 8192, "max_beam_width": 1}


def write_engine(folder: Path, version: str | None, ranks: int = 4, **build_config: Any) -> Path:
    """Write an engine folder as upstream's builder leaves it."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "pretrained_config": LLAMA,
        "build_config": {**LIMITS, "plugin_config": {"gemm_plugin": "float16", "lora_plugin": None}, **build_config},
    }
    (folder / "config.json").write_text(json.dumps(config if version is None else {"version": version} | config))
    for rank in range(ranks):
        (folder / f"rank{rank}.engine").write_bytes(b"ftrt" * 4)
    return folder


@pytest.mark.parametrize(
    ("version", "tensorrt"), [("0.12.0", "10.3"), ("0.16.0", "10.7"), ("0.20.0", "10.10"), ("1.2.1", "10.14")]
)
def test_an_engine_of_anyone_tells_its_release_limits_formats_and_ranks(
    tmp_path: Path, version: str, tensorrt: str
) -> None:
    """From config.json and the files alone; which GPU built it stands nowhere in it, and that is said."""
    told = explain(write_engine(tmp_path, version))
    assert version == told["built_by"]["release"]
    assert LIMITS == told["limits"]
    assert {"weights": "W4A16_AWQ", "kv_cache": "INT8"} == told["quantization"]
    assert (4, tensorrt) == (told["runs_on"]["world_size"], told["runs_on"]["tensorrt"])
    assert told["runs_on"]["gpu"].startswith("not recorded")
    assert {"tp_size": 2, "pp_size": 2} == told["runs_on"]["split"]
    assert {"gemm_plugin": "float16"} == told["options"]
    assert {"ranks": 4, "bytes": 64, "missing": []} == told["files"]


def test_containers_are_those_that_hold_its_release(tmp_path: Path) -> None:
    """The image to serve it from follows from the release."""
    assert ["nvcr.io/nvidia/tritonserver:24.08-trtllm-python-py3"] == explain(write_engine(tmp_path, "0.12.0"))[
        "runs_on"
    ]["containers"]


@pytest.mark.parametrize(
    ("version", "number", "mode"),
    [("0.16.0", 32, "eagle"), ("0.14.0", 32, 32), ("0.12.0", 8, "lookahead_decoding"), ("1.2.1", 1, "none")],
)
def test_the_speculative_mode_is_named_as_its_release_names_it(
    tmp_path: Path, version: str, number: int, mode: object
) -> None:
    """A number that the release has no name for stays a number."""
    told = explain(write_engine(tmp_path, version, speculative_decoding_mode=number))
    assert mode == told["options"]["speculative_decoding_mode"]


@pytest.mark.parametrize("version", ["0.16.0.dev2024121000", "0.9.0", "99.0", "of my own"])
def test_a_release_that_no_table_knows_is_told_as_it_stands(tmp_path: Path, version: str) -> None:
    """What follows from the config alone is told, what a table would have to say is left out."""
    told = explain(write_engine(tmp_path, version))
    assert version == told["runs_on"]["release"]
    assert "no release that trtkit knows" in told["built_by"]["note"]
    assert "tensorrt" not in told["runs_on"]


def test_an_engine_without_a_version_is_of_an_old_builder(tmp_path: Path) -> None:
    """Builders before 0.8 wrote no version."""
    assert "before 0.8" == explain(write_engine(tmp_path, None))["built_by"]["release"]


def test_missing_rank_files_are_named(tmp_path: Path) -> None:
    """The mapping says four ranks, three files are there."""
    assert ["rank3.engine"] == explain(write_engine(tmp_path, "1.2.1", ranks=3))["files"]["missing"]


def test_a_draft_engine_inside_is_told_too(tmp_path: Path) -> None:
    """Its release is its own."""
    write_engine(tmp_path / "draft", "0.18.0", ranks=1)
    assert "0.18.0" == explain(write_engine(tmp_path, "0.18.2"))["parts"]["draft"]["built_by"]["release"]


def test_an_engine_of_ours_tells_its_inputs_and_profile(make_checkpoint: MakeCheckpoint) -> None:
    """The manifest knows more than config.json; a mock is called one, since nothing runs it."""
    made = plan_of(MOCK)
    checkpoint = make_checkpoint(made)
    build(checkpoint, made, checkpoint.parent / "engine", Silent())
    told = explain(checkpoint.parent / "engine")
    assert ("mock", "test") == (told["kind"], told["built_by"]["profile"])
    assert made.digest == told["built_by"]["inputs"]["plan"]
    assert 2 == told["runs_on"]["world_size"]


def test_arguments_for_the_llm_api_are_no_compiled_engine(make_checkpoint: MakeCheckpoint) -> None:
    """No GPU is written into them, and the checkpoint they lead to is told."""
    made = plan_of()
    checkpoint = make_checkpoint(made)
    build(checkpoint, made, checkpoint.parent / "engine", Silent())
    told = explain(checkpoint.parent / "engine")
    assert "arguments for the LLM API" == told["kind"]
    assert made.release.value == told["runs_on"]["release"]
    assert str(checkpoint.resolve()) == told["files"]["checkpoint"]


BROKEN = {
    "nothing": (None, "holds neither config.json"),
    "no JSON": ("{", "it is not JSON"),
    "a list": ("[]", "holds a list"),
    "a model": ('{"architectures": ["LlamaForCausalLM"]}', "neither build_config nor builder_config"),
    "a key twice": ('{"version": "1", "version": "2"}', "occurs twice"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_engine_is_refused_with_the_reason(tmp_path: Path, name: str) -> None:
    """Anyone's folder may be given, so each is told what was looked for."""
    text, why = BROKEN[name]
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(ManifestError, match=why):
        explain(tmp_path)


def test_sections_of_the_wrong_shape_tell_nothing_and_break_nothing(tmp_path: Path) -> None:
    """A list where an object belongs is as good as none."""
    (tmp_path / "config.json").write_text(
        json.dumps({"version": 12, "pretrained_config": {"mapping": [], "quantization": 3}, "build_config": LIMITS})
    )
    told = explain(tmp_path)
    assert (1, "16 bit") == (told["runs_on"]["world_size"], told["quantization"]["weights"])
