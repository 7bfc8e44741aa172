"""Prometheus rules of somebody's, for a server without engines: what is rewritten, and what says nothing any more.

Comments and order stay. A rule without an equivalent leaves the file, for one that can never fire looks like health.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from trtllm_kit.errors import UsageError
from trtllm_kit.migrate.engine.promql import Rewritten, rewrite

Fate = Literal["same", "rewritten", "none"]


@dataclass(frozen=True)
class RuleTold:
    """What became of one rule."""

    line: int
    name: str
    fate: Fate
    notes: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {"line": self.line, "rule": self.name, "fate": self.fate, "notes": list(self.notes)}


@dataclass(frozen=True)
class Rules:
    """A file of rules, rewritten, and what became of each."""

    text: str
    told: tuple[RuleTold, ...]


def rewrite_rules(text: str, label: str) -> Rules:
    """Return a rules file, or ``PrometheusRule`` manifests, for the new server; raises ``UsageError`` for neither."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    yaml = YAML()
    yaml.preserve_quotes, yaml.width = True, 10**6
    yaml.indent(mapping=2, sequence=4, offset=2)
    try:
        documents = list(yaml.load_all(text))
    except (YAMLError, ValueError) as error:
        raise _not_rules(label, f"the parser says: {str(error).splitlines()[0]}") from None
    groups = [group for document in documents for group in _groups(document)]
    if not groups:
        raise _not_rules(label, "it holds no list named groups, nor one under spec")
    told = tuple(_rewritten(groups))
    written = io.StringIO()
    yaml.dump_all(documents, written)
    return Rules(_head(told) + written.getvalue(), tuple(sorted(told, key=lambda one: one.line)))


def _not_rules(label: str, why: str) -> UsageError:
    return UsageError(f"{label} holds no Prometheus rules", why=why, hint="name a file with groups: [{name, rules}]")


def _groups(document: Any) -> Iterator[Any]:
    """Yield the groups of a rules file, or of a manifest of the Prometheus operator."""
    if not isinstance(document, dict):
        return
    spec = document.get("spec")
    listed = document.get("groups", spec.get("groups") if isinstance(spec, dict) else None)
    for group in listed if isinstance(listed, list) else ():
        if isinstance(group, dict) and isinstance(group.get("rules"), list):
            yield group


def _rewritten(groups: list[Any]) -> Iterator[RuleTold]:
    """Rewrite every rule in place, and take out those that say nothing, with those that are made of them."""
    found = [
        (group, rule, rewrite(str(rule["expr"]))) for group in groups for rule in group["rules"] if _has_expr(rule)
    ]
    gone = _gone(found)
    for group, rule, made in found:
        name = str(rule.get("alert") or rule.get("record") or "")
        made_of = sorted(made.words & gone)
        if made.lost or made_of:
            notes = made.lost or tuple(f"it is made of {word}, which says nothing any more" for word in made_of)
            told = RuleTold(_line(rule), name, "none", notes)
            del group["rules"][next(place for place, one in enumerate(group["rules"]) if one is rule)]
        elif made.text != str(rule["expr"]):
            told = RuleTold(_line(rule), name, "rewritten", made.changes)
            rule["expr"] = type(rule["expr"])(made.text)
        else:
            told = RuleTold(_line(rule), name, "same", made.changes)
        yield told


def _has_expr(rule: Any) -> bool:
    return isinstance(rule, dict) and "expr" in rule


def _gone(found: list[tuple[Any, Any, Rewritten]]) -> set[str]:
    """Return the recorded series that say nothing any more, those made of others with them."""
    gone: set[str] = set()
    while True:
        more = {
            str(rule["record"]) for _, rule, made in found if "record" in rule and (made.lost or made.words & gone)
        } - gone
        if not more:
            return gone
        gone |= more


def _line(rule: Any) -> int:
    place = getattr(rule, "lc", None)
    return int(place.line) + 1 if place is not None else 0


def _head(told: tuple[RuleTold, ...]) -> str:
    left = [one for one in told if one.fate == "none"]
    lines = ["Rewritten by trtkit migrate engine for a server whose one model is tensorrt_llm."]
    lines += [f"Left out, for it says nothing of that server: {one.name}: {'; '.join(one.notes)}" for one in left]
    return "".join(f"# {line}\n" for line in lines)
