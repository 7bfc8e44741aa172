"""How two answers to one prompt differ: not, only in a way that is known of moving, or in what they say. Pure.

Texts are compared as they came. Only where they are not equal are the known ways tried, and the fewest of them that
make the texts equal are named; they excuse nothing by themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum
from itertools import combinations, zip_longest

from trtllm_kit.light import dataclass

AROUND = 32
"""Characters that are shown before and after the first difference."""
_BLANKS = " \t\r\n"
_SPECIAL = r"(?:<s>|</s>|<pad>|<eos>|<bos>|<end_of_turn>|\[/?INST\]|<\|[A-Za-z0-9_]{1,40}\|>|<｜[^<>｜]{1,40}｜>)"
_SPECIAL_FIRST = re.compile(rf"\A\s*{_SPECIAL}+")
_SPECIAL_LAST = re.compile(rf"{_SPECIAL}(?:\s*{_SPECIAL})*\s*\Z")


class Likeness(StrEnum):
    """How like two answers are."""

    SAME = "same"
    NEAR = "near"
    """They differ in known ways only."""
    DIFFERENT = "different"


class Near(StrEnum):
    """A way in which answers of two deployments of one model are known to differ."""

    SPECIAL = "special-token"
    """One shows tokens such as ``</s>`` as text, at an end of the answer."""
    ECHO = "echo"
    """One repeats the prompt before the answer (``exclude_input_in_output`` is not set, or does nothing)."""
    CUT = "cut-character"
    """One shows the replacement character for a character that the limit of tokens cut through, the other nothing."""
    LEADING = "leading-blank"
    """One begins with the blank that a SentencePiece token holds."""
    TRAILING = "trailing-blank"
    """One ends with blanks or ends of lines."""


@dataclass(frozen=True)
class Difference:
    """Two answers, compared."""

    likeness: Likeness
    near: tuple[Near, ...] = ()
    """The known ways that make the two equal; of different ones, those that one side alone has."""
    character: int | None = None
    """Place of the first character that differs, from 0, in the texts without what is known; None of equal texts."""
    token: int | None = None
    """The same in tokens, where a tokenizer counts."""
    before: str = ""
    """What both say just before it."""
    old: str = ""
    new: str = ""
    """How each goes on; empty where it ends there."""


def difference(old: str, new: str, prompt: str, ids: Callable[[str], list[int]] | None = None) -> Difference:
    """Compare two answers to a prompt; ``ids`` returns the tokens of a text."""
    if old == new:
        return Difference(Likeness.SAME)
    for count in range(1, len(Near) + 1):
        for ways in combinations(Near, count):
            if without(old, prompt, ways) == without(new, prompt, ways):
                return _placed(Likeness.NEAR, ways, old, new, ids)
    one_sided = []
    for way in Near:
        cleaned = without(old, prompt, (way,)), without(new, prompt, (way,))
        if (cleaned[0] == old) != (cleaned[1] == new):
            one_sided.append(way)
            old, new = cleaned
    return _placed(Likeness.DIFFERENT, tuple(one_sided), old, new, ids)


def without(text: str, prompt: str, ways: tuple[Near, ...]) -> str:
    """Return a text without what those ways add to an answer."""
    if Near.SPECIAL in ways:
        text = _SPECIAL_LAST.sub("", _SPECIAL_FIRST.sub("", text))
    asked = prompt.strip(_BLANKS)
    if Near.ECHO in ways and asked and text.lstrip(_BLANKS).startswith(asked):
        text = text.lstrip(_BLANKS)[len(asked) :]
    if Near.CUT in ways:
        text = text.rstrip("\ufffd")
    if Near.LEADING in ways:
        text = text.lstrip(_BLANKS)
    return text.rstrip(_BLANKS) if Near.TRAILING in ways else text


def _placed(
    likeness: Likeness, ways: tuple[Near, ...], old: str, new: str, ids: Callable[[str], list[int]] | None
) -> Difference:
    at = _first(old, new)
    if at is None:  # what is known hides all of it, each on its own side
        return Difference(likeness, ways)
    return Difference(
        likeness,
        ways,
        at,
        None if ids is None else _first(ids(old), ids(new)),
        old[max(at - AROUND, 0) : at],
        old[at : at + AROUND],
        new[at : at + AROUND],
    )


def _first(old: str | list[int], new: str | list[int]) -> int | None:
    """Return the first place at which two rows differ; None where they do not."""
    pairs = zip_longest(old, new)
    return next((at for at, (one, other) in enumerate(pairs) if one != other), None)
