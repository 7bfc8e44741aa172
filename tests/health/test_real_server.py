"""Faults of a real tritonserver with the simulated runtime: each leads to its verdict, and clears after."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.ports import free_ports
from tests.support.specs import smollm2
from trtllm_kit.errors import RequestFailed
from trtllm_kit.health.check import check
from trtllm_kit.health.load import rules_for
from trtllm_kit.health.rules import Ruleset
from trtllm_kit.health.target import target_for
from trtllm_kit.health.verdict import Kind, State, Verdict
from trtllm_kit.plan.decide import make_plan
from trtllm_kit.plan.plan import Plan
from trtllm_kit.progress import Silent
from trtllm_kit.repository.compose import repository_files
from trtllm_kit.serve.client import Sampling, stream
from trtllm_kit.serve.process import Server, start
from trtllm_kit.spec.load import load_hardware, load_profile
from trtllm_kit.staging import staged

pytestmark = pytest.mark.triton

LOADED = load_profile("cpu-rehearsal-simulated")
HARDWARE = load_hardware(LOADED.profile.hardware)


def rules() -> Ruleset:
    """Return the rules of the rehearsal."""
    return rules_for(LOADED.profile, HARDWARE)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the repository of the server that the tests share."""
    return write_repository(tmp_path_factory.mktemp("health") / "repository", rehearsal_plan())


def write_repository(out: Path, plan: Plan) -> Path:
    """Write a repository of the simulated runtime, as deploy does."""
    with staged(out, "repository", "key") as stage:
        assert stage is not None
        for name, text in repository_files(plan, out).items():
            stage.write_text(name, text)
        stage.publish({}, {"start_grace_seconds": 60.0, "ports": {"metrics": plan.serve.metrics_port}})
    return out


def rehearsal_plan(ports: list[int] | None = None) -> Plan:
    """Plan a small model on ports of our own."""
    plan = make_plan(smollm2(), LOADED, HARDWARE)
    http, grpc, metrics = ports or PORTS
    serve = plan.serve.model_copy(update={"http_port": http, "grpc_port": grpc, "metrics_port": metrics})
    return plan.model_copy(update={"serve": serve})


PORTS = free_ports(3)


@pytest.fixture(scope="module")
def server(repository: Path) -> Iterator[Server]:
    """Run one server for all tests that leave it well."""
    with start(repository, rehearsal_plan().serve, {}, Silent()) as running:
        wait_until_ok(repository)
        yield running


def look(repository: Path, timeout_seconds: float = 1.0) -> Verdict:
    """Check the server that the repository's run record names."""
    target = target_for(repository, None, LOADED.profile)
    return check(target, rules(), interval_seconds=0.5, timeout_seconds=timeout_seconds)


def wait_until_ok(repository: Path) -> None:
    """Wait for the metrics page, which Triton opens a moment after it says that it is ready."""
    deadline = time.monotonic() + 5.0
    while look(repository).state is not State.OK:
        assert time.monotonic() < deadline


def kinds(verdict: Verdict) -> dict[str, Kind]:
    """Return the kind of every finding by rule."""
    return {finding.rule: finding.kind for finding in verdict.findings}


@contextmanager
def load(server: Server, streams: int = 3) -> Iterator[None]:
    """Keep the server busy with streamed answers."""

    def ask() -> None:
        for _ in stream(server.urls.http, "tensorrt_llm", "Tell me a story.", Sampling(max_tokens=400)):
            if over.is_set():
                return

    over = threading.Event()
    threads = [threading.Thread(target=ask, daemon=True) for _ in range(streams)]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(20)


def children(pid: int) -> list[int]:
    """Return the child processes of a server: the Python stub of its model."""
    found = [
        int(child)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for child in task.joinpath("children").read_text().split()
    ]
    assert found
    return found


@contextmanager
def stopped(pids: list[int]) -> Iterator[None]:
    """Hold processes still."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def test_a_fresh_server_is_ok(repository: Path, server: Server) -> None:
    """A server that never served a request is OK, its engine idle."""
    verdict = look(repository)
    assert State.OK is verdict.state, verdict
    assert Kind.IDLE is kinds(verdict)["engine-progress"]


def test_a_busy_server_is_ok(repository: Path, server: Server) -> None:
    """A server that streams three answers is OK, its engine making steps."""
    with load(server):
        verdict = look(repository)
    assert State.OK is verdict.state, verdict
    assert Kind.WITHIN is kinds(verdict)["engine-progress"]


def test_reading_faster_than_the_heartbeat_is_ok(repository: Path, server: Server) -> None:
    """Two readings a hundredth of a second apart mostly show the same heartbeat, and are no false alarm."""
    target = target_for(repository, None, LOADED.profile)
    assert {State.OK} == {check(target, rules(), interval_seconds=0.01).state for _ in range(5)}


def test_a_model_that_is_starved_for_a_moment_is_ok(repository: Path, server: Server) -> None:
    """A model's process that gets no time for a second and a half, and goes on, is no false alarm."""
    with ThreadPoolExecutor(1) as pool, stopped(children(server.pid)):
        looking = pool.submit(look, repository)
        time.sleep(1.5)
        assert not looking.done()
        for pid in children(server.pid):
            os.kill(pid, signal.SIGCONT)
        assert State.OK is looking.result(10).state


@pytest.mark.parametrize("streams", [0, 3])
def test_a_killed_stub_is_critical_at_the_first_check(tmp_path: Path, streams: int) -> None:
    """Idle or with active requests: when the model's process is killed, the page goes on as if nothing had happened.

    The first check is CRITICAL without any traffic, and the next one also counts the requests that fail. A Triton that
    dies of it with requests under way, as it sometimes does, is CRITICAL as well.
    """
    plan = rehearsal_plan(free_ports(3))
    repository = write_repository(tmp_path / "repository", plan)
    with start(repository, plan.serve, {}, Silent()) as server:
        wait_until_ok(repository)
        for _ in range(streams):
            threading.Thread(target=breaks_off, args=(server,), daemon=True).start()
        time.sleep(0.5)
        for pid in children(server.pid):
            os.kill(pid, signal.SIGKILL)
        quiet = look(repository, timeout_seconds=4.0)
        with ThreadPoolExecutor(1) as pool:
            looking = pool.submit(look, repository, 4.0)
            reasons = set()
            while not looking.done():
                reasons.add(fails(server))
                time.sleep(0.1)
    assert (State.CRITICAL, Kind.STALE) == (quiet.state, kinds(quiet).get("model-heartbeat")), quiet
    assert State.CRITICAL is looking.result().state
    if streams and any("refused" in reason or "closed" in reason for reason in reasons):
        return
    assert all("not healthy" in reason for reason in reasons), reasons
    failing = {finding.rule: finding for finding in looking.result().findings}["request-failures"]
    assert (State.CRITICAL, Kind.FAILING) == (failing.state, failing.kind)
    assert str(tmp_path.resolve() / "repository.server.log") in failing.advice


def fails(server: Server) -> str:
    """Ask for an answer that does not come; return why."""
    with pytest.raises(RequestFailed) as failed:
        list(stream(server.urls.http, "tensorrt_llm", "Tell me a story.", Sampling(max_tokens=4)))
    return failed.value.why


def breaks_off(server: Server) -> None:
    """Ask for an answer that the server may leave unfinished."""
    with suppress(RequestFailed):
        list(stream(server.urls.http, "tensorrt_llm", "Tell me a story.", Sampling(max_tokens=400)))


def test_a_held_model_behind_a_green_metrics_page_is_critical(repository: Path, server: Server) -> None:
    """With the model's process held still the page stays up and its numbers stand: CRITICAL, and OK again after."""
    stubs = children(server.pid)
    with load(server):
        with stopped(stubs):
            frozen = look(repository)
        after = look(repository)
    assert State.CRITICAL is frozen.state
    assert (Kind.STALE, Kind.STALE) == (kinds(frozen)["model-heartbeat"], kinds(frozen)["engine-progress"])
    assert State.OK is after.state, after


def test_a_stopped_server_is_critical_within_the_time_out(repository: Path, server: Server) -> None:
    """A server process that is held still is CRITICAL after one time-out, and OK again after."""
    with stopped([server.pid]):
        begun = time.monotonic()
        held = look(repository, timeout_seconds=0.5)
        elapsed = time.monotonic() - begun
    assert State.CRITICAL is held.state
    assert elapsed < 1.5
    assert State.OK is look(repository, timeout_seconds=4.0).state


def test_a_starting_server_is_a_warning_and_a_killed_one_critical_at_once(repository: Path, server: Server) -> None:
    """Refusing within its grace is WARNING while the process lives; killed, it is CRITICAL in the same second."""
    server.stop()
    second = Server(server.command, server.log)
    with second.keep():
        second.start()
        starting = look(repository)
        second.wait_ready(60.0, Silent())
        wait_until_ok(repository)
        os.kill(second.pid, signal.SIGKILL)
        while second.running():
            time.sleep(0.02)
        killed = look(repository)
        second.stop()
    assert (State.WARNING, Kind.STARTING) == (starting.state, kinds(starting)["scrape"])
    stopped_one = look(repository)
    assert State.CRITICAL is killed.state
    assert killed.findings[0].message.endswith("is gone")
    assert State.CRITICAL is stopped_one.state
    assert "no run record" in stopped_one.findings[0].message
    assert str(second.log) in stopped_one.findings[0].advice
