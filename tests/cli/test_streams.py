"""Streams: letters that cannot be shown, readers that went away, disks that are full."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from trtllm_kit.cli.streams import holds_every_letter, say, to_stderr
from trtllm_kit.errors import StorageError


@pytest.mark.parametrize(
    ("encoding", "expected"), [("utf-8", "µ größe \\udcff"), ("ascii", "\\xb5 gr\\xf6\\xdfe \\udcff")]
)
def test_what_a_stream_cannot_hold_is_an_escape(monkeypatch: pytest.MonkeyPatch, encoding: str, expected: str) -> None:
    """No locale turns a result into an error."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding=encoding) for _ in range(2))
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    say("µ größe \udcff", end="")
    to_stderr("µ größe \udcff", end="")

    assert expected == out.buffer.getvalue().decode()  # type: ignore[attr-defined]
    assert expected == err.buffer.getvalue().decode()  # type: ignore[attr-defined]
    assert (encoding == "utf-8") == holds_every_letter(out)


def test_a_full_stdout_is_an_error_and_a_full_stderr_is_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The result must arrive; of a message that cannot be told nobody can be told."""
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, Path("/dev/full").open("w"))  # noqa: SIM115
    to_stderr("message")

    with pytest.raises(StorageError, match="stdout"):
        say("result")
