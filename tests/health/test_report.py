"""The verdict in print, read back by an independent reader of the plugin interface."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.health.support import SEEDS, TARGET, engine_page, failure, page, snapshots
from tests.health.test_evaluate import any_ruleset, any_samples
from trtllm_kit.health.evaluate import evaluate
from trtllm_kit.health.load import rules_for
from trtllm_kit.health.report import as_json, exit_code, nagios_line, nagios_output
from trtllm_kit.health.rules import Ruleset
from trtllm_kit.health.snapshot import Outcome, Snapshot, Target, Unit
from trtllm_kit.health.verdict import Finding, Kind, Measure, Skipped, State, Verdict

RULESET = Ruleset(SEEDS, (Skipped("x-rule", "hardware cpu has no GPU"),))
LINE = re.compile(r"TRTKIT (OK|WARNING|CRITICAL|UNKNOWN): ([^|\n]+) \| ([^|\n]+)")
RANGE = r"(?:@?(?:(?:~|-?[0-9.]+)?:)?(?:-?[0-9.]+)?)"
PERFORMANCE = re.compile(
    rf"'((?:[^'=]|'')+)'=(U|-?[0-9.]+)(s|us|ms|%|B|KB|MB|TB|c)?(?:;({RANGE})(?:;({RANGE})(?:;(-?[0-9.]*)(?:;(-?[0-9.]*))?)?)?)?"
)


def parsed(line: str) -> tuple[str, str, dict[str, tuple[str, ...]]]:
    """Take a plugin's line apart: state, text, performance data by label."""
    match = LINE.fullmatch(line)
    assert match, line
    measures: dict[str, tuple[str, ...]] = {}
    rest = match[3]
    while rest:
        piece = PERFORMANCE.match(rest)
        assert piece, rest
        measures[piece[1].replace("''", "'")] = piece.groups()[1:]
        rest = rest[piece.end() :]
        assert not rest or rest[0] == " ", rest
        rest = rest[1:]
    return match[1], match[2], measures


def verdict(*texts: str) -> Verdict:
    """Judge pages by the shipped rules."""
    return evaluate(TARGET, snapshots(*texts), RULESET)


def test_a_healthy_line_has_state_numbers_and_thresholds() -> None:
    """The line of a healthy server parses back to its values, units, ranges and limits."""
    state, text, measures = parsed(nagios_line(verdict(engine_page(gpu=0.8), engine_page(gpu=0.8))))
    assert "OK" == state
    assert "active_requests 0, gpu_utilization 0.8, kv_cache_usage 0.12, queue_depth 0" in text
    assert ("0.12", None, "0:0.9", "", "0", "1") == measures["kv_cache_usage"]
    assert ("0", None, "0:10", "", "0", None) == measures["queue_depth"]
    assert ("0.8", None, "0.7:0.85", "", "0", "1") == measures["gpu_utilization"]
    assert ("0.002", "s", "", "", "0", None) == measures["scrape_seconds"]


def test_a_critical_rule_puts_its_range_in_the_critical_place() -> None:
    """A rule of severity critical fills the second threshold."""
    rules = tuple(replace(rule, severity=State.CRITICAL) for rule in SEEDS)
    line = nagios_line(evaluate(TARGET, snapshots(engine_page(fraction=0.95)), Ruleset(rules)))
    state, text, measures = parsed(line)
    assert "CRITICAL" == state
    assert text.startswith("kv-cache-usage (tensorrt_llm/1): 0.95, healthy is 0:0.9, outside in 1 of 1 samples")
    assert ("0.95", None, "", "0:0.9", "0", "1") == measures["kv_cache_usage"]


def test_what_is_not_known_is_a_u() -> None:
    """Unknown values are U, with their thresholds."""
    _, _, measures = parsed(nagios_line(verdict(page("llmapi-upstream"))))
    assert ("U", None, "0:0.9", "", "0", "1") == measures["kv_cache_usage"]


def test_two_models_have_a_label_each() -> None:
    """With several models every label names its model."""
    _, _, measures = parsed(nagios_line(verdict(engine_page("a", queued=1) + engine_page("b", queued=2))))
    assert ("1", "2") == (measures["queue_depth_a/1"][0], measures["queue_depth_b/1"][0])


@pytest.mark.parametrize("evil", ["a|b", "a\nb", "a\r\nb", "a\x00b", "a\u2028b", "it's", "a=b", "模型"])
def test_no_text_breaks_the_line(evil: str) -> None:
    """Bars, line ends, quotes and signs from a server or a URL stay inside their place."""
    made = Verdict(
        url=evil,
        state=State.WARNING,
        findings=(Finding("rule", evil, State.WARNING, Kind.OUTSIDE, evil, evil, evil),),
        measures=(Measure(evil, 1.0, Unit.COUNT), Measure("after", None, Unit.RATIO, "0:1")),
        not_applicable=(Skipped("other", evil),),
        not_judged=(),
        samples=1,
        taken_at=0.0,
    )
    _, _, measures = parsed(nagios_line(made))
    assert 2 == len(measures)
    assert "after" in measures
    lines = nagios_output(made, verbose=True).splitlines()
    assert 5 == len(lines)
    assert 1 == sum(line.count("|") for line in lines)


def test_the_long_text_lists_what_is_wrong_with_its_advice() -> None:
    """Below the line come the findings that are not OK, what to do, and the rules that do not apply."""
    output = nagios_output(verdict(engine_page(fraction=0.95, gpu=0.8), engine_page(fraction=0.95, gpu=0.8)))
    first, *rest = output.splitlines()
    parsed(first)
    assert rest[0].startswith("[WARNING] kv-cache-usage (tensorrt_llm/1): 0.95")
    assert rest[1].startswith("  try: New requests will wait")
    assert "[not applicable] x-rule: hardware cpu has no GPU" == rest[-1]
    assert ["[not judged] model-heartbeat", "[not judged] request-failures"] == [
        line.split(":")[0] for line in rest[2:4]
    ]


def test_verbose_lists_every_finding_with_its_source() -> None:
    """The verbose form shows what is OK as well, and where each number was read."""
    made = verdict(engine_page(gpu=0.8), engine_page(gpu=0.8))
    lines = nagios_output(made, verbose=True).splitlines()
    assert len(made.findings) == sum(line.startswith("[OK]") for line in lines)
    assert '  read from: nv_trt_llm_request_metrics{request_type="queued"}' in lines


def test_many_findings_are_counted() -> None:
    """More than three findings are shortened on the line, not below it."""
    state, text, _ = parsed(nagios_line(verdict(page("llmapi-upstream"))))
    assert "UNKNOWN" == state
    assert text.endswith("; 1 more")


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        (snapshots(engine_page(gpu=0.8)), 0),
        (snapshots(engine_page(gpu=0.8, fraction=0.95)), 1),
        ((failure(Outcome.REFUSED),), 2),
        ((failure(Outcome.GARBAGE),), 3),
    ],
)
def test_exit_codes(samples: tuple[Snapshot, ...], expected: int) -> None:
    """OK 0, WARNING 1, CRITICAL 2, UNKNOWN 3."""
    assert expected == exit_code(evaluate(TARGET, samples, RULESET))


def test_json_is_the_verdict() -> None:
    """The JSON object holds state, exit code, findings, measures and skips as plain values."""
    document = as_json(verdict(engine_page(gpu=0.8)))
    assert ("OK", 0, 1) == (document["state"], document["exit_code"], document["samples"])
    assert {"rule": "x-rule", "reason": "hardware cpu has no GPU"} == document["not_applicable"][0]
    assert {"label": "queue_depth", "value": 0.0, "unit": "count", "warning": "0:10", "critical": ""} in document[
        "measures"
    ]
    assert document == json.loads(json.dumps(document, allow_nan=False))


@settings(max_examples=300, deadline=2000)
@given(any_samples, any_ruleset())
def test_every_verdict_prints(samples: tuple[Snapshot, ...], ruleset: Ruleset) -> None:
    """Whatever was judged, line and JSON are well formed and agree on the state and the code."""
    made = evaluate(TARGET, samples, ruleset)
    state, _, measures = parsed(nagios_line(made))
    document = json.loads(json.dumps(as_json(made), allow_nan=False))
    assert state == document["state"] == made.state
    assert exit_code(made) == document["exit_code"]
    assert len(measures) == len(made.measures)


@given(st.floats(0, 1e12))
def test_values_survive_the_line(value: float) -> None:
    """A count printed as performance data is the count to six decimals."""
    made = Verdict("u", State.OK, (), (Measure("m", value, Unit.COUNT),), (), (), 1, 0.0)
    assert float(parsed(nagios_line(made))[2]["m"][0]) == pytest.approx(value, abs=1e-6)


def test_no_password_is_printed() -> None:
    """A user name and password in the URL reach neither the line nor the JSON."""
    target = Target("http://user:secret@127.0.0.1:8002/metrics")
    made = evaluate(target, (failure(Outcome.NO_ADDRESS),), rules_for())
    assert "secret" not in nagios_output(made, verbose=True) + json.dumps(as_json(made))
