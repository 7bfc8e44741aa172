"""What is looked at (a target), what was read from it (a snapshot), and one number of it (a reading). Pure data.

A snapshot holds the series of one scrape. Later sources add their fields beside ``series``; a source that was
not asked leaves its field empty, never zero.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from operator import is_not
from typing import Any, TypeVar

from trtllm_kit.health.access import ANYBODY, Access
from trtllm_kit.light import dataclass

Labels = tuple[tuple[str, str], ...]
"""Labels of a series as (name, value) pairs, sorted by name."""
Series = Mapping[str, Mapping[Labels, float]]
"""Values by family and labels."""


@dataclass(frozen=True)
class Target:
    """One server to look at."""

    url: str
    """Address of its Prometheus page."""
    start_grace_seconds: float = 0.0
    """How long after its start a server that refuses is starting, not dead."""
    started_at: float | None = None
    """When it was started, seconds since 1970; None when nobody recorded it, and then there is no grace."""
    pid: int | None = None
    """Its process on this machine, when that was recorded."""
    log: str = ""
    """Path of the server's log, when it is known."""
    missing_record: str = ""
    """Path of the run record that a running server would have left; empty when there is one, or none is expected."""
    name: str = ""
    """What the operator calls it; empty: its URL."""
    beside: tuple[str, ...] = ()
    """More pages that tell of the same server, e.g. of the DCGM exporter on its host."""
    nvml: bool = False
    """Whether the GPUs of this machine are its own and asked directly."""
    ranks: tuple[int, ...] = ()
    """Processes of its ranks on this machine, when they are known."""
    log_files: tuple[str, ...] = ()
    """Logs to look for known phrases in."""
    canary: str = ""
    """URL of one small generation; empty: none is asked for."""
    canary_timeout_seconds: float = 10.0
    """A first token may take longer than a page."""
    canary_interval_seconds: float = 60.0
    """How long one that went well stands, where checks are remembered: each costs the server a request."""
    access: Access = ANYBODY
    """Where the secrets are that its own page asks for."""
    via: str = ""
    """Address of a Prometheus that scrapes it, to be asked instead; empty: it is asked itself."""
    expired: str = ""
    """Why what runs is not what the repository holds; empty when it is, or that is not known."""

    @property
    def shown_url(self) -> str:
        """The URL without a user name or password."""
        return re.sub(r"//[^/@]*@", "//", self.url)


class Outcome(StrEnum):
    """How a scrape went."""

    OK = "ok"
    REFUSED = "refused"
    """Nothing listens on that port."""
    BROKEN = "broken"
    """No route, or the connection was cut before the answer was complete."""
    TIMEOUT = "timeout"
    HTTP_ERROR = "http-error"
    """An answer with another status than 200; redirects are not followed."""
    GARBAGE = "garbage"
    """An answer that is not a Prometheus page, or holds no series."""
    TOO_MUCH = "too-much"
    """An answer beyond the bounds of bytes, series or time: nothing a single server shows."""
    CERTIFICATE = "certificate"
    """The server's certificate is not good for it: expired, of another name, or of nobody who is trusted."""
    NO_ADDRESS = "no-address"
    """The URL has no meaning or its host name no address."""
    NO_ROOM = "no-room"
    """The machine that asks has no file descriptor or memory left to ask with: that says nothing of the server."""
    NO_SECRET = "no-secret"  # noqa: S105  # it says that there is none
    """What was named to ask with, a secret or certificates to trust, is not there or is none."""


@dataclass(frozen=True)
class Snapshot:
    """One reading of one server."""

    outcome: Outcome
    reason: str
    """What happened, in words; empty when all went well."""
    wall_seconds: float
    """Wall clock at the scrape, seconds since 1970."""
    monotonic_seconds: float
    """Monotonic clock at the scrape; only differences mean anything."""
    scrape_seconds: float
    """How long the scrape took."""
    status: int | None = None
    """HTTP status, when there was an answer."""
    series: Series = field(default_factory=dict)
    timestamps: Series = field(default_factory=dict)
    """When a value was taken, seconds since 1970, for the series whose exporter says so."""
    process_running: bool | None = None
    """Whether the target's process lives; None when it is not known."""
    beside_failed: tuple[tuple[str, str], ...] = ()
    """Sources beside the page that could not be read, each with the reason."""

    @property
    def ok(self) -> bool:
        """Whether there is a page to judge."""
        return self.outcome is Outcome.OK

    def age_seconds(self, family: str) -> float:
        """Age of the oldest series of a family by its exporter's own time stamps; 0 without any."""
        oldest = min(self.timestamps.get(family, {}).values(), default=self.wall_seconds)
        return max(0.0, self.wall_seconds - oldest)


T = TypeVar("T")


def once(read: Callable[[Snapshot], T]) -> Callable[[Snapshot], T]:
    """Read a snapshot once: several checks ask for the same number, and a snapshot does not change."""

    def remembered(snapshot: Snapshot) -> T:
        held: dict[Any, T] = snapshot.__dict__.setdefault("_held", {})  # no field: it is not compared and not copied
        if read not in held:
            held[read] = read(snapshot)
        return held[read]

    remembered.__doc__ = read.__doc__
    return remembered


def once_for_all(judge: Callable[[Sequence[Snapshot]], T]) -> Callable[[Sequence[Snapshot]], T]:
    """Judge the same samples once: whether to read on and the verdict ask the same of them."""

    def remembered(samples: Sequence[Snapshot]) -> T:
        *before, newest = samples
        held: dict[Any, tuple[list[Snapshot], T]] = newest.__dict__.setdefault("_held", {})
        known = held.get(judge)
        if known is None or len(known[0]) != len(before) or any(map(is_not, known[0], before)):
            known = held[judge] = before, judge(samples)
        return known[1]

    remembered.__doc__ = judge.__doc__
    return remembered


class Unit(StrEnum):
    """Unit of a metric; base units only."""

    RATIO = "ratio"
    """0 to 1."""
    FACTOR = "factor"
    """One amount over another; may be above 1."""
    COUNT = "count"
    SECONDS = "seconds"
    CELSIUS = "celsius"


@dataclass(frozen=True)
class Reading:
    """One number that can be compared."""

    value: float
    unit: Unit
    source: str
    """The series it was read from, or computed from."""
    age_seconds: float = 0.0
    """How old it was at the scrape by its exporter's own time stamp; 0 without one."""
    detail: str = ""
    """More numbers for the reader, e.g. the extremes behind a mean."""


class Trouble(StrEnum):
    """Why a number cannot be compared."""

    MISSING = "missing"
    NOT_A_NUMBER = "not-a-number"
    STALE = "stale"
    CONTRADICTING = "contradicting"
    QUIET = "quiet"
    """Too little happened to tell."""
    FIRST = "first"
    """A change, and there is nothing to compare with yet."""


@dataclass(frozen=True)
class NoReading:
    """No number, and why."""

    trouble: Trouble
    reason: str
    source: str
    """The series it was looked for in."""


Measured = Mapping[str, Reading | NoReading]
"""One metric by subject (a model and its version, or ``""`` for the whole server); never empty."""
