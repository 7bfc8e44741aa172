"""PromQL of somebody's rules, with the series that a server without engines shows (pure).

An expression is read as words, texts and matchers, and not as a tree: what is no series of Triton's stays as it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from trtllm_kit.upstream.engine_settings import OldMetric, old_metrics, served_models
from trtllm_kit.upstream.triton import metric_families

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
    """What was changed, and what a family counts otherwise now, one sentence each."""
    lost: tuple[str, ...] = ()
    """What has no equivalent; with any of these the expression says nothing of the new server."""
    words: frozenset[str] = frozenset()
    """Names in it that may be series."""


def rewrite(expression: str) -> Rewritten:
    """Return an expression for a server whose one model is ``tensorrt_llm``, with what has no equivalent."""
    tokens = [(str(match.lastgroup), match[0]) for match in _TOKEN.finditer(expression)]
    known = _known(tokens)
    changes = [f"{old.old}: {old.note}" for old in known if old.how == "exact" and old.note]
    lost = [f"{old.old}: {old.note}" for old in known if old.how == "none"]
    series = ""
    for place, (kind, text) in enumerate(tokens):
        if kind in ("open", "close"):
            series = _series(tokens, place) if kind == "open" else ""
        elif kind == "text" and series and _label(tokens, place) == "model":
            tokens[place] = (kind, _matched(tokens, place, changes, lost))
        elif kind == "text" and series:
            lost += _without_series(series, *_matcher(tokens, place), text[1:-1])
    words = frozenset(text for kind, text in tokens if kind == "word")
    return Rewritten(
        "".join(text for _, text in tokens), tuple(dict.fromkeys(changes)), tuple(dict.fromkeys(lost)), words
    )


def metric_named(word: str) -> OldMetric | None:
    """Return what is known of a metric family by a series of it; None for one of another program."""
    return next((row for row in old_metrics() if row.old in (word, _bare(word))), None)


def _bare(word: str) -> str:
    """Return the family of a series of a histogram."""
    return next((word.removesuffix(end) for end in _OF_HISTOGRAM if word.endswith(end)), word)


def _known(tokens: list[tuple[str, str]]) -> list[OldMetric]:
    """Return what is known of the families that an expression names, as a word or by the label ``__name__``."""
    words = [text for kind, text in tokens if kind == "word"]
    words += [
        text[1:-1] for place, (kind, text) in enumerate(tokens)
        if kind == "text" and _label(tokens, place) == "__name__"
    ]  # fmt: skip
    return [one for one in map(metric_named, words) if one is not None]


def _series(tokens: list[tuple[str, str]], opening: int) -> str:
    """Return the series that braces hold matchers of, where it is one of Triton's; else nothing."""
    before = (text for _, text in reversed(tokens[:opening]) if not text.isspace())
    word = next(before, "")
    if not word.startswith(("nv_", "trtllm_")):
        inside = tokens[opening + 1 :]
        named = (
            text[1:-1] for at, (kind, text) in enumerate(inside) if kind == "text" and _label(inside, at) == "__name__"
        )
        word = next(named, "")
    return word if word.startswith(("nv_", "trtllm_")) else ""


def _matcher(tokens: list[tuple[str, str]], place: int) -> tuple[str, str]:
    """Return label and operator in front of a text; empty where it is no matcher's."""
    left = [(kind, word) for kind, word in tokens[:place] if not word.isspace()][-2:]
    if len(left) < 2 or left[1][0] != "operator":
        return "", ""
    return left[0][1], left[1][1]


def _label(tokens: list[tuple[str, str]], place: int) -> str:
    return _matcher(tokens, place)[0]


def _without_series(series: str, label: str, operator: str, value: str) -> list[str]:
    """Return why a matcher finds nothing: its family has that label, and no series of any of these values."""
    family = next((one for one in metric_families() if one.name in (series, _bare(series))), None)
    if family is None or label != family.label or operator not in ("=", "=~") or not _PLAIN.fullmatch(value):
        return []
    there = [one.name for one in family.values]
    if set(value.split("|")) & {*there}:
        return []
    return [f"{family.name}{{{label}={value}}}: there is no such series, only {', '.join(there)}"]


def _matched(tokens: list[tuple[str, str]], place: int, changes: list[str], lost: list[str]) -> str:
    """Return the text of a matcher of the label ``model`` with the name that the new model has."""
    text, operator = tokens[place][1], _matcher(tokens, place)[1]
    quote, value = text[0], text[1:-1]
    if not _PLAIN.fullmatch(value):
        changes.append(f"look at the matcher model{operator}{text}: the one model is tensorrt_llm now")
        return text
    names, models = value.split("|"), served_models()
    known = [models.get(name, name) for name in names]
    kept = list(dict.fromkeys(name for name in known if name))
    if not kept and operator in ("=", "=~"):
        lost.append(f"model {value}: there is no such model, tensorrt_llm turns text into tokens and back itself")
        return text
    new = f"{quote}{'|'.join(kept)}{quote}"
    if new != text and kept:
        changes.append(f"model {value} is {'|'.join(kept)} now")
    return new if kept else text
