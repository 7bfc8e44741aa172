"""The checks that compare samples: a dead model process, failing requests, counters that go back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.health.support import SEEDS, TARGET, engine_page, failure, page, snapshot, snapshots
from trtllm_kit.health.evaluate import evaluate
from trtllm_kit.health.liveness import model_heartbeat, one_server, request_failures
from trtllm_kit.health.rules import Ruleset
from trtllm_kit.health.snapshot import Outcome, Snapshot
from trtllm_kit.health.verdict import Finding, Kind, State

GPU_LESS = Ruleset(tuple(rule for rule in SEEDS if rule.needs is None))


def beats(*taken: tuple[float, float | str | None]) -> tuple[Snapshot, ...]:
    """Make snapshots of idle pages with (second, heartbeat)."""
    return tuple(snapshot(engine_page(heartbeat=beat), second) for second, beat in taken)


def pulse(*samples: Snapshot) -> Finding:
    """Judge the heartbeat of the one model."""
    (finding,), skipped = model_heartbeat(samples)
    assert [] == skipped
    return finding


@pytest.mark.parametrize(
    ("taken", "state", "kind"),
    [
        ([(0, 7), (1, 8)], State.OK, Kind.WITHIN),
        ([(0, 7), (0.05, 7), (0.3, 8)], State.OK, Kind.WITHIN),
        ([(0, 7), (0.1, 8), (0.15, 8), (0.2, 8)], State.OK, Kind.WITHIN),
        ([(0, 7), (1, 7), (2, 7), (3, 7.2)], State.OK, Kind.WITHIN),
        ([(0, 8), (1, 7)], State.OK, Kind.WITHIN),
        ([(0, 7), (1, 7)], State.UNKNOWN, Kind.STALE),
        ([(0, 7), (0.05, 7)], State.UNKNOWN, Kind.STALE),
        ([(0, 7), (1, 8), (2, 8)], State.UNKNOWN, Kind.STALE),
        ([(0, 7), (1, 7), (2, 7)], State.CRITICAL, Kind.STALE),
        ([(0, 7), (1, 8), (2, 8), (3.5, 8)], State.CRITICAL, Kind.STALE),
        ([(0, 0), (3, 0)], State.CRITICAL, Kind.STALE),
        ([(0, 7), (1, "NaN")], State.UNKNOWN, Kind.NOT_A_NUMBER),
        ([(0, "NaN"), (1, "NaN")], State.UNKNOWN, Kind.NOT_A_NUMBER),
        ([(0, 7), (1, -1)], State.UNKNOWN, Kind.CONTRADICTING),
        ([(0, 7), (1, None)], State.UNKNOWN, Kind.MISSING),
    ],
)
def test_a_heartbeat_in_each_situation(taken: list[tuple[float, float | str | None]], state: State, kind: Kind) -> None:
    """Beating, read faster than it beats, a clock set back, short and long standstill, wrong, gone: each its state."""
    finding = pulse(*beats(*taken))
    assert (state, kind) == (finding.state, finding.kind)


def test_a_standstill_is_counted_across_a_failed_scrape() -> None:
    """A scrape that failed between two equal heartbeats does not make the model alive."""
    first, last = beats((0, 7), (4, 7))
    finding = pulse(first, failure(Outcome.TIMEOUT, second=1), last)
    assert State.CRITICAL is finding.state
    assert finding.message.startswith("no heartbeat of the model's process for 4.0 s")
    assert "triton_python_backend_stub" in finding.advice


def test_a_dead_model_is_found_beside_a_living_one() -> None:
    """Each model has its own heartbeat, and a backend without one on the same server is not judged by it."""
    samples = tuple(
        snapshot(engine_page("large", heartbeat=beat) + engine_page("small", heartbeat=7) + engine_page("c"), second)
        for second, beat in ((0, 1), (3, 2))
    )
    findings, skipped = model_heartbeat(samples)
    assert [("large/1", State.OK), ("small/1", State.CRITICAL)] == [(f.subject, f.state) for f in findings]
    assert [] == skipped


@pytest.mark.parametrize("name", ["h200x8-busy", "llmapi-upstream", "triton-2.51-simulated-idle"])
def test_a_page_without_a_heartbeat_is_not_judged_by_it(name: str) -> None:
    """Upstream's backends have none: that is listed, and is no finding."""
    findings, (skip,) = model_heartbeat(snapshots(page(name), page(name)))
    assert ([], "model-heartbeat") == (findings, skip.rule)
    assert "no heartbeat" in skip.reason


def test_one_heartbeat_is_judged_only_when_it_is_very_old() -> None:
    """A lone sample says nothing about a heartbeat of a minute ago, and UNKNOWN about one of an hour ago."""
    second = snapshot(engine_page()).wall_seconds
    findings, (skip,) = model_heartbeat(beats((0, second - 60)))
    assert ([], "it takes two samples (--samples)") == (findings, skip.reason)
    old = pulse(*beats((0, second - 3600)))
    assert (State.UNKNOWN, Kind.STALE) == (old.state, old.kind)
    assert "3600 s ago" in old.message
    assert State.OK is pulse(*beats((0, second - 3600), (1, second - 3599))).state


def test_the_recorded_pages_of_a_dead_stub_are_critical() -> None:
    """Two pages of a real server whose stub was killed are CRITICAL for both reasons; with its stub alive they are OK.

    Everything else on those pages looks idle and well.
    """
    first, last = snapshots(page("triton-2.51-stub-dead-1"), page("triton-2.51-stub-dead-2"))
    dead = evaluate(TARGET, (first, replace(last, monotonic_seconds=3.0)), GPU_LESS)
    wrong = {finding.rule: finding.kind for finding in dead.findings if finding.state is not State.OK}
    assert {"model-heartbeat": Kind.STALE, "request-failures": Kind.FAILING} == wrong
    assert State.CRITICAL is dead.state
    alive = snapshots(page("triton-2.51-heartbeat-idle-1"), page("triton-2.51-heartbeat-idle-2"))
    assert State.OK is evaluate(TARGET, alive, GPU_LESS).state


def outcome(*counts: dict[str, float | str | None]) -> Finding:
    """Judge what became of the requests of the one model on pages with these counters."""
    (finding,), skipped = request_failures(snapshots(*[engine_page(**values) for values in counts]))
    assert [] == skipped
    return finding


@pytest.mark.parametrize(
    ("before", "after", "state", "kind"),
    [
        ({"BACKEND": 0, "succeeded": 3}, {"BACKEND": 0, "succeeded": 9}, State.OK, Kind.WITHIN),
        ({"BACKEND": 9, "succeeded": 0}, {"BACKEND": 9, "succeeded": 0}, State.OK, Kind.WITHIN),
        ({"BACKEND": 1, "succeeded": 3}, {"BACKEND": 5, "succeeded": 3}, State.CRITICAL, Kind.FAILING),
        ({"OTHER": 1, "succeeded": 3}, {"OTHER": 3, "succeeded": 3}, State.CRITICAL, Kind.FAILING),
        ({"BACKEND": 0, "OTHER": 0, "succeeded": 3}, {"BACKEND": 1, "OTHER": 1, "succeeded": 3},
         State.CRITICAL, Kind.FAILING),
        ({"BACKEND": 1, "succeeded": 3}, {"BACKEND": 2, "succeeded": 3}, State.WARNING, Kind.FAILING),
        ({"BACKEND": 1, "succeeded": 3}, {"BACKEND": 90, "succeeded": 4}, State.WARNING, Kind.FAILING),
        ({"BACKEND": 1}, {"BACKEND": 9}, State.WARNING, Kind.FAILING),
        ({"BACKEND": 1, "succeeded": 3}, {"BACKEND": 9, "succeeded": "NaN"}, State.WARNING, Kind.FAILING),
        ({"BACKEND": 0, "REJECTED": 0, "CANCELED": 0, "succeeded": 3},
         {"BACKEND": 0, "REJECTED": 9, "CANCELED": 9, "succeeded": 3}, State.OK, Kind.WITHIN),
        ({"REJECTED": 0, "succeeded": 3}, {"REJECTED": 9, "succeeded": 3}, State.OK, Kind.WITHIN),
        ({"BACKEND": 0, "succeeded": 3}, {"BACKEND": "NaN", "succeeded": 3}, State.UNKNOWN, Kind.NOT_A_NUMBER),
        ({"BACKEND": 0, "succeeded": 3}, {"BACKEND": "+Inf", "succeeded": 3}, State.UNKNOWN, Kind.NOT_A_NUMBER),
        ({"BACKEND": 0, "succeeded": 3}, {"BACKEND": -2, "succeeded": 3}, State.UNKNOWN, Kind.CONTRADICTING),
    ],
)  # fmt: skip
def test_failures_in_each_situation(
    before: dict[str, float | str | None], after: dict[str, float | str | None], state: State, kind: Kind
) -> None:
    """None, all, one alone, some, rejected and cancelled ones, counts that cannot be: each has its state."""
    finding = outcome(before, after)
    assert (state, kind) == (finding.state, finding.kind)


def test_the_message_has_both_counts() -> None:
    """How many failed and how many succeeded between the samples stands in the message."""
    finding = outcome({"BACKEND": 1, "OTHER": 1, "succeeded": 3}, {"BACKEND": 4, "OTHER": 2, "succeeded": 8})
    assert "4 requests failed by the engine's fault between the samples, 5 succeeded" == finding.message


def test_a_model_split_over_gpus_is_one_model() -> None:
    """Triton splits a model's counters by GPU, and a failure may stand on another series than the successes."""

    def text(failed: int, succeeded: int) -> str:
        return (
            f'nv_inference_request_failure{{model="m",reason="BACKEND",version="1"}} {failed}\n'
            f'nv_inference_request_success{{gpu_uuid="GPU-0",model="m",version="1"}} {succeeded}\n'
            'nv_inference_request_success{model="m",version="1"} 0\n'
        )

    (finding,), _ = request_failures(snapshots(text(0, 0), text(4, 5)))
    assert ("m/1", State.WARNING) == (finding.subject, finding.state)


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        ([engine_page(BACKEND=9, succeeded=0)], "it takes two samples"),
        (
            [page("llmapi-upstream").replace("nv_inference", "other")] * 2,
            "the page has no nv_inference_request_failure",
        ),
        ([engine_page(BACKEND=9, succeeded=0), engine_page(BACKEND=2, succeeded=0)], "did not grow (see one-server)"),
    ],
)
def test_what_cannot_be_told_of_failures_is_listed(texts: list[str], reason: str) -> None:
    """One sample, no counters, counters that fell: not judged, with the reason."""
    findings, (skip,) = request_failures(snapshots(*texts))
    assert ([], "request-failures") == (findings, skip.rule)
    assert reason in skip.reason


@pytest.mark.parametrize(
    ("before", "after", "name"),
    [
        ({"iteration": 105}, {"iteration": 44}, "iteration_counter"),
        ({"iteration": None, "timestamp": 9}, {"iteration": None, "timestamp": 8}, "timestamp"),
        ({"succeeded": 9}, {"succeeded": 0}, "nv_inference_request_success"),
        ({"REJECTED": 9}, {"REJECTED": 8}, "nv_inference_request_failure"),
    ],
)
def test_a_counter_that_goes_back_is_unknown(
    before: dict[str, float | None], after: dict[str, float | None], name: str
) -> None:
    """Idle or busy, a counter that falls is a restart or another server: UNKNOWN, with both numbers."""
    for active in (0, 3):
        samples = snapshots(engine_page(active=active, **before), engine_page(active=active, **after))
        (finding,), _ = one_server(samples)
        assert (State.UNKNOWN, Kind.WENT_BACK) == (finding.state, finding.kind)
        assert name in finding.message
        assert State.UNKNOWN is evaluate(TARGET, samples, GPU_LESS).state


def test_two_servers_that_take_turns_are_unknown() -> None:
    """The pages of a server and of the same one a second later, in turns, are never OK."""
    pages = [page("triton-2.51-simulated-busy-2"), page("triton-2.51-simulated-busy-1")]
    verdict = evaluate(TARGET, snapshots(*pages, *pages), GPU_LESS)
    assert State.UNKNOWN is verdict.state
    assert "one-server" == verdict.findings[0].rule
    assert "two servers stand behind this address" in verdict.findings[0].advice


def test_counters_that_grow_or_come_and_go_are_one_server() -> None:
    """Growing counters, a model that is loaded or unloaded, and a failed scrape between are no fall."""
    grown = (
        snapshot(engine_page("a", iteration=1, succeeded=3), 0),
        failure(Outcome.TIMEOUT, second=1),
        snapshot(engine_page("a", iteration=1, succeeded=4) + engine_page("b", succeeded=0), 2),
        snapshot(engine_page("b", iteration=100, succeeded=9), 3),
    )
    (finding,), skipped = one_server(grown)
    assert (State.OK, []) == (finding.state, skipped)
    findings, (skip,) = one_server(grown[:2])
    assert ([], "one-server") == (findings, skip.rule)
