"""What a profile may ask of number formats, and what makes no sense together."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from pydantic import ValidationError

from trtllm_kit.spec.profile_formats import GROUPED, PartFormat, Quantization


def refusals(**asked: Any) -> dict[str, str]:
    """Return what is refused, by the key it is said of."""
    with pytest.raises(ValidationError) as caught:
        Quantization.model_validate(asked)
    return {str(problem["loc"][0]): problem["msg"] for problem in caught.value.errors()}


@pytest.mark.parametrize("weights", get_args(PartFormat))
def test_every_format_can_be_asked_for_alone(weights: str) -> None:
    """No format but mixed needs a second key."""
    assert weights == Quantization.model_validate({"weights": weights}).weights


@pytest.mark.parametrize("weights", GROUPED)
@pytest.mark.parametrize("size", [64, 128, "auto"])
def test_int4_may_be_grouped_by_64_or_128(weights: str, size: int | str) -> None:
    """The two sizes kernels have."""
    assert size == Quantization.model_validate({"weights": weights, "group_size": size}).group_size


@pytest.mark.parametrize("size", [32, 256, 0, "x"])
def test_another_group_size_is_refused(size: object) -> None:
    """32 is what quantisers write and no kernel reads."""
    assert ["group_size"] == list(refusals(weights="int4_awq", group_size=size))


@pytest.mark.parametrize(
    ("asked", "key", "text"),
    [
        ({"weights": "fp8", "group_size": 64}, "group_size",
         "has no meaning with weights fp8, only with int4_wo, int4_awq, w4a8_awq; leave it out"),
        ({"weights": "mixed", "groups": {"attention": "fp8"}, "group_size": 64}, "group_size",
         "has no meaning with weights mixed, only with int4_wo, int4_awq, w4a8_awq; leave it out"),
        ({"weights": "fp8", "groups": {"attention": "fp8"}}, "groups",
         "has no meaning with weights fp8, only with mixed; leave it out"),
        ({"weights": "mixed"}, "groups",
         "missing; weights mixed needs the format of each part, e.g. {attention: fp8, experts: nvfp4}"),
        ({"weights": "mixed", "groups": {}}, "groups",
         "quantises nothing: every part stays in bf16; set weights: bf16"),
        ({"weights": "mixed", "groups": dict.fromkeys(("attention", "feed_forward", "experts"), "fp8")}, "groups",
         "is not mixed: every part takes fp8; set weights to it"),
        ({"weights": "mixed", "groups": {"attention": "mixed"}}, "groups", "Input should be"),
        ({"weights": "mixed", "groups": {"mlp": "fp8"}}, "groups", "Extra inputs are not permitted"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_with_the_reason(asked: dict[str, Any], key: str, text: str) -> None:
    """Each refusal stands under its own key and says what would be right."""
    found = refusals(**asked)
    assert text in found[key]


def test_all_refusals_come_at_once() -> None:
    """Two keys that make no sense beside FP8 are both named."""
    assert {"groups", "group_size"} == set(refusals(weights="fp8", groups={"attention": "fp8"}, group_size=64))
