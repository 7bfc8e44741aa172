"""``trtkit migrate checkpoint`` as its users run it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.checkpoint.foreign_ranks import copied, same_files
from tests.checkpoint.ranks import rank_plan
from tests.support.cli import trtkit
from tests.support.tiny_model import write_tiny_model
from trtllm_kit.checkpoint.convert import convert
from trtllm_kit.progress import Silent

ENGINES = """\
name: engines
base: h200x8-offline
trtllm_version: 0.21.0
toolchain: trtllm-build
{formats}
parallelism: {{tensor: {tensor}, pipeline: 2, replicas: 1}}
limits: {{max_seq_len: 256, max_num_tokens: 256}}
load: {{input_tokens: 64, output_tokens: 64}}
calibration: {{samples: 2, tokens_per_sample: 64}}
"""
AS_STORED = """\
quantization: {weights: fp8, kv_cache: fp8}
"""


@pytest.fixture
def ranks(tmp_path: Path) -> Path:
    """Rank files of two tensor ranks, as another maker leaves them: no record, no tokenizer."""
    source = write_tiny_model(tmp_path / "source", "llama", seed=3)
    convert(source, rank_plan(source, 2), tmp_path / "ranks", Silent())
    folder = copied(tmp_path / "ranks", tmp_path / "theirs")
    (folder / "tokenizer.json").unlink()
    return folder


def test_the_road_from_ranks_to_ranks_takes_three_commands(tmp_path: Path) -> None:
    """Convert for engines, migrate, convert again under the same profile: the rank files are equal, byte by byte."""
    write_tiny_model(tmp_path / "model", "llama", seed=3)
    profile = tmp_path / "profile.yaml"
    profile.write_text(ENGINES.format(tensor=2, formats=AS_STORED), encoding="utf-8")
    first = trtkit("convert", tmp_path / "model", "-p", profile, "--out", tmp_path / "ranks")
    back = trtkit("migrate", "checkpoint", tmp_path / "ranks", tmp_path / "hf", "--json")
    again = trtkit("convert", tmp_path / "hf", "-p", profile, "--out", tmp_path / "again")
    assert (0, 0, 0) == (first.code, back.code, again.code), (first.err, back.err, again.err)
    assert [] == same_files(tmp_path / "ranks", tmp_path / "again")
    assert ["CK5"] == [one["rule"] for one in back.json["report"]["findings"]]
    assert ("model", False) == (back.json["manifest"]["kind"], back.json["up_to_date"])
    plan = trtkit("plan", tmp_path / "hf", "-p", profile, "--json").json
    told = [one["message"] for one in plan["findings"] if one["rule"] == "PF12"]
    assert ["Codes of a quantised checkpoint are cut into ranks only where q, k and v have one scale."] == told


def test_codes_with_scales_of_their_own_are_not_cut_into_ranks(tmp_path: Path) -> None:
    """A unified checkpoint whose q, k and v have three scales: convert names them, and writes nothing."""
    write_tiny_model(tmp_path / "model", "llama", seed=3)
    unified, engines = tmp_path / "unified.yaml", tmp_path / "engines.yaml"
    unified.write_text(
        "name: unified\nbase: h200x1-llama3.1-8b-fp8\nlimits: {max_seq_len: 256}\n"
        "load: {input_tokens: 64, output_tokens: 64}\ncalibration: {samples: 2, tokens_per_sample: 64}\n"
    )
    engines.write_text(ENGINES.format(tensor=2, formats=AS_STORED), encoding="utf-8")
    made = trtkit("convert", tmp_path / "model", "-p", unified, "--out", tmp_path / "hf")
    ran = trtkit("convert", tmp_path / "hf", "-p", engines, "--out", tmp_path / "ranks")
    assert (0, 3) == (made.code, ran.code), made.err
    assert "q_proj.weight_scale and 2 more are not one number" in ran.err
    assert not (tmp_path / "ranks").exists()


def test_a_dry_run_names_what_the_run_writes(tmp_path: Path, ranks: Path) -> None:
    """Every tensor with the ranks that it comes from; nothing is written."""
    ran = trtkit("migrate", "checkpoint", ranks, "--dry-run", "--json")
    assert 0 == ran.code, ran.err
    row = next(row for row in ran.json["tensors"] if row["tensor"] == "model.layers.1.self_attn.k_proj.weight")
    assert ("transformer.layers.1.attention.qkv.weight of rank0, rank1", [32, 64]) == (row["source"], row["shape"])
    assert ["ranks", "source", "theirs"] == sorted(path.name for path in tmp_path.iterdir())
    shown = trtkit("migrate", "checkpoint", ranks, "--dry-run")
    assert "21 tensors, 212.62 KiB, 1 weight file; nothing was written" in shown.out
    assert "WARNING CK9: The folder has no tokenizer: rank files hold none." in shown.out


def test_the_tokenizer_is_taken_from_the_folder_that_is_named(tmp_path: Path, ranks: Path) -> None:
    """With it no finding is left; the second run has nothing to do."""
    command = ("migrate", "checkpoint", ranks, tmp_path / "out", "--tokenizer", tmp_path / "source", "--json")
    first, second = trtkit(*command), trtkit(*command)
    assert (0, [], False) == (first.code, first.json["report"]["findings"], first.json["up_to_date"]), first.err
    assert second.json["up_to_date"]
    assert (tmp_path / "source" / "tokenizer.json").read_bytes() == (tmp_path / "out" / "tokenizer.json").read_bytes()
    report = json.loads((tmp_path / "out" / "trtkit-migration.json").read_text("utf-8"))
    assert first.json["report"] == report


def test_a_strange_folder_is_moved_away_with_force_alone(tmp_path: Path, ranks: Path) -> None:
    """Without --force it stays and the exit code is 3; with it nothing of it is lost."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes").write_text("mine", encoding="utf-8")
    assert 3 == trtkit("migrate", "checkpoint", ranks, out).code
    ran = trtkit("migrate", "checkpoint", ranks, out, "--force")
    assert 0 == ran.code, ran.err
    assert "mine" == (tmp_path / "out.before-1" / "notes").read_text("utf-8")
    assert (out / "model.safetensors").is_file()


def test_what_is_missing_on_the_command_line_is_told(tmp_path: Path, ranks: Path) -> None:
    """No OUT without --dry-run, and a --tokenizer that is no folder: exit 2."""
    assert "needs a folder to make" in trtkit("migrate", "checkpoint", ranks).err
    ran = trtkit("migrate", "checkpoint", ranks, tmp_path / "out", "--tokenizer", tmp_path / "nowhere")
    assert (2, True) == (ran.code, "is no folder" in ran.err)


@pytest.mark.smollm2
def test_the_real_small_model_comes_back_from_six_ranks_and_says_the_same(tmp_path: Path) -> None:
    """Three tensor ranks (its KV heads) by two stages and back: every byte, a tied head, and the same greedy text."""
    from trtllm_kit.checkpoint.load import load_reference, load_tokenizer
    from trtllm_kit.quickstart.small_model import small_model

    source = small_model(Silent())
    profile = tmp_path / "profile.yaml"
    profile.write_text(ENGINES.format(tensor=3, formats="quantization: {weights: bf16, kv_cache: bf16}"))
    made = trtkit("convert", source, "-p", profile, "--out", tmp_path / "ranks", timeout=600)
    assert (0, 6) == (made.code, len(list((tmp_path / "ranks").glob("rank*.safetensors")))), made.err
    back = trtkit("migrate", "checkpoint", tmp_path / "ranks", tmp_path / "hf", "--json", timeout=600)
    assert (0, []) == (back.code, back.json["report"]["findings"]), back.err
    assert [] == same_files(source, tmp_path / "hf")
    tokenizer = load_tokenizer(tmp_path / "hf")
    said = []
    for folder in (source, tmp_path / "hf"):
        model, tokens = load_reference(folder, longest=32), list(tokenizer.encode("The capital of France is").ids)
        cache, left = model.new_cache(), tokens
        for _ in range(6):
            left = [int(model.forward(left, cache)[-1].argmax())]
            tokens = tokens + left
        said.append(tokenizer.decode(tokens))
    assert said[0] == said[1]
    assert "Paris" in said[1]


def test_a_finding_is_told_once_and_as_findings_are(tmp_path: Path, ranks: Path) -> None:
    """The summary names facts that are there, and what was noticed with its number, comparison and advice."""
    ran = trtkit("migrate", "checkpoint", ranks, tmp_path / "out")
    assert (0, 1, False) == (ran.code, ran.out.count("CK9"), "None" in ran.out), ran.err
    assert "WARNING CK9: The folder has no tokenizer: rank files hold none.\n  compared: " in ran.out
