"""The rules for Prometheus fire when ``check-health`` finds something, by Prometheus' own evaluation."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.health.support import TARGET, engine_page, snapshot
from trtllm_kit.health.evaluate import evaluate
from trtllm_kit.health.load import shipped_rules
from trtllm_kit.health.prometheus import rule_groups
from trtllm_kit.health.promql import LOAD, expressions
from trtllm_kit.health.ranges import parse_range
from trtllm_kit.health.rules import ALL, Rule, Ruleset
from trtllm_kit.health.snapshot import Snapshot
from trtllm_kit.health.sources.prometheus_text import parse
from trtllm_kit.health.verdict import State

JOB = 'it\'s "a" job'
SCRAPE = 15
ON_THE_PAGE = {
    "kv_cache_usage", "queue_depth", "paused_requests", "scheduled_requests", "slots_usage", "gpu_utilization",
}  # fmt: skip
"""Metrics that the small page of these tests has."""
SAMPLES = 20
STATES: list[dict[str, Any]] = [
    {},
    {"queued": 10}, {"queued": 11}, {"queued": None}, {"queued": "NaN"}, {"queued": -1}, {"queued": "+Inf"},
    {"fraction": 0.9}, {"fraction": 0.91}, {"fraction": 1.2}, {"fraction": -0.1}, {"fraction": "NaN"},
    {"fraction": None, "used": 950}, {"fraction": None, "used": 500}, {"fraction": None, "used": None, "free": None},
    {"fraction": None, "used": 5, "blocks": 0, "free": 0},
    {"fraction": None, "used": 0, "blocks": 0, "free": 0, "iteration": 0},
    {"gpu": 0.8, "active": 3}, {"gpu": 0.2, "active": 3}, {"gpu": 0.2, "active": 0}, {"gpu": 0.99, "active": 3},
    {"gpu": None, "active": 3}, {"gpu": "NaN", "active": 3}, {"gpu": 1.5, "active": 3},
    {"queued": 30, "fraction": 0.99, "gpu": 0.1, "active": 9},
    {"paused": 2}, {"active": 64}, {"active": 64, "max": 0}, {"active": 9, "scheduled": 1},
    {"active": 3, "scheduled": 1}, {"active": None}, {"active": 70}, {"paused": -1}, {"scheduled": "NaN"},
    {"queued": 1, "fraction": 0.96}, {"queued": 0, "fraction": 0.96}, {"active": 9, "scheduled": 5},
]  # fmt: skip
"""Values of a page, each with what is wrong with it."""


@pytest.fixture(scope="module")
def promtool() -> str:
    """Give Prometheus' own evaluator; skip loudly without it."""
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("SKIPPED FOR LACK OF A TOOL: no promtool; apt-get install prometheus")
    return found


def ruleset(**ranges: str) -> Ruleset:
    """Return the shipped rules, some with other ranges."""
    from dataclasses import replace

    def changed(rule: Rule) -> Rule:
        text = ranges.get(rule.metric)
        return rule if text is None else replace(rule, ok=parse_range(text))

    return Ruleset(tuple(changed(rule) for rule in shipped_rules() if rule.metric in ON_THE_PAGE))


def written(rules: Ruleset, folder: Path) -> Path:
    """Write the rules file of a ruleset."""
    groups = rule_groups(rules, JOB, start_grace_seconds=600, scrape_seconds=SCRAPE)
    path = folder / "rules.yaml"
    path.write_text(json.dumps({"groups": list(groups)}))
    return path


def name_of(check: str) -> str:
    """Return the alert of a check."""
    return f"Trtkit{''.join(part.capitalize() for part in check.split('-'))}"


def series_of(text: str, **labels: str) -> list[dict[str, str]]:
    """Return a page as promtool's input: every series with the same value at each scrape."""
    found = []
    for line in [*text.splitlines(), "up 1"]:
        series, _, value = line.rpartition(" ")
        name, _, own = series.partition("{")
        given = [f"{key}={json.dumps(text)}" for key, text in ({"job": JOB, "instance": "a"} | labels).items()]
        inside = ",".join([*given, *([own.rstrip("}")] if own else [])])
        found.append({"series": f"{name}{{{inside}}}", "values": " ".join([value] * SAMPLES)})
    return found


def found_by_check(text: str, rules: Ruleset) -> set[str]:
    """Return the alerts that check-health's findings on a page stand for."""
    names = {rule.name for rule in rules.rules}
    samples: list[Snapshot] = [snapshot(text, float(SCRAPE * n)) for n in range(4)]
    verdict = evaluate(TARGET, samples, rules)
    found = set()
    for finding in verdict.findings:
        if finding.rule in names and finding.state is not State.OK:
            suffix = "-unknown" if finding.state is State.UNKNOWN else ""
            found.add(name_of(finding.rule + suffix))
    return found


def one_test(series: list[dict[str, str]], case: dict[str, Any]) -> dict[str, Any]:
    """Return one test of promtool."""
    return {"interval": f"{SCRAPE}s", "input_series": series, "promql_expr_test": [case]}


def asked(folder: Path, rules: Ruleset, tests: list[dict[str, Any]]) -> Path:
    """Write tests of a ruleset for promtool."""
    document = {"rule_files": [str(written(rules, folder))], "evaluation_interval": f"{SCRAPE}s", "tests": tests}
    path = folder / "tests.yaml"
    path.write_text(json.dumps(document))
    return path


def passes(promtool: str, *documents: Path) -> None:
    """Fail where promtool finds other values than are expected."""
    command = [promtool, "test", "rules", *map(str, documents)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert 0 == ran.returncode, ran.stdout + ran.stderr


def test_alerts_agree_with_check_health(promtool: str, tmp_path: Path) -> None:
    """For every kind of value, right, wrong, missing and impossible, the same rules fire on the same page."""
    rules = ruleset()
    firing = "|".join(name_of(rule.name) + "(Unknown)?" for rule in rules.rules)
    query = f'count by (alertname) (ALERTS{{alertstate="firing",alertname=~"{firing}"}})'
    tests = []
    for values in STATES:
        text = engine_page(**({"gpu": 0.8} | values))
        samples = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(found_by_check(text, rules))]
        case = {"expr": query, "eval_time": "4m", "exp_samples": samples}
        tests.append(one_test(series_of(text), case))
    assert any(test["promql_expr_test"][0]["exp_samples"] for test in tests)
    passes(promtool, asked(tmp_path, rules, tests))


RANGES = [
    ("10", 11, True), ("10", 5, False), ("5:", 4, True), ("5:", 6, False), ("~:5", 9, True), ("@3:5", 4, True),
    ("@3:5", 6, False), ("0.5:0.75", 0.6, False), ("0.5:0.75", 0.4, True), ("~:", 1e9, False),
]  # fmt: skip


def test_every_form_of_a_range_is_compared_alike(promtool: str, tmp_path: Path) -> None:
    """Open, closed and inverted ranges fire on what is outside of them."""
    documents = []
    for number, (healthy, value, fires) in enumerate(RANGES):
        rules, text = ruleset(queue_depth=healthy), engine_page(queued=value)
        assert fires == (name_of("queue-depth") in found_by_check(text, rules))
        query = 'count(ALERTS{alertname="TrtkitQueueDepth",alertstate="firing"})'
        samples = [{"labels": "{}", "value": 1}] if fires else []
        case = {"expr": query, "eval_time": "4m", "exp_samples": samples}
        (tmp_path / str(number)).mkdir()
        documents.append(asked(tmp_path / str(number), rules, [one_test(series_of(text), case)]))
    passes(promtool, *documents)


BUILT_IN = [
    ("a server that answers", [("up", "1x20")], []),
    ("a server that is down for a minute", [("up", "0x20")], ["TrtkitScrape"]),
    ("a server that is down for longer than a start", [("up", "0x60")], ["TrtkitScrape", "TrtkitScrapeFailed"]),
    ("no server at all", [("other", "1x60")], ["TrtkitScrapeUnknown"]),
    (
        "a heartbeat that stands still",
        [("up", "1x20"), ('nv_trt_llm_general_metrics{general_type="heartbeat"}', "100x20")],
        ["TrtkitModelHeartbeat"],
    ),
    ("a heartbeat", [("up", "1x20"), ('nv_trt_llm_general_metrics{general_type="heartbeat"}', "100+15x20")], []),
    (
        "a server that came up just now",
        [("up", "1x1"), ('nv_trt_llm_general_metrics{general_type="heartbeat"}', "100x1")],
        [],
    ),
    (
        "requests and no step",
        [
            ("up", "1x20"),
            ('nv_trt_llm_general_metrics{general_type="iteration_counter"}', "7x20"),
            ('nv_trt_llm_request_metrics{request_type="active"}', "3x20"),
        ],
        ["TrtkitEngineProgress"],
    ),
    (
        "requests and steps",
        [
            ("up", "1x20"),
            ('nv_trt_llm_general_metrics{general_type="iteration_counter"}', "7+9x20"),
            ('nv_trt_llm_request_metrics{request_type="active"}', "3x20"),
        ],
        [],
    ),
    (
        "an idle engine",
        [
            ("up", "1x20"),
            ('nv_trt_llm_general_metrics{general_type="iteration_counter"}', "7x20"),
            ('nv_trt_llm_request_metrics{request_type="active"}', "0x20"),
        ],
        [],
    ),
    (
        "some requests fail",
        [
            ("up", "1x20"),
            ('nv_inference_request_failure{reason="BACKEND"}', "0+1x20"),
            ("nv_inference_request_success", "0+5x20"),
        ],
        ["TrtkitRequestFailures"],
    ),
    (
        "all requests fail",
        [
            ("up", "1x20"),
            ('nv_inference_request_failure{reason="BACKEND"}', "0+1x20"),
            ("nv_inference_request_success", "5x20"),
        ],
        ["TrtkitRequestFailures", "TrtkitRequestFailuresAll"],
    ),
    (
        "clients leave",
        [("up", "1x20"), ('nv_inference_request_failure{reason="CANCELED"}', "0+1x20")],
        [],
    ),
]


def test_the_built_in_checks_fire(promtool: str, tmp_path: Path) -> None:
    """Servers that are down, dead, hung or failing are told from those that are well."""
    tests = []
    for _, series, expected in BUILT_IN:
        inputs = []
        for text, values in series:
            name, _, own = text.partition("{")
            server = [f"job={json.dumps(JOB)}", 'instance="a"']
            model = [] if name == "up" else ['model="m"', 'version="1"', *([own.rstrip("}")] if own else [])]
            inputs.append({"series": f"{name}{{{','.join([*server, *model])}}}", "values": values})
        scrapes = max(int(values.rpartition("x")[2]) for _, values in series)
        samples = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in expected]
        query = 'count by (alertname) (ALERTS{alertstate="firing",alertname=~"Trtkit(Scrape|Model|Engine|Request).*"})'
        tests.append(one_test(inputs, {"expr": query, "eval_time": f"{scrapes * SCRAPE}s", "exp_samples": samples}))
    passes(promtool, asked(tmp_path, ruleset(), tests))


REASONS = "DCGM_FI_DEV_CLOCKS_EVENT_REASONS"
VALUES = [
    (
        "gpu_imbalance",
        [("nv_gpu_utilization", 'gpu_uuid="a"', "0.9x40"), ("nv_gpu_utilization", 'gpu_uuid="b"', "0.4x40")],
        0.5,
    ),
    ("gpu_memory_usage", [("nv_gpu_memory_used_bytes", "", "9x40"), ("nv_gpu_memory_total_bytes", "", "10x40")], 0.9),
    ("gpu_power_usage", [("nv_gpu_power_usage", "", "350x40"), ("nv_gpu_power_limit", "", "700x40")], 0.5),
    (
        "gpu_temperature",
        [("DCGM_FI_DEV_GPU_TEMP", 'gpu="0"', "60x40"), ("DCGM_FI_DEV_GPU_TEMP", 'gpu="1"', "90x40")],
        90,
    ),
    (
        "gpus_throttled",
        [(REASONS, f'gpu="{bit}"', f"{bit}x40") for bit in (1, 4, 32, 72)],
        2,
    ),
    ("gpus_throttled", [(REASONS, 'gpu="0"', "4x40")], 0),
    ("gpus_power_capped", [(REASONS, f'gpu="{bit}"', f"{bit}x40") for bit in (1, 4, 36)], 2),
    ("gpu_ecc_errors", [("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 'gpu="0"', "3x40")], 3),
    ("gpu_remap_failures", [("DCGM_FI_DEV_ROW_REMAP_FAILURE", 'gpu="0"', "1x40")], 1),
    ("gpu_faults", [("DCGM_FI_DEV_XID_ERRORS", "", "0x20 79x20")], 1),
    ("gpu_faults", [("DCGM_FI_DEV_XID_ERRORS", "", "0x20 43x20")], 0),
    ("gpu_faults", [("DCGM_FI_DEV_XID_ERRORS", "", "79x60")], 0),
    (
        "nvlink_errors",
        [
            (f"DCGM_FI_DEV_NVLINK_{kind}_ERROR_COUNT_TOTAL", "", "0+1x40" if kind == "REPLAY" else "7x40")
            for kind in ("CRC_FLIT", "CRC_DATA", "REPLAY", "RECOVERY")
        ],
        20,
    ),
    (
        "spec_acceptance",
        [
            ("trtllm_spec_decode_num_draft_tokens_total", "", "0+100x40"),
            ("trtllm_spec_decode_num_accepted_tokens_total", "", "0+65x40"),
        ],
        0.65,
    ),
    (
        "reuse_rate",
        [
            ("trtllm_kv_cache_reused_blocks_total", "", "0+30x40"),
            ("trtllm_kv_cache_missed_blocks_total", "", "0+90x40"),
        ],
        0.25,
    ),
    (
        "queue_to_compute",
        [
            ("nv_inference_queue_duration_us", "", "0+24000000x40"),
            ("nv_inference_compute_infer_duration_us", "", "0+12000000x40"),
        ],
        2,
    ),
]
"""Values that a metric takes on series of another exporter, or of two moments."""


def test_gpus_and_changes_are_what_check_health_reads(promtool: str, tmp_path: Path) -> None:
    """Bits of reasons, sticky faults, errors of links and ratios of counters have the values their readers give."""
    tests = []
    for metric, series, value in VALUES:
        server = [f"job={json.dumps(JOB)}", 'instance="a"']
        inputs = [
            {"series": f"{name}{{{','.join([*server, *([own] if own else [])])}}}", "values": values}
            for name, own, values in series
        ]
        expr = f"round(max({expressions(JOB)[metric]}), 0.001)"
        case = {"expr": expr, "eval_time": "9m", "exp_samples": [{"labels": "{}", "value": value}]}
        tests.append(one_test(inputs, case))
    (tmp_path / "tests.yaml").write_text(json.dumps({"evaluation_interval": f"{SCRAPE}s", "tests": tests}))
    passes(promtool, tmp_path / "tests.yaml")


def test_every_metric_of_a_rule_has_an_expression() -> None:
    """A metric that is added is one that Prometheus can be asked for too."""
    assert ALL.keys() | {LOAD} == expressions(JOB).keys()


def test_records_come_before_the_alerts_that_read_them() -> None:
    """A group is evaluated in order, so an alert sees the value of the same moment."""
    (group,) = rule_groups(ruleset(), JOB, start_grace_seconds=600, scrape_seconds=SCRAPE)
    kinds = ["record" if "record" in rule else "alert" for rule in group["rules"]]
    assert sorted(kinds, reverse=True) == kinds


def test_samples_become_the_time_between_them() -> None:
    """A rule of one sample fires at once, one of two after a scrape more."""
    (group,) = rule_groups(ruleset(), JOB, start_grace_seconds=600, scrape_seconds=SCRAPE)
    waits = {rule["annotations"]["check"]: rule.get("for") for rule in group["rules"] if "alert" in rule}
    assert (None, "15s") == (waits["kv-cache-usage"], waits["queue-depth"])


def test_pages_of_these_tests_are_pages() -> None:
    """What promtool is given is what check-health reads."""
    assert parse(engine_page(gpu=0.8)).series
