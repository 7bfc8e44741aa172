"""Finding a tritonserver and checking what would make it hang."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from pathlib import Path

import pytest

from trtllm_kit.errors import MissingExtra, MissingTool
from trtllm_kit.serve import tritonserver
from trtllm_kit.serve.tritonserver import find_tritonserver


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """The layout of the wheel's folder, with empty files; gives the server's path."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    files = ("bin/tritonserver", f"python_backend_stubs/{version}/triton_python_backend_stub")
    for name in (*files, "python_backend_stubs/2.7/other"):
        path = tmp_path / "tritonserver" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    return tmp_path / "tritonserver/bin/tritonserver"


@pytest.fixture
def ldd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the path of a stand-in for ldd that finds everything; a test may write another into it."""
    path = tmp_path / "tools" / "ldd"
    path.parent.mkdir()
    path.write_text("#!/bin/sh\necho 'libc.so.6 => /lib/libc.so.6 (0x1)'\n")
    path.chmod(0o755)
    monkeypatch.setattr(
        tritonserver.shutil, "which", lambda name, path=None: None if name != "ldd" else str(_ldd(path))
    )

    def _ldd(_path: str | None) -> Path:
        return path

    return path


@pytest.mark.triton
def test_the_installed_wheel_is_found() -> None:
    """The server of nvidia-pytriton is found with this interpreter's stub and packages."""
    found = find_tritonserver({"PATH": "/nonexistent"})

    assert found.binary.is_file()
    assert all(target.is_file() for target in found.links.values())
    assert {"libtriton_python.so", "triton_python_backend_utils.py", "triton_python_backend_stub"} == set(found.links)
    assert Path(sys.prefix) / "bin" == found.python_folder


def test_the_variable_wins(tmp_path: Path) -> None:
    """$TRITONSERVER names the server; one without stubs beside it is a container's and brings its own backends."""
    server = tmp_path / "tritonserver"
    server.write_text("#!/bin/sh\n")
    server.chmod(0o755)

    found = find_tritonserver({"TRITONSERVER": str(server), "PATH": os.environ["PATH"]})

    assert (server, {}, None) == (found.binary, found.links, found.python_folder)


def test_the_path_is_searched(tmp_path: Path) -> None:
    """A tritonserver on PATH is taken."""
    server = tmp_path / "tritonserver"
    server.write_text("#!/bin/sh\n")
    server.chmod(0o755)

    assert server == find_tritonserver({"PATH": str(tmp_path)}).binary


def test_tensorrt_llm_needs_its_launcher(tmp_path: Path) -> None:
    """For the tensorrt_llm runtime the launcher is found on PATH, and its lack is told."""
    for name in ("tritonserver", "trtllm-llmapi-launch"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)

    launcher = str(tmp_path / "trtllm-llmapi-launch")
    assert (launcher,) == find_tritonserver({"PATH": str(tmp_path)}, "tensorrt_llm").launcher
    assert () == find_tritonserver({"PATH": str(tmp_path)}, "simulated", 4).launcher
    (tmp_path / "trtllm-llmapi-launch").unlink()
    with pytest.raises(MissingTool, match="trtllm-llmapi-launch was not found"):
        find_tritonserver({"PATH": str(tmp_path)}, "tensorrt_llm")


def test_several_ranks_are_started_under_mpirun(tmp_path: Path) -> None:
    """The launcher alone has one worker, so of four ranks each runs it; without mpirun the ranks are told."""
    for name in ("tritonserver", "trtllm-llmapi-launch", "mpirun"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": str(tmp_path)}

    wanted = ("mpirun", "--allow-run-as-root", "--bind-to", "none", "-n", "4", str(tmp_path / "trtllm-llmapi-launch"))
    assert wanted == find_tritonserver(environment, "tensorrt_llm", 4).launcher
    (tmp_path / "mpirun").unlink()
    with pytest.raises(MissingTool, match=r"mpirun was not found\n.*4 ranks"):
        find_tritonserver(environment, "tensorrt_llm", 4)


def test_a_wrong_variable_is_named(tmp_path: Path) -> None:
    """A variable that names no program is not passed over."""
    with pytest.raises(MissingTool, match="no program stands there"):
        find_tritonserver({"TRITONSERVER": str(tmp_path / "nothing")})


def test_no_server_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any server the extra to install is named."""
    monkeypatch.setattr(tritonserver.importlib.util, "find_spec", lambda _name: None)

    with pytest.raises(MissingExtra) as missing:
        find_tritonserver({"PATH": "/nonexistent"})

    assert "pip install 'trtllm-kit[rehearsal]'" in missing.value.hint


def test_a_missing_libpython_names_the_package(wheel: Path, ldd: Path) -> None:
    """The stub without its libpython would hang the server for ever: the Debian package is named instead."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    ldd.write_text(f"#!/bin/sh\necho 'libpython{version}.so.1.0 => not found'\n")

    with pytest.raises(MissingTool) as missing:
        find_tritonserver({"TRITONSERVER": str(wheel)})

    assert f"lacks libpython{version}.so.1.0" in missing.value.what
    assert f"apt-get install libpython{version}" == missing.value.hint


def test_an_old_glibc_is_named(wheel: Path, ldd: Path) -> None:
    """A C library that is too old is found the same way."""
    ldd.write_text("#!/bin/sh\necho \"stub: /lib/libc.so.6: version 'GLIBC_2.35' not found\" >&2\n")

    with pytest.raises(MissingTool, match=r"GLIBC_2\.35"):
        find_tritonserver({"TRITONSERVER": str(wheel)})


@pytest.mark.parametrize(("version", "word"), [("2.2.6", "numpy 2.2.6 is installed"), (None, "numpy is not installed")])
def test_numpy_2_is_refused(
    wheel: Path, ldd: Path, monkeypatch: pytest.MonkeyPatch, version: str | None, word: str
) -> None:
    """The wheel's stub answers wrong over numpy 2 and cannot run without numpy."""

    def found(name: str) -> str:
        if version is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(tritonserver.importlib.metadata, "version", found)

    with pytest.raises(MissingExtra, match=word) as refused:
        find_tritonserver({"TRITONSERVER": str(wheel)})

    assert "pip install 'numpy<2'" == refused.value.hint


def test_a_python_without_a_stub_is_told_which_have_one(wheel: Path, ldd: Path) -> None:
    """When the wheel has no stub for this Python, the ones it has are listed."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    (wheel.parent.parent / "python_backend_stubs" / version / "triton_python_backend_stub").unlink()

    with pytest.raises(MissingTool) as missing:
        find_tritonserver({"TRITONSERVER": str(wheel)})

    assert f"no stub for Python {version}" in missing.value.what
    assert "2.7" in missing.value.why
