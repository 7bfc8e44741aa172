"""The whole road with the installed command and a real Triton server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.request
from pathlib import Path

import pytest

from tests.support.cli import config_folder, trtkit, trtkit_path
from tests.support.road import alive, profile_text
from tests.support.tiny_model import write_tiny_model

pytestmark = pytest.mark.triton


@pytest.fixture(scope="module")
def road(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model taken as far as a model repository, under a profile with free ports."""
    base = tmp_path_factory.mktemp("road")
    write_tiny_model(base / "model")
    (base / "profile.yaml").write_text(profile_text("tiny", "cpu-rehearsal-simulated"))
    for verb, source, target in (
        ("convert", "model", "checkpoint"),
        ("build", "checkpoint", "engine"),
        ("deploy", "engine", "repository"),
    ):
        ran = trtkit(verb, base / source, "--profile", base / "profile.yaml", "--out", base / target)
        assert ran.code == 0, ran.err
    return base


def leftovers(record: dict[str, str]) -> list[str]:
    """List the shared memory of the server a record tells of."""
    return sorted(path.name for path in Path("/dev/shm").iterdir() if path.name.startswith(record["shm_prefix"]))


def test_each_verb_says_that_it_is_up_to_date_the_second_time(road: Path) -> None:
    """Rerunning a finished stage does nothing and says so."""
    for verb, source, target in (("convert", "model", "checkpoint"), ("build", "checkpoint", "engine")):
        ran = trtkit(verb, road / source, "--profile", road / "profile.yaml", "--out", road / target, "--json")
        assert (0, True) == (ran.code, ran.json["up_to_date"])


def test_a_dry_run_writes_nothing_and_names_what_the_run_writes(road: Path, tmp_path: Path) -> None:
    """The dry run of convert lists exactly the tensors of the checkpoint."""
    ran = trtkit(
        "convert", road / "model", "-p", road / "profile.yaml", "--out", tmp_path / "out", "--dry-run", "--json"
    )
    header = (road / "checkpoint" / "model.safetensors").read_bytes()
    length = int.from_bytes(header[:8], "little")
    written = json.loads(header[8 : 8 + length])
    written.pop("__metadata__")

    assert not (tmp_path / "out").exists()
    assert {step["tensor"]: (step["dtype"], step["shape"]) for step in ran.json["tensors"]} == {
        name: (entry["dtype"], entry["shape"]) for name, entry in written.items()
    }


def test_a_changed_limit_changes_the_engine_and_not_the_checkpoint(road: Path, tmp_path: Path) -> None:
    """What the checkpoint does not depend on does not make it stale."""
    changed = tmp_path / "changed.yaml"
    changed.write_text((road / "profile.yaml").read_text().replace("max_seq_len: 512", "max_seq_len: 448"))

    kept = trtkit("convert", road / "model", "-p", changed, "--out", road / "checkpoint", "--json")
    made = trtkit("build", road / "checkpoint", "-p", changed, "--out", tmp_path / "engine", "--json")

    assert (True, False) == (kept.json["up_to_date"], made.json["up_to_date"])
    assert "max_seq_len: 448" in (tmp_path / "engine" / "llm_args.yaml").read_text()


def test_another_number_format_makes_the_checkpoint_drift(road: Path, tmp_path: Path) -> None:
    """Build refuses a checkpoint of another format with exit 1 and says what differs."""
    changed = tmp_path / "changed.yaml"
    changed.write_text((road / "profile.yaml").read_text() + "quantization: {weights: bf16, kv_cache: bf16}\n")

    ran = trtkit("build", road / "checkpoint", "-p", changed, "--out", tmp_path / "engine")

    assert ran.code == 1
    assert "KIT-PLAN-002" in ran.err
    assert "quantization" in ran.err


def test_a_background_server_answers_is_well_and_stops_without_a_trace(road: Path) -> None:
    """Deploy --start --background, a question, check-health by repository, stop."""
    profile, repository = road / "profile.yaml", road / "repository"
    started = trtkit("deploy", road / "engine", "-p", profile, "--out", repository, "--start", "--background")
    try:
        assert started.code == 0, started.err
        record = json.loads((road / "repository.run.json").read_text())
        body = json.dumps({"text_input": "a", "sampling_param_max_tokens": 4}).encode()
        with urllib.request.urlopen(f"{record['urls']['http']}/v2/models/tensorrt_llm/generate", body) as answer:
            assert json.load(answer)["text_output"]
        well = trtkit("check-health", "-p", profile, "--repository", repository, "--interval", "0.2")
        assert (0, "TRTKIT OK") == (well.code, well.out.split(":")[0])
        assert "gpu-utilization" in trtkit("check-health", "--repository", repository, "--json").out
    finally:
        stopped = trtkit("stop", repository)
    assert stopped.code == 0
    assert not alive(record["pid"])
    assert leftovers(record) == []
    assert trtkit("check-health", "-p", profile, "--repository", repository, "--samples", "1").code == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_foreground_server_ends_cleanly_when_the_command_is_ended(road: Path, number: signal.Signals) -> None:
    """Ctrl-C and SIGTERM stop the server: exit 0, no orphan, no shared memory."""
    command = [trtkit_path(), "deploy", str(road / "engine"), "-p", str(road / "profile.yaml")]
    process = subprocess.Popen(
        [*command, "--out", str(road / "repository"), "--start"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    assert process.stderr is not None
    for line in process.stderr:
        if b"Ctrl-C" in line:
            break
    record = json.loads((road / "repository.run.json").read_text())
    process.send_signal(number)
    process.communicate(timeout=60)

    assert process.returncode == 0
    assert not alive(record["pid"])
    assert leftovers(record) == []


def test_a_second_server_on_the_same_ports_is_refused_with_the_port(road: Path, tmp_path: Path) -> None:
    """The message names the port, and what to set instead."""
    profile = road / "profile.yaml"
    first = trtkit("deploy", road / "engine", "-p", profile, "--out", tmp_path / "first", "--start", "--background")
    try:
        assert first.code == 0, first.err
        second = trtkit("deploy", road / "engine", "-p", profile, "--out", tmp_path / "second", "--start")
        assert second.code == 3
        assert "KIT-SERVE-002" in second.err
    finally:
        trtkit("stop", tmp_path / "first")


@pytest.mark.smollm2
def test_the_quickstart_answers_in_the_models_own_words_and_ends_ok(tmp_path: Path) -> None:
    """The real model goes on from the prompt with Paris out of its FP8 checkpoint, and the verdict is OK."""
    (tmp_path / "quick.yaml").write_text(
        profile_text("quick", "cpu-rehearsal-smollm2").replace("samples: 2, tokens_per_sample: 64", "samples: 4")
    )
    ran = trtkit("quickstart", "-p", tmp_path / "quick.yaml", "--out", tmp_path / "made", "--tokens", "8", timeout=600)

    assert ran.code == 0, ran.err
    lines = ran.out.splitlines()
    assert "The capital of France is Paris" in ran.out
    assert lines[-1] == "OK"
    assert [line.split()[2] for line in lines if line.startswith("$ trtkit")] == [
        "plan", "convert", "build", "deploy", "check-health",
    ]  # fmt: skip
    again = trtkit("quickstart", "-p", tmp_path / "quick.yaml", "--out", tmp_path / "made", "--json", timeout=600)
    assert again.json["verdict"].startswith("TRTKIT OK")
    assert "Paris" in again.json["answer"]
    assert all(step["result"].get("up_to_date", True) for step in again.json["steps"])


@pytest.mark.smollm2
def test_the_quality_report_of_the_real_checkpoint_says_the_logits_are_close(tmp_path: Path) -> None:
    """FP8 of the real model keeps a logit cosine of 0.98, four top tokens in five, and its perplexity within 10 %."""
    from trtllm_kit.quickstart.small_model import cache_folder

    model = cache_folder() / "SmolLM2-135M-Instruct"
    ran = trtkit(
        "convert", model, "-p", "cpu-rehearsal-smollm2", "--out", tmp_path / "ckpt", "--json", timeout=600,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )  # fmt: skip
    quality = ran.json["manifest"]["facts"]["quality"]

    assert quality["logit_cosine"] > 0.98
    assert quality["top1_agreement"] > 0.8
    assert abs(quality["perplexity_converted"] / quality["perplexity_source"] - 1) < 0.1


def test_the_shipped_405b_plan_has_the_numbers_of_32_ranks(tmp_path: Path) -> None:
    """12.68B parameters a GPU by even split, 13.08B held since 8 KV heads are held four times, 252 all-reduces."""
    ran = trtkit("plan", config_folder(tmp_path, "llama-3.1-405b"), "-p", "gh200-nvl32-llama3.1-405b-fp8", "--json")
    memory, traffic = ran.json["memory"], ran.json["communication"]

    assert ran.code == 0
    assert (12.68, 13.08) == (
        round(memory["parameters_even_split"] / 1e9, 2),
        round(memory["parameters_held"] / 1e9, 2),
    )
    assert (252, 4) == (traffic["all_reduces"], ran.json["parallelism"]["kv_replication"]["value"])
