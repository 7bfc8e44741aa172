"""The keys that carry decisions, and attention windows."""

from __future__ import annotations

from tests.support.specs import hardware, llama_8b, maverick, profile
from trtllm_kit.plan.llm_keys import LLM_API_KEYS, attention_windows
from trtllm_kit.plan.settle import settle
from trtllm_kit.spec.model import Attention, Layer
from trtllm_kit.upstream.llm_api import llm_api_key


def test_every_key_belongs_to_a_decision_and_to_1_2_1() -> None:
    """The map has no stale name on either side."""
    decisions = dict(settle(llama_8b(), profile(), hardware()).decisions())
    assert set(LLM_API_KEYS) <= set(decisions)
    assert all(llm_api_key("1.2.1", key) for key in LLM_API_KEYS.values())


def test_windows_are_told_when_shorter_than_a_sequence() -> None:
    """One number when all layers agree; none when no window is shorter."""
    attention = Attention(kind="sliding", heads=32, kv_heads=8, head_dim=128, window=1024)
    slide = Layer(mixer=attention, feed_forward=llama_8b().layers[0].feed_forward)
    model = llama_8b().model_copy(update={"layers": (slide,) * 4})
    mixed = model.model_copy(update={"layers": (slide, llama_8b().layers[0])})
    assert (1024,) == attention_windows(model, 4096)
    assert () == attention_windows(model, 1024)
    assert (1024, 4096) == attention_windows(mixed, 4096)


def test_a_window_longer_than_a_sequence_is_cut_to_it() -> None:
    """Layers that keep everything are told the sequence's length, whatever their own window."""
    attention = Attention(kind="sliding", heads=32, kv_heads=8, head_dim=128, window=1024)
    block = llama_8b().layers[0].feed_forward
    wide = attention.model_copy(update={"window": 9000})
    layers = (Layer(mixer=attention, feed_forward=block), Layer(mixer=wide, feed_forward=block))
    assert (1024, 4096) == attention_windows(llama_8b().model_copy(update={"layers": layers}), 4096)


def test_chunked_attention_sets_no_window() -> None:
    """A chunk is no sliding window: telling the runtime so would cut what full layers see."""
    assert () == attention_windows(maverick(), 1_000_000)
