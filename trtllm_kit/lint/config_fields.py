"""What protobuf's reader refuses in a ``config.pbtxt``: fields it does not know, values of another type."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from itertools import islice

from trtllm_kit.findings import Finding, Severity
from trtllm_kit.lint.text_format import Field, Message, Scalar
from trtllm_kit.upstream.model_config import TOP, ConfigField, config_field, field_names, words_of

RULE = "PF21"
MOST = 50
"""More of one file than this tell nothing new."""
INTEGER = re.compile(r"-?(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)")
_NUMBER = re.compile(r"-?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?[fF]?|-?(inf|infinity|nan)", re.IGNORECASE)
_BOOLEANS = frozenset({"true", "false", "True", "False", "t", "f", "0", "1"})


def refused(top: Message, model: str) -> Iterator[tuple[Finding, int]]:
    """PF21: yield what Triton's reader would refuse, each with its line; ``model`` names the model in findings."""
    yield from islice(_refused(top, TOP, model), MOST)


def _refused(message: Message, kind: str, model: str) -> Iterator[tuple[Finding, int]]:
    """Yield what protobuf refuses: fields that the message does not have or has once, and values of another type."""
    seen: set[str] = set()
    for one in message.fields:
        known = config_field(kind, one.name)
        if known is None and one.name in seen:
            continue
        if known is None:
            yield _unknown(kind, one, model), one.line
        elif not known.repeated and one.name in seen:
            yield (
                _wrong(model, f"{one.name} of {kind} is given twice", "it can stand once", f"one {one.name}"),
                one.line,
            )
        else:
            yield from _value(one, known, model)
        seen.add(one.name)


def _value(one: Field, known: ConfigField, model: str) -> Iterator[tuple[Finding, int]]:
    if isinstance(one.value, Message):
        if known.type in _SCALARS or words_of(known.type):
            yield _wrong(model, f"{one.name} is no message", f"it is a {known.type}", f"{one.name}: VALUE"), one.line
        else:
            yield from _refused(one.value, known.type, model)
    elif one.value.kind != "placeholder" and not _fits(one.value, known.type):
        text = f'"{one.value.text}"' if one.value.kind == "string" else one.value.text
        wanted = ", ".join(words_of(known.type)) or f"a value of type {known.type}"
        yield (
            _wrong(model, f"{one.name} cannot be {text}", f"it takes {wanted}", f"{one.name}: another value"),
            one.line,
        )


def _fits(value: Scalar, kind: str) -> bool:
    words = words_of(kind)
    if words:
        return (value.kind == "word" and value.text in words) or (value.kind == "number" and value.text.isdigit())
    return _SCALARS[kind](value) if kind in _SCALARS else False


_SCALARS: dict[str, Callable[[Scalar], bool]] = {
    "string": lambda value: value.kind == "string",
    "bool": lambda value: value.kind != "string" and value.text in _BOOLEANS,
    "int": lambda value: value.kind == "number" and INTEGER.fullmatch(value.text) is not None,
    "float": lambda value: value.kind != "string" and _NUMBER.fullmatch(value.text) is not None,
}


def _unknown(kind: str, one: Field, model: str) -> Finding:
    names = field_names(kind)
    near = difflib.get_close_matches(one.name, names, n=1, cutoff=0.6)
    return Finding(
        rule=RULE,
        severity=Severity.WARNING,
        message=f"{kind} of config.pbtxt is not known to have a field {one.name}; Triton refuses one it does not know.",
        compared=f"{model}: {one.name}; known are {', '.join(names)}; not confirmed for this release",
        suggestion=f"write {near[0]}" if near else f"leave {one.name} out",
    )


def _wrong(model: str, what: str, known: str, way_out: str) -> Finding:
    return Finding(
        rule=RULE,
        severity=Severity.ERROR,
        message=f"Triton refuses this config.pbtxt: {what}.",
        compared=f"{model}: {known}",
        suggestion=way_out,
    )
