"""What the builder of engines makes of its options."""

from __future__ import annotations

from trtllm_kit.upstream.builder import fp8_attention_capability


def test_fp8_attention_of_a_built_engine_begins_with_ada() -> None:
    """Compute capability 8.9 is the first with kernels that read an FP8 KV cache, in every release with a builder."""
    assert {89} == {fp8_attention_capability(version) for version in ("0.12.0", "0.17.0", "1.2.1", "1.3.0rc20")}
    assert 0 == fp8_attention_capability("main")
