"""Settle how ``trtllm-build`` is run: its options, where it runs, and for how long."""

from __future__ import annotations

from collections.abc import Mapping

from trtllm_kit.plan.asked import as_asked
from trtllm_kit.plan.build_options import OFF, BuildCase, chosen_options
from trtllm_kit.plan.plan import BuildPlan, Decided, Plan
from trtllm_kit.spec.draft import DraftFacts
from trtllm_kit.spec.hardware import Hardware
from trtllm_kit.spec.load import LoadedProfile
from trtllm_kit.spec.profile_build import OptionValue
from trtllm_kit.upstream import release
from trtllm_kit.upstream.trtllm_build import build_flag

TOOLCHAIN = "trtllm-build"
CONTAINERS = ("docker", "apptainer")
PLACES = ("--checkpoint_dir", "--output_dir", "--model_config", "--build_config", "--model_cls_file",
          "--model_cls_name", "--output_timing_cache", "--visualize_network", "--dry_run")  # fmt: skip
"""Options that the toolchain sets itself, or that would leave it without an engine."""
_OF_THE_MODEL = {
    "--gemm_plugin": "auto",
    "--use_fp8_context_fmha": OFF,
    "--reduce_fusion": OFF,
    "--user_buffer": OFF,
    "--norm_quant_fusion": OFF,
    "--fp8_rowwise_gemm_plugin": OFF,
    "--lora_plugin": OFF,
}
"""Options that suit the model's format, and what a draft of unknown format is built with."""
_NOT_OF_A_DRAFT = ("--speculative_decoding_mode", "--max_draft_len", "--lora_target_modules", "--lora_dir")


def build_plan(plan: Plan, loaded: LoadedProfile, hardware: Hardware) -> BuildPlan | None:
    """Decide how the builder is run; None for toolchains that run none."""
    if plan.toolchain.value != TOOLCHAIN:
        return None
    wanted = loaded.profile.build
    asked = {f"--{name}": value for name, value in wanted.options.items()}
    options = chosen_options(BuildCase(plan, asked, hardware.gpus_per_node, hardware.nvlink_domain))
    known = [name for name in asked if build_flag(plan.release.value, name) is not None and name not in PLACES]
    for name, value in ((name, asked[name]) for name in known):
        options[name] = as_asked(loaded, f"build.options.{name.removeprefix('--')}", value)
    return BuildPlan(
        options=options,
        runner=as_asked(loaded, "build.runner", wanted.runner),
        image=_image(loaded, plan.release.value),
        template=None if wanted.template is None else as_asked(loaded, "build.template", wanted.template),
        timeout_seconds=as_asked(loaded, "build.timeout", wanted.timeout),
        draft_ranks=_draft_ranks(plan, loaded),
    )


def draft_options(build: BuildPlan) -> Mapping[str, OptionValue]:
    """Return the options with which the draft model is built beside the model: its limits, none of its format."""
    kept = {name: decided.value for name, decided in build.options.items() if name not in _NOT_OF_A_DRAFT}
    ranks = {"--workers": build.draft_ranks.value} if build.draft_ranks else {}
    plain = {name: value for name, value in _OF_THE_MODEL.items() if name in kept}
    return {**kept, **plain, **{name: value for name, value in ranks.items() if name in kept}}


def _image(loaded: LoadedProfile, version: str) -> Decided[str] | None:
    wanted = loaded.profile.build
    if wanted.image is not None:
        return as_asked(loaded, "build.image", wanted.image)
    held = release(version).image
    if wanted.runner not in CONTAINERS or held is None:
        return None
    return Decided(value=held, source="upstream", reason=f"the container that holds {version}")


def _draft_ranks(plan: Plan, loaded: LoadedProfile) -> Decided[int] | None:
    """Return the ranks of a draft model; as many as the model's where its folder is not here."""
    if plan.speculation is None or plan.speculation.kind.value != "draft_target":
        return None
    draft = loaded.draft
    if isinstance(draft, DraftFacts) and draft.ranks is not None:
        return Decided(value=draft.ranks, source="model", reason="the mapping of the draft's config.json")
    ranks = plan.parallelism.world_size
    return Decided(value=ranks, source="rule", reason="as many as the model's: the draft's own mapping was not read")
