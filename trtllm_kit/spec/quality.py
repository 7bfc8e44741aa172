"""What a conversion may lose: the ``quality`` section of a profile, and the same on the command line (``--gate``)."""

from __future__ import annotations

from pathlib import PurePath
from typing import Annotated

from pydantic import BeforeValidator, Field, ValidationError

from trtllm_kit.spec.profile_sections import Strict
from trtllm_kit.units import parse_share

_JSONL = (".jsonl", ".ndjson")

Share = Annotated[
    float,
    BeforeValidator(parse_share),
    Field(json_schema_extra={"type": ["number", "string"], "examples": ["0.5%", "0.005"]}),
]
"""A share such as ``0.5%`` or ``0.005``; of one inside."""


class Quality(Strict):
    """What ``convert`` must prove before it publishes; a key left out asks nothing beyond the floors."""

    perplexity: Annotated[Share, Field(ge=0)] | None = Field(
        None, description="Most that perplexity may rise above the source's, as a share of it; less is always fine."
    )
    top1_agreement: Annotated[Share, Field(ge=0, le=1)] | None = Field(
        None, description="Least share of positions whose most likely next token is the source's."
    )
    kl_divergence: Annotated[float, Field(ge=0)] | None = Field(
        None, description="Most mean KL divergence of the next token's odds from the source's, nats."
    )
    logit_cosine: Annotated[Share, Field(ge=0, le=1)] | None = Field(
        None, description="Least mean cosine of the logits with the source's."
    )


GATE_NAMES = {"ppl": "perplexity", "top1": "top1_agreement", "kl": "kl_divergence", "cosine": "logit_cosine"}
"""What ``--gate`` calls the keys of ``quality``."""


def with_gate(quality: Quality, gate: str) -> Quality:
    """Return the limits with those of a text such as ``ppl=0.5%,top1=99%`` in place of the profile's.

    Raises ``ValueError`` that says what the text may hold.
    """
    changes: dict[str, object] = {}
    for part in gate.split(","):
        short, equals, value = (word.strip() for word in part.partition("="))
        name = GATE_NAMES.get(short)
        if name is None or not equals:
            raise ValueError(f"{part.strip()!r} is no limit; write {', '.join(f'{one}=VALUE' for one in GATE_NAMES)}")
        if name in changes:
            raise ValueError(f"{short} stands twice in {gate!r}")
        changes[name] = _share_of(short, value)
    try:
        return Quality.model_validate(quality.model_dump() | changes)
    except ValidationError as error:
        wrong = error.errors()[0]
        short = next(one for one, name in GATE_NAMES.items() if name == wrong["loc"][0])
        raise ValueError(f"{short}: {wrong['msg'].lower()}") from None


def asks(quality: Quality) -> bool:
    """Whether anything is asked beyond the floors."""
    return quality != Quality()


def _share_of(name: str, value: str) -> float:
    """Read the value of a limit; raises ``ValueError`` with the limit's name."""
    try:
        return parse_share(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def is_jsonl(path: str | None) -> bool:
    """Whether the name of a text file says that it holds one JSON record a line."""
    return path is not None and PurePath(path).suffix.lower() in _JSONL
