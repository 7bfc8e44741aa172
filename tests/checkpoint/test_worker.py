"""Running a program in another environment: which one, how long, and what it may say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.checkpoint.fake_worker import write_interpreter
from trtllm_kit.checkpoint.worker import PYTHON_VARIABLE, Tools, find_tools, interpreter, run_worker
from trtllm_kit.errors import MissingTool, WorkerFailed
from trtllm_kit.progress import Silent


def tools(folder: Path, act: str) -> Tools:
    """Return an environment whose worker does ``act``."""
    return find_tools(write_interpreter(folder, act))


def test_the_profile_names_the_interpreter_before_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Key, then variable, then the running interpreter."""
    monkeypatch.setenv(PYTHON_VARIABLE, "/one")
    assert "/two" == interpreter("/two")
    assert "/one" == interpreter(None)
    monkeypatch.delenv(PYTHON_VARIABLE)
    assert sys.executable == interpreter(None)


def test_an_interpreter_that_is_not_there_is_told(tmp_path: Path) -> None:
    """A path without a program is a missing tool."""
    with pytest.raises(MissingTool, match="cannot run"):
        find_tools(str(tmp_path / "python"))


def test_a_program_that_is_no_python_is_told() -> None:
    """A program that fails on the probe is named, not believed."""
    with pytest.raises(WorkerFailed, match="does not run Python programs"):
        find_tools("/bin/false")


def test_a_silent_worker_is_stopped(tmp_path: Path) -> None:
    """One that tells nothing for too long is killed, with all it started."""
    found = tools(tmp_path, "import subprocess; print('{}', flush=True); subprocess.run(['sleep', '3613'])")
    with pytest.raises(WorkerFailed, match="told nothing for"):
        run_worker(found, "modelopt_worker.py", {}, Silent(), silent_seconds=1.5)
    assert "sleep 3613" not in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout


def test_a_line_that_is_not_json_ends_the_run(tmp_path: Path) -> None:
    """What is not the worker's own language is not guessed at."""
    found = tools(tmp_path, "print('hello', flush=True)")
    with pytest.raises(WorkerFailed, match="not its own"):
        run_worker(found, "modelopt_worker.py", {}, Silent())


def test_a_worker_without_a_result_has_failed(tmp_path: Path) -> None:
    """Exit code 0 is not enough."""
    with pytest.raises(WorkerFailed, match="exited with 0"):
        run_worker(tools(tmp_path, "pass"), "modelopt_worker.py", {}, Silent())
