"""``trtkit bench`` as its users run it."""

from __future__ import annotations

import contextlib
import json
import os
import pty
from pathlib import Path

import pytest

from tests.support.cli import trtkit, trtkit_path
from tests.support.ports import free_ports
from tests.support.token_server import token_server

LOAD = ("--api", "triton", "--concurrency", "2", "-n", "8", "--osl", "5", "--isl", "20")


def test_a_run_is_shown_written_listed_and_compared(tmp_path: Path) -> None:
    """One run leaves JSON, CSV, a page and a line in the history; held against itself it passes its gate."""
    history, page, rows = tmp_path / "runs", tmp_path / "run.html", tmp_path / "run.csv"
    with token_server() as (url, _):
        ran = trtkit("bench", url, *LOAD, "--json", "--history", history, "--html", page, "--csv", rows, "--name", "x")
    assert (0, 6, "yes") == (ran.code, ran.json["figures"]["answered"], ran.json["verdict"])
    assert 9 == len(rows.read_text().splitlines())
    assert "<svg" in page.read_text()
    (kept,) = history.iterdir()
    listed = trtkit("bench", "list", history, "--json")
    assert [kept.name] == [run["file"] for run in listed.json["runs"]]
    assert 0 == trtkit("bench", "compare", kept, kept, "--gate", "ttft.p99=1%").code
    slower = json.loads(kept.read_text())
    slower["figures"]["latencies"]["ttft"]["p99"] *= 2
    (tmp_path / "slower.json").write_text(json.dumps(slower))
    worse = trtkit("bench", "compare", kept, tmp_path / "slower.json", "--gate", "ttft.p99=10%")
    assert (1, True) == (worse.code, "WORSE" in worse.out)
    assert 0 == trtkit("bench", "report", kept).code


def test_headers_are_sent_and_written_nowhere(tmp_path: Path) -> None:
    """A key goes to the server with each request, and is in no result."""
    with token_server() as (url, asked):
        ran = trtkit("bench", url, *LOAD, "--header", "Authorization: Bearer secret1", "--out", tmp_path / "run.json")
    assert 0 == ran.code
    assert all("Authorization: Bearer secret1" in one["head"] for one in asked)
    assert "secret1" not in (tmp_path / "run.json").read_text() + ran.out + ran.err


def test_a_promise_that_is_not_kept_is_a_no() -> None:
    """No first token comes within a microsecond: exit code 1."""
    with token_server() as (url, _):
        ran = trtkit("bench", url, *LOAD, "--slo", "ttft=1us")
    assert 1 == ran.code
    assert "0.0% of the requests kept the SLO" in ran.out


def test_a_server_that_is_away_cannot_be_measured() -> None:
    """Nobody listens: exit code 3 and three lines."""
    (port,) = free_ports(1)
    ran = trtkit("bench", f"http://127.0.0.1:{port}", *LOAD, "-n", "2")
    assert 3 == ran.code
    assert "2 refused" in ran.err
    assert "try:" in ran.err


@pytest.mark.parametrize(
    "words",
    [
        ("ftp://here",),
        ("http://127.0.0.1:1", "--rate", "2", "--concurrency", "2"),
        ("http://127.0.0.1:1", "--scenario", "nothing"),
        ("http://127.0.0.1:1", "--api", "kserve"),
        ("http://127.0.0.1:1", "--api", "triton", "--warmup", "9", "-n", "9"),
        ("http://me:key1@127.0.0.1:1", "--api", "triton"),
    ],
)
def test_what_cannot_be_asked_is_a_usage_error(words: tuple[str, ...]) -> None:
    """A load that contradicts itself, and names that are none, are refused before anything is sent."""
    assert 2 == trtkit("bench", *words).code


def test_a_run_of_warm_up_alone_says_what_to_do() -> None:
    """A duration that ends before the warm-up does counts nothing: exit code 3, and no word of the server."""
    with token_server(first=0.3) as (url, _):
        ran = trtkit("bench", url, "--api", "triton", "--osl", "2", "--duration", "100ms")
    assert 3 == ran.code
    assert "1 were sent, all of the warm-up" in ran.err


def test_a_history_that_cannot_be_kept_is_refused_before_the_run(tmp_path: Path) -> None:
    """A folder behind a file: nothing is sent."""
    (tmp_path / "file").touch()
    with token_server() as (url, asked):
        ran = trtkit("bench", url, *LOAD, "--history", tmp_path / "file" / "runs")
    assert (3, []) == (ran.code, asked)


def test_half_the_load_comes_after_the_saturation_is_found() -> None:
    """The saturation's steps are in the result, and the rate of the run is half of it."""
    with token_server(first=0.002, gap=0.001) as (url, _):
        ran = trtkit("bench", url, "--api", "triton", "--osl", "3", "-n", "10", "--load-fraction", "0.5", "--json")
    held = ran.json["saturation"]
    assert 0 == ran.code
    assert held["requests_per_second"] / 2 == pytest.approx(held["rate"])
    assert held["users"] in [step["users"] for step in ran.json["saturation_steps"]]


def _on_a_terminal(*words: object) -> tuple[int, str]:
    """Run trtkit with a terminal; return its exit code and all that it showed."""
    shown = b""
    process, terminal = pty.fork()
    if process == 0:
        os.environ["TERM"] = "xterm-256color"
        os.execv(trtkit_path(), ["trtkit", *map(str, words)])
    with contextlib.suppress(OSError):  # the terminal ends with the process
        while piece := os.read(terminal, 1 << 16):
            shown += piece
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), shown.decode("utf-8", "replace")


def test_a_terminal_shows_the_run_while_it_goes_on() -> None:
    """The whole screen while it runs, given back before the result; with --no-live, and in a pipe, plain lines."""
    load = ("--api", "triton", "--concurrency", "2", "-n", "12", "--osl", "20")
    with token_server(first=0.1, gap=0.02) as (url, _):
        code, shown = _on_a_terminal("bench", url, *load)
        _, plain = _on_a_terminal("bench", url, *load, "--no-live")
        piped = trtkit("bench", url, *load)
    _, screen, after = shown.partition("\x1b[?1049h")
    drawn, given_back, result = after.partition("\x1b[?1049l")
    assert (0, "\x1b[?1049h", "\x1b[?1049l") == (code, screen, given_back)
    assert "pieces/s" in drawn
    assert "answers/s" in result
    assert "\x1b[?1049h" not in plain
    assert "under way" in plain
    assert "under way" in piped.err


@pytest.mark.parametrize(
    "words",
    [("compare", "no.json", "no.json"), ("report", "no.json"), ("list", "no"), ("import", "no.json", "--history", "h")],
)
def test_a_file_that_is_not_there_is_a_wrong_word(words: tuple[str, ...], tmp_path: Path) -> None:
    """Every verb that reads runs says so in the same way: exit code 2."""
    ran = trtkit("bench", *words, cwd=tmp_path)
    assert (2, True) == (ran.code, "error[KIT-USAGE" in ran.err)


def test_a_folder_without_a_tokenizer_is_named(tmp_path: Path) -> None:
    """It is no fault of trtkit's: the error is that of a model's folder, before anything is sent."""
    with token_server() as (url, asked):
        ran = trtkit("bench", url, *LOAD, "--tokenizer", tmp_path)
    assert (True, []) == ("error[KIT-MODEL" in ran.err, asked)
    assert f"no tokenizer in {tmp_path}" in ran.err
