"""The whole model: chunks, caches, formats and bad tokens; its numbers are checked in ``test_oracle``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.tiny_model import FAMILIES, write_tiny_model
from trtllm_kit.checkpoint.load import load_reference
from trtllm_kit.errors import UsageError
from trtllm_kit.reference import model as reference_model
from trtllm_kit.reference.model import ReferenceModel

TOKENS = np.random.default_rng(0).integers(0, 272, size=40)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> ReferenceModel:
    """A random two-layer Llama."""
    return load_reference(write_tiny_model(tmp_path_factory.mktemp("llama")))


@pytest.mark.parametrize("family", FAMILIES)
def test_token_by_token_gives_the_logits_of_the_whole_prompt(family: str, tmp_path: Path) -> None:
    """The cache of every family holds all that later tokens need."""
    model = load_reference(write_tiny_model(tmp_path, family))
    cache = model.new_cache()
    steps = np.concatenate([model.forward([int(token)], cache) for token in TOKENS])
    np.testing.assert_allclose(model.forward(TOKENS, model.new_cache()), steps, atol=1e-4)
    assert 40 == cache.length


def test_a_prompt_longer_than_a_chunk_gives_the_same_logits(
    llama: ReferenceModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks bound memory and change nothing else."""
    whole = llama.forward(TOKENS, llama.new_cache())
    monkeypatch.setattr(reference_model, "_CHUNK", 7)
    np.testing.assert_allclose(whole, llama.forward(TOKENS, llama.new_cache()), atol=1e-5)


def test_last_only_is_the_last_row(llama: ReferenceModel) -> None:
    """A prompt needs the logits of its last token alone."""
    last = llama.forward(TOKENS, llama.new_cache(), last_only=True)
    assert (1, 272) == last.shape
    np.testing.assert_allclose(llama.forward(TOKENS, llama.new_cache())[-1:], last, atol=1e-5)


def test_two_sequences_do_not_see_each_other(llama: ReferenceModel) -> None:
    """Each cache is one sequence."""
    first, second = llama.new_cache(), llama.new_cache()
    llama.forward(TOKENS[:20], first)
    llama.forward(TOKENS[20:], second)
    alone = llama.new_cache()
    llama.forward(TOKENS[:20], alone)
    np.testing.assert_array_equal(llama.forward([5], alone), llama.forward([5], first))


@pytest.mark.parametrize("token", [-1, 272])
def test_a_token_outside_the_vocabulary_is_refused(llama: ReferenceModel, token: int) -> None:
    """The message says which ids exist, and the cache stays as it was."""
    cache = llama.new_cache()
    with pytest.raises(UsageError, match="0 to 271"):
        llama.forward([3, token], cache)
    assert 0 == cache.length


def test_the_observer_hears_of_every_linear_and_of_both_caches(llama: ReferenceModel) -> None:
    """Seven linears and two caches a layer."""
    seen: set[str] = set()
    llama.forward([1, 2], llama.new_cache(), observe=lambda name, values: seen.add(name))
    assert 18 == len(seen)
    assert {"model.layers.0.mlp.down_proj", "model.layers.1.self_attn.k_cache"} <= seen
