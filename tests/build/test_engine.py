"""Engine folders: made once, made again when something changed, opened only when everything is in place."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.build.conftest import MakeCheckpoint
from tests.support.specs import hardware, llama_8b, profile
from trtllm_kit.artifact import MANIFEST, read_manifest
from trtllm_kit.build import mock, shell
from trtllm_kit.build.engine import build, open_engine, require_same_conversion
from trtllm_kit.errors import BuildFailed, ManifestError, PlanDrift, PlanRefused, UsageError
from trtllm_kit.plan.plan import Plan
from trtllm_kit.plan.settle import settle
from trtllm_kit.progress import Silent

MOCK = {"toolchain": "mock", "runtime": "simulated", "parallelism.tensor": 2}


def plan_of(changes: dict[str, Any] | None = None) -> Plan:
    """Plan 8B on eight GPUs."""
    return settle(llama_8b(), profile(changes), hardware(8))


def snapshot(folder: Path) -> dict[str, bytes]:
    """Read every file of a folder, links not followed."""
    files = (
        path for path in folder.rglob("*") if path.is_file() and "checkpoint" not in path.parts[len(folder.parts) :]
    )
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_an_llm_api_engine_is_a_yaml_beside_a_link(make_checkpoint: MakeCheckpoint) -> None:
    """Its manifest lists files only, and carries the digests of plan and checkpoint."""
    made = plan_of()
    checkpoint = make_checkpoint(made)
    out = checkpoint.parent / "engine"
    built = build(checkpoint, made, out, Silent())
    assert not built.up_to_date
    assert ["llm_args.yaml", "trtkit-plan.json"] == [entry.path for entry in built.manifest.files]
    assert {"plan": made.digest, "checkpoint": read_manifest(checkpoint).digest} == built.manifest.inputs
    assert Path("../checkpoint") == (out / "checkpoint").readlink()
    assert "checkpoint" == yaml.safe_load((out / "llm_args.yaml").read_text())["model"]


def test_a_mock_engine_has_one_file_a_rank_made_by_a_process(make_checkpoint: MakeCheckpoint) -> None:
    """The program's own files are those of the manifest, and its log stays outside."""
    made = plan_of(MOCK)
    out = make_checkpoint(made).parent / "engine"
    build(out.parent / "checkpoint", made, out, Silent())
    assert mock.engine_files(made) == {
        name: text.decode() for name, text in snapshot(out).items() if name not in (MANIFEST, "trtkit-plan.json")
    }
    assert (out.parent / "engine.build.log").is_file()


@pytest.mark.parametrize("changes", [{}, MOCK])
def test_a_second_build_does_nothing(make_checkpoint: MakeCheckpoint, changes: dict[str, Any]) -> None:
    """Same plan and same checkpoint: nothing is written."""
    made = plan_of(changes)
    checkpoint = make_checkpoint(made)
    out = checkpoint.parent / "engine"
    first = build(checkpoint, made, out, Silent())
    before = snapshot(out)
    second = build(checkpoint, made, out, Silent())
    assert (False, True) == (first.up_to_date, second.up_to_date)
    assert first.manifest == second.manifest
    assert before == snapshot(out)


def test_the_order_of_environment_variables_makes_no_other_engine(make_checkpoint: MakeCheckpoint) -> None:
    """Equal plans have one key: what was built for the one is up to date for the other."""
    one, other = plan_of({"environment": {"A": "1", "B": "2"}}), plan_of({"environment": {"B": "2", "A": "1"}})
    checkpoint = make_checkpoint(one)
    out = checkpoint.parent / "engine"
    assert not build(checkpoint, one, out, Silent()).up_to_date
    assert build(checkpoint, other, out, Silent()).up_to_date


def with_text(path: str, sha256: str | None) -> Plan:
    """Plan an FP8 8B whose calibration text lies at a path and has a hash."""
    loaded = profile({"quantization.weights": "fp8", "calibration.text": path})
    return settle(llama_8b(), replace(loaded, calibration_sha256=sha256), hardware(8))


def test_a_calibration_text_that_moved_is_no_drift_and_an_edited_one_is(make_checkpoint: MakeCheckpoint) -> None:
    """The checkpoint depends on what the text says, and the error names both hashes."""
    checkpoint = make_checkpoint(with_text("here.txt", "a" * 64))
    require_same_conversion(checkpoint, with_text("there/here.txt", "a" * 64))
    with pytest.raises(PlanDrift, match=r"calibration.text \(was sha256 a{64}, now sha256 b{64}\)"):
        require_same_conversion(checkpoint, with_text("here.txt", "b" * 64))
    with pytest.raises(PlanDrift, match=r"calibration.text \(was sha256 a{64}, now unreadable\)"):
        require_same_conversion(checkpoint, with_text("here.txt", None))


def test_an_engine_whose_checkpoint_was_edited_is_not_opened(make_checkpoint: MakeCheckpoint) -> None:
    """The manifest of the checkpoint is still the same, and one of its files is not: same size, later time."""
    made = plan_of()
    checkpoint = make_checkpoint(made)
    out = checkpoint.parent / "engine"
    build(checkpoint, made, out, Silent())
    edit(checkpoint)
    with pytest.raises(ManifestError, match=r"config.json does not match its manifest"):
        open_engine(out)


def test_nothing_is_built_from_a_checkpoint_that_was_edited(make_checkpoint: MakeCheckpoint) -> None:
    """Its engine would carry the digest of what the checkpoint was; nothing is left in the engine's place."""
    made = plan_of()
    checkpoint = make_checkpoint(made)
    edit(checkpoint)
    with pytest.raises(ManifestError, match=r"config.json does not match its manifest"):
        build(checkpoint, made, checkpoint.parent / "engine", Silent())
    assert ["checkpoint"] == [path.name for path in checkpoint.parent.iterdir()]


@pytest.mark.parametrize("out", [".", "engine", ".."])
def test_an_engine_and_its_checkpoint_lie_apart(make_checkpoint: MakeCheckpoint, out: str) -> None:
    """An output that is the checkpoint, lies in it or holds it is refused, and the checkpoint stays as it is."""
    made = plan_of()
    checkpoint = make_checkpoint(made)
    before = snapshot(checkpoint)
    with pytest.raises(UsageError, match="the source"):
        build(checkpoint, made, checkpoint / out, Silent())
    assert before == snapshot(checkpoint) != {}


def edit(checkpoint: Path) -> None:
    """Write to a file of a finished checkpoint: the same size, a later time."""
    later = (checkpoint / MANIFEST).stat().st_mtime_ns + 1
    (checkpoint / "config.json").write_text("[]\n")
    os.utime(checkpoint / "config.json", ns=(later, later))


def test_an_output_behind_a_link_finds_its_checkpoint(make_checkpoint: MakeCheckpoint) -> None:
    """With ``out`` a link into a folder of another depth, the link leads to the checkpoint, made first and mended."""
    made = plan_of()
    checkpoint = make_checkpoint(made)
    real, out = checkpoint.parent / "a" / "b" / "c" / "engine", checkpoint.parent / "engine"
    real.parent.mkdir(parents=True)
    out.symlink_to(real)
    build(checkpoint, made, out, Silent())
    assert checkpoint.resolve() == (out / "checkpoint").resolve(strict=True)
    (out / "checkpoint").unlink()
    assert build(checkpoint, made, out, Silent()).up_to_date
    assert checkpoint.resolve() == (real / "checkpoint").resolve(strict=True)


def test_two_places_give_the_same_bytes(make_checkpoint: MakeCheckpoint) -> None:
    """No path, clock or host is in an engine."""
    made = plan_of(MOCK)
    checkpoint = make_checkpoint(made)
    near, far = checkpoint.parent / "engine", checkpoint.parent / "a" / "b" / "engine"
    build(checkpoint, made, near, Silent())
    build(checkpoint, made, far, Silent())
    assert snapshot(near) == snapshot(far)


def test_another_limit_makes_another_engine_of_the_same_checkpoint(make_checkpoint: MakeCheckpoint) -> None:
    """Limits are the engine's, not the checkpoint's."""
    checkpoint = make_checkpoint(plan_of())
    out = checkpoint.parent / "engine"
    build(checkpoint, plan_of(), out, Silent())
    again = build(checkpoint, plan_of({"limits.max_batch_size": 8}), out, Silent())
    assert not again.up_to_date
    assert 8 == open_engine(out).plan.limits.max_batch_size.value


def test_a_checkpoint_for_other_formats_is_refused_with_what_differs(make_checkpoint: MakeCheckpoint) -> None:
    """The error names the section, the key and both values."""
    checkpoint = make_checkpoint(plan_of())
    with pytest.raises(PlanDrift) as caught:
        build(checkpoint, plan_of({"quantization.kv_cache": "fp8"}), checkpoint.parent / "engine", Silent())
    assert "quantization.kv_cache (was bf16, now fp8)" in caught.value.why
    assert not (checkpoint.parent / "engine").exists()


def test_a_checkpoint_of_another_model_is_refused(make_checkpoint: MakeCheckpoint) -> None:
    """The model is one of the sections."""
    checkpoint = make_checkpoint(plan_of())
    other = settle(llama_8b().model_copy(update={"vocab": 1000}), profile(), hardware(8))
    with pytest.raises(PlanDrift, match="they differ in model"):
        build(checkpoint, other, checkpoint.parent / "engine", Silent())


def test_a_plan_with_errors_builds_nothing(make_checkpoint: MakeCheckpoint) -> None:
    """Checks come before the first byte."""
    checkpoint = make_checkpoint(plan_of())
    with pytest.raises(PlanRefused, match="PF22"):
        build(checkpoint, plan_of({"load.min_concurrency": 64}), checkpoint.parent / "engine", Silent())
    assert ["checkpoint"] == [path.name for path in checkpoint.parent.iterdir()]


def test_a_failed_step_leaves_no_half_engine(make_checkpoint: MakeCheckpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stage is removed, the log stays."""
    checkpoint = make_checkpoint(plan_of(MOCK))
    monkeypatch.setattr(shell.sys, "executable", "/bin/false")
    with pytest.raises(BuildFailed, match="mock"):
        build(checkpoint, plan_of(MOCK), checkpoint.parent / "engine", Silent())
    assert {"checkpoint", "engine.build.log"} == {path.name for path in checkpoint.parent.iterdir()}


class StopsAt(Silent):
    """Is Ctrl-C after some steps."""

    def __init__(self, steps: int) -> None:
        """Let that many steps pass."""
        self.left = steps

    def advance(self, amount: float) -> None:
        """Count the step, and interrupt after the last one."""
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_an_interrupted_build_goes_on_where_it_stopped(make_checkpoint: MakeCheckpoint, steps: int) -> None:
    """What was finished is not done again, nothing half is published, and the end is the same."""
    made = plan_of(MOCK)
    checkpoint = make_checkpoint(made)
    out, whole = checkpoint.parent / "engine", checkpoint.parent / "whole"
    with pytest.raises(KeyboardInterrupt):
        build(checkpoint, made, out, StopsAt(steps))
    assert not out.exists()
    build(checkpoint, made, whole, Silent())
    build(checkpoint, made, out, Silent())
    assert snapshot(whole) == snapshot(out)
    assert 1 == (checkpoint.parent / "engine.build.log").read_text().count("$ {python} -m")


def test_opening_gives_the_plan_and_the_checkpoint(make_checkpoint: MakeCheckpoint) -> None:
    """A reader gets all it needs from the folder alone."""
    made = plan_of()
    checkpoint = make_checkpoint(made)
    build(checkpoint, made, checkpoint.parent / "engine", Silent())
    facts = open_engine(checkpoint.parent / "engine")
    assert made == facts.plan
    assert checkpoint.resolve() == facts.checkpoint
    assert "llm-api" == facts.manifest.facts["toolchain"]


def test_an_engine_whose_checkpoint_moved_is_refused_until_it_is_built_again(make_checkpoint: MakeCheckpoint) -> None:
    """The link is checked, and a build with the new place mends it without writing files."""
    made = plan_of()
    checkpoint = make_checkpoint(made)
    out, moved = checkpoint.parent / "engine", checkpoint.parent / "elsewhere" / "checkpoint"
    build(checkpoint, made, out, Silent())
    moved.parent.mkdir()
    checkpoint.rename(moved)
    with pytest.raises(ManifestError, match=r"its link checkpoint leads to \.\./checkpoint, which is not there"):
        open_engine(out)
    assert build(moved, made, out, Silent()).up_to_date
    assert moved.resolve() == open_engine(out).checkpoint


def test_an_engine_over_another_checkpoint_is_refused(make_checkpoint: MakeCheckpoint) -> None:
    """Weights that changed under an engine are found by digest."""
    checkpoint = make_checkpoint(plan_of())
    out = checkpoint.parent / "engine"
    build(checkpoint, plan_of(), out, Silent())
    shutil.rmtree(checkpoint)
    make_checkpoint(plan_of({"quantization.kv_cache": "fp8"}))
    with pytest.raises(ManifestError, match="the engine was built from"):
        open_engine(out)


@pytest.mark.parametrize("name", ["llm_args.yaml", MANIFEST])
def test_an_engine_with_a_missing_file_is_refused(make_checkpoint: MakeCheckpoint, name: str) -> None:
    """Complete means every file of the manifest, and the manifest."""
    checkpoint = make_checkpoint(plan_of())
    out = checkpoint.parent / "engine"
    build(checkpoint, plan_of(), out, Silent())
    (out / name).unlink()
    with pytest.raises(ManifestError):
        open_engine(out)
