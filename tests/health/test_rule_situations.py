"""Every shipped rule that needs more than trtkit's own page: when it fires, when it does not, and what it lacks."""

from __future__ import annotations

import pytest

from tests.health.support import TARGET, engine_page, page, snapshot, snapshots
from trtllm_kit.health.evaluate import evaluate
from trtllm_kit.health.judge import judge
from trtllm_kit.health.load import shipped_rules
from trtllm_kit.health.metrics import METRICS
from trtllm_kit.health.rules import Ruleset
from trtllm_kit.health.snapshot import NoReading, Reading
from trtllm_kit.health.verdict import Kind, State

RULES = {rule.name: rule for rule in shipped_rules()}
DCGM = "DCGM_FI_DEV_"


def gpus(**families: float | str) -> str:
    """Write a page of the DCGM exporter with one GPU; a value may be several, one for each GPU."""
    lines = [engine_page(active=3)]
    for name, values in families.items():
        for number, value in enumerate(str(values).split("/")):
            lines.append(f'{DCGM}{name}{{gpu="{number}",UUID="GPU-{number}"}} {value}\n')
    return "".join(lines)


FIRES, HEALTHY, IDLE, PASSING = Kind.OUTSIDE, Kind.WITHIN, Kind.IDLE, Kind.PASSING
NAN, MISSING, UNDECIDED, IMPOSSIBLE = Kind.NOT_A_NUMBER, Kind.MISSING, Kind.UNDECIDED, Kind.CONTRADICTING


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("kv-pressure", engine_page(fraction=0.96, queued=1), FIRES),
        ("kv-pressure", engine_page(fraction=0.96, queued=0), IDLE),
        ("kv-pressure", engine_page(fraction=0.95, queued=9), HEALTHY),
        ("kv-pressure", engine_page(fraction="NaN", queued=9), NAN),
        ("kv-pressure", engine_page(fraction=None, used=None, queued=9), MISSING),
        ("paused-requests", engine_page(paused=1), FIRES),
        ("paused-requests", engine_page(paused=0), HEALTHY),
        ("paused-requests", engine_page(paused="NaN"), NAN),
        ("paused-requests", engine_page(paused=None), MISSING),
        ("hidden-queue", engine_page(active=64, max=64), FIRES),
        ("hidden-queue", engine_page(active=63, max=64), HEALTHY),
        ("hidden-queue", engine_page(active=65, max=64), IMPOSSIBLE),
        ("hidden-queue", engine_page(active=3, max=None), MISSING),
        ("hidden-queue", engine_page(active=0, max=0), MISSING),
        ("concurrency-collapse", engine_page(active=4, scheduled=1), FIRES),
        ("concurrency-collapse", engine_page(active=4, scheduled=2), HEALTHY),
        ("concurrency-collapse", engine_page(active=3, scheduled=1), IDLE),
        ("concurrency-collapse", engine_page(active=4, scheduled="NaN"), NAN),
        ("concurrency-collapse", engine_page(active=4, scheduled=None), MISSING),
        ("gpu-imbalance", gpus(GPU_UTIL="95/60"), FIRES),
        ("gpu-imbalance", gpus(GPU_UTIL="95/75"), HEALTHY),
        ("gpu-imbalance", gpus(GPU_UTIL="95"), HEALTHY),
        ("gpu-imbalance", gpus(GPU_UTIL="95/NaN"), NAN),
        ("gpu-imbalance", gpus(), MISSING),
        ("gpu-memory", gpus(FB_USED=9900, FB_FREE=50, FB_RESERVED=50), FIRES),
        ("gpu-memory", gpus(FB_USED=9700, FB_FREE=250, FB_RESERVED=50), HEALTHY),
        ("gpu-memory", gpus(FB_USED="NaN", FB_FREE=250), NAN),
        ("gpu-memory", gpus(FB_USED=9900), MISSING),
        ("gpu-temperature", gpus(GPU_TEMP=86), FIRES),
        ("gpu-temperature", gpus(GPU_TEMP_CELSIUS=86), FIRES),
        ("gpu-temperature", gpus(GPU_TEMP="60/85"), HEALTHY),
        ("gpu-temperature", gpus(GPU_TEMP="60/NaN"), NAN),
        ("gpu-temperature", gpus(GPU_TEMP=9223372036854775794), MISSING),
        ("thermal-throttle", gpus(CLOCKS_EVENT_REASONS=64), FIRES),
        ("thermal-throttle", gpus(CLOCKS_EVENT_REASONS="1/32"), FIRES),
        ("thermal-throttle", gpus(CLOCK_THROTTLE_REASONS=128), FIRES),
        ("thermal-throttle", gpus(CLOCKS_EVENT_REASONS="1/4"), HEALTHY),
        ("thermal-throttle", gpus(CLOCKS_EVENT_REASONS="NaN"), NAN),
        ("thermal-throttle", gpus(), MISSING),
        ("power-cap", gpus(CLOCKS_EVENT_REASONS=4), FIRES),
        ("power-cap", gpus(CLOCKS_EVENT_REASONS=1), HEALTHY),
        ("gpu-ecc", gpus(ECC_DBE_VOL_TOTAL="0/1"), FIRES),
        ("gpu-ecc", gpus(ECC_DBE_VOL_TOTAL="0/0"), HEALTHY),
        ("gpu-ecc", gpus(ECC_DBE_VOL_TOTAL=-1), IMPOSSIBLE),
        ("gpu-ecc", gpus(), MISSING),
        ("gpu-row-remap", gpus(ROW_REMAP_FAILURE=1), FIRES),
        ("gpu-row-remap", gpus(ROW_REMAP_FAILED=1), FIRES),
        ("gpu-row-remap", gpus(ROW_REMAP_FAILURE=0), HEALTHY),
    ],
)
def test_each_rule_on_pages_that_stay(name: str, text: str, kind: Kind) -> None:
    """In three samples of the same page each rule fires, is content, idle, or says why it cannot tell."""
    rule = RULES[name]
    (finding,) = judge(rule, snapshots(text, text, text))
    state = {FIRES: rule.severity, NAN: State.UNKNOWN, IMPOSSIBLE: State.UNKNOWN}.get(kind, State.OK)
    assert (kind, state) == (finding.kind, finding.state)


@pytest.mark.parametrize("name", ["kv-pressure", "paused-requests", "hidden-queue", "concurrency-collapse"])
def test_one_sample_outside_does_not_fire_yet(name: str) -> None:
    """What takes three samples is undecided in the first check, and passing where a healthy sample precedes it."""
    bad = engine_page(active=64, scheduled=1, queued=9, fraction=0.99, paused=5)
    good = engine_page(active=4, scheduled=4, queued=1)
    assert [UNDECIDED] == [finding.kind for finding in judge(RULES[name], snapshots(bad))]
    assert [PASSING] == [finding.kind for finding in judge(RULES[name], snapshots(good, bad))]


def test_what_fires_shows_its_evidence() -> None:
    """A full cache that makes requests wait is shown with how many wait, and how many are paused."""
    text = engine_page(fraction=0.97, queued=7, paused=2)
    (finding,) = judge(RULES["kv-pressure"], snapshots(text, text, text))
    assert "paused_requests: tensorrt_llm/1 2; queue_depth: tensorrt_llm/1 7" in finding.message


@pytest.mark.parametrize(
    ("name", "recorded", "expected"),
    [
        ("kv_cache_usage", "trtllm-serve-1.3", 0.62), ("queue_depth", "trtllm-serve-1.3", 3.0),
        ("active_requests", "trtllm-serve-1.3", 12.0), ("scheduled_requests", "trtllm-serve-1.3", 12.0),
        ("paused_requests", "trtllm-serve-1.3", 0.0), ("slots_usage", "trtllm-serve-1.3", 12 / 64),
        ("active_requests", "dynamo-frontend", 7.0), ("queue_depth", "dynamo-frontend", 2.0),
        ("gpu_utilization", "dcgm-exporter-4.2", 0.965), ("gpu_utilization", "dcgm-exporter-4.6-names", 0.06),
        ("gpu_power_usage", "dcgm-exporter-4.2", 692.269 / 700),
        ("gpu_power_usage", "dcgm-exporter-4.6-names", 78.776 / 700),
        ("gpu_temperature", "dcgm-exporter-4.2", 64.0), ("gpu_temperature", "dcgm-exporter-4.6-names", 37.0),
        ("gpu_memory_usage", "dcgm-exporter-4.2", 131101 / 143771), ("gpus_power_capped", "dcgm-exporter-4.2", 2.0),
        ("gpus_throttled", "dcgm-exporter-4.2", 0.0), ("gpu_ecc_errors", "dcgm-exporter-4.2", 0.0),
        ("gpu_remap_failures", "dcgm-exporter-4.6-names", 0.0),
    ],
)  # fmt: skip
def test_other_servers_and_exporters_tell_the_same_numbers(name: str, recorded: str, expected: float) -> None:
    """trtllm-serve, Dynamo and both namings of the DCGM exporter give each metric in its own unit."""
    reading = METRICS[name].read(snapshot(page(recorded)))[""]
    assert isinstance(reading, Reading), reading
    assert pytest.approx(expected) == reading.value


def test_five_families_are_not_enough_to_be_well() -> None:
    """trtllm-serve of release 1.1 tells neither cache nor queue: that is UNKNOWN, not OK."""
    text = page("trtllm-serve-1.1")
    verdict = evaluate(TARGET, snapshots(text, text), Ruleset((RULES["kv-cache-usage"], RULES["queue-depth"])))
    assert State.UNKNOWN is verdict.state


def test_the_queue_in_front_of_an_ensemble_is_derived() -> None:
    """What the ensemble has in flight and the executor does not hold waits, on a server that exports no queue."""
    more = page("legacy-24.08-ensemble").replace(
        'nv_inference_request_success{model="preprocessing",version="1"} 412',
        'nv_inference_request_success{model="preprocessing",version="1"} 440',
    )
    reading = METRICS["queue_depth"].read(snapshot(more))["tensorrt_llm/1"]
    assert isinstance(reading, Reading)
    assert (28.0, "40 in flight less 12 active") == (reading.value, reading.detail)


def test_a_label_that_is_undefined_is_unknown() -> None:
    """A series of no model that can be named is told, though its number looks well."""
    text = page("trtllm-serve-1.3").replace('model_name="llama"', 'model_name="undefined"')
    found = evaluate(TARGET, snapshots(text, text), Ruleset(())).findings
    (finding,) = [one for one in found if one.rule == "metric-sanity"]
    assert State.UNKNOWN is finding.state
    family = "trtllm_e2e_request_latency_seconds_bucket"
    assert f'the page: the label model_name of {family} reads "undefined"' == finding.message


def test_an_engine_that_counts_nothing_while_requests_are_answered_is_unknown() -> None:
    """Ten answers and not one step of the engine contradict each other."""
    pages = [engine_page(iteration=0, succeeded=count) for count in (0, 10)]
    found = evaluate(TARGET, snapshots(*pages), Ruleset(())).findings
    assert [State.UNKNOWN] == [one.state for one in found if one.rule == "metric-sanity"]
    pages = [engine_page(iteration=0, succeeded=count) for count in (0, 9)]
    found = evaluate(TARGET, snapshots(*pages), Ruleset(())).findings
    assert [State.OK] == [one.state for one in found if one.rule == "metric-sanity"]


def test_a_blank_of_the_exporter_is_missing_and_never_a_number() -> None:
    """Every mark that DCGM writes for what it could not read makes its metric missing."""
    for blank in (
        9223372036854775792,
        9223372036854775793,
        9223372036854775794,
        9223372036854775795,
        140737488355328.0,
    ):
        for name, family in (("gpu_temperature", "GPU_TEMP"), ("gpu_utilization", "GPU_UTIL")):
            assert isinstance(METRICS[name].read(snapshot(gpus(**{family: blank})))[""], NoReading)
