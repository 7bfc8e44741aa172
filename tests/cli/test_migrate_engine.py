"""``trtkit migrate engine`` as its users run it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.migrate.engine.test_engine_goldens import engine_plan
from tests.support.cli import config_folder, trtkit
from trtllm_kit.build.mock import engine_files
from trtllm_kit.spec.load import load_profile
from trtllm_kit.upstream.llm_api import unknown_llm_api_keys

SCRIPT = """\
#!/bin/bash
set -e
MODEL=./llama
python3 quantize.py --model_dir $MODEL --qformat fp8 --kv_cache_dtype fp8 --tp_size 2 --output_dir ./ckpt
trtllm-build --checkpoint_dir ./ckpt --output_dir ./engine --max_batch_size 64 --max_seq_len 4096 \\
  --gemm_plugin auto --cluster_key H100-SXM --max_lora_rank 8 {more}
python3 launch_triton_server.py --world_size 2 --model_repo repo --http_port 9000
"""
RULES = """\
groups:
- name: a
  rules:
  - {alert: A, expr: 'nv_inference_count{model="ensemble"} > 1'}
  - {alert: B, expr: %s}
"""


@pytest.fixture(name="script")
def build_script(tmp_path: Path) -> Path:
    """A script that quantises, builds and starts, of which every option has its equal."""
    path = tmp_path / "build.sh"
    path.write_text(SCRIPT.format(more=""))
    return path


def test_a_script_becomes_a_folder_that_the_next_verbs_take(script: Path, tmp_path: Path) -> None:
    """Profile, arguments, repository and reports; the plan of the written profile has no error."""
    model = config_folder(tmp_path, "llama-3.1-8b")
    out = tmp_path / "migrated"
    ran = trtkit("migrate", "engine", script, "--model", model, "--out", out)
    profile = load_profile(str(out / "profile.yaml")).profile
    planned = trtkit("plan", model, "--profile", out / "profile.yaml")

    assert 0 == ran.code, ran.out
    assert (0, "h100x2", "fp8") == (planned.code, profile.hardware, profile.quantization.weights)
    assert (64, 4096, 2, 9000) == (
        profile.limits.max_batch_size, profile.limits.max_seq_len, profile.parallelism.tensor, profile.serve.http_port
    )  # fmt: skip
    for name in ("llm_args.yaml", "repository/tensorrt_llm/1/model.yaml"):
        written = yaml.safe_load((out / name).read_text())
        written.pop("triton_config", None)
        assert (8, ()) == (written["lora_config"]["max_lora_rank"], unknown_llm_api_keys("1.2.1", written))


def test_the_report_accounts_for_every_setting(script: Path, tmp_path: Path) -> None:
    """As text, as Markdown and as JSON, each with the place it was found at."""
    ran = trtkit("migrate", "engine", script, "--json", "--out", tmp_path / "out")
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    text = (tmp_path / "out" / "report.md").read_text()

    assert report["settings"] == len(report["rows"]) == sum(report["counts"].values())
    assert report["rows"] == ran.json["rows"]
    assert all(row["where"] in text and row["name"] in text for row in report["rows"])
    assert {"build.sh:4", "build.sh:5", "build.sh:6", "build.sh:7"} == {row["where"] for row in report["rows"]}


def test_without_a_model_there_is_no_repository_and_the_report_says_so(script: Path, tmp_path: Path) -> None:
    """The arguments are what the profile says."""
    ran = trtkit("migrate", "engine", script, "--out", tmp_path / "out")
    arguments = yaml.safe_load((tmp_path / "out" / "llm_args.yaml").read_text())

    assert (0, False) == (ran.code, (tmp_path / "out" / "repository").exists())
    assert "--model FOLDER" in ran.out
    assert (64, 4096, 2, ()) == (
        arguments["max_batch_size"], arguments["max_seq_len"], arguments["tensor_parallel_size"],
        unknown_llm_api_keys("1.2.1", arguments),
    )  # fmt: skip


def test_a_model_that_the_script_names_and_that_lies_beside_it_is_planned(script: Path, tmp_path: Path) -> None:
    """Without --model; said on stderr."""
    config_folder(tmp_path, "llama-3.1-8b").rename(tmp_path / "llama")
    ran = trtkit("migrate", "engine", script, "--out", tmp_path / "out")

    assert (0, True) == (ran.code, (tmp_path / "out" / "repository").is_dir())
    assert "./llama" in ran.err


@pytest.mark.parametrize("more", ["--gather_context_logits", "--max_bach_size 3", "--max_beam_width ${WIDTH}"])
def test_what_is_lost_or_not_read_is_exit_1_and_written_all_the_same(tmp_path: Path, more: str) -> None:
    """No equivalent, a misspelt option, a variable that nobody sets."""
    script = tmp_path / "build.sh"
    script.write_text(SCRIPT.format(more=more))
    ran = trtkit("migrate", "engine", script, "--out", tmp_path / "out", "--json")

    assert (1, "no", True) == (ran.code, ran.json["verdict"], (tmp_path / "out" / "profile.yaml").is_file())


def test_rules_are_rewritten_beside_it(script: Path, tmp_path: Path) -> None:
    """One without an equivalent is exit 1."""
    rules = tmp_path / "alerts.yaml"
    codes = []
    for lost in ("up == 0", "nv_inference_queue_duration_us > 1"):
        rules.write_text(RULES % f"'{lost}'")
        codes.append(trtkit("migrate", "engine", script, "--rules", rules, "--out", tmp_path / "out", "--force").code)

    assert [0, 1] == codes
    assert 'model="tensorrt_llm"' in (tmp_path / "out" / "prometheus-rules.yaml").read_text()


def test_nothing_is_written_without_a_folder_or_in_a_dry_run(script: Path, tmp_path: Path) -> None:
    """The dry run says what each file would be."""
    before = sorted(path.name for path in tmp_path.iterdir())
    shown = trtkit("migrate", "engine", script)
    dry = trtkit("migrate", "engine", script, "--out", tmp_path / "out", "--dry-run", "--json")

    assert (0, 0) == (shown.code, dry.code)
    assert before == sorted(path.name for path in tmp_path.iterdir())
    assert {"new"} == {change["state"] for change in dry.json["changes"]}


def test_a_persons_changes_are_given_up_with_force_alone(script: Path, tmp_path: Path) -> None:
    """A second run that finds nothing changed says same of each file."""
    out = tmp_path / "out"
    trtkit("migrate", "engine", script, "--out", out)
    again = trtkit("migrate", "engine", script, "--out", out, "--json")
    (out / "profile.yaml").write_text("mine\n")
    refused = trtkit("migrate", "engine", script, "--out", out)
    kept = (out / "profile.yaml").read_text()
    forced = trtkit("migrate", "engine", script, "--out", out, "--force")

    assert {"same"} == {change["state"] for change in again.json["changes"]}
    assert (1, "mine\n") == (refused.code, kept)
    assert "profile.yaml" in refused.err
    assert (0, True) == (forced.code, (out / "profile.yaml").read_text().startswith("# Migrated"))


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--to", "0.18.2"], 2, "serves engines"),
        (["--to", "7.0"], 2, "is not a release trtkit knows"),
        (["--hardware", "h100x99"], 2, "h100x99"),
        (["--rules", "missing.yaml"], 3, "missing.yaml"),
    ],
)
def test_what_cannot_be_asked_is_refused(script: Path, options: list[str], code: int, said: str) -> None:
    """With the words that were wrong."""
    ran = trtkit("migrate", "engine", script, *options)

    assert code == ran.code
    assert said in ran.err


def test_a_machine_that_no_file_names_is_asked_for(tmp_path: Path) -> None:
    """Never guessed."""
    script = tmp_path / "build.sh"
    script.write_text("trtllm-build --checkpoint_dir a --output_dir b\n")
    ran = trtkit("migrate", "engine", script)

    assert 2 == ran.code
    assert "no file names a GPU" in ran.err
    assert "--hardware" in ran.err


def test_what_builds_and_serves_nothing_is_said(tmp_path: Path) -> None:
    """A script of something else."""
    script = tmp_path / "other.sh"
    script.write_text("echo hello\n")

    assert 3 == trtkit("migrate", "engine", script, "--hardware", "h100x2").code


def test_an_engine_that_describes_its_model_is_planned_by_itself(tmp_path: Path) -> None:
    """The repository has the limits of the engine, and the report says whose description it is."""
    engine = tmp_path / "engine"
    engine.mkdir()
    for name, text in engine_files(engine_plan("0.17.0")).items():
        (engine / name).write_text(text)
    ran = trtkit("migrate", "engine", engine, "--hardware", "h100x2", "--out", tmp_path / "out", "--json")
    config = (tmp_path / "out" / "repository" / "tensorrt_llm" / "config.pbtxt").read_text()

    assert (0, "the model that config.json describes", "") == (ran.code, ran.json["planned_for"], ran.json["model"])
    assert 'key: "max_batch_size"' in config
    assert "decoupled: true" in config
