"""Rules about calls of ``trtllm-serve``: options and words that a release does not take (PF48)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trtllm_kit.findings import Finding, Severity
from trtllm_kit.plan.given.finding import found
from trtllm_kit.upstream.serve_options import (
    SERVE,
    ServeOption,
    near_option,
    option_anywhere,
    option_named,
    rows_of,
    serve_options,
)


def serve_call(options: Mapping[str, str], release: str, program: str = SERVE) -> Iterator[Finding]:
    """PF48: options, with their dashes, or words of them that a release's ``trtllm-serve`` is not known to take."""
    if not serve_options(release, program):
        return
    for name, value in options.items():
        known = option_named(release, name, program)
        if known is None:
            yield unknown(name, release, program)
        elif value in _words_elsewhere(known) - set(map(str, known.choices)):
            yield found(
                "PF48",
                Severity.WARNING,
                f"{program} of release {release} is not known to take {name} {value}.",
                f"{name} {value}; it takes {', '.join(map(str, known.choices))}; not confirmed for this release",
                f"{name} {known.default or known.choices[0]}",
            )


def _words_elsewhere(known: ServeOption) -> set[str]:
    """Return the words that an option with a list of them takes in any release."""
    rows = rows_of(known.flag, known.program) if known.choices else ()
    return {str(word) for row in rows for word in row.choices}


def unknown(name: str, release: str, program: str = SERVE) -> Finding:
    """Say that a release is not known to take an option."""
    near, other = near_option(release, name, program), option_anywhere(name, program)
    known = "no release that was read has it"
    if other is not None:
        known = f"it is there {f'from {other.since}' if other.since else 'from the first release'}"
        known += f" to before {other.until}" if other.until else " on"
    return found(
        "PF48",
        Severity.WARNING,
        f"{program} of release {release} is not known to take {name}.",
        f"{name}: {known}; not confirmed for this release",
        f"write {near}" if near else f"leave {name} out",
    )
