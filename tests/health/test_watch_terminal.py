"""``trtkit watch`` on a terminal: another size, an interrupt, an end, and no terminal at all."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator

import pytest

from tests.health.support import answers, engine_page, stub_server
from tests.support.cli import trtkit, trtkit_path
from trtllm_kit.cli.live_screen import fitted

PROFILE = "cpu-rehearsal-simulated"
ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Terminal:
    """A terminal with ``trtkit watch`` in it."""

    def __init__(self, url: str, *words: str) -> None:
        self.here, self.there = pty.openpty()
        self.before = termios.tcgetattr(self.there)
        self.resize(40, 100, tell=False)
        command = [trtkit_path(), "watch", "-p", PROFILE, "--url", url, "--interval", "0.2", *words]
        environment = os.environ | {"TERM": "xterm", "COLUMNS": "", "LINES": ""}
        streams = {"stdin": self.there, "stdout": self.there, "stderr": self.there}
        self.process = subprocess.Popen(command, env=environment, start_new_session=True, **streams)  # type: ignore[call-overload]
        self.text = ""

    def resize(self, lines: int, columns: int, *, tell: bool = True) -> None:
        """Give the terminal another size, as a window does."""
        fcntl.ioctl(self.there, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        if tell:
            self.process.send_signal(signal.SIGWINCH)

    def read_until(self, wanted: str, seconds: float = 30.0) -> None:
        """Read what is shown until a text of that form comes."""
        deadline = time.monotonic() + seconds
        while re.search(wanted, self.text) is None:
            assert time.monotonic() < deadline, self.text[-2000:]
            self._read()

    def end(self) -> int:
        """Wait for the end; returns the exit code."""
        deadline = time.monotonic() + 30
        while self.process.poll() is None and time.monotonic() < deadline:
            self._read()
        self._read()
        return self.process.wait(5)

    def _read(self) -> None:
        if select.select([self.here], [], [], 0.1)[0]:
            self.text += os.read(self.here, 1 << 16).decode("utf-8", "replace")


@contextlib.contextmanager
def watching(*words: str) -> Iterator[Terminal]:
    """Watch a healthy page in a terminal."""
    with stub_server(answers(engine_page())) as url:
        terminal = Terminal(url, *words)
        try:
            yield terminal
        finally:
            terminal.process.kill()
            terminal.process.wait()
            os.close(terminal.here)
            os.close(terminal.there)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)], ids=lambda one: str(one)
)
def test_a_signal_gives_the_terminal_back(number: signal.Signals, code: int) -> None:
    """However it is ended, the other screen is left, the cursor is shown, and the last table stands there."""
    with watching() as terminal:
        terminal.read_until("kv_cache_usage")
        terminal.process.send_signal(number)
        assert code == terminal.end()
        assert terminal.text.startswith(ENTER)
        assert (1, 1) == (terminal.text.count(ENTER), terminal.text.count(LEAVE))
        assert "kv_cache_usage" in terminal.text.partition(LEAVE)[2]
        assert terminal.before == termios.tcgetattr(terminal.there)


def test_it_ends_by_itself_and_gives_the_terminal_back() -> None:
    """After the rounds that were asked for the exit code is that of the last state."""
    with watching("--count", "2") as terminal:
        assert terminal.end() in {0, 1, 2, 3}
        assert (1, 1) == (terminal.text.count(ENTER), terminal.text.count(LEAVE))


def test_another_size_is_drawn_at_once_and_fits() -> None:
    """On a terminal that became small nothing is wider or longer than it, though the next round is a minute away."""
    with watching("--interval", "60") as terminal:
        terminal.read_until("kv_cache_usage")
        terminal.text = ""
        terminal.resize(6, 40)
        terminal.read_until(r"more lines")
        lines = [COLOUR.sub("", line) for line in re.split(r"\x1b\[H\x1b\[2J", terminal.text)[-1].split("\r\n")]
        assert 6 == len(lines)
        assert max(map(len, lines)) <= 40


def test_into_a_pipe_there_are_no_codes() -> None:
    """Without a terminal each table stands below the last, and no code of a terminal is written."""
    with stub_server(answers(engine_page())) as url:
        ran = trtkit("watch", "-p", PROFILE, "--url", url, "--count", "2", "--interval", "0.05")
    assert (2, False) == (ran.out.count("target "), "\x1b" in ran.out + ran.err)


def test_a_reader_that_goes_ends_it() -> None:
    """``trtkit watch | head`` ends with ``head``, by the state that was last."""
    with stub_server(answers(engine_page())) as url:
        command = [trtkit_path(), "watch", "-p", PROFILE, "--url", url, "--interval", "0.05"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("target ")
            process.stdout.close()
            try:
                code = process.wait(20)
            finally:
                process.kill()
            assert process.stderr is not None
            assert (True, "") == (code in {0, 1, 2, 3}, process.stderr.read())


def test_a_text_is_cut_to_a_terminal() -> None:
    """Lines beyond the size are counted, long ones are cut, and colours take no room and end."""
    assert "abcd\nef" == fitted("abcdefgh\nef", 4, 10)
    assert "a\n... 3 more lines" == fitted("a\nb\nc\nd", 20, 2)
    assert "\x1b[31mab\x1b[0m" == fitted("\x1b[31mabc\x1b[0md", 2, 1)
    assert "\x1b[31mabc\x1b[0m" == fitted("\x1b[31mabc\x1b[0m", 3, 1)
