"""The section of a deploy profile for arguments of the LLM API that no other key of a profile stands for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field, WithJsonSchema, field_validator
from pydantic_core import PydanticCustomError

from trtllm_kit.spec.profile_sections import Strict
from trtllm_kit.spec.system_text import PARTS, REFUSED, looks_secret

_NAME = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$"
_ANY = {"type": ["boolean", "number", "string", "array", "object", "null"]}
_LONGEST = 8192
"""Characters of a text."""
_MOST = 4096
"""Values within one option."""


def _plain(value: Any) -> Any:
    """Return a value of plain data; refuse what no YAML of a server can hold."""
    inside = list(_inside(value))
    text = next(filter(None, map(_fault, inside)), "")
    if len(inside) > _MOST:
        text = f"found {len(inside):,} values; allowed at most {_MOST:,}"
    if text:
        raise PydanticCustomError(REFUSED, "{text}", {"text": text})
    return value


def _inside(value: Any) -> Iterator[Any]:
    """Yield a value and everything in it, keys too."""
    yield value
    items = (*value, *value.values()) if isinstance(value, Mapping) else value
    if isinstance(items, list | tuple):
        for item in items:
            yield from _inside(item)


def _fault(value: Any) -> str:
    """Say what is wrong with one value; empty for one that may stand there."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"found {value}; allowed finite numbers"
    if not isinstance(value, str):
        plain = value is None or isinstance(value, bool | int | float | list | tuple | Mapping)
        return "" if plain else f"found a {type(value).__name__}; allowed plain data"
    if len(value) > _LONGEST:
        return f"found {len(value):,} characters; allowed at most {_LONGEST:,}"
    odd = next((letter for letter in value if _is_odd(letter)), None)
    return "" if odd is None else f"found the character U+{ord(odd):04X}; allowed text"


def _is_odd(letter: str) -> bool:
    """Whether a character is a control character, or half of one that UTF-8 cannot hold."""
    return (ord(letter) < ord(" ") and letter not in "\t\n") or letter == "\x7f" or "\ud800" <= letter <= "\udfff"


OptionName = Annotated[str, Field(pattern=_NAME)]
"""Names joined by dots, as ``lora_config.max_lora_rank``."""
Plain = Annotated[Any, AfterValidator(_plain), WithJsonSchema(_ANY)]


class LlmApi(Strict):
    """Arguments of the LLM API beside those that a plan decides; ``trtllm-build`` has no use for them."""

    options: dict[OptionName, Plain] = Field(
        {},
        description="Keys of the LLM API's YAML that no other key of a profile stands for, each by its dotted name as "
        "in lora_config.max_lora_rank, with its value. They cost what the release makes of them: the plan's sums know "
        "nothing of their memory, and say so.",
    )

    @field_validator("options")
    @classmethod
    def _no_secret(cls, options: dict[str, Any]) -> dict[str, Any]:
        """Refuse what looks like a secret, without its value: plans, engines and repositories would all show it."""
        odd = {name: _ODD_TEXT for name, value in options.items() if _is_secret(name, value)}
        if odd:
            told = "; ".join(f"{name} {text}" for name, text in odd.items())
            raise PydanticCustomError(REFUSED, "{text}", {"text": told, PARTS: odd})
        return options


_ODD_TEXT = (
    "looks like a secret, and no file of a deployment holds one; leave it out here, and let the server read it from a "
    "variable of deploy.secret_environment"
)


def _is_secret(name: str, value: Any) -> bool:
    """Whether a text of an option looks like a secret, by its own name or by what it is."""
    if isinstance(value, Mapping):
        return any(_is_secret(str(key), one) for key, one in value.items())
    if isinstance(value, list | tuple):
        return any(_is_secret(name, one) for one in value)
    return isinstance(value, str) and looks_secret(name.rpartition(".")[2], value)
