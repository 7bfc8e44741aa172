"""From a plan to the models around an engine: what Triton reads, and what the backend is told."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.plan.conftest import golden_model
from tests.support.specs import hardware, llama_8b, profile
from trtllm_kit.errors import RepositoryError
from trtllm_kit.findings import Severity
from trtllm_kit.plan.plan import Plan
from trtllm_kit.plan.settle import settle
from trtllm_kit.repository.compose import repository_files
from trtllm_kit.repository.inflight import (
    DRAFT_MODEL,
    device_sets,
    engine_models,
    lookahead_drafts,
)
from trtllm_kit.repository.model_config import ModelConfig
from trtllm_kit.repository.pbtxt import write_pbtxt
from trtllm_kit.repository.places import Places, places_of
from trtllm_kit.upstream import known_releases, release
from trtllm_kit.upstream.repositories import parameter_keys
from trtllm_kit.upstream.triton_parameters import needed_parameters, parameter_value

RELEASES = tuple(name for name in known_releases() if "trtllm-build" in release(name).toolchains)
PLACES = Places(engine="/engines/llama", tokenizer="/tokenizers/llama")
ORCHESTRATOR = {"TRTLLM_ORCHESTRATOR": "1"}


def planned(changes: dict[str, Any] | None = None, version: str = "1.2.1") -> Plan:
    """Plan an engine of Llama 3.1 8B on eight GPUs."""
    asked = profile({"trtllm_version": version, "toolchain": "trtllm-build", **(changes or {})})
    return settle(llama_8b(), asked, hardware(8))


def models_of(changes: dict[str, Any] | None = None, version: str = "1.2.1") -> dict[str, ModelConfig]:
    """Return the models of a repository by name."""
    return {model.name: model for model in engine_models(planned(changes, version), PLACES)}


def parsed(model: ModelConfig) -> Any:
    """Read ``config.pbtxt`` as Triton's own protobuf does."""
    text_format = pytest.importorskip("google.protobuf.text_format")
    pb2 = pytest.importorskip("tritonclient.grpc.model_config_pb2")
    return text_format.Parse(write_pbtxt(model), pb2.ModelConfig())


@pytest.mark.parametrize("version", RELEASES)
def test_protobuf_reads_what_was_meant(version: str) -> None:
    """Every model of every release, tensor by tensor: type, shape, and what a request may leave out."""
    for model in models_of(version=version).values():
        read = parsed(model)
        kinds = read.input[0].DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number
        wanted = [
            (one.name, one.data_type, list(one.dims), one.optional, one.ragged, one.scalar) for one in model.inputs
        ]
        found = [
            (one.name, kinds[one.data_type].name, list(one.dims), one.optional, one.allow_ragged_batch,
             one.HasField("reshape") and not one.reshape.shape)
            for one in read.input
        ]  # fmt: skip
        assert wanted == found
        assert dict(model.parameters) == {key: value.string_value for key, value in read.parameters.items()}
        assert (model.name, model.max_batch_size) == (read.name, read.max_batch_size)
        assert [step.model for step in model.steps] == [step.model_name for step in read.ensemble_scheduling.step]


@pytest.mark.parametrize("version", RELEASES)
def test_the_engine_has_every_parameter_of_its_release(version: str) -> None:
    """Those of the release's template and no others, each empty or a value that the release takes."""
    parameters = models_of(version=version)["tensorrt_llm"].parameters

    known = parameter_keys("tensorrt_llm", version)
    assert known is not None
    assert known - {"enable_trt_overlap", "recv_poll_period_ms"} == set(parameters)
    assert set(needed_parameters(version)) <= set(parameters)
    for key, value in parameters.items():
        row = parameter_value("tensorrt_llm", key, version)
        assert not value or row is None or row.takes(value), (key, value)
        assert "${" not in value


@pytest.mark.parametrize("version", RELEASES)
def test_types_and_batches_agree_over_all_models(version: str) -> None:
    """A tensor that two models hand on has one type, and no member takes fewer requests than the ensemble."""
    models = models_of(version=version)
    types = {
        name: {one.name: one.data_type for one in (*model.inputs, *model.outputs)} for name, model in models.items()
    }
    seen = dict(types["ensemble"])
    for step in models["ensemble"].steps:
        for inner, outer in (*step.inputs.items(), *step.outputs.items()):
            assert types[step.model][inner] == seen.setdefault(outer, types[step.model][inner]), (step.model, inner)
        assert models["ensemble"].max_batch_size <= models[step.model].max_batch_size
    for name in ("context_logits", "generation_logits", "prompt_embedding_table"):
        assert 1 == len({types[model][name] for model in ("ensemble", "tensorrt_llm", "tensorrt_llm_bls")})


@pytest.mark.parametrize(("version", "prompts"), [("0.19.0", "TYPE_FP16"), ("0.20.0", "TYPE_BF16")])
def test_the_prompt_table_has_the_models_own_type_where_a_release_lets_it(version: str, prompts: str) -> None:
    """It is FP16 in the templates up to 0.19, and open from 0.20 on."""
    found = {one.name: one.data_type for one in models_of(version=version)["tensorrt_llm"].inputs}

    assert prompts == found["prompt_embedding_table"]


def test_half_precision_logits_are_declared_everywhere() -> None:
    """An engine that was built with them says so in all three models that hand them on."""
    models = models_of({"build.options": {"logits_dtype": "float16"}})

    kinds = {
        one.data_type
        for name in ("ensemble", "tensorrt_llm", "tensorrt_llm_bls")
        for one in models[name].outputs
        if one.name.endswith("_logits")
    }
    assert {"TYPE_FP16"} == kinds


def test_both_ways_in_are_decoupled_together() -> None:
    """Streams need it in the engine's model and in BLS; an ensemble follows its members and says nothing."""
    models = models_of()

    assert (True, True) == (models["tensorrt_llm"].decoupled, models["tensorrt_llm_bls"].decoupled)
    assert "model_transaction_policy" not in write_pbtxt(models["ensemble"])


def test_the_plan_decides_what_the_engine_is_told() -> None:
    """Policy, cache, beams and chunks are the plan's."""
    changes = {
        "limits.max_beam_width": 4,
        "limits.max_batch_size": 48,
        "kv_cache.free_gpu_memory_fraction": 0.8,
        "scheduler.policy": "max_utilization",
        "kv_cache.enable_block_reuse": False,
        "scheduler.chunked_prefill": False,
    }
    model = models_of(changes)["tensorrt_llm"]

    wanted = {
        "max_beam_width": "4",
        "decoding_mode": "beam_search",
        "kv_cache_free_gpu_mem_fraction": "0.8",
        "batch_scheduler_policy": "max_utilization",
        "enable_kv_cache_reuse": "false",
        "enable_chunked_context": "false",
        "gpt_model_path": "/engines/llama",
        "gpt_model_type": "inflight_fused_batching",
        "gpu_device_ids": "",
        "participant_ids": "",
    }
    assert wanted == {key: model.parameters[key] for key in wanted}
    assert model.batching is not None
    assert ((48,), 48) == (model.batching.preferred, model.max_batch_size)


def test_an_orchestrator_has_an_instance_for_each_replica() -> None:
    """Each on GPUs of its own: two ranks each, three replicas."""
    changes = {"parallelism.tensor": 2, "parallelism.replicas": 3, "environment": ORCHESTRATOR}
    model = models_of(changes)["tensorrt_llm"]

    assert (3, "0,1;2,3;4,5") == (model.instance_group.count, model.parameters["gpu_device_ids"])
    assert "" == device_sets(planned({"parallelism.tensor": 1})).replace("0", "")


def test_a_leader_has_one_instance_whatever_the_replicas() -> None:
    """Every replica is a server of its own then."""
    model = models_of({"parallelism.tensor": 2, "parallelism.replicas": 3})["tensorrt_llm"]

    assert (1, "") == (model.instance_group.count, model.parameters["gpu_device_ids"])


def test_ranks_that_are_started_beforehand_are_named() -> None:
    """Rank 0 is the orchestrator, so the engine's are those after it."""
    waits = ORCHESTRATOR | {"TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES": "0"}
    model = models_of({"parallelism.tensor": 4, "environment": waits})["tensorrt_llm"]

    assert ("1,2,3,4", "") == (model.parameters["participant_ids"], model.parameters["gpu_device_ids"])
    with pytest.raises(RepositoryError, match="no repository serves"):
        models_of({"parallelism.tensor": 2, "parallelism.replicas": 2, "environment": waits})


def drafting(environment: dict[str, str]) -> Plan:
    """Plan an engine with a draft model's beside it, of one rank."""
    plan = planned({"parallelism.tensor": 2, "environment": environment})
    assert plan.build is not None
    ranks = plan.parallelism.tensor.model_copy(update={"value": 1})
    return plan.model_copy(update={"build": plan.build.model_copy(update={"draft_ranks": ranks})})


def test_a_draft_engine_is_a_sixth_model_that_bls_asks() -> None:
    """Both caches hold the tokens of the plan: a share of free memory would starve the one that loads last."""
    plan = drafting(ORCHESTRATOR)
    models = {model.name: model for model in engine_models(plan, PLACES)}

    draft = models[DRAFT_MODEL].parameters
    assert ("/engines/llama/draft", "0", "1") == (
        draft["gpt_model_path"], draft["gpu_device_ids"], draft["max_beam_width"],
    )  # fmt: skip
    assert DRAFT_MODEL == models["tensorrt_llm_bls"].parameters["tensorrt_llm_draft_model_name"]
    tokens = plan.memory.kv_budget_bytes // plan.memory.kv_bytes_per_token
    assert {str(tokens)} == {
        models[one].parameters["max_tokens_in_paged_kv_cache"] for one in ("tensorrt_llm", DRAFT_MODEL)
    }


def test_a_draft_engine_needs_an_orchestrator() -> None:
    """A leader's ranks are those of one engine."""
    with pytest.raises(RepositoryError, match="no repository serves"):
        engine_models(drafting({}), PLACES)


def test_lookahead_takes_the_largest_shape_that_was_built_for() -> None:
    """7, 7, 7 drafts 83 tokens; with one less the sizes are 6."""
    assert 83 == lookahead_drafts(7, 7, 7)
    for drafts, size in ((83, "7"), (82, "6"), (3, "2"), (1, "1")):
        parameters = models_of({"speculation": {"kind": "lookahead", "draft_tokens": drafts}})[
            "tensorrt_llm"
        ].parameters
        assert ("lookahead", size) == (parameters["decoding_mode"], parameters["lookahead_window_size"])


def test_paths_are_those_of_the_serving_machine() -> None:
    """The profile's, or else the links inside the repository wherever it is written."""
    given = planned({"serve.engine_path": "/models/engine", "serve.checkpoint_path": "/models/checkpoint"})

    assert Places("/models/engine", "/models/checkpoint") == places_of(given, Path("/any"))
    assert Places("/any/tensorrt_llm/1/engine", "/any/tensorrt_llm/1/checkpoint") == places_of(planned(), Path("/any"))


def test_models_without_files_keep_their_folder() -> None:
    """A tool that leaves empty folders out would leave the engine's model without a version."""
    files = repository_files(planned(), Path("/any"))

    assert {"ensemble/1/.keep", "tensorrt_llm/1/.keep"} == {name for name in files if name.endswith(".keep")}


@pytest.mark.parametrize("model", ["preprocessing", "postprocessing", "tensorrt_llm_bls"])
def test_our_models_bring_every_module_they_import(model: str) -> None:
    """Triton puts the folder of one model alone on its path."""
    files = repository_files(planned(), Path("/any"))

    names = {name.rpartition("/")[2].removesuffix(".py") for name in files if name.startswith(f"{model}/1/")}
    imported = {
        line.split()[1]
        for name, text in files.items()
        if name.startswith(f"{model}/1/")
        for line in text.splitlines()
        if line.startswith("from ") and " import " in line
    }
    assert {name for name in imported if name.partition(".")[0] not in sys.stdlib_module_names} <= names


@settings(max_examples=40, deadline=None)
@given(
    version=st.sampled_from(RELEASES),
    tensor=st.sampled_from([1, 2, 4]),
    pipeline=st.sampled_from([1, 2]),
    replicas=st.integers(1, 3),
    beams=st.sampled_from([1, 4]),
    batch=st.integers(1, 256),
    environment=st.dictionaries(
        st.sampled_from(["TRTLLM_ORCHESTRATOR", "TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES"]), st.sampled_from(["0", "1"])
    ),
    speculation=st.sampled_from(
        [None, {"kind": "lookahead", "draft_tokens": 11}, {"kind": "ngram", "draft_tokens": 4}]
    ),
)
def test_what_a_plan_lets_through_has_a_repository(
    version: str, tensor: int, pipeline: int, replicas: int, beams: int, batch: int,
    environment: dict[str, str], speculation: dict[str, Any] | None,
) -> None:  # fmt: skip
    """Without an ERROR the models can be written, and Triton's protobuf reads every one of them."""
    changes = {
        "parallelism.tensor": tensor,
        "parallelism.pipeline": pipeline,
        "parallelism.replicas": replicas,
        "limits.max_beam_width": beams,
        "limits.max_batch_size": batch,
        "environment": environment,
    } | ({"speculation": speculation} if speculation else {})
    plan = planned(changes, version)
    if any(one.severity is Severity.ERROR for one in plan.findings):
        return
    for model in engine_models(plan, PLACES):
        assert model.name == parsed(model).name


@given(folder=st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=30))
def test_no_path_changes_the_structure_of_a_configuration(folder: str) -> None:
    """Quotes, newlines, dollars and control characters in a path stay inside their string."""
    plan = settle(golden_model("llama-3.1-8b"), profile({"toolchain": "trtllm-build"}), hardware(8))
    models = {model.name: model for model in engine_models(plan, Places(folder, folder))}

    assert folder == parsed(models["tensorrt_llm"]).parameters["gpt_model_path"].string_value
    assert folder == parsed(models["preprocessing"]).parameters["tokenizer_dir"].string_value
