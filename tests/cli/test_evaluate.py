"""``trtkit evaluate`` and the gate and calibration options of ``convert``, by running the installed script."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tests.checkpoint.test_check import rewrite, tensors_of
from tests.support.cli import trtkit
from tests.support.tiny_model import write_tiny_model

PROFILE = (
    "base: cpu-rehearsal-smollm2\nname: tiny\nlimits: {max_seq_len: 512, max_num_tokens: 512}\n"
    "calibration: {samples: 2, tokens_per_sample: 64}\nquantization: {weights: fp8, kv_cache: fp8}\n"
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model, a profile, its FP8 checkpoint, and a copy of the model with a damaged second layer."""
    base = tmp_path_factory.mktemp("made")
    model = write_tiny_model(base / "model", num_hidden_layers=3)
    name = "model.layers.1.mlp.down_proj.weight"
    rewrite(write_tiny_model(base / "damaged", num_hidden_layers=3), **{name: tensors_of(model)[name][::-1]})
    (base / "profile.yaml").write_text(PROFILE)
    ran = trtkit("convert", model, "-p", base / "profile.yaml", "--out", base / "ckpt")
    assert 0 == ran.code, ran.err
    return base


def test_a_sound_checkpoint_is_0_with_its_figures(made: Path) -> None:
    """Text and JSON say the same; the worst layer comes first in both."""
    read = trtkit("evaluate", made / "model", made / "ckpt", "--tokens", "128")
    ran = trtkit("evaluate", made / "model", made / "ckpt", "--tokens", "128", "--json")
    document = ran.json
    assert (0, 0) == (read.code, ran.code)
    assert ("yes", 128, 3) == (document["verdict"], document["tokens"], len(document["layers"]))
    assert document["kl_mean"] > 0
    assert f"{document['perplexity_ratio']:.5f}" in read.out
    rows = [line.split()[0] for line in read.out.partition("Layers")[2].splitlines()[2:5]]
    assert [str(one["layer"]) for one in document["weakest_layers"]] == rows
    assert [document["layers"][int(number)]["error"] for number in rows] == [
        one["error"] for one in document["weakest_layers"]
    ]
    assert "every limit holds" in read.out


def test_a_damaged_layer_is_named_and_past_a_limit_is_1(made: Path) -> None:
    """With the numbers, the layer, and what to try; with --json one object all the same."""
    read = trtkit("evaluate", made / "model", made / "damaged", "--tokens", "64", "--gate", "top1=99%,kl=0.001")
    ran = trtkit("evaluate", made / "model", made / "damaged", "--tokens", "64", "--gate", "top1=99%", "--json")
    assert (1, 1) == (read.code, ran.code)
    assert "mean KL divergence" in read.out
    assert "(at most 0.001)" in read.out
    assert "layers that lose most: 1 (error " in read.out
    assert "'*.layers.1.*'" in read.out
    assert ("no", [1]) == (ran.json["verdict"], [one["layer"] for one in ran.json["weakest_layers"]])
    assert "quantization.exclude" in ran.json["refusal"]["try"]


def test_the_page_is_written_whatever_the_verdict(made: Path, tmp_path: Path) -> None:
    """One file; and one that cannot be written is told."""
    page = tmp_path / "report.html"
    ran = trtkit("evaluate", made / "model", made / "damaged", "--tokens", "64", "--gate", "top1=99%", "--html", page)
    assert 1 == ran.code
    assert 2 == page.read_text().count("<svg")
    assert [page] == list(tmp_path.iterdir())
    for place in (tmp_path / "no" / "report.html", tmp_path):
        lost = trtkit("evaluate", made / "model", made / "no-such-model", "--html", place)
        assert 3 == lost.code
        assert "KIT-ARTIFACT-003" in lost.err  # before the models are looked at


def test_a_text_of_records_is_read(made: Path, tmp_path: Path) -> None:
    """JSONL as for calibration; a line that is none is 3 with file and number."""
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    good.write_text("".join(json.dumps({"text": "the man in the tin " * 4}) + "\n" for _ in range(3)))
    bad.write_text('{"text": "fine"}\n{"text": 3}\n')
    assert 0 == trtkit("evaluate", made / "model", made / "ckpt", "--text", good).code
    ran = trtkit("evaluate", made / "model", made / "ckpt", "--text", bad)
    assert 3 == ran.code
    assert "bad.jsonl:2" in ran.err


@pytest.mark.parametrize(
    "arguments",
    [["--gate", "ppl"], ["--gate", "top1=99"], ["--tokens", "1"], ["--tokens", "many"], ["--no-such-option"]],
)
def test_what_is_not_understood_is_2(made: Path, arguments: list[str]) -> None:
    """Before anything is read."""
    assert 2 == trtkit("evaluate", made / "model", made / "ckpt", *arguments).code


def test_other_models_are_3(made: Path, tmp_path: Path) -> None:
    """Nothing to compare is no verdict."""
    ran = trtkit("evaluate", made / "model", write_tiny_model(tmp_path))
    assert 3 == ran.code
    assert "KIT-CHECKPOINT-007" in ran.err


def test_convert_holds_to_the_gate_of_the_command_line_and_of_the_profile(made: Path, tmp_path: Path) -> None:
    """The command line goes over the profile; what is past a limit is not published."""
    strict = tmp_path / "strict.yaml"
    strict.write_text(PROFILE + "quality: {kl_divergence: 0}\n")
    command = ["convert", made / "model", "-p", strict, "--out", tmp_path / "out"]
    refused = trtkit(*command)
    assert 1 == refused.code
    assert "KIT-CHECKPOINT-005" in refused.err
    assert "mean KL divergence" in refused.err
    assert not (tmp_path / "out").exists()
    passed = trtkit(*command, "--gate", "kl=5,ppl=40%")
    assert 0 == passed.code
    assert "every limit holds" in passed.err
    again = trtkit(*command)
    assert (1, True) == (again.code, (tmp_path / "out").exists())


def test_calibration_of_one_run_is_recorded_and_no_drift(made: Path, tmp_path: Path) -> None:
    """Hash, count, length and seed stand in the manifest, the place nowhere; build accepts the checkpoint."""
    data, out = tmp_path / "mine.jsonl", tmp_path / "out"
    data.write_text("".join(json.dumps({"note": f"the man in the tin {number}"}) + "\n" for number in range(9)))
    ran = trtkit(
        "convert", made / "model", "-p", made / "profile.yaml", "--out", out, "--json", "--calib-data", data,
        "--calib-field", "note", "--calib-samples", "3", "--calib-length", "16", "--calib-seed", "7",
    )  # fmt: skip
    assert 0 == ran.code, ran.err
    facts = ran.json["manifest"]["facts"]["calibration"]
    assert hashlib.sha256(data.read_bytes()).hexdigest() == facts["text_sha256"]
    assert (3, 16, 7) == (facts["samples"], facts["tokens_per_sample"], facts["seed"])
    for file in out.iterdir():
        assert b"mine.jsonl" not in file.read_bytes(), file
    built = trtkit("build", out, "-p", made / "profile.yaml", "--out", tmp_path / "engine")
    assert 0 == built.code, built.err
    other = tmp_path / "other.yaml"
    other.write_text(PROFILE.replace("kv_cache: fp8", "kv_cache: bf16"))
    assert 1 == trtkit("build", out, "-p", other, "--out", tmp_path / "engine").code


def test_the_seed_changes_what_is_measured(made: Path, tmp_path: Path) -> None:
    """Other samples, other scales; the same seed again is up to date."""
    command = ["convert", made / "model", "-p", made / "profile.yaml", "--out", tmp_path / "out", "--json"]
    first, second, again = (trtkit(*command, "--calib-seed", seed).json for seed in ("1", "2", "2"))
    keys = [one["manifest"]["key"] for one in (first, second, again)]
    assert keys[0] != keys[1] == keys[2]
    assert [False, False, True] == [one["up_to_date"] for one in (first, second, again)]


def test_calibration_options_that_would_do_nothing_are_2(made: Path, tmp_path: Path) -> None:
    """16 bit measures nothing, and plain text has no fields; an option is never passed over in silence."""
    plain = tmp_path / "plain.yaml"
    plain.write_text(PROFILE.replace("weights: fp8, kv_cache: fp8", "weights: bf16, kv_cache: bf16"))
    ran = trtkit("convert", made / "model", "-p", plain, "--out", tmp_path / "out", "--calib-samples", "3")
    assert 2 == ran.code
    assert "nothing to measure" in ran.err
    (tmp_path / "mine.txt").write_text("the man in the tin")
    ran = trtkit(
        "convert", made / "model", "-p", made / "profile.yaml", "--out", tmp_path / "out",
        "--calib-data", tmp_path / "mine.txt", "--calib-field", "note",
    )  # fmt: skip
    assert 2 == ran.code
    assert "only with a .jsonl file" in ran.err
