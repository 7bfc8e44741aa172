"""Linting engine folders and checkpoints that others made: what the files say reaches the rules."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.lint.test_repositories import told, write_engine
from trtllm_kit.artifact import MANIFEST
from trtllm_kit.errors import NotLinted
from trtllm_kit.findings import Severity
from trtllm_kit.lint.context import Context
from trtllm_kit.lint.run import lint
from trtllm_kit.spec.load import hardware_for, load_profile

NOBODY = Context()
PROFILE = """\
name: lint
base: h200x8-offline
trtllm_version: "0.19.0"
toolchain: trtllm-build
parallelism: {tensor: 2, pipeline: 1}
load: {input_tokens: 1500, output_tokens: 100}
limits: {max_seq_len: 2048, max_beam_width: 4}
"""


def asked(tmp_path: Path, text: str = PROFILE) -> Context:
    """Return the context of a profile."""
    (tmp_path / "lint.yaml").write_text(text)
    loaded = load_profile(str(tmp_path / "lint.yaml"))
    return Context(loaded=loaded, hardware=hardware_for(loaded.profile))


def change(folder: Path, **sections: dict[str, Any]) -> Path:
    """Change sections of an engine's config.json."""
    config = json.loads((folder / "config.json").read_text())
    for name, section in sections.items():
        config[name] |= section
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_a_whole_engine_is_clean_and_names_its_release(tmp_path: Path) -> None:
    """What it was built with is shown."""
    read = lint(write_engine(tmp_path / "e"), NOBODY)
    assert ("engine folder", "0.19.0", "what is linted") == (read.kind, read.release, read.release_from)
    assert {"engines": 1, "built with": "0.19.0", "ranks": "1"} == read.facts
    assert () == read.findings


def test_missing_and_empty_ranks_are_errors(tmp_path: Path) -> None:
    """Of a mapping of four ranks."""
    folder = change(write_engine(tmp_path / "e"), pretrained_config={"mapping": {"tp_size": 2, "pp_size": 2}})
    (folder / "rank1.engine").write_bytes(b"")
    (folder / "rank2.engine").write_bytes(b"x")
    assert ["4 ranks by its mapping; missing [3], empty [1]"] == [one[3] for one in told(lint(folder, NOBODY))]


def test_rank_files_without_config_are_an_error(tmp_path: Path) -> None:
    """A copy that left config.json behind."""
    folder = write_engine(tmp_path / "e")
    (folder / "config.json").unlink()
    assert [("error", "PF19", "", "1 rank files, 0 config.json")] == told(lint(folder, NOBODY))


def test_an_engine_is_asked_for_the_release_that_is_to_serve_it(tmp_path: Path) -> None:
    """The same folder: clean for its own release, spoken of for another, refused where engines are gone."""
    folder = write_engine(tmp_path / "e")
    assert [] == told(lint(folder, Context("0.19.0")))
    assert ["PF19"] == [one[1] for one in told(lint(folder, Context("1.2.1")))]
    gone = told(lint(folder, Context("main")))
    assert [("error", "PF19", "config.json")] == [one[:3] for one in gone]


def test_plugins_of_another_type_are_told(tmp_path: Path) -> None:
    """float16 on bfloat16, and auto beside it."""
    folder = change(write_engine(tmp_path / "e"), pretrained_config={"dtype": "bfloat16"})
    change(folder, build_config={"plugin_config": {"gemm_plugin": "float16", "gpt_attention_plugin": "auto"}})
    assert [("PF16", "config.json")] == [one[1:3] for one in told(lint(folder, NOBODY))]


def test_both_engines_of_an_encoder_decoder_model_are_linted(tmp_path: Path) -> None:
    """Each with its own place."""
    write_engine(tmp_path / "e" / "encoder")
    write_engine(tmp_path / "e" / "decoder")
    (tmp_path / "e" / "decoder" / "rank0.engine").write_bytes(b"")
    read = lint(tmp_path / "e", NOBODY)
    assert 2 == read.facts["engines"]
    assert [("error", "PF19", "decoder")] == [one[:3] for one in told(read)]


def test_a_profile_adds_ranks_requests_and_reuse(tmp_path: Path) -> None:
    """What is asked of the engine beside what it is."""
    folder = write_engine(tmp_path / "e", plugin={"use_paged_context_fmha": False})
    found = told(lint(folder, asked(tmp_path)), Severity.INFO)
    compared = " | ".join(one[3] for one in found)
    for text in (
        "2 MPI ranks, tensor x pipeline x context of the engine is 1",
        "block reuse asked, use_paged_context_fmha false",
        "4 beams asked, max_beam_width 1",
        "prompt 1,500, max_input_len 1,024",
    ):
        assert text in compared, compared


def test_a_profile_that_suits_adds_nothing(tmp_path: Path) -> None:
    """The near miss of the same engine."""
    folder = change(write_engine(tmp_path / "e"), pretrained_config={"mapping": {"tp_size": 2}})
    (folder / "rank1.engine").write_bytes(b"x")
    change(folder, build_config={"max_input_len": 2048, "max_beam_width": 4})
    change(folder, build_config={"plugin_config": {"use_paged_context_fmha": True}})
    assert [] == told(lint(folder, asked(tmp_path)))


@pytest.mark.parametrize(("capability", "count"), [(80, 1), (90, 0)])
def test_the_gpu_that_trtkit_built_for_is_compared_with_the_profile(
    capability: int, count: int, tmp_path: Path
) -> None:
    """A manifest says it; engines of others do not, and are not judged."""
    folder = change(write_engine(tmp_path / "e"), pretrained_config={"mapping": {"tp_size": 2}})
    (folder / "rank1.engine").write_bytes(b"x")
    change(folder, build_config={"max_input_len": 2048, "max_beam_width": 4})
    change(folder, build_config={"plugin_config": {"use_paged_context_fmha": True}})
    (folder / MANIFEST).write_text(json.dumps({"facts": {"compute_capability": capability}}))
    found = told(lint(folder, asked(tmp_path)))
    assert [f"built on compute capability {capability}, served on 90"] * count == [
        one[3].removesuffix("; not confirmed for this release") for one in found
    ]


@pytest.mark.parametrize(
    "config", [{}, {"build_config": None, "pretrained_config": [1]}, {"build_config": {"max_seq_len": "x"}}]
)
def test_a_config_of_strange_types_is_read_as_far_as_it_goes(config: dict[str, Any], tmp_path: Path) -> None:
    """Nothing is made up, and nothing crashes."""
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "rank0.engine").write_bytes(b"x")
    assert all(one.finding.rule == "PF19" for one in lint(tmp_path, NOBODY).findings)


def test_a_config_that_is_a_folder_is_refused(tmp_path: Path) -> None:
    """It stands in the place of a file."""
    (tmp_path / "config.json").mkdir()
    (tmp_path / "rank0.engine").write_bytes(b"x")
    with pytest.raises(NotLinted, match=r"config\.json cannot be read"):
        lint(tmp_path, NOBODY)


def rank_checkpoint(folder: Path, **config: Any) -> Path:
    """Write a checkpoint of two ranks."""
    header = json.dumps({"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    folder.mkdir()
    for rank in range(2):
        (folder / f"rank{rank}.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
    whole = {
        "architecture": "LlamaForCausalLM", "num_attention_heads": 32, "num_hidden_layers": 32,
        "mapping": {"world_size": 2, "tp_size": 2, "pp_size": 1}, "quantization": {"quant_algo": "FP8"},
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(whole | config))
    return folder


def test_a_whole_checkpoint_is_clean(tmp_path: Path) -> None:
    """Its architecture, ranks and format are shown."""
    read = lint(rank_checkpoint(tmp_path / "c"), Context("0.16.0"))
    assert [] == told(read)
    assert {"architecture": "LlamaForCausalLM", "ranks": 2, "format": "FP8"} == read.facts


def test_files_of_a_checkpoint_are_looked_into(tmp_path: Path) -> None:
    """One cut off, one missing."""
    folder = rank_checkpoint(tmp_path / "c")
    (folder / "rank0.safetensors").write_bytes(b"\x10")
    (folder / "rank1.safetensors").unlink()
    found = told(lint(folder, Context("0.16.0")))
    assert [("error", "PF9"), ("error", "PF9")] == [one[:2] for one in found]
    assert "missing 1" in found[0][3]
    assert "holds 1 bytes" in found[1][3]


@pytest.mark.parametrize(
    ("config", "rule", "version"),
    [
        ({"num_attention_heads": 33, "num_key_value_heads": 2}, "PF1", "0.16.0"),
        ({"num_key_value_heads": 3}, "PF2", "0.16.0"),
        ({"quantization": {"quant_algo": "FP8", "activation_scheme": "static"}}, "PF12", "0.16.0"),
        ({"rotary_scaling": {"rope_type": "yarn"}}, "PF11", "0.16.0"),
        ({"architecture": "Qwen3ForCausalLM"}, "PF13", "0.16.0"),
        ({"mapping": {"world_size": 4, "tp_size": 2}}, "PF20", "0.16.0"),
    ],
)
def test_what_config_json_says_reaches_the_rules(
    config: dict[str, Any], rule: str, version: str, tmp_path: Path
) -> None:
    """Each by the key that the layout has for it."""
    found = told(lint(rank_checkpoint(tmp_path / "c", **config), Context(version)))
    assert [rule] == [one[1] for one in found]


@pytest.mark.parametrize(("heads", "severity"), [(64, "warning"), (1, "info")])
def test_scores_of_a_batch_are_compared_with_what_is_free(heads: int, severity: str, tmp_path: Path) -> None:
    """On the machine of the profile: 3 GiB a head, and the file of the rank takes next to nothing of 141 GB."""
    folder = change(
        write_engine(tmp_path / "e", plugin={"context_fmha": False}, max_batch_size=128, max_input_len=2048),
        pretrained_config={"num_attention_heads": 2 * heads, "mapping": {"tp_size": 2, "world_size": 2}},
    )
    (folder / "rank1.engine").write_bytes(b"engine")
    found = [one for one in told(lint(folder, asked(tmp_path)), Severity.INFO) if one[1] == "PF17"]
    assert [severity] == [one[0] for one in found]
    assert f"{3 * heads:.2f} GiB for the {heads} of a rank" in found[0][3]
