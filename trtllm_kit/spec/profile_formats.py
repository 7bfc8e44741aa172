"""Sections of a deploy profile about number formats: what becomes which format, and what scales are measured on."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from trtllm_kit.spec.profile_sections import Auto, Positive, Strict
from trtllm_kit.spec.quality import is_jsonl
from trtllm_kit.spec.system_text import REFUSED, PathText

PartFormat = Literal[
    "bf16", "fp8", "fp8_rowwise", "fp8_block", "int8_wo", "int4_wo", "mxfp8", "nvfp4", "int4_awq", "w4a8_awq",
    "int8_sq", "mxfp4",
]  # fmt: skip
"""A format that one weight can have: all but ``mixed``."""
WeightFormat = Literal[PartFormat, "mixed"]
KvFormat = Literal["bf16", "fp8", "int8", "nvfp4"]
GROUPED: tuple[PartFormat, ...] = ("int4_wo", "int4_awq", "w4a8_awq")
"""Formats in which ``group_size`` input elements share a scale."""
GROUP_SIZES = (128, 64)
"""What ``group_size`` can be, the most accurate last."""
MIXED: WeightFormat = "mixed"


class LayerGroups(Strict):
    """Which format each part of a layer takes when ``quantization.weights`` is ``mixed``."""

    attention: PartFormat = Field("bf16", description="Format of the linear layers of attention.")
    feed_forward: PartFormat = Field(
        "bf16", description="Format of dense feed-forward blocks, and of the expert that every token visits."
    )
    experts: PartFormat = Field("bf16", description="Format of routed experts.")

    @property
    def by_name(self) -> dict[str, PartFormat]:
        """The formats by the name of their part."""
        return {"attention": self.attention, "feed_forward": self.feed_forward, "experts": self.experts}


class Quantization(Strict):
    """Number formats of the checkpoint."""

    weights: WeightFormat = Field(
        "bf16",
        description="Format of the linear layers' weights; bf16 passes them through, mixed takes one for each of "
        "quantization.groups. int4_awq, w4a8_awq and int8_sq are calibrated by NVIDIA ModelOpt; mxfp4 comes with a "
        "model alone. One that is quantised already is passed through: leave the key out, or name its format.",
    )
    kv_cache: KvFormat = Field(
        "bf16",
        description="Format of the KV cache; fp8 and int8 halve its bytes, nvfp4 leaves 9/32 of them. "
        "int8 is for engines (trtllm-build) alone.",
    )
    exclude: tuple[str, ...] = Field(
        ("lm_head",), description="Module name patterns that stay in 16 bit; * matches anything."
    )
    groups: LayerGroups | None = Field(
        None,
        validate_default=True,
        description="Format of each part of a layer, for weights mixed alone; a part left out stays in 16 bit.",
    )
    group_size: Literal[64, 128] | Auto = Field(
        "auto",
        description="Input elements that share a scale in the formats of int4 (int4_wo, int4_awq, w4a8_awq). "
        "Raising it costs accuracy; auto takes 128.",
    )

    @field_validator("groups", "group_size")
    @classmethod
    def _suits_the_weights(cls, value: Any, info: ValidationInfo) -> Any:
        weights = info.data.get("weights")
        if weights is None or (weights == MIXED and info.field_name == "group_size" and "groups" not in info.data):
            return value  # what it depends on was refused already
        if info.field_name == "groups":
            text = _unfit_groups(weights, value)
        else:
            text = _unfit_size(weights, info.data.get("groups"), value)
        if text:
            raise PydanticCustomError(REFUSED, "{text}", {"text": text})
        return value


def _unfit_groups(weights: WeightFormat, groups: LayerGroups | None) -> str:
    """Say why the groups cannot stand beside the format of the weights; empty when they may be as they are."""
    if weights != MIXED:
        return "" if groups is None else f"has no meaning with weights {weights}, only with mixed; leave it out"
    if groups is None:
        return "missing; weights mixed needs the format of each part, e.g. {attention: fp8, experts: nvfp4}"
    taken = set(groups.by_name.values())
    if taken == {"bf16"}:
        return "quantises nothing: every part stays in bf16; set weights: bf16"
    return f"is not mixed: every part takes {taken.pop()}; set weights to it" if len(taken) == 1 else ""


def _unfit_size(weights: WeightFormat, groups: LayerGroups | None, size: int | str) -> str:
    taken = {weights} if groups is None else set(groups.by_name.values())
    if size == "auto" or taken & set(GROUPED):
        return ""
    return f"has no meaning with weights {weights}, only with {', '.join(GROUPED)}; leave it out"


Backend = Literal["native", "modelopt"] | Auto


class Calibration(Strict):
    """What static activation scales are measured on."""

    samples: Positive = Field(16, description="Text pieces to run; more is slower and steadier.")
    tokens_per_sample: Positive = Field(256, description="Tokens in each piece.")
    text: PathText | None = Field(
        None,
        description="UTF-8 text file of your own domain, or with a name in .jsonl one JSON record a line; the bundled "
        "text when absent.",
    )
    field: str | None = Field(
        None,
        min_length=1,
        description="Field of a JSONL record that holds its text; text, content, article, document or prompt when "
        "absent.",
    )
    backend: Backend = Field(
        "auto",
        description="Who calibrates: trtkit itself (native) or NVIDIA ModelOpt in an environment of its own, on a GPU "
        "where there is one. auto takes native for every format that trtkit makes.",
    )
    python: PathText | None = Field(
        None,
        description="Interpreter of the environment that has nvidia-modelopt; TRTKIT_QUANTIZE_PYTHON, else the running "
        "one, when absent.",
    )
    seed: Annotated[int, Field(ge=0)] = Field(
        0, description="Which pieces of a text longer than the samples are run; 0 takes them from the beginning."
    )

    @field_validator("field")
    @classmethod
    def _suits_the_text(cls, value: str | None, info: ValidationInfo) -> str | None:
        text = info.data.get("text")
        if value is not None and text is not None and not is_jsonl(text):
            said = f"has no meaning with {text}, only with a .jsonl file; leave it out"
            raise PydanticCustomError(REFUSED, "{text}", {"text": said})
        return value
