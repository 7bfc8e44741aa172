"""The log file of an unattended run: one line a message, and older files beside it.

Runs that share a file may write at the same time: every write locks the file and looks whether it still stands under
its name, so that none is lost when another run has just moved it aside.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from trtllm_kit.errors import storage_error
from trtllm_kit.units import MIB

LOG_BYTES = 10 * MIB
LOG_FILES = 5


class LogFile:
    """Lines of ``time run level text`` in ``path``; beyond ``limit_bytes`` it becomes ``path.1``, that ``path.2``."""

    def __init__(self, path: Path, run: str, *, limit_bytes: int = LOG_BYTES, keep: int = LOG_FILES) -> None:
        """Keep ``keep`` older files; ``run`` tells the lines of one run from those of another."""
        self.path = path
        self.run = run
        self._limit = limit_bytes
        self._keep = keep

    def begin(self, text: str) -> None:
        """Make the folder and write the first line; raises ``StorageError`` when that cannot be done."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.write("info", text)
        except OSError as error:
            error.filename = error.filename or str(self.path)
            raise storage_error(error, "writing the log file") from error

    def write(self, level: str, text: str) -> None:
        """Append each line of ``text``; raises ``OSError``."""
        head = f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {self.run} {level:<8} "
        lines = "".join(f"{head}{line}\n" for line in text.splitlines())
        data = lines.encode("utf-8", errors="backslashreplace")
        with self._opened(len(data)) as file:
            os.write(file, data)

    @contextmanager
    def _opened(self, more: int) -> Iterator[int]:
        """Open and lock the file that stands under the name, with room for ``more`` bytes."""
        while True:
            file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o666)
            try:
                if self._ready(file, more):
                    yield file
                    return
            finally:
                os.close(file)

    def _ready(self, file: int, more: int) -> bool:
        """Lock an open file; False when it is, or was just now, moved aside."""
        fcntl.flock(file, fcntl.LOCK_EX)
        opened = os.fstat(file)
        if not stat.S_ISREG(opened.st_mode):
            return True
        if not self._stands(opened):
            return False
        if opened.st_size == 0 or opened.st_size + more <= self._limit:
            return True
        self._rotate()
        return False

    def _stands(self, opened: os.stat_result) -> bool:
        try:
            return os.path.samestat(opened, self.path.stat())
        except FileNotFoundError:
            return False

    def _rotate(self) -> None:
        """Move the files up to the first number that is free one on; what is beyond the last one goes."""
        if self._keep == 0:
            self.path.unlink()
            return
        taken = next(number for number in count(1) if number == self._keep or not self._older(number).exists())
        for number in range(taken - 1, 0, -1):
            self._older(number).replace(self._older(number + 1))
        self.path.replace(self._older(1))

    def _older(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")
