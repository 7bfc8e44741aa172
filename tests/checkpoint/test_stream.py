"""Texts run layer by layer: what memory holds, and that nothing else changes."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

from tests.support.quantised import write_quantised
from tests.support.tiny_model import FAMILIES, write_tiny_model
from trtllm_kit.checkpoint import evaluate, states, stream
from trtllm_kit.checkpoint.evaluate import compare_pieces
from trtllm_kit.checkpoint.load import open_checkpoint
from trtllm_kit.checkpoint.states import States, Stretch
from trtllm_kit.checkpoint.stream import batches, run_layers
from trtllm_kit.dtypes import F32
from trtllm_kit.errors import StorageError
from trtllm_kit.progress import Silent
from trtllm_kit.reference import streamed
from trtllm_kit.reference.layer_reader import Weights
from trtllm_kit.reference.model import Head, ReferenceModel

PIECES = [np.random.default_rng(1).integers(0, 272, size=count) for count in (20, 9, 20)]


class Watched:
    """Weights that keep the most elements of a matrix that were given out at once, and when the first were."""

    def __init__(self, weights: Weights, told: list[str] | None = None) -> None:
        """Stand before some weights."""
        self._weights = weights
        self.most = 0
        self.told = [] if told is None else told

    def __getattr__(self, name: str) -> object:
        """Hand on what is not watched."""
        return getattr(self._weights, name)

    def tensor(self, name: str) -> F32:
        """Return a whole tensor."""
        return self._seen(self._weights.tensor(name))

    def rows(self, name: str, begin: int, end: int) -> F32:
        """Return a part."""
        return self._seen(self._weights.rows(name, begin, end))

    def stack_rows(self, name: str, index: int, begin: int, end: int) -> F32:
        """Return a part of one matrix of a stack."""
        return self._seen(self._weights.stack_rows(name, index, begin, end))

    def _seen(self, values: F32) -> F32:
        self.told.append("read")
        self.most = max(self.most, values.size if values.ndim > 1 else 0)
        return values


@pytest.mark.parametrize("family", FAMILIES)
def test_states_are_those_of_the_loaded_model(family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces that go through together, some of them cut in two, give the logits that each gives alone."""
    opened = open_checkpoint(write_tiny_model(tmp_path, family))
    monkeypatch.setattr(stream, "_ELEMENTS", 17 * stream.most_width(opened.model))
    monkeypatch.setattr(streamed, "BLOCK_ELEMENTS", 64 * 16)
    found = run_layers(opened, PIECES, Silent(), "test")
    model, head = ReferenceModel(opened.model, opened.weights, opened.kv_format), Head(opened.model, opened.weights)
    for piece, state in zip(PIECES, found, strict=True):
        np.testing.assert_allclose(model.forward(piece, model.new_cache()), head(state), atol=2e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_no_matrix_is_ever_read_whole(family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for the layers, nor the embedding, nor the head, nor an expert of a stack: never more than a block."""
    monkeypatch.setattr(streamed, "BLOCK_ELEMENTS", 64 * 16)
    opened = open_checkpoint(write_tiny_model(tmp_path, family))
    watched = Watched(opened.weights)
    seen = replace(opened, weights=watched)  # type: ignore[arg-type]
    compare_pieces(seen, seen, PIECES, Silent())
    assert 0 < watched.most <= 64 * 16


def test_of_a_stack_in_mxfp4_one_expert_is_read_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs come first there, so that some inputs are in all of an expert: one is the most that is held."""
    monkeypatch.setattr(streamed, "BLOCK_ELEMENTS", 64 * 16)
    opened = open_checkpoint(write_quantised(tmp_path, "mxfp4", "gpt_oss").folder)
    experts, inputs, outputs = opened.weights.shape("model.layers.0.mlp.experts.gate_up_proj")
    watched = Watched(opened.weights)
    run_layers(replace(opened, weights=watched), PIECES, Silent(), "test")  # type: ignore[arg-type]
    assert experts > 1
    assert inputs * outputs == watched.most


def test_progress_begins_before_the_first_reading(tmp_path: Path) -> None:
    """What takes long is told of before it is done."""
    opened, told = open_checkpoint(write_tiny_model(tmp_path)), list[str]()

    class Telling(Silent):
        def start(self, label: str, total: float, unit: str) -> None:
            """Keep the label."""
            del total, unit
            told.append(label)

    seen = replace(opened, weights=Watched(opened.weights, told))  # type: ignore[arg-type]
    run_layers(seen, PIECES, Telling(), "test")
    assert "test" == told[0]
    told.clear()
    compare_pieces(seen, seen, PIECES, Telling())
    assert "comparing layer by layer" == told[0]


def test_batches_are_full_but_for_the_last() -> None:
    """Pieces of 20, 9 and 20 tokens in batches of 17: the third piece is cut twice, and no token is lost."""
    found = batches(PIECES, 17)
    assert [17, 17, 15] == [sum(map(len, batch)) for batch in found]
    assert [Stretch(0, 17, 20), Stretch(1, 0, 9), Stretch(2, 0, 5)] == found[1]
    tokens = np.concatenate([PIECES[one.piece][one.begin : one.end] for batch in found for one in batch])
    assert np.array_equal(np.concatenate(PIECES), tokens)
    assert [] == batches([np.zeros(0, np.int64)], 17)


def test_figures_do_not_depend_on_how_much_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of a few tokens and logits of a few positions give the report of one batch for all."""
    a, b = (open_checkpoint(write_tiny_model(tmp_path / str(seed), seed=seed)) for seed in (0, 9))
    at_once = compare_pieces(a, b, PIECES, Silent())
    monkeypatch.setattr(stream, "_ELEMENTS", 11 * stream.most_width(a.model))
    monkeypatch.setattr(evaluate, "_LOGITS", 7 * 272)
    apart = compare_pieces(a, b, PIECES, Silent())
    assert at_once.tokens == apart.tokens == 49
    for name in ("logit_cosine", "lowest_cosine", "top1_agreement", "kl_mean", "perplexity_source"):
        assert getattr(at_once, name) == pytest.approx(getattr(apart, name), rel=1e-4), name
    assert [one.error for one in at_once.layers] == pytest.approx([one.error for one in apart.layers], rel=1e-4)


@pytest.mark.parametrize("held", [4 * 8 * 12, 4 * 8 * 12 - 1])
def test_states_come_back_from_memory_and_from_a_file(
    held: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was put in parts is read whole, where memory just holds it and where it is a byte short of that."""
    monkeypatch.setattr(states, "_HELD_BYTES", held)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    values = np.random.default_rng(2).standard_normal((12, 8)).astype(np.float32)
    kept = States([5, 7], 8)
    for begin, end in ((0, 4), (4, 9), (9, 12)):
        every = [Stretch(0, 0, 5), Stretch(1, 0, 7)]
        first = [0, 5]
        inside = [
            Stretch(one.piece, max(begin - at, 0), min(end - at, one.end))
            for one, at in zip(every, first, strict=True)
            if max(begin - at, 0) < min(end - at, one.end)
        ]
        kept.put(inside, values[begin:end])
    assert [5, 7] == [len(state) for state in kept]
    assert np.array_equal(values, np.concatenate(list(kept)))
    with pytest.raises(IndexError):
        kept[2]


def test_states_in_a_file_leave_none_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no name from the beginning, so that a killed run leaves nothing either."""
    monkeypatch.setattr(states, "_HELD_BYTES", 0)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    kept = States([5], 8)
    kept.put([Stretch(0, 0, 5)], np.ones((5, 8), np.float32))
    assert not isinstance(kept._file, BytesIO)
    assert [] == list(tmp_path.iterdir())
    assert 40 == kept[0].sum()


def test_states_that_a_disk_has_no_room_for_are_refused_before_the_first_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both numbers are told, and how another folder is given."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    with pytest.raises(StorageError, match="no room for the states of the texts in") as caught:
        States([1 << 40], 1 << 20)
    assert str(tmp_path) in caught.value.what
    assert caught.value.why.startswith("4,194,304.00 TiB needed, ")
    assert "TMPDIR" in str(caught.value.hint)


def test_states_without_any_folder_to_lie_in_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a process may write nowhere, that is what it is told, with what names a folder."""

    def nowhere() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(states, "_HELD_BYTES", 0)
    monkeypatch.setattr(states, "_LASTING", "/nowhere")
    monkeypatch.setattr(tempfile, "gettempdir", nowhere)
    with pytest.raises(StorageError, match="TMPDIR names the folder"):
        States([5], 8)


def test_a_full_disk_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """What names its folder is told, so that another one can be given."""

    class Full:
        def seek(self, place: int) -> None:
            """Go anywhere."""

        def write(self, raw: object) -> None:
            """Fail as a disk does."""
            raise OSError(28, "No space left on device")

    kept = States([5], 8)
    monkeypatch.setattr(kept, "_file", Full())
    with pytest.raises(StorageError, match="keeping the states of the texts"):
        kept.put([Stretch(0, 0, 5)], np.zeros((5, 8), np.float32))
