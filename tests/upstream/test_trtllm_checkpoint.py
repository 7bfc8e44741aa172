"""What each release accepts in the checkpoint of trtllm-build, against the recorded facts."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from trtllm_kit.upstream.families import family_support
from trtllm_kit.upstream.trtllm_build import mode_of
from trtllm_kit.upstream.trtllm_checkpoint import (
    Section,
    architecture_of,
    architectures,
    foreign_part,
    is_drafting_head,
    is_remade,
    kv_scale_parts,
    normalises,
    normalization_mode,
    rank_format,
    rank_formats,
    rank_model,
    rope_kinds,
    spreads_remainder,
    strict_keys,
)

RELEASES = ("0.12.0", "0.16.0", "0.17.0", "0.18.2", "1.0.0", "1.2.1")
LATE_QUANTIZATION = {"use_meta_recipe"}


@pytest.mark.parametrize("release", RELEASES)
def test_the_strict_sections_have_the_recorded_keys(shared: Path, release: str) -> None:
    """Keys of mapping and quantization are those every release of the span accepts, and what 0.15 added."""
    recorded = yaml.safe_load((shared / "contract" / "legacy-contract.yaml").read_text("utf-8"))["checkpoint"]
    assert set(recorded["mapping_keys"]["base"]) == strict_keys("mapping", release)
    late = LATE_QUANTIZATION if release in ("0.12.0",) else set()
    assert set(recorded["quantization_keys"]) - {"strict"} - late == strict_keys("quantization", release)
    assert strict_keys("moe", release) <= set(recorded["moe_fields"])


def test_a_key_of_a_later_release_is_in_none_of_the_sections(shared: Path) -> None:
    """What late releases alone accept in mapping is never written."""
    recorded = yaml.safe_load((shared / "contract" / "legacy-contract.yaml").read_text("utf-8"))["checkpoint"]
    assert not strict_keys("mapping", "1.2.1") & set(recorded["mapping_keys"]["late_extra"])


@pytest.mark.parametrize(
    ("release", "lacking"),
    [("0.13.0", {"fp8_rowwise", "nvfp4", "mixed"}), ("0.14.0", {"fp8_rowwise", "nvfp4"}), ("0.16.0", {"nvfp4"})],
)
def test_formats_come_with_their_releases(release: str, lacking: set[str]) -> None:
    """NVFP4 comes with 0.17, row-wise FP8 of whole layers with 0.15, mixed formats with 0.14."""
    assert lacking == set(rank_formats("1.2.1")) - set(rank_formats(release))


def test_weight_only_formats_are_packed_by_the_builder() -> None:
    """INT8 and INT4 lie in 16 bit in the files; FP8 lies as FP8."""
    packed = {name: row.packed for name in rank_formats("1.2.1") if (row := rank_format(name, "1.2.1"))}
    assert {
        "fp8": True,
        "fp8_rowwise": True,
        "int8_wo": False,
        "int4_wo": False,
        "nvfp4": True,
        "int4_awq": True,
        "w4a8_awq": True,
        "int8_sq": True,
        "mixed": True,
    } == packed


@pytest.mark.parametrize(
    "architecture",
    ["LlamaForCausalLM", "MistralForCausalLM", "MixtralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM",
     "Qwen3MoeForCausalLM"],
)  # fmt: skip
@pytest.mark.parametrize("release", RELEASES)
def test_what_is_laid_out_is_what_engines_are_built_of(architecture: str, release: str) -> None:
    """The kit lays a model out for every release that builds its engine, and for no other."""
    builds = family_support(architecture, "trtllm-build", release) is not None
    assert builds == (rank_model(architecture, release) is not None)


def test_stages_share_a_remainder_from_0_19_on() -> None:
    """Before that the layers left over are lost."""
    assert [False, False, True, True] == [
        spreads_remainder(release) for release in ("0.16.0", "0.18.2", "0.19.0", "1.2.1")
    ]


def test_the_scale_of_the_cache_is_one_until_0_18() -> None:
    """Then keys and values have their own beside it."""
    assert ("kv_scale",) == kv_scale_parts("0.17.0")
    assert ("kv_scale", "k_scale", "v_scale") == kv_scale_parts("0.18.2")


def test_yarn_is_no_rope_of_an_engine() -> None:
    """Releases that know the word pass over it for these models."""
    assert "yarn" not in rope_kinds("1.2.1")
    assert {"default", "linear", "llama3"} == set(rope_kinds("0.12.0"))


@pytest.mark.parametrize("section", ["mapping", "quantization", "moe"])
def test_every_section_is_known(section: Section) -> None:
    """No section is empty, which would refuse every key."""
    assert strict_keys(section, "0.12.0")


def test_other_makers_words_name_the_architecture_of_the_weights() -> None:
    """ModelOpt's word for Qwens goes by qwen_type, heads that draft name themselves, and a first Qwen is unknown."""
    words = {
        ("LlamaForCausalLM", None): "LlamaForCausalLM",
        ("QWenForCausalLM", "qwen3_moe"): "Qwen3MoeForCausalLM",
        ("QWenForCausalLM", "qwen"): None,
        ("MedusaForCausalLM", None): "LlamaForCausalLM",
        ("MedusaForCausalLM", "qwen2"): "Qwen2ForCausalLM",
        ("GPTForCausalLM", None): None,
    }
    assert words == {word: architecture_of(*word) for word in words}


def test_every_word_leads_to_an_architecture_whose_ranks_are_known() -> None:
    """And every mode whose heads draft has its architectures among the words, so that its checkpoint is read."""
    modes = [mode_of("0.16.0", name) for name in ("medusa", "explicit_draft_tokens", "eagle")]
    words = [word for mode in modes if mode is not None for word in mode.heads]
    assert 6 == len(words)
    assert set(architectures()) >= {architecture_of(word, None) for word in words}


def test_tensors_beside_a_model_are_told_apart() -> None:
    """Heads by how their names begin, tables that loaders make anew and parts of other layouts by how they end."""
    assert [True, False] == [is_drafting_head(name) for name in ("medusa_heads.0.lm_head.weight", "lm_head.weight")]
    assert [True, False] == [is_remade(name) for name in ("transformer.rotary_inv_freq", "transformer.ln_f.weight")]
    foreign = foreign_part("transformer.layers.0.mlp.fc.per_channel_scale")
    assert foreign is not None
    assert "--use_weight_only" in foreign
    assert None is foreign_part("transformer.layers.0.mlp.fc.weights_scaling_factor")


def test_modes_of_normalisation_are_read_as_they_are_written() -> None:
    """Whether weights of experts sum up to one comes back from the number; a mode of DeepSeek's is none of both."""
    assert [True, False] == [normalises(normalization_mode(renormalises=one)) for one in (True, False)]
    assert None is normalises(3)
