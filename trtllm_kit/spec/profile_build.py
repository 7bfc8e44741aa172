"""The section of a deploy profile for ``trtllm-build``: where it runs, for how long, and options of one's own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from trtllm_kit.spec.profile_sections import Strict
from trtllm_kit.spec.system_text import REFUSED, PathText
from trtllm_kit.units import parse_seconds

Runner = Literal["local", "docker", "apptainer", "template"]
Duration = Annotated[
    float,
    BeforeValidator(parse_seconds),
    Field(gt=0, json_schema_extra={"type": ["number", "string"], "exclusiveMinimum": 0, "examples": ["90 min", "6 h"]}),
]
"""A duration such as ``90 min``; seconds inside."""
OptionValue = bool | int | PathText | tuple[PathText, ...]
OptionName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
COMMAND = "{command}"
"""Stands in a template for the words of the command."""
PLACES = (COMMAND, "{image}", "{engine}", "{checkpoint}", "{draft}")
"""What a template may name."""
_BRACES = r"(?<!\$)\{\w+\}"
_NEARLY = 0.75


class Build(Strict):
    """How ``trtllm-build`` is run; the other toolchains pass over it."""

    runner: Runner = Field(
        "local",
        description="Where the builder runs: local (this machine's own), docker or apptainer (a container of the "
        "release), template (a command line of yours).",
    )
    image: PathText | None = Field(
        None, description="Container of docker and apptainer; absent takes the one that holds the release."
    )
    template: tuple[PathText, ...] | None = Field(
        None,
        validate_default=True,
        description="Command line of runner template, a list of words; {command} stands for the builder's own words, "
        "and {image}, {engine}, {checkpoint} and {draft} for what they are called.",
    )
    timeout: Duration = Field(
        6 * 3600.0, description="Longest a build may take. Raising it costs time until a build that hangs is ended."
    )
    options: dict[OptionName, OptionValue] = Field(
        {},
        description="Options of trtllm-build by name without dashes, in place of what trtkit chooses. They cost a "
        "failed build where the model, the GPU or the release do not suit them.",
    )

    @field_validator("template")
    @classmethod
    def _suits_the_runner(cls, value: Any, info: ValidationInfo) -> Any:
        text = _refused(info.data.get("runner"), value)
        if text:
            raise PydanticCustomError(REFUSED, "{text}", {"text": text})
        return value


def _refused(runner: str | None, words: tuple[str, ...] | None) -> str:
    """Say why a template cannot stand beside that runner, or must; empty when it may be as it is."""
    if words is None:
        return "missing; runner template needs the words of its command line" if runner == "template" else ""
    if runner != "template":
        return f"has no meaning with runner {runner}, only with template; leave it out"
    if COMMAND not in words:
        return f"has no word {COMMAND}, so it would run no builder; add it"
    return next(
        (f"names {odd}, which stands for nothing; did you mean {meant}?" for odd, meant in _misspelt(words)), ""
    )


def _misspelt(words: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield words in braces that are nearly what a template may name; braces of a shell's own are left to it."""
    for odd in re.findall(_BRACES, " ".join(words)):
        meant = get_close_matches(odd.lower(), PLACES, n=1, cutoff=_NEARLY) if odd not in PLACES else ()
        yield from ((odd, one) for one in meant)
