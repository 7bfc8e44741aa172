"""The quality gate: what passes, what does not, and what the operator is told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.checkpoint.plans import plan_for
from tests.checkpoint.test_check import rewrite, tensors_of
from tests.support.tiny_model import write_tiny_model
from trtllm_kit.checkpoint.convert import convert
from trtllm_kit.checkpoint.evaluate import Comparison
from trtllm_kit.checkpoint.gate import require_quality
from trtllm_kit.errors import CalibrationError, QualityGateFailed
from trtllm_kit.progress import Silent

AT_THE_FLOORS = Comparison(
    tokens=768,
    logit_cosine=0.9,
    lowest_cosine=-0.5,
    top1_agreement=0.5,
    perplexity_source=20.0,
    perplexity_converted=30.0,
)


def test_a_report_at_every_floor_passes() -> None:
    """The floors are part of what is allowed, and the worst position has none."""
    require_quality(AT_THE_FLOORS)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"logit_cosine": 0.899}, r"mean logit cosine 0\.8990 \(at least 0\.9\)"),
        ({"top1_agreement": 0.499}, r"top-1 agreement 0\.4990 \(at least 0\.5\)"),
        ({"perplexity_converted": 30.1}, r"perplexity 30\.1 of 20, 1\.505 times \(at most 1\.5\)"),
        ({"logit_cosine": float("nan")}, "mean logit cosine nan"),
        ({"lowest_cosine": float("nan")}, "not every figure is finite"),
        ({"perplexity_converted": float("inf")}, "perplexity inf of 20"),
        ({"perplexity_source": float("inf"), "perplexity_converted": float("inf")}, "perplexity inf of inf"),
    ],
)
def test_a_report_below_a_floor_is_refused_with_its_figures(change: dict[str, float], words: str) -> None:
    """What failed stands in the first line, what was measured in the second, what helps in the third."""
    with pytest.raises(QualityGateFailed, match=words) as caught:
        require_quality(replace(AT_THE_FLOORS, **change))
    assert 1 == caught.value.exit_code
    assert "768 tokens" in caught.value.why
    assert "quantization.exclude" in caught.value.hint
    assert 3 == len(str(caught.value).splitlines())


def spoil(source: Path) -> Path:
    """Give matrices an outlier whose effect the next matrix cancels: the model is the same, its FP8 form is not."""
    tensors = tensors_of(source)
    changed: dict[str, np.ndarray] = {}
    for layer in range(2):
        base = f"model.layers.{layer}."
        up, down = tensors[f"{base}mlp.up_proj.weight"], tensors[f"{base}mlp.down_proj.weight"]
        value, out = tensors[f"{base}self_attn.v_proj.weight"], tensors[f"{base}self_attn.o_proj.weight"]
        up[0], down[:, 0] = 1e6, 0.0
        value[0], out[:, [0, 16]] = 1e6, 0.0
        changed |= {f"{base}mlp.up_proj.weight": up, f"{base}mlp.down_proj.weight": down}
        changed |= {f"{base}self_attn.v_proj.weight": value, f"{base}self_attn.o_proj.weight": out}
    return rewrite(source, **changed)


def test_a_conversion_that_loses_too_much_is_not_published(tmp_path: Path) -> None:
    """One outlier a matrix flushes the rest of it to zero; the older checkpoint stays, and nothing else is left."""
    source = write_tiny_model(tmp_path / "source")
    convert(source, plan_for(source, "fp8"), tmp_path / "out", Silent())
    before = (tmp_path / "out" / "model.safetensors").read_bytes()
    spoil(source)
    with pytest.raises(QualityGateFailed, match="lost too much"):
        convert(source, plan_for(source, "fp8"), tmp_path / "out", Silent())
    assert before == (tmp_path / "out" / "model.safetensors").read_bytes()
    assert ["out", "source"] == sorted(path.name for path in tmp_path.iterdir())
    convert(source, plan_for(source, "bf16"), tmp_path / "plain", Silent())


def test_a_model_of_zeros_is_refused(tmp_path: Path) -> None:
    """A download that was allocated and never filled has sound headers; its report would be null or perfect."""
    source = write_tiny_model(tmp_path / "source")
    rewrite(source, **{name: values * 0 for name, values in tensors_of(source).items()})
    with pytest.raises(CalibrationError, match="all zero"):
        convert(source, plan_for(source, "fp8", "fp8"), tmp_path / "out", Silent())
    assert ["source"] == [path.name for path in tmp_path.iterdir()]
