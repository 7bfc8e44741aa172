"""Reads the ``config.pbtxt`` of a Triton repository, rendered or with placeholders that nobody filled (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trtllm_kit.lint.text_format import Field, Message, Scalar, TextFormatError, parse_text_format
from trtllm_kit.migrate.found import Reader, Setting, Unread, Where
from trtllm_kit.migrate.reading.options import unread

Said = Setting | Unread
_MOST_BROKEN = 20
"""Lines that are left out of one file before the rest is."""
_PLACEHOLDER = re.compile(r"\$\{[^}]*\}")
_NAMED = {"input": "name", "output": "name", "ensemble_scheduling.step": "model_name"}
"""Messages that stand for what they name."""


def read_model(raw: bytes, file: str, folder: str) -> Iterator[Said]:
    """Yield the settings of one ``config.pbtxt``; ``folder`` is the name of the model's folder."""
    text = raw.decode("utf-8", errors="replace")
    top, broken = _parsed(text)
    lines = text.split("\n")
    for error in broken:
        yield unread(Where(file, error.line), lines[error.line - 1] if error.line <= len(lines) else "", error.said)
    if top is None:
        return
    model = top.text("name") or folder
    for one in top.fields:
        if one.name == "parameters" and isinstance(one.value, Message):
            yield _parameter(one, one.value, file, model)
        else:
            yield from _fields(one, one.name, file, model)


def _parsed(text: str) -> tuple[Message | None, list[TextFormatError]]:
    """Return the message without the lines that break it, and what is wrong with each; None where too many do."""
    broken: list[TextFormatError] = []
    lines = text.split("\n")
    while len(broken) < _MOST_BROKEN:
        try:
            return parse_text_format("\n".join(lines).encode()), broken
        except TextFormatError as error:
            broken.append(error)
            if error.line > len(lines) or not lines[error.line - 1].strip():
                break  # the end of the file: a bracket is open since before
            lines[error.line - 1] = ""
    rest = TextFormatError(broken[0].line, f"{broken[0].said}; nothing of the file could be read past it")
    return None, [rest]


def _parameter(one: Field, message: Message, file: str, model: str) -> Said:
    where = Where(file, one.line)
    key = message.text("key")
    texts = message.message("value").scalars("string_value")
    if not key or not texts:
        return unread(where, f"parameters {key}", "it has no key with a string_value")
    return Setting(Reader.PARAMETER, key, _unfilled(texts[-1]), where, model)


def _unfilled(text: str) -> str | None:
    """Return a value; None where a placeholder is left in it."""
    return None if _PLACEHOLDER.search(text) else text


def _fields(one: Field, path: str, file: str, model: str) -> Iterator[Said]:
    """Yield a field with its path; a message that has a name is one setting."""
    where = Where(file, one.line)
    if isinstance(one.value, Scalar):
        yield Setting(Reader.FIELD, path, _value(one.value), where, model)
        return
    named = one.value.text(_NAMED[path]) if path in _NAMED else ""
    if named:
        yield Setting(Reader.FIELD, path, named, where, model)
        return
    for inner in one.value.fields:
        yield from _fields(inner, f"{path}.{inner.name}", file, model)
    if not one.value.fields:
        yield Setting(Reader.FIELD, path, {}, where, model)


def _value(scalar: Scalar) -> object:
    """Return a scalar as JSON has it."""
    if scalar.kind == "placeholder" or _PLACEHOLDER.search(scalar.text):
        return None
    if scalar.kind == "word" and scalar.text.lower() in ("true", "false"):
        return scalar.text.lower() == "true"
    if scalar.kind == "number":
        return _number(scalar.text)
    return scalar.text


def _number(text: str) -> object:
    for read in (lambda: int(text, 0), lambda: int(text), lambda: float(text.rstrip("fF"))):
        try:
            return read()
        except ValueError:
            continue
    return text
