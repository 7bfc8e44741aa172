"""A checkpoint whose weights NVIDIA ModelOpt makes: what it is asked, and what of its export is taken."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.checkpoint.fake_worker import COPIES, VERSIONS, by_modelopt, request_of, runs_of, write_interpreter
from tests.checkpoint.plans import plan_for
from tests.support.tiny_model import write_tiny_model
from trtllm_kit.checkpoint.convert import convert
from trtllm_kit.checkpoint.job import prepare
from trtllm_kit.checkpoint.load import open_checkpoint
from trtllm_kit.checkpoint.modelopt import module_patterns, require_room
from trtllm_kit.checkpoint.reader import open_weights
from trtllm_kit.errors import FormatNotMade, MissingExtra, StorageError, WorkerFailed
from trtllm_kit.plan.plan import Plan
from trtllm_kit.progress import Silent

WIDE = {"hidden_size": 256, "intermediate_size": 384, "head_dim": 64}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Write a small model, and beside it an export that is int4_awq with no factor: that of the kit's own int4_wo."""
    folder = write_tiny_model(tmp_path / "source", seed=7, **WIDE)
    convert(folder, plan_for(folder, "int4_wo"), tmp_path / "environment" / "export", Silent())
    return folder


@pytest.fixture
def plan(source: Path, tmp_path: Path) -> Plan:
    """Plan int4_awq, made in the stand-in's environment."""
    return by_modelopt(plan_for(source, "int4_awq"), write_interpreter(tmp_path / "environment"))


def test_the_export_becomes_a_checkpoint_with_its_proof(source: Path, plan: Plan, tmp_path: Path) -> None:
    """Weights are ModelOpt's bytes; configuration, record, versions and the quality report are the kit's."""
    made = convert(source, plan, tmp_path / "out", Silent())
    exported = tmp_path / "environment" / "export" / "model.safetensors"
    assert exported.read_bytes() == (tmp_path / "out" / "model.safetensors").read_bytes()
    assert (
        "W4A16_AWQ" == json.loads((tmp_path / "out" / "hf_quant_config.json").read_text())["quantization"]["quant_algo"]
    )
    assert {**VERSIONS, "device": "cpu"} == made.manifest.facts["made_with"]
    assert made.report is not None
    assert 14 == made.manifest.facts["quantised_tensors"]
    assert "model.safetensors" in {entry.path for entry in made.manifest.files}


def test_a_rerun_does_not_start_modelopt_again(source: Path, plan: Plan, tmp_path: Path) -> None:
    """The same plan, source and versions are up to date; another version of ModelOpt is another checkpoint."""
    convert(source, plan, tmp_path / "out", Silent())
    assert convert(source, plan, tmp_path / "out", Silent()).up_to_date
    assert 1 == runs_of(tmp_path / "environment")
    write_interpreter(tmp_path / "environment", versions=VERSIONS | {"nvidia-modelopt": "0.48.0"})
    assert not convert(source, plan, tmp_path / "out", Silent()).up_to_date


def test_modelopt_runs_the_same_tokens_as_the_kit(source: Path, plan: Plan, tmp_path: Path) -> None:
    """The request holds the pieces that the native calibration would run, and every linear module."""
    convert(source, plan, tmp_path / "out", Silent())
    asked = request_of(tmp_path / "environment")
    texts = prepare(source, plan, 10**9).texts
    assert texts is not None
    assert texts.calibration is not None
    assert [list(piece) for piece in texts.calibration.pieces] == asked["windows"]
    assert {"int4_awq": 14} == {group["format"]: len(group["patterns"]) for group in asked["modules"]}
    assert ("bfloat16", 128) == (asked["dtype"], asked["group_size"])


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("del tensors['model.layers.1.mlp.up_proj.weight_scale']", "up_proj.weight_scale is missing"),
        ("tensors['model.layers.0.mlp.up_proj.weight_scale'][0, 0] = np.inf", "up_proj.weight_scale holds [inf]"),
        ("tensors['model.layers.0.mlp.up_proj.weight_scale'][0, 0] = -1", "up_proj.weight_scale holds [-1.0]"),
        ("tensors['model.embed_tokens.weight'][3, 5] ^= 1", "model.embed_tokens.weight changed"),
        ("tensors['model.norm.weight'][3] = 0x7FC0", "model.norm.weight holds [nan]"),
        ("tensors['stowaway'] = np.zeros(3, np.float32)", "stowaway was not asked for"),
        ("tensors['model.layers.0.mlp.up_proj.weight'] = np.zeros((4, 4), np.uint8)", "should be U8 [192, 256]"),
        ("tensors['model.layers.0.mlp.up_proj.pre_quant_scale'] = np.ones(9, np.uint16)", "one 16-bit factor"),
    ],
)
def test_an_export_that_is_not_what_was_asked_for_is_refused(
    change: str, told: str, source: Path, plan: Plan, tmp_path: Path
) -> None:
    """Names, shapes, scales and untouched weights are all looked at, by name, and nothing is left."""
    rewrite(tmp_path / "environment" / "export" / "model.safetensors", change)
    with pytest.raises(WorkerFailed) as refused:
        convert(source, plan, tmp_path / "out", Silent())
    assert told in str(refused.value)
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".out.*"))


def test_factors_and_norms_that_belong_together_are_taken(source: Path, plan: Plan, tmp_path: Path) -> None:
    """An export with a factor of the input, whose weight was divided by it, has the source's logits."""
    rewrite(
        tmp_path / "environment" / "export" / "model.safetensors",
        "tensors['model.layers.0.mlp.down_proj.pre_quant_scale'] = np.full(384, 0x4000, np.uint16); "  # 2.0
        "tensors['model.layers.0.mlp.down_proj.weight_scale'] *= np.float32(0.5)",
    )
    convert(source, plan, tmp_path / "out", Silent())
    plain = convert(source, plan_for(source, "int4_wo"), tmp_path / "plain", Silent())
    assert not plain.up_to_date
    factored, without = open_checkpoint(tmp_path / "out").weights, open_checkpoint(tmp_path / "plain").weights
    module = "model.layers.0.mlp.down_proj"
    factor = factored.input_factor(module)
    assert factor is not None
    assert 2.0 == factor.min()
    np.testing.assert_array_equal(without.tensor(f"{module}.weight"), factored.tensor(f"{module}.weight") * factor)


def test_a_worker_that_fails_is_quoted(source: Path, plan: Plan, tmp_path: Path) -> None:
    """The error has the exit code and the last words, and no output is left."""
    write_interpreter(tmp_path / "environment", 'print("out of memory", file=sys.stderr); sys.exit(7)')
    with pytest.raises(WorkerFailed, match=r"exited with 7; its last words: out of memory"):
        convert(source, plan, tmp_path / "out", Silent())
    assert not (tmp_path / "out").exists()


def test_an_environment_without_modelopt_is_refused_before_anything_is_written(
    source: Path, plan: Plan, tmp_path: Path
) -> None:
    """All that is missing or too old is told at once, with where to name another interpreter."""
    versions = VERSIONS | {"nvidia-modelopt": None, "torch": "2.1.0"}
    write_interpreter(tmp_path / "environment", COPIES, versions)
    with pytest.raises(MissingExtra, match=r"nvidia-modelopt is not installed; torch is 2.1.0, and 2.8 or later"):
        convert(source, plan, tmp_path / "out", Silent())
    assert not list(tmp_path.glob(".out.*"))


def test_experts_in_a_searched_format_are_refused_at_once(tmp_path: Path) -> None:
    """ModelOpt's exporter fails on them, after hours on a real model."""
    source = write_tiny_model(tmp_path / "source", "mixtral", **WIDE)
    with pytest.raises(FormatNotMade, match="int4_awq of a model with experts"):
        convert(source, by_modelopt(plan_for(source, "int4_awq"), "nowhere"), tmp_path / "out", Silent())


def test_a_machine_that_is_too_small_is_told_so(source: Path, plan: Plan) -> None:
    """Weights in 16 bit and the result together are compared with what is there."""
    job = prepare(source, plan, 10**9)
    held = sum(tensor.nbytes for tensor in open_weights(source).tensors.values())
    needed = held + sum(step.nbytes for step in job.steps)
    require_room(job, needed)
    with pytest.raises(StorageError, match="too little memory"):
        require_room(job, needed - 1)


@given(st.integers(1, 120), st.integers(0, 119), st.sampled_from(["self_attn.q_proj", "mlp.down_proj"]))
def test_patterns_name_their_module_alone(layers: int, layer: int, part: str) -> None:
    """The quantisers of a module match its pattern, and those of no other layer do."""
    layer %= layers
    (group,) = module_patterns({f"model.layers.{layer}.{part}.weight": "int8_sq"})
    (pattern,) = group["patterns"]
    found = [
        number
        for number in range(layers)
        if fnmatchcase(f"language_model.layers.{number}.{part}.weight_quantizer", f"{pattern}weight_quantizer")
    ]
    assert [layer] == found


@pytest.mark.parametrize("block", ["mlp", "block_sparse_moe"])
def test_patterns_name_experts_whatever_transformers_calls_their_block(block: str) -> None:
    """Mixtral's files say block_sparse_moe and transformers mlp; the expert for all tokens is not among them."""
    (group,) = module_patterns({f"model.layers.1.{block}.experts.{number}.w1.weight": "int8_sq" for number in (0, 1)})
    (pattern,) = group["patterns"]
    names = ["1.mlp.experts.0.w1", "1.mlp.shared_experts.w1", "1.mlp.gate", "11.mlp.experts.0.w1"]
    matched = [fnmatchcase(f"model.layers.{name}.weight_quantizer", f"{pattern}weight_quantizer") for name in names]
    assert [True, False, False, False] == matched


def rewrite(path: Path, change: str) -> None:
    """Change the tensors of a file; ``change`` sees them as ``tensors``, BF16 as its bits."""
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    header.pop("__metadata__")
    types = {"BF16": np.uint16, "F32": np.float32, "U8": np.uint8}
    names = {np.dtype(kind): name for name, kind in types.items()}
    tensors = {
        name: np.frombuffer(raw[8 + length :][slice(*entry["data_offsets"])], types[entry["dtype"]])
        .reshape(entry["shape"])
        .copy()
        for name, entry in header.items()
    }
    exec(change, {"np": np, "tensors": tensors})
    document, at = {}, 0
    for name, array in tensors.items():
        ends = [at, at + array.nbytes]
        document[name] = {"dtype": names[array.dtype], "shape": list(array.shape), "data_offsets": ends}
        at += array.nbytes
    text = json.dumps(document).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(array.tobytes() for array in tensors.values()))
