"""Faults that a rehearsal switches on, and what an engine with them looks like from outside."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from triton_python_backend_utils import Logger

from ask import Refused
from faults import KINDS, BadFaults, Faults, faults_of
from runtime import Performance, Statistics
from trtllm_kit.resources import triton_models

from .test_pacer import Box, Counting, Run, ask, run, until

__all__ = ["run"]  # the fixture


@pytest.fixture
def switch(tmp_path: Path) -> Path:
    """The file of the faults, with none on."""
    path = tmp_path / "faults.json"
    path.write_text("{}")
    return path


def turn(path: Path, **faults: Any) -> None:
    """Switch faults, as an operator's drill does."""
    path.with_suffix(".new").write_text(json.dumps(faults))
    path.with_suffix(".new").replace(path)


def test_no_variable_is_no_fault() -> None:
    """Nothing is read without it."""
    faults = faults_of({})

    assert [None] * len(KINDS) == [faults.get(name) for name in KINDS]
    assert not faults.stalled()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "no JSON"),
        ("[]", "must hold an object"),
        ('{"stal": true}', "there are stall, dead_rank"),
        ('{"stall": "yes"}', "stall takes a bool"),
        ('{"kv_exhaustion": true}', "kv_exhaustion takes a float"),
        ('{"kv_exhaustion": NaN}', "kv_exhaustion takes 0 to 1, got nan"),
        ('{"kv_exhaustion": 1.5}', "kv_exhaustion takes 0 to 1, got 1.5"),
        ('{"slow_start": -1}', "slow_start takes 0 to 86400, got -1"),
        ('{"exit_after_tokens": -3}', "exit_after_tokens takes 0 to inf, got -3"),
    ],
)
def test_what_is_no_fault_is_told(tmp_path: Path, text: str, said: str) -> None:
    """At the start, where somebody looks."""
    (tmp_path / "faults.json").write_text(text)

    with pytest.raises(BadFaults, match=said):
        faults_of({"TRTKIT_FAULTS": str(tmp_path / "faults.json")})


def test_a_broken_file_later_changes_nothing(switch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The faults that were on stay on until the file can be read again, and the log says so once."""
    told: list[str] = []
    monkeypatch.setattr(Logger, "log_warn", told.append)
    turn(switch, stall=True)
    faults = Faults(switch)
    turn(switch, stall=True, kv_exhaustion=7)
    for _ in range(2):
        time.sleep(0.15)
        assert faults.stalled()

    assert ["kv_exhaustion takes 0 to 1, got 7; the faults stay as they were"] == [
        one.rpartition(": ")[2] for one in told
    ]
    turn(switch)
    time.sleep(0.15)
    assert not faults.stalled()


def test_a_stalled_engine_takes_no_step_until_it_may(run: Run, switch: Path) -> None:
    """Requests are active, the counter stands still; afterwards the answer is whole."""
    pacer, box = run(0.01, faults=Faults(switch)), Box()
    pacer.submit(Counting(1), ask(20), box)
    until(lambda: pacer.statistics().iteration >= 2)
    turn(switch, stall=True)
    time.sleep(0.3)
    before = pacer.statistics()
    time.sleep(0.1)

    assert (1, before.iteration) == (pacer.statistics().active, pacer.statistics().iteration)
    turn(switch)
    assert 20 == box.wait().output_tokens


def test_a_dead_rank_refuses_and_tells_nothing(run: Run, switch: Path) -> None:
    """Requests that run hang, new ones are refused, and nothing is known of the engine."""
    pacer, box = run(0.01, faults=Faults(switch)), Box()
    pacer.submit(Counting(1), ask(20), box)
    turn(switch, dead_rank=True)
    until(lambda: pacer.pacer.statistics() is None)

    with pytest.raises(Refused, match="rank 1 does not answer"):
        pacer.submit(Counting(1), ask(2), Box())
    assert not box.over.is_set()


def test_an_exhausted_cache_lets_requests_wait(run: Run, switch: Path) -> None:
    """Blocks are used though nobody has them; given back, the request that waited runs, and none is lost."""
    turn(switch, kv_exhaustion=0.9)
    pacer, boxes = run(0.01, faults=Faults(switch)), (Box(), Box())
    pacer.submit(Counting(1), ask(2), boxes[0])
    boxes[0].wait()
    pacer.submit(Counting(4), ask(4), boxes[1])
    time.sleep(0.1)

    assert (0, 1, 9) == (pacer.statistics().active, pacer.statistics().queued, pacer.statistics().kv_used_blocks)
    turn(switch)
    boxes[1].wait()
    until(lambda: pacer.statistics().kv_used_blocks == 0)


def test_acceptance_that_is_no_number(switch: Path) -> None:
    """Exactly no draft is accepted though some are made, and an answer's own rate is no number."""
    turn(switch, nan_acceptance=True)
    faults, cost = Faults(switch), Performance(draft_tokens=10, accepted_draft_tokens=7, acceptance_rate=0.7)
    faults.spoil(cost)

    assert Statistics(drafted_tokens=10) == faults.seen(Statistics(drafted_tokens=10, accepted_tokens=7))
    assert (10, 0) == (cost.draft_tokens, cost.accepted_draft_tokens)
    assert math.isnan(cost.acceptance_rate)


def test_lost_metrics(run: Run, switch: Path) -> None:
    """Answers go on, and nothing is known of the engine."""
    turn(switch, lost_metrics=True)
    pacer, box = run(faults=Faults(switch)), Box()
    pacer.submit(Counting(1), ask(3), box)

    assert 3 == box.wait().output_tokens
    assert pacer.pacer.statistics() is None


def test_a_slow_start_waits(switch: Path) -> None:
    """As many seconds as it says."""
    turn(switch, slow_start=2.5)
    waited: list[float] = []
    Faults(switch).start_slowly(waited.append)

    assert [2.5] == waited


def test_the_process_ends_in_the_middle_of_a_stream(switch: Path) -> None:
    """After the given number of tokens over all streams, with exit code 1 and no word."""
    turn(switch, exit_after_tokens=5)
    program = "from pathlib import Path\nimport sys\nfrom faults import Faults\nfaults = Faults(Path(sys.argv[1]))\n"
    program += "for number in range(9):\n    faults.wrote(2)\n    print(number, flush=True)\n"
    found = subprocess.run(
        [sys.executable, "-c", program, str(switch)],
        env={**os.environ, "PYTHONPATH": str(triton_models() / "llmapi")},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (1, "0\n1\n", "") == (found.returncode, found.stdout, found.stderr)
