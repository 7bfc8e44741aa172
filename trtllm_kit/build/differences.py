"""What stands between an engine that is there and the one that is asked for: field, value there, value asked (pure)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trtllm_kit.plan.plan import Plan

_DERIVED = ("findings", "memory", "communication", "schema_version")
"""What follows from the rest of a plan."""
_WHOLE = ("model", "serve", "calibration")
"""Sections that are compared as one."""
_FIRST = ("release", "compute_capability", "gpu", "driver", "checkpoint", "draft", "toolchain")
_SHOWN = 40
_DECIDED = frozenset({"value", "source", "reason"})


@dataclass(frozen=True)
class Difference:
    """One field in which two engines differ."""

    field: str
    there: str
    asked: str

    def __str__(self) -> str:
        """Say it in a few words."""
        return f"{self.field} is {self.there} there, {self.asked} is asked"


@dataclass(frozen=True)
class Origin:
    """What an engine is made of."""

    plan: Plan
    inputs: Mapping[str, str]
    """Digest of each input, by name; that of the plan aside."""
    driver: str | None
    """Class of the driver it is built under; None for what depends on none."""
    kit_version: str


def differences(there: Origin, asked: Origin) -> tuple[Difference, ...]:
    """Return every field in which they differ, what decides where an engine runs first; none for the same engine."""
    one, other = dict(_fields(there)), dict(_fields(asked))
    names = sorted({*one, *other}, key=lambda name: (_FIRST.index(name) if name in _FIRST else len(_FIRST), name))
    found = [_difference(name, one.get(name), other.get(name)) for name in names if one.get(name) != other.get(name)]
    if not found and there.plan.digest != asked.plan.digest:
        found = [_difference("plan", there.plan.digest, asked.plan.digest)]
    return tuple(found)


def _fields(origin: Origin) -> Iterator[tuple[str, object]]:
    yield "driver", origin.driver
    yield "kit_version", origin.kit_version
    yield from ((name, digest) for name, digest in origin.inputs.items() if name != "plan")
    document = origin.plan.without_places().model_dump(mode="json")
    for name, value in document.items():
        if name in _WHOLE:
            yield name, value
        elif name not in _DERIVED:
            yield from _values(name, value)


def _values(name: str, value: Any) -> Iterator[tuple[str, object]]:
    """Yield the decisions below a field of a plan: values alone, since who decided and why makes no other engine."""
    if not isinstance(value, dict):
        yield name, value
    elif value.keys() == _DECIDED:
        yield name, value["value"]
    else:
        for inner, below in value.items():
            yield from _values(f"{name}.{inner}", below)


def _difference(field: str, there: object, asked: object) -> Difference:
    shown = [_text(value) for value in (there, asked)]
    return Difference(field, *(("another", "its own") if shown[0] == shown[1] else shown))


def _text(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return text if len(text) <= _SHOWN else f"{text[:12]}..."
