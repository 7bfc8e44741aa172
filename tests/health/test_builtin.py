"""The built-in checks: the scrape, the engine's progress, the numbers' sanity."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.health.support import NOW, SEEDS, TARGET, engine_page, failure, page, snapshot, snapshots
from trtllm_kit.health.builtin import BUILT_IN, engine_progress, is_frozen, metric_sanity, scrape, start_grace_left
from trtllm_kit.health.load import shipped_rules
from trtllm_kit.health.snapshot import Outcome, Snapshot, Target
from trtllm_kit.health.verdict import Finding, Kind, State


@pytest.mark.parametrize(
    ("outcome", "status", "state"),
    [
        (Outcome.REFUSED, None, State.CRITICAL),
        (Outcome.BROKEN, None, State.CRITICAL),
        (Outcome.TIMEOUT, None, State.CRITICAL),
        (Outcome.HTTP_ERROR, 500, State.CRITICAL),
        (Outcome.HTTP_ERROR, 503, State.CRITICAL),
        (Outcome.HTTP_ERROR, 404, State.UNKNOWN),
        (Outcome.HTTP_ERROR, 302, State.UNKNOWN),
        (Outcome.GARBAGE, 200, State.UNKNOWN),
        (Outcome.TOO_MUCH, 200, State.UNKNOWN),
        (Outcome.NO_ADDRESS, None, State.UNKNOWN),
        (Outcome.NO_ROOM, None, State.UNKNOWN),
    ],
)
def test_a_failed_scrape_has_its_state(outcome: Outcome, status: int | None, state: State) -> None:
    """A server that does not answer or answers 5xx is CRITICAL; a wrong question is UNKNOWN; both say what to do."""
    finding = scrape(TARGET, (failure(outcome, status),))
    assert (state, Kind.SCRAPE_FAILED) == (finding.state, finding.kind)
    assert finding.advice
    assert TARGET.url in finding.message


STARTED = Target(TARGET.url, start_grace_seconds=600.0, started_at=NOW - 60.0)


@pytest.mark.parametrize(
    ("target", "outcome", "running", "state"),
    [
        (STARTED, Outcome.REFUSED, None, State.WARNING),
        (STARTED, Outcome.REFUSED, True, State.WARNING),
        (STARTED, Outcome.REFUSED, False, State.CRITICAL),
        (STARTED, Outcome.TIMEOUT, True, State.CRITICAL),
        (STARTED, Outcome.BROKEN, True, State.CRITICAL),
        (replace(STARTED, started_at=NOW - 599.9), Outcome.REFUSED, True, State.WARNING),
        (replace(STARTED, started_at=NOW - 600.0), Outcome.REFUSED, True, State.CRITICAL),
        (replace(STARTED, started_at=NOW + 1.0), Outcome.REFUSED, True, State.CRITICAL),
        (replace(STARTED, started_at=None), Outcome.REFUSED, None, State.CRITICAL),
        (replace(STARTED, start_grace_seconds=0.0), Outcome.REFUSED, True, State.CRITICAL),
    ],
)
def test_the_grace_covers_a_refusal_of_a_running_start_only(
    target: Target, outcome: Outcome, running: bool | None, state: State
) -> None:
    """Within the recorded grace a refusal is a WARNING; dead process, other failure, future or no start: CRITICAL."""
    sample = replace(failure(outcome), process_running=running)
    assert state is scrape(target, (sample,)).state


def test_starting_is_named_with_its_seconds() -> None:
    """The finding of a starting server tells how long it has been starting, and of how long."""
    finding = scrape(STARTED, (failure(Outcome.REFUSED),))
    assert Kind.STARTING is finding.kind
    assert finding.message.startswith("starting for 60 s of 600 s")
    assert 540.0 == start_grace_left(STARTED, failure(Outcome.REFUSED))


def test_a_dead_process_is_named() -> None:
    """When the recorded process is gone the finding says so."""
    target = replace(STARTED, pid=4711)
    finding = scrape(target, (replace(failure(Outcome.REFUSED), process_running=False),))
    assert finding.message.endswith("its process 4711 is gone")


def test_a_failure_before_a_good_scrape_is_a_warning() -> None:
    """A server that could not be read a second ago is not OK."""
    samples = (failure(Outcome.TIMEOUT), snapshot(engine_page(), 1.0))
    assert State.WARNING is scrape(TARGET, samples).state


def test_no_sample_is_unknown() -> None:
    """Nothing read is UNKNOWN."""
    assert State.UNKNOWN is scrape(TARGET, ()).state


def progress(*texts: str) -> Finding:
    """Judge the progress of the one model on these pages."""
    (finding,), skipped = engine_progress(snapshots(*texts))
    assert not skipped
    return finding


def steps(*iterations: float | str | None, **values: float | str | None) -> list[str]:
    """Write busy pages with these step counters."""
    return [engine_page(iteration=iteration, **({"active": 3} | values)) for iteration in iterations]


@pytest.mark.parametrize(
    ("texts", "state", "kind"),
    [
        ([page("triton-2.51-simulated-busy-1"), page("triton-2.51-simulated-busy-2")], State.OK, Kind.WITHIN),
        (steps(100, 101), State.OK, Kind.WITHIN),
        (steps(100, 100), State.UNKNOWN, Kind.STALE),
        (steps(100, 100, 100, 100), State.UNKNOWN, Kind.STALE),
        (steps(100, 100, 101), State.OK, Kind.WITHIN),
        (steps("NaN", "NaN"), State.UNKNOWN, Kind.NOT_A_NUMBER),
        (steps(-1, -1), State.UNKNOWN, Kind.CONTRADICTING),
        (steps(None, None), State.UNKNOWN, Kind.MISSING),
        (steps(None, None, timestamp=1795993418), State.UNKNOWN, Kind.STALE),
        (steps(100, 100, active=0), State.OK, Kind.IDLE),
        (steps(100, 100, active=None), State.UNKNOWN, Kind.MISSING),
        (steps(100, 100, active="NaN"), State.UNKNOWN, Kind.NOT_A_NUMBER),
        ([page("llmapi-upstream")] * 2, State.UNKNOWN, Kind.MISSING),
    ],
)
def test_progress_in_each_situation(texts: list[str], state: State, kind: Kind) -> None:
    """Moving, frozen, reset, missing, NaN, idle: each has its state and kind."""
    finding = progress(*texts)
    assert (state, kind) == (finding.state, finding.kind)


def test_a_moving_timestamp_is_progress_where_there_is_no_counter() -> None:
    """Without iteration_counter the time of the last step tells whether steps are made."""
    pages = [engine_page(active=1, iteration=None, timestamp=stamp) for stamp in (1795993418, 1795993419)]
    assert Kind.WITHIN is progress(*pages).kind


@pytest.mark.parametrize(
    "texts",
    [
        steps(900, 2),
        steps(900, 2, 900),
        [engine_page(active=3, iteration=None, timestamp=stamp) for stamp in (1795993419, 1795993418)],
    ],
)
def test_a_step_counter_that_goes_back_is_no_progress(texts: list[str]) -> None:
    """Two hung servers that take turns show other numbers each time; that is not called steps."""
    findings, (skip,) = engine_progress(snapshots(*texts))
    assert [] == findings
    assert ("engine-progress", "its step counter went back (see one-server)") == (skip.rule, skip.reason)


@pytest.mark.parametrize(
    "texts", [steps(100), [engine_page(active=0), engine_page(active=3)], [page("llmapi-upstream"), *steps(100)]]
)
def test_one_busy_sample_judges_nothing(texts: list[str]) -> None:
    """A model busy in the newest sample only is listed as not judged, and is neither OK nor wrong."""
    findings, skipped = engine_progress(snapshots(*texts))
    assert ([], ["engine-progress"]) == (findings, [skip.rule for skip in skipped])


def test_a_frozen_model_is_found_beside_a_moving_one() -> None:
    """Each model is watched by itself."""
    moving = [engine_page("large", active=1, iteration=n) for n in (1, 2)]
    frozen = engine_page("small", active=1, iteration=7)
    samples = snapshots(*(text + frozen for text in moving))
    assert [("large/1", Kind.WITHIN), ("small/1", Kind.STALE)] == [
        (finding.subject, finding.kind) for finding in engine_progress(samples)[0]
    ]
    assert is_frozen(samples)


def test_frozen_needs_two_good_samples() -> None:
    """One sample, or a newest one that failed, is not frozen."""
    busy = snapshot(engine_page(active=1))
    assert not is_frozen((busy,))
    assert not is_frozen((busy, failure(Outcome.TIMEOUT, second=1.0)))
    assert is_frozen((busy, replace(busy, monotonic_seconds=1.0)))


def test_a_heartbeat_that_stands_still_is_frozen() -> None:
    """An idle model whose heartbeat does not move is worth more samples, one whose heartbeat moves is not."""
    assert is_frozen(snapshots(engine_page(heartbeat=7), engine_page(heartbeat=7)))
    assert not is_frozen(snapshots(engine_page(heartbeat=7), engine_page(heartbeat=8)))


def test_a_stopped_server_is_told_from_one_that_died() -> None:
    """Without a run record the message says that none runs from here, and the advice names the last one's log."""
    target = replace(TARGET, log="/srv/repo.server.log", missing_record="/srv/repo.run.json")
    finding = scrape(target, (failure(Outcome.REFUSED),))
    assert finding.message.endswith(
        "no run record /srv/repo.run.json: no server was started from here, or it was stopped"
    )
    assert finding.advice.startswith("start it with trtkit deploy --start; the end of")
    assert "trtkit deploy" not in scrape(target, (failure(Outcome.TIMEOUT),)).advice
    assert "start it with trtkit deploy --start" == scrape(replace(target, log=""), (failure(Outcome.REFUSED),)).advice


def sanity(sample: Snapshot) -> Finding:
    """Look for impossible numbers with the shipped rules."""
    return metric_sanity(sample, {rule.metric for rule in SEEDS})


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (engine_page(), Kind.WITHIN),
        (engine_page(scheduled=-1), Kind.CONTRADICTING),
        (engine_page(paused="NaN"), Kind.NOT_A_NUMBER),
        (engine_page(fraction="NaN"), Kind.WITHIN),
        (page("llmapi-upstream"), Kind.WITHIN),
    ],
)
def test_numbers_that_no_rule_judges_are_still_checked(text: str, kind: Kind) -> None:
    """An impossible number is UNKNOWN even without a rule; one that a rule reports is not reported twice."""
    finding = sanity(snapshot(text))
    assert kind is finding.kind
    assert (State.OK if kind is Kind.WITHIN else State.UNKNOWN) is finding.state


def test_a_metric_whose_rule_is_gone_is_checked_here() -> None:
    """With every rule switched off, a contradicting KV cache is still UNKNOWN."""
    assert State.UNKNOWN is metric_sanity(snapshot(engine_page(used=2000)), set()).state


def test_built_in_names_are_no_rule_names() -> None:
    """A finding's name tells whether a rule or a built-in check made it."""
    assert not set(BUILT_IN) & {rule.name for rule in shipped_rules()}
