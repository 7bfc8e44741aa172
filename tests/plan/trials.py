"""What a rule about given things is tried with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from trtllm_kit.findings import Finding, Severity

ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO
Rule = Callable[[str], Iterable[Finding]]
GONE = "1.3.0rc21"
"""The first release without engines."""


@dataclass(frozen=True)
class Trial:
    """One rule: a thing it speaks of in a release, a near one that it does not, a release that answers otherwise."""

    rule: str
    severity: Severity
    compared: str
    speaks: Rule
    near: Rule
    release: str = "1.2.1"
    other: str | None = GONE
    """A release that answers otherwise about the first thing; None: no range is known, and WITHOUT_RANGE says why."""
    beside: tuple[str, ...] = ()
    """What another rule rightly says of the near thing, as a note."""
