"""Opens what others left on disk: regular files only, so that no read waits for a writer or goes on for ever.

And replaces a text file whole or not at all.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterable
from io import BytesIO, FileIO, TextIOWrapper
from pathlib import Path
from typing import NamedTuple

TEXT_BYTES = 64 << 20
"""Larger than any configuration, index or tokenizer; a file of this size can be held in memory."""

_PIECE_BYTES = 1 << 20
_PARTIAL = ".partial"
_HANDED_OVER = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")


class UnfitFile(OSError):
    """What stands at a path is no file to be read whole; ``unfit`` says what it is, as the reason of an error."""

    @property
    def unfit(self) -> str:
        """Return the reason, e.g. ``it is a named pipe, not a file``."""
        return str(self.strerror)


class Stamp(NamedTuple):
    """Which file it is and in what state: a rename into its place or a write to it gives another stamp."""

    device: int
    inode: int
    size: int
    modified_ns: int


def open_file(path: Path) -> FileIO:
    """Open a regular file for reading, unbuffered.

    Raises ``UnfitFile`` for a folder, named pipe, socket, device or link that leads nowhere, ``FileNotFoundError``
    when nothing stands there, and ``OSError``. What the caller handed over (``/dev/stdin``) may be a pipe.
    """
    if is_handed_over(str(path)):
        return path.open("rb", buffering=0)
    found = what_is(path)
    if found is None:  # asked before opening, because to open a device can set it to work
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return FileIO(descriptor, "rb")
        os.close(descriptor)
        found = "no longer the file it was"
    if found == NOTHING:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    suffix = "" if found.startswith(_LINK) else ", not a file"
    raise UnfitFile(errno.EINVAL, f"it is {found}{suffix}", str(path))


def is_handed_over(path: str) -> bool:
    """Whether the caller of the program opened it for us: standard input and process substitutions, pipes that end."""
    return path.startswith(_HANDED_OVER)


NOTHING = "nothing"
_LINK = "a symbolic link"
_KINDS = (
    (stat.S_ISREG, None),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
)


def what_is(path: Path) -> str | None:
    """Return what stands at a path instead of a regular file, in words, or None for a regular file.

    Raises ``OSError`` when the system does not let itself be asked.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return f"{_LINK} to {path.readlink()}, which is not there" if path.is_symlink() else NOTHING
    except NotADirectoryError:
        return NOTHING
    except OSError as error:
        if error.errno == errno.ELOOP:
            return f"{_LINK} that leads back to itself"
        raise
    return next((words for test, words in _KINDS if test(mode)), "a device")


def read_file(path: Path, most_bytes: int = TEXT_BYTES) -> bytes:
    """Return a whole file; raises what ``open_file`` raises, and ``UnfitFile`` for more than ``most_bytes``."""
    pieces: list[bytes] = []
    size = 0
    with open_file(path) as file:
        while piece := file.read(_PIECE_BYTES):
            pieces.append(piece)
            size += len(piece)
            if size > most_bytes:
                raise UnfitFile(errno.EFBIG, f"it holds more than {most_bytes} bytes", str(path))
    return b"".join(pieces)


def read_text(path: Path) -> str:
    """Return a UTF-8 text with Unix line ends; raises what ``read_file`` raises, and ``UnicodeDecodeError``."""
    return TextIOWrapper(BytesIO(read_file(path)), "utf-8").read()


def stamp_of(file: FileIO) -> Stamp:
    """Return the stamp of an open file."""
    found = os.fstat(file.fileno())
    return Stamp(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def replace_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all; an older one keeps its permissions, a link is followed. Raises OSError."""
    if path.exists() and not path.is_file():  # a terminal, say: nothing that a rename should put aside
        path.write_text(text, encoding="utf-8")
        return
    place = Path(os.path.realpath(path))
    partial = place.with_name(f".{place.name}.{os.getpid()}{_PARTIAL}")
    try:
        partial.write_text(text, encoding="utf-8")
        if place.exists():
            shutil.copymode(place, partial)
        partial.replace(place)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def drop_partials(paths: Iterable[Path]) -> None:
    """Remove what killed runs of ``replace_text`` left beside files; nobody may be writing them. Raises OSError."""
    names: dict[Path, set[str]] = {}
    for path in paths:
        names.setdefault(path.parent, set()).add(path.name)
    for folder, own in names.items():
        for left in folder.glob(f".*{_PARTIAL}"):
            name, _, process = left.name.removeprefix(".").removesuffix(_PARTIAL).rpartition(".")
            if name in own and process.isdecimal():
                left.unlink(missing_ok=True)
