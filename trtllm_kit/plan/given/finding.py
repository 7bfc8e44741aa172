"""How a rule about a given thing says what it found."""

from __future__ import annotations

from trtllm_kit.findings import Finding, Severity
from trtllm_kit.upstream.failures import Failure


def severity_of(known: Failure) -> Severity:
    """Return ERROR for what was read in the release's own source, WARNING for what was read near it or recalled."""
    return Severity.ERROR if known.certainty == "read" else Severity.WARNING


def found(rule: str, severity: Severity, message: str, compared: str, suggestion: str) -> Finding:
    """Return a finding."""
    return Finding(rule=rule, severity=severity, message=message, compared=compared, suggestion=suggestion)


def of_failure(rule: str, known: Failure, message: str, compared: str, suggestion: str) -> Finding:
    """Return the finding of a known failure, which says so when the release's own source was not read."""
    severity = severity_of(known)
    doubt = "" if severity is Severity.ERROR else "; not confirmed for this release"
    return found(rule, severity, message, f"{compared}{doubt}", suggestion)
