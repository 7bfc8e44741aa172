"""Decisions that only pass on what the profile asks, or its default."""

from __future__ import annotations

from typing import TypeVar

from trtllm_kit.plan.plan import Decided, Source
from trtllm_kit.spec.load import LoadedProfile

T = TypeVar("T")


def as_asked(loaded: LoadedProfile, key: str, value: T) -> Decided[T]:
    """Return the decision to take a dotted key of the profile as it stands."""
    return Decided(value=value, source=source_of(loaded, key), reason=reason_of(loaded, key))


def source_of(loaded: LoadedProfile, key: str) -> Source:
    """Say whether the documents set a key or trtkit's default holds."""
    return "profile" if loaded.source(key) == "profile" else "default"


def reason_of(loaded: LoadedProfile, key: str) -> str:
    """Return the reason that goes with that source."""
    return "asked by the profile" if source_of(loaded, key) == "profile" else "not asked: trtkit's default"
