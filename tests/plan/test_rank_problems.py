"""What cannot be laid out for trtllm-build is refused, everything at once and before a weight is read."""

from __future__ import annotations

import pytest

from tests.support.specs import gemma3_27b, llama, phi4_mini, qwen3_moe
from trtllm_kit.errors import UnknownArchitecture
from trtllm_kit.plan.formats import Formats
from trtllm_kit.plan.parallelism import Split
from trtllm_kit.plan.rank_problems import rank_problems
from trtllm_kit.plan.ranks import RankOrder
from trtllm_kit.spec.model import ModelSpec, Rope, StoredFormats
from trtllm_kit.spec.profile_formats import PartFormat

SMALL = llama(4, 64, 8, 2, 128)


def problems(
    model: ModelSpec = SMALL, formats: Formats | None = None, split: Split | None = None, release: str = "1.2.1"
) -> list[str]:
    """Return what each problem says failed."""
    return [
        problem.what for problem in rank_problems(RankOrder(model, formats or Formats(), split or Split(), release))
    ]


@pytest.mark.parametrize("model", [gemma3_27b(), phi4_mini()], ids=["gemma3", "phi4"])
def test_other_families_are_named_with_another_way(model: ModelSpec) -> None:
    """A family without a layout is refused by its architecture, and the hint leads to the unified layout."""
    (problem,) = rank_problems(RankOrder(model, Formats(), Split(), "1.2.1"))
    assert isinstance(problem, UnknownArchitecture)
    assert model.architecture in problem.what
    assert "llm-api" in problem.hint


def test_a_quantised_source_is_refused_with_a_way_to_plain_weights() -> None:
    """Its scales are not those of the fused matrices of an engine."""
    model = SMALL.model_copy(update={"stored": StoredFormats(method="modelopt")})
    assert ["modelopt" in text for text in problems(model)] == [True]


def test_qwen3_needs_a_release_that_builds_it() -> None:
    """Before 1.0 there is no engine of it."""
    assert 1 == len(problems(qwen3_moe(2), release="0.17.0"))
    assert [] == problems(qwen3_moe(2), release="1.0.0")


def test_rope_that_an_engine_would_pass_over_is_refused() -> None:
    """YaRN is not applied by engines of these models, without a word."""
    rope = Rope(theta=1e6, kind="yarn", factor=4.0, original_max_position=32768)
    assert ["yarn" in text for text in problems(SMALL.model_copy(update={"rope": rope}))] == [True]


@pytest.mark.parametrize(("release", "count"), [("0.16.0", 1), ("0.18.2", 1), ("0.19.0", 0), ("1.2.1", 0)])
def test_a_remainder_of_layers_needs_0_19(release: str, count: int) -> None:
    """Three stages of four layers: earlier releases lose one layer, later ones give it to the first stage."""
    assert count == len(problems(split=Split(1, 3), release=release))


@pytest.mark.parametrize(
    ("formats", "release"),
    [
        (Formats("nvfp4"), "0.16.0"),
        (Formats("fp8_rowwise"), "0.14.0"),
        (Formats("fp8_block"), "1.2.1"),
        (Formats("mxfp8"), "1.2.1"),
        (Formats("bf16", "nvfp4"), "1.2.1"),
        (Formats("mixed", groups={"attention": "fp8", "feed_forward": "int8_wo"}), "0.13.0"),
    ],
)
def test_formats_without_a_place_are_refused(formats: Formats, release: str) -> None:
    """A format that the release's checkpoint cannot hold is named."""
    assert 1 == len(problems(formats=formats, release=release))


@pytest.mark.parametrize("weights", ["fp8_rowwise", "nvfp4"])
def test_experts_take_what_their_kernels_read(weights: str) -> None:
    """Row-wise FP8 and NVFP4 are for models without experts here; FP8 is for both."""
    assert 1 == len(problems(qwen3_moe(2), Formats(weights)))  # type: ignore[arg-type]
    assert [] == problems(qwen3_moe(2), Formats("fp8"))


def test_experts_that_stay_in_16_bit_are_in_the_way_of_nothing() -> None:
    """With the experts excluded, attention may have what they cannot."""
    assert [] == problems(qwen3_moe(2), Formats("nvfp4", exclude=("*.experts.*",)))


def test_an_exclusion_that_stages_cannot_share_is_refused() -> None:
    """One config.json names layer 0 for every stage, so excluding it in one stage alone cannot be said."""
    kept = Formats("fp8", exclude=("*.layers.0.*",))
    assert [] == problems(formats=kept)
    assert 1 == len(problems(formats=kept, split=Split(1, 2)))
    assert [] == problems(formats=Formats("fp8", exclude=("*.layers.0.*", "*.layers.2.*")), split=Split(1, 2))


def test_half_a_block_of_row_wise_fp8_is_refused() -> None:
    """Attention is quantised as a whole: keeping o_proj alone has no word, keeping all of it has."""
    assert 1 == len(problems(formats=Formats("fp8_rowwise", exclude=("*.o_proj",))))
    assert [] == problems(formats=Formats("fp8_rowwise", exclude=("*.self_attn.*",)))


@pytest.mark.parametrize(("width", "tensor", "count"), [(176, 1, 0), (176, 2, 1), (128, 2, 0), (128, 8, 0)])
def test_a_rank_holds_whole_blocks_of_nvfp4(width: int, tensor: int, count: int) -> None:
    """Sixteen columns share a scale, so a rank whose share of them is no multiple of 16 is refused, once."""
    model = llama(2, 128, 8, 8, width)
    assert count == len(problems(model, Formats("nvfp4"), Split(tensor)))
    assert 0 == len(problems(model, Formats("nvfp4", exclude=("*down_proj",)), Split(tensor)))


@pytest.mark.parametrize("weights", ["int4_awq", "w4a8_awq", "int8_sq"])
def test_searched_formats_are_laid_out_when_modelopt_makes_them(weights: PartFormat) -> None:
    """ModelOpt's ranks are taken for every release; trtkit alone does not search, and experts have no place."""
    model = llama(2, 256, 8, 8, 512)
    for release in ("0.12.0", "1.2.1"):
        assert [] == rank_problems(RankOrder(model, Formats(weights), Split(2), release, "modelopt"))
    (alone,) = rank_problems(RankOrder(model, Formats(weights), Split(2), "1.2.1"))
    assert "calibration.backend: auto" in alone.hint.removeprefix("set ")
    assert rank_problems(RankOrder(qwen3_moe(2), Formats(weights), Split(), "1.2.1", "modelopt"))


@pytest.mark.parametrize(("weights", "tensor", "count"), [("int8_sq", 4, 1), ("int8_sq", 2, 0), ("int4_awq", 4, 0)])
def test_heads_that_modelopt_does_not_copy_are_refused(weights: PartFormat, tensor: int, count: int) -> None:
    """Two KV heads on four ranks: SmoothQuant has a scale a row and is refused, AWQ is not."""
    order = RankOrder(llama(2, 512, 8, 2, 512), Formats(weights), Split(tensor), "1.2.1", "modelopt")
    assert count == len(rank_problems(order))


def test_modelopt_gives_every_stage_as_many_layers() -> None:
    """Five layers on two stages: trtkit's own formats spread them, ModelOpt's do not."""
    model = llama(5, 256, 8, 8, 512)
    assert 1 == len(rank_problems(RankOrder(model, Formats("int8_sq"), Split(1, 2), "1.2.1", "modelopt")))
    assert [] == problems(model, Formats("fp8"), Split(1, 2))


def test_a_group_of_64_can_be_cut_where_one_of_128_cannot() -> None:
    """192 columns on each rank hold three groups of 64, and one and a half of 128."""
    model = llama(1, 256, 8, 8, 384)
    for size, count in ((64, 0), (128, 1)):
        formats = Formats("int4_awq", group_size=size)
        assert count == len(rank_problems(RankOrder(model, formats, Split(2), "1.2.1", "modelopt")))


@pytest.mark.parametrize("weights", ["bf16", "int8_wo", "fp8"])
def test_an_int8_cache_has_a_place_beside_any_weights(weights: PartFormat) -> None:
    """Keys and values in INT8 are for rank files alone, whatever the weights are."""
    assert [] == problems(formats=Formats(weights, "int8"))
