"""What pydantic refuses, as problems an operator can act on: where it stands, what it is, what is allowed."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import ValidationError

from trtllm_kit.spec.document import DataPath, Document, Place, Problem, dotted
from trtllm_kit.spec.schema_words import SchemaWords
from trtllm_kit.spec.system_text import PARTS, REFUSED

_LONGEST_SHOWN = 200
_PATTERN, _KEY = "string_pattern_mismatch", "[key]"
"""The second ends the place of an error that is about a key and not about its value."""


def schema_problems(error: ValidationError, document: Document, words: SchemaWords) -> list[Problem]:
    """Turn a validation error into problems, one for each key; keys an unread part may hold are not missed."""
    describe = {"missing": _missing_key, "extra_forbidden": _unknown_key}
    problems: dict[DataPath, Problem] = {}
    for one in error.errors(include_url=False, include_input=False):
        missing = one["type"] == "missing"
        path: DataPath = one["loc"] if missing else _known_part(one["loc"], document.data)
        if path in problems or (missing and not document.complete):
            continue
        if one["type"] == _PATTERN and one["loc"][-1] == _KEY:
            text = f"no name that may stand here; allowed text matching {one['msg'].split(chr(39))[1]}"
            problems[path] = Problem(_place(document, path), text, dotted(path))
        elif one["type"] == REFUSED and PARTS in one["ctx"]:
            for key, text in one["ctx"][PARTS].items():
                problems[*path, key] = Problem(_place(document, (*path, key)), text, dotted((*path, key)))
        elif one["type"] == REFUSED:
            path = _refused_part(one["loc"], path, document.data)
            problems[path] = Problem(_place(document, path), one["msg"], dotted(path))
        else:
            problems[path] = describe.get(one["type"], _wrong_value)(path, document, words)
    return list(problems.values())


def unknown_word(path: DataPath, choices: Sequence[str], document: Document) -> Problem:
    """Say that the text at a path is none of the choices."""
    found = str(_value_at(document.data, path))
    text = f"found {found}; allowed one of {', '.join(choices)}{did_you_mean(found, choices)}"
    return Problem(_place(document, path), text, dotted(path))


def refused_value(path: DataPath, why: str, document: Document) -> Problem:
    """Say why the text at a path is refused."""
    return Problem(_place(document, path), f"found {_value_at(document.data, path)}; {why}", dotted(path))


def did_you_mean(found: str, choices: Iterable[str]) -> str:
    """Return ``; did you mean X?`` for the beginning of a word or a likely typo, or nothing."""
    words = {word.lower(): word for word in choices}
    begun = [word for word in words if found and word.startswith(found.lower())]
    close = begun or difflib.get_close_matches(found.lower(), words, n=1)
    return f"; did you mean {words[close[0]]}?" if close else ""


def _missing_key(path: DataPath, document: Document, words: SchemaWords) -> Problem:
    return Problem(_place(document, path[:-1]), f"missing; it must be {words.allowed(path)}", dotted(path))


def _unknown_key(path: DataPath, document: Document, words: SchemaWords) -> Problem:
    """Say which keys are allowed; a key that belongs elsewhere is sent there."""
    key, allowed = str(path[-1]), words.keys(path[:-1])
    homes = words.homes(key)
    advice = did_you_mean(key, allowed) or (f"; did you mean {homes[0]}?" if homes else "")
    text = f"unknown key; allowed {', '.join(allowed)}{advice}"
    return Problem(_place(document, path), text, dotted(path))


def _wrong_value(path: DataPath, document: Document, words: SchemaWords) -> Problem:
    value = _value_at(document.data, path)
    found = _spelled(value, document.spelled.get(path))
    text = f"found {found}; allowed {words.allowed(path)}{_advice(path, value, document, words)}"
    return Problem(_place(document, path), text, dotted(path))


def _advice(path: DataPath, value: object, document: Document, words: SchemaWords) -> str:
    """Return what most likely helps: other quotes, or the word that was meant."""
    spelled = document.spelled.get(path, "")
    if isinstance(value, bool | int | float) and words.takes_text(path):
        return f'; quote it: "{spelled}"'
    if isinstance(value, str):
        return did_you_mean(value, words.choices(path))
    return ""


def _spelled(value: object, text: str | None) -> str:
    """Name what stands in the file, with its kind where the spelling does not show it."""
    if value is None:
        return "nothing"
    if isinstance(value, dict | tuple):
        return "a mapping" if isinstance(value, dict) else "a list"
    if isinstance(value, bool):
        return f"{text} (true or false)"
    shown = text if text is None or len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."
    return f"{shown} (text)" if isinstance(value, str) else f"{shown} (a number)"


def _known_part(location: DataPath, data: Any) -> DataPath:
    """Cut off what pydantic appends for the members of a union."""
    path: DataPath = ()
    for part in location:
        inside = isinstance(data, dict) and part in data
        if not inside and not (isinstance(data, tuple) and isinstance(part, int)):
            break
        path, data = (*path, part), data[part]
    return path


def _refused_part(location: DataPath, known: DataPath, data: Any) -> DataPath:
    """Return the path of a refusal: of a key that is not in its mapping, that of the key."""
    absent = len(location) == len(known) + 1 and isinstance(_value_at(data, known), dict)
    return location if absent else known


def _value_at(data: Any, path: DataPath) -> Any:
    for part in path:
        data = data[part]
    return data


def _place(document: Document, path: DataPath) -> Place:
    """Return where a key stands, or the nearest mapping around it."""
    while path and path not in document.places:
        path = path[:-1]
    return document.places.get(path, Place(document.label, 1))
