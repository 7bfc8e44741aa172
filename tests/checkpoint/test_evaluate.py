"""Comparing two checkpoints of one model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.checkpoint.plans import plan_for
from tests.checkpoint.ranks import rank_plan
from tests.checkpoint.test_check import rewrite, tensors_of
from tests.support.tiny_model import write_safetensors, write_tiny_model
from trtllm_kit.checkpoint.convert import convert
from trtllm_kit.checkpoint.evaluate import compare, compare_pieces, report_of
from trtllm_kit.checkpoint.load import load_reference, load_tokenizer, open_checkpoint
from trtllm_kit.checkpoint.loss import weakest
from trtllm_kit.checkpoint.reader import open_weights
from trtllm_kit.checkpoint.text import Text, held_text
from trtllm_kit.errors import CalibrationError, NotComparable, QualityGateFailed
from trtllm_kit.progress import Silent


def test_a_checkpoint_compared_with_itself_has_lost_nothing(tmp_path: Path) -> None:
    """Cosine and agreement are one, both perplexities are equal, and nothing diverges in any layer."""
    folder = write_tiny_model(tmp_path)
    same = compare(folder, folder, held_text(), Silent(), most_tokens=128)
    assert 128 == same.tokens
    assert 1.0 == same.top1_agreement
    assert same.logit_cosine == pytest.approx(1.0, abs=1e-6)
    assert same.perplexity_source == same.perplexity_converted
    assert (0.0, 0.0) == (same.kl_mean, same.kl_p99)
    assert [(0.0, 0.0)] * 2 == [(one.error, one.state_error) for one in same.layers]
    assert [] == same.facts()["weakest_layers"]


def test_another_model_agrees_by_chance_alone(tmp_path: Path) -> None:
    """Two random models have little in common."""
    other = compare(
        write_tiny_model(tmp_path / "a"), write_tiny_model(tmp_path / "b", seed=9), held_text(), Silent(), 128
    )
    assert other.logit_cosine < 0.5
    assert other.top1_agreement < 0.2


def test_perplexity_is_the_exponential_of_the_mean_loss(tmp_path: Path) -> None:
    """Worked out here in float64 from the logits."""
    folder = write_tiny_model(tmp_path)
    text = "the man in the tin and the end"
    ids = load_tokenizer(folder).encode(text).ids
    model = load_reference(folder)
    logits = model.forward(ids, model.new_cache()).astype(np.float64)
    odds = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    expected = np.exp(-np.mean([np.log(odds[at, token]) for at, token in enumerate(ids[1:])]))
    assert compare(folder, folder, Text(text), Silent()).perplexity_source == pytest.approx(expected, rel=1e-4)


def test_a_text_of_one_token_is_refused(tmp_path: Path) -> None:
    """There is no next token to be surprised by."""
    folder = write_tiny_model(tmp_path)
    with pytest.raises(CalibrationError, match="too short"):
        compare(folder, folder, Text("a"), Silent())


def test_a_checkpoint_that_gives_nan_is_refused(tmp_path: Path) -> None:
    """A comparison with NaN would read as neither good nor bad."""
    sound = write_tiny_model(tmp_path / "a")
    broken = write_tiny_model(tmp_path / "b")
    tensor = open_weights(broken).tensors["model.norm.weight"]
    data = bytearray(tensor.file.read_bytes())
    data[tensor.begin : tensor.begin + 2] = b"\xc0\x7f"
    tensor.file.write_bytes(data)
    with pytest.raises(QualityGateFailed, match="the converted checkpoint gives logits that are not finite"):
        compare(sound, broken, held_text(), Silent(), most_tokens=32)
    spoil = open_weights(broken).tensors["model.layers.1.mlp.up_proj.weight"]
    data[spoil.begin : spoil.begin + 2] = b"\xc0\x7f"
    tensor.file.write_bytes(data)
    with pytest.raises(QualityGateFailed, match="layer 1 is the first that gives none"):
        compare(sound, broken, held_text(), Silent(), most_tokens=32)
    with pytest.raises(CalibrationError, match="the source of the comparison gives logits that are not finite"):
        compare(broken, sound, held_text(), Silent(), most_tokens=32)


def test_a_source_of_zeros_is_refused(tmp_path: Path) -> None:
    """A file that was allocated and never filled answers nothing, and a comparison with nothing says nothing."""
    sound = write_tiny_model(tmp_path / "a")
    zeros = write_tiny_model(tmp_path / "b")
    write_safetensors(zeros / "model.safetensors", {n: v * 0 for n, v in tensors_of(sound).items()})
    with pytest.raises(CalibrationError, match="logits that are all zero"):
        compare(zeros, zeros, held_text(), Silent(), most_tokens=32)
    assert 0.0 == compare(sound, zeros, held_text(), Silent(), most_tokens=32).logit_cosine


def test_a_token_the_model_does_not_have_is_no_usage_error(tmp_path: Path) -> None:
    """The tokenizer of another model is an input that cannot be used."""
    small = write_tiny_model(tmp_path, vocab_size=200)
    with pytest.raises(CalibrationError, match=r"which the model does not have[\s\S]*run from 0 to 199"):
        compare(small, small, held_text(), Silent(), most_tokens=64)


def test_divergence_and_agreement_are_those_of_the_whole_models(tmp_path: Path) -> None:
    """Worked out here in float64 from the logits of two loaded models, one of which has a rougher head."""
    a = write_tiny_model(tmp_path / "a")
    b = write_tiny_model(tmp_path / "b")
    rewrite(b, **{"lm_head.weight": tensors_of(a)["lm_head.weight"] * 0.8})
    text = "the man in the tin and the end of the thin then"
    ids = load_tokenizer(a).encode(text).ids
    logits = []
    for folder in (a, b):
        model = load_reference(folder)
        logits.append(model.forward(ids, model.new_cache()).astype(np.float64))
    odds = [np.exp(one) / np.exp(one).sum(axis=-1, keepdims=True) for one in logits]
    expected = (odds[0] * np.log(odds[0] / odds[1])).sum(axis=-1)
    report = compare(a, b, Text(text), Silent())
    assert expected.mean() == pytest.approx(report.kl_mean, rel=1e-4)
    assert expected.max() == pytest.approx(report.kl_p99, rel=1e-4)
    assert (logits[0].argmax(-1) == logits[1].argmax(-1)).mean() == pytest.approx(report.top1_agreement)


@pytest.mark.parametrize("family", ["llama", "qwen3_moe", "gemma2", "deepseek_v3"])
@pytest.mark.parametrize("damaged", [0, 1, 2])
def test_a_damaged_layer_is_named_first(tmp_path: Path, family: str, damaged: int) -> None:
    """Whichever it is: behind it every state is wrong, and its own error alone is not carried on."""
    a = write_tiny_model(tmp_path / "a", family, num_hidden_layers=3)
    b = write_tiny_model(tmp_path / "b", family, num_hidden_layers=3)
    tensors = tensors_of(a)
    name = next(one for one in tensors if one.endswith(f"layers.{damaged}.self_attn.o_proj.weight"))
    rewrite(b, **{name: tensors[name][::-1]})
    report = compare(a, b, held_text(), Silent(), most_tokens=64)
    losses = report.layers
    assert damaged == weakest(losses, 3)[0].layer
    assert [0.0 if number != damaged else losses[damaged].error for number in range(3)] == [one.error for one in losses]
    assert losses[damaged].attention_error > 0.5 > 0.0 == losses[damaged].feed_forward_error
    assert all(one.state_error > 0 for one in losses[damaged:])


def test_a_layer_s_own_error_does_not_see_the_layers_before_it(tmp_path: Path) -> None:
    """A damaged embedding spoils every state, and no layer is blamed for it."""
    a, b = write_tiny_model(tmp_path / "a"), write_tiny_model(tmp_path / "b")
    rewrite(b, **{"model.embed_tokens.weight": tensors_of(a)["model.embed_tokens.weight"] * -1.0})
    report = compare(a, b, held_text(), Silent(), most_tokens=64)
    assert [0.0, 0.0] == [one.error for one in report.layers]
    assert all(one.state_error > 0.1 for one in report.layers)
    assert () == weakest(report.layers, 3)


def test_the_order_of_the_pieces_changes_nothing(tmp_path: Path) -> None:
    """Not even the last bit of a figure."""
    a, b = (open_checkpoint(write_tiny_model(tmp_path / str(seed), seed=seed)) for seed in (0, 9))
    pieces = held_text().first(load_tokenizer(tmp_path / "0"), 160, 32)
    assert 5 == len(pieces)
    forward, backward = (compare_pieces(a, b, order, Silent()) for order in (pieces, pieces[::-1]))
    assert forward == backward


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"num_hidden_layers": 3}, "2 layers in the first, 3 in the second"),
        ({"vocab_size": 280}, "272 tokens of the vocabulary in the first, 280 in the second"),
        ({"hidden_size": 128}, "64 hidden features in the first, 128 in the second"),
    ],
)
def test_two_models_are_not_compared(tmp_path: Path, changed: dict[str, int], named: str) -> None:
    """Figures of two unlike models would say nothing; what differs is told with both numbers."""
    a, b = write_tiny_model(tmp_path / "a"), write_tiny_model(tmp_path / "b", **changed)
    with pytest.raises(NotComparable, match=named) as caught:
        compare(a, b, held_text(), Silent())
    assert 3 == caught.value.exit_code


def test_folders_that_cut_text_into_other_tokens_are_not_compared(tmp_path: Path) -> None:
    """Another order of two words of the tokenizer is refused; another layout of the same file is not."""
    a, b = write_tiny_model(tmp_path / "a"), write_tiny_model(tmp_path / "b")
    document = json.loads((b / "tokenizer.json").read_text("utf-8"))
    (b / "tokenizer.json").write_text(json.dumps(document), "utf-8")
    assert 64 == compare(a, b, held_text(), Silent(), most_tokens=64).tokens
    words = document["model"]["vocab"]
    words["!"], words['"'] = words['"'], words["!"]
    (b / "tokenizer.json").write_text(json.dumps(document), "utf-8")
    with pytest.raises(NotComparable, match="different tokenizers"):
        compare(a, b, held_text(), Silent())


def test_rank_files_of_another_maker_are_refused_by_name(tmp_path: Path) -> None:
    """How they were cut stands nowhere; the refusal says what to compare instead."""
    a = write_tiny_model(tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "config.json").write_text('{"architecture": "LlamaForCausalLM"}')
    (tmp_path / "b" / "rank0.safetensors").touch()
    with pytest.raises(NotComparable, match="is a TensorRT-LLM checkpoint of another maker"):
        compare(a, tmp_path / "b", held_text(), Silent())


def test_rank_files_of_a_conversion_are_put_together_and_compared(tmp_path: Path) -> None:
    """Two tensor ranks and two stages of 16 bit have lost nothing; of FP8 what the unified layout loses, nearly."""
    source = write_tiny_model(tmp_path / "source")
    convert(source, rank_plan(source, tensor=2, pipeline=2), tmp_path / "ranks", Silent())
    assert (tmp_path / "ranks" / "rank3.safetensors").is_file()
    same = compare(source, tmp_path / "ranks", held_text(), Silent(), most_tokens=64)
    assert (0.0, 1.0) == (same.kl_mean, same.top1_agreement)
    convert(source, rank_plan(source, tensor=2, weights="fp8"), tmp_path / "fp8", Silent())
    convert(source, plan_for(source, "fp8"), tmp_path / "unified", Silent())
    lost = [compare(source, tmp_path / name, held_text(), Silent(), 64).kl_mean for name in ("fp8", "unified")]
    assert lost[0] == pytest.approx(lost[1], rel=0.5)


def test_a_report_comes_back_from_a_manifest_with_every_figure(tmp_path: Path) -> None:
    """All but the layers, of which a manifest keeps the worst."""
    a, b = write_tiny_model(tmp_path / "a"), write_tiny_model(tmp_path / "b", seed=9)
    report = compare(a, b, held_text(), Silent(), most_tokens=32)
    facts = json.loads(json.dumps(report.facts()))
    assert replace(report, layers=()) == report_of(facts)
    assert [one.layer for one in weakest(report.layers, 3)] == [one["layer"] for one in facts["weakest_layers"]]
