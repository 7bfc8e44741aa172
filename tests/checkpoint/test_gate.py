"""The quality gate: what passes, what does not, and what the operator is told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.checkpoint.plans import plan_for
from tests.checkpoint.test_check import rewrite, tensors_of
from tests.support.tiny_model import write_tiny_model
from trtllm_kit.checkpoint.convert import Terms, convert
from trtllm_kit.checkpoint.evaluate import Comparison
from trtllm_kit.checkpoint.gate import judge, require_quality
from trtllm_kit.checkpoint.loss import LayerLoss, weakest
from trtllm_kit.errors import CalibrationError, QualityGateFailed
from trtllm_kit.progress import Silent
from trtllm_kit.spec.quality import Quality

AT_THE_FLOORS = Comparison(
    tokens=768,
    logit_cosine=0.9,
    lowest_cosine=-0.5,
    top1_agreement=0.5,
    kl_mean=0.25,
    kl_p99=2.0,
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
        ({"perplexity_converted": 30.1}, r"perplexity 30\.1 of 20, 1\.5050 times \(at most 1\.5\)"),
        ({"kl_p99": float("nan")}, "not every figure is finite"),
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


SOUND = replace(
    AT_THE_FLOORS, logit_cosine=0.999, top1_agreement=0.99, kl_mean=0.01, kl_p99=0.1, perplexity_converted=20.1
)


def test_a_report_at_every_limit_that_was_asked_passes() -> None:
    """20.1 of 20 is 0.5 % more; a limit is part of what is allowed."""
    asked = Quality(perplexity=0.0051, top1_agreement=0.99, kl_divergence=0.01, logit_cosine=0.999)
    require_quality(SOUND, asked)
    assert {"logit_cosine", "top1_agreement", "perplexity", "kl_divergence"} == {one.key for one in judge(SOUND, asked)}


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (Quality(perplexity=0.004), r"perplexity 20\.1 of 20, 1\.0050 times \(at most 1\.004\)"),
        (Quality(top1_agreement=0.9901), r"top-1 agreement 0\.9900 \(at least 0\.9901\)"),
        (Quality(kl_divergence=0.009), r"mean KL divergence 0\.01 nats \(at most 0\.009\)"),
        (Quality(logit_cosine=0.9991), r"mean logit cosine 0\.9990 \(at least 0\.9991\)"),
    ],
)
def test_a_report_past_a_limit_that_was_asked_is_refused(asked: Quality, words: str) -> None:
    """Each limit by itself, with its figure; the others are named as within bounds."""
    with pytest.raises(QualityGateFailed, match=words) as caught:
        require_quality(SOUND, asked)
    assert "within bounds" in caught.value.why


def test_a_figure_is_shown_with_the_decimals_that_tell_it_from_its_limit() -> None:
    """0.98999 beside 0.99 must not read as 0.9900."""
    with pytest.raises(QualityGateFailed, match=r"top-1 agreement 0\.989990 \(at least 0\.99\)"):
        require_quality(replace(SOUND, top1_agreement=0.98999), Quality(top1_agreement=0.99))


@given(perplexity=st.floats(0, 5), top1=st.floats(0, 1), cosine=st.floats(0, 1), worse=st.floats(1e-6, 0.1))
def test_no_limit_lets_through_what_the_floors_refuse(
    perplexity: float, top1: float, cosine: float, worse: float
) -> None:
    """Whatever is asked, the floors stay; what is asked can only be stricter."""
    asked = Quality(perplexity=perplexity, top1_agreement=top1, logit_cosine=cosine)
    for change in (
        {"logit_cosine": 0.9 - worse},
        {"top1_agreement": 0.5 - worse},
        {"perplexity_converted": 20.0 * (1.5 + worse)},
    ):
        with pytest.raises(QualityGateFailed):
            require_quality(replace(AT_THE_FLOORS, **change), asked)
    limits = {one.key: one.limit for one in judge(AT_THE_FLOORS, asked)}
    assert limits["logit_cosine"] >= 0.9
    assert limits["top1_agreement"] >= 0.5
    assert limits["perplexity"] <= 1.5


def layer(number: int, error: float) -> LayerLoss:
    """Return the loss of a layer whose other figures do not matter."""
    return LayerLoss(number, error, error, error, error, 1.0)


def test_a_refusal_names_the_layers_to_keep() -> None:
    """The three that lose most, the worst first, and the patterns that keep them in 16 bit."""
    layers = tuple(layer(number, error) for number, error in enumerate([0.01, 0.3, 0.0, 0.02, 0.2]))
    with pytest.raises(QualityGateFailed) as caught:
        require_quality(replace(SOUND, layers=layers), Quality(top1_agreement=1.0))
    assert "layers that lose most: 1 (error 30.00%), 4 (error 20.00%), 3 (error 2.00%)" in caught.value.why
    assert "quantization.exclude: [lm_head, '*.layers.1.*', '*.layers.3.*', '*.layers.4.*']" in caught.value.hint


def test_layers_of_one_error_are_named_in_their_order() -> None:
    """And none that loses nothing."""
    layers = tuple(layer(number, error) for number, error in enumerate([0.0, 0.1, 0.1, 0.0]))
    assert [1, 2] == [one.layer for one in weakest(layers, 3)]
    assert [2] == [one.layer for one in weakest((layer(1, 0.5), layer(2, float("nan"))), 1)]


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


STRICT = Quality(top1_agreement=1.0, perplexity=0.0, kl_divergence=0.0, logit_cosine=1.0)


def test_an_asked_limit_stops_a_conversion_that_the_floors_would_let_through(tmp_path: Path) -> None:
    """FP8 loses something, so asked for no loss at all it is not published; nothing is left."""
    source = write_tiny_model(tmp_path / "source")
    with pytest.raises(QualityGateFailed, match="mean KL divergence"):
        convert(source, plan_for(source, "fp8"), tmp_path / "out", Silent(), terms=Terms(STRICT))
    assert ["source"] == [path.name for path in tmp_path.iterdir()]
    made = convert(source, plan_for(source, "fp8"), tmp_path / "out", Silent(), terms=Terms(Quality(perplexity=0.4)))
    assert made.report is not None
    assert 2 == len(made.report.layers)
    assert made.report.facts() == made.manifest.facts["quality"]


def test_what_is_up_to_date_is_held_to_the_limits_of_today(tmp_path: Path) -> None:
    """A stricter gate is no reason to convert again, and none to say yes; the checkpoint stays."""
    source = write_tiny_model(tmp_path / "source")
    made = convert(source, plan_for(source, "fp8"), tmp_path / "out", Silent())
    with pytest.raises(QualityGateFailed, match="mean KL divergence"):
        convert(source, plan_for(source, "fp8"), tmp_path / "out", Silent(), terms=Terms(STRICT))
    again = convert(source, plan_for(source, "fp8"), tmp_path / "out", Silent(), terms=Terms(Quality(perplexity=0.4)))
    assert (True, made.manifest) == (again.up_to_date, again.manifest)


def test_a_gate_on_16_bit_compares_and_leaves_no_trace(tmp_path: Path) -> None:
    """The copy has lost nothing; the manifest is that of a conversion without a gate, whichever ran first."""
    source = write_tiny_model(tmp_path / "source")
    gated = convert(source, plan_for(source), tmp_path / "gated", Silent(), terms=Terms(STRICT))
    plain = convert(source, plan_for(source), tmp_path / "plain", Silent())
    assert gated.report is not None
    assert 0.0 == gated.report.kl_mean
    assert plain.report is None
    assert gated.manifest == plain.manifest
    assert convert(source, plan_for(source), tmp_path / "plain", Silent(), terms=Terms(STRICT)).up_to_date
