"""A server as Prometheus has seen it."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.health.support import SEEDS, answers, engine_page, free_port, stub_server
from trtllm_kit.health.check import Pace, looked_at
from trtllm_kit.health.memory import NOTHING
from trtllm_kit.health.rules import Ruleset
from trtllm_kit.health.snapshot import Outcome, Target
from trtllm_kit.health.sources.gather import gather_range
from trtllm_kit.health.sources.prometheus_api import instance_of, read_range
from trtllm_kit.health.verdict import State, Verdict

URL = "http://gpu-07:8002/metrics"
RULES = Ruleset(tuple(rule for rule in SEEDS if rule.needs is None))


def matrix(**values: list[float | str]) -> str:
    """Write an answer: types of the engine's families with a value each minute up to now."""
    now = time.time()
    families = {"queued": ("nv_trt_llm_request_metrics", "request_type"), "up": ("up", "x")}
    families["active"] = families["queued"]
    families["fraction"] = ("nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type")
    families["iteration_counter"] = ("nv_trt_llm_general_metrics", "general_type")
    rows: list[dict[str, Any]] = []
    for kind, numbers in values.items():
        name, label = families[kind]
        metric = {"__name__": name, "instance": "gpu-07:8002", "job": "j", label: kind, "model": "m", "version": "1"}
        points = [[now - 60 * back, str(number)] for back, number in enumerate(reversed(numbers))]
        rows.append({"metric": metric, "values": points[::-1]})
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": rows}})


def judged(body: str) -> Verdict:
    """Check a server through a Prometheus that answers so."""
    with stub_server(answers(body)) as via:
        return looked_at(Target(URL, via=via.removesuffix("/metrics")), RULES, Pace(), NOTHING)[0]


def state(verdict: Verdict, rule: str) -> State:
    """Return the state of a check."""
    return next(finding.state for finding in verdict.findings if finding.rule == rule)


def test_samples_of_minutes_are_consecutive() -> None:
    """A queue that was long in the last two of six minutes fires at the first check, without any memory."""
    common: dict[str, list[float | str]] = {"active": [3] * 6, "fraction": [0.2] * 6, "iteration_counter": [*range(6)]}
    long = judged(matrix(queued=[0, 0, 0, 0, 20, 30], **common))
    assert (State.WARNING, State.OK, 6) == (state(long, "queue-depth"), state(long, "engine-progress"), long.samples)
    passing = judged(matrix(queued=[0, 0, 0, 0, 0, 30], **common))
    assert State.OK is state(passing, "queue-depth")


def test_an_engine_that_stood_for_minutes_is_critical() -> None:
    """Five minutes with requests and no step are a stall."""
    verdict = judged(matrix(queued=[0] * 6, active=[3] * 6, fraction=[0.2] * 6, iteration_counter=[7] * 6))
    assert State.CRITICAL is state(verdict, "engine-progress")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"up": [1, 1, 0]}, State.CRITICAL),
        ({}, State.UNKNOWN),
        ("{}", State.UNKNOWN),
        ('{"data": {"result": [{"metric": {}, "values": []}]}}', State.UNKNOWN),
        ('{"data": {"result": [{"metric": {"__name__": "a"}, "values": [[1, "1"]]}]}}', State.UNKNOWN),
        ('{"data": {"result": [{"metric": [], "values": [[1, "1"]]}]}}', State.UNKNOWN),
        ('{"data": {"result": [{"metric": {"__name__": "a"}, "values": [[%s, "1"]]}]}}' % ("9" * 400), State.UNKNOWN),
        ("no JSON", State.UNKNOWN),
    ],
)
def test_what_prometheus_does_not_know_is_not_ok(body: str | dict[str, list[float | str]], expected: State) -> None:
    """A target it cannot read is CRITICAL; none, an old one and garbage are UNKNOWN."""
    assert expected is judged(body if isinstance(body, str) else matrix(**body)).state


def test_a_prometheus_that_is_down_says_nothing_of_the_server() -> None:
    """Its refusal is UNKNOWN, not CRITICAL."""
    (snapshot,) = read_range(f"http://127.0.0.1:{free_port()}", URL, 1.0)
    assert (Outcome.GARBAGE, "Prometheus: the port refuses connections") == (snapshot.outcome, snapshot.reason)


def test_what_stands_beside_is_read_too() -> None:
    """A page beside the server is joined to the newest of what Prometheus saw, and one that is down is UNKNOWN."""
    seen = matrix(queued=[0] * 6, active=[0] * 6, fraction=[0.2] * 6, iteration_counter=[7] * 6)
    gone = f"http://127.0.0.1:{free_port()}/metrics"
    with stub_server(answers(seen)) as via, stub_server(answers("DCGM_FI_DEV_GPU_TEMP 50\n")) as beside:
        samples = gather_range(Target(URL, via=via.removesuffix("/metrics"), beside=(beside, gone)), 2.0)
    assert [False] * 5 + [True] == ["DCGM_FI_DEV_GPU_TEMP" in sample.series for sample in samples]
    assert ((gone, "the port refuses connections"),) == samples[-1].beside_failed


def test_the_instance_is_host_and_port() -> None:
    """What Prometheus calls a server is in its URL."""
    assert "gpu-07:8002" == instance_of(URL)
    assert "[fd00::7]:8002" == instance_of("https://[fd00::7]:8002/metrics")


def test_a_real_prometheus_is_asked(tmp_path: Path) -> None:
    """A Prometheus that scrapes a server answers for it: its series, its time, and when it went away."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("SKIPPED FOR LACK OF A TOOL: no prometheus; apt-get install prometheus")
    turn = {"steps": 0}

    def serve(connection: socket.socket) -> None:
        turn["steps"] += 1
        answers(engine_page(active=1, iteration=turn["steps"]))(connection)

    with stub_server(serve) as url:
        port = free_port()
        jobs = [{"job_name": "j", "static_configs": [{"targets": [instance_of(url)]}]}]
        document = {"global": {"scrape_interval": "1s"}, "scrape_configs": jobs}
        (tmp_path / "p.yml").write_text(json.dumps(document))
        words = [program, f"--config.file={tmp_path}/p.yml", f"--storage.tsdb.path={tmp_path}/data"]
        with subprocess.Popen([*words, f"--web.listen-address=127.0.0.1:{port}"], stderr=subprocess.DEVNULL) as running:
            try:
                target = Target(url, via=f"http://127.0.0.1:{port}")
                deadline = time.monotonic() + 30
                while True:
                    verdict = looked_at(target, RULES, Pace(), NOTHING)[0]
                    if verdict.state is State.OK:
                        break
                    assert time.monotonic() < deadline, verdict
                    time.sleep(0.3)
            finally:
                running.terminate()
    assert {"scrape", "kv-cache-usage", "queue-depth"} <= {finding.rule for finding in verdict.findings}
