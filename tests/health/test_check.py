"""The whole check against servers on loopback."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from tests.health.support import SEEDS, answers, engine_page, free_port, page, stub_server
from trtllm_kit.errors import UsageError
from trtllm_kit.health import check as module
from trtllm_kit.health.check import Pace, check, take_samples
from trtllm_kit.health.rules import Ruleset
from trtllm_kit.health.snapshot import Target
from trtllm_kit.health.sources.gather import gather
from trtllm_kit.health.verdict import Kind, State

RULES = Ruleset(tuple(rule for rule in SEEDS if rule.needs is None))
FAST = {"interval_seconds": 0.02, "timeout_seconds": 2.0}


def test_a_healthy_server_is_ok() -> None:
    """Two real pages of a busy server give OK after two readings."""
    with stub_server(answers(page("triton-2.51-simulated-busy-1"), page("triton-2.51-simulated-busy-2"))) as url:
        verdict = check(Target(url), RULES, **FAST)
    assert (State.OK, 2) == (verdict.state, verdict.samples)


def test_a_lasting_queue_is_a_warning_and_a_passing_one_is_not() -> None:
    """Eleven queued in both readings warn; in the second only they do not."""
    with stub_server(answers(engine_page(queued=11))) as url:
        assert State.WARNING is check(Target(url), RULES, **FAST).state
    with stub_server(answers(engine_page(queued=0), engine_page(queued=11))) as url:
        assert State.OK is check(Target(url), RULES, **FAST).state


def test_a_rule_gets_the_samples_it_needs() -> None:
    """Without a number given, the most patient rule decides how often the server is read."""
    patient = Ruleset(tuple(replace(rule, samples=4) for rule in RULES.rules))
    with stub_server(answers(engine_page(queued=11))) as url:
        verdict = check(Target(url), patient, **FAST)
    assert (State.WARNING, 4) == (verdict.state, verdict.samples)


def test_the_pace_is_kept() -> None:
    """Readings begin one interval apart, whatever each of them takes."""
    with stub_server(answers(engine_page())) as url:
        taken = take_samples(Target(url), RULES, Pace(3, 0.1, 2.0), gather(Target(url), 2.0))
    gaps = [later.monotonic_seconds - earlier.monotonic_seconds for earlier, later in itertools.pairwise(taken)]
    assert all(0.09 < gap < 0.4 for gap in gaps), gaps


def test_one_long_step_is_not_a_hang() -> None:
    """An engine that stands still in both readings and moves in the next one is OK."""
    busy = [engine_page(active=1, iteration=n) for n in (7, 7, 7, 8)]
    with stub_server(answers(*busy)) as url:
        verdict = check(Target(url), RULES, **FAST)
    assert (State.OK, 4) == (verdict.state, verdict.samples)


def test_a_frozen_engine_is_unknown_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that never moves while busy is UNKNOWN once the patience is over."""
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.4)
    with stub_server(answers(engine_page(active=1, iteration=7))) as url:
        verdict = check(Target(url), RULES, **FAST)
    assert State.UNKNOWN is verdict.state
    assert Kind.STALE in {finding.kind for finding in verdict.findings}
    assert verdict.samples > 2


def test_reading_faster_than_the_heartbeat_is_no_standstill() -> None:
    """A heartbeat that is the same in the first readings, a few hundredths of a second apart, and then moves is OK."""
    with stub_server(answers(*[engine_page(heartbeat=beat) for beat in (7, 7, 7, 8)])) as url:
        verdict = check(Target(url), RULES, **FAST)
    assert (State.OK, 4) == (verdict.state, verdict.samples)


@pytest.mark.parametrize("interval", [0.0, 1.0])
def test_a_dead_heartbeat_is_critical_within_the_time(interval: float) -> None:
    """However fast it is read, an idle server without a heartbeat is CRITICAL, in less than a plugin's ten seconds."""
    start = time.monotonic()
    with stub_server(answers(engine_page(heartbeat=7))) as url:
        verdict = check(Target(url), RULES, interval_seconds=interval)
    assert State.CRITICAL is verdict.state
    assert time.monotonic() - start < 7


def test_a_huge_page_is_unknown_within_the_time_out() -> None:
    """A page of 900,000 series, 13 MB, takes no longer than the time-out, and what is wrong with it is said."""
    body = "".join(f'a{{x="{n}"}} 1\n' for n in range(900_000))
    with stub_server(answers(body)) as url:
        start = time.monotonic()
        verdict = check(Target(url), RULES, timeout_seconds=4.0)
        elapsed = time.monotonic() - start
    assert elapsed < 4.5
    assert (State.UNKNOWN, "scrape") == (verdict.state, verdict.findings[0].rule)
    assert "more than 20000 series" in verdict.findings[0].message
    assert "give its own metrics page" in verdict.findings[0].advice


def test_a_failed_reading_ends_the_check() -> None:
    """A server that refuses is CRITICAL at once, without waiting for more readings."""
    start = time.monotonic()
    verdict = check(Target(f"http://127.0.0.1:{free_port()}/metrics"), RULES, interval_seconds=30.0)
    assert (State.CRITICAL, 1) == (verdict.state, verdict.samples)
    assert time.monotonic() - start < 2


def test_a_server_that_hangs_is_critical_within_the_time_out() -> None:
    """A server that accepts and never answers, as a stopped process does, is CRITICAL."""
    with stub_server(lambda connection: time.sleep(2)) as url:
        start = time.monotonic()
        verdict = check(Target(url), RULES, timeout_seconds=0.3)
        elapsed = time.monotonic() - start
    assert State.CRITICAL is verdict.state
    assert elapsed < 1


@pytest.mark.parametrize(
    ("status", "state"),
    [("500 Internal Server Error", State.CRITICAL), ("404 Not Found", State.UNKNOWN), ("302 Found", State.UNKNOWN)],
)
def test_an_http_error_has_its_state(status: str, state: State) -> None:
    """A failing server is CRITICAL, a wrong URL UNKNOWN, and no redirect is followed."""
    with stub_server(answers(engine_page(), status=status, head="Location: /metrics\r\n")) as url:
        assert state is check(Target(url), RULES, **FAST).state


@pytest.mark.parametrize("body", ["<html></html>\n", "[]", "", "a 1"])
def test_garbage_is_unknown(body: str) -> None:
    """An answer that is no metrics page is UNKNOWN even with no rule at all."""
    with stub_server(answers(body)) as url:
        assert State.UNKNOWN is check(Target(url), Ruleset(()), **FAST).state


def test_a_starting_server_is_a_warning_while_its_process_lives() -> None:
    """Within the grace a refusal is WARNING for a living process and CRITICAL for one that is gone."""
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    target = Target(
        f"http://127.0.0.1:{free_port()}/metrics", start_grace_seconds=60.0, started_at=time.time(), pid=os.getpid()
    )
    assert State.WARNING is check(target, RULES, **FAST).state
    assert State.CRITICAL is check(replace(target, pid=child.pid), RULES, **FAST).state


@pytest.mark.parametrize(
    "numbers",
    [
        {"samples": 0},
        {"interval_seconds": -1.0},
        {"interval_seconds": float("nan")},
        {"interval_seconds": float("inf")},
        {"timeout_seconds": 0.0},
        {"timeout_seconds": float("nan")},
        {"timeout_seconds": 1e9},
    ],
)
def test_numbers_that_make_no_check_are_refused(numbers: dict[str, float]) -> None:
    """Samples, interval and time-out out of their bounds are a usage error before anything is read."""
    with pytest.raises(UsageError):
        check(Target("http://127.0.0.1:1/metrics"), RULES, **numbers)  # type: ignore[arg-type]


def test_the_check_imports_the_standard_library_only() -> None:
    """The path that cron takes loads neither pydantic nor yaml, numpy, typer or rich."""
    code = (
        "import sys; import trtllm_kit.health.check, trtllm_kit.health.report;"
        "print(sorted({'pydantic', 'yaml', 'numpy', 'typer', 'rich', 'filelock', 'asyncio'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "[]" == done.stdout.strip()
