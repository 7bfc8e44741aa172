"""Every shipped profile on every target: ready files, or a refusal with the key that makes them so."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.plan.conftest import golden_model
from tests.plan.test_golden import MODEL_OF
from tests.serve.targets.manifests import check
from tests.serve.targets.support import NODE, OF_ENGINES, subject
from trtllm_kit.cli.deploy_targets import Ready, targets_of
from trtllm_kit.errors import ProfileError
from trtllm_kit.lint.context import Context
from trtllm_kit.lint.run import lint
from trtllm_kit.plan.decide import make_plan
from trtllm_kit.plan.remedies import with_changes
from trtllm_kit.serve.targets.local import local_files
from trtllm_kit.serve.targets.mpi import slurm_files
from trtllm_kit.serve.targets.table import TARGETS
from trtllm_kit.spec.load import hardware_for, load_profile
from trtllm_kit.upstream import known_releases, release

IMAGES = {"deploy.image": "registry.example.com/server:1", "deploy.dynamo_image": "registry.example.com/dynamo:1"}
BUILT = [name for name in known_releases() if "trtllm-build" in release(name).toolchains and release(name).image]


def ready(name: str, target: str, changes: dict[str, object]) -> Ready:
    """Make one target of a shipped profile on a model of its class."""
    loaded = with_changes(load_profile(name), changes)
    asked = (loaded, hardware_for(loaded.profile))
    plan = make_plan(golden_model(MODEL_OF[name]), *asked)
    (made,) = targets_of([target], plan, asked, Path("/srv/repository"), None)
    return made


@pytest.mark.parametrize("name", MODEL_OF)
def test_the_cluster_takes_every_shipped_profile(name: str) -> None:
    """With an image where the release's lacks the runtime, each profile becomes manifests that pass every check."""
    changes = IMAGES if name.startswith("cpu-rehearsal") else {}
    for path, text in ready(name, "kubernetes", changes).files.items():
        for one in yaml.safe_load_all(text) if path.endswith(".yaml") else ():
            check(one)


@pytest.mark.parametrize("name", MODEL_OF)
@pytest.mark.parametrize("target", TARGETS)
def test_a_refusal_names_the_key(name: str, target: str) -> None:
    """A profile that a target does not suit is refused with keys of the profile, and never half made."""
    try:
        made = ready(name, target, {})
    except ProfileError as error:
        problems = error.problems
    else:
        problems = ()
        assert made.files
    keys = {problem.partition(":")[0] for problem in problems}
    assert keys <= {"deploy.dynamo_image", "deploy.hosts", "deploy.image", "parallelism", "toolchain"}


@pytest.mark.parametrize("version", BUILT)
def test_the_cluster_takes_engines_of_every_release(version: str) -> None:
    """The repository of engines, their build and their servers pass every check, and read the volume of the pods."""
    changes: dict[str, object] = {"toolchain": "trtllm-build", "trtllm_version": version}
    plain = {"quantization.weights": "bf16", "quantization.kv_cache": "bf16", "limits.max_beam_width": 1}
    files = ready("h200x1-llama3.1-8b-fp8", "kubernetes", changes | plain).files
    assert {"build.yaml", "servers.yaml"} <= files.keys()
    for path, text in files.items():
        for one in yaml.safe_load_all(text) if path.endswith(".yaml") else ():
            check(one)
    assert "/models/engine" in files["files.yaml"]
    assert "/srv/repository" not in files["files.yaml"]


@pytest.mark.parametrize(
    ("name", "target"),
    [("h200x4-online", "local"), ("h200x8-offline", "local"), ("gb200-nvl72-llama3.1-405b-nvfp4", "kubernetes")],
)
def test_lint_finds_nothing_in_what_is_made(name: str, target: str, tmp_path: Path) -> None:
    """Scripts, manifests and settings break none of the rules that are asked of what others wrote."""
    looked_at = 0
    for path, text in ready(name, target, {}).files.items():
        if path.endswith(".sh") or path in ("servers.yaml", "llm_args.yaml"):
            (tmp_path / path).write_text(text)
            assert () == tuple(lint(tmp_path / path, Context()).findings), path
            looked_at += 1
    assert looked_at >= 2


def test_a_container_sees_the_engine_where_the_repository_says() -> None:
    """A link out of the repository is mounted with its end, in docker and in pyxis."""
    made = subject({"parallelism.tensor": 2}, NODE, repository=OF_ENGINES, engine_linked=True)
    mount = '"${TRTKIT_ENGINE}":"${TRTKIT_ENGINE}":ro'
    assert mount in local_files(made)["container.sh"].replace("\\\n", "")
    assert mount in slurm_files(made)["serve.sbatch"].replace("\\\n", "")
