"""Who makes the weights of a plan: trtkit, or NVIDIA ModelOpt."""

from __future__ import annotations

import pytest

from trtllm_kit.plan.formats import Formats
from trtllm_kit.plan.quantization import maker_of, not_made_here

MIXED = Formats("mixed", groups={"attention": "fp8", "feed_forward": "int4_awq", "experts": "bf16"})
ALONE = Formats("mixed", groups={"attention": "bf16", "feed_forward": "int4_awq", "experts": "bf16"})


@pytest.mark.parametrize(
    ("formats", "backend", "layout", "maker"),
    [
        (Formats("fp8", "fp8"), "auto", "unified_hf", "native"),
        (Formats("fp8", "fp8"), "modelopt", "unified_hf", "modelopt"),
        (Formats("nvfp4"), "modelopt", "unified_hf", "modelopt"),
        (Formats("int4_awq"), "auto", "unified_hf", "modelopt"),
        (Formats("int8_sq"), "auto", "unified_hf", "modelopt"),
        (Formats("int4_awq"), "native", "unified_hf", "native"),
        (Formats("int4_awq"), "auto", "tensorrt_llm", "modelopt"),
        (Formats("int4_awq"), "native", "tensorrt_llm", "native"),
        (Formats("fp8"), "modelopt", "tensorrt_llm", "native"),
        (Formats("fp8_rowwise"), "modelopt", "unified_hf", "native"),
        (Formats("bf16"), "modelopt", "unified_hf", "native"),
        (MIXED, "auto", "unified_hf", "native"),
        (MIXED, "modelopt", "unified_hf", "native"),
        (ALONE, "auto", "unified_hf", "modelopt"),
    ],
)
def test_trtkit_makes_what_it_can_unless_modelopt_is_asked_for(
    formats: Formats, backend: str, layout: str, maker: str
) -> None:
    """The formats that are searched go to ModelOpt, one at a time; the others where the profile says."""
    assert maker == maker_of(formats, backend, layout)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("formats", "maker", "lacking"),
    [
        (Formats("int4_awq"), "modelopt", {}),
        (Formats("int4_awq"), "native", {"weights": ("int4_awq",)}),
        (MIXED, "native", {"weights": ("int4_awq",)}),
        (Formats("w4a8_awq", "int8"), "modelopt", {"kv_cache": ("int8",)}),
    ],
)
def test_what_neither_makes_is_named(formats: Formats, maker: str, lacking: dict[str, tuple[str, ...]]) -> None:
    """A format is lacking where its maker does not write it."""
    assert lacking == not_made_here(formats, maker)  # type: ignore[arg-type]
