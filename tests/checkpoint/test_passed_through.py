"""Sources that come quantised: handed on bit by bit, read by their scales, refused with every problem at once."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.checkpoint.plans import plan_as_stored, plan_for
from tests.support.quantised import (
    Quantised,
    Stored,
    change_tensors,
    read_safetensors,
    scalar,
    write_quantised,
    write_stored,
)
from tests.support.tiny_model import write_tiny_model
from trtllm_kit.checkpoint.convert import conversion_steps, convert
from trtllm_kit.checkpoint.evaluate import compare
from trtllm_kit.checkpoint.load import load_reference, open_checkpoint
from trtllm_kit.checkpoint.reader import open_weights
from trtllm_kit.checkpoint.stored_weights import StoredWeights
from trtllm_kit.checkpoint.text import held_text
from trtllm_kit.errors import KitError, PlanDrift, TensorError, WeightIndexError
from trtllm_kit.plan.parallelism import Split
from trtllm_kit.plan.weights import held_by_stage
from trtllm_kit.progress import Silent
from trtllm_kit.spec.load import load_model

WIDE: dict[str, object] = {"hidden_size": 256, "intermediate_size": 384, "head_dim": 64}
"""Input features in whole groups of 128."""
FACTORED = ("int4_awq", "w4a8_awq", "int8_sq", "mixed")
FORMS: dict[str, tuple[str, dict[str, object]]] = {
    "llama-fp8": ("fp8", {}),
    "qwen2-fp8": ("fp8", {"family": "qwen2"}),
    "qwen3_moe-fp8": ("fp8", {"family": "qwen3_moe"}),
    "tied-fp8": ("fp8", {"tie_word_embeddings": True}),
    "llama-nvfp4": ("nvfp4", {}),
    "qwen3_moe-nvfp4": ("nvfp4", {"family": "qwen3_moe"}),
    "deepseek-nvfp4": ("nvfp4", {"family": "deepseek_v3", "v_head_dim": 16}),
    "qwen3-block": ("fp8_block", {"family": "qwen3", "intermediate_size": 200}),
    "deepseek-block": ("fp8_block", {"family": "deepseek_v3"}),
    "gpt_oss-mxfp4": ("mxfp4", {"family": "gpt_oss"}),
    "llama-int4_awq": ("int4_awq", WIDE),
    "qwen2-w4a8_awq": ("w4a8_awq", WIDE | {"family": "qwen2"}),
    "qwen3-int8_sq": ("int8_sq", {"family": "qwen3"}),
    "llama-mixed": ("mixed", WIDE),
    "qwen3_moe-mixed": ("mixed", WIDE | {"family": "qwen3_moe", "moe_intermediate_size": 128}),
}
Q = "model.layers.0.self_attn.q_proj"
UP = "model.layers.1.mlp.up_proj"
DOWN = "model.layers.0.mlp.down_proj"


@pytest.fixture(scope="module", params=FORMS)
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Quantised:
    """A model in each form that is passed through."""
    form, asked = FORMS[request.param]
    return write_quantised(tmp_path_factory.mktemp(request.param) / "model", form, **asked)


def test_every_tensor_and_both_configurations_are_handed_on_bit_by_bit(source: Quantised, tmp_path: Path) -> None:
    """No code, scale, bias, norm or router changes; the configuration that describes them is theirs."""
    convert(source.folder, plan_as_stored(source.folder), tmp_path / "out", Silent())
    before, after = (read_safetensors(folder / "model.safetensors") for folder in (source.folder, tmp_path / "out"))
    assert before == after
    for name in ("config.json", "hf_quant_config.json", "quant_cfg.json"):
        given, made = source.folder / name, tmp_path / "out" / name
        assert given.exists() == made.exists()
        assert not given.exists() or given.read_bytes() == made.read_bytes()


def test_the_dry_run_names_format_and_part_of_each_tensor(source: Quantised) -> None:
    """What is quantised is listed in its format, and each tensor comes from itself."""
    steps = conversion_steps(source.folder, plan_as_stored(source.folder))
    codes = {step.name.removesuffix("_blocks") for step in steps if step.format != "plain" and step.part == "weight"}
    assert set(source.values) == codes
    assert all(step.name == step.origin for step in steps)


def test_the_reference_reads_the_values_that_were_stored(source: Quantised) -> None:
    """Codes times scales are what an independent writer stored, to the last bit, and a forward pass runs on them."""
    opened = open_checkpoint(source.folder)
    for name, values in source.values.items():
        np.testing.assert_array_equal(values, opened.weights.tensor(name))
    model = load_reference(source.folder)
    assert np.isfinite(model.forward(np.arange(5), model.new_cache())).all()


def test_the_plan_counts_the_bytes_that_are_stored(source: Quantised) -> None:
    """Weights and scales of one rank are those of the file, byte for byte, whatever is kept in 16 bit.

    Of latent attention the runtime holds the keys' half of ``kv_b_proj`` twice, which the file has once; and a factor
    of the input, which ModelOpt may have folded into the norm in front, is counted beside each weight.
    """
    stored = sum(len(one.data) for one in read_safetensors(source.folder / "model.safetensors").values())
    model, formats = load_model(source.folder), plan_as_stored(source.folder).quantization.formats
    held = held_by_stage(model, Split(), formats, range(len(model.layers))).bytes
    formats_in = {formats.weights, *formats.used}
    if any(layer.attention.latent for layer in model.layers) or formats_in & {"int4_awq", "w4a8_awq", "int8_sq"}:
        assert stored < held < 1.06 * stored
    else:
        assert stored == held


def test_shards_are_read_by_their_index_and_a_missing_one_is_told(tmp_path: Path) -> None:
    """Scales may lie in another file than their weight, as in NVIDIA's own folders."""
    folder = write_quantised(tmp_path / "model", "fp8").folder
    tensors = read_safetensors(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    places = {name: f"model-0000{1 + name.endswith('scale')}-of-00002.safetensors" for name in tensors}
    for file in set(places.values()):
        write_stored(folder / file, {name: tensors[name] for name in tensors if places[name] == file})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    convert(folder, plan_as_stored(folder), tmp_path / "out", Silent())
    assert tensors == read_safetensors(tmp_path / "out" / "model.safetensors")

    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(WeightIndexError, match="model-00002-of-00002"):
        conversion_steps(folder, plan_as_stored(folder))


def test_an_fp8_checkpoint_becomes_several_shards_that_hold_the_same(tmp_path: Path) -> None:
    """The index names each scale in the file that has it."""
    folder = write_quantised(tmp_path / "model", "fp8").folder
    convert(folder, plan_as_stored(folder), tmp_path / "out", Silent(), shard_bytes=40_000)
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())["weight_map"]
    shards = {file: read_safetensors(tmp_path / "out" / file) for file in set(index.values())}
    assert len(shards) > 2
    assert read_safetensors(folder / "model.safetensors") == {name: shards[file][name] for name, file in index.items()}


def test_prediction_layers_pass_with_their_scales(tmp_path: Path) -> None:
    """DeepSeek's own files have one behind the last layer, in blocks like the others."""
    folder = write_quantised(tmp_path / "model", "fp8_block", "deepseek_v3").folder
    with_prediction_layer(folder)
    convert(folder, plan_as_stored(folder), tmp_path / "out", Silent())
    assert read_safetensors(folder / "model.safetensors") == read_safetensors(tmp_path / "out" / "model.safetensors")


def test_blocks_as_modelopt_names_them_are_read_too(tmp_path: Path) -> None:
    """Its scales are ``weight_scale`` with two axes of length one beside, and its word for the format is another."""
    model = write_quantised(tmp_path / "model", "fp8_block", intermediate_size=200)
    config = json.loads((model.folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "modelopt", "quant_algo": "FP8_PB_WO"}
    (model.folder / "config.json").write_text(json.dumps(config))

    def rename(tensors: dict[str, Stored]) -> None:
        for name in [name for name in tensors if name.endswith("_scale_inv")]:
            scales = tensors.pop(name)
            rows, columns = scales.shape
            tensors[name.removesuffix("_inv")] = scales._replace(shape=(rows, 1, columns, 1))

    change_tensors(model.folder, rename)
    convert(model.folder, plan_as_stored(model.folder), tmp_path / "out", Silent())
    opened = open_checkpoint(tmp_path / "out")
    for name, values in model.values.items():
        np.testing.assert_array_equal(values, opened.weights.tensor(name))


def drop(name: str) -> Callable[[dict[str, Stored]], object]:
    """Return what takes a tensor away."""
    return lambda tensors: tensors.pop(name)


def put(name: str, stored: Stored) -> Callable[[dict[str, Stored]], object]:
    """Return what puts a tensor in a place."""
    return lambda tensors: tensors.update({name: stored})


def first_byte(name: str, value: int) -> Callable[[dict[str, Stored]], object]:
    """Return what sets the first byte of a tensor."""

    def change(tensors: dict[str, Stored]) -> None:
        tensors[name] = tensors[name]._replace(data=bytes([value]) + tensors[name].data[1:])

    return change


NAN = float("nan")


def half(count: int, value: float) -> Stored:
    """Return that many equal BF16 numbers."""
    return Stored("BF16", (count,), np.full(count, value, np.float32).view(np.uint16)[1::2].tobytes())


BROKEN: list[tuple[str, Callable[[dict[str, Stored]], object], str]] = [
    ("fp8", drop(f"{Q}.weight_scale"), "q_proj.weight is stored as F8_E4M3"),
    ("fp8", drop(f"{Q}.input_scale"), "q_proj.input_scale is missing"),
    ("fp8", drop(f"{Q}.weight"), "q_proj.weight is missing"),
    ("fp8", put(f"{Q}.weight_scale", Stored("F32", (3,), b"\0" * 12)), "q_proj.weight is stored as F8_E4M3"),
    ("fp8", put(f"{Q}.weight_scale", scalar(0)), r"q_proj.weight_scale is \[0.0\]"),
    ("fp8", put(f"{Q}.weight_scale", scalar(-1)), r"q_proj.weight_scale is \[-1.0\]"),
    ("fp8", put(f"{Q}.input_scale", scalar(NAN)), r"q_proj.input_scale is \[nan\]"),
    ("fp8", put("model.layers.0.self_attn.v_proj.v_scale", scalar(NAN)), r"v_proj.v_scale is \[nan\]"),
    ("fp8", put(f"{Q}.weight", Stored("BF16", (64, 64), b"\0" * 8192)), "q_proj.weight is stored in plain"),
    ("fp8", put("model.norm.weight", Stored("F8_E4M3", (64,), b"\0" * 64)), "norm.weight is stored as F8_E4M3"),
    ("fp8", put(f"{Q}.pre_quant_scale", Stored("BF16", (64,), b"\0" * 128)), "described by config.json: .*pre_quant"),
    ("fp8", put("model.extra", scalar(1)), "1 tensors are not described by config.json: model.extra"),
    ("nvfp4", drop(f"{UP}.weight_scale_2"), r"up_proj.weight is stored as U8"),
    ("nvfp4", put(f"{UP}.weight_scale_2", scalar(1)), "gate_proj.weight_scale_2 and .*up_proj.weight_scale_2 differ"),
    ("nvfp4", put(f"{UP}.input_scale", scalar(1)), "gate_proj.input_scale and .*up_proj.input_scale differ"),
    ("nvfp4", first_byte(f"{UP}.weight_scale", 0x7F), r"up_proj.weight_scale is \[nan\]"),
    ("nvfp4", first_byte(f"{UP}.weight_scale", 0x81), r"up_proj.weight_scale is \[-1.0\]"),
    ("int4_awq", put(f"{DOWN}.pre_quant_scale", half(256, 1)), r"pre_quant_scale is BF16 \[256\]"),
    ("int4_awq", put(f"{DOWN}.pre_quant_scale", half(384, -1)), r"pre_quant_scale is \[-1.0"),
    ("int4_awq", drop(f"{Q}.weight_scale"), r"q_proj.weight is stored as U8 \[128, 256\]"),
    (
        "int4_awq",
        put(f"{Q}.weight_scale", Stored("F32", (256, 4), b"\0\0\x80\x3f" * 1024)),
        "q_proj.weight is stored in int4_wo in groups of 64",
    ),
    ("w4a8_awq", drop(f"{Q}.input_scale"), "q_proj.weight is stored in int4_wo"),
    ("w4a8_awq", put(f"{Q}.weight_scale_2", scalar(NAN)), r"q_proj.weight_scale_2 is \[nan\]"),
    ("int8_sq", put(f"{Q}.input_scale", scalar(0)), r"q_proj.input_scale is \[0.0\]"),
    ("mixed", put(f"{UP}.pre_quant_scale", half(256, 1)), "described by config.json: .*up_proj.pre_quant"),
    ("mixed", drop(f"{Q}.input_scale"), "q_proj.input_scale is missing"),
    ("fp8_block", drop(f"{Q}.weight_scale_inv"), "q_proj.weight is stored as F8_E4M3"),
    ("fp8_block", put(f"{Q}.weight_scale_inv", Stored("F32", (1, 1), b"\0" * 4)), r"weight_scale_inv is \[0.0\]"),
]


@pytest.mark.parametrize(("form", "change", "words"), BROKEN, ids=[f"{form}: {words}" for form, _, words in BROKEN])
def test_what_is_broken_is_refused_by_name_before_a_byte(
    tmp_path: Path, form: str, change: Callable[[dict[str, Stored]], object], words: str
) -> None:
    """A scale that is missing, misshapen, NaN, zero or negative; a weight in another format; a stranger."""
    folder = write_quantised(tmp_path / "model", form, **(WIDE if form in FACTORED else {})).folder
    plan = plan_as_stored(folder)
    change_tensors(folder, change)
    with pytest.raises(TensorError, match=words):
        convert(folder, plan, tmp_path / "out", Silent())
    assert ["model"] == [path.name for path in tmp_path.iterdir()]


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    """Of tensors, of scales, of what is fused, and of strangers."""
    folder = write_quantised(tmp_path / "model", "nvfp4").folder

    def spoil(tensors: dict[str, Stored]) -> None:
        drop(f"{Q}.input_scale")(tensors)
        put("model.layers.0.mlp.down_proj.weight_scale_2", scalar(NAN))(tensors)
        put(f"{UP}.input_scale", scalar(1))(tensors)
        put("model.extra", scalar(1))(tensors)

    change_tensors(folder, spoil)
    with pytest.raises(TensorError, match="4 problems") as caught:
        conversion_steps(folder, plan_as_stored(folder))
    for words in ("q_proj.input_scale", "down_proj.weight_scale_2", "up_proj.input_scale differ", "model.extra"):
        assert words in caught.value.why


def test_a_block_of_zeros_may_have_scale_zero(tmp_path: Path) -> None:
    """Older ModelOpt let the scale of a very small block become 0; its numbers are 0 then, and no runtime minds."""
    folder = write_quantised(tmp_path / "model", "nvfp4").folder
    change_tensors(folder, first_byte(f"{UP}.weight_scale", 0))
    convert(folder, plan_as_stored(folder), tmp_path / "out", Silent())
    values = StoredWeights(open_weights(tmp_path / "out")).tensor(f"{UP}.weight")
    assert not values[0, :16].any()
    assert values[0, 16:].any()


def zeros(*names: str) -> Callable[[dict[str, Stored]], object]:
    """Return what sets every byte of some tensors to 0."""

    def change(tensors: dict[str, Stored]) -> None:
        tensors |= {name: tensors[name]._replace(data=bytes(len(tensors[name].data))) for name in names}

    return change


def test_a_weight_whose_blocks_all_have_scale_zero_is_lost(tmp_path: Path) -> None:
    """Its codes say that it is not zero, so the scales are; it is named, with what to do."""
    folder = write_quantised(tmp_path / "model", "nvfp4").folder
    change_tensors(folder, zeros(f"{UP}.weight_scale"))
    with pytest.raises(TensorError, match=r"up_proj\.weight_scale is 0 for every block") as caught:
        convert(folder, plan_as_stored(folder), tmp_path / "out", Silent())
    assert "download the model again" in str(caught.value.hint)


def test_a_weight_of_zeros_may_have_scales_of_zero(tmp_path: Path) -> None:
    """A layer that was pruned away holds nothing else, and is read as the zeros that it is."""
    folder = write_quantised(tmp_path / "model", "nvfp4").folder
    change_tensors(folder, zeros(f"{UP}.weight", f"{UP}.weight_scale"))
    convert(folder, plan_as_stored(folder), tmp_path / "out", Silent())
    assert not StoredWeights(open_weights(tmp_path / "out")).tensor(f"{UP}.weight").any()


def with_prediction_layer(folder: Path) -> None:
    """Give a model of two layers a third behind them that predicts, stored as the second is."""
    config = json.loads((folder / "config.json").read_text()) | {"num_nextn_predict_layers": 1}
    (folder / "config.json").write_text(json.dumps(config))

    def add(tensors: dict[str, Stored]) -> None:
        layer = "model.layers.1."
        tensors |= {f"model.layers.2.{name.removeprefix(layer)}": tensors[name] for name in tensors if layer in name}

    change_tensors(folder, add)


@pytest.mark.parametrize(("part", "number"), [("input_scale", NAN), ("weight_scale_2", -1), ("weight_scale", 0)])
def test_scales_of_prediction_layers_are_looked_at_too(tmp_path: Path, part: str, number: float) -> None:
    """They are handed on with the others, and a runtime that drafts would multiply by them."""
    folder = write_quantised(tmp_path / "model", "fp8_block", "deepseek_v3").folder
    with_prediction_layer(folder)
    change_tensors(folder, put(f"model.layers.2.mlp.experts.0.up_proj.{part}", scalar(number)))
    with pytest.raises(TensorError, match=rf"layers\.2\.mlp\.experts\.0\.up_proj\.{part} is \["):
        convert(folder, plan_as_stored(folder), tmp_path / "out", Silent())


OURS: dict[str, dict[str, object]] = {
    "int4_wo": {"weights": "int4_wo"},
    "int4_wo in groups of 64": {"weights": "int4_wo", "group_size": 64},
    "fp8 and nvfp4": {"weights": "mixed", "groups": {"attention": "fp8", "feed_forward": "nvfp4"}},
    "int4_wo and 16 bit": {"weights": "mixed", "groups": {"attention": "bf16", "feed_forward": "int4_wo"}},
}


@pytest.mark.parametrize("asked", OURS.values(), ids=OURS)
def test_what_the_kit_made_is_a_source_that_passes_unchanged(asked: dict[str, Any], tmp_path: Path) -> None:
    """Weights, scales, factors and all three descriptions are the same bytes again, and a comparison finds no loss."""
    plain = write_tiny_model(tmp_path / "plain", **WIDE)
    convert(plain, plan_for(plain, **asked), tmp_path / "once", Silent())
    convert(tmp_path / "once", plan_as_stored(tmp_path / "once"), tmp_path / "twice", Silent())
    names = {"config.json", "hf_quant_config.json", "model.safetensors"}
    if "nvfp4" in str(asked):  # two formats, which older releases read by layer from a file of its own
        names.add("quant_cfg.json")
    for name in names:
        assert (tmp_path / "once" / name).read_bytes() == (tmp_path / "twice" / name).read_bytes()
    report = compare(tmp_path / "once", tmp_path / "twice", held_text(), Silent(), 64)
    assert (1.0, 0.0) == (report.top1_agreement, report.kl_mean)


def hint_for(folder: Path) -> str:
    """Return what a reader of a damaged scale is told to do."""
    change_tensors(folder, put(f"{Q}.weight_scale", scalar(NAN)))
    with pytest.raises(TensorError, match=r"q_proj\.weight_scale is \[nan\]") as caught:
        StoredWeights(open_weights(folder)).tensor(f"{Q}.weight")
    return str(caught.value.hint)


def test_a_scale_is_mended_where_it_came_from(tmp_path: Path) -> None:
    """Who converted it himself converts it again; who passed it through, or has it from elsewhere, downloads it."""
    theirs = write_quantised(tmp_path / "theirs", "fp8").folder
    plain = write_tiny_model(tmp_path / "plain")
    convert(theirs, plan_as_stored(theirs), tmp_path / "passed", Silent())
    convert(plain, plan_for(plain, "fp8"), tmp_path / "made", Silent())
    assert "convert the checkpoint again" == hint_for(tmp_path / "made")
    assert hint_for(tmp_path / "passed").startswith("the scale came with the source checkpoint: download that again")
    assert hint_for(theirs).startswith("download the model again")


def test_a_scale_of_zero_beside_no_codes_is_refused(tmp_path: Path) -> None:
    """Of a prediction layer's input, as a byte of e4m3: no block of zeros makes 0 right there."""
    folder = write_quantised(tmp_path / "model", "fp8_block", "deepseek_v3").folder
    with_prediction_layer(folder)
    scale = "model.layers.2.mlp.experts.0.up_proj.input_scale"
    change_tensors(folder, put(scale, Stored("F8_E4M3", (), bytes(1))))
    with pytest.raises(TensorError, match=r"up_proj\.input_scale is \[0\]"):
        convert(folder, plan_as_stored(folder), tmp_path / "out", Silent())


def test_nan_among_the_codes_is_found_while_they_are_copied(tmp_path: Path) -> None:
    """e4m3 has no infinity, and one NaN of either sign; nothing is left behind."""
    folder = write_quantised(tmp_path / "model", "fp8").folder
    for code in (0x7F, 0xFF):
        change_tensors(folder, first_byte(f"{Q}.weight", code))
        with pytest.raises(TensorError, match=r"q_proj\.weight holds NaN"):
            convert(folder, plan_as_stored(folder), tmp_path / "out", Silent())
    assert not (tmp_path / "out").exists()


def test_another_configuration_of_the_same_tensors_is_another_checkpoint(tmp_path: Path) -> None:
    """Key and bytes agree: what stands in ModelOpt's file is part of both; a second run of the same does nothing."""
    folder = write_quantised(tmp_path / "model", "fp8").folder
    first = convert(folder, plan_as_stored(folder), tmp_path / "one", Silent())
    assert convert(folder, plan_as_stored(folder), tmp_path / "one", Silent()).up_to_date
    file = folder / "hf_quant_config.json"
    file.write_text(file.read_text().replace("0.33.0", "0.37.0"))
    assert first.manifest.key != convert(folder, plan_as_stored(folder), tmp_path / "two", Silent()).manifest.key


def test_a_source_whose_configuration_changed_since_the_plan_is_refused(tmp_path: Path) -> None:
    """Other formats in ModelOpt's file are another model."""
    folder = write_quantised(tmp_path / "model", "fp8").folder
    plan = plan_as_stored(folder)
    file = folder / "hf_quant_config.json"
    file.write_text(file.read_text().replace('"lm_head"', '"lm_head", "*.o_proj"'))
    with pytest.raises((PlanDrift, TensorError)) as caught:
        convert(folder, plan, tmp_path / "out", Silent())
    assert isinstance(caught.value, KitError)


def test_pickles_are_refused_with_advice(tmp_path: Path) -> None:
    """A quantised folder of .bin files runs code when it is read."""
    folder = write_quantised(tmp_path / "model", "fp8").folder
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(KitError, match="only as pickles") as caught:
        conversion_steps(folder, plan_as_stored(folder))
    assert re.search("safe_serialization", str(caught.value.hint))
