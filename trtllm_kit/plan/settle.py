"""Settle every field of a plan from a model, a profile and hardware, and run the checks over it."""

from __future__ import annotations

from dataclasses import replace

from trtllm_kit.light import dataclass
from trtllm_kit.plan.asked import as_asked, reason_of, source_of
from trtllm_kit.plan.checks import Case, run_checks
from trtllm_kit.plan.communication import communication_plan
from trtllm_kit.plan.formats import Formats
from trtllm_kit.plan.llm_options import options_plan
from trtllm_kit.plan.memory import Sizing, memory_plan
from trtllm_kit.plan.parallelism import Split, kv_replication, legal_tensors
from trtllm_kit.plan.plan import (
    CalibrationPlan,
    Decided,
    LimitsPlan,
    MemoryPlan,
    ParallelismPlan,
    Plan,
    Source,
)
from trtllm_kit.plan.quantization import maker_of
from trtllm_kit.plan.serving_mode import with_orchestrator
from trtllm_kit.plan.settle_build import build_plan
from trtllm_kit.plan.settle_engine import (
    drafting_of,
    engine_plan,
    environment_plan,
    runtime_plan,
    speculation_plan,
)
from trtllm_kit.plan.settle_formats import formats_of, quantization_plan
from trtllm_kit.spec.hardware import Hardware
from trtllm_kit.spec.load import LoadedProfile
from trtllm_kit.spec.model import ModelSpec
from trtllm_kit.spec.profile import DeployProfile
from trtllm_kit.spec.quality import is_jsonl
from trtllm_kit.units import counted
from trtllm_kit.upstream import Release, release
from trtllm_kit.upstream.quant_algos import Layout
from trtllm_kit.upstream.releases import names_series


@dataclass(frozen=True)
class Choice:
    """The tensor ranks chosen, what they hold, and why."""

    split: Split
    memory: MemoryPlan
    source: Source
    reason: str


def settle(model: ModelSpec, loaded: LoadedProfile, hardware: Hardware) -> Plan:
    """Decide everything and check it; what does not fit or cannot run is an ERROR finding.

    Raises ``UsageError`` when the profile names a release trtkit does not know.
    """
    profile = loaded.profile
    known = release(profile.trtllm_version)
    choice = choose_split(model, loaded, hardware)
    sizing = sizing_of(model, loaded, hardware, choice.split)
    toolchain = _toolchain(loaded, known)
    layout = _layout(toolchain.value)
    plan = Plan(
        profile=profile.name,
        model=model,
        hardware=hardware.name,
        gpu=hardware.gpu.name,
        compute_capability=hardware.gpu.compute_capability,
        release=_release(profile, known),
        toolchain=toolchain,
        layout=layout,
        quantization=quantization_plan(model, loaded, layout.value, known.version),
        calibration=_calibration(loaded, formats_of(model, loaded), layout.value),
        parallelism=_parallelism(model, loaded, choice),
        limits=_limits(loaded),
        runtime=runtime_plan(loaded, sizing),
        engine=engine_plan(loaded, known.version),
        speculation=speculation_plan(loaded, known.version),
        serve=profile.serve,
        environment=environment_plan(loaded, known.version),
        memory=choice.memory,
        communication=communication_plan(model, choice.split, profile.load.input_tokens),
        findings=(),
    )
    plan = plan.model_copy(update={"build": build_plan(plan, loaded, hardware)})
    plan = plan.model_copy(update={"environment": with_orchestrator(plan), "llm_api": options_plan(plan, loaded)})
    findings = run_checks(Case(plan=plan, profile=profile, hardware=hardware, sizing=sizing, loaded=loaded))
    return plan.model_copy(update={"findings": findings})


def sizing_of(model: ModelSpec, loaded: LoadedProfile, hardware: Hardware, split: Split) -> Sizing:
    """Gather what the memory of a profile depends on, under one split."""
    profile = loaded.profile
    return Sizing(
        model=model,
        hardware=hardware,
        split=split,
        formats=formats_of(model, loaded),
        runtime=profile.runtime,
        limits=profile.limits,
        kv_cache=profile.kv_cache,
        load=profile.load,
        drafting=drafting_of(loaded, release(profile.trtllm_version).version),
    )


def split_of(profile: DeployProfile, tensor: int) -> Split:
    """Return the asked ranks, with that many tensor ranks."""
    asked = profile.parallelism
    slots = profile.engine.expert_slots or 0
    return Split(
        tensor,
        asked.pipeline,
        asked.expert,
        replicas=asked.replicas,
        expert_slots=slots,
        attention_dp=asked.attention_dp,
        context=asked.context,
    )


def choose_split(model: ModelSpec, loaded: LoadedProfile, hardware: Hardware) -> Choice:
    """Take the asked tensor ranks, or the fewest legal ones that hold what is promised."""
    asked = loaded.profile.parallelism
    tensor = 1 if asked.tensor == "auto" else asked.tensor
    sizing = sizing_of(model, loaded, hardware, split_of(loaded.profile, tensor))
    if asked.tensor != "auto":
        source, reason = source_of(loaded, "parallelism.tensor"), reason_of(loaded, "parallelism.tensor")
        return Choice(sizing.split, memory_plan(sizing), source, reason)
    legal = legal_tensors(model, hardware, sizing.split)
    if legal:
        return _fewest_that_fit(sizing, legal)
    copies = f", {asked.replicas} replicas" if asked.replicas > 1 else ""
    parts = f", context {asked.context}" if asked.context > 1 else ""
    others = f"pipeline {asked.pipeline} and expert {asked.expert}{parts}{copies} on {hardware.gpus} GPUs"
    return Choice(
        sizing.split, memory_plan(sizing), "rule", f"no tensor rank count is legal with {others}; 1 stands in"
    )


def _fewest_that_fit(first: Sizing, legal: tuple[int, ...]) -> Choice:
    """Try the legal tensor rank counts from below; the reason names what each of them holds."""
    tried: list[str] = []
    for tensor in legal:
        split = replace(first.split, tensor=tensor)
        memory = memory_plan(replace(first, split=split))
        tried.append(f"tensor {tensor} holds {_held(memory)}")
        if memory.fits:
            break
    verdict = "fewest ranks that fit" if memory.fits else "most ranks that are legal here, and they do not fit"
    why = f"{verdict}; of {memory.min_sequences:,} asked sequences {', '.join(tried)}"
    return Choice(split, memory, "rule", why)


def _held(memory: MemoryPlan) -> str:
    short = memory.holds_asked and not memory.holds_longest
    return f"{memory.sequences:,}" + (f" but none longer than {memory.longest_sequence:,} tokens" if short else "")


def _release(profile: DeployProfile, known: Release) -> Decided[str]:
    same = known.version == profile.trtllm_version
    newest = "the newest release" if names_series(profile.trtllm_version) else "the release"
    reason = "asked by the profile" if same else f"{newest} that {profile.trtllm_version} names"
    return Decided(value=known.version, source="profile" if same else "upstream", reason=reason)


def _toolchain(loaded: LoadedProfile, known: Release) -> Decided[str]:
    asked = loaded.profile.toolchain
    if asked != "auto":
        return as_asked(loaded, "toolchain", asked)
    if "llm-api" in known.toolchains:
        reason = f"{known.version} loads Hugging Face checkpoints itself"
        return Decided(value="llm-api", source="upstream", reason=reason)
    reason = f"{known.version} is older than the PyTorch backend (1.0) and needs built engines"
    return Decided(value="trtllm-build", source="upstream", reason=reason)


def _layout(toolchain: str) -> Decided[Layout]:
    """Decide how the checkpoint lies on disk; the stand-in builder reads no weights, and its runtimes read this one."""
    if toolchain == "trtllm-build":
        return Decided(value="tensorrt_llm", source="rule", reason="trtllm-build reads rank files")
    reason = f"toolchain {toolchain} serves the Hugging Face layout"
    return Decided(value="unified_hf", source="rule", reason=reason)


def _calibration(loaded: LoadedProfile, formats: Formats, layout: Layout) -> CalibrationPlan:
    asked = loaded.profile.calibration
    return CalibrationPlan(
        **asked.model_dump(),
        text_sha256=loaded.calibration_sha256,
        jsonl=is_jsonl(asked.text),
        for_one_run=loaded.for_one_run,
        maker=maker_of(formats, asked.backend, layout),
    )


def _parallelism(model: ModelSpec, loaded: LoadedProfile, choice: Choice) -> ParallelismPlan:
    asked, sharing = loaded.profile.parallelism, choice.split.heads
    heads = min((attention.kv_heads for attention in model.attentions), default=0)
    whole = " whole" if choice.split.attention_dp else ""
    parts = f" x {choice.split.context} context ranks" if choice.split.context > 1 else ""
    counts = f"{counted(heads, 'KV head')}{whole}, {counted(choice.split.tensor, 'tensor rank')}{parts}"
    return ParallelismPlan(
        tensor=Decided(value=choice.split.tensor, source=choice.source, reason=choice.reason),
        pipeline=as_asked(loaded, "parallelism.pipeline", asked.pipeline),
        expert=as_asked(loaded, "parallelism.expert", asked.expert),
        replicas=as_asked(loaded, "parallelism.replicas", asked.replicas),
        kv_replication=Decided(value=kv_replication(model, sharing), source="model", reason=counts),
        attention_dp=as_asked(loaded, "parallelism.attention_dp", True) if asked.attention_dp else None,
        context=as_asked(loaded, "parallelism.context", asked.context) if asked.context > 1 else None,
    )


def _limits(loaded: LoadedProfile) -> LimitsPlan:
    asked = loaded.profile.limits
    return LimitsPlan(
        max_batch_size=as_asked(loaded, "limits.max_batch_size", asked.max_batch_size),
        max_num_tokens=as_asked(loaded, "limits.max_num_tokens", asked.max_num_tokens),
        max_seq_len=as_asked(loaded, "limits.max_seq_len", asked.max_seq_len),
        max_beam_width=as_asked(loaded, "limits.max_beam_width", asked.max_beam_width),
    )
