"""``trtkit deploy`` of an engine that ``trtllm-build`` made, with the installed command and the stand-in on PATH."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.build.test_trtllm_build_cli import PROFILE
from tests.support.cli import trtkit
from tests.support.standin.install import installed
from tests.support.tiny_model import write_tiny_model

MODELS = {"ensemble", "preprocessing", "tensorrt_llm", "postprocessing", "tensorrt_llm_bls"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with a profile, an engine for 0.18.2 and its repository."""
    root = tmp_path_factory.mktemp("made")
    write_tiny_model(root / "model", "llama", num_attention_heads=8, num_hidden_layers=4)
    (root / "profile.yaml").write_text(PROFILE.format(release="0.18.2", more="toolchain: trtllm-build\n"))
    environment = installed(root / "bin", "0.18.2")
    for words in (
        ("convert", root / "model", "-p", root / "profile.yaml", "--out", root / "checkpoint"),
        ("build", root / "checkpoint", "-p", root / "profile.yaml", "--out", root / "engine"),
        ("deploy", root / "engine", "-p", root / "profile.yaml", "--out", root / "repository"),
    ):
        ran = trtkit(*words, env=environment)
        assert 0 == ran.code, ran.err
    return root


def test_the_repository_has_the_models_of_an_engine(made: Path) -> None:
    """Each with its configuration and a version, and links to the engine and its checkpoint."""
    repository = made / "repository"

    assert MODELS == {path.parent.name for path in repository.glob("*/config.pbtxt")}
    assert MODELS == {path.parent.name for path in repository.glob("*/1")}
    version = repository / "tensorrt_llm" / "1"
    assert (made / "engine").resolve() == (version / "engine").resolve()
    assert (made / "checkpoint").resolve() == (version / "checkpoint").resolve()
    assert str(version / "engine") in (repository / "tensorrt_llm" / "config.pbtxt").read_text()


def test_lint_finds_it_clean(made: Path) -> None:
    """With the engine beside it, which the configuration leads to."""
    ran = trtkit("lint", made / "repository", "--json")

    assert (0, "Triton repository", "0.18.2") == (ran.code, ran.json["kind"], ran.json["release"])
    assert [] == [row for row in ran.json["findings"] if row["severity"] != "info"]


def test_again_writes_nothing(made: Path) -> None:
    """The same engine and profile give the same bytes."""
    before = (made / "repository" / "trtkit-manifest.json").read_bytes()
    ran = trtkit("deploy", made / "engine", "-p", made / "profile.yaml", "--out", made / "repository", "--json")

    assert (0, True) == (ran.code, ran.json["up_to_date"])
    assert before == (made / "repository" / "trtkit-manifest.json").read_bytes()


def test_a_profile_that_serves_otherwise_changes_only_what_differs(made: Path, tmp_path: Path) -> None:
    """The engine's limits are those it was built with; another share of the memory is the backend's parameter."""
    text = (made / "profile.yaml").read_text() + "kv_cache: {free_gpu_memory_fraction: 0.7}\n"
    (tmp_path / "profile.yaml").write_text(text)
    ran = trtkit(
        "deploy", made / "engine", "-p", tmp_path / "profile.yaml", "--out", made / "repository", "--dry-run", "--json"
    )

    assert 0 == ran.code, ran.err
    texts = ran.json["files"].items()
    changed = {name for name, content in texts if (made / "repository" / name).read_text() != content}
    assert {"tensorrt_llm/config.pbtxt", "trtkit-plan.json"} == changed


def test_an_engine_of_other_limits_is_refused(made: Path, tmp_path: Path) -> None:
    """What was built in cannot be changed by serving it."""
    document = (made / "profile.yaml").read_text()
    (tmp_path / "profile.yaml").write_text(f"{document}build: {{options: {{max_beam_width: 2}}}}\n")
    ran = trtkit("deploy", made / "engine", "-p", tmp_path / "profile.yaml", "--out", tmp_path / "repository")

    assert (1, True) == (ran.code, "was built for another plan" in ran.err)
    assert not (tmp_path / "repository").exists()
    assert json.loads((made / "engine" / "config.json").read_text())["build_config"]["max_beam_width"] == 1
