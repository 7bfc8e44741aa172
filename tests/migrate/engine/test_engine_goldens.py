"""Everything recorded of the engine road migrates, and the report accounts for every setting of it."""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.plan.conftest import GOLDEN, golden_model
from tests.support.standin.trtllm_build import main as standin
from trtllm_kit.build.mock import engine_files
from trtllm_kit.findings import errors
from trtllm_kit.migrate.engine.chosen import choose
from trtllm_kit.migrate.engine.machine import gpus_of
from trtllm_kit.migrate.engine.meaning import rows_of
from trtllm_kit.migrate.engine.profile import Asked
from trtllm_kit.migrate.engine.row import Row
from trtllm_kit.migrate.engine.whole import Migrated, Model, migrate
from trtllm_kit.migrate.found import Found, Reader, Setting, Where
from trtllm_kit.migrate.reading.path import found
from trtllm_kit.plan.decide import make_plan
from trtllm_kit.plan.plan import Plan
from trtllm_kit.plan.remedies import with_changes
from trtllm_kit.repository.compose import repository_files
from trtllm_kit.spec.load import hardware_for, load_hardware, load_profile
from trtllm_kit.upstream import known_releases, release
from trtllm_kit.upstream.facts import read_table

SCRIPTS = [path for part in ("steps", "releases") for path in sorted((GOLDEN / part).glob("*.json"))]
BUILDS = [path for path in SCRIPTS if path.parent.name == "steps" or path.stem.endswith(".trtllm-build")]
TARGETS = sorted((GOLDEN / "targets").glob("*.engines.txt"))
WITH_ENGINES = [name for name in known_releases() if "trtllm-build" in release(name).toolchains]
INPUTS = sorted(path.parent.name for path in (Path(__file__).parents[1] / "inputs").glob("*/expected.yaml"))
MODEL = Model("llama", golden_model("llama-3.1-8b"), 131072)
MACHINE = "h200x8-700w"


def write_tree(folder: Path, files: Mapping[str, str]) -> None:
    """Write files by relative path."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def script_of(path: Path) -> tuple[str, list[list[str]]]:
    """Return the script of a golden's steps, and the words of its commands."""
    recorded = json.loads(path.read_text("utf-8"))
    steps: list[dict[str, Any]] = recorded if isinstance(recorded, list) else recorded["steps"]
    runs = [step for step in steps if "argv" in step]
    lines = [f"export {name}={shlex.quote(value)}" for step in runs for name, value in step["env"].items()]
    return "\n".join(["#!/bin/sh", *lines, *(shlex.join(step["argv"]) for step in runs), ""]), [
        step["argv"] for step in runs
    ]


def written_settings(engine: Mapping[str, str], repository: Mapping[str, str]) -> dict[str, int]:
    """Count what files say without the room's readers: values of config.json, parameters, tensors, steps of models."""
    texts = [text for name, text in repository.items() if name.endswith("config.pbtxt")]
    patterns = {
        "parameters": r"^parameters\b", "input": r"^input\b", "output": r"^output\b", "steps": r"\bmodel_name:",
        "decoupled": r"\bdecoupled:", "max_batch_size": r"^max_batch_size:",
    }  # fmt: skip
    counts = {name: sum(len(re.findall(one, text, re.MULTILINE)) for text in texts) for name, one in patterns.items()}
    return counts | {"engine": _values(json.loads(engine["config.json"]))}


def _values(value: object) -> int:
    return sum(map(_values, value.values())) if isinstance(value, dict) and value else 1


def _counted(row: Row) -> str:
    setting = row.setting
    if setting.reader is not Reader.FIELD:
        return {Reader.ENGINE: "engine", Reader.PARAMETER: "parameters"}.get(setting.reader, setting.reader)
    return {"ensemble_scheduling.step": "steps"}.get(setting.name, setting.name.rpartition(".")[2])


def files_of(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the files that a golden of a deploy target holds."""
    for part in path.read_text("utf-8").split("=== ")[1:]:
        name, _, text = part.partition("\n")
        yield name.strip(), text


def whole(read: Found, to: str = "1.2.1") -> Migrated:
    """Migrate what was found, on a machine with room for it."""
    return migrate(read, Asked(to, MACHINE, "of the test", "migrated", "golden"), load_hardware(MACHINE), MODEL)


def accounted(read: Found, to: str = "1.2.1") -> Migrated:
    """Migrate, and prove that each setting has exactly one row, of a known meaning, and that the plan holds."""
    made = whole(read, to)
    rows = made.account.rows

    assert Counter(_keys(read)) == Counter(_key(row.setting) for row in rows)
    assert len(read.settings) == sum(made.account.counts.values())
    assert [] == [row.setting.name for row in rows if "no setting of that name" in row.means]
    assert () == errors(made.account.findings)
    return made


def _keys(read: Found) -> list[str]:
    return [_key(one) for one in read.settings]


def _key(one: Any) -> str:
    return f"{one.reader} {one.model} {one.name} {one.value} {one.where}"


def engine_plan(version: str) -> Plan:
    """Plan engines of a release."""
    changes = {"trtllm_version": version, "toolchain": "trtllm-build", "parallelism.tensor": 2, "hardware": "h100x2"}
    loaded = with_changes(load_profile("h200x1-llama3.1-8b-fp8"), changes)
    return make_plan(golden_model("llama-3.1-8b"), loaded, hardware_for(loaded.profile))


@pytest.mark.parametrize("path", BUILDS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_recorded_build_migrates_with_every_option_accounted_for(path: Path, tmp_path: Path) -> None:
    """Options in = rows out: each option word of the command is a row, or a place that was not read."""
    text, commands = script_of(path)
    script = tmp_path / "build.sh"
    script.write_text(text)
    read = found(script)
    made = accounted(read)
    words = sum(word.startswith("--") for argv in commands for word in argv)
    built = [row for row in made.account.rows if row.setting.reader is Reader.BUILD]

    assert words == len(built) + len(read.unread)
    assert 25 < len(built)


@pytest.mark.parametrize("path", TARGETS, ids=lambda path: path.stem)
def test_every_recorded_deployment_of_engines_migrates(path: Path, tmp_path: Path) -> None:
    """Scripts and manifests that start engines: every option of the server in them is a row, or was not read."""
    texts = dict(files_of(path))
    write_tree(tmp_path / "deployment", texts)
    account = accounted(found(tmp_path / "deployment")).account
    lines = [line for text in texts.values() for line in text.splitlines() if "pkill" not in line and "#" not in line]
    words = [
        word for line in lines for word in re.findall(r"(?<![\w-])--((?:http|grpc|metrics|model|exit)-[\w-]+)=", line)
    ]
    told = Counter(row.setting.name for row in account.rows if row.setting.reader is Reader.TRITON)
    told.update(re.findall(r"--([\w-]+)=", " ".join(one.text for one in account.found.unread)))

    assert 8 <= len(words)
    assert Counter(words) == {word: told[word] + told[word.replace("-", "_")] for word in words}


@pytest.mark.parametrize("version", WITH_ENGINES)
def test_an_engine_and_its_repository_of_every_release_migrate(version: str, tmp_path: Path) -> None:
    """The new profile has the limits, formats and split of the plan that the engine was built for."""
    plan = engine_plan(version)
    write_tree(tmp_path / "served" / "engine", engine_files(plan))
    repository = repository_files(plan, tmp_path / "served" / "repository")
    write_tree(tmp_path / "served" / "repository", repository)
    account = accounted(found(tmp_path / "served")).account
    profile = account.profile

    counts = Counter(map(_counted, account.rows))

    assert (wanted := written_settings(engine_files(plan), repository)) == {name: counts[name] for name in wanted}
    assert 5 <= wanted["steps"] + wanted["max_batch_size"]

    assert [plan.limits.max_batch_size.value, plan.limits.max_seq_len.value] == [
        profile["limits"]["max_batch_size"], profile["limits"]["max_seq_len"]
    ]  # fmt: skip
    assert ("fp8", "fp8", 2) == (
        profile["quantization"]["weights"], profile["quantization"]["kv_cache"], profile["parallelism"]["tensor"]
    )  # fmt: skip
    assert plan.runtime.free_gpu_memory_fraction.value == profile["kv_cache"]["free_gpu_memory_fraction"]
    assert plan.runtime.scheduler_policy.value == profile["scheduler"]["policy"]
    assert 2 == gpus_of(found(tmp_path / "served"), "1.2.1")


@pytest.mark.parametrize("version", WITH_ENGINES)
def test_an_engine_of_the_strict_stand_in_migrates(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It writes every field of BuildConfig and PluginConfig that the release has, reconciled as the builder does."""
    plan = engine_plan(version)
    pretrained = json.loads(engine_files(plan)["config.json"])["pretrained_config"]
    weights = {f"rank{rank}.safetensors": "" for rank in range(pretrained["mapping"]["world_size"])}
    write_tree(tmp_path / "checkpoint", {"config.json": json.dumps(pretrained), **weights})
    monkeypatch.setenv("STANDIN_RELEASE", version)
    monkeypatch.chdir(tmp_path)
    standin(
        ["--checkpoint_dir", "checkpoint", "--output_dir", "engine", "--max_batch_size", "16", "--max_seq_len", "512"]
    )
    both = [accounted(found(tmp_path / name)).account for name in ("engine", "checkpoint")]

    assert version == both[0].found.release
    assert {"max_batch_size": 16, "max_seq_len": 512}.items() <= both[0].profile["limits"].items()
    assert ["fp8", "fp8"] == [one.profile["quantization"]["weights"] for one in both]


@pytest.mark.parametrize("to", ["1.0.0", "1.1.0", "1.2.0", "1.3.0rc29", "main"])
def test_engines_of_an_old_release_migrate_to_each_one_without_engines(to: str, tmp_path: Path) -> None:
    """The plan of the written profile has no error on any of them, and the YAML no key that the release lacks."""
    write_tree(tmp_path / "engine", engine_files(engine_plan("0.17.0")))
    made = accounted(found(tmp_path / "engine"), to)

    assert [] == [one.rule for one in made.account.findings if one.rule == "PF24"]
    assert "repository/tensorrt_llm/config.pbtxt" in made.files


@pytest.mark.parametrize("case", INPUTS)
def test_an_input_of_the_field_gives_the_profile_that_was_written_by_hand(case: str) -> None:
    """Sections of the expected profile and of the one made are the same; every setting has one row."""
    folder = Path(__file__).parents[1] / "inputs" / case
    expected = yaml.safe_load((folder / "expected.yaml").read_text("utf-8"))
    read = found(folder / expected["path"])
    machine = expected.get("hardware", "dgx-b200" if "nvfp4" in case else MACHINE)
    made = migrate(read, Asked("1.2.1", machine, "of the test", "migrated", case), load_hardware(machine)).account

    made_of_settings = {
        name: value for name, value in made.profile.items() if isinstance(value, dict) and name != "load"
    }

    assert expected["profile"] == made_of_settings
    assert _keys(read) == [_key(row.setting) for row in made.rows]
    assert [] == [row.setting.name for row in made.rows if "no setting of that name" in row.means]


@pytest.mark.parametrize("machine", ["a100x8", "h100x8", "l40sx8", "dgx-b200"])
def test_no_number_format_of_engines_gives_a_profile_that_the_plan_refuses(machine: str) -> None:
    """Each algorithm of weights, beside a KV cache in 16 bit and in INT8, on every generation of GPUs."""
    algos = {word for row in read_table("engine_settings")["formats"] for word in row["words"] if word.isupper()}
    refused = []
    for to, algo, cache in itertools.product(("1.0.0", "1.2.1"), sorted(algos), (None, "INT8")):
        said = {"quantization.quant_algo": algo, "quantization.kv_cache_quant_algo": cache, "mapping.tp_size": 1}
        where = Where("config.json", 1)
        read = Found(tuple(Setting(Reader.CHECKPOINT, name, value, where) for name, value in said.items()))
        made = migrate(read, Asked(to, machine, "of the test", "migrated", "x"), load_hardware(machine), MODEL)
        refused += [(to, algo, cache, one.rule) for one in errors(made.account.findings) if one.rule == "PF7"]

    assert 15 < len(algos)
    assert [] == refused


def test_the_same_input_gives_the_same_files(tmp_path: Path) -> None:
    """No clock, host or path of this machine stands in them."""
    write_tree(tmp_path / "engine", engine_files(engine_plan("1.2.1")))
    one, other = (whole(found(tmp_path / "engine")).files for _ in range(2))

    assert one == other
    assert [] == [name for name, text in one.items() if str(tmp_path) in text]


def test_rows_stay_in_the_order_of_the_settings(tmp_path: Path) -> None:
    """Choosing which of them holds moves none."""
    write_tree(tmp_path / "engine", engine_files(engine_plan("1.2.1")))
    read = found(tmp_path / "engine")

    assert _keys(read) == [_key(row.setting) for row in choose(rows_of(read, "1.2.1"))]
