"""Who is told of a verdict and was not reached: the verdict stands, the reason is said, and it is tried again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.health.support import answers, engine_page, free_port, stub_server
from tests.support.cli import trtkit
from trtllm_kit.health.sources.hook import tell

PROFILE = "cpu-rehearsal-simulated"
SECRET = "s3cr3t"


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (f"sh -c 'exit 7' {SECRET}", "it ended with 7"),
        (f"/nonexistent/hook {SECRET}", "No such file or directory"),
        (f"hook '{SECRET}", "it cannot be split into words: no closing quotation"),
        (f"sh -c 'exec sleep 60' {SECRET}", "it did not end within 0.3 s and was killed"),
        (" ", "it is empty"),
    ],
)
def test_a_hook_that_fails_is_named_with_its_reason(command: str, why: str) -> None:
    """Each way in which a command fails is told, and no word after the program's name is shown."""
    (failure,) = tell(command, None, {}, 0.3 if "sleep" in command else 20.0)
    assert why == failure.why
    assert SECRET not in "".join(failure)


def test_a_hook_that_works_is_no_failure() -> None:
    """A command that ends with 0, and an address that answers 204, are told."""
    with stub_server(answers("", status="204 No Content")) as url:
        assert [] == tell("cat", url, {"state": "OK"}, 5.0)


def test_an_address_that_fails_is_named_by_its_host() -> None:
    """The path of a webhook is its secret: only the host is shown, with the reason."""
    with stub_server(answers("", status="410 Gone")) as url:
        (failure,) = tell(None, f"{url}/{SECRET}", {}, 5.0)
    assert ("HTTP status 410 Gone", False) == (failure.why, SECRET in "".join(failure))


def test_who_was_not_told_is_told_at_the_next_check(tmp_path: Path) -> None:
    """A hook that failed changes no exit code, is named on stderr, and runs again until it ends well, and then not."""
    script, out = tmp_path / "hook", tmp_path / "out"
    script.write_text(f'#!/bin/sh\ncat > /dev/null; echo x >> "{out}"; [ $(wc -l < "{out}") -ge 3 ]\n')
    script.chmod(0o755)
    dead = f"http://127.0.0.1:{free_port()}/metrics"
    runs = [trtkit("check-health", "-p", PROFILE, "--url", dead, "--exec", str(script)) for _ in range(4)]
    assert [2] * 4 == [run.code for run in runs]
    assert [True, True, False, False] == ["because: it ended with 1" in run.err for run in runs]
    assert 3 == len(out.read_text().splitlines())


def test_a_textfile_that_cannot_be_written_changes_no_verdict(tmp_path: Path) -> None:
    """A dead server stays CRITICAL where node_exporter's folder is not there; the path that was given is named."""
    dead, file = f"http://127.0.0.1:{free_port()}/metrics", tmp_path / "none" / "trtkit.prom"
    runs = [trtkit("check-health", "-p", PROFILE, "--url", dead, "--prom", str(file)) for _ in range(2)]
    assert [2, 2] == [run.code for run in runs]
    assert [f"textfile collector: {file}"] * 2 == [run.err.splitlines()[0].partition("for the ")[2] for run in runs]


def test_an_explanation_ends_no_line_of_the_terminal() -> None:
    """A label with control characters is written as an escape by --explain, as everywhere."""
    with stub_server(answers(engine_page("a\x1b[31m", fraction=0.99))) as url:
        ran = trtkit("check-health", "-p", PROFILE, "--url", url, "--explain", "--once", "--interval", "0.1")
    assert (1, False) == (ran.code, "\x1b" in ran.out)
    assert "kv-cache-usage (a\\x1b[31m/1): WARNING" in ran.out
