"""The answer: four states, one severity order, and the findings that led there."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from trtllm_kit.health.snapshot import Unit
from trtllm_kit.light import dataclass


class State(StrEnum):
    """What a monitoring system shows."""

    OK = "OK"
    WARNING = "WARNING"
    UNKNOWN = "UNKNOWN"
    CRITICAL = "CRITICAL"

    @property
    def severity(self) -> int:
        """Rank in the one severity order, OK < WARNING < UNKNOWN < CRITICAL: what is confirmed is never hidden."""
        return _SEVERITY.index(self)

    @property
    def exit_code(self) -> int:
        """Exit code of a Nagios plugin; its order is not the severity order."""
        return _EXIT_CODES[self]


_SEVERITY = (State.OK, State.WARNING, State.UNKNOWN, State.CRITICAL)
_EXIT_CODES = {State.OK: 0, State.WARNING: 1, State.CRITICAL: 2, State.UNKNOWN: 3}


def worst(states: Iterable[State]) -> State:
    """Return the gravest of the states; UNKNOWN when there is none, for then nothing was looked at."""
    return max(states, key=lambda state: state.severity, default=State.UNKNOWN)


class Kind(StrEnum):
    """Why a finding has its state."""

    WITHIN = "within"
    """The number is healthy."""
    IDLE = "idle"
    """The rule asks only while requests are active, and none is."""
    PASSING = "passing"
    """Outside now, but not for as many samples as the rule wants."""
    OUTSIDE = "outside"
    """Outside for as many samples as the rule wants."""
    UNDECIDED = "undecided"
    """Outside in every sample there is, and there are fewer than the rule wants."""
    MISSING = "missing"
    NOT_A_NUMBER = "not-a-number"
    STALE = "stale"
    CONTRADICTING = "contradicting"
    FAILING = "failing"
    """Requests ended in an error of the engine between the samples."""
    WENT_BACK = "went-back"
    """A counter fell between the samples."""
    QUIET = "quiet"
    """Too little happened to tell."""
    FIRST = "first"
    """There is nothing to compare with yet."""
    FORGOTTEN = "forgotten"
    """What earlier checks left cannot be read."""
    EXPIRED = "expired"
    """What runs is not what the repository holds."""
    TOLD = "told"
    """The server's own log says so."""
    SCRAPED = "scraped"
    STARTING = "starting"
    """Refused, within the start-up grace of a server that runs."""
    SCRAPE_FAILED = "scrape-failed"


LOG = "the server's log"
"""How advice speaks of the log; where its path is known the verdict has that instead."""


@dataclass(frozen=True)
class Finding:
    """What one rule, or one built-in check, says about one subject."""

    rule: str
    subject: str
    """What it is about when there can be several, e.g. ``tensorrt_llm/1``; empty for the whole server."""
    state: State
    kind: Kind
    message: str
    """One line with the numbers, without the rule's name."""
    source: str = ""
    """Where the number was read."""
    advice: str = ""
    """What to do; empty when there is nothing to do."""
    run: int = 0
    """Consecutive samples outside, those of earlier checks included."""
    fired: bool = False
    """Whether it has fired and not yet cleared."""

    @property
    def title(self) -> str:
        """The rule's name, with the subject when there is one."""
        return f"{self.rule} ({self.subject})" if self.subject else self.rule

    @property
    def order(self) -> tuple[int, str, str]:
        """Sort key: the gravest first, then by name."""
        return (-self.state.severity, self.rule, self.subject)


@dataclass(frozen=True)
class Skipped:
    """A rule that was not judged, and why."""

    rule: str
    reason: str


@dataclass(frozen=True)
class Measure:
    """One number for performance data."""

    label: str
    value: float | None
    """None when it could not be determined."""
    unit: Unit
    warning: str = ""
    """Nagios range of healthy values, where leaving it is a WARNING."""
    critical: str = ""


@dataclass(frozen=True)
class Verdict:
    """The state of one server and everything that led to it."""

    url: str
    state: State
    findings: tuple[Finding, ...]
    """One or more for every rule that was judged and every built-in check, the gravest first."""
    measures: tuple[Measure, ...]
    not_applicable: tuple[Skipped, ...]
    """Rules that the profile cannot have, or has switched off."""
    not_judged: tuple[Skipped, ...]
    """Rules that could not be judged this time, for a reason that a finding or a missing sample gives."""
    samples: int
    """How often the server was read."""
    taken_at: float
    """Wall clock of the newest sample, seconds since 1970; 0 when there is none."""
    name: str = ""
    """What the operator calls it; empty: its URL."""
