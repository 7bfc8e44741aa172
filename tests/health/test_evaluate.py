"""The judgement: each rule in every situation, and the properties of every verdict."""

from __future__ import annotations

import math
import random
import time
from dataclasses import replace
from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.health.support import SEEDS, TARGET, engine_page, failure, page, snapshot, snapshots
from trtllm_kit.health.builtin import BUILT_IN
from trtllm_kit.health.evaluate import evaluate
from trtllm_kit.health.judge import judge
from trtllm_kit.health.load import shipped_rules
from trtllm_kit.health.ranges import parse_range
from trtllm_kit.health.rules import Rule, Ruleset
from trtllm_kit.health.snapshot import Outcome, Snapshot
from trtllm_kit.health.verdict import Finding, Kind, State, Verdict

RULES = {rule.name: rule for rule in shipped_rules()}
GPU_LESS = Ruleset(tuple(rule for rule in SEEDS if rule.needs is None))


def one(rule: Rule, samples: tuple[Snapshot, ...]) -> Finding:
    """Apply a rule that has one subject."""
    (finding,) = judge(rule, samples)
    return finding


KV, GPU, QUEUE = RULES["kv-cache-usage"], RULES["gpu-utilization"], RULES["queue-depth"]


@pytest.mark.parametrize(
    ("rule", "texts", "state", "kind"),
    [
        (KV, [engine_page(fraction=0.9)], State.OK, Kind.WITHIN),
        (KV, [engine_page(fraction=0.91)], State.WARNING, Kind.OUTSIDE),
        (KV, [engine_page(fraction=0.2), engine_page(fraction=0.95)], State.WARNING, Kind.OUTSIDE),
        (KV, [engine_page(fraction=0.95), engine_page(fraction=0.2)], State.OK, Kind.WITHIN),
        (KV, [engine_page(fraction=None, used=901)], State.WARNING, Kind.OUTSIDE),
        (KV, [page("triton-2.51-before-first-step")], State.OK, Kind.WITHIN),
        (KV, [page("llmapi-upstream")], State.UNKNOWN, Kind.MISSING),
        (KV, [engine_page(fraction="NaN")], State.UNKNOWN, Kind.NOT_A_NUMBER),
        (KV, [engine_page(used=2000)], State.UNKNOWN, Kind.CONTRADICTING),
        (KV, [engine_page(fraction=1.5)], State.UNKNOWN, Kind.CONTRADICTING),
        (GPU, [engine_page(active=1, gpu=0.5)] * 2, State.WARNING, Kind.OUTSIDE),
        (GPU, [engine_page(active=1, gpu=0.9)] * 2, State.WARNING, Kind.OUTSIDE),
        (GPU, [engine_page(active=1, gpu=0.7)] * 2, State.OK, Kind.WITHIN),
        (GPU, [engine_page(active=1, gpu=0.85)], State.OK, Kind.WITHIN),
        (GPU, [engine_page(active=0, gpu=0.0)] * 2, State.OK, Kind.IDLE),
        (GPU, [engine_page(active=0, gpu=0.0), engine_page(active=1, gpu=0.0)], State.OK, Kind.PASSING),
        (GPU, [engine_page(active=1, gpu=0.0)], State.UNKNOWN, Kind.UNDECIDED),
        (GPU, [engine_page(active=1)] * 2, State.UNKNOWN, Kind.MISSING),
        (GPU, [engine_page(active=0)] * 2, State.UNKNOWN, Kind.MISSING),
        (GPU, [engine_page(active=None, gpu=0.8)] * 2, State.UNKNOWN, Kind.MISSING),
        (GPU, [engine_page(active="NaN", gpu=0.8)] * 2, State.UNKNOWN, Kind.NOT_A_NUMBER),
        (GPU, [engine_page(active=1, gpu="NaN")] * 2, State.UNKNOWN, Kind.NOT_A_NUMBER),
        (GPU, [engine_page(active=1, gpu=80)] * 2, State.UNKNOWN, Kind.CONTRADICTING),
        (QUEUE, [engine_page(queued=10)] * 2, State.OK, Kind.WITHIN),
        (QUEUE, [engine_page(queued=11)] * 2, State.WARNING, Kind.OUTSIDE),
        (QUEUE, [engine_page(queued=0), engine_page(queued=11)], State.OK, Kind.PASSING),
        (QUEUE, [engine_page(queued=11), engine_page(queued=0)], State.OK, Kind.WITHIN),
        (QUEUE, [engine_page(queued=0), engine_page(queued=11), engine_page(queued=12)], State.WARNING, Kind.OUTSIDE),
        (QUEUE, [engine_page(queued=11)], State.UNKNOWN, Kind.UNDECIDED),
        (QUEUE, [engine_page(queued="NaN"), engine_page(queued=11)], State.UNKNOWN, Kind.UNDECIDED),
        (QUEUE, [page("legacy-24.08-ensemble")] * 2, State.OK, Kind.WITHIN),
        (QUEUE, [engine_page(queued="NaN")] * 2, State.UNKNOWN, Kind.NOT_A_NUMBER),
        (QUEUE, [engine_page(queued=-3)] * 2, State.UNKNOWN, Kind.CONTRADICTING),
    ],
)
def test_each_rule_in_each_situation(rule: Rule, texts: list[str], state: State, kind: Kind) -> None:
    """Fires, does not fire, missing, NaN, contradicting, idle, first run: each has its state and kind."""
    finding = one(rule, snapshots(*texts))
    assert (state, kind) == (finding.state, finding.kind)


def test_a_finding_that_fires_has_its_numbers_and_advice() -> None:
    """The message has value, range and samples; the advice is the rule's; the source is the series."""
    finding = one(QUEUE, snapshots(engine_page(queued=11), engine_page(queued=14)))
    assert "14, healthy is 0:10, outside in 2 of 2 samples" == finding.message
    assert finding.advice.startswith("Scale out")
    assert 'nv_trt_llm_request_metrics{request_type="queued"}' == finding.source


def test_a_failed_scrape_between_breaks_the_run() -> None:
    """Samples on both sides of a failed scrape are not consecutive, so nothing is decided."""
    samples = (
        snapshot(engine_page(queued=11), 0),
        failure(Outcome.TIMEOUT, second=1),
        snapshot(engine_page(queued=11), 2),
    )
    assert Kind.UNDECIDED is one(QUEUE, samples).kind


def test_a_model_that_vanished_is_missing() -> None:
    """A model that an earlier sample had and the newest does not is MISSING by its name."""
    both = engine_page("large") + engine_page("small")
    findings = judge(KV, snapshots(both, engine_page("large")))
    assert [("large/1", Kind.WITHIN), ("small/1", Kind.MISSING)] == [(f.subject, f.kind) for f in findings]


def test_a_family_that_appears_late_is_judged_by_its_models() -> None:
    """The placeholder of an earlier page without the family is no subject of its own."""
    findings = judge(KV, snapshots(page("llmapi-upstream"), engine_page()))
    assert ["tensorrt_llm/1"] == [finding.subject for finding in findings]


def test_one_models_unknown_does_not_hide_anothers_critical() -> None:
    """Each model is judged by itself, and the confirmed critical is the verdict."""
    critical = replace(KV, severity=State.CRITICAL)
    text = engine_page("large", fraction=0.99) + engine_page("small", fraction="NaN")
    verdict = evaluate(TARGET, snapshots(text), Ruleset((critical,)))
    assert State.CRITICAL is verdict.state
    assert {State.CRITICAL, State.UNKNOWN} <= {finding.state for finding in verdict.findings}


def test_a_failed_probe_does_not_hide_a_confirmed_critical() -> None:
    """What an earlier sample confirmed as CRITICAL stays when the newest scrape is garbage."""
    critical = Ruleset((replace(KV, severity=State.CRITICAL),))
    full = snapshot(engine_page(fraction=0.99))
    verdict = evaluate(TARGET, (full, failure(Outcome.GARBAGE, second=1)), critical)
    assert State.CRITICAL is verdict.state
    assert State.UNKNOWN is evaluate(TARGET, (full, failure(Outcome.GARBAGE, second=1)), Ruleset((KV,))).state


def test_a_failed_probe_does_not_hide_a_dead_model() -> None:
    """A heartbeat and requests that are dead in the earlier samples stay CRITICAL when the newest scrape fails."""
    dead = [
        snapshot(engine_page(heartbeat=7, BACKEND=count, succeeded=3), second) for second, count in ((0, 0), (3, 5))
    ]
    verdict = evaluate(TARGET, (*dead, failure(Outcome.GARBAGE, second=4)), GPU_LESS)
    assert [("model-heartbeat", State.CRITICAL), ("request-failures", State.CRITICAL), ("scrape", State.UNKNOWN)] == [
        (finding.rule, finding.state) for finding in verdict.findings
    ]


def test_advice_names_the_log_where_its_path_is_known() -> None:
    """Every advice that speaks of the server's log gives its path, for a dead server and for a hung one."""
    target = replace(TARGET, log="/srv/repo.server.log")
    hung = snapshots(*[engine_page(active=1, heartbeat=7, scheduled=-1, BACKEND=n, succeeded=0) for n in (0, 5)])
    for samples in ((failure(Outcome.REFUSED),), (failure(Outcome.TIMEOUT),), hung):
        advice = [finding.advice for finding in evaluate(target, samples, GPU_LESS).findings if finding.advice]
        assert advice
        assert all("/srv/repo.server.log" in text and "the server's log" not in text for text in advice)
        assert any("the server's log" in finding.advice for finding in evaluate(TARGET, samples, GPU_LESS).findings)


def test_a_healthy_busy_server_is_ok() -> None:
    """Two real pages a second apart are OK, with every check listed."""
    verdict = evaluate(
        TARGET, snapshots(page("triton-2.51-heartbeat-busy-1"), page("triton-2.51-heartbeat-busy-2")), GPU_LESS
    )
    assert State.OK is verdict.state
    assert {"kv-cache-usage", "queue-depth", *BUILT_IN} == {finding.rule for finding in verdict.findings}
    assert ((), 2) == (verdict.not_judged, verdict.samples)


@pytest.mark.parametrize("name", ["llmapi-upstream", "summary-latencies"])
def test_a_server_that_exports_too_little_is_never_ok(name: str) -> None:
    """Pages that lack what the rules need are UNKNOWN."""
    assert State.UNKNOWN is evaluate(TARGET, snapshots(page(name), page(name)), GPU_LESS).state


def test_measures_keep_their_labels_when_the_server_is_gone() -> None:
    """A failed scrape has the same labels and ranges as a good one, with no value."""
    good = evaluate(TARGET, snapshots(engine_page()), GPU_LESS).measures
    gone = evaluate(TARGET, (failure(Outcome.REFUSED),), GPU_LESS).measures
    assert [replace(measure, value=None) for measure in good] == list(gone)
    assert ["active_requests", "kv_cache_usage", "queue_depth", "scrape_seconds"] == [m.label for m in good]


def test_findings_are_listed_gravest_first() -> None:
    """The order is by severity, then by name."""
    text = engine_page(fraction=0.95, queued="NaN")
    states = [finding.state for finding in evaluate(TARGET, snapshots(text, text), GPU_LESS).findings]
    assert sorted(states, key=lambda state: -state.severity) == states


def test_thousands_of_models_are_judged_in_linear_time() -> None:
    """A page that claims 2,000 busy models is judged at once; rereading the page for each would take half a minute."""
    text = "".join(engine_page(f"m{number}", active=1, heartbeat=7, free=None, paused=None) for number in range(2_000))
    samples = snapshots(text, text)
    begun = time.process_time()
    verdict = evaluate(TARGET, samples, GPU_LESS)
    assert time.process_time() - begun < 5
    assert State.UNKNOWN is verdict.state


_VALUES: dict[str, list[float | str | None]] = {
    "active": [0, 3, 70, -1, "NaN", None],
    "queued": [0, 11, -1, "NaN", "+Inf", None],
    "fraction": [0.1, 0.95, 1.5, "NaN", None],
    "used": [120, 2000, None],
    "iteration": [100, 101, "NaN", None],
    "gpu": [0.0, 0.8, 0.99, 80, "NaN", None],
    "paused": [0, -1, "NaN", None],
    "heartbeat": [0, 1, 1_795_993_500, -1, "NaN", "+Inf", None],
    "succeeded": [0, 1, 5, -1, "NaN", "+Inf", None],
    "BACKEND": [0, 2, 9, -1, "NaN", "-Inf", None],
    "REJECTED": [0, 2, "NaN", None],
}


@st.composite
def any_snapshot(draw: st.DrawFn) -> Snapshot:
    """Draw a scrape that failed somehow, or a page of one or two models with odd values."""
    second = float(draw(st.integers(0, 5)))
    outcome = draw(st.sampled_from([Outcome.OK] * 8 + list(Outcome)))
    if outcome is not Outcome.OK:
        return failure(outcome, draw(st.sampled_from([None, 302, 404, 503])), second)
    text = "core 1\n"
    for model in draw(st.lists(st.sampled_from(["a", "b"]), unique=True)):
        values = {name: draw(st.sampled_from(options)) for name, options in _VALUES.items()}
        if "nv_gpu" in text:
            values["gpu"] = None
        text += engine_page(model, **values)
    return snapshot(text, second)


@st.composite
def any_ruleset(draw: st.DrawFn) -> Ruleset:
    """Draw some of the shipped rules with other ranges, severities and sample counts."""
    rules = draw(st.lists(st.sampled_from(shipped_rules()), unique_by=lambda rule: rule.name, max_size=6))
    return Ruleset(
        tuple(
            replace(
                rule,
                ok=parse_range(draw(st.sampled_from(["0:0.9", "~:", "@0:10", "5:"]))),
                severity=draw(st.sampled_from([State.WARNING, State.CRITICAL])),
                samples=draw(st.integers(1, 4)),
            )
            for rule in rules
        )
    )


any_samples = st.lists(any_snapshot(), max_size=4).map(tuple)


def shuffled(verdict_of: tuple[tuple[Snapshot, ...], Ruleset], seed: int) -> Verdict:
    """Judge with the rules and every page's series in another order."""
    samples, ruleset = verdict_of
    order = random.Random(seed)
    rules = list(ruleset.rules)
    order.shuffle(rules)
    mixed = []
    for sample in samples:
        families = list(sample.series.items())
        order.shuffle(families)
        rows = {family: order.sample(list(values.items()), len(values)) for family, values in families}
        mixed.append(replace(sample, series={family: dict(values) for family, values in rows.items()}))
    return evaluate(TARGET, tuple(mixed), Ruleset(tuple(rules)))


@settings(max_examples=300, deadline=2000)
@given(any_samples, any_ruleset(), st.integers())
def test_a_verdict_is_total_and_independent_of_order(
    samples: tuple[Snapshot, ...], ruleset: Ruleset, seed: int
) -> None:
    """Every input has a verdict, the same each time, in whatever order rules and series come."""
    verdict = evaluate(TARGET, samples, ruleset)
    assert verdict == evaluate(TARGET, samples, ruleset)
    assert verdict == shuffled((samples, ruleset), seed)


@settings(max_examples=300, deadline=2000)
@given(any_samples, any_ruleset())
def test_the_verdict_is_its_gravest_finding(samples: tuple[Snapshot, ...], ruleset: Ruleset) -> None:
    """CRITICAL if any finding is, else UNKNOWN if any is, else WARNING, else OK."""
    verdict = evaluate(TARGET, samples, ruleset)
    states = {finding.state for finding in verdict.findings}
    assert verdict.state is next(s for s in (State.CRITICAL, State.UNKNOWN, State.WARNING, State.OK) if s in states)


@settings(max_examples=300, deadline=2000)
@given(any_samples, any_ruleset())
def test_ok_means_that_every_rule_had_a_number(samples: tuple[Snapshot, ...], ruleset: Ruleset) -> None:
    """No verdict is OK unless the newest scrape was good and every rule's metric was a believable number."""
    verdict = evaluate(TARGET, samples, ruleset)
    if verdict.state is State.OK:
        assert samples
        assert all(sample.ok for sample in samples)
        named = {finding.rule for finding in verdict.findings} | {skip.rule for skip in verdict.not_judged}
        assert {rule.name for rule in ruleset.rules} <= named
        healthy = {Kind.WITHIN, Kind.IDLE, Kind.PASSING, Kind.SCRAPED, Kind.QUIET, Kind.FIRST}
        may_lack = {rule.name for rule in ruleset.rules if rule.on_missing is State.OK}
        assert healthy >= {finding.kind for finding in verdict.findings if finding.rule not in may_lack}
        assert not any(_never_ok(first, last) for first, last in pairwise(samples))


def _never_ok(before: Snapshot, after: Snapshot) -> bool:
    """Whether a model's heartbeat stood still for two seconds, or a believable count of failures grew."""
    beats, failures = [], []
    for sample in (before, after):
        general = sample.series.get("nv_trt_llm_general_metrics", {})
        beats.append({labels: value for labels, value in general.items() if ("general_type", "heartbeat") in labels})
        counts = sample.series.get("nv_inference_request_failure", {})
        failures.append({labels: value for labels, value in counts.items() if ("reason", "BACKEND") in labels})
    seconds = after.monotonic_seconds - before.monotonic_seconds
    still = seconds >= 2 and any(beats[0].get(labels) == value for labels, value in beats[1].items())
    return still or any(0 <= failures[0].get(labels, math.inf) < value for labels, value in failures[1].items())


@pytest.mark.parametrize(
    ("metric", "missing"), list(product(["kv-cache-usage", "queue-depth"], [State.OK, State.WARNING, State.CRITICAL]))
)
def test_a_rule_says_what_missing_means(metric: str, missing: State) -> None:
    """on_missing is the state of a missing metric, and only of that: NaN stays UNKNOWN."""
    rule = replace(RULES[metric], on_missing=missing)
    gone = {"kv-cache-usage": engine_page(fraction=None, used=None), "queue-depth": engine_page(queued=None)}
    wrong = {"kv-cache-usage": engine_page(fraction="NaN"), "queue-depth": engine_page(queued="NaN")}
    assert missing is one(rule, snapshots(gone[metric])).state
    assert State.UNKNOWN is one(rule, snapshots(wrong[metric])).state
