"""Checks of the server's environment variables against the catalogue."""

from __future__ import annotations

from collections.abc import Iterator

from trtllm_kit.findings import Finding, Severity
from trtllm_kit.plan.checks.case import Case, Rule
from trtllm_kit.upstream.environment import Variable, near_name, ranges_of, variable


def environment(case: Case) -> Iterator[Finding]:
    """PF36: a variable that is misspelt, does nothing in the release, or has a value its reader does not know."""
    version = case.plan.release.value
    for name, value in case.plan.variables.items():
        known = variable(name, version)
        if known is not None:
            yield from _value(name, value, known)
        elif ranges := ranges_of(name):
            yield _found(
                f"{name} does nothing in release {version}.",
                f"it is known {' and '.join(_span(row) for row in ranges)}",
                f"leave {name} out",
            )
        elif near := near_name(name):
            yield _found(f"{name} is not known, but {near} is.", f"{name} is set to {value!r}", f"environment.{near}")


def _value(name: str, value: str, known: Variable) -> Iterator[Finding]:
    if not known.accepts(value):
        near = known.nearest(value)
        yield _found(
            f"{name} is set to a value that its reader does not know.",
            f"found {value!r}; it takes {known.values}",
            f"leave {name} out, or give it {known.values}" if near is None else f'environment.{name}: "{near}"',
        )


def _span(row: Variable) -> str:
    if row.since and row.until:
        return f"from {row.since} to before {row.until}"
    return f"from {row.since} on" if row.since else f"before {row.until}"


def _found(message: str, compared: str, suggestion: str) -> Finding:
    return Finding(rule="PF36", severity=Severity.WARNING, message=message, compared=compared, suggestion=suggestion)


RULES = (Rule("PF36", "Environment variables of the server", environment, keys=("environment", "trtllm_version")),)
