"""What an engine's checkpoint cannot be is told before a weight is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checkpoint.ranks import rank_plan
from tests.support.tiny_model import write_tiny_model
from trtllm_kit.checkpoint.convert import convert
from trtllm_kit.errors import FormatNotMade
from trtllm_kit.progress import Silent


def test_everything_is_told_at_once_and_nothing_is_written(tmp_path: Path) -> None:
    """Two problems make one error that lists both, and no folder."""
    source = write_tiny_model(tmp_path / "source", "llama", num_hidden_layers=3)
    plan = rank_plan(source, 1, 2, release="0.16.0", weights="nvfp4")
    with pytest.raises(FormatNotMade) as caught:
        convert(source, plan, tmp_path / "out", Silent())
    assert "2 problems" in caught.value.what
    assert "3 layers" in caught.value.why
    assert "nvfp4" in caught.value.why
    assert not (tmp_path / "out").exists()


def test_a_cut_block_of_scales_is_refused_before_the_first_byte(tmp_path: Path) -> None:
    """88 columns a rank hold five and a half blocks of NVFP4: an error by name, and no folder."""
    source = write_tiny_model(tmp_path / "source", "llama", intermediate_size=176)
    with pytest.raises(FormatNotMade, match="down_proj") as caught:
        convert(source, rank_plan(source, 2, weights="nvfp4"), tmp_path / "out", Silent())
    assert "176 input features / 2 ranks is no multiple of 16" == caught.value.why
    assert not (tmp_path / "out").exists()
