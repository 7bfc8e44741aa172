"""Sources beside the page: other pages, iteration records, logs, the canary, ranks, and what became of a failure."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.health.support import NOW, answers, drips, engine_page, free_port, page, sends, stub_server
from trtllm_kit.health.check import Pace, looked_at
from trtllm_kit.health.memory import NOTHING
from trtllm_kit.health.metrics import METRICS
from trtllm_kit.health.rules import Ruleset
from trtllm_kit.health.snapshot import Outcome, Reading, Snapshot, Target
from trtllm_kit.health.sources.canary import generate
from trtllm_kit.health.sources.gather import found_beside, gather
from trtllm_kit.health.sources.iteration_stats import kept_records, read_records
from trtllm_kit.health.sources.logs import FLOOD, read_logs
from trtllm_kit.health.sources.prometheus_text import scrape
from trtllm_kit.health.verdict import State, Verdict

ONCE = Pace(1, 0.0, 2.0)


def states(verdict: Verdict) -> dict[str, State]:
    """Return the state of each check."""
    return {finding.rule: finding.state for finding in verdict.findings}


def test_pages_beside_are_one_snapshot() -> None:
    """The server's page and the exporter's are read together; of a family on both, the server's stands."""
    beside = page("dcgm-exporter-4.2") + 'nv_trt_llm_request_metrics{request_type="active",model="x",version="1"} 9\n'
    with stub_server(answers(engine_page(active=2))) as url, stub_server(answers(beside)) as other:
        snapshot = gather(Target(url, beside=(other,)), 2.0)
    assert {"tensorrt_llm/1"} == METRICS["active_requests"].read(snapshot).keys()
    assert isinstance(METRICS["gpu_temperature"].read(snapshot)[""], Reading)
    assert () == snapshot.beside_failed


def test_a_page_beside_that_fails_is_unknown_and_takes_nothing_away() -> None:
    """An exporter that is down is a finding of its own, and what the server shows is judged."""
    with stub_server(answers(engine_page())) as url:
        beside = f"http://127.0.0.1:{free_port()}/metrics"
        verdict, _ = looked_at(Target(url, beside=(beside,)), Ruleset(()), ONCE, NOTHING)
    assert (State.UNKNOWN, State.OK) == (states(verdict)["source"], states(verdict)["scrape"])


def test_pages_beside_are_read_at_the_same_time() -> None:
    """Each of two pages answers only while the other is asked as well, and both are read."""
    both = threading.Barrier(2, timeout=10.0)

    def serve(connection: socket.socket) -> None:
        both.wait()
        answers("a 1\n")(connection)

    with stub_server(answers(engine_page())) as url, stub_server(serve) as slow:
        snapshot = gather(Target(url, beside=(slow, slow)), 10.0)
    assert (True, ()) == (snapshot.ok, snapshot.beside_failed)


def record(**changes: object) -> dict[str, object]:
    """Make an iteration record of trtllm-serve."""
    numbers: dict[str, object] = {
        "iter": 812, "iterLatencyMS": 21.4, "numActiveRequests": 3, "numQueuedRequests": 14, "maxNumActiveRequests": 64,
        "kvCacheStats": {"maxNumBlocks": 4000, "freeNumBlocks": 1000, "usedNumBlocks": 3000, "reusedBlocks": 5},
        "inflightBatchingStats": {"numScheduledRequests": 3, "numPausedRequests": 0},
    }  # fmt: skip
    return numbers | changes


@pytest.mark.parametrize(
    ("name", "expected"),
    [("queue_depth", 14.0), ("active_requests", 3.0), ("kv_cache_usage", 0.75), ("scheduled_requests", 3.0)],
)
def test_the_newest_iteration_record_counts(name: str, expected: float) -> None:
    """Of the records that trtllm-serve hands out the last one tells what is now."""
    body = json.dumps([record(numQueuedRequests=1), record()])
    with stub_server(answers(body)) as url:
        reading = METRICS[name].read(scrape(url, 2.0))[""]
    assert isinstance(reading, Reading)
    assert expected == reading.value


def test_records_that_were_drained_stand_for_an_idle_engine() -> None:
    """An idle engine makes no records: the last ones are still true; those of a busy one carry their time."""
    idle, busy = (read_records(json.dumps([record(numActiveRequests=count)]).encode())[0] for count in (0, 3))
    before = Snapshot(Outcome.OK, "", NOW, 0.0, 0.0, series=idle)
    assert (idle, {}) == kept_records(before)
    kept, stamps = kept_records(replace(before, series=busy))
    assert busy == kept
    assert {NOW} == {stamp for values in stamps.values() for stamp in values.values()}


def test_a_drained_page_is_read_once_and_kept() -> None:
    """The second reading of a page that was drained is judged by the first one's records."""
    with stub_server(answers(json.dumps([record(numActiveRequests=0)]), "[]")) as url:
        first = scrape(url, 2.0)
        second = scrape(url, 2.0, before=first)
    assert second.ok
    assert METRICS["kv_cache_usage"].read(first) == METRICS["kv_cache_usage"].read(second)


@pytest.mark.parametrize("body", ["[]", "[1, 2]", "[{]", "[{}]", '[{"iter": "x"}]', "[" * 5000])
def test_a_list_that_tells_nothing_is_unknown(body: str) -> None:
    """An empty list, as of a server without enable_iter_perf_stats, and garbage are no snapshot."""
    with stub_server(answers(body)) as url:
        assert Outcome.GARBAGE is scrape(url, 2.0).outcome


def test_a_phrase_in_the_log_is_told_once(tmp_path: Path) -> None:
    """A known phrase is found in what is new, and not again by the next check."""
    log = tmp_path / "server.log"
    log.write_text("start\nnum_fitting_reqs=0\n")
    places, first = read_logs([str(log)], {})
    places, second = read_logs([str(log)], places)
    with log.open("a") as file:
        file.write("hard-killing all ranks\n")
    _, third = read_logs([str(log)], places)
    assert [State.WARNING, State.OK, State.CRITICAL] == [findings[0].state for findings in (first, second, third)]
    assert 'the log says once "num_fitting_reqs=0"' == first[0].message


@pytest.mark.parametrize("cut", range(1, len("No free slots")))
def test_a_phrase_that_two_readings_cut_is_found_once(tmp_path: Path, cut: int) -> None:
    """Wherever a phrase is cut by the end of what was written so far, the next check finds it, and only that one."""
    log, phrase = tmp_path / "server.log", "No free slots"
    log.write_text("start\n" + phrase[:cut])
    places, first = read_logs([str(log)], {})
    with log.open("a") as file:
        file.write(phrase[cut:] + "\n")
    places, second = read_logs([str(log)], places)
    _, third = read_logs([str(log)], places)
    assert [State.OK, State.WARNING, State.OK] == [findings[0].state for findings in (first, second, third)]


def test_a_log_that_was_put_aside_is_read_from_its_beginning(tmp_path: Path) -> None:
    """After a rotation the new file is new from its first line, also where it is longer than the old one was."""
    log = tmp_path / "server.log"
    log.write_text("short\n")
    places, _ = read_logs([str(log)], {})
    log.rename(tmp_path / "server.log.1")
    log.write_text("No free slots and more\n")
    assert [State.WARNING] == [finding.state for finding in read_logs([str(log)], places)[1]]
    log.write_text("No free slots\n")
    assert [State.WARNING] == [
        finding.state for finding in read_logs([str(log)], {str(log): (log.stat().st_ino, 900)})[1]
    ]


def test_some_phrases_need_a_flood(tmp_path: Path) -> None:
    """One request that was cancelled after its end is nothing; twenty are."""
    log = tmp_path / "server.log"
    line = "request 4 not active (might be completed already)\n"
    for count, state in ((FLOOD - 1, State.OK), (FLOOD, State.WARNING)):
        log.write_text(line * count)
        assert [state] == [finding.state for finding in read_logs([str(log)], {})[1]]


def test_a_log_that_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    """A log that is not there tells nothing, which is not OK; nor does a pipe, which nobody waits for."""
    os.mkfifo(tmp_path / "pipe")
    for name in ("none", "pipe"):
        assert [State.UNKNOWN] == [finding.state for finding in read_logs([str(tmp_path / name)], {})[1]]


def test_a_huge_log_is_read_at_its_end(tmp_path: Path) -> None:
    """Of a log of 64 MiB no more than the newest part is read."""
    log = tmp_path / "server.log"
    with log.open("wb") as file:
        file.write(b"hard-killing all\n")
        file.truncate(64 << 20)
        file.seek(0, os.SEEK_END)
        file.write(b"No free slots\n")
    assert ["No free slots"] == [finding.subject for finding in read_logs([str(log)], {})[1]]


def test_the_canary_shows_no_password() -> None:
    """The user and password in a canary's URL stand in no finding."""
    finding = generate("http://user:s3cr3t@h/generate", 1.0)
    assert (State.UNKNOWN, False) == (finding.state, "s3cr3t" in f"{finding.source}{finding.message}{finding.advice}")


def test_a_number_beyond_all_floats_is_not_believed() -> None:
    """An integer of 400 digits in an iteration record is infinite, not a crash."""
    families, problem = read_records(b'[{"iter": %s}]' % (b"9" * 400))
    assert ({"trtkit_iterations_total": {(): float("inf")}}, "") == (families, problem)


def test_one_token_is_a_living_server() -> None:
    """A text within the time is OK."""
    with stub_server(answers('{"model_name":"m","text_output":"b"}')) as url:
        assert State.OK is generate(url, 2.0).state


@pytest.mark.parametrize(
    ("serve", "state"),
    [
        (answers('{"error":"engine is dead"}'), State.CRITICAL),
        (answers("{}", status="500 Internal Server Error"), State.CRITICAL),
        (answers("{}", status="503 Service Unavailable"), State.CRITICAL),
        (answers("{}", status="404 Not Found"), State.UNKNOWN),
        (answers("{}", status="400 Bad Request"), State.UNKNOWN),
        (answers("{}", status="501 Not Implemented"), State.UNKNOWN),
        (drips(b"HTTP/1.1 200 OK\r\n\r\n"), State.CRITICAL),
        (sends(b""), State.CRITICAL),
    ],
)
def test_a_server_that_generates_nothing_is_critical(serve: object, state: State) -> None:
    """No token is CRITICAL, whatever the probes say; a question that was wrong is UNKNOWN."""
    with stub_server(serve) as url:  # type: ignore[arg-type]
        assert state is generate(url, 0.5).state


def test_a_generation_that_went_well_stands_for_a_while() -> None:
    """Within its interval nothing is asked again; after it, of another URL, or after a failure, it is."""
    seen: list[bytes] = []
    with stub_server(answers('{"text_output": "a"}'), seen) as url:
        target = Target("http://127.0.0.1:1/m", canary=url)
        known, (first,) = found_beside(target, NOTHING)
        _, (second,) = found_beside(target, known)
        assert (1, State.OK, State.OK) == (len(seen), first.state, second.state)
        assert "asked for every 60 s" in second.message
        old = replace(known, canary=(known.canary[0], known.canary[1] - 61))
        for again, memory in ((target, old), (replace(target, canary=f"{url}2"), known)):
            before = len(seen)
            found_beside(again, memory)
            assert before + 1 == len(seen)
    failed, (finding,) = found_beside(target, old)
    assert (State.CRITICAL, ("", 0.0)) == (finding.state, failed.canary)


def test_the_canary_has_a_time_of_its_own() -> None:
    """A first token that takes longer than a page may is no fault, and one beyond its own time is."""

    def serve(connection: socket.socket) -> None:
        time.sleep(0.4)
        answers('{"text_output": "a"}')(connection)

    with stub_server(answers(engine_page())) as url, stub_server(serve) as slow:
        for seconds, state in ((10.0, State.OK), (0.2, State.CRITICAL)):
            target = Target(url, canary=slow, canary_timeout_seconds=seconds)
            verdict, _ = looked_at(target, Ruleset(()), Pace(1, 0.0, 0.3), NOTHING)
            assert (state, State.OK) == (states(verdict)["canary"], states(verdict)["scrape"])


def test_a_rank_that_is_gone_is_critical() -> None:
    """One process of several that is gone is told with its number."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    target = Target("http://127.0.0.1:1/metrics", ranks=(os.getpid(), child.pid))
    assert [] == found_beside(target, NOTHING)[1]
    child.communicate(b"\n", timeout=20)
    (finding,) = found_beside(target, NOTHING)[1]
    assert (State.CRITICAL, f"1 of 2 processes of ranks are gone: {child.pid}") == (finding.state, finding.message)


def test_what_runs_and_was_deployed_anew_is_a_warning() -> None:
    """A server that was not restarted after its repository changed is told."""
    (finding,) = found_beside(Target("http://127.0.0.1:1/metrics", expired="it runs an older one"), NOTHING)[1]
    assert ("expired-engine", State.WARNING) == (finding.rule, finding.state)
