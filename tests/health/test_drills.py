"""Faults switched on in a real tritonserver with the simulated runtime: each is found, and clears after."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.health.mixed_load import begin
from tests.health.test_real_server import HARDWARE, LOADED, rehearsal_plan, write_repository
from tests.support.ports import free_ports
from tests.support.specs import smollm2
from trtllm_kit.errors import RequestFailed
from trtllm_kit.health.check import Pace, check_remembering
from trtllm_kit.health.load import rules_for, shipped_rules
from trtllm_kit.health.rules import Ruleset
from trtllm_kit.health.target import target_for
from trtllm_kit.health.verdict import State, Verdict
from trtllm_kit.plan.decide import make_plan
from trtllm_kit.progress import Silent
from trtllm_kit.serve.client import Sampling, stream
from trtllm_kit.serve.process import Server, start
from trtllm_kit.spec.profile_sections import Speculation

pytestmark = pytest.mark.triton

RULES = rules_for(LOADED.profile, HARDWARE)
OVER_MINUTES = {rule.name for rule in shipped_rules() if rule.change is not None}
PACE = Pace(None, 0.5, 2.0)


class Drill:
    """One server, its switches, and the checks that remember it."""

    def __init__(self, server: Server, repository: Path, switches: Path, rules: Ruleset = RULES) -> None:
        self.server, self.repository, self.switches, self.rules = server, repository, switches, rules
        self.over = threading.Event()

    def switch(self, **faults: object) -> None:
        """Switch faults on; none switches all off."""
        self.switches.write_text(json.dumps(faults))
        time.sleep(0.3)

    def look(self) -> Verdict:
        """Check once more, remembering."""
        target = target_for(self.repository, None, LOADED.profile)
        return check_remembering(target, self.rules, PACE, str(self.switches.with_name("state.json")))[0]

    def ask(self) -> None:
        """Ask for long answers until it is over, whatever becomes of them."""
        while not self.over.is_set():
            with suppress(RequestFailed):
                for _ in stream(self.server.urls.http, "tensorrt_llm", "Tell me a story.", Sampling(max_tokens=300)):
                    if self.over.is_set():
                        return
            time.sleep(0.05)


@pytest.fixture(scope="module")
def drill(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drill]:
    """Run a server under load whose faults are switched by a file."""
    folder = tmp_path_factory.mktemp("drill")
    switches, plan = folder / "faults.json", rehearsal_plan(free_ports(3))
    switches.write_text("{}")
    repository = write_repository(folder / "repository", plan)
    with start(repository, plan.serve, {"TRTKIT_FAULTS": str(switches)}, Silent()) as server:
        made = Drill(server, repository, switches)
        threads = [threading.Thread(target=made.ask, daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        well_again(made)
        yield made
        made.over.set()


def found(drill: Drill, rule: str, states: set[State], checks: int = 3) -> None:
    """Look until a rule has one of the states, for some checks; then switch off and look until all is well."""
    seen = []
    for _ in range(checks):
        verdict = drill.look()
        seen.append([(finding.rule, finding.state.value) for finding in verdict.findings if finding.state.severity])
        if any(finding.rule == rule and finding.state in states for finding in verdict.findings):
            break
    else:
        drill.switch()
        raise AssertionError(seen)
    drill.switch()
    well_again(drill)


def well_again(drill: Drill) -> None:
    """Look until all is well, for fifteen seconds; what is judged over minutes remembers a fault for as long."""
    deadline = time.monotonic() + 15
    while bad := [one for one in drill.look().findings if one.state.severity and one.rule not in OVER_MINUTES]:
        assert time.monotonic() < deadline, bad


def test_a_busy_server_without_a_fault_raises_no_alarm(drill: Drill) -> None:
    """Ten checks in a row of a busy, healthy server are OK."""
    assert {State.OK} == {drill.look().state for _ in range(10)}


def test_a_stalled_engine_is_found(drill: Drill) -> None:
    """An engine that makes no step while requests are active is found by its progress."""
    drill.switch(stall=True)
    found(drill, "engine-progress", {State.UNKNOWN, State.CRITICAL})


def test_a_full_cache_is_found(drill: Drill) -> None:
    """A KV cache that is held nearly full is found."""
    drill.switch(kv_exhaustion=0.97)
    found(drill, "kv-cache-usage", {State.WARNING})


def test_metrics_that_are_lost_are_found(drill: Drill) -> None:
    """Numbers that turn to NaN are unknown, and never the last ones that were well."""
    drill.switch(lost_metrics=True)
    found(drill, "kv-cache-usage", {State.UNKNOWN})


@pytest.mark.slow
def test_two_minutes_without_a_fault_raise_no_alarm(tmp_path: Path) -> None:
    """Two minutes of checks of a healthy server under mixed load are OK, every one."""
    switches, plan = tmp_path / "faults.json", rehearsal_plan(free_ports(3))
    switches.write_text("{}")
    repository = write_repository(tmp_path / "repository", plan)
    with start(repository, plan.serve, {"TRTKIT_FAULTS": str(switches)}, Silent()) as server:
        made = Drill(server, repository, switches)
        begin(made)
        until, checks, alarms = time.monotonic() + 120, 0, []
        while time.monotonic() < until:
            alarms += [finding for finding in made.look().findings if finding.state is not State.OK]
            checks += 1
            time.sleep(1.0)
        made.over.set()
    assert [] == alarms
    assert checks > 60


def test_a_dead_rank_is_found(drill: Drill) -> None:
    """A rank that is gone: the engine stands, or its requests fail."""
    drill.switch(dead_rank=True)
    seen = set()
    for _ in range(3):
        verdict = drill.look()
        seen |= {finding.rule for finding in verdict.findings if finding.state in {State.UNKNOWN, State.CRITICAL}}
        if seen:
            break
    drill.switch()
    well_again(drill)
    assert seen & {"engine-progress", "request-failures", "model-heartbeat"}


def test_logits_without_numbers_are_found_by_the_acceptance(tmp_path: Path) -> None:
    """A server that drafts is OK while some drafts are accepted, and CRITICAL when exactly none is."""
    profile = LOADED.profile.model_copy(update={"speculation": Speculation(kind="ngram", draft_tokens=3)})
    loaded = replace(LOADED, profile=profile)
    plan = make_plan(smollm2(), loaded, HARDWARE)
    http, grpc, metrics = free_ports(3)
    ports = {"http_port": http, "grpc_port": grpc, "metrics_port": metrics}
    plan = plan.model_copy(update={"serve": plan.serve.model_copy(update=ports)})
    repository, switches = write_repository(tmp_path / "repository", plan), tmp_path / "faults.json"
    switches.write_text("{}")
    rules = rules_for(profile, HARDWARE)
    with start(repository, plan.serve, {"TRTKIT_FAULTS": str(switches)}, Silent()) as server:
        drill = Drill(server, repository, switches, rules)
        thread = threading.Thread(target=drill.ask, daemon=True)
        thread.start()
        well_again(drill)
        time.sleep(2.0)
        accepted = drill.look()
        drill.switch(nan_acceptance=True)
        switches.with_name("state.json").unlink()
        drill.look()
        time.sleep(2.0)
        none = drill.look()
        drill.over.set()
        thread.join(10)
    states = [{one.rule: one.state for one in verdict.findings}["spec-signature"] for verdict in (accepted, none)]
    assert [State.OK, State.CRITICAL] == states, (accepted, none)
