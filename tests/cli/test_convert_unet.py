"""``trtkit convert --task diffusion``: its options, and what goes with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cli import trtkit
from trtllm_kit.cli.convert_unet import least_ssim
from trtllm_kit.errors import UsageError


def test_the_gate_is_one_likeness() -> None:
    """It is named ssim and lies from 0 to 1; none asked is none held."""
    assert 0.98 == least_ssim("ssim=0.98")
    assert 0.0 == least_ssim(None)


@pytest.mark.parametrize("gate", ["ppl=1%", "ssim=1.5", "ssim=", "ssim=0.9,ppl=1%"])
def test_other_gates_are_refused(gate: str) -> None:
    """The figures of a language model are none of a picture."""
    with pytest.raises(UsageError, match="not understood"):
        least_ssim(gate)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--task", "diffusion", "-p", "cpu-rehearsal"), "--profile has no meaning"),
        (("--task", "diffusion", "--calib-length", "8"), "--calib-length has no meaning"),
        (
            ("--task", "diffusion", "--calib-seed", "8", "--calib-field", "a"),
            "--calib-field, --calib-seed has no meaning",
        ),
        (("--task", "diffusion", "--dry-run"), "--dry-run has no meaning"),
        ((), "needs --profile"),
        (("-p", "cpu-rehearsal", "--calib-steps", "3"), "--calib-steps is for --task diffusion"),
    ],
)
def test_options_of_the_other_task_are_refused(words: tuple[str, ...], told: str, tmp_path: Path) -> None:
    """Exit 2, and nothing is written."""
    ran = trtkit("convert", str(tmp_path), "-o", str(tmp_path / "out"), *words)
    assert 2 == ran.code
    assert told in ran.err
    assert not (tmp_path / "out").exists()


def test_a_folder_without_a_unet_is_told(tmp_path: Path) -> None:
    """What diffusers would have saved is named."""
    ran = trtkit("convert", str(tmp_path / "model"), "--task", "diffusion", "-o", str(tmp_path / "out"))
    assert 3 == ran.code
    assert "config.json" in ran.err
