"""PromQL of somebody's rules, with the series that a server without engines shows (pure).

An expression is read as words, texts and matchers, and not as a tree: what is no series of Triton's stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from trtllm_kit.upstream.engine_settings import OldMetric, old_metrics, served_models

_TOKEN = re.compile(
    r"""(?P<comment>\#[^\n]*)|(?P<text>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`[^`]*`)"""
    r"""|(?P<word>[A-Za-z_:][A-Za-z0-9_:]*)|(?P<open>\{)|(?P<close>\})|(?P<operator>=~|!~|!=|=)|(?P<other>.)""",
    re.DOTALL,
)
_OF_HISTOGRAM = ("_bucket", "_sum", "_count")
_PLAIN = re.compile(r"[A-Za-z0-9_|]+")


@dataclass(frozen=True)
class Rewritten:
    """One expression, as the new server's series have it."""

    text: str
    changes: tuple[str, ...] = ()
    """What was changed, one sentence each."""
    lost: tuple[str, ...] = ()
    """What has no equivalent; with any of these the expression says nothing of the new server."""
    words: frozenset[str] = frozenset()
    """Names in it that may be series."""


def rewrite(expression: str) -> Rewritten:
    """Return an expression for a server whose one model is ``tensorrt_llm``, with what has no equivalent."""
    tokens = [(str(match.lastgroup), match[0]) for match in _TOKEN.finditer(expression)]
    changes: list[str] = []
    lost = [f"{old.old}: {old.note}" for old in _known(tokens) if old.how == "none"]
    inside, served = False, False
    for place, (kind, _) in enumerate(tokens):
        if kind in ("open", "close"):
            inside, served = kind == "open", kind == "open" and _is_tritons(tokens, place)
        elif kind == "text" and inside and served:
            tokens[place] = (kind, _matched(tokens, place, changes, lost))
    words = frozenset(text for kind, text in tokens if kind == "word")
    return Rewritten(
        "".join(text for _, text in tokens), tuple(dict.fromkeys(changes)), tuple(dict.fromkeys(lost)), words
    )


def metric_named(word: str) -> OldMetric | None:
    """Return what is known of a metric family by a series of it; None for one of another program."""
    bare = next((word.removesuffix(end) for end in _OF_HISTOGRAM if word.endswith(end)), word)
    return next((row for row in old_metrics() if row.old in (word, bare)), None)


def _known(tokens: list[tuple[str, str]]) -> Iterator[OldMetric]:
    named = (metric_named(text) for kind, text in tokens if kind == "word")
    yield from (one for one in named if one is not None)


def _is_tritons(tokens: list[tuple[str, str]], opening: int) -> bool:
    """Whether braces hold matchers of a series of Triton's: the word in front of them says it."""
    before = (text for kind, text in reversed(tokens[:opening]) if not text.isspace())
    return next(before, "").startswith(("nv_", "trtllm_"))


def _matched(tokens: list[tuple[str, str]], place: int, changes: list[str], lost: list[str]) -> str:
    """Return the text of a matcher of the label ``model`` with the name that the new model has."""
    text = tokens[place][1]
    left = [(kind, word) for kind, word in tokens[:place] if not word.isspace()][-2:]
    if len(left) < 2 or left[0][1] != "model" or left[1][0] != "operator":
        return text
    quote, value = text[0], text[1:-1]
    if not _PLAIN.fullmatch(value):
        changes.append(f"look at the matcher model{left[1][1]}{text}: the one model is tensorrt_llm now")
        return text
    names, models = value.split("|"), served_models()
    known = [models.get(name, name) for name in names]
    kept = list(dict.fromkeys(name for name in known if name))
    if not kept and left[1][1] in ("=", "=~"):
        lost.append(f"model {value}: there is no such model, tensorrt_llm turns text into tokens and back itself")
        return text
    new = f"{quote}{'|'.join(kept)}{quote}"
    if new != text and kept:
        changes.append(f"model {value} is {'|'.join(kept)} now")
    return new if kept else text
