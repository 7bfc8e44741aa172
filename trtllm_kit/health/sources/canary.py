"""One small generation: a server that answers every probe and generates nothing is dead."""

from __future__ import annotations

import time

from trtllm_kit.health.access import ANYBODY, Access
from trtllm_kit.health.snapshot import Outcome, Target
from trtllm_kit.health.sources.http_get import get
from trtllm_kit.health.verdict import Finding, Kind, State

CANARY = "canary"
_ADVICE = "its probes may be green and it serves nobody: read the server's log and restart it"


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
    asked_wrongly = answer.outcome is Outcome.HTTP_ERROR and answer.status in {400, 401, 403, 404, 405}
    unclear = asked_wrongly or answer.outcome in {Outcome.NO_ADDRESS, Outcome.NO_SECRET}
    reason = answer.reason or f"the answer holds no text: {answer.body[:60]!r}"
    state = State.UNKNOWN if unclear else State.CRITICAL
    advice = "look at the canary's URL and its secret: the question was not asked or is refused" if unclear else _ADVICE
    return Finding(CANARY, "", state, Kind.FAILING, f"no token in {seconds:.2f} s: {reason}", shown, advice)
