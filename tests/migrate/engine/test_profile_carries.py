"""What a migration writes into LLM-API YAML stands in its profile: planned and built again, no key is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.migrate.engine.test_engine_goldens import (
    BUILDS,
    INPUTS,
    MACHINE,
    MODEL,
    TARGETS,
    WITH_ENGINES,
    engine_plan,
    files_of,
    script_of,
    whole,
    write_tree,
)
from tests.support.specs import qwen3_moe
from trtllm_kit.build.mock import engine_files
from trtllm_kit.build.step import WriteFile
from trtllm_kit.build.toolchain import LLM_ARGS, steps
from trtllm_kit.migrate.engine.profile import Asked
from trtllm_kit.migrate.engine.whole import PROFILE, Migrated, migrate
from trtllm_kit.migrate.found import Found, Reader, Setting, Where
from trtllm_kit.migrate.reading.path import found
from trtllm_kit.plan.decide import make_plan
from trtllm_kit.plan.plan import Plan
from trtllm_kit.repository.compose import repository_files
from trtllm_kit.spec.load import hardware_for, load_hardware, load_profile
from trtllm_kit.upstream.engine_settings import Meaning, meanings

_MODEL_YAML = "repository/tensorrt_llm/1/model.yaml"


def planned(made: Migrated, folder: Path) -> Plan:
    """Plan the written profile, read from its file as ``trtkit plan`` reads it."""
    path = folder / PROFILE
    path.write_text(made.files[PROFILE], encoding="utf-8")
    loaded = load_profile(str(path))
    model = MODEL.spec if loaded.profile.parallelism.expert == 1 else qwen3_moe(8)
    return make_plan(model, loaded, hardware_for(loaded.profile))


def built(plan: Plan) -> dict[str, Any]:
    """Return the LLM-API YAML that ``trtkit build`` writes into an engine."""
    texts = {step.path: step.text for step in steps(plan) if isinstance(step, WriteFile)}
    document: dict[str, Any] = yaml.safe_load(texts[LLM_ARGS])
    return document


def leaves(document: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the values of a document by dotted key."""
    found_: dict[str, Any] = {}
    for name, value in document.items():
        inside = isinstance(value, dict) and value
        found_ |= leaves(value, f"{prefix}{name}.") if inside else {f"{prefix}{name}": value}
    return found_


def carried(read: Found, folder: Path, to: str = "1.2.1", machine: str = MACHINE) -> Migrated:
    """Migrate with the model and without it, and prove that the profile carries every key of both YAMLs."""
    asked = Asked(to, machine, "of the test", "migrated", "golden")
    made = whole(read, to) if machine == MACHINE else migrate(read, asked, load_hardware(machine), MODEL)
    again = leaves(built(planned(made, folder)))
    model_yaml = yaml.safe_load(made.files[_MODEL_YAML])
    arguments = leaves(yaml.safe_load(made.files[LLM_ARGS]))
    assert {} == {key: (value, again.get(key)) for key, value in arguments.items() if again.get(key, again) != value}
    assert arguments == leaves({key: value for key, value in model_yaml.items() if key != "triton_config"})

    unplanned = migrate(read, asked, load_hardware(machine))
    of_it = leaves(built(planned(unplanned, folder)))
    said = leaves(yaml.safe_load(unplanned.files[LLM_ARGS]))
    assert {} == {key: (value, of_it.get(key)) for key, value in said.items() if of_it.get(key, of_it) != value}
    return made


@pytest.mark.parametrize("case", INPUTS)
def test_the_profile_of_an_input_carries_every_key(case: str, tmp_path: Path) -> None:
    """The YAML of an engine that is built from the written profile is the one that was written beside it."""
    folder = Path(__file__).parents[1] / "inputs" / case
    expected = yaml.safe_load((folder / "expected.yaml").read_text("utf-8"))
    machine = expected.get("hardware", "dgx-b200" if "nvfp4" in case else MACHINE)
    made = carried(found(folder / expected["path"]), tmp_path, machine=machine)
    options = expected["profile"].get("llm_api", {}).get("options", {})

    assert options.items() <= leaves(yaml.safe_load(made.files[LLM_ARGS])).items()


@pytest.mark.parametrize("path", BUILDS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_the_profile_of_a_recorded_build_carries_every_key(path: Path, tmp_path: Path) -> None:
    """Scripts of every step that was recorded."""
    script = tmp_path / "build.sh"
    script.write_text(script_of(path)[0])

    carried(found(script), tmp_path)


@pytest.mark.parametrize("path", TARGETS, ids=lambda path: path.stem)
def test_the_profile_of_a_recorded_deployment_carries_every_key(path: Path, tmp_path: Path) -> None:
    """Scripts and manifests that start engines."""
    write_tree(tmp_path / "deployment", dict(files_of(path)))

    carried(found(tmp_path / "deployment"), tmp_path)


@pytest.mark.parametrize("version", WITH_ENGINES)
def test_the_profile_of_an_engine_and_its_repository_carries_every_key(version: str, tmp_path: Path) -> None:
    """Every release that builds engines."""
    plan = engine_plan(version)
    write_tree(tmp_path / "served" / "engine", engine_files(plan))
    write_tree(tmp_path / "served" / "repository", repository_files(plan, tmp_path / "served" / "repository"))

    carried(found(tmp_path / "served"), tmp_path)


_VALUES = {"flag": "true", "switch": "true", "number": 0.5, "whole": 7, "words": ["attn_q", "attn_v"]}
_READERS = {
    "build": Reader.BUILD, "convert": Reader.CONVERT, "checkpoint": Reader.CHECKPOINT, "parameter": Reader.PARAMETER,
    "serve": Reader.SERVE,
}  # fmt: skip


@pytest.mark.parametrize("to", ["1.0.0", "1.2.1", "main"])
def test_a_setting_without_a_word_of_profiles_is_an_option_of_its_profile(to: str, tmp_path: Path) -> None:
    """It has a place, its row names it, and the YAML of the built engine has its value."""
    rows = {row.llm: row for row in meanings() if row.llm and not row.key and row.how != "none"}
    settings = tuple(
        Setting(_READERS[row.reader[0]], row.names[0], _value(row), Where("x", line), "")
        for line, row in enumerate(rows.values(), 1)
    )
    made = carried(Found(settings), tmp_path, to)
    document = leaves(yaml.safe_load(made.files[LLM_ARGS]))

    assert 15 < len(rows)
    for told, key in zip(made.account.rows, rows, strict=True):
        if told.writes:
            assert (f"llm_api.options.{key}", told.value) == (told.document()["key"], document[key])
        else:
            assert "does not take" in told.lost, key


def _value(row: Meaning) -> object:
    """Return a value that the setting may have."""
    words = {"dtype": "float16", "guided_decoding_backend": "xgrammar"}
    return row.when[0] if row.when else _VALUES.get(row.takes, words.get(row.llm, "hf"))


def test_adapters_are_carried_whole(tmp_path: Path) -> None:
    """The limits of an engine with adapters, and the cache of the runtime beside them; the plan says what it omits."""
    said = {
        "lora_plugin": (Reader.BUILD, "auto"), "max_lora_rank": (Reader.BUILD, 32),
        "lora_target_modules": (Reader.BUILD, ["attn_q", "attn_v"]),
        "lora_cache_gpu_memory_fraction": (Reader.PARAMETER, "0.1"),
        "lora_cache_host_memory_bytes": (Reader.PARAMETER, "1073741824"),
        "max_tokens_in_paged_kv_cache": (Reader.PARAMETER, "500000"),
    }  # fmt: skip
    settings = tuple(
        Setting(reader, name, value, Where("x", line), "tensorrt_llm" if reader is Reader.PARAMETER else "")
        for line, (name, (reader, value)) in enumerate(said.items(), 1)
    )
    made = carried(Found(settings), tmp_path)

    assert {
        "enable_lora": True, "lora_config.max_lora_rank": 32, "lora_config.lora_target_modules": ["attn_q", "attn_v"],
        "peft_cache_config.device_cache_percent": 0.1, "peft_cache_config.host_cache_size": 1 << 30,
        "kv_cache_config.max_tokens": 500000,
    } == made.account.profile["llm_api"]["options"]  # fmt: skip
    assert [("warning", True)] == [
        (one.severity, "adapters" in one.message) for one in made.account.findings if one.rule == "PF24"
    ]  # fmt: skip
