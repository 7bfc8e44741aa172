"""The named metrics: what is read, and what is not believed."""

from __future__ import annotations

import pytest

from tests.health.support import NOW, engine_page, page, snapshot
from trtllm_kit.health import metrics
from trtllm_kit.health.families import TYPE_LABEL
from trtllm_kit.health.metrics import METRICS, busy
from trtllm_kit.health.snapshot import NoReading, Reading, Trouble
from trtllm_kit.upstream.triton import metric_families

MODEL = "tensorrt_llm/1"


def read(name: str, text: str, subject: str = MODEL) -> Reading | NoReading:
    """Read one metric of one subject from a page."""
    return METRICS[name].read(snapshot(text))[subject]


def value(name: str, text: str, subject: str = MODEL) -> float:
    """Read one number."""
    reading = read(name, text, subject)
    assert isinstance(reading, Reading), reading
    return reading.value


def trouble(name: str, text: str, subject: str = MODEL) -> Trouble:
    """Read why there is no number."""
    reading = read(name, text, subject)
    assert isinstance(reading, NoReading), reading
    return reading.trouble


@pytest.mark.parametrize(
    ("name", "recorded", "expected"),
    [
        ("kv_cache_usage", "triton-2.51-simulated-idle", 0.0),
        ("kv_cache_usage", "triton-2.51-simulated-busy-1", 24 / 20656),
        ("kv_cache_usage", "triton-2.51-simulated-fresh", 0.0),
        ("kv_cache_usage", "triton-2.51-before-first-step", 0.0),
        ("kv_cache_usage", "legacy-24.08-ensemble", 0.2),
        ("kv_cache_usage", "h200x8-busy", 0.55),
        ("queue_depth", "h200x8-busy", 3.0),
        ("queue_depth", "legacy-24.08-ensemble", 0.0),
        ("active_requests", "triton-2.51-simulated-busy-1", 3.0),
        ("scheduled_requests", "h200x8-busy", 48.0),
        ("paused_requests", "h200x8-busy", 0.0),
    ],
)
def test_a_metric_is_read_from_a_real_page(name: str, recorded: str, expected: float) -> None:
    """Each metric of each page has the value that stands there."""
    assert expected == pytest.approx(value(name, page(recorded)))


def test_gpu_utilization_is_the_mean_and_tells_the_extremes() -> None:
    """Eight GPUs give their mean, and the detail has the lowest and the highest."""
    reading = read("gpu_utilization", page("h200x8-busy"), "")
    assert isinstance(reading, Reading)
    assert 0.78 == pytest.approx(reading.value)
    assert "0.74 to 0.81 over 8 GPUs" == reading.detail


def test_used_over_max_tells_its_blocks() -> None:
    """A server without ``fraction`` gets used / max, with both numbers in the detail and in the source."""
    reading = read("kv_cache_usage", page("legacy-24.08-ensemble"))
    assert isinstance(reading, Reading)
    assert "1024 of 5120 blocks" == reading.detail
    assert 'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="used|max"}' == reading.source


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("kv_cache_usage", engine_page(fraction=None, used=None), Trouble.MISSING),
        ("kv_cache_usage", engine_page(blocks=0, used=0, free=0, fraction=0), Trouble.MISSING),
        ("kv_cache_usage", engine_page(fraction="NaN"), Trouble.NOT_A_NUMBER),
        ("kv_cache_usage", engine_page(used="+Inf"), Trouble.NOT_A_NUMBER),
        ("kv_cache_usage", engine_page(used=1001), Trouble.CONTRADICTING),
        ("kv_cache_usage", engine_page(used=1001, fraction=None), Trouble.CONTRADICTING),
        ("kv_cache_usage", engine_page(free=1001), Trouble.CONTRADICTING),
        ("kv_cache_usage", engine_page(fraction=1.2), Trouble.CONTRADICTING),
        ("kv_cache_usage", engine_page(fraction=-0.1), Trouble.CONTRADICTING),
        ("kv_cache_usage", engine_page(used=-1), Trouble.CONTRADICTING),
        ("queue_depth", engine_page(queued=-1), Trouble.CONTRADICTING),
        ("queue_depth", engine_page(queued="NaN"), Trouble.NOT_A_NUMBER),
        ("queue_depth", engine_page(queued=None), Trouble.MISSING),
        ("active_requests", engine_page(active=65), Trouble.CONTRADICTING),
        ("active_requests", engine_page(max="NaN"), Trouble.NOT_A_NUMBER),
        ("scheduled_requests", engine_page(scheduled="-Inf"), Trouble.NOT_A_NUMBER),
    ],
)
def test_what_cannot_be_is_no_reading(name: str, text: str, expected: Trouble) -> None:
    """Missing, NaN, infinite, negative and contradicting numbers never become a reading."""
    assert expected is trouble(name, text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (engine_page(), Trouble.MISSING),
        (engine_page(gpu="NaN"), Trouble.NOT_A_NUMBER),
        (engine_page(gpu=78), Trouble.CONTRADICTING),
        (engine_page(gpu=-0.1), Trouble.CONTRADICTING),
    ],
)
def test_gpu_utilization_that_cannot_be_is_no_reading(text: str, expected: Trouble) -> None:
    """A GPU at NaN, below 0 or on a 0..100 scale is not believed."""
    assert expected is trouble("gpu_utilization", text, "")


def test_one_bad_gpu_is_not_averaged_away() -> None:
    """A NaN of one GPU of eight makes the whole mean unknown."""
    text = page("h200x8-busy").replace(" 0.74\n", " Nan\n")
    assert Trouble.NOT_A_NUMBER is trouble("gpu_utilization", text, "")
    federated = "".join(
        f'nv_gpu_utilization{{gpu_uuid="G",pod="{pod}"}} {v}\n' for pod, v in (("a", "NaN"), ("b", 0.8))
    )
    assert Trouble.NOT_A_NUMBER is trouble("gpu_utilization", federated, "")


@pytest.mark.parametrize("name", sorted(METRICS))
def test_a_page_without_the_family_is_missing(name: str) -> None:
    """Core metrics alone give no reading of any named metric."""
    assert Trouble.MISSING is trouble(name, page("llmapi-upstream"), "")


def test_zeros_before_the_first_step_are_an_empty_cache() -> None:
    """A server that has made no step reports 0 blocks; that is an empty cache, not a missing one."""
    fresh = engine_page(blocks=0, used=0, free=0, fraction=0, iteration=0)
    assert 0.0 == value("kv_cache_usage", fresh)
    assert Trouble.MISSING is trouble(
        "kv_cache_usage", engine_page(blocks=0, used=0, free=0, fraction=0, iteration=None)
    )


def test_models_are_subjects_of_their_own() -> None:
    """Two models on one server give two readings."""
    text = engine_page("large", queued=7) + engine_page("small", queued=1)
    measured = METRICS["queue_depth"].read(snapshot(text))
    assert {"large/1": 7.0, "small/1": 1.0} == {k: v.value for k, v in measured.items() if isinstance(v, Reading)}


def test_busy_is_sure_as_soon_as_one_model_is() -> None:
    """One busy model makes the server busy even when another cannot be read; without one, that is unknown."""
    unreadable = engine_page("small", active="NaN")
    assert busy(snapshot(engine_page("large", active=1) + unreadable)) is True
    assert isinstance(busy(snapshot(engine_page("large") + unreadable)), NoReading)
    assert busy(snapshot(engine_page())) is False


def test_an_old_time_stamp_makes_a_value_stale() -> None:
    """A value that its exporter took three minutes ago is stale; one of a minute ago has its age."""
    line = 'nv_gpu_utilization{{gpu_uuid="GPU-0"}} 0.8 {}\n'
    old, young = (line.format(round((NOW - age) * 1000)) for age in (180, 60))
    assert Trouble.STALE is trouble("gpu_utilization", old, "")
    reading = read("gpu_utilization", young, "")
    assert isinstance(reading, Reading)
    assert 60.0 == pytest.approx(reading.age_seconds)


def test_every_series_read_is_one_that_upstream_or_the_kit_exports() -> None:
    """Families, labels and label values are those of the upstream table."""
    known = {family.name: (family.label, {value.name for value in family.values}) for family in metric_families()}
    assert TYPE_LABEL == {family: known[family][0] for family in TYPE_LABEL}
    assert {"active", "max", "scheduled", "queued"} <= known[metrics.REQUESTS][1]
    assert {"fraction", "used", "free", "max"} <= known[metrics.KV_BLOCKS][1]
    assert {"iteration_counter", "timestamp", "heartbeat"} <= known[metrics.GENERAL][1]
    assert "paused_requests" in known[metrics.BATCHER][1]
