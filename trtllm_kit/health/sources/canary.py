"""One small generation: a server that answers every probe and generates nothing is dead."""

from __future__ import annotations

import hashlib
import time

from trtllm_kit.health.access import ANYBODY, Access
from trtllm_kit.health.snapshot import Outcome, Target
from trtllm_kit.health.sources.http_get import get
from trtllm_kit.health.verdict import Finding, Kind, State

CANARY = "canary"
_ASKED_WRONGLY = frozenset((400, 401, 403, 404, 405, 501))
"""Statuses of a server that lives and does not do what was asked: 501 is Triton's for what a model or build lacks."""
_ADVICE = "its probes may be green and it serves nobody: read the server's log and restart it"


def last_or_new(target: Target, last: tuple[str, float]) -> tuple[tuple[str, float], Finding]:
    """Return the last generation that went well while it stands, else ask for one; returns what stands now, and it.

    ``last`` is the digest of its URL and when it was, seconds since 1970. One that failed stands for nothing.
    """
    url, at = last
    now = time.time()
    if url == _digest(target.canary) and 0 <= now - at < target.canary_interval_seconds:
        message = f"one token {now - at:.0f} s ago, asked for every {target.canary_interval_seconds:g} s"
        return last, Finding(CANARY, "", State.OK, Kind.WITHIN, message, Target(target.canary).shown_url)
    finding = generate(target.canary, target.canary_timeout_seconds, target.access)
    return (_digest(target.canary), now) if finding.state is State.OK else ("", 0.0), finding


def _digest(url: str) -> str:
    """Name a URL in a state, which holds no address."""
    return hashlib.sha256(url.encode()).hexdigest()[:16]


def generate(url: str, timeout_seconds: float, access: Access = ANYBODY) -> Finding:
    """Ask for one token at ``<url>`` (Triton's ``/v2/models/NAME/generate``); the answer must be a text in time."""
    body = b'{"text_input": "a", "sampling_param_max_tokens": 1, "max_tokens": 1, "stream": false}'
    shown = Target(url).shown_url
    begun = time.monotonic()
    answer = get(url, timeout_seconds, post=body, access=access)
    seconds = time.monotonic() - begun
    if answer.outcome is Outcome.OK and b'"text_output"' in answer.body:
        message = f"one token in {seconds:.2f} s"
        return Finding(CANARY, "", State.OK, Kind.WITHIN, message, shown)
    asked_wrongly = answer.outcome is Outcome.HTTP_ERROR and answer.status in _ASKED_WRONGLY
    unclear = asked_wrongly or answer.outcome in {Outcome.NO_ADDRESS, Outcome.NO_SECRET, Outcome.NO_ROOM}
    reason = answer.reason or f"the answer holds no text: {answer.body[:60]!r}"
    state = State.UNKNOWN if unclear else State.CRITICAL
    advice = "look at the canary's URL and its secret: the question was not asked or is refused" if unclear else _ADVICE
    return Finding(CANARY, "", state, Kind.FAILING, f"no token in {seconds:.2f} s: {reason}", shown, advice)
