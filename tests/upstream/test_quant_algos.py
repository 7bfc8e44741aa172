"""What releases call the formats, by layout."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
import yaml

from trtllm_kit.spec.profile_formats import KvFormat, PartFormat
from trtllm_kit.upstream.quant_algos import MIXED_PRECISION, Layout, kv_algo, quant_algo
from trtllm_kit.upstream.quant_methods import quant_method

LAYOUTS: tuple[Layout, ...] = get_args(Layout)
QUANTISED = [name for name in get_args(PartFormat) if name != "bf16"]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", QUANTISED)
def test_every_format_has_a_word_that_upstream_knows(shared: Path, name: str, layout: Layout) -> None:
    """The word is one of QuantAlgo's of 1.2 or main, or of ModelOpt's."""
    contract = yaml.safe_load((shared / "contract" / "llmapi-contract.yaml").read_text("utf-8"))["quant"]
    known = {*contract["trtllm_quantalgo_1_2"], *contract["trtllm_main_adds"], "W8A8_SQ_PER_CHANNEL"}
    assert quant_algo(name, layout, "main").algo in known
    assert MIXED_PRECISION in known


@pytest.mark.parametrize(
    ("name", "layout", "version", "held"),
    [
        ("fp8", "unified_hf", "1.0.0", True),
        ("fp8", "tensorrt_llm", "0.12.0", True),
        ("fp8", "tensorrt_llm", "main", False),
        ("nvfp4", "tensorrt_llm", "0.16.0", False),
        ("nvfp4", "tensorrt_llm", "0.17.0", True),
        ("fp8_block", "tensorrt_llm", "0.18.2", False),
        ("mxfp8", "unified_hf", "1.2.1", False),
        ("mxfp8", "unified_hf", "main", True),
        ("mxfp8", "tensorrt_llm", "1.2.1", False),
        ("int8_sq", "unified_hf", "1.2.1", False),
        ("int8_sq", "tensorrt_llm", "1.2.1", True),
    ],
)
def test_a_word_belongs_to_releases(name: str, layout: Layout, version: str, held: bool) -> None:
    """Outside them the word is still given, and said not to be the release's."""
    assert held == quant_algo(name, layout, version).in_release


def test_int4_without_awq_is_called_what_modelopt_calls_it() -> None:
    """ModelOpt exports block-wise int4 under AWQ's word; engines have a word of their own."""
    words = [quant_algo("int4_wo", layout, "1.2.1").algo for layout in LAYOUTS]
    assert ["W4A16_AWQ", "W4A16"] == words


def test_16_bit_has_no_word() -> None:
    """Plain weights are not described."""
    with pytest.raises(KeyError):
        quant_algo("bf16", "unified_hf", "1.2.1")
    assert [None, "FP8", "INT8", "NVFP4"] == [kv_algo(name) for name in get_args(KvFormat)]


def test_methods_of_quantised_checkpoints_say_what_else_to_do() -> None:
    """Each known method has its way, and an unknown one none."""
    methods = ("awq", "gptq", "bitsandbytes", "compressed-tensors", "modelopt", "fp8")
    found = {name: quant_method(name) for name in methods}
    assert all(row is not None and "." not in row.instead[-1] for row in found.values())
    assert quant_method("zip") is None
