"""Faults of a real server, switched on under load: by which check each is found, how soon, and how soon it clears.

Prints a table, and the false alarms of MINUTES (argument, 10) of healthy mixed load; with a second argument the table
is written there. Needs the rehearsal extra. Exits with 1 where a fault was not found or an alarm was false.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.health.mixed_load import begin  # noqa: E402  # the checkout is no package
from tests.health.test_drills import Drill  # noqa: E402
from tests.health.test_real_server import HARDWARE, LOADED, write_repository  # noqa: E402
from tests.support.ports import free_ports  # noqa: E402
from tests.support.specs import smollm2  # noqa: E402
from trtllm_kit.health.load import rules_for  # noqa: E402
from trtllm_kit.health.verdict import State, Verdict  # noqa: E402
from trtllm_kit.plan.decide import make_plan  # noqa: E402
from trtllm_kit.progress import Silent  # noqa: E402
from trtllm_kit.serve.process import start  # noqa: E402
from trtllm_kit.spec.profile_sections import Speculation  # noqa: E402

FAULTS: tuple[tuple[str, object], ...] = (
    ("stall", True),
    ("kv_exhaustion", 0.97),
    ("lost_metrics", True),
    ("dead_rank", True),
    ("nan_acceptance", True),
)
WAIT_SECONDS = 30.0
HEAD = "| fault | found by | after, s | samples | clear after, s |\n|---|---|---|---|---|"


class Found(NamedTuple):
    """What a look for trouble, or for its end, came to."""

    seconds: float
    wrong: set[str]
    samples: int


def main() -> int:
    """Run every drill and the healthy load between them."""
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    rows = [HEAD]
    with tempfile.TemporaryDirectory(prefix="trtkit-drills-") as name, served(Path(name)) as drill:
        looked(drill, lambda wrong: not wrong)
        for fault, value in FAULTS:
            rows.append(drilled(drill, fault, lambda: drill.switch(**{fault: value}), drill.switch))  # noqa: B023
        pid = drill.server.pid
        rows.append(
            drilled(drill, "SIGSTOP", lambda: os.kill(pid, signal.SIGSTOP), lambda: os.kill(pid, signal.SIGCONT))
        )
        drill.switches.with_name("state.json").unlink()  # what is judged over minutes begins anew
        alarms, told = false_alarms(drill, minutes * 60)
        rows.append(drilled(drill, "exit_after_tokens", lambda: drill.switch(exit_after_tokens=50), None))
        rows.append(drilled(drill, "SIGKILL", lambda: os.kill(pid, signal.SIGKILL), None))
        drill.over.set()
    text = "\n".join([*rows, "", told])
    print(text)
    if len(sys.argv) > 2:
        Path(sys.argv[2]).write_text(text + "\n", "utf-8")
    return 1 if alarms or any("| nothing |" in row for row in rows) else 0


@contextmanager
def served(folder: Path) -> Iterator[Drill]:
    """Serve a model that drafts, under three kinds of load; its faults are switched by a file."""
    profile = LOADED.profile.model_copy(update={"speculation": Speculation(kind="ngram", draft_tokens=1)})
    plan = make_plan(smollm2(), replace(LOADED, profile=profile), HARDWARE)
    ports = dict(zip(("http_port", "grpc_port", "metrics_port"), free_ports(3), strict=True))
    plan = plan.model_copy(update={"serve": plan.serve.model_copy(update=ports)})
    switches = folder / "faults.json"
    switches.write_text("{}")
    repository = write_repository(folder / "repository", plan)
    with start(repository, plan.serve, {"TRTKIT_FAULTS": str(switches)}, Silent()) as server:
        drill = Drill(server, repository, switches, rules_for(profile, HARDWARE))
        begin(drill)
        yield drill


def drilled(drill: Drill, fault: str, on: Callable[[], None], off: Callable[[], None] | None) -> str:
    """Let a fault be and, where it can be, end it; returns its row.

    What is judged over minutes is not well for minutes after a fault, so what was not before counts for nothing.
    """
    before = not_well(drill.look())
    on()
    if fault == "nan_acceptance":  # it is judged over minutes too: what came before the fault is forgotten
        drill.switches.with_name("state.json").unlink()
    found = looked(drill, lambda wrong: bool(wrong - before))
    by = found.wrong - before
    cleared = "does not"
    if off is not None:
        off()
        if fault == "nan_acceptance":
            drill.switches.with_name("state.json").unlink()
        cleared = f"{looked(drill, lambda wrong: not wrong & by).seconds:.1f}"
    told = ", ".join(sorted(by)) or "nothing"
    return f"| {fault} | {told} | {found.seconds:.1f} | {found.samples} | {cleared} |"


def looked(drill: Drill, enough: Callable[[set[str]], bool]) -> Found:
    """Check until what is not well is enough, for half a minute at most."""
    begun, wrong, samples = time.monotonic(), set[str](), 0
    while time.monotonic() - begun < WAIT_SECONDS:
        verdict = drill.look()
        samples += verdict.samples
        wrong = not_well(verdict)
        if enough(wrong):
            break
    return Found(time.monotonic() - begun, wrong, samples)


def not_well(verdict: Verdict) -> set[str]:
    """Name the checks that are not OK, with their states."""
    return {f"{one.rule} {one.state}" for one in verdict.findings if one.state is not State.OK}


def false_alarms(drill: Drill, seconds: float) -> tuple[int, str]:
    """Check a healthy server under load; returns how often it was not OK, and that in words with what was said."""
    until, checks, alarms = time.monotonic() + seconds, 0, []
    while time.monotonic() < until:
        checks += 1
        verdict = drill.look()
        alarms += [f"{one.title}: {one.message}" for one in verdict.findings if one.state is not State.OK]
        time.sleep(1.0)
    told = f"{len(alarms)} false alarms in {checks} checks of {seconds / 60:g} minutes of healthy mixed load."
    return len(alarms), "\n".join([told, *alarms])


if __name__ == "__main__":
    sys.exit(main())
