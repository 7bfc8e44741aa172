"""Toolchains as rows, and the stand-in for trtllm-build."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.specs import hardware, llama_8b, profile, qwen3_moe
from trtllm_kit.build import mock
from trtllm_kit.build.step import Link, Run, WriteFile
from trtllm_kit.build.toolchain import TOOLCHAINS, rank_files, steps
from trtllm_kit.errors import NoToolchain
from trtllm_kit.plan.checks.release import KIT_TOOLCHAINS
from trtllm_kit.plan.plan import Plan
from trtllm_kit.plan.settle import settle
from trtllm_kit.upstream.releases import toolchains


def plan_of(changes: dict[str, Any] | None = None) -> Plan:
    """Plan 8B on eight GPUs."""
    return settle(llama_8b(), profile(changes), hardware(8))


def test_llm_api_writes_the_plan_a_link_and_one_yaml() -> None:
    """Nothing is run: the runtime loads the checkpoint itself."""
    planned = steps(plan_of())
    assert [WriteFile, Link, WriteFile] == [type(step) for step in planned]
    assert ["trtkit-plan.json", "checkpoint", "llm_args.yaml"] == [
        step.path for step in planned if isinstance(step, WriteFile | Link)
    ]


def test_mock_runs_a_program_that_leaves_one_engine_a_rank() -> None:
    """The road of trtllm-build is rehearsed with a real process."""
    made = plan_of({"toolchain": "mock", "parallelism.tensor": 2, "parallelism.pipeline": 2})
    run = steps(made)[-1]
    assert isinstance(run, Run)
    assert ("config.json", "rank0.engine", "rank1.engine", "rank2.engine", "rank3.engine") == run.outputs
    assert run.outputs[1:] == rank_files(made)


def test_steps_survive_json_and_say_what_they_do() -> None:
    """The dry run shows them as they are."""
    for step in steps(plan_of({"toolchain": "mock"})):
        assert step == type(step).model_validate_json(step.model_dump_json())
        assert step.subject()


def test_a_toolchain_without_a_row_is_refused_by_name() -> None:
    """A plan that names another one is not guessed at."""
    made = plan_of()
    other = made.model_copy(update={"toolchain": made.toolchain.model_copy(update={"value": "make"})})
    with pytest.raises(NoToolchain, match="cannot build with make"):
        steps(other)


def test_every_row_is_known_upstream() -> None:
    """The kit runs no toolchain that the release table does not know."""
    assert set(TOOLCHAINS) <= {tool.name for tool in toolchains()}


def test_the_plan_knows_every_row() -> None:
    """PF26 refuses exactly what has no row here."""
    assert tuple(TOOLCHAINS) == KIT_TOOLCHAINS


def contract_keys(shared: Path) -> dict[str, list[str]]:
    """Read the keys that the engine's C++ loader insists on."""
    document = yaml.safe_load((shared / "contract" / "legacy-contract.yaml").read_text("utf-8"))
    section: dict[str, list[str]] = document["engine_dir"]
    return section


def test_the_mock_engine_has_the_keys_the_loader_insists_on(shared: Path) -> None:
    """Its config.json has the shape of a real engine's."""
    config = json.loads(mock.engine_files(plan_of({"toolchain": "mock"}))["config.json"])
    contract = contract_keys(shared)
    assert contract["config_json_top"] == list(config)
    for key in contract["cpp_required_pretrained_keys"]:
        value: Any = config["pretrained_config"]
        for name in key.split("."):
            value = value[name]
    assert set(contract["cpp_required_plugin_keys"]) <= set(config["build_config"]["plugin_config"])
    assert set(contract["cpp_read_build_keys"]) <= set(config["build_config"])


def test_the_mock_engine_repeats_the_plan() -> None:
    """Limits, ranks, formats and the plan's digest are in it."""
    changes = {"toolchain": "mock", "quantization.weights": "fp8", "limits.max_batch_size": 7}
    made = settle(qwen3_moe(2), profile(changes | {"parallelism.tensor": 4, "parallelism.expert": 2}), hardware(8))
    files = mock.engine_files(made)
    config = json.loads(files["config.json"])
    assert {"world_size": 4, "tp_size": 4, "pp_size": 1, "cp_size": 1, "moe_tp_size": 2, "moe_ep_size": 2} == config[
        "pretrained_config"
    ]["mapping"]
    assert "FP8" == config["pretrained_config"]["quantization"]["quant_algo"]
    assert config["pretrained_config"]["quantization"]["kv_cache_quant_algo"] is None
    assert 7 == config["build_config"]["max_batch_size"]
    assert made.digest in files["rank3.engine"]
    assert {"config.json", *rank_files(made)} == set(files)


def test_the_mock_program_writes_what_it_is_asked_for(tmp_path: Path) -> None:
    """It reads the stored plan and makes the folder."""
    made = plan_of({"toolchain": "mock"})
    (tmp_path / "plan.json").write_text(made.model_dump_json())
    assert 0 == mock.main(["--plan", str(tmp_path / "plan.json"), "--output_dir", str(tmp_path / "out")])
    assert mock.engine_files(made) == {path.name: path.read_text() for path in (tmp_path / "out").iterdir()}


def test_the_mock_program_ends_with_a_message_when_there_is_no_plan(tmp_path: Path) -> None:
    """Bad input is a message, not a traceback."""
    with pytest.raises(SystemExit, match=r"mock: .*No such file"):
        mock.main(["--plan", str(tmp_path / "none.json"), "--output_dir", str(tmp_path)])
