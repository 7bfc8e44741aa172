"""From a plan and an engine to the model repository."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.rehearsal import make_engine, plan_of
from tests.support.tiny_model import write_tiny_model
from trtllm_kit.artifact import read_manifest, require_intact
from trtllm_kit.checkpoint.plan_file import read_stored_plan
from trtllm_kit.errors import ManifestError, OutputOccupied, PlanDrift, RepositoryError, UsageError
from trtllm_kit.plan.plan import Plan
from trtllm_kit.repository.compose import (
    compose,
    deploy,
    kv_cache_blocks,
    model_config,
    model_sources,
    repository_facts,
    repository_files,
)

CONFIG, YAML = "tensorrt_llm/config.pbtxt", "tensorrt_llm/1/model.yaml"
LINK = Path("tensorrt_llm/1/checkpoint")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model folder."""
    return write_tiny_model(tmp_path_factory.mktemp("model"))


def test_the_repository_has_every_part(model: Path) -> None:
    """The files are the plan, config.pbtxt, model.yaml and every model source."""
    files = repository_files(plan_of(model), Path("repository"))

    sources = {f"tensorrt_llm/1/{name}" for name in model_sources()}
    assert {"trtkit-plan.json", CONFIG, YAML} | sources == set(files)
    assert {"model.py", "runtime_tensorrt_llm.py", "runtime_reference.py"} <= set(model_sources())


def test_instances_and_warm_up_stand_in_the_configuration(model: Path) -> None:
    """Only where they are asked for: as many instances, GPUs for each, the requests; ranks need no launcher then."""
    sizes = {"hardware": "h200x8-700w", "parallelism.tensor": 2, "parallelism.replicas": 4}
    plain = plan_of(model, sizes)
    asked = plan_of(model, sizes | {"serve.instances": 2, "serve.warm_up_requests": 3})
    keys = {"gpu_device_ids": "0,1;2,3", "warm_up_requests": "3"}

    assert not set(keys) & set(model_config(plain).parameters)
    assert keys.items() <= model_config(asked).parameters.items()
    assert (1, 2) == (model_config(plain).instance_group.count, model_config(asked).instance_group.count)
    assert ("instances" in repository_facts(plain), 2) == (False, repository_facts(asked)["instances"])


def test_composing_reads_nothing(model: Path) -> None:
    """The files follow from the plan and the given sources alone, byte for byte."""
    plan = plan_of(model)

    assert compose(plan, {"model.py": "x = 1\n"}) == compose(
        Plan.model_validate_json(plan.model_dump_json()), {"model.py": "x = 1\n"}
    )
    assert "x = 1\n" == compose(plan, {"model.py": "x = 1\n"})["tensorrt_llm/1/model.py"]


def test_model_yaml_is_the_llm_arguments_and_the_triton_settings(model: Path) -> None:
    """model.yaml holds what the engine's YAML holds, and the policy that config.pbtxt has too."""
    document = yaml.safe_load(repository_files(plan_of(model), Path("repository"))[YAML])

    assert {"max_batch_size": 0, "decoupled": True, "cancellation_check_period_ms": 100} == document["triton_config"]
    assert ("checkpoint", "pytorch", 16, 512, True) == (
        document["model"],
        document["backend"],
        document["max_batch_size"],
        document["max_seq_len"],
        document["enable_iter_perf_stats"],
    )


def test_parameters_carry_runtime_and_limits(model: Path) -> None:
    """The parameters name the runtime and size it, whatever the release calls its limits."""
    plan = plan_of(model, {"runtime": "reference", "serve.token_seconds": "5ms"}, kv_blocks=77)

    assert {
        "runtime": "reference",
        "max_batch_size": "16",
        "max_num_tokens": "256",
        "max_seq_len": "512",
        "chunked_prefill": "1",
        "tokens_per_block": "32",
        "kv_cache_blocks": "77",
        "max_queue_size": "1024",
        "token_seconds": "0.005",
    } == model_config(plan).parameters


@pytest.mark.parametrize(
    ("version", "present", "absent"), [("1.2.1", "stop", "lora_id"), ("main", "lora_id", "image_url")]
)
def test_tensors_are_the_releases(model: Path, version: str, present: str, absent: str) -> None:
    """Inputs are those of the plan's release; the prompt is the only one that must be there."""
    inputs = {one.name: one.optional for one in model_config(plan_of(model, {"trtllm_version": version})).inputs}

    assert present in inputs
    assert absent not in inputs
    assert ["text_input"] == [name for name, optional in inputs.items() if not optional]


def test_the_pool_holds_at_least_one_block(model: Path) -> None:
    """A budget below one block still gives a pool that can be loaded."""
    assert 1 == kv_cache_blocks(plan_of(model, kv_blocks=0))


def test_a_mock_engine_cannot_be_served_by_tensorrt_llm(model: Path) -> None:
    """The runtime that needs an LLM-API engine is refused over the stand-in for trtllm-build."""
    plan = plan_of(model, {"toolchain": "mock"})
    runtime = plan.runtime.runtime.model_copy(update={"value": "tensorrt_llm"})
    plan = plan.model_copy(update={"runtime": plan.runtime.model_copy(update={"runtime": runtime})})

    with pytest.raises(RepositoryError, match="runtime tensorrt_llm cannot run an engine of toolchain mock"):
        repository_files(plan, Path("repository"))


def test_a_release_without_the_llmapi_model_gets_the_models_of_an_engine(model: Path) -> None:
    """Releases before 0.19 have no llmapi model, so a stand-in engine is served as a built one is."""
    plan = plan_of(model, {"toolchain": "mock", "trtllm_version": "0.17.0"})

    configs = {name.partition("/")[0] for name in repository_files(plan, Path("repository")) if "config.pbtxt" in name}
    assert {"ensemble", "preprocessing", "tensorrt_llm", "postprocessing", "tensorrt_llm_bls"} == configs


def test_deploy_writes_a_whole_artifact(tmp_path: Path) -> None:
    """The folder holds the manifest's files, the plan, the facts a checker needs and a relative link."""
    engine, plan = make_engine(tmp_path)

    deployment = deploy(engine, plan, tmp_path / "out" / "repository")

    out = tmp_path / "out" / "repository"
    require_intact(out, read_manifest(out, "repository"))
    assert not deployment.up_to_date
    assert plan == read_stored_plan(out)
    assert {
        "model": "tensorrt_llm",
        "runtime": "simulated",
        "release": "1.2.1",
        "profile": "test",
        "start_grace_seconds": 20.0,
        "ports": {"http": 8000, "grpc": 8001, "metrics": 8002},
        "metrics_path": "/metrics",
    } == deployment.manifest.facts
    assert {"plan": plan.digest, "engine": read_manifest(engine).digest} == deployment.manifest.inputs
    assert "../../../../checkpoint" == str((out / LINK).readlink())
    assert (tmp_path / "checkpoint").resolve() == (out / LINK).resolve()


def test_the_ranks_of_the_llm_api_are_a_fact(model: Path) -> None:
    """What starts the server learns how many ranks to start with it; a rehearsal of the same plan has none."""
    plan = plan_of(model)
    four = plan.parallelism.tensor.model_copy(update={"value": 4})
    split = plan.model_copy(update={"parallelism": plan.parallelism.model_copy(update={"tensor": four})})
    runtime = plan.runtime.runtime.model_copy(update={"value": "tensorrt_llm"})
    real = split.model_copy(update={"runtime": plan.runtime.model_copy(update={"runtime": runtime})})

    assert 4 == repository_facts(real)["ranks"]
    assert "ranks" not in repository_facts(split)


def test_no_path_or_clock_is_in_the_files(tmp_path: Path) -> None:
    """Two deploys in different places have the same bytes."""
    texts = []
    for name in ("one", "two"):
        engine, plan = make_engine(tmp_path / name)
        deploy(engine, plan, tmp_path / name / "repository")
        files = sorted(path for path in (tmp_path / name / "repository").rglob("*") if path.is_file())
        texts.append([path.read_bytes() for path in files if LINK.name not in path.parts])

    assert texts[0] == texts[1]
    assert not any(str(tmp_path).encode() in text for text in texts[0])


def test_a_second_deploy_does_nothing(tmp_path: Path) -> None:
    """With the same plan and engine nothing is written, and a moved checkpoint is found again."""
    engine, plan = make_engine(tmp_path)
    out = tmp_path / "repository"
    deploy(engine, plan, out)
    before = (out / CONFIG).stat().st_mtime_ns
    (tmp_path / "checkpoint").rename(tmp_path / "moved")
    (engine / "checkpoint").unlink()
    (engine / "checkpoint").symlink_to("../moved")

    assert deploy(engine, plan, out).up_to_date
    assert before == (out / CONFIG).stat().st_mtime_ns
    assert (tmp_path / "moved").resolve() == (out / LINK).resolve()


@pytest.mark.parametrize("real", ["far/away/in/here", "near"])
def test_an_output_behind_a_link_finds_its_checkpoint(tmp_path: Path, real: str) -> None:
    """With ``out`` a link into a folder of another depth, the links lead to the checkpoint, made first and mended."""
    engine, plan = make_engine(tmp_path)
    (tmp_path / real).parent.mkdir(parents=True, exist_ok=True)
    out = tmp_path / "a" / "b" / "repository"
    out.parent.mkdir(parents=True)
    out.symlink_to(tmp_path / real)

    assert not deploy(engine, plan, out).up_to_date
    assert (tmp_path / "checkpoint").resolve() == (out / LINK).resolve(strict=True)
    (out / LINK).unlink()
    assert deploy(engine, plan, out).up_to_date
    assert (tmp_path / "checkpoint").resolve() == (tmp_path / real / LINK).resolve(strict=True)


def test_another_port_is_another_repository_of_the_same_engine(tmp_path: Path) -> None:
    """How it is served may change without building again."""
    engine, plan = make_engine(tmp_path)
    deploy(engine, plan, tmp_path / "repository")

    changed = plan.model_copy(update={"serve": plan.serve.model_copy(update={"http_port": 9000})})
    deployment = deploy(engine, changed, tmp_path / "repository")

    assert not deployment.up_to_date
    assert 9000 == deployment.manifest.facts["ports"]["http"]


def test_an_engine_of_another_plan_is_refused(tmp_path: Path) -> None:
    """Other limits than the engine was built with are drift, named with both values."""
    engine, _ = make_engine(tmp_path)
    other = plan_of(tmp_path / "model", {"limits.max_batch_size": 8, "quantization.weights": "fp8"})

    with pytest.raises(PlanDrift) as drift:
        deploy(engine, other, tmp_path / "repository")

    assert "max_batch_size (was 16, now 8)" in drift.value.why
    assert "checkpoint (was" in drift.value.why
    assert f"{engine} was built for another plan" == drift.value.what
    assert not (tmp_path / "repository").exists()


def test_checkpoint_path_replaces_the_link(tmp_path: Path) -> None:
    """serve.checkpoint_path says where the serving container sees the checkpoint; no link is made."""
    engine, plan = make_engine(tmp_path, {"serve.checkpoint_path": "/models/llama"})

    deploy(engine, plan, tmp_path / "repository")

    assert "/models/llama" == yaml.safe_load((tmp_path / "repository" / YAML).read_text())["model"]
    assert not (tmp_path / "repository" / LINK).is_symlink()


@pytest.mark.parametrize("out", [".", "repository", ".."])
def test_a_repository_and_its_engine_lie_apart(tmp_path: Path, out: str) -> None:
    """An output that is the engine, lies in it or holds it is refused, and the engine stays whole."""
    engine, plan = make_engine(tmp_path / "work")
    before = sorted(path.name for path in engine.iterdir())

    with pytest.raises(UsageError, match="the source"):
        deploy(engine, plan, engine / out)

    assert before == sorted(path.name for path in engine.iterdir())


def test_a_folder_of_yours_is_left_alone(tmp_path: Path) -> None:
    """A folder that trtkit did not make is not replaced."""
    engine, plan = make_engine(tmp_path)
    (tmp_path / "repository").mkdir()
    (tmp_path / "repository" / "thesis.txt").write_text("mine")

    with pytest.raises(OutputOccupied):
        deploy(engine, plan, tmp_path / "repository")

    assert "mine" == (tmp_path / "repository" / "thesis.txt").read_text()


def test_a_lost_checkpoint_is_an_error(tmp_path: Path) -> None:
    """An engine whose checkpoint is gone is not deployed."""
    engine, plan = make_engine(tmp_path)
    (tmp_path / "checkpoint").rename(tmp_path / "gone")

    with pytest.raises(ManifestError, match="has lost its checkpoint"):
        deploy(engine, plan, tmp_path / "repository")


def test_the_mock_engine_is_served_by_the_simulated_runtime(tmp_path: Path) -> None:
    """The stand-in for trtllm-build goes down the same road."""
    engine, plan = make_engine(tmp_path, {"toolchain": "mock"})

    deploy(engine, plan, tmp_path / "repository")

    assert "simulated" == json.loads((tmp_path / "repository" / "trtkit-manifest.json").read_text())["facts"]["runtime"]


def _imports(source: str) -> set[str]:
    tree = ast.parse(source)
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {name.split(".")[0] for name in names}


@pytest.mark.parametrize("name", sorted(model_sources()))
def test_model_files_need_only_what_a_stub_has(name: str) -> None:
    """Beside the standard library they import each other, numpy and Triton's module; the rest is one runtime's own."""
    allowed: dict[str, set[str]] = {
        "settings.py": {"yaml"},
        "runtime_reference.py": {"trtllm_kit"},
        "runtime_transformers.py": {"trtllm_kit", "torch", "transformers"},
        **{name: {"torch"} for name in ("batch.py", "choice.py", "graphs.py")},
        "kv_pool.py": {"torch", "transformers"},
        "pacer.py": {"trtllm_kit"},
        "timing.py": {"trtllm_kit"},
        "runtime_tensorrt_llm.py": {"tensorrt_llm"},
    }
    siblings = {other.removesuffix(".py") for other in model_sources()}
    common: set[Any] = {"numpy", "triton_python_backend_utils"} | siblings | sys.stdlib_module_names

    assert _imports(model_sources()[name]) <= common | allowed.get(name, set())
