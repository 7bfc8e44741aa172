"""The metric families of the model."""

from __future__ import annotations

import math
import time
from dataclasses import fields

import pytest
from triton_python_backend_utils import MetricFamily

from metrics import BUCKETS, COUNTERS, FELT, GAUGES, GROWING, HEARTBEAT, HISTOGRAMS, Metrics
from runtime import Felt, Finish, Statistics
from trtllm_kit.upstream.triton import metric_families

KINDS = {"gauge": MetricFamily.GAUGE, "counter": MetricFamily.COUNTER, "histogram": MetricFamily.HISTOGRAM}


def series() -> dict[tuple[str, str], float]:
    """Return every series by family and label value."""
    return {(name, next(value for key, value in labels if key not in ("model", "version"))): metric.value
            for (name, labels), metric in MetricFamily.page.items()}  # fmt: skip


def test_every_family_is_upstreams() -> None:
    """Names, kinds, descriptions, labels, values and buckets are those of the recorded upstream backend."""
    ours = {name: (KINDS["gauge"], description, label, set(values)) for name, description, label, values in GAUGES}
    ours[HEARTBEAT[0]][3].add(HEARTBEAT[3])
    assert HEARTBEAT[1:3] == ours[HEARTBEAT[0]][1:3]
    ours |= {name: (KINDS["counter"], description, label, set(values)) for name, description, label, values in COUNTERS}
    ours |= {name: (KINDS["counter"], description, label, {value}) for name, description, label, value, _ in GROWING}
    ours |= {
        name: (KINDS["histogram"], description, "response_metric_type", {value})
        for name, description, value, *_ in (*HISTOGRAMS, *FELT)
    }

    upstream = {
        family.name: (KINDS[family.kind], family.description, family.label, {value.name for value in family.values})
        for family in metric_families()
    }

    assert upstream == ours
    bounds = {name: BUCKETS for name, *_ in HISTOGRAMS} | {name: buckets for name, *_, buckets in FELT}
    assert bounds == {family.name: family.buckets for family in metric_families() if family.kind == "histogram"}


def test_every_statistic_is_shown() -> None:
    """Each field of the statistics reaches one series, with the model's labels."""
    numbers = {field.name: number for number, field in enumerate(fields(Statistics), 10)}
    statistics = Statistics(**numbers)
    metrics = Metrics("tensorrt_llm", "7")

    metrics.update(statistics)

    shown = series()
    assert numbers["queued"] == shown["nv_trt_llm_request_metrics", "queued"]
    assert numbers["paused"] == shown["nv_trt_llm_inflight_batcher_metrics", "paused_requests"]
    assert (
        statistics.kv_used_blocks / statistics.kv_max_blocks == shown["nv_trt_llm_kv_cache_block_metrics", "fraction"]
    )
    assert set(map(float, numbers.values())) <= set(map(float, shown.values()))
    assert all({("model", "tensorrt_llm"), ("version", "7")} <= labels for _, labels in MetricFamily.page)


def test_the_stand_in_for_a_backend_shows_what_the_backend_shows() -> None:
    """No series of our own is there, so alerts that pass a rehearsal pass in production."""
    metrics = Metrics("engine", "1", extended=False)
    metrics.update(Statistics(drafted_tokens=3, queued=2))
    metrics.update(None)

    wanted = {(one.name, value.name) for one in metric_families() for value in one.values if not value.kit_only}
    assert wanted == set(series())


def test_what_grows_is_counted_once() -> None:
    """The counters follow what the engine counts from its start, and stand still while nothing is known of it."""
    metrics = Metrics("growing", "1")
    for drafted, accepted in ((10, 7), (10, 7), (25, 16)):
        metrics.update(Statistics(drafted_tokens=drafted, accepted_tokens=accepted))
    metrics.update(None)

    shown = {value: number for (name, value), number in series().items() if name.startswith("trtllm_spec_decode")}
    assert {"drafted": 25, "accepted": 16} == shown


def test_an_engine_that_ended_is_not_idle() -> None:
    """Without statistics every gauge but the heartbeat is not a number, which no health rule takes for OK."""
    metrics = Metrics("ended", "1")
    metrics.update(Statistics())
    metrics.update(None)

    gauges = [
        metric.value
        for (name, labels), metric in MetricFamily.page.items()
        if ("model", "ended") in labels and MetricFamily.kinds[name] == MetricFamily.GAUGE
    ]
    assert (22, 21) == (len(gauges), sum(math.isnan(value) for value in gauges))


@pytest.mark.parametrize("statistics", [Statistics(), None], ids=["running", "ended"])
def test_the_heartbeat_moves_with_every_renewal(statistics: Statistics | None) -> None:
    """It is the time of the renewal in seconds since 1970, whether or not the engine has anything to tell."""
    metrics = Metrics("beating", "1")
    beats = []
    for _ in range(2):
        before = time.time()
        metrics.update(statistics)
        beats.append(series()["nv_trt_llm_general_metrics", "heartbeat"])
        assert before <= beats[-1] <= time.time()
        time.sleep(0.002)
    assert beats[0] < beats[1]


def test_lengths_are_counted() -> None:
    """Each finished answer counts its prompt and its answer once."""
    metrics = Metrics("m", "1")

    metrics.observe(Finish(reason="stop", prompt_tokens=12, output_tokens=34))

    observed = {
        name: metric.observed for (name, labels), metric in MetricFamily.page.items() if ("model", "m") in labels
    }
    assert ([12], [34]) == (observed["nv_llm_input_token_len"], observed["nv_llm_output_token_len"])


def test_what_a_streams_client_felt_is_counted() -> None:
    """First text and later tokens of a stream are observed; of a whole answer, and of one token, what there is."""
    metrics = Metrics("felt", "1")

    for felt in (Felt(first_token=0.25, each_token=0.02), Felt(first_token=0.5, each_token=None), None):
        metrics.observe(Finish(reason="stop"), felt)

    observed = {name: one.observed for (name, labels), one in MetricFamily.page.items() if ("model", "felt") in labels}
    assert [0.25, 0.5] == observed["trtllm_time_to_first_token_seconds"]
    assert [0.02] == observed["trtllm_time_per_output_token_seconds"]
