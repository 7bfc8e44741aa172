"""Servers that fail in the middle: each failure is counted by its kind, and nothing hangs or skews the rest."""

from __future__ import annotations

import threading
import time

import pytest

from tests.bench.support import driven_at, small_load
from tests.health.support import drips, stub_server
from tests.support.ports import free_ports
from tests.support.token_server import token_server
from trtllm_kit.bench import discover
from trtllm_kit.bench.client import address_of
from trtllm_kit.bench.drive import Limits, records_of
from trtllm_kit.bench.figures import figures_of
from trtllm_kit.bench.prompts import Prompts
from trtllm_kit.bench.record import Failure
from trtllm_kit.errors import RequestFailed

KINDS = {
    "busy": Failure.STATUS,
    "disconnect": Failure.BROKEN,
    "stall": Failure.STALLED,
    "malformed": Failure.MALFORMED,
    "garbage": Failure.MALFORMED,
    "error": Failure.ERROR,
}


@pytest.mark.parametrize("fault", KINDS)
def test_a_fault_in_every_third_request_is_counted(fault: str) -> None:
    """Two of six requests fail, by their kind; the other four have all their tokens and their latencies alone."""
    with token_server(first=0.01, gap=0.001, fault=fault, every=3) as (url, _):
        load = small_load(users=1, requests=6)
        driven = driven_at(url, load, silence=0.6 if fault == "stall" else 10)
    records = records_of(driven, load, Prompts(load))
    figures = figures_of(records)
    assert ({str(KINDS[fault]): 2}, 4) == (figures.failures, figures.answered)
    assert {6} == {len(record.stamps) for record in records if record.failure is None}
    assert 4 == figures.histograms["ttft"].count


def test_a_server_that_is_away_is_counted_and_not_asked_without_pause() -> None:
    """Nobody listens: every request is refused, and a user waits between two of them."""
    (port,) = free_ports(1)
    load = small_load(users=1, requests=3)
    driven = driven_at(f"http://127.0.0.1:{port}", load)
    assert [Failure.REFUSED] * 3 == [sent.heard.failure for sent in driven.sent]
    assert driven.seconds >= 0.4


def test_a_server_that_restarts_is_found_again() -> None:
    """Requests fail while it is away, and are answered when it is back, on the same port."""
    (port,) = free_ports(1)
    load = small_load(users=1, requests=200)  # a failure is waited after for 0.2 s: it may be away for 40 s
    began = threading.Event()

    def restart() -> None:
        began.wait(5)
        time.sleep(0.5)
        with token_server(first=0.0, gap=0.001, port=port) as _:
            ended.wait(60)

    ended = threading.Event()
    thread = threading.Thread(target=restart, daemon=True)
    thread.start()
    began.set()
    driven = driven_at(f"http://127.0.0.1:{port}", load)
    ended.set()
    thread.join(5)
    kinds = [sent.heard.failure for sent in driven.sent]
    assert (Failure.REFUSED, None) == (kinds[0], kinds[-1])


def test_an_idle_connection_that_was_closed_costs_no_failure() -> None:
    """A server that drops a connection at its second request is asked again on a new one."""
    with token_server(first=0.0, gap=0.001, fault="drop") as (url, asked):
        load = small_load(users=1, requests=4)
        driven = driven_at(url, load)
    assert ([None] * 4, 4) == ([sent.heard.failure for sent in driven.sent], len(asked))


def test_an_answer_without_end_is_given_up() -> None:
    """A stream that goes on for longer than an answer may take ends as unfinished."""
    with token_server(first=0.0, gap=0.05) as (url, _):
        load = small_load(users=1, requests=1, tokens=1000)
        driven = driven_at(url, load, limits=Limits(answer=0.3))
    assert Failure.UNFINISHED is driven.sent[0].heard.failure
    assert driven.sent[0].heard.stamps


def test_nothing_is_sent_after_the_time_of_a_run() -> None:
    """A run of a fifth of a second sends a few of a thousand requests, and lets them end."""
    with token_server(first=0.0, gap=0.005) as (url, _):
        driven = driven_at(url, small_load(users=2, requests=1000), limits=Limits(run=0.2))
    assert 2 <= len(driven.sent) < 500
    assert {None} == {sent.heard.failure for sent in driven.sent}


@pytest.mark.parametrize(
    "begin", [b"", b"HTTP/1.1 200 OK\r\nX-Slow: ", b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"]
)
def test_a_server_that_drips_does_not_say_what_it_speaks(begin: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then never comes to a time-out of its own, and yet a question ends."""
    monkeypatch.setattr(discover, "_TIMEOUT_SECONDS", 0.3)
    with stub_server(drips(begin)) as url:
        begun = time.monotonic()
        with pytest.raises(RequestFailed, match="does not say what it speaks"):
            discover.discover(address_of(url.removesuffix("/metrics")), None)
    assert time.monotonic() - begun < 8
