"""Session: where results, logs and progress go, and in which form."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

import pytest

from trtllm_kit.cli import progress_lines as module
from trtllm_kit.cli.progress_lines import StderrProgress
from trtllm_kit.cli.session import Session, hoist_global_flags, show_findings, table
from trtllm_kit.errors import PortInUse, ProfileError
from trtllm_kit.findings import Finding, Severity


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["plan", "m", "--json"], ["--json", "plan", "m"]),
        (["plan", "-v", "m", "--debug"], ["-v", "--debug", "plan", "m"]),
        (["plan", "--", "--json"], ["plan", "--", "--json"]),
        ([], []),
    ],
)
def test_global_flags_may_follow_the_verb(given: list[str], expected: list[str]) -> None:
    """They move to the front, but nothing after a bare -- is touched."""
    assert expected == hoist_global_flags(given)


def test_json_and_text_are_made_from_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    """With --json the text is never made; without it the document is never printed."""
    Session(json=True, verbose=False, debug=False).result({"a": 1}, lambda: pytest.fail("text was made"))
    Session(json=False, verbose=False, debug=False).result({"a": 1}, lambda: "one")

    printed = capsys.readouterr().out
    assert printed == json.dumps({"a": 1}, indent=1) + "\none\n"


def test_a_failure_is_three_lines_on_stderr_and_nothing_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    """Results and errors never share a stream."""
    Session(json=False, verbose=False, debug=False).fail(PortInUse("port 1", why="taken", hint="port 2"))

    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 3


def test_a_failure_with_json_is_also_one_object_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    """A script that reads JSON gets JSON, whatever happened."""
    error = ProfileError("p.yaml", why="2 problems", hint="mend", problems=("p.yaml:1: a", "p.yaml:2: b"))
    Session(json=True, verbose=False, debug=False).fail(error)

    document = json.loads(capsys.readouterr().out)
    assert document["error"]["code"] == "KIT-PROFILE-001"
    assert document["error"]["problems"] == ["p.yaml:1: a", "p.yaml:2: b"]


def test_a_table_in_a_pipe_is_aligned_plain_text() -> None:
    """No boxes, no colour, no trailing blanks."""
    assert table(("key", "value"), [("long key", "1"), ("k", "2")]) == "key       value\nlong key  1\nk         2"


def test_findings_come_gravest_first() -> None:
    """An ERROR is read before a WARNING, whatever order the rules ran in."""
    found = [
        Finding(rule="W", severity=Severity.WARNING, message="w", compared="1 > 0", suggestion="x"),
        Finding(rule="E", severity=Severity.ERROR, message="e", compared="2 > 0", suggestion="y"),
    ]

    assert [line.split(":")[0] for line in show_findings(found).splitlines()[::3]] == ["ERROR E", "WARNING W"]


def test_progress_is_silent_for_two_seconds_then_speaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short work prints nothing; in a pipe long work prints one line each ten seconds."""
    now = [100.0]
    stream = io.StringIO()
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(sys, "stderr", stream)
    progress = StderrProgress()
    progress.start("convert", 100, "layers")
    now[0] += 1.9
    progress.advance(10)
    assert stream.getvalue() == ""

    now[0] += 10
    progress.advance(40)
    progress.advance(1)
    progress.finish()
    assert stream.getvalue() == "convert: 50 % of 100 layers in 12 s, 12 s left\n"


def test_a_document_is_made_for_json_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody waits for what is not shown."""
    asked: list[str] = []

    def document() -> dict[str, Any]:
        asked.append("document")
        return {"a": 1}

    for wanted in (False, True):
        Session(json=wanted, verbose=False, debug=False).result(document, lambda: "text")

    assert ["document"] == asked
    assert 'text\n{\n "a": 1\n}\n' == capsys.readouterr().out
