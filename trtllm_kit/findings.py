"""One result of a check, in the form every verb shares."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from pydantic import BaseModel, ConfigDict


class Severity(StrEnum):
    """How much a finding matters: ERROR stops the verb, WARNING stops it under ``--strict``."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Finding(BaseModel):
    """What a rule found: the numbers it compared and the nearest setting that works."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rule: str
    severity: Severity
    message: str
    """One sentence with the values."""
    compared: str
    """The numbers compared, e.g. ``"52.1 GiB needed, 47.3 GiB free"``."""
    suggestion: str
    """One command or one key to change."""


def errors(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return only the findings that stop a verb."""
    return tuple(finding for finding in findings if finding.severity is Severity.ERROR)


def warnings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return only the findings that stop a verb under ``--strict``."""
    return tuple(finding for finding in findings if finding.severity is Severity.WARNING)
