"""Comparing two checkpoints of one model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.checkpoint.test_check import tensors_of
from tests.support.tiny_model import write_safetensors, write_tiny_model
from trtllm_kit.checkpoint.evaluate import compare, cosines, held_text
from trtllm_kit.checkpoint.load import load_reference, load_tokenizer
from trtllm_kit.checkpoint.reader import open_weights
from trtllm_kit.errors import CalibrationError, QualityGateFailed
from trtllm_kit.progress import Silent


def test_a_checkpoint_compared_with_itself_has_lost_nothing(tmp_path: Path) -> None:
    """Cosine and agreement are one, and both perplexities are equal."""
    folder = write_tiny_model(tmp_path)
    same = compare(folder, folder, held_text(), Silent(), most_tokens=128)
    assert 128 == same.tokens
    assert 1.0 == same.top1_agreement
    assert same.logit_cosine == pytest.approx(1.0, abs=1e-6)
    assert same.perplexity_source == same.perplexity_converted


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
    assert compare(folder, folder, text, Silent()).perplexity_source == pytest.approx(expected, rel=1e-4)


def test_a_text_of_one_token_is_refused(tmp_path: Path) -> None:
    """There is no next token to be surprised by."""
    folder = write_tiny_model(tmp_path)
    with pytest.raises(CalibrationError, match="too short"):
        compare(folder, folder, "a", Silent())


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
    with pytest.raises(CalibrationError, match="the source of the comparison gives logits that are not finite"):
        compare(broken, sound, held_text(), Silent(), most_tokens=32)


def test_rows_of_zeros_have_a_cosine() -> None:
    """Equal ones count as equal, an answer that was lost counts as lost; 0/0 would be null in the manifest."""
    rows = np.array([[3.0, 4.0], [0.0, 0.0], [1.0, 0.0], [0.0, 0.0]], np.float32)
    other = np.array([[4.0, 3.0], [0.0, 0.0], [0.0, 0.0], [2.0, 0.0]], np.float32)
    assert pytest.approx([0.96, 1.0, 0.0, 0.0]) == cosines(rows, other).tolist()


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
