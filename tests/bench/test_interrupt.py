"""A run that is interrupted leaves what it had measured, and says so."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tests.bench.support import driven_at, record, small_load
from tests.support.cli import trtkit, trtkit_path
from tests.support.token_server import token_server
from trtllm_kit.bench.drive import Limits, records_of
from trtllm_kit.bench.figures import figures_of
from trtllm_kit.bench.prompts import Prompts
from trtllm_kit.bench.record import Failure


def when_asked(asked: list[dict], count: int, number: int, process: int) -> None:
    """Send a signal once a server has been asked so often."""
    end = time.monotonic() + 30
    while len(asked) < count and time.monotonic() < end:
        time.sleep(0.01)
    os.kill(process, number)


def test_an_interrupt_ends_a_run_with_what_was_heard() -> None:
    """The third and the sixth request stand still: four are whole, these two are cut, and in no figure."""
    load = small_load(users=2, requests=1000)
    with token_server(first=0.01, gap=0.002, fault="stall", every=3) as (url, asked):
        threading.Thread(target=when_asked, args=(asked, 6, signal.SIGINT, os.getpid()), daemon=True).start()
        driven = driven_at(url, load, silence=60, limits=Limits())
    records = records_of(driven, load, Prompts(load))
    cut = [one for one in records if one.failure is Failure.CUT]
    figures = figures_of(records)
    assert isinstance(driven.stopped, KeyboardInterrupt)
    assert 2 == len(cut)
    assert ({}, 4, 4) == (figures.failures, figures.asked, figures.answered)


def test_what_was_cut_breaks_no_promise() -> None:
    """One answer and one cut request are one request that was asked, and all of them were answered."""
    figures = figures_of([record(), record(1, failure=Failure.CUT)])
    assert (1, 1, {}) == (figures.asked, figures.answered, figures.failures)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_verb_writes_a_partial_result(number: signal.Signals, tmp_path: Path) -> None:
    """The files are there and marked, the verdict is unknown, the exit code is the signal's, and no gate takes it."""
    out, page = tmp_path / "run.json", tmp_path / "run.html"
    words = ("--api", "triton", "-n", "1000", "--osl", "3", "--slo", "ttft=10s", "--out", out, "--html", page, "--json")
    with token_server(first=0.005, gap=0.005) as (url, asked):
        command = [trtkit_path(), "bench", url, *map(str, words)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        when_asked(asked, 8, number, process.pid)
        said, complaint = process.communicate(timeout=30)
    shown, kept = json.loads(said), json.loads(out.read_text())
    assert (128 + number, True, "unknown") == (process.returncode, kept["interrupted"], shown["verdict"])
    assert kept["figures"]["answered"] >= 5
    assert "interrupted" == complaint.splitlines()[-1].split(";")[0]
    assert "again to go on" not in complaint
    assert "interrupted" in page.read_text()
    gated = trtkit("bench", "compare", out, out, "--gate", "ttft.p99=5%")
    assert (3, True) == (gated.code, "it was interrupted" in gated.err)
