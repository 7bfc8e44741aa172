"""The measuring program in an environment with torch, on the CPU, where it runs every shape and times none."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trtllm_kit.resources import package_file

pytestmark = pytest.mark.oracle
pytest.importorskip("torch", reason="the measuring needs torch")


def test_the_program_runs_alone_and_writes_its_rows(tmp_path: Path) -> None:
    """Run by path and isolated, with nothing of trtkit on its path: parts with columns, rows, and no time on a CPU."""
    file = tmp_path / "measured.json"
    argv = [sys.executable, "-I", str(package_file("doctor_worker", "measure.py")), str(file), "--small", "--only"]
    done = subprocess.run(
        [*argv, "gemm", "context", "memory"], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert 0 == done.returncode, done.stderr
    told = json.loads(file.read_text())
    assert (0, {}) == (told["machine"]["cards"], told["failed"])
    assert ["gemm", "context", "memory"] == sorted(told["parts"], key=["gemm", "context", "memory"].index)
    rows = told["parts"]["gemm"]["rows"]
    assert ["bf16", 1, 6144, 4096, None] == rows[0]
    assert {len(told["parts"]["gemm"]["columns"])} == {len(row) for row in rows}


def test_a_time_that_is_up_cuts_the_rows_short(tmp_path: Path) -> None:
    """The row that is under way is kept, no further one is measured, and the file says so."""
    from trtllm_kit.doctor_worker.calibrate.run import Results

    file = tmp_path / "measured.json"
    Results(file, {"memory": ("what", "bytes_moved", "ms")}, 0.0).take(
        "memory", iter([("copy", 1, 2.0), ("copy", 2, 4.0)])
    )
    part = json.loads(file.read_text())["parts"]["memory"]
    assert (True, [["copy", 1, 2.0]]) == (part["cut"], part["rows"])


def test_what_breaks_a_part_is_told_in_the_file(tmp_path: Path) -> None:
    """Rows up to there are kept, with the words of the error under the part's name."""
    from trtllm_kit.doctor_worker.calibrate.run import Results

    def rows() -> Iterator[tuple[str, int, float]]:
        yield ("copy", 1, 2.0)
        raise RuntimeError("out of memory")

    file = tmp_path / "measured.json"
    Results(file, {"memory": ("what", "bytes_moved", "ms")}).take("memory", rows())
    told = json.loads(file.read_text())
    assert ({"memory": "RuntimeError: out of memory"}, 1) == (told["failed"], len(told["parts"]["memory"]["rows"]))
