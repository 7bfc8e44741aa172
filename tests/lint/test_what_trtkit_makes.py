"""What trtkit itself makes has nothing that a lint speaks against, in every release that it makes it for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoint.ranks import rank_plan
from tests.lint.five_models import write_five_models
from tests.plan.conftest import golden_model
from tests.plan.test_golden import MODEL_OF, shipped_plan
from tests.serve.targets.test_golden import CASES
from tests.support.rehearsal import make_repository
from tests.support.specs import hardware, llama_8b, profile
from tests.support.standin.trtllm_build import main as builder
from tests.support.tiny_model import write_tiny_model
from trtllm_kit.build.llm_api import llm_api_yaml
from trtllm_kit.build.mock import engine_files
from trtllm_kit.build.trtllm_build import trtllm_build_steps
from trtllm_kit.checkpoint.convert import convert
from trtllm_kit.checkpoint.rank_config import rank_config
from trtllm_kit.errors import RepositoryError
from trtllm_kit.findings import Severity
from trtllm_kit.lint.context import Context
from trtllm_kit.lint.kinds import is_manifest
from trtllm_kit.lint.report import Read
from trtllm_kit.lint.run import lint
from trtllm_kit.plan.ranks import order_of
from trtllm_kit.plan.settle import settle
from trtllm_kit.progress import Silent
from trtllm_kit.repository.compose import repository_files
from trtllm_kit.serve.targets.table import TARGETS
from trtllm_kit.upstream import known_releases, release
from trtllm_kit.upstream.failures import failure

GOLDEN = Path(__file__).parents[1] / "golden" / "plans"
LLM_API = tuple(name for name in known_releases() if "llm-api" in release(name).toolchains)
ENGINES = tuple(name for name in known_releases() if "trtllm-build" in release(name).toolchains)


def spoken(read: Read) -> list[str]:
    """Return what is worse than a remark."""
    return [
        f"{one.place} {one.finding.rule} {one.finding.message} {one.finding.compared}"
        for one in read.findings
        if one.finding.severity is not Severity.INFO
    ]


def write(folder: Path, files: Mapping[str, str]) -> Path:
    """Write files by their places."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize("name", MODEL_OF)
def test_the_repository_of_a_shipped_profile(name: str, tmp_path: Path) -> None:
    """Where it can be served by the llmapi model at all."""
    plan = shipped_plan(name)
    try:
        files = repository_files(plan, tmp_path)
    except RepositoryError:
        pytest.skip("the profile's release has no llmapi model")
    read = lint(write(tmp_path, files), Context())
    assert ("Triton repository", plan.release.value) == (read.kind, read.release)
    assert [] == spoken(read)


@pytest.mark.parametrize("name", sorted(path.name for path in GOLDEN.glob("*.yaml")))
def test_the_arguments_of_a_shipped_profile(name: str) -> None:
    """The recorded LLM-API documents."""
    assert [] == spoken(lint(GOLDEN / name, Context("1.2.1")))


@pytest.mark.parametrize("version", LLM_API)
def test_the_arguments_and_the_repository_of_a_release(version: str, tmp_path: Path) -> None:
    """One profile in each release of the LLM API, with settings that have keys of their own."""
    changes: dict[str, Any] = {"trtllm_version": version, "parallelism.tensor": 2, "quantization.weights": "fp8"}
    plan = settle(llama_8b(), profile(changes), hardware(8))
    (tmp_path / "llm_args.yaml").write_text(llm_api_yaml(plan))
    assert [] == spoken(lint(tmp_path, Context(version)))
    assert [] == spoken(
        lint(write(tmp_path / "repository", repository_files(plan, tmp_path / "repository")), Context())
    )


@pytest.mark.parametrize("version", LLM_API)
def test_instances_of_the_llmapi_model(version: str, tmp_path: Path) -> None:
    """Each is given its GPUs by trtkit's model in every release; upstream's model did so later."""
    changes: dict[str, Any] = {"trtllm_version": version, "parallelism.replicas": 4, "serve.instances": 2,
                               "serve.warm_up_requests": 1}  # fmt: skip
    plan = settle(llama_8b(), profile(changes), hardware(8))
    repository = write(tmp_path / "repository", repository_files(plan, tmp_path / "repository"))
    assert [] == spoken(lint(repository, Context()))
    config = repository / "tensorrt_llm" / "config.pbtxt"
    config.write_text(config.read_text().replace('key: "runtime"', 'key: "other"'))
    said = [one.finding.message for one in lint(repository, Context()).findings]
    assert (failure("llmapi_instances", version) is not None) == any("all land on the first GPU" in one for one in said)


@pytest.mark.parametrize("version", ENGINES)
def test_the_mock_engine_of_a_release(version: str, tmp_path: Path) -> None:
    """Engine folders are of the release that their config.json states."""
    changes = {"trtllm_version": version, "toolchain": "mock", "parallelism.tensor": 2}
    plan = settle(golden_model("llama-3.1-8b"), profile(changes), hardware(8))
    read = lint(write(tmp_path, engine_files(plan)), Context())
    assert ("engine folder", version, "what is linted") == (read.kind, read.release, read.release_from)
    assert [] == spoken(read)


def test_a_deployed_repository_with_its_engine_and_checkpoint(tmp_path: Path) -> None:
    """The whole road of a rehearsal: Hugging Face folder, checkpoint, engine, repository."""
    repository, plan = make_repository(tmp_path)
    kinds = {}
    for folder in (tmp_path / "model", tmp_path / "checkpoint", tmp_path / "engine", repository):
        read = lint(folder, Context(plan.release.value))
        kinds[folder.name] = read.kind
        assert [] == spoken(read), folder
    assert {
        "model": "Hugging Face folder", "checkpoint": "Hugging Face folder",
        "engine": "engine folder of the LLM API", "repository": "Triton repository",
    } == kinds  # fmt: skip


@pytest.mark.parametrize(("version", "tensor", "pipeline"), [("0.12.0", 2, 1), ("0.18.2", 1, 2), ("1.2.1", 2, 2)])
def test_a_checkpoint_for_engines(version: str, tensor: int, pipeline: int, tmp_path: Path) -> None:
    """A file for each rank, by the mapping in config.json."""
    model = write_tiny_model(tmp_path / "model", num_hidden_layers=4)
    convert(model, rank_plan(model, tensor, pipeline, release=version), tmp_path / "out", Silent())
    read = lint(tmp_path / "out", Context(version))
    assert ("TensorRT-LLM checkpoint", tensor * pipeline) == (read.kind, read.facts["ranks"])
    assert [] == spoken(read)


@pytest.mark.parametrize("version", ENGINES)
def test_a_template_of_five_models_filled_in(version: str, tmp_path: Path) -> None:
    """Rendered by somebody else, with the parameters that the release's templates have; only remarks are made."""
    numbers = tuple(int(part) for part in version.split("rc")[0].split(".") if part.isdigit())
    assert [] == spoken(lint(write_five_models(tmp_path / "repository", release=numbers), Context(version)))


@pytest.mark.parametrize("kind", ["plain", "ranks", "beams", "instances", "drafts"])
@pytest.mark.parametrize("version", ENGINES)
def test_the_repository_of_an_engine(version: str, kind: str, tmp_path: Path) -> None:
    """The models that trtkit writes around an engine, in every release that serves one."""
    changes: dict[str, dict[str, Any]] = {
        "plain": {},
        "ranks": {"parallelism.tensor": 2, "parallelism.pipeline": 2},
        "beams": {"limits.max_beam_width": 4},
        "instances": {"parallelism.replicas": 2, "environment": {"TRTLLM_ORCHESTRATOR": "1"}},
        "drafts": {"speculation": {"kind": "lookahead", "draft_tokens": 11}},
    }
    asked = profile({"trtllm_version": version, "toolchain": "trtllm-build", **changes[kind]})
    plan = settle(llama_8b(), asked, hardware(8))
    read = lint(write(tmp_path, repository_files(plan, tmp_path)), Context())
    assert ("Triton repository", version) == (read.kind, read.release)
    assert [] == spoken(read)


KINDS_OF_ENGINE: dict[str, dict[str, Any]] = {
    "plain": {},
    "fp8 over ranks": {"quantization.weights": "fp8", "quantization.kv_cache": "fp8", "parallelism.tensor": 2},
    "stages": {"quantization.weights": "int4_wo", "parallelism.tensor": 2, "parallelism.pipeline": 2},
    "int8 cache": {"quantization.weights": "int8_wo", "quantization.kv_cache": "int8",
                   "kv_cache.enable_block_reuse": False, "scheduler.chunked_prefill": False},
    "beams": {"limits.max_beam_width": 4},
    "drafts": {"speculation": {"kind": "ngram", "draft_tokens": 4}},
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS_OF_ENGINE)
@pytest.mark.parametrize("version", ENGINES)
def test_an_engine_that_the_builder_makes(
    version: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every option of the plan, with what the release's builder makes of it: clean for the profile that asked."""
    loaded, machine = (
        profile({"trtllm_version": version, "toolchain": "trtllm-build", **KINDS_OF_ENGINE[kind]}),
        hardware(8),
    )
    plan = settle(llama_8b(), loaded, machine)
    ranks = {f"rank{rank}.safetensors": "weights" for rank in range(plan.parallelism.world_size)}
    write(tmp_path / "checkpoint", {"config.json": rank_config(order_of(plan)), **ranks})
    (run,) = trtllm_build_steps(plan)
    monkeypatch.setenv("STANDIN_RELEASE", version)
    monkeypatch.chdir(tmp_path)
    place = {".": "engine"}
    assert 0 == builder([place.get(word, word) for word in run.argv[1:]])
    read = lint(tmp_path / "engine", Context(None, loaded, machine))
    assert ("engine folder", version, str(plan.parallelism.world_size)) == (
        read.kind,
        read.release,
        read.facts["ranks"],
    )
    assert [] == spoken(read)


@pytest.mark.parametrize("name", [name for name, (target, _) in CASES.items() if target != "monitoring"])
def test_what_a_target_starts(name: str, tmp_path: Path) -> None:
    """Nothing to say of scripts and batch scripts, of pods that serve, nor of those that build."""
    target, made = CASES[name]
    folder = write(tmp_path, TARGETS[target].files(made))
    read = [lint(path, Context()) for path in sorted(folder.rglob("*.*")) if starts_something(path)]
    assert [] == [line for one in read for line in spoken(one)]
    assert 0 < sum(int(one.facts.get("pods", 0)) + int(one.facts.get("servers", 0)) for one in read)


def starts_something(path: Path) -> bool:
    """Whether a file of a target is a script or a manifest."""
    return path.suffix in (".sh", ".sbatch") or (path.suffix == ".yaml" and is_manifest(path.read_bytes()))
