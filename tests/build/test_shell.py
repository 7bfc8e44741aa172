"""Programs of steps: their log, their outputs, their deadline."""

from __future__ import annotations

import multiprocessing
import os
import time
from pathlib import Path

import pytest

from trtllm_kit.build.shell import run
from trtllm_kit.build.step import PYTHON, Run
from trtllm_kit.errors import BuildFailed, MissingTool


def python(code: str, outputs: tuple[str, ...] = (), seconds: float = 20.0, env: dict[str, str] | None = None) -> Run:
    """Make a step that runs a line of Python."""
    return Run(argv=(PYTHON, "-c", code), outputs=outputs, timeout_seconds=seconds, env=env or {})


def test_a_program_runs_in_the_folder_with_its_own_environment(tmp_path: Path) -> None:
    """It finds its inputs there and leaves its outputs there."""
    (tmp_path / "stage").mkdir()
    code = "import os; open('out.txt', 'w').write(os.environ['WORD'])"
    run(python(code, ("out.txt",), env={"WORD": "hello"}), tmp_path / "stage", tmp_path / "log")
    assert "hello" == (tmp_path / "stage" / "out.txt").read_text()


def test_what_a_program_says_is_in_the_log(tmp_path: Path) -> None:
    """Both streams, after the command."""
    run(python("import sys; print('one'); print('two', file=sys.stderr)"), tmp_path, tmp_path / "log")
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines[0].startswith("$ {python} -c ")
    assert {"one", "two"} == set(lines[1:])


def test_a_failing_program_is_a_build_failure_with_its_last_words(tmp_path: Path) -> None:
    """The error tells the exit code, the last lines and where the log is."""
    with pytest.raises(BuildFailed) as caught:
        run(python("import sys; sys.exit('no space for rank 3')"), tmp_path, tmp_path / "log")
    assert "it exited with 1; its last words: no space for rank 3" == caught.value.why
    assert f"read {tmp_path / 'log'}" == caught.value.hint


def test_a_long_command_is_cut_in_the_error_and_whole_in_the_log(tmp_path: Path) -> None:
    """The first line of an error can be read; what was run can be looked up."""
    option = " --option value" * 60
    with pytest.raises(BuildFailed) as caught:
        run(python(f"import sys; sys.exit(1)  #{option}"), tmp_path, tmp_path / "log")
    assert "build step failed: {python} -c " in caught.value.what
    assert caught.value.what.endswith(" words, all in the log)")
    assert len(caught.value.what) < 180
    assert option in (tmp_path / "log").read_text().splitlines()[0]


def test_a_missing_output_is_a_build_failure(tmp_path: Path) -> None:
    """A program that exits with 0 and leaves nothing has failed."""
    with pytest.raises(BuildFailed) as caught:
        run(python("print('done')", ("rank0.engine", "rank1.engine")), tmp_path, tmp_path / "log")
    assert "it exited with 0 and left no rank0.engine, rank1.engine; its last words: done" == caught.value.why


def test_a_program_past_its_deadline_is_stopped_with_its_children(tmp_path: Path) -> None:
    """No process is left over."""
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "open('pid', 'w').write(str(child.pid)); time.sleep(60)"
    )
    with pytest.raises(BuildFailed, match=r"stopped after 1\.50 s"):
        run(python(code, seconds=1.5), tmp_path, tmp_path / "log")
    assert gone(int((tmp_path / "pid").read_text()))


def test_a_program_ends_with_a_run_that_is_killed(tmp_path: Path) -> None:
    """SIGKILL leaves nothing behind that could write into the stage while the next run works in it."""
    step = python("import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(60)", seconds=60.0)
    runner = multiprocessing.get_context("fork").Process(target=run, args=(step, tmp_path, tmp_path / "log"))
    runner.start()
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        time.sleep(0.02)
    runner.kill()
    runner.join()
    assert gone(int((tmp_path / "pid").read_text()))


def gone(process: int) -> bool:
    """Whether a killed process is gone, or waits to be collected, within two seconds."""
    for _ in range(40):
        try:
            os.kill(process, 0)
            state = Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2][0]
        except (ProcessLookupError, FileNotFoundError):
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


def test_a_program_that_is_not_there_is_a_missing_tool(tmp_path: Path) -> None:
    """The error names the program."""
    step = Run(argv=("no-such-builder",), outputs=(), timeout_seconds=1.0)
    with pytest.raises(MissingTool, match="cannot run no-such-builder"):
        run(step, tmp_path, tmp_path / "log")


def test_a_command_is_shown_as_a_shell_takes_it() -> None:
    """An empty word and one with a space keep their place; placeholders stay as they are."""
    step = Run(argv=("docker", "--entrypoint", "", "{engine}:{engine}:ro", "a b"), outputs=(), timeout_seconds=1.0)
    assert "docker --entrypoint '' {engine}:{engine}:ro 'a b'" == step.subject()


def test_last_words_have_no_empty_lines(tmp_path: Path) -> None:
    """Lines without a word tell nothing."""
    with pytest.raises(BuildFailed) as caught:
        run(python("import sys; print('one\\n\\n \\ntwo'); sys.exit(1)"), tmp_path, tmp_path / "log")
    assert "it exited with 1; its last words: one / two" == caught.value.why


def test_a_builder_past_its_deadline_is_told_of_the_key(tmp_path: Path) -> None:
    """The deadline is the operator's own, so the error names it."""
    step = python("import time; time.sleep(60)", seconds=0.5).model_copy(update={"release": "0.18.2"})
    with pytest.raises(BuildFailed) as caught:
        run(step, tmp_path, tmp_path / "log")
    assert f"raise build.timeout if the log shows it at work; read {tmp_path / 'log'}" == caught.value.hint


def test_a_builder_that_is_not_here_may_be_elsewhere(tmp_path: Path) -> None:
    """The error names the key that chooses where the builder runs."""
    step = Run(argv=("no-such-builder",), outputs=(), timeout_seconds=5.0, release="0.18.2")
    with pytest.raises(MissingTool) as caught:
        run(step, tmp_path, tmp_path / "log")
    runners = "local, docker, apptainer, template"
    hint = f"install no-such-builder, or set build.runner to one of {runners} that this machine has"
    assert hint == caught.value.hint
