"""Errors: three lines, a code each, and the exit code of their branch."""

from __future__ import annotations

import re

import pytest

from trtllm_kit import errors
from trtllm_kit.errors import (
    AnswerIsNo,
    CannotDo,
    KitError,
    ProfileError,
    ServerFailed,
    UsageError,
    all_error_classes,
    storage_error,
)


def test_every_class_has_a_code_of_its_own() -> None:
    """Codes are stable handles, so no two classes share one."""
    codes = [cls.code for cls in all_error_classes()]

    assert len(codes) == len(set(codes))
    assert all(re.fullmatch(r"KIT-[A-Z]+-\d{3}", code) for code in codes)


def test_every_code_stands_in_the_tree_of_the_module() -> None:
    """The drawn tree is the tree."""
    drawn = set(re.findall(r"KIT-[A-Z]+-\d{3}", errors.__doc__ or ""))

    assert drawn == {cls.code for cls in all_error_classes()}


@pytest.mark.parametrize(("branch", "code"), [(UsageError, 2), (AnswerIsNo, 1), (CannotDo, 3)])
def test_the_branch_decides_the_exit_code(branch: type[KitError], code: int) -> None:
    """Usage is 2, a no is 1, everything else is 3."""
    assert {code} == {cls.exit_code for cls in all_error_classes() if issubclass(cls, branch)}


def test_an_error_reads_as_what_why_and_try() -> None:
    """Line 1 has the value, line 2 the comparison, line 3 one thing to try."""
    error = errors.PortInUse("port 8000 is taken", why="process 17 listens on it", hint="--http-port 8010")

    assert str(error).splitlines() == [
        "error[KIT-SERVE-002]: port 8000 is taken",
        "  because: process 17 listens on it",
        "  try: --http-port 8010",
    ]


def test_a_system_error_keeps_its_number_and_path() -> None:
    """ENOSPC says so, names the path and what to free."""
    error = storage_error(OSError(28, "No space left on device", "/tmp/x"), "writing the checkpoint")

    assert "errno 28" in error.why
    assert "/tmp/x" in error.what
    assert "free space" in error.hint


def test_names_cannot_act_on_the_terminal() -> None:
    """Escapes, line ends and undecodable bytes of a name are written out, so each part stays one line."""
    error = KitError(
        "no \x1b[2J\nOK", why="in a\udcffb\r\x9b1m and \u202e", hint="Gr\u00fc\u00dfe \u65e5\u672c \u2192 \u20ac"
    )

    assert (
        "error[KIT-INTERNAL-000]: no \\x1b[2J\\nOK",
        "  because: in a\\xffb\\r\\x9b1m and \\u202e",
        "  try: Gr\u00fc\u00dfe \u65e5\u672c \u2192 \u20ac",
    ) == error.lines()
    str(error).encode("utf-8")


def test_evidence_stays_one_line_each() -> None:
    """Problems and log lines are as harmless as the three lines around them, in the attributes too."""
    problems = ProfileError("a", why="b", hint="c", problems=("k\nerror[X]: y", "\udc80"))
    log = ServerFailed("a", why="b", hint="c", log=("\x1b]0;title\x07",))

    assert ("k\\nerror[X]: y", "\\x80") == problems.problems
    assert ["    k\\nerror[X]: y", "    \\x80"] == str(problems).splitlines()[2:-1]
    assert ["    \\x1b]0;title\\x07"] == str(log).splitlines()[2:-1]


def test_an_environment_too_large_for_the_system_is_told_as_such() -> None:
    """E2BIG says what to shorten, not to look at the program's permissions."""
    assert "shorten the environment" in storage_error(OSError(7, "Argument list too long", "/b"), "starting").hint
