"""``trtkit deploy --target`` with the installed command: folders beside the repository, changes, refusals."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import Ran, trtkit
from tests.support.road import profile_text
from tests.support.tiny_model import write_tiny_model
from trtllm_kit.build.engine import build
from trtllm_kit.checkpoint.convert import convert
from trtllm_kit.plan.decide import make_plan
from trtllm_kit.progress import Silent
from trtllm_kit.spec.load import hardware_for, load_model, load_profile


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the engine of a tiny model, with the profile it was made under beside it."""
    base = tmp_path_factory.mktemp("made")
    text = profile_text("tiny", "cpu-rehearsal-simulated") + "deploy: {image: registry.example.com/trtkit:1}\n"
    (base / "profile.yaml").write_text(text)
    loaded = load_profile(str(base / "profile.yaml"))
    plan = make_plan(load_model(write_tiny_model(base / "model")), loaded, hardware_for(loaded.profile))
    convert(base / "model", plan, base / "checkpoint", Silent())
    build(base / "checkpoint", plan, base / "engine", Silent())
    return base / "engine"


@pytest.fixture
def place(engine: Path, tmp_path: Path) -> Path:
    """Give a folder with a way to the engine and a profile of its own."""
    (tmp_path / "engine").symlink_to(engine)
    (tmp_path / "profile.yaml").write_text(engine.with_name("profile.yaml").read_text())
    return tmp_path


def deploy(place: Path, *arguments: str, env: dict[str, str] | None = None) -> Ran:
    """Run the verb."""
    return trtkit("deploy", place / "engine", "-p", place / "profile.yaml", "-o", place / "repo", *arguments, env=env)


def states(ran: Ran, target: str) -> dict[str, str]:
    """Return the state of each file of a target."""
    (found,) = (one for one in ran.json["targets"] if one["target"] == target)
    return {row["path"]: row["state"] for row in found["files"]}


@pytest.fixture
def ready(place: Path) -> Path:
    """Give a folder after a first deploy to two targets."""
    ran = deploy(place, "--target", "kubernetes", "--target", "local", "--json")
    assert 0 == ran.code, ran.err
    assert {"new"} == set(states(ran, "kubernetes").values())
    return place


def test_targets_are_folders_beside_the_repository(ready: Path) -> None:
    """Each is named after the repository and itself, and says how it is applied."""
    ran = deploy(ready, "--target", "kubernetes", "--target", "local", "--json")
    folders = {one["target"]: (one["folder"], one["apply"]) for one in ran.json["targets"]}
    assert (str(ready / "repo.local"), ["sh", f"{ready}/repo.local/container.sh"]) == folders["local"]
    assert (str(ready / "repo.kubernetes"), ["sh", f"{ready}/repo.kubernetes/apply.sh"]) == folders["kubernetes"]
    assert (ready / "repo.kubernetes/servers.yaml").is_file()
    assert {"same"} == set(states(ran, "local").values()) == set(states(ran, "kubernetes").values())


def test_a_changed_profile_shows_and_changes_what_differs(ready: Path) -> None:
    """Of a longer start only the files that speak of it change, with the lines; the others keep their time."""
    times = {path.name: path.stat().st_mtime_ns for path in (ready / "repo.kubernetes").iterdir()}
    profile = ready / "profile.yaml"
    profile.write_text(profile.read_text().replace("token_seconds: 5ms", "token_seconds: 5ms, start_grace: 1234s"))
    ran = deploy(ready, "--target", "kubernetes")
    assert 0 == ran.code
    assert "+          failureThreshold: 124" in ran.out
    assert "changed: trtkit-plan.json" in ran.out
    after = {path.name: path.stat().st_mtime_ns for path in (ready / "repo.kubernetes").iterdir()}
    written = {name for name in times if times[name] != after[name]}
    assert {"servers.yaml", "monitoring.yaml", "trtkit-manifest.json"} == written


@pytest.mark.parametrize("path", ["repo.kubernetes/service.yaml", "repo/tensorrt_llm/config.pbtxt"])
def test_what_a_person_changed_is_not_written_again(ready: Path, path: str) -> None:
    """A change of a person ends the run with 1, before anything is written; --force gives it up."""
    (ready / path).write_text("mine\n")
    refused = deploy(ready, "--target", "kubernetes", "--json")
    assert (1, "KIT-ARTIFACT-005") == (refused.code, refused.json["error"]["code"])
    assert "mine\n" == (ready / path).read_text()
    shown = deploy(ready, "--target", "kubernetes", "--dry-run")
    assert (0, True) == (shown.code, "edited" in shown.out)
    assert "mine\n" == (ready / path).read_text()
    assert 0 == deploy(ready, "--target", "kubernetes", "--force").code
    assert "mine\n" != (ready / path).read_text()


@pytest.mark.parametrize("dry", [(), ("--dry-run",)], ids=["run", "dry"])
def test_a_dry_run_refuses_what_the_run_would(place: Path, engine: Path, dry: tuple[str, ...]) -> None:
    """A checkpoint in the place of the engine, and an engine of another plan, are refused alike."""
    (place / "engine").unlink()
    (place / "engine").symlink_to(engine.with_name("checkpoint"))
    ran = deploy(place, *dry)
    assert (3, True) == (ran.code, "is not the engine asked for but of kind checkpoint" in ran.err)

    (place / "engine").unlink()
    (place / "engine").symlink_to(engine)
    text = (place / "profile.yaml").read_text()
    (place / "profile.yaml").write_text(text.replace("max_num_tokens: 512", "max_num_tokens: 256"))
    ran = deploy(place, *dry)
    assert (1, True) == (ran.code, "max_num_tokens (was " in ran.err), ran.err
    assert not (place / "repo").exists()


def test_a_dry_run_writes_nothing(place: Path) -> None:
    """It shows every file of every target, and makes no folder."""
    ran = deploy(place, "--target", "slurm", "--dry-run", "--json")
    assert (0, {"serve.sbatch": "new"}) == (ran.code, states(ran, "slurm"))
    assert not list(place.glob("repo*"))


def test_what_cannot_be_deployed_writes_nothing(place: Path) -> None:
    """A target that the profile does not suit is refused with its keys, and no repository is made either."""
    ran = deploy(place, "--target", "dynamo", "--json")
    assert (2, "KIT-PROFILE-001") == (ran.code, ran.json["error"]["code"])
    assert any("deploy.dynamo_image" in problem for problem in ran.json["error"]["problems"])
    assert not (place / "repo").exists()


def test_an_unknown_target_is_a_usage_error(place: Path) -> None:
    """The targets that there are stand in the message."""
    ran = deploy(place, "--target", "k8s")
    assert (2, True) == (ran.code, "local, mpirun, slurm, kubernetes, dynamo, monitoring" in ran.err)


def test_targets_can_be_put_elsewhere(place: Path) -> None:
    """With a folder of their own they find the repository from there."""
    ran = deploy(place, "--target", "local", "--target-out", str(place / "deep/er"), "--json")
    assert 0 == ran.code
    assert "/../../../repo" in (place / "deep/er/local/tritonserver.sh").read_text()


def test_nothing_new_is_silence_for_cron(ready: Path) -> None:
    """An unattended run that changes nothing says nothing; one that changes a target says it in a line."""
    arguments = ("--target", "kubernetes", "--target", "local", "--unattended")
    ran = deploy(ready, *arguments)
    assert (0, "", "") == (ran.code, ran.out, ran.err)
    (ready / "repo.local/container.sh").unlink()
    assert 1 == len(deploy(ready, *arguments).out.splitlines())


def manifest(ready: Path) -> Any:
    """Read the manifest of a target."""
    return json.loads((ready / "repo.kubernetes/trtkit-manifest.json").read_text())


def test_the_manifest_says_what_it_is_of(ready: Path) -> None:
    """A reader of the folder knows the target and the hash of each file."""
    found = manifest(ready)
    assert ("target", {"target": "kubernetes"}) == (found["kind"], found["facts"])
    assert {"apply.sh", "files.yaml", "servers.yaml"} <= {entry["path"] for entry in found["files"]}


def test_a_start_without_its_secrets_is_refused_before_anything_is_written(place: Path) -> None:
    """The variable is named, and no repository is there."""
    profile = place / "profile.yaml"
    profile.write_text(profile.read_text().replace("deploy: {", "deploy: {secret_environment: {KIT_TOKEN: a/b}, "))

    ran = deploy(place, "--start")

    assert (2, False) == (ran.code, (place / "repo").exists())
    assert "KIT_TOKEN: not set here" in ran.err


def test_a_start_of_one_of_several_servers_says_so(place: Path) -> None:
    """The log counts the servers and names what starts the others; one server alone is not counted."""
    nowhere = dict(os.environ) | {"TRITONSERVER": str(place / "none")}
    text = (place / "profile.yaml").read_text() + "hardware: h200x8-700w\n"
    (place / "profile.yaml").write_text(text)
    alone = deploy(place, "--start", env=nowhere)
    (place / "profile.yaml").write_text(text + "parallelism: {tensor: 1, replicas: 2}\n")
    several = deploy(place, "--start", env=nowhere)

    assert [True, True] == ["$TRITONSERVER is" in ran.err for ran in (alone, several)]
    assert [False, True] == ["--start starts one of 2 servers; a --target" in ran.err for ran in (alone, several)]
