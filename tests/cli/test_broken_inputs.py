"""Broken inputs: three lines, the right exit code, and nothing half written, by running the installed script."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.cli import Ran, trtkit, trtkit_path
from tests.support.tiny_model import write_tiny_model

WITHOUT_ROOT_RIGHTS = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search", "--inh-caps", "-all")
"""Root without the rights to ignore permissions is an ordinary user as far as files go."""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A healthy tiny model in three shards, to be broken."""
    return write_tiny_model(tmp_path / "model", shards=3)


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """A profile under which the healthy model converts without calibration."""
    path = tmp_path / "profile.yaml"
    path.write_text(
        "base: cpu-rehearsal-smollm2\nname: plain\nquantization: {weights: bf16, kv_cache: bf16}\n"
        "limits: {max_seq_len: 512, max_num_tokens: 512}\n"
    )
    return path


def shard(model: Path, number: int = 1) -> Path:
    """Name one of the model's shards."""
    return sorted(model.glob("*.safetensors"))[number]


def truncate(model: Path) -> None:
    """Cut the last 100 bytes of a shard."""
    path = shard(model)
    os.truncate(path, path.stat().st_size - 100)


def lfs_pointer(model: Path) -> None:
    """Leave what git checks out when LFS is not installed."""
    digest = "sha256:4665d7a9d8e9b1e2d7c8a4c1f1f0a2a7b8c9d0e1f2a3b4c5d6e7f8091a2b3c4d"
    shard(model).write_text(f"version https://git-lfs.github.com/spec/v1\noid {digest}\nsize 4976698672\n")


def drop_index_entry(model: Path) -> None:
    """Forget one tensor in the index."""
    path = model / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"].pop("model.layers.1.self_attn.q_proj.weight")
    path.write_text(json.dumps(index))


def pipe(name: str) -> Callable[[Path], None]:
    """Make a breaker that puts a named pipe, which nobody writes to, in a file's place."""

    def breaker(model: Path) -> None:
        (model / name).unlink()
        os.mkfifo(model / name)

    return breaker


def drop_shard(model: Path) -> None:
    """Lose a file the index names."""
    shard(model).unlink()


def change_config(**changes: object) -> Callable[[Path], None]:
    """Make a breaker that changes keys of config.json; None removes the key."""

    def breaker(model: Path) -> None:
        path = model / "config.json"
        config = json.loads(path.read_text()) | changes
        path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))

    return breaker


BROKEN: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "truncated safetensors": (truncate, "KIT-CHECKPOINT-001", "bytes"),
    "git-LFS pointer": (lfs_pointer, "KIT-CHECKPOINT-001", "LFS"),
    "missing index entry": (drop_index_entry, "KIT-CHECKPOINT-002", "model.layers.1.self_attn.q_proj.weight"),
    "missing shard": (drop_shard, "KIT-CHECKPOINT-002", "model-00002-of-00003.safetensors"),
    "no head count": (change_config(num_attention_heads=None), "KIT-MODEL-002", "num_attention_heads"),
    "unknown architecture": (change_config(architectures=["NovaForCausalLM"]), "KIT-MODEL-003", "NovaForCausalLM"),
    "config is not JSON": (lambda model: (model / "config.json").write_text("{"), "KIT-MODEL-002", "config.json"),
    "config is a pipe": (pipe("config.json"), "KIT-MODEL-002", "it is a named pipe"),
    "shard is a pipe": (pipe("model-00002-of-00003.safetensors"), "KIT-CHECKPOINT-001", "it is a named pipe"),
    "index is a pipe": (pipe("model.safetensors.index.json"), "KIT-CHECKPOINT-002", "it is a named pipe"),
    "tokenizer is a pipe": (pipe("tokenizer.json"), "KIT-MODEL-002", "it is a named pipe"),
    "a text no file can hold": (change_config(_name_or_path="\ud800"), "KIT-MODEL-002", "surrogate"),
    "a number no float can hold": (change_config(rope_theta=10**400), "KIT-MODEL-002", "rope_theta"),
    "eos outside the vocabulary": (change_config(eos_token_id=272), "KIT-MODEL-002", "eos_token_id"),
    "config is absent": (lambda model: (model / "config.json").unlink(), "KIT-MODEL-002", "config.json"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_model_is_refused_and_nothing_is_left(tmp_path: Path, model: Path, profile: Path, fault: str) -> None:
    """The error names the culprit and nothing but the inputs remains."""
    breaker, code, culprit = BROKEN[fault]
    breaker(model)

    ran = trtkit("convert", model, "--profile", profile, "--out", tmp_path / "out")

    assert_refused(ran, 3, code)
    assert culprit in ran.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "profile.yaml"]


def test_a_profile_with_tabs_is_refused_with_its_line(tmp_path: Path, model: Path) -> None:
    """YAML forbids tabs for indentation; the message says which line has one."""
    wrong = tmp_path / "tabs.yaml"
    wrong.write_text("schema_version: 1\nname: t\nlimits:\n\tmax_batch_size: 4\n")

    ran = trtkit("convert", model, "--profile", wrong, "--out", tmp_path / "out")

    assert_refused(ran, 2, "KIT-PROFILE-001")
    assert "tabs.yaml:4" in ran.err
    assert "tab" in ran.err
    assert not (tmp_path / "out").exists()


def test_a_profile_that_is_a_pipe_is_refused_and_one_handed_over_is_read(tmp_path: Path, model: Path) -> None:
    """A forgotten pipe would keep a deployment waiting for ever; a process substitution ends."""
    os.mkfifo(tmp_path / "pipe.yaml")
    ran = trtkit("plan", model, "--profile", tmp_path / "pipe.yaml", timeout=20)
    assert_refused(ran, 2, "KIT-PROFILE-002")
    assert "that is a named pipe" in ran.err

    text = "base: cpu-rehearsal-smollm2\nname: piped\nlimits: {max_seq_len: 512, max_num_tokens: 512}\n"
    assert trtkit("plan", model, "--profile", "/dev/stdin", timeout=20, input=text).code == 0


@pytest.mark.parametrize("locked", ["folder", "shard"])
def test_a_model_this_user_cannot_read_is_refused(tmp_path: Path, model: Path, profile: Path, locked: str) -> None:
    """Permission denied is said as such, with the path."""
    path = model if locked == "folder" else shard(model)
    path.chmod(0)
    try:
        ran = unprivileged("convert", model, "--profile", profile, "--out", tmp_path / "out")
    finally:
        path.chmod(0o700)

    assert_refused(ran, 3, "KIT-ARTIFACT-003")
    assert path.name in ran.err
    assert not (tmp_path / "out").exists()


def test_an_output_folder_this_user_cannot_write_is_refused(tmp_path: Path, model: Path, profile: Path) -> None:
    """The output's parent is named, and nothing appears in it."""
    parent = tmp_path / "readonly"
    parent.mkdir()
    parent.chmod(0o500)
    try:
        ran = unprivileged("convert", model, "--profile", profile, "--out", parent / "out")
    finally:
        parent.chmod(0o700)

    assert_refused(ran, 3, "KIT-ARTIFACT-003")
    assert not list(parent.iterdir())


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    if os.geteuid() != 0:
        pytest.skip("SKIPPED: mounting a small file system needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", disk], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"SKIPPED: this machine does not let root mount: {done.stderr.decode().strip()}")
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_no_space_left_is_said_with_the_numbers_and_leaves_nothing(
    small_disk: Path, model: Path, profile: Path
) -> None:
    """The check before the first byte compares what is needed with what is free."""
    ran = trtkit("convert", model, "--profile", profile, "--out", small_disk / "out")

    assert_refused(ran, 3, "KIT-ARTIFACT-003")
    assert "needed" in ran.err
    assert "free" in ran.err
    assert not list(small_disk.iterdir())


def test_a_failed_convert_leaves_the_older_checkpoint_untouched(tmp_path: Path, model: Path, profile: Path) -> None:
    """What was there before a failure is there after it, byte for byte."""
    out = tmp_path / "out"
    assert trtkit("convert", model, "--profile", profile, "--out", out).code == 0
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    truncate(model)

    ran = trtkit("convert", model, "--profile", profile, "--out", out)

    assert_refused(ran, 3, "KIT-CHECKPOINT-001")
    assert before == {path.name: path.read_bytes() for path in out.iterdir()}


def test_every_later_stage_refuses_the_wrong_folder(tmp_path: Path, model: Path, profile: Path) -> None:
    """A model is not a checkpoint, a checkpoint is not an engine; nothing is made of either."""
    checkpoint = tmp_path / "checkpoint"
    assert trtkit("convert", model, "--profile", profile, "--out", checkpoint).code == 0

    for verb, folder in (("build", model), ("deploy", checkpoint), ("build", tmp_path / "absent")):
        ran = trtkit(verb, folder, "--profile", profile, "--out", tmp_path / "made")
        assert ran.code == 3
        assert ran.err.startswith("error[KIT-")
        assert not (tmp_path / "made").exists()


def assert_refused(ran: Ran, exit_code: int, code: str) -> None:
    """Check the form of an error: what, why, try; its codes; no traceback; nothing on stdout."""
    lines = ran.err.splitlines()
    assert (exit_code, "") == (ran.code, ran.out), ran.err
    assert lines[0].startswith(f"error[{code}]: ")
    assert lines[1].startswith("  because: ")
    assert lines[-1].startswith("  try: ")


def unprivileged(*arguments: str | Path) -> Ran:
    """Run the command without root's right to ignore permissions."""
    if os.geteuid() != 0:
        return trtkit(*arguments)
    if shutil.which("setpriv") is None:
        pytest.skip("SKIPPED: root needs setpriv (util-linux) to run without its rights")
    command = [*WITHOUT_ROOT_RIGHTS, trtkit_path(), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return Ran(done.returncode, done.stdout, done.stderr)


def test_a_checkpoint_that_is_not_there_is_called_that(tmp_path: Path) -> None:
    """A folder that is missing is not said to lack a file."""
    ran = trtkit("build", tmp_path / "gone", "-p", "h200x8-offline", "--out", tmp_path / "out")
    assert 3 == ran.code
    assert "because: there is no folder of that name" in ran.err
