"""``trtkit engines`` and ``trtkit build --store`` as installed, with the stand-in for ``trtllm-build`` on PATH."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.build.test_explain import write_engine
from tests.build.test_trtllm_build_cli import PROFILE
from tests.support.cli import Ran, trtkit
from tests.support.standin.install import installed
from tests.support.tiny_model import write_tiny_model
from trtllm_kit.build.store import note_use_of
from trtllm_kit.serve.launch import backend_config
from trtllm_kit.serve.run_record import RecordedUrls, RunRecord, write_record


@pytest.fixture(scope="module", name="template")
def template_with_a_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make two checkpoints of one model, for two releases, and a store with the engine of one of them."""
    root = tmp_path_factory.mktemp("template")
    write_tiny_model(root / "model", "llama", num_attention_heads=8, num_hidden_layers=4)
    for release in ("0.18.1", "0.18.2"):
        write_profile(root, release)
        ran = trtkit("convert", root / "model", "-p", root / f"{release}.yaml", "--out", root / release)
        assert 0 == ran.code, ran.err
    assert 0 == build(root, "0.18.1", "engine").code
    return root


@pytest.fixture(name="root")
def copy_of_the_template(template: Path, tmp_path: Path) -> Path:
    """Return a folder that a test may spoil; nothing uses the engine of its store."""
    shutil.copytree(template, tmp_path / "root", symlinks=True)
    shutil.rmtree(tmp_path / "root" / "store" / "uses")
    return tmp_path / "root"


def write_profile(root: Path, release: str, more: str = "") -> None:
    """Write a profile of that release."""
    text = PROFILE.format(release=release, more=f"toolchain: trtllm-build\n{more}")
    (root / f"{release}.yaml").write_text(text)


def build(root: Path, release: str, out: str, *more: str, driver: str = "570", fail: str = "") -> Ran:
    """Build with the store under a class of driver."""
    environment = installed(root / "bin", release, fail=fail) | {
        "TRTKIT_DRIVER_CLASS": driver,
        "TRTKIT_ENGINE_STORE": str(root / "store"),
    }
    arguments: tuple[str | Path, ...] = (
        "build",
        root / release,
        "-p",
        root / f"{release}.yaml",
        "--out",
        root / out,
        *more,
    )
    return trtkit(*arguments, env=environment)


def test_a_second_build_of_one_key_runs_no_builder(root: Path) -> None:
    """The builder on PATH would fail; it is told where the engine was taken from."""
    ran = build(root, "0.18.1", "again", "--json", fail="no_engine")
    assert 0 == ran.code, ran.err
    assert ran.json["taken_from"].startswith(str(root / "store"))
    assert (root / "engine" / "rank3.engine").read_bytes() == (root / "again" / "rank3.engine").read_bytes()


def test_an_engine_of_another_release_is_built_and_the_nearest_is_told(root: Path) -> None:
    """The release differs, so nothing is taken."""
    ran = build(root, "0.18.2", "other", "--json")
    assert 0 == ran.code, ran.err
    assert "taken_from" not in ran.json
    assert "an engine is there for release 0.18.1, this asks 0.18.2" in ran.err


def test_an_engine_of_another_driver_is_built_and_that_is_told(root: Path) -> None:
    """A compiled engine is kept apart by the class of the driver."""
    ran = build(root, "0.18.1", "other", "--json", driver="580")
    assert 0 == ran.code, ran.err
    assert "taken_from" not in ran.json
    assert "an engine is there for driver 570, this asks 580" in ran.err


def test_a_failed_build_leaves_nothing_in_the_store_but_its_mark(root: Path) -> None:
    """Its log stands beside the output, where a build without a store leaves it."""
    shutil.rmtree(root / "store")
    ran = build(root, "0.18.1", "new", fail="oom_at_rank_3")
    assert 3 == ran.code
    assert ["trtkit-store.json"] == [path.name for path in (root / "store").iterdir()]
    assert not (root / "new").exists()
    assert "24793579520 bytes" in (root / "new.build.log").read_text()


def test_explain_says_in_which_field_an_engine_is_not_that_of_a_profile(root: Path) -> None:
    """Exit 1 with the field and both values; exit 0 for the profile it was built with."""
    environment = os.environ | {"TRTKIT_DRIVER_CLASS": "570"}
    same = trtkit("engines", "explain", root / "engine", "--for", root / "0.18.1.yaml", "--json", env=environment)
    assert (0, []) == (same.code, same.json["differences"])
    write_profile(root, "0.18.1", "build: {options: {multiple_profiles: enable}}")
    other = trtkit("engines", "explain", root / "engine", "--for", root / "0.18.1.yaml", "--json", env=environment)
    assert 1 == other.code
    assert {"field": "build.options.--multiple_profiles", "there": "disable", "asked": "enable"} in other.json[
        "differences"
    ]


def test_explain_of_our_engine_says_where_it_runs(root: Path) -> None:
    """GPU and driver stand in the manifest alone."""
    told = trtkit("engines", "explain", root / "engine", "--json").json
    assert ("0.18.1", "570", "compiled") == (told["built_by"]["release"], told["built_by"]["driver"], told["kind"])
    assert "compute capability 9.0 (NVIDIA H200 SXM 141GB)" == told["runs_on"]["gpu"]


def test_explain_compares_anyones_engine_with_a_profile(root: Path) -> None:
    """What config.json does not tell is a difference: the GPU that built it."""
    folder = write_engine(root / "anyone", "0.16.0")
    ran = trtkit("engines", "explain", folder, "--for", root / "0.18.1.yaml", "--json")
    found = {one["field"]: (one["there"], one["asked"]) for one in ran.json["differences"]}
    assert 1 == ran.code
    assert ("0.16.0", "0.18.1") == found["release"]
    assert ("not recorded", "90") == found["compute_capability"]
    assert ("2", "4") == found["parallelism.tensor"]
    assert "limits.max_beam_width" not in found


def test_explain_as_text_has_a_heading_for_each_part(root: Path) -> None:
    """The same as the object, for reading."""
    ran = trtkit("engines", "explain", write_engine(root / "anyone", "1.2.1"))
    assert 0 == ran.code
    assert ["built by", "model", "quantization", "limits", "options", "runs on", "files"] == [
        part.splitlines()[0] for part in ran.out.split("\n\n")[1:]
    ]


def test_verify_finds_a_flipped_bit_in_a_store_and_in_an_engine(root: Path) -> None:
    """Exit 1 with file, size and hash expected and found; exit 0 before."""
    assert (0, True) == ((ran := trtkit("engines", "verify", root / "store", "--json")).code, ran.json["sound"])
    for folder in (root / "store" / entry(root), root / "engine"):
        path = folder / "rank2.engine"
        data = bytearray(path.read_bytes())
        data[9] ^= 16
        path.write_bytes(data)
        ran = trtkit("engines", "verify", folder, "--json")
        ((damage,),) = (one["damaged"] for one in ran.json["folders"])
        assert (1, "rank2.engine", len(data)) == (ran.code, damage["path"], damage["found_bytes"])
        assert damage["sha256"] != damage["found_sha256"]
    assert 1 == trtkit("engines", "verify", root / "store").code


def entry(root: Path) -> str:
    """Return the key of the only engine of the store."""
    (found,) = trtkit("engines", "list", root / "store", "--json").json["engines"]
    return str(found["key"])


def test_verify_reads_the_checkpoint_when_asked(root: Path) -> None:
    """A flipped bit in a weight file of the input is found with --inputs alone."""
    path = root / "0.18.1" / "rank1.safetensors"
    found = path.stat()
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert 0 == trtkit("engines", "verify", root / "engine").code
    ran = trtkit("engines", "verify", root / "engine", "--inputs", "--json")
    assert (1, [[], ["rank1.safetensors"]]) == (
        ran.code,
        [[one["path"] for one in folder["damaged"]] for folder in ran.json["folders"]],
    )


def test_prune_shows_and_then_frees(root: Path) -> None:
    """The engine in use stays and says why; without its output it goes, and a dry run changes nothing."""
    build(root, "0.18.1", "used")
    command = ("engines", "prune", root / "store", "--unused", "--json")
    (kept,) = trtkit(*command).json["engines"]
    assert f"{root / 'used'} was made from it" == kept["stays"]
    shutil.rmtree(root / "used")
    before = entry(root)
    assert kept["bytes"] == trtkit(*command, "--dry-run").json["freed_bytes"]
    assert before == entry(root)
    ran = trtkit(*command)
    assert kept["bytes"] == ran.json["freed_bytes"]
    assert [] == trtkit("engines", "list", root / "store", "--json").json["engines"]


def test_prune_wants_to_be_told_what_may_go(root: Path) -> None:
    """A bare prune is a usage error, so that nobody empties a store by accident."""
    ran = trtkit("engines", "prune", root / "store")
    assert (2, "KIT-USAGE-001") == (ran.code, ran.err.partition("[")[2].partition("]")[0])


@pytest.fixture(name="server")
def process_with_the_mark_of_a_server() -> Iterator[subprocess.Popen[bytes]]:
    """Start a process that bears the mark by which a server is found."""
    words = [sys.executable, "-c", "import time; time.sleep(600)", backend_config("trtkit_engines_test_")]
    process = subprocess.Popen(words)
    yield process
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_prune_leaves_what_is_served(root: Path, server: subprocess.Popen[bytes]) -> None:
    """The record of a running server beside a repository that was made from an engine of the store protects it."""
    key = entry(root)
    repository = root / "repository"
    note_use_of(root / "store" / key, repository)
    write_record(repository, record(server.pid))
    (kept,) = trtkit("engines", "prune", root / "store", "--unused", "--json").json["engines"]
    assert f"process {server.pid} serves {repository}" == kept["stays"]
    (root / "repository.run.json").write_text("{")
    (unknown,) = trtkit("engines", "prune", root / "store", "--unused", "--json").json["engines"]
    assert unknown["stays"].startswith(f"whether {repository} is served cannot be known")
    write_record(repository, record(server.pid))
    server.kill()
    server.wait()
    (gone,) = trtkit("engines", "prune", root / "store", "--unused", "--json").json["engines"]
    assert "" == gone["stays"]


def record(pid: int) -> RunRecord:
    """Return what a running server leaves beside its repository."""
    return RunRecord(
        pid=pid,
        started_at=0.0,
        urls=RecordedUrls(http="", grpc="", metrics=""),
        shm_prefix="trtkit_engines_test_",
        log="",
        workspace="",
    )


@pytest.mark.parametrize("out", ["store", "store/within", "."])
def test_output_and_store_lie_apart(root: Path, out: str) -> None:
    """Neither may be swapped, or pruned, with the other."""
    ran = build(root, "0.18.1", out)
    assert (2, True) == (ran.code, "lie in each other" in ran.err)


BAD: dict[str, tuple[Any, int]] = {
    "list of no store": (("engines", "list", "model"), 3),
    "prune of no store": (("engines", "prune", "engine", "--unused"), 3),
    "explain of no engine": (("engines", "explain", "model"), 3),
    "explain of nothing": (("engines", "explain", "absent"), 3),
    "verify of a foreign engine": (("engines", "verify", "anyone"), 3),
    "prune by no duration": (("engines", "prune", "store", "--older-than", "soon"), 2),
    "prune by a negative count": (("engines", "prune", "store", "--keep", "-1"), 2),
}


@pytest.mark.parametrize("name", BAD)
def test_a_wrong_folder_or_word_is_told_in_three_lines(root: Path, name: str) -> None:
    """Code, reason and one thing to try; nothing is removed."""
    arguments, code = BAD[name]
    write_engine(root / "anyone", "1.2.1")
    before = sorted(root.rglob("*"))
    ran = trtkit(*arguments, cwd=root)
    assert (code, 3) == (ran.code, len(ran.err.strip().splitlines())), ran.err
    assert before == sorted(root.rglob("*"))


def test_list_tells_what_uses_an_engine(root: Path) -> None:
    """Who took it, and what the manifest of what was taken says too."""
    build(root, "0.18.1", "used")
    (found,) = trtkit("engines", "list", root / "store", "--json").json["engines"]
    assert [f"{root / 'used'} was made from it"] == found["used_by"]
    assert "0.18.1" == found["facts"]["release"]
    manifest = json.loads((root / "used" / "trtkit-manifest.json").read_text())
    assert manifest["inputs"] == found["inputs"]


def test_list_names_an_engine_that_cannot_be_read(root: Path) -> None:
    """What takes room in the store is told, and why nothing can be said of it."""
    key = entry(root)
    (root / "store" / key / "trtkit-manifest.json").write_text("{")
    ran = trtkit("engines", "list", root / "store", "--json")
    assert ([], [key]) == (ran.json["engines"], list(ran.json["unreadable"]))
    assert f"unreadable: {key[:12]}, which engines prune can remove: " in trtkit("engines", "list", root / "store").out
