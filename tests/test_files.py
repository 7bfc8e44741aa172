"""Opening what stands at a path: regular files, and everything that is none without waiting for it."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from trtllm_kit.files import (
    NOTHING,
    UnfitFile,
    drop_partials,
    open_file,
    read_file,
    read_text,
    replace_text,
    stamp_of,
    what_is,
)


def make_socket(path: Path) -> None:
    """Leave the socket of a server that ended; bound by a short name, for that of a socket has at most 107 bytes."""
    with socket.socket(socket.AF_UNIX) as server, tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "here").symlink_to(path.parent)
        server.bind(f"{folder}/here/{path.name}")


UNFIT: dict[str, tuple[Callable[[Path], object], str]] = {
    "pipe": (os.mkfifo, "it is a named pipe, not a file"),
    "folder": (Path.mkdir, "it is a folder, not a file"),
    "socket": (make_socket, "it is a socket, not a file"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "it is a device, not a file"),
    "dangling link": (lambda path: path.symlink_to("blobs/gone"), "a symbolic link to blobs/gone, which is not there"),
    "loop of links": (lambda path: path.symlink_to(path.name), "a symbolic link that leads back to itself"),
}
"""What can stand in a file's place: how to make it, and how it is told."""


@pytest.mark.parametrize("kind", UNFIT)
def test_what_is_no_file_is_refused_and_named(tmp_path: Path, kind: str) -> None:
    """No read waits for a writer, never ends, or takes a folder for a file."""
    make, words = UNFIT[kind]
    make(tmp_path / "config.json")
    with pytest.raises(UnfitFile) as caught:
        read_file(tmp_path / "config.json")
    assert words in caught.value.unfit
    assert str(tmp_path / "config.json") == caught.value.filename


def test_nothing_is_another_error(tmp_path: Path) -> None:
    """A reader can tell a file that is not there from one that cannot be used."""
    with pytest.raises(FileNotFoundError) as caught:
        open_file(tmp_path / "nothing")
    assert str(tmp_path / "nothing") == caught.value.filename
    assert NOTHING == what_is(tmp_path / "nothing")
    (tmp_path / "file").write_text("")
    assert NOTHING == what_is(tmp_path / "file" / "below")


def test_a_file_behind_links_is_a_file(tmp_path: Path) -> None:
    """The hub's cache is made of links."""
    (tmp_path / "blob").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("blob")
    assert what_is(tmp_path / "link") is None
    assert b"abc" == read_file(tmp_path / "link")


def test_a_pipe_the_caller_handed_over_is_read() -> None:
    """Process substitution gives one, and it ends."""
    reading, writing = os.pipe()
    os.write(writing, b"name: piped\n")
    os.close(writing)
    assert b"name: piped\n" == read_file(Path(f"/dev/fd/{reading}"))
    os.close(reading)


def test_more_bytes_than_allowed_are_refused(tmp_path: Path) -> None:
    """The bound itself is allowed."""
    path = tmp_path / "text"
    path.write_bytes(b"x" * 100)
    assert 100 == len(read_file(path, 100))
    with pytest.raises(UnfitFile, match="more than 99 bytes"):
        read_file(path, 99)


def test_a_text_has_unix_line_ends(tmp_path: Path) -> None:
    """A text that went through Windows has the same hash."""
    (tmp_path / "text").write_bytes(b"a\r\nb\rc\n")
    assert "a\nb\nc\n" == read_text(tmp_path / "text")


def test_a_stamp_knows_the_file_from_another_and_from_its_later_self(tmp_path: Path) -> None:
    """Reading changes nothing; a write and a rename into its place do."""
    path, other = tmp_path / "a", tmp_path / "b"
    path.write_bytes(b"aaaa")
    other.write_bytes(b"aaaa")
    os.utime(other, ns=(1, path.stat().st_mtime_ns))

    def stamp() -> object:
        with open_file(path) as file:
            return stamp_of(file)

    first = stamp()
    assert first == stamp()
    other.rename(path)
    renamed = stamp()
    assert first != renamed
    os.utime(path, ns=(1, 1))
    assert renamed != stamp()


def refuse(self: Path, target: Path) -> Path:
    """Fail as a rename does on a full disk."""
    raise OSError("full")


def test_a_replaced_file_is_old_or_new_and_keeps_its_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that fails leaves the old text and nothing beside it; one that works keeps the mode and the link."""
    (tmp_path / "file").write_text("old")
    (tmp_path / "file").chmod(0o640)
    (tmp_path / "link").symlink_to("file")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", refuse)
        with pytest.raises(OSError, match="full"):
            replace_text(tmp_path / "link", "new")
    assert "old" == (tmp_path / "file").read_text()
    assert {"file", "link"} == {path.name for path in tmp_path.iterdir()}

    replace_text(tmp_path / "link", "new")
    assert ("new", True) == ((tmp_path / "file").read_text(), (tmp_path / "link").is_symlink())
    assert 0o640 == (tmp_path / "file").stat().st_mode & 0o777
    assert {"file", "link"} == {path.name for path in tmp_path.iterdir()}


def test_a_device_is_written_and_not_put_aside(tmp_path: Path) -> None:
    """/dev/null stays what it is."""
    (tmp_path / "null").symlink_to("/dev/null")
    replace_text(tmp_path / "null", "text")

    assert Path("/dev/null") == (tmp_path / "null").readlink()


def test_what_killed_writes_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    """Only beside the files that are named, and only what this module names so."""
    kept = [".a.txt.partial", ".b.txt.7.partial", ".a.txt.x.partial", "a.txt", "a.txt.7.partial"]
    for name in (*kept, ".a.txt.7.partial", ".a.txt.81.partial"):
        (tmp_path / name).write_text("x")
    drop_partials([tmp_path / "a.txt", tmp_path / "nowhere" / "b"])

    assert sorted(kept) == sorted(path.name for path in tmp_path.iterdir())
