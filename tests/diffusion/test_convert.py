"""The diffusion recipe without ModelOpt: what is refused before its environment is started."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.checkpoint.fake_worker import VERSIONS, write_interpreter
from tests.support.cli import trtkit
from tests.support.quantised import Stored, write_stored
from trtllm_kit.checkpoint.worker import PYTHON_VARIABLE
from trtllm_kit.diffusion.convert import CONFIG, WEIGHTS, Recipe, Terms, convert_unet, require_room
from trtllm_kit.errors import LockTimeout, StorageError, UsageError, WorkerFailed
from trtllm_kit.progress import Silent
from trtllm_kit.staging import staged

LINEAR, CONVOLUTION = "mid.attn.to_q.weight", "conv_in.weight"


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    """Write a pipeline's folder with a UNet of one matrix and one convolution."""
    folder = tmp_path / "pipeline" / "unet"
    folder.mkdir(parents=True)
    (folder / CONFIG).write_text(json.dumps({"_class_name": "UNet2DModel"}))
    sizes = {LINEAR: (8, 16), CONVOLUTION: (4, 2, 3, 3)}
    tensors = {name: Stored("F32", shape, np.ones(shape, np.float32).tobytes()) for name, shape in sizes.items()}
    write_stored(folder / WEIGHTS, tensors)
    return folder.parent


@pytest.fixture
def python(tmp_path: Path) -> str:
    """Write an interpreter that has all packages, and whose work fails."""
    return write_interpreter(tmp_path / "environment", "sys.exit(7)", VERSIONS | {"diffusers": "0.42.1"})


@pytest.mark.parametrize("place", ["pipeline", "pipeline/unet", "pipeline/unet/int8", "."])
def test_an_output_that_is_not_apart_from_its_source_is_refused(pipeline: Path, tmp_path: Path, place: str) -> None:
    """The source itself, a folder in it and one around it, before an interpreter is looked for."""
    with pytest.raises(UsageError, match="the source"):
        convert_unet(pipeline, tmp_path / place, Recipe(), Silent(), Terms(python="nowhere"))


def test_an_output_in_the_folder_that_a_link_leads_to_is_refused(pipeline: Path, tmp_path: Path) -> None:
    """A pipeline's ``unet`` may be a link, as in a cache of downloads; what it leads to is the source as well."""
    (pipeline / "unet").rename(tmp_path / "store")
    (pipeline / "unet").symlink_to(tmp_path / "store")
    with pytest.raises(UsageError, match="lies in the source"):
        convert_unet(pipeline, tmp_path / "store" / "int8", Recipe(), Silent(), Terms(python="nowhere"))


def test_another_run_on_the_same_output_is_waited_for_as_long_as_asked(
    pipeline: Path, python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Terms and --lock-wait hold for a UNet too: with none to spare the run ends at once and says who is there."""
    monkeypatch.setenv(PYTHON_VARIABLE, python)
    with staged(tmp_path / "out", "checkpoint", "0" * 64):
        with pytest.raises(LockTimeout, match="after 0"):
            convert_unet(pipeline, tmp_path / "out", Recipe(), Silent(), Terms(lock_seconds=0))
        words = ("--task", "diffusion", "--lock-wait", "100ms")
        ran = trtkit("convert", pipeline, "-o", tmp_path / "out", *words)
    assert LockTimeout.exit_code == ran.code
    assert "0.1" in ran.err or "100" in ran.err


def test_memory_for_the_unet_and_its_result_is_compared_with_what_is_there(pipeline: Path) -> None:
    """Four bytes an element before; after, one of a matrix and four of a convolution."""
    needed = 4 * (8 * 16 + 4 * 2 * 9) + 8 * 16 + 4 * (4 * 2 * 9)
    require_room(pipeline / "unet", needed)
    with pytest.raises(StorageError, match="too little memory") as caught:
        require_room(pipeline / "unet", needed - 1)
    assert "800 B in its own format + 416 B of the result" in str(caught.value.why)


def test_a_recipe_that_fails_leaves_nothing(pipeline: Path, python: str, tmp_path: Path) -> None:
    """Neither the output nor a stage beside it."""
    with pytest.raises(WorkerFailed):
        convert_unet(pipeline, tmp_path / "out", Recipe(), Silent(), Terms(python=python))
    assert {"pipeline", "environment"} == {path.name for path in tmp_path.iterdir()}
