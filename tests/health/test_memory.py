"""What one check leaves for the next, and what the next makes of it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.health.support import NOW, SEEDS, TARGET, engine_page, failure, page, snapshot, snapshots
from trtllm_kit.health.evaluate import evaluate, next_memory, with_pulse
from trtllm_kit.health.judge import judge
from trtllm_kit.health.load import shipped_rules
from trtllm_kit.health.memory import (
    MOST_MOMENTS,
    NOTHING,
    RECENT_SECONDS,
    Memory,
    Moment,
    Run,
    Usual,
    as_document,
    grown_usual,
    read_memory,
    recalled,
    thinned,
)  # fmt: skip
from trtllm_kit.health.ranges import parse_range
from trtllm_kit.health.rules import Rule, Ruleset
from trtllm_kit.health.snapshot import Outcome
from trtllm_kit.health.verdict import Finding, Kind, State, Verdict

RULES = {rule.name: rule for rule in shipped_rules()}
QUEUE = RULES["queue-depth"]
ALL = Ruleset(tuple(rule for rule in shipped_rules() if rule.needs is None and rule.enabled))


def checks(pages: list[str], rule: Rule, every: float = 60.0) -> list[Finding]:
    """Make a check of one sample for each page, each with what the one before left; returns the rule's findings."""
    memory, found = NOTHING, []
    for number, text in enumerate(pages):
        sample = snapshot(text, number * every)
        memory = recalled(memory, sample.wall_seconds)
        verdict = evaluate(TARGET, (sample,), Ruleset((rule,)), memory)
        memory = read_memory(
            json.loads(json.dumps(as_document(next_memory(memory, (sample,), Ruleset((rule,)), verdict))))
        )
        assert memory is not None
        found.extend(finding for finding in verdict.findings if finding.rule == rule.name)
    return found


def test_samples_of_several_checks_are_consecutive() -> None:
    """Outside in one sample of each of two checks is outside in two samples."""
    findings = checks([engine_page(queued=0), engine_page(queued=11), engine_page(queued=12)], QUEUE)
    assert [Kind.WITHIN, Kind.PASSING, Kind.OUTSIDE] == [finding.kind for finding in findings]


def test_a_long_silence_breaks_the_run() -> None:
    """Samples an hour apart are not consecutive: the second is undecided again."""
    findings = checks([engine_page(queued=11), engine_page(queued=11)], QUEUE, every=3600)
    assert [Kind.UNDECIDED, Kind.UNDECIDED] == [finding.kind for finding in findings]


@pytest.mark.parametrize(
    ("values", "kinds"),
    [
        ([0.96, 0.92, 0.89], [Kind.OUTSIDE, Kind.OUTSIDE, Kind.WITHIN]),
        ([0.92, 0.96, 0.90], [Kind.WITHIN, Kind.OUTSIDE, Kind.WITHIN]),
        ([0.92, 0.92, 0.92], [Kind.WITHIN, Kind.WITHIN, Kind.WITHIN]),
    ],
)
def test_what_fired_ends_within_its_own_range(values: list[float], kinds: list[Kind]) -> None:
    """Between the healthy range and the one that clears, what fired goes on and what did not does not begin."""
    rule = replace(RULES["kv-cache-usage"], ok=parse_range("0:0.95"), clear=parse_range("0:0.90"))
    findings = checks([engine_page(fraction=value, used=500) for value in values], rule)
    assert kinds == [finding.kind for finding in findings]


def test_what_fired_is_not_ended_by_a_number_that_is_none() -> None:
    """A NaN between says nothing of whether the alert has ended: it goes on after."""
    rule = replace(RULES["kv-cache-usage"], ok=parse_range("0:0.95"), clear=parse_range("0:0.90"))
    pages = [engine_page(fraction=value, used=500) for value in (0.96, "NaN", 0.92)]
    assert [Kind.OUTSIDE, Kind.NOT_A_NUMBER, Kind.OUTSIDE] == [finding.kind for finding in checks(pages, rule)]


def test_what_fired_is_remembered_over_a_long_silence() -> None:
    """An alert that fired does not clear because nobody looked for an hour."""
    rule = replace(RULES["kv-cache-usage"], ok=parse_range("0:0.95"), clear=parse_range("0:0.90"))
    pages = [engine_page(fraction=value, used=500) for value in (0.96, 0.92)]
    assert [Kind.OUTSIDE, Kind.OUTSIDE] == [finding.kind for finding in checks(pages, rule, every=3600)]


ACCEPTANCE = RULES["spec-acceptance"]


def drafts(drafted: float, accepted: float) -> str:
    """Write a page with speculation counters."""
    names = ("draft", "accepted")
    counters = zip(names, (drafted, accepted), strict=True)
    return engine_page() + "".join(f"trtllm_spec_decode_num_{name}_tokens_total {value}\n" for name, value in counters)


def test_a_change_is_read_between_checks() -> None:
    """The first check has nothing to compare with; the next reads the counters' growth since."""
    findings = checks([drafts(0, 0), drafts(1000, 500), drafts(2000, 1400)], ACCEPTANCE)
    assert [Kind.OUTSIDE, Kind.WITHIN] == [finding.kind for finding in findings]
    assert findings[1].message.startswith("0.7 (1400 of 2000 tokens)")


def test_counters_of_a_server_that_restarted_are_not_compared() -> None:
    """After a restart the first check judges nothing, and the next compares with what came after the restart."""
    findings = checks([drafts(5000, 100), drafts(50, 40), drafts(1050, 940)], ACCEPTANCE)
    assert [(Kind.WITHIN, "0.9 (900 of 1000 tokens)")] == [
        (finding.kind, finding.message.partition(",")[0]) for finding in findings
    ]


def test_a_metric_that_vanished_is_unknown_though_it_need_not_be_there() -> None:
    """Speculation that stops being reported was switched off for good: that is told, and not taken for healthy."""
    findings = checks([drafts(0, 0), engine_page() + "trtllm_kv_cache_reused_blocks_total 1\n"], ACCEPTANCE)
    assert [(State.UNKNOWN, Kind.MISSING)] == [(finding.state, finding.kind) for finding in findings]


def ttft(requests: float, seconds: float) -> str:
    """Write a page with a histogram of the time to first token."""
    name = "trtllm_time_to_first_token_seconds"
    return f'{engine_page()}{name}_bucket{{le="1.0"}} {requests}\n{name}_count {requests}\n{name}_sum {seconds}\n'


def test_jitter_is_the_distance_from_what_is_usual() -> None:
    """Ten windows say what is usual; then a mean that is a half longer is 50 % away, and fires in its second window."""
    pages, requests, seconds = [], 0, 0.0
    for mean in [0.2] * 12 + [0.3, 0.3, 0.3]:
        pages.append(ttft(requests, seconds))
        requests, seconds = requests + 100, seconds + 100 * mean
    pages.append(ttft(requests, seconds))
    findings = checks(pages, RULES["ttft-jitter"], every=300)
    kinds = [finding.kind for finding in findings]
    assert [Kind.FIRST] * 10 == kinds[:10]
    assert [Kind.WITHIN] * 2 + [Kind.PASSING, Kind.OUTSIDE, Kind.OUTSIDE] == kinds[10:]
    assert "usually 0.2" in findings[13].message
    assert "nvlink_errors: not known" in findings[13].message


def test_a_stall_is_critical_after_a_minute() -> None:
    """An engine that stands still is UNKNOWN at first, and CRITICAL when it has for 60 s, over several checks."""
    memory, states = NOTHING, []
    for second in (0, 30, 45, 75):
        sample = snapshot(engine_page(active=3, iteration=100), second)
        verdict = evaluate(TARGET, (sample,), Ruleset(()), memory)
        memory = next_memory(memory, (sample,), Ruleset(()), verdict)
        states.append(verdict.state)
    assert [State.OK, State.UNKNOWN, State.UNKNOWN, State.CRITICAL] == states


@pytest.mark.parametrize(
    ("utilization", "watts", "state"),
    [(1.0, 90, State.CRITICAL), (0.5, 90, State.UNKNOWN), (1.0, 600, State.UNKNOWN), ("NaN", 90, State.UNKNOWN)],
)
def test_busy_gpus_that_draw_little_tell_a_hang_from_a_long_step(
    utilization: float | str, watts: float, state: State
) -> None:
    """No step with busy GPUs at an eighth of their power is a hang at once; at full power it may be a long step."""
    gpu = f'nv_gpu_power_usage{{gpu_uuid="GPU-0"}} {watts}\nnv_gpu_power_limit{{gpu_uuid="GPU-0"}} 700\n'
    page = engine_page(active=3, iteration=100, gpu=utilization) + gpu
    verdict = evaluate(TARGET, (snapshot(page, 0), snapshot(page, 5)), Ruleset(()))
    assert [state] == [finding.state for finding in verdict.findings if finding.rule == "engine-progress"]


def test_one_sample_with_a_memory_tells_that_the_engine_moves() -> None:
    """Steps since the check before show progress, also when the engine was idle then."""
    first, second = snapshot(engine_page(iteration=100)), snapshot(engine_page(active=2, iteration=140), 60)
    memory = next_memory(NOTHING, (first,), Ruleset(()), evaluate(TARGET, (first,), Ruleset(())))
    verdict = evaluate(TARGET, (second,), Ruleset(()), memory)
    assert ["within"] == [f.kind for f in verdict.findings if f.rule == "engine-progress"]


def test_a_restart_between_checks_is_no_finding() -> None:
    """Counters that fell since the check before are of a server that was restarted: it is judged anew."""
    first, second = snapshot(engine_page(iteration=9000)), snapshot(engine_page(iteration=3), 60)
    memory = next_memory(NOTHING, (first,), ALL, evaluate(TARGET, (first,), ALL))
    assert (second,) == tuple(with_pulse((second,), memory))
    assert State.OK is evaluate(TARGET, (second,), ALL, memory).state


@pytest.mark.parametrize("seconds", [-3600.0, -10.0])
def test_a_clock_that_went_back_leaves_what_does_not_depend_on_time(seconds: float) -> None:
    """After a step back there is no earlier sample; what fired and what is usual stays."""
    memory = Memory(
        NOW, {("r", ""): Run(2, fired=True)}, (Moment(NOW, {}),), {("m", ""): Usual(12, 0.2)}, pulse={"f": {}}
    )
    kept = recalled(memory, NOW + seconds)
    assert ((), {}, memory.runs, memory.usual) == (kept.moments, kept.pulse, kept.runs, kept.usual)


def test_a_failed_reading_leaves_the_memory_as_it_was() -> None:
    """A server that does not answer teaches nothing."""
    memory = Memory(NOW, {("r", ""): Run(2, fired=True)})
    failed = (failure(Outcome.TIMEOUT, second=60),)
    assert memory == next_memory(memory, failed, ALL, evaluate(TARGET, failed, ALL, memory))


def test_moments_are_bounded_and_reach_back() -> None:
    """A check every second for a day keeps a bounded number, spread over the time that rules look back."""
    moments: tuple[Moment, ...] = ()
    for second in range(7200):
        moments = thinned((*moments, Moment(NOW + second, {})))
    assert MOST_MOMENTS >= len(moments)
    reach = moments[-1].wall_seconds - moments[0].wall_seconds
    assert RECENT_SECONDS < reach <= 2 * RECENT_SECONDS


def test_what_is_usual_forgets_slowly() -> None:
    """One odd window of a day moves the mean by a 288th of its distance."""
    usual = Usual(288, 1.0)
    assert pytest.approx(1 + 1 / 288) == grown_usual(usual, 2.0).mean


@settings(deadline=2000)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
        max_leaves=12,
    ),
    st.sampled_from([*as_document(NOTHING), "none"]),
)
def test_whatever_a_file_holds_is_a_memory_or_none(garbage: Any, key: str) -> None:
    """Anything but a memory is none, and never an error; a memory with one wrong part is none or still one."""
    assert read_memory(garbage) is None or isinstance(read_memory(garbage), Memory)
    made = read_memory(as_document(NOTHING) | {key: garbage})
    assert made is None or isinstance(evaluate(TARGET, (snapshot(engine_page()),), ALL, made), Verdict)


def test_a_memory_survives_its_file() -> None:
    """What is written is what is read."""
    sample = snapshot(drafts(5, 2) + engine_page("other"))
    rules = Ruleset((*SEEDS, ACCEPTANCE))
    memory = next_memory(NOTHING, (sample,), rules, evaluate(TARGET, (sample,), rules))
    assert memory == read_memory(json.loads(json.dumps(as_document(memory))))


def test_a_server_that_began_anew_has_lost_nothing() -> None:
    """trtllm-serve shows its histograms from the first request on: after a restart that is no loss, later it is."""
    text = page("trtllm-serve-1.3")
    rule = RULES["ttft-tail"]
    first = snapshots(text)
    memory = next_memory(NOTHING, first, Ruleset((rule,)), evaluate(TARGET, first, Ruleset((rule,))))
    lines = text.splitlines(keepends=True)
    gauges = "".join(line for line in lines if not re.search(r"_(total|sum|count|bucket)\b", line))
    lost = "".join(line for line in lines if "time_to_first_token" not in line)
    (new,), (missing,) = (judge(rule, snapshots(one), memory) for one in (gauges, lost))
    assert [(State.OK, Kind.MISSING), (State.UNKNOWN, Kind.MISSING)] == [
        (one.state, one.kind) for one in (new, missing)
    ]
