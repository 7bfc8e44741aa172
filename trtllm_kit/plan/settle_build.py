"""Settle how ``trtllm-build`` is run: its options, where it runs, and for how long."""

from __future__ import annotations

from dataclasses import replace

from trtllm_kit.plan.asked import as_asked
from trtllm_kit.plan.build_options import BuildCase, Subject, chosen_options, subject_of
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
_OF_THE_MODEL = ("--gemm_plugin", "--use_fp8_context_fmha", "--reduce_fusion", "--user_buffer", "--norm_quant_fusion",
                 "--fp8_rowwise_gemm_plugin", "--workers", "--speculative_decoding_mode", "--max_draft_len",
                 "--lora_plugin", "--lora_target_modules", "--lora_dir", "--lora_ckpt_source",
                 "--max_lora_rank")  # fmt: skip
"""Options that suit the model's own format, ranks or adapters: a profile sets them for it, and not for its draft."""
_CACHES = {"FP8": "fp8", "INT8": "int8"}


def build_plan(plan: Plan, loaded: LoadedProfile, hardware: Hardware) -> BuildPlan | None:
    """Decide how the builder is run; None for toolchains that run none."""
    if plan.toolchain.value != TOOLCHAIN:
        return None
    wanted = loaded.profile.build
    asked = {f"--{name}": value for name, value in wanted.options.items()}
    machine = (hardware.gpus_per_node, hardware.nvlink_domain)
    case = BuildCase(plan, subject_of(plan), asked, *machine, adapters=loaded.adapters)
    drafts = _draft(plan, loaded)
    return BuildPlan(
        options=_with_asked(case, loaded),
        draft_options=None if drafts is None else _draft_options(case, drafts[0], loaded),
        runner=as_asked(loaded, "build.runner", wanted.runner),
        image=_image(loaded, plan.release.value),
        template=None if wanted.template is None else as_asked(loaded, "build.template", wanted.template),
        timeout_seconds=as_asked(loaded, "build.timeout", wanted.timeout),
        draft_ranks=None if drafts is None else drafts[1],
    )


def _with_asked(case: BuildCase, loaded: LoadedProfile) -> dict[str, Decided[OptionValue]]:
    """Return the options of a build, those that the profile sets in place of what the rules choose."""
    options = chosen_options(case)
    for name, value in case.asked.items():
        if build_flag(case.version, name) is not None and name not in PLACES:
            options[name] = as_asked(loaded, f"build.options.{name.removeprefix('--')}", value)
    return options


def _draft_options(case: BuildCase, draft: Subject, loaded: LoadedProfile) -> dict[str, Decided[OptionValue]]:
    """Return the options of the draft model's engine: the plan's limits and cache, and what suits its own format."""
    asked = {name: value for name, value in case.asked.items() if name not in _OF_THE_MODEL}
    return _with_asked(replace(case, of=draft, asked=asked, is_draft=True, adapters=()), loaded)


def _image(loaded: LoadedProfile, version: str) -> Decided[str] | None:
    wanted = loaded.profile.build
    if wanted.image is not None:
        return as_asked(loaded, "build.image", wanted.image)
    held = release(version).image
    if wanted.runner not in CONTAINERS or held is None:
        return None
    return Decided(value=held, source="upstream", reason=f"the container that holds {version}")


def _draft(plan: Plan, loaded: LoadedProfile) -> tuple[Subject, Decided[int]] | None:
    """Return what a draft model's engine is built of, and its ranks; as the model in 16 bit where it is not here."""
    if plan.speculation is None or plan.speculation.kind.value != "draft_target":
        return None
    model, draft = subject_of(plan), loaded.draft
    plain = replace(model, algo=None, kv_cache="bf16", experts=False)
    if not isinstance(draft, DraftFacts) or draft.ranks is None:
        why = "as many as the model's: the draft's own mapping was not read"
        return plain, Decided(value=model.ranks, source="rule", reason=why)
    pipeline, context = draft.size("pp_size"), draft.size("cp_size")
    read = replace(
        plain,
        algo=draft.stored("quant_algo"),
        kv_cache=_CACHES.get(draft.stored("kv_cache_quant_algo") or "", "bf16"),
        architecture=draft.architecture or model.architecture,
        dtype=draft.dtype or model.dtype,
        tensor=max(1, draft.ranks // (pipeline * context)),
        pipeline=pipeline,
        context=context,
    )
    return read, Decided(value=draft.ranks, source="model", reason="the mapping of the draft's config.json")
