"""A question that was asked before: where to look and by which rules, as JSON, with the digests of what it came from.

A check from cron asks the same again and again. Reading profile and rules as they are written takes ten times as long
as the check; what they came to is kept beside the state, and passed over when a file it came from is another.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trtllm_kit import __version__
from trtllm_kit.health.access import Access
from trtllm_kit.health.ranges import Range
from trtllm_kit.health.rules import Need, Rule, Ruleset, When
from trtllm_kit.health.snapshot import Target
from trtllm_kit.health.state_file import remove
from trtllm_kit.health.verdict import Skipped, State

Question = tuple[Target, Ruleset]
ASKS = (
    "profile",
    "url",
    "repository",
    "targets",
    "beside",
    "nvml",
    "log",
    "canary",
    "canary_timeout",
    "canary_interval",
    "passive",
    "via",
    "ca",
    "bearer",
    "basic",
)
"""The options that say what is asked; all others say how."""
_FORM = 3


def question_path(asked: Mapping[str, Any], folder: str) -> str:
    """Return the file of a question; relative names are of the folder in which it is asked."""
    key = json.dumps([_FORM, __version__, os.getcwd(), [asked[name] for name in ASKS]])  # noqa: PTH109
    return os.path.join(folder, f"question-{hashlib.sha256(key.encode()).hexdigest()[:24]}.json")  # noqa: PTH118


def recall_question(asked: Mapping[str, Any], folder: str) -> Sequence[Question] | None:
    """Return what a question came to before; None when it was never asked, or a file has changed since."""
    if asked["discover"]:
        return None  # what is found may be another each time
    try:
        path = question_path(asked, folder)
        with open(path, "rb") as file:  # noqa: PTH123
            document = json.loads(file.read())
        if any(digest_of(path) != digest for path, digest in document["made_from"].items()):
            return None
        rulesets = [_ruleset(rules) for rules in document["rulesets"]]
        questions = [(_target(target), rulesets[number]) for target, number in document["questions"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    try:
        os.utime(path)  # it is in use: what is not is removed one day
    except OSError:  # a disk that cannot be written
        return questions
    return questions


def keep_question(
    asked: Mapping[str, Any], folder: str, questions: Sequence[Question], made_from: Iterable[str]
) -> None:
    """Keep what a question came to; where that is not possible it is asked the long way again."""
    path = question_path(asked, folder)
    rulesets = list({id(rules): rules for _, rules in questions}.values())  # targets of one call share them
    numbers = {id(rules): number for number, rules in enumerate(rulesets)}
    document = {
        "made_from": {name: digest_of(name) for name in made_from},
        "rulesets": [_ruleset_document(rules) for rules in rulesets],
        "questions": [(_target_document(target), numbers[id(rules)]) for target, rules in questions],
    }
    partial = f"{path}.{os.getpid()}.partial"
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:  # noqa: PTH123
            json.dump(document, file, separators=(",", ":"))
        os.replace(partial, path)  # noqa: PTH105
    except OSError:
        remove(partial)


def digest_of(path: str) -> str:
    """Return the SHA-256 of a file; empty when there is none."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return ""


_PLAIN = vars(Target(""))
"""What a target is where nothing else is said of it."""


def _target_document(target: Target) -> dict[str, Any]:
    told = {name: value for name, value in vars(target).items() if value != _PLAIN[name]}
    return told | {"access": vars(target.access)}


def _target(document: Mapping[str, Any]) -> Target:
    values: dict[str, Any] = {key: tuple(one) if isinstance(one, list) else one for key, one in document.items()}
    values["access"] = Access(**document["access"])
    return Target(**values)


def _ruleset_document(ruleset: Ruleset) -> list[Any]:
    rules = [{name: _plain(value) for name, value in vars(rule).items()} for rule in ruleset.rules]
    return [rules, [[skip.rule, skip.reason] for skip in ruleset.not_applicable]]


def _plain(value: Any) -> Any:
    return [value.start, value.end, value.inverted] if isinstance(value, Range) else value


def _ruleset(document: Any) -> Ruleset:
    rules, skipped = document
    return Ruleset(tuple(map(_rule, rules)), tuple(Skipped(rule, reason) for rule, reason in skipped))


def _rule(document: Mapping[str, Any]) -> Rule:
    return Rule(
        **{
            **document,
            "ok": Range(*document["ok"]),
            "clear": None if document["clear"] is None else Range(*document["clear"]),
            "severity": State(document["severity"]),
            "on_missing": State(document["on_missing"]),
            "when": When(document["when"]),
            "needs": None if document["needs"] is None else Need(document["needs"]),
            "evidence": tuple(document["evidence"]),
        }
    )
