"""Options of ``trtkit bench`` that contradict each other, or would change nothing: refused before anything is sent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from trtllm_kit.bench.dialects import DIALECTS
from trtllm_kit.bench.scenarios import SCENARIOS
from trtllm_kit.errors import UsageError

USUAL_PROMPT = 512
"""Tokens of the longest prompt where nobody says otherwise."""
_OF_A_SCENARIO = {"shortest": 1.0, "shared_prefix": 0, "prefixes": 1, "turns": 1}
"""What a scenario and a trace say themselves, and what it is where nobody says it."""
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_OWN_HEADERS = ("host", "content-type", "content-length", "transfer-encoding", "accept", "connection")


def require_sense(given: Mapping[str, Any]) -> None:
    """Raise ``UsageError`` for options, by the names of their parameters, that make no run."""
    ways = [key for key in ("concurrency", "rate", "ramp", "load_fraction") if given[key] is not None]
    if len(ways) > 1:
        shown = " and ".join("--" + key.replace("_", "-") for key in ways)
        raise UsageError(shown, why="a run has one kind of arrivals", hint=f"leave out {shown.rpartition(' ')[2]}")
    if given["scenario"] and given["trace"]:
        raise UsageError("--scenario and --trace", why="both say what is sent", hint="leave out --scenario")
    _check_own(given)
    if given["scenario"] and given["scenario"] not in SCENARIOS:
        raise UsageError(
            f"--scenario {given['scenario']}", why=f"known are {', '.join(SCENARIOS)}", hint="--scenario coding"
        )
    if given["api"] and given["api"] not in DIALECTS:
        raise UsageError(f"--api {given['api']}", why=f"known are {', '.join(DIALECTS)}", hint="--api triton")
    fraction = given["load_fraction"]
    if fraction is not None and not 0 < fraction <= 1.5:
        raise UsageError(f"--load-fraction {fraction:g}", why="a share of the saturation", hint="--load-fraction 0.5")
    if fraction is not None and (given["trace"] or given["scenario"] == "agentic"):
        raise UsageError(
            "--load-fraction of recorded times", why="a trace and bursts say themselves when they come", hint="--rate"
        )
    if not 0 < given["shortest"] <= 1:
        raise UsageError(
            f"--shortest {given['shortest']:g}", why="it is a share above 0, up to 1", hint="--shortest 0.8"
        )
    page = given["metrics_url"]
    if page is not None and not page.lower().startswith(("http://", "https://")):
        raise UsageError(
            f"--metrics-url {page}", why="a page is read by http:// or https://", hint="http://127.0.0.1:8002/metrics"
        )
    if given["gpu_hour_price"] is not None and not given["gpus"]:
        raise UsageError("--gpu-hour-price without --gpus", why="a price of how many GPUs?", hint="--gpus 1")


def _check_own(given: Mapping[str, Any]) -> None:
    """Refuse options that would change nothing: a run is what was asked for."""
    source = next((key for key in ("scenario", "trace") if given[key]), None)
    own = [key for key, usual in _OF_A_SCENARIO.items() if source and given[key] != usual]
    if source == "trace":
        own += [key for key in ("rate", "ramp", "isl") if given[key] is not None]
    if own:
        option = "--" + own[0].replace("_", "-")
        raise UsageError(f"{option} with --{source}", why=f"the {source} says it itself", hint=f"leave out {option}")
    if given["arrivals"] is not None and given["rate"] is None:
        raise UsageError(
            f"--arrivals {given['arrivals']} without --rate", why="only a rate has arrivals", hint="--rate 5"
        )
    longest = given["isl"] or USUAL_PROMPT
    if not source and given["shared_prefix"] > longest:
        raise UsageError(
            f"--shared-prefix {given['shared_prefix']} of prompts of {longest} tokens",
            why="a part is no longer than the whole", hint=f"--isl {given['shared_prefix']} or more",
        )  # fmt: skip
    if given["prefixes"] > 1 and not given["shared_prefix"]:
        raise UsageError(
            f"--prefixes {given['prefixes']} without --shared-prefix", why="prefixes of how many tokens?",
            hint="--shared-prefix 512",
        )  # fmt: skip


def header_of(text: str) -> tuple[str, str]:
    """Return name and value in ``NAME:VALUE``; raises ``UsageError``, which never shows the value."""
    name, colon, value = text.partition(":")
    name, hint = name.strip(), "--header 'Authorization: Bearer KEY'"
    if not colon or not _HEADER_NAME.fullmatch(name) or any(letter in text for letter in "\r\n"):
        raise UsageError(f"a --header of {len(text)} letters is not understood", why="it takes NAME:VALUE", hint=hint)
    if name.lower() in _OWN_HEADERS:
        raise UsageError(f"--header {name}", why=f"the client says {', '.join(_OWN_HEADERS)} itself", hint=hint)
    return name, value.strip()
