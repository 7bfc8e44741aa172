"""``trtkit doctor`` as its users run it, on this machine and on one that stands in for another."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.support.cli import config_folder, trtkit

SMI = Path(__file__).resolve().parents[1] / "doctor" / "recorded"
MEASUREMENTS = Path(__file__).resolve().parents[2] / "docs" / "measurements"


@pytest.fixture
def two_h200(tmp_path: Path) -> dict[str, str]:
    """Return an environment whose nvidia-smi is one that answers as two H200s did."""
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    answers = {"-q": "h200x2.xml", "nvlink -s": "h200x2.nvlink-s.txt", "nvlink -e": "h200x2.nvlink-e.txt",
               "topo -m": "h200x2.topo.txt", "topo -p2p": "h200x2.p2p.txt"}  # fmt: skip
    cases = "".join(f'  "{words}"*) cat "{SMI / file}";;\n' for words, file in answers.items())
    program.write_text(f'#!/bin/sh\ncase "$*" in\n{cases}  *) exit 2;;\nesac\n')
    program.chmod(0o755)
    return {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}


def _has_gpus() -> bool:
    return Path("/dev/nvidiactl").exists()


@pytest.mark.skipif(_has_gpus(), reason="it has GPUs")
def test_a_machine_without_gpus_is_unknown_and_well_for_the_cpu() -> None:
    """Exit 3 with the reason by name, and 0 for a profile that runs on the CPU."""
    ran = trtkit("doctor")
    assert 3 == ran.code
    assert "WARNING DR1: unknown: the GPUs" in ran.out
    assert ran.out.splitlines()[-1].startswith("this machine is unknown")
    assert 0 == trtkit("doctor", "--profile", "cpu-rehearsal-simulated").code


@pytest.mark.skipif(_has_gpus(), reason="it has GPUs")
def test_the_report_is_one_object(two_h200: dict[str, str]) -> None:
    """Everything that was read and found stands in JSON: cards, links, host, software, findings, verdict."""
    ran = trtkit("doctor", "--json", env=two_h200)
    assert 0 == ran.code, ran.err
    told = ran.json
    assert ("yes", "580.159.04", {"0-1": "NV18"}, {"0-1": "OK"}) == (
        told["verdict"], told["driver"], told["links"], told["peers"],
    )  # fmt: skip
    assert ["NVIDIA H200", "NVIDIA H200"] == [one["name"] for one in told["gpus"]]
    assert {"rule", "severity", "message", "compared", "suggestion"} == set(told["findings"][0])


@pytest.mark.skipif(_has_gpus(), reason="it has GPUs")
def test_a_profile_for_another_machine_is_refused(two_h200: dict[str, str]) -> None:
    """Two cards where the profile takes eight: exit 1 with both numbers."""
    ran = trtkit("doctor", "--profile", "b200x8-agent-1m", env=two_h200)
    assert 1 == ran.code
    assert "2 here, 8 wanted" in ran.out


@pytest.mark.skipif(_has_gpus(), reason="it has GPUs")
def test_the_written_profile_plans(two_h200: dict[str, str], tmp_path: Path) -> None:
    """What doctor writes is named by a deploy profile, and plan reads it; without a capability no card is known."""
    file = tmp_path / "here.yaml"
    ran = trtkit("doctor", "--write-hardware", file, env=two_h200)
    assert 0 == ran.code, ran.err
    assert f"wrote {file}" == ran.out.splitlines()[-1]
    profile = tmp_path / "p.yaml"
    profile.write_text(f"base: h200x1-llama3.1-8b-fp8\nname: here\nhardware: {file}\n")
    assert 0 == trtkit("profiles", "validate", profile).code


def test_an_environment_without_torch_does_not_calibrate(two_h200: dict[str, str], tmp_path: Path) -> None:
    """Exit 3 before anything is written, with what it lacks."""
    file = tmp_path / "x.yaml"
    ran = trtkit("doctor", "calibrate", "--out", file, "--python", sys.executable, env=two_h200)
    assert (3, False) == (ran.code, file.exists())
    assert "KIT-ENVIRONMENT-001" in ran.err
    assert "it has no torch" in ran.err


def _python_with_torch(folder: Path, measured: Path | None) -> Path:
    """Return an interpreter that stands in for one with torch, whose measuring gives the rows of a file."""
    program = folder / "python"
    leaves = f'cp "{measured}" "$3"' if measured else "echo no device >&2; exit 1"
    program.write_text(
        '#!/bin/sh\ncase "$2" in\n  *versions.py) echo \'{"torch": "2.11.0", "triton": "3.6.0"}\';;\n'
        f'  *measure.py) {leaves};;\n  *) echo \'{{"error": "not here"}}\';;\nesac\n'
    )
    program.chmod(0o755)
    return program


def test_what_was_measured_goes_into_the_profile_and_into_estimates(two_h200: dict[str, str], tmp_path: Path) -> None:
    """The constants stand in the file with their source; an estimate of a profile that names it is another one."""
    measured = MEASUREMENTS / "h200-ceilings.json"
    python, file = _python_with_torch(tmp_path, measured), tmp_path / "here.yaml"
    rows = tmp_path / "rows.json"
    ran = trtkit("doctor", "calibrate", "--out", file, "--python", python, "--keep", rows, "--json", env=two_h200)
    assert 0 == ran.code, ran.err
    constants = ran.json["constants"]
    assert 0.883 == pytest.approx(constants["stream_share"]["value"], abs=0.02)
    assert json.loads(measured.read_text())["parts"]["gemm"] == json.loads(rows.read_text())["parts"]["gemm"]
    model = config_folder(tmp_path, "llama-3.1-8b")
    answers = []
    for lines in (f"hardware: {file}", "hardware: h200x1"):
        profile = tmp_path / "p.yaml"
        profile.write_text(f"base: h200x1-llama3.1-8b-fp8\nname: here\n{lines}\n")
        answers.append(trtkit("estimate", model, "--profile", profile, "--concurrency", "4").out)
    assert answers[0].splitlines()[3:] != answers[1].splitlines()[3:]


def test_calibrating_again_keeps_what_the_file_says(two_h200: dict[str, str], tmp_path: Path) -> None:
    """A file that is there is added to: its own summary stays."""
    python, file = _python_with_torch(tmp_path, MEASUREMENTS / "h200-ceilings.json"), tmp_path / "here.yaml"
    assert 0 == trtkit("doctor", "--write-hardware", file, "--python", python, env=two_h200).code
    file.write_text(file.read_text().replace("summary: 2 x NVIDIA H200", "summary: rack 7, 2 x NVIDIA H200"))
    assert 0 == trtkit("doctor", "calibrate", "--out", file, "--python", python, env=two_h200).code
    text = file.read_text()
    assert "summary: rack 7" in text
    assert "product_share_16" in text


def test_a_measuring_that_breaks_writes_nothing(two_h200: dict[str, str], tmp_path: Path) -> None:
    """Exit 3 with the program's last words, and no profile."""
    file = tmp_path / "here.yaml"
    python = _python_with_torch(tmp_path, None)
    ran = trtkit("doctor", "calibrate", "--out", file, "--python", python, env=two_h200)
    assert (3, False) == (ran.code, file.exists())
    assert "KIT-DOCTOR-001" in ran.err
    assert "no device" in ran.err


def test_writing_again_keeps_what_was_measured_and_spares_other_files(two_h200: dict[str, str], tmp_path: Path) -> None:
    """Ceilings of the same card stay in the file; a file that is no hardware profile is refused as it is."""
    python, file = _python_with_torch(tmp_path, MEASUREMENTS / "h200-ceilings.json"), tmp_path / "here.yaml"
    assert 0 == trtkit("doctor", "calibrate", "--out", file, "--python", python, env=two_h200).code
    assert 0 == trtkit("doctor", "--write-hardware", file, env=two_h200).code
    assert "product_share_16" in file.read_text()
    other = tmp_path / "other.yaml"
    other.write_text("name: mine\n")
    refused = trtkit("doctor", "--write-hardware", other, env=two_h200)
    assert (2, "name: mine\n") == (refused.code, other.read_text())
    assert "KIT-HARDWARE-001" in refused.err
