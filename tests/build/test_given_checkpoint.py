"""Engines of checkpoints that upstream's converters made: heads that draft, and what is refused before the builder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.build.test_trtllm_build_cli import DOCKER, converted, engine_config, write_profile
from tests.support.cli import Ran, trtkit
from tests.support.standin.install import installed
from tests.support.tiny_model import write_tiny_model

HEADS: dict[str, tuple[int, int, str, dict[str, Any]]] = {
    "medusa": (4, 63, "MedusaForCausalLM", {"max_draft_len": 63, "num_medusa_heads": 4}),
    "redrafter": (16, 25, "ReDrafterForCausalLM", {"redrafter_num_beams": 5, "redrafter_draft_len_per_beam": 5}),
    "eagle": (32, 60, "EagleForCausalLM",
              {"num_eagle_layers": 4, "max_non_leaves_per_layer": 10, "eagle_net_config": {"num_hidden_layers": 1}}),
}  # fmt: skip
"""By kind: the number of the mode, drafts, the architecture and what its converter writes into config.json."""


@pytest.fixture(scope="module", name="model")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model whose heads eight ranks can share."""
    base = tmp_path_factory.mktemp("given")
    write_tiny_model(base / "model", "llama", num_attention_heads=8, num_hidden_layers=4)
    return base / "model"


@pytest.fixture(scope="module", name="own")
def own_checkpoint(model: Path) -> Path:
    """What trtkit converts for 0.18.2."""
    return converted(model, model.parent, "0.18.2")


def given(own: Path, folder: Path, kind: str, **changes: Any) -> Path:
    """Write the checkpoint that upstream's converter of a kind would leave: other names, and no record of trtkit's."""
    out = folder / f"{kind}-checkpoint"
    shutil.copytree(own, out, ignore=shutil.ignore_patterns("trtkit-*"))
    config = json.loads((out / "config.json").read_text())
    if kind in HEADS:
        config |= {"architecture": HEADS[kind][2], **HEADS[kind][3]}
    config = {name: value for name, value in (config | changes).items() if value is not None}
    (out / "config.json").write_text(json.dumps(config))
    return out


def drafting(kind: str, drafts: int | None = None) -> str:
    """Return the profile's section for a kind."""
    return f"speculation: {{kind: {kind}, draft_tokens: {drafts or HEADS[kind][1]}}}"


def build(checkpoint: Path, folder: Path, more: str, *words: str | Path) -> Ran:
    """Build with the stand-in of 0.18.2."""
    profile = write_profile(folder, "0.18.2", more)
    environment = installed(folder / "bin", "0.18.2") | {"DOCKER_LOG": str(folder / "docker.log")}
    return trtkit("build", checkpoint, "-p", profile, "--out", folder / "engine", *words, env=environment)


@pytest.mark.parametrize("kind", HEADS)
def test_an_engine_of_given_heads_is_built(kind: str, model: Path, own: Path, tmp_path: Path) -> None:
    """In its mode and with its drafts, without another word when nothing changed, and anew when a byte did."""
    checkpoint = given(own, tmp_path, kind)
    number, drafts, _, _ = HEADS[kind]
    first = build(checkpoint, tmp_path, drafting(kind), "--model", model, "--json")
    assert (0, False) == (first.code, first.json["up_to_date"]), first.err
    built = engine_config(tmp_path / "engine")["build_config"]
    assert (number, drafts) == (built["speculative_decoding_mode"], built["max_draft_len"])
    assert build(checkpoint, tmp_path, drafting(kind), "--model", model, "--json").json["up_to_date"]
    weights = checkpoint / "rank3.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\xff")
    assert not build(checkpoint, tmp_path, drafting(kind), "--model", model, "--json").json["up_to_date"]


def test_heads_of_the_later_name_are_taken_too(model: Path, own: Path, tmp_path: Path) -> None:
    """Later converters name the base model in the architecture."""
    checkpoint = given(own, tmp_path, "medusa", architecture="MedusaLlamaForCausalLM")
    ran = build(checkpoint, tmp_path, drafting("medusa"), "--model", model)
    assert 0 == ran.code, ran.err


def test_lookahead_needs_no_heads(own: Path, tmp_path: Path) -> None:
    """The checkpoint is trtkit's own."""
    ran = build(own, tmp_path, drafting("lookahead", 8))
    assert 0 == ran.code, ran.err
    assert 8 == engine_config(tmp_path / "engine")["build_config"]["speculative_decoding_mode"]


def test_a_plain_checkpoint_of_upstream_is_built(model: Path, own: Path, tmp_path: Path) -> None:
    """Whoever converted it, where its config.json says what is planned."""
    ran = build(given(own, tmp_path, "plain"), tmp_path, "", "--model", model)
    assert 0 == ran.code, ran.err


def test_without_its_model_a_given_checkpoint_is_no_plan(own: Path, tmp_path: Path) -> None:
    """The error names the option."""
    ran = build(given(own, tmp_path, "medusa"), tmp_path, drafting("medusa"))
    assert (2, True) == (ran.code, "--model MODEL" in ran.err), ran.err


@pytest.mark.parametrize(
    ("kind", "changes", "said"),
    [
        ("medusa", {"num_medusa_heads": None}, "mode medusa reads num_medusa_heads, which config.json does not state"),
        ("medusa", {"max_draft_len": 31}, "max_draft_len is 31, speculation.draft_tokens is 63"),
        ("medusa", {"architecture": "LlamaForCausalLM"}, "MedusaLlamaForCausalLM, the checkpoint is LlamaForCausalLM"),
        ("redrafter", {"redrafter_num_beams": 4}, "is 20, speculation.draft_tokens is 25"),
        ("eagle", {"hidden_size": 128}, "hidden_size is 128, planned is 64"),
        ("medusa", {"quantization": {"quant_algo": "W8A16"}}, "quantization.quant_algo is W8A16, planned is FP8"),
    ],
)  # fmt: skip
def test_a_given_checkpoint_of_something_else_is_refused(
    kind: str, changes: dict[str, Any], said: str, model: Path, own: Path, tmp_path: Path
) -> None:
    """Before the builder starts, with both values."""
    ran = build(given(own, tmp_path, kind, **changes), tmp_path, drafting(kind), "--model", model)
    assert (1, True) == (ran.code, said in ran.err), ran.err
    assert not (tmp_path / "engine").exists()


def test_what_a_lint_finds_in_a_given_checkpoint_refuses_it(model: Path, own: Path, tmp_path: Path) -> None:
    """A rank's file that is not there."""
    checkpoint = given(own, tmp_path, "medusa")
    (checkpoint / "rank2.safetensors").unlink()
    ran = build(checkpoint, tmp_path, drafting("medusa"), "--model", model)
    assert (1, True) == (ran.code, "PF9" in ran.err and "missing 2" in ran.err), ran.err


def test_convert_does_not_write_heads(model: Path, tmp_path: Path) -> None:
    """It says who does, and the plan says so before."""
    profile = write_profile(tmp_path, "0.18.2", drafting("medusa"))
    converting = trtkit("convert", model, "-p", profile, "--out", tmp_path / "checkpoint")
    planning = trtkit("plan", model, "-p", profile)
    for ran in (converting.err, planning.out):
        assert "does not write the drafting heads of mode medusa" in ran
        assert "trtkit build CHECKPOINT --model" in ran
    assert (3, False) == (converting.code, (tmp_path / "checkpoint").exists())


def test_trtkit_s_own_checkpoint_holds_no_heads(own: Path, tmp_path: Path) -> None:
    """A mode that needs them is refused before the builder starts."""
    ran = build(own, tmp_path, drafting("medusa"))
    assert (1, True) == (ran.code, "mode medusa reads MedusaForCausalLM or" in ran.err), ran.err


LORA = 'build: {{runner: docker, image: "an/image:1", options: {{lora_dir: ["{0}"]}}}}'


def adapter(folder: Path, rank: int) -> Path:
    """Write an adapter as PEFT does."""
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"r": rank, "target_modules": ["q_proj", "v_proj"]}))
    (folder / "adapter_model.safetensors").write_bytes(b"weights")
    return folder


def test_adapters_are_mounted_and_their_ranks_and_layers_asked_for(own: Path, tmp_path: Path) -> None:
    """Rank and layers come from the adapter's own file; other weights in it make another engine."""
    folder = adapter(tmp_path / "adapter", 16)
    (tmp_path / "bin").mkdir()
    docker = tmp_path / "bin" / "docker"
    docker.write_text(DOCKER)
    docker.chmod(0o755)
    first = build(own, tmp_path, LORA.format(folder), "--json")
    assert (0, False) == (first.code, first.json["up_to_date"]), first.err
    started = (tmp_path / "docker.log").read_text().splitlines()[0]
    assert f"--volume {folder}:{folder}:ro" in started
    for words in ("--lora_ckpt_source hf", "--max_lora_rank 16", "--lora_target_modules attn_q attn_v",
                  f"--lora_dir {folder}", "--lora_plugin bfloat16"):  # fmt: skip
        assert words in started
    assert build(own, tmp_path, LORA.format(folder), "--json").json["up_to_date"]
    (folder / "adapter_model.safetensors").write_bytes(b"others!")
    assert not build(own, tmp_path, LORA.format(folder), "--json").json["up_to_date"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ('{lora_dir: ["adapter"]}', "build.options.lora_dir names adapter"),
        ('{lora_dir: ["/nowhere/adapter"]}', "lora_dir /nowhere/adapter is no folder here"),
    ],
)
def test_adapters_that_the_builder_would_not_find_are_refused(
    options: str, said: str, own: Path, tmp_path: Path
) -> None:
    """A relative path is looked up in the engine's folder, and a missing one nowhere."""
    ran = build(own, tmp_path, f"build: {{options: {options}}}")
    assert (True, True) == (ran.code in (1, 2), said in ran.err), ran.err
