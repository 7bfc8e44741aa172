"""Many targets in one loop: those beside each other, those that need a thread, and what each of them remembers."""

from __future__ import annotations

import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tests.health.support import SEEDS, answers, engine_page, free_port, stub_server
from tests.support.cli import trtkit_path
from trtllm_kit.cli.check_options import read_words
from trtllm_kit.health.check import Pace
from trtllm_kit.health.compiled import keep_question, question_path, recall_question
from trtllm_kit.health.fleet import MANY, check_all, in_threads
from trtllm_kit.health.rules import Ruleset
from trtllm_kit.health.snapshot import Target
from trtllm_kit.health.verdict import State

RULES = Ruleset(tuple(rule for rule in SEEDS if rule.needs is None))
FAST = Pace(None, 0.05, 5.0)


def beats(connection: socket.socket) -> None:
    """Serve a page whose heartbeat beats and whose engine moves."""
    now = time.time()
    answers(engine_page(heartbeat=now, iteration=int(now * 1000)))(connection)


def test_a_fleet_remembers_each_target(tmp_path: Path) -> None:
    """Of more targets than one process takes, each is read twice by the first check and once by the next."""
    with stub_server(beats) as url:
        questions = [(Target(url, name=f"t{number}"), RULES) for number in range(MANY + 3)]
        first, second = (check_all(questions, FAST, str(tmp_path)) for _ in range(2))
    for checked, samples in ((first, 2), (second, 1)):
        assert [(target.name, State.OK, samples) for target, _ in questions] == [
            (verdict.name, verdict.state, verdict.samples) for verdict, _ in checked
        ]
    assert len(questions) == len(list(tmp_path.iterdir()))


def test_targets_of_every_kind_are_checked_in_one_call(tmp_path: Path) -> None:
    """A number, a name, one with a page beside it, one with a canary, and a dead one, in their order."""
    dead = f"http://127.0.0.1:{free_port()}/metrics"
    with stub_server(beats) as url, stub_server(answers('{"text_output": "a"}')) as canary:
        targets = [
            Target(url),
            Target(url.replace("127.0.0.1", "localhost"), name="named"),
            Target(url, name="more", beside=(url,)),
            Target(url, name="canary", canary=canary),
            Target(dead, name="dead"),
        ]
        checked = check_all([(target, RULES) for target in targets], FAST, str(tmp_path))
    expected = [("", State.OK), ("named", State.OK), ("more", State.OK), ("canary", State.OK), ("dead", State.CRITICAL)]
    assert expected == [(verdict.name, verdict.state) for verdict, _ in checked]


def test_a_server_that_is_held_keeps_nobody_waiting_and_is_critical(tmp_path: Path) -> None:
    """Beside one that takes the question and is silent, the others are judged before its time is over."""
    over = threading.Event()
    with stub_server(lambda _: over.wait(20) and None) as held, stub_server(beats) as url:
        questions = [(Target(held), RULES), (Target(url), RULES)]
        (first, _), (second, _) = check_all(questions, Pace(1, 0.0, 1.0), str(tmp_path))
        over.set()
    assert (State.CRITICAL, State.OK) == (first.state, _scrape(second.findings))
    assert "no complete answer within 1 s" in first.findings[0].message


def test_a_signal_waits_for_no_silent_server(tmp_path: Path) -> None:
    """A check that is ended while servers in threads and in the loop are silent ends at once, and says UNKNOWN."""
    over, asked = threading.Event(), threading.Semaphore(0)

    def held(_: socket.socket) -> None:
        asked.release()
        over.wait(60)

    with stub_server(held) as url:
        words = [word for one in (url, url.replace("127.0.0.1", "localhost")) for word in ("--url", one)]
        command = [trtkit_path(), "check-health", "--timeout", "50", "--state", str(tmp_path), *words]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert asked.acquire(timeout=30)
            assert asked.acquire(timeout=30)
            process.send_signal(signal.SIGTERM)
            try:
                out, _ = process.communicate(timeout=20)
            finally:
                process.kill()
                over.set()
    assert (3, True) == (process.returncode, out.startswith("TRTKIT UNKNOWN: the check was ended by "))


def test_where_there_is_no_room_for_threads_all_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that allows no more threads costs time and no target; an error in one of them is raised."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    done: list[int] = []
    in_threads(done.append, range(5))
    assert list(range(5)) == done
    with pytest.raises(IndexError):
        in_threads(lambda _: done.pop(9), range(2))


def _scrape(findings: object) -> State:
    return next(one.state for one in findings if one.rule == "scrape")  # type: ignore[attr-defined]


def test_a_heartbeat_that_stands_still_is_watched_in_the_loop(tmp_path: Path) -> None:
    """What seems frozen is read until it is sure, while another target of the call is read once."""
    with stub_server(answers(engine_page(heartbeat=1_795_993_500))) as still, stub_server(beats) as url:
        questions = [(Target(still), RULES), (Target(url), RULES)]
        check_all(questions, Pace(1, 0.0, 2.0), str(tmp_path))
        (frozen, _), (well, _) = check_all(questions, FAST, str(tmp_path))
    assert (State.CRITICAL, State.OK, 1) == (frozen.state, well.state, well.samples)
    assert frozen.samples > 1


def test_rules_that_targets_share_are_kept_once(tmp_path: Path) -> None:
    """A question of a hundred targets holds their rules once, and comes back as it was."""
    asked = read_words(["--url", "http://h:1/metrics"])
    assert asked is not None
    other = Ruleset(RULES.rules[:1])
    questions = [(Target(f"http://h:{number}/", name=str(number)), RULES) for number in range(1, 100)]
    questions.append((Target("http://h:100/"), other))
    keep_question(asked, str(tmp_path), questions, [])
    assert questions == recall_question(asked, str(tmp_path))
    text = Path(question_path(asked, str(tmp_path))).read_text()
    assert 2 == text.count(RULES.rules[0].advice[:30])
