"""``trtkit build`` with the strict stand-in for ``trtllm-build`` on PATH, release by release and failure by failure."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.build.test_shell import gone
from tests.support.cli import trtkit, trtkit_path
from tests.support.standin.install import installed
from tests.support.tiny_model import write_tiny_model

PROFILE = """\
name: engines
base: h200x8-offline
trtllm_version: "{release}"
limits: {{max_seq_len: 512, max_num_tokens: 512, max_batch_size: 8}}
load: {{input_tokens: 256, output_tokens: 256, min_concurrency: 4}}
parallelism: {{tensor: 4, pipeline: 1, replicas: 1}}
calibration: {{samples: 2, tokens_per_sample: 64}}
{more}
"""
RELEASES = ("0.12.0", "0.13.0", "0.16.0", "0.18.2", "0.19.0", "1.2.1")


def write_profile(folder: Path, release: str, more: str = "") -> Path:
    """Write a profile of that release; engines are asked for where the PyTorch backend would be taken."""
    path = folder / f"{release}.yaml"
    path.write_text(PROFILE.format(release=release, more=f"toolchain: trtllm-build\n{more}"))
    return path


@pytest.fixture(scope="module", name="model")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model whose heads eight ranks can share."""
    base = tmp_path_factory.mktemp("engines")
    write_tiny_model(base / "model", "llama", num_attention_heads=8, num_hidden_layers=4)
    return base / "model"


@pytest.fixture(scope="module", name="checkpoint")
def checkpoint_of_one_release(model: Path) -> Path:
    """The model converted for 0.18.2."""
    return converted(model, model.parent, "0.18.2")


def converted(model: Path, folder: Path, release: str, more: str = "") -> Path:
    """Convert the model for a release and return the checkpoint."""
    out = folder / f"checkpoint-{release}"
    ran = trtkit("convert", model, "-p", write_profile(folder, release, more), "--out", out)
    assert 0 == ran.code, ran.err
    return out


def engine_config(engine: Path) -> dict[str, Any]:
    """Read an engine's config.json."""
    document: dict[str, Any] = json.loads((engine / "config.json").read_text())
    return document


@pytest.mark.parametrize("release", RELEASES)
def test_a_release_takes_every_option_and_leaves_an_engine(model: Path, tmp_path: Path, release: str) -> None:
    """Its own options alone are passed, its limits are those of the profile, and a second run has nothing to do."""
    checkpoint = converted(model, tmp_path, release)
    command = ("build", checkpoint, "-p", tmp_path / f"{release}.yaml", "--out", tmp_path / "engine", "--json")
    environment = installed(tmp_path / "bin", release)
    first, second = trtkit(*command, env=environment), trtkit(*command, env=environment)
    assert (0, False) == (first.code, first.json["up_to_date"]), first.err
    assert (0, True) == (second.code, second.json["up_to_date"]), second.err
    assert {f"rank{rank}.engine" for rank in range(4)} == {path.name for path in (tmp_path / "engine").glob("*.engine")}
    build = engine_config(tmp_path / "engine")["build_config"]
    limits = {"max_seq_len": 512, "max_num_tokens": 512, "max_batch_size": 8, "max_input_len": 512}
    assert limits.items() <= build.items()
    assert "Engine serialized" in (tmp_path / "engine.build.log").read_text()


def test_the_manifest_tells_what_the_engine_was_built_with(checkpoint: Path, tmp_path: Path) -> None:
    """Release, GPU, ranks and every option are there, and no clock or path."""
    run_build(checkpoint, tmp_path, "0.18.2")
    facts = json.loads((tmp_path / "engine" / "trtkit-manifest.json").read_text())["facts"]
    assert {"release": "0.18.2", "world_size": 4, "toolchain": "trtllm-build"}.items() <= facts.items()
    assert 90 == facts["compute_capability"]
    assert 8 == facts["options"]["--max_batch_size"]


def run_build(checkpoint: Path, folder: Path, release: str, more: str = "", **settings: str) -> Any:
    """Build with the stand-in of that release."""
    profile = write_profile(folder, "0.18.2", more)
    environment = installed(folder / "bin", release, **settings)
    return trtkit("build", checkpoint, "-p", profile, "--out", folder / "engine", env=environment)


FAILED = {
    "oom_at_rank_3": ("24793579520 bytes", "lower limits.max_batch_size"),
    "killed_at_60_percent": ("the machine had no memory left", "build.options.workers: 1"),
    "wrong_dtype": ("another type than the checkpoint's weights", "leave gemm_plugin"),
    "disk_full": ("the disk is full", "free space"),
    "no_engine": ("TensorRT made no engine", "first [E] in the log"),
    "silent": ("left no config.json, rank0.engine", "engine.build.log"),
}


@pytest.mark.parametrize("failure", FAILED)
def test_a_failure_is_told_with_cause_and_fix_and_leaves_no_engine(
    checkpoint: Path, tmp_path: Path, failure: str
) -> None:
    """The error has a code of its own, the log is kept, and the next build makes the engine."""
    ran = run_build(checkpoint, tmp_path, "0.18.2", fail=failure)
    cause, fix = FAILED[failure]
    assert 3 == ran.code
    assert cause in ran.err
    assert fix in ran.err
    assert not (tmp_path / "engine").exists()
    assert (tmp_path / "engine.build.log").is_file()
    assert 0 == run_build(checkpoint, tmp_path, "0.18.2").code


def test_a_builder_of_another_release_is_named_as_the_cause(checkpoint: Path, tmp_path: Path) -> None:
    """0.13 has no --user_buffer: its refusal names the option and says what to compare."""
    ran = run_build(checkpoint, tmp_path, "0.13.0")
    assert 3 == ran.code
    assert "--user_buffer" in ran.err
    assert "it is of another release than the profile names" in ran.err


def test_a_build_past_its_time_is_ended_with_its_children(checkpoint: Path, tmp_path: Path) -> None:
    """The time limit of the profile ends the builder and what it started."""
    pids = tmp_path / "pids"
    ran = run_build(checkpoint, tmp_path, "0.18.2", "build: {timeout: 4 s}", fail="hang", pids=str(pids))
    assert 3 == ran.code
    assert "stopped after 4.00 s" in ran.err
    assert all(gone(int(pid)) for pid in pids.read_text().split())


def test_an_interrupt_ends_the_builder_and_its_children(checkpoint: Path, tmp_path: Path) -> None:
    """Ctrl-C leaves no process and no engine."""
    pids = tmp_path / "pids"
    environment = installed(tmp_path / "bin", "0.18.2", fail="hang", pids=str(pids))
    command = [trtkit_path(), "build", str(checkpoint), "-p", str(write_profile(tmp_path, "0.18.2")),
               "--out", str(tmp_path / "engine")]  # fmt: skip
    running = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    while not pids.exists() or not pids.read_text():
        assert running.poll() is None
        time.sleep(0.05)
    os.kill(running.pid, signal.SIGINT)
    assert 0 != running.wait(60)
    assert all(gone(int(pid)) for pid in pids.read_text().split())
    assert not (tmp_path / "engine").exists()


def test_a_draft_model_is_built_beside_the_model(model: Path, checkpoint: Path, tmp_path: Path) -> None:
    """The target takes drafts, the draft takes none, and the manifest has the digests of both checkpoints."""
    write_tiny_model(tmp_path / "small", "llama", num_attention_heads=8, num_hidden_layers=2)
    single = "parallelism: {tensor: 4, pipeline: 1, replicas: 1}"
    assert single in PROFILE.format(release="", more="")
    draft = converted(tmp_path / "small", tmp_path, "0.18.2")
    speculation = f"speculation: {{kind: draft_target, draft_tokens: 3, draft_checkpoint: {draft}}}"
    ran = run_build(checkpoint, tmp_path, "0.18.2", speculation)
    assert 0 == ran.code, ran.err
    target, drafts = engine_config(tmp_path / "engine"), engine_config(tmp_path / "engine" / "draft")
    assert (2, 1) == tuple(one["build_config"]["speculative_decoding_mode"] for one in (target, drafts))
    assert (3, 0) == tuple(one["build_config"]["max_draft_len"] for one in (target, drafts))
    assert (4, 2) == tuple(one["pretrained_config"]["num_hidden_layers"] for one in (target, drafts))
    inputs = json.loads((tmp_path / "engine" / "trtkit-manifest.json").read_text())["inputs"]
    assert {"checkpoint", "draft", "plan"} == set(inputs)
    assert {"draft.cache", "model.cache"} == {path.name for path in (tmp_path / "engine").glob("*.cache")}


def test_a_template_runs_the_builder_as_it_says(checkpoint: Path, tmp_path: Path) -> None:
    """The operator's own words stand before the builder's, and the places are filled in."""
    more = 'build: {runner: template, template: [env, "PLACE={engine}", "{command}"]}'
    ran = run_build(checkpoint, tmp_path, "0.18.2", more)
    assert 0 == ran.code, ran.err
    assert (tmp_path / "engine" / "rank3.engine").is_file()


DOCKER = """\
#!/bin/sh
echo "$@" >> "$DOCKER_LOG"
[ "$1" = run ] || exit 0
while [ "$1" != an/image:1 ]; do
  [ "$1" = --workdir ] && cd "$2"
  shift
done
shift
exec "$@"
"""
"""Stands in for Docker: notes how it was called and runs the command after the image here."""


def test_docker_gets_the_folders_the_variables_and_the_command(checkpoint: Path, tmp_path: Path) -> None:
    """The engine folder can be written, the checkpoint cannot, and the container is removed at the end."""
    environment = installed(tmp_path / "bin", "0.18.2") | {"DOCKER_LOG": str(tmp_path / "docker.log")}
    docker = tmp_path / "bin" / "docker"
    docker.write_text(DOCKER)
    docker.chmod(0o755)
    profile = write_profile(tmp_path, "0.18.2", 'build: {runner: docker, image: "an/image:1"}\nenvironment: {A: "1"}')
    ran = trtkit("build", checkpoint, "-p", profile, "--out", tmp_path / "engine", env=environment)
    assert 0 == ran.code, ran.err
    started, removed = (tmp_path / "docker.log").read_text().splitlines()
    stage = tmp_path / ".engine.partial"
    assert f"--volume {stage}:{stage} --volume {checkpoint}:{checkpoint}:ro --workdir {stage} --env A=1" in started
    assert removed.startswith("rm --force trtkit-build-")
