"""Faults of a real server, switched on under load: by which check each is found, how soon, and how soon it clears.

Prints one line a fault, and the false alarms of MINUTES (argument, 10) of healthy load. Needs the rehearsal extra.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.health.test_drills import Drill  # noqa: E402  # the checkout is no package
from tests.health.test_real_server import rehearsal_plan, write_repository  # noqa: E402
from tests.support.ports import free_ports  # noqa: E402
from trtllm_kit.health.verdict import State  # noqa: E402
from trtllm_kit.progress import Silent  # noqa: E402
from trtllm_kit.serve.process import start  # noqa: E402

FAULTS: tuple[tuple[str, object], ...] = (
    ("stall", True),
    ("kv_exhaustion", 0.97),
    ("lost_metrics", True),
    ("dead_rank", True),
)


def main() -> int:
    """Run every drill; exits with 1 where one was not found or an alarm was false."""
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    with tempfile.TemporaryDirectory(prefix="trtkit-drills-") as name:
        folder = Path(name)
        switches, plan = folder / "faults.json", rehearsal_plan(free_ports(3))
        switches.write_text("{}")
        repository = write_repository(folder / "repository", plan)
        with start(repository, plan.serve, {"TRTKIT_FAULTS": str(switches)}, Silent()) as server:
            drill = Drill(server, repository, switches)
            for _ in range(3):
                threading.Thread(target=drill.ask, daemon=True).start()
            seconds_until(drill, well=True)
            missed = sum(not drilled(drill, fault, value) for fault, value in FAULTS)
            alarms = false_alarms(drill, minutes * 60)
            drill.over.set()
    return 1 if missed or alarms else 0


def drilled(drill: Drill, fault: str, value: object) -> bool:
    """Switch a fault on and off; print by what it was found and the seconds of both."""
    drill.switch(**{fault: value})
    seconds, by = seconds_until(drill, well=False)
    drill.switch()
    cleared, _ = seconds_until(drill, well=True)
    print(f"{fault:14} found after {seconds:5.1f} s by {by or 'nothing':40} clear after {cleared:5.1f} s")
    return bool(by)


def seconds_until(drill: Drill, *, well: bool) -> tuple[float, str]:
    """Check until all is well, or until something is not, for half a minute at most; returns what was not."""
    begun, wrong = time.monotonic(), ""
    while time.monotonic() - begun < 30:
        verdict = drill.look()
        bad = [f"{one.rule} {one.state}" for one in verdict.findings if one.state is not State.OK]
        wrong = ", ".join(dict.fromkeys(bad))
        if bool(wrong) is not well:
            break
    return time.monotonic() - begun, wrong


def false_alarms(drill: Drill, seconds: float) -> int:
    """Check a healthy server under load, and print how often it was not OK."""
    until, checks, alarms = time.monotonic() + seconds, 0, 0
    while time.monotonic() < until:
        checks += 1
        alarms += drill.look().state is not State.OK
        time.sleep(1.0)
    print(f"healthy load   {alarms} false alarms in {checks} checks of {seconds / 60:g} minutes")
    return alarms


if __name__ == "__main__":
    sys.exit(main())
