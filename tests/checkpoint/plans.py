"""Plans for conversion tests, made by hand from a model folder and the formats asked for."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from trtllm_kit.plan.decide import make_plan, require_ok
from trtllm_kit.plan.formats import GROUP_SIZE, Formats
from trtllm_kit.plan.plan import (
    CalibrationPlan,
    CommunicationPlan,
    Decided,
    EnginePlan,
    LimitsPlan,
    MemoryPlan,
    ParallelismPlan,
    Plan,
    QuantizationPlan,
    RuntimePlan,
)
from trtllm_kit.plan.remedies import with_changes
from trtllm_kit.plan.settle_formats import algo_of
from trtllm_kit.spec.load import hardware_for, load_model, load_profile
from trtllm_kit.spec.profile import Serve
from trtllm_kit.spec.profile_formats import GROUPED, KvFormat, PartFormat, WeightFormat

T = TypeVar("T")


def plan_for(
    folder: Path,
    weights: WeightFormat = "bf16",
    kv_cache: KvFormat = "bf16",
    *,
    exclude: tuple[str, ...] = ("lm_head",),
    groups: dict[str, PartFormat] | None = None,
    group_size: int | None = None,
    samples: int = 2,
    tokens_per_sample: int = 48,
    text: str | None = None,
    text_sha256: str | None = None,
) -> Plan:
    """Plan a conversion of ``folder``; what a checkpoint does not depend on has arbitrary values.

    A calibration text that can be read is known by its hash, as in every plan of a profile.
    """
    if text is not None and text_sha256 is None and Path(text).is_file():
        text_sha256 = hashlib.sha256(Path(text).read_bytes()).hexdigest()
    return Plan(
        profile="test",
        model=load_model(folder),
        hardware="cpu-rehearsal",
        gpu="cpu",
        compute_capability=0,
        release=_decided("1.2.1"),
        toolchain=_decided("llm-api"),
        layout=_decided("unified_hf"),
        quantization=_quantization(weights, kv_cache, exclude, groups or {}, group_size),
        calibration=CalibrationPlan(
            samples=samples, tokens_per_sample=tokens_per_sample, text=text, text_sha256=text_sha256
        ),
        parallelism=ParallelismPlan(
            tensor=_decided(1),
            pipeline=_decided(1),
            expert=_decided(1),
            replicas=_decided(1),
            kv_replication=_decided(1),
        ),
        limits=LimitsPlan(
            max_batch_size=_decided(4),
            max_num_tokens=_decided(512),
            max_seq_len=_decided(512),
            max_beam_width=_decided(1),
        ),
        runtime=RuntimePlan(
            runtime=_decided("reference"),
            free_gpu_memory_fraction=_decided(0.9),
            tokens_per_block=_decided(32),
            enable_block_reuse=_decided(True),
            scheduler_policy=_decided("guaranteed_no_evict"),
            chunked_prefill=_decided(True),
            enable_partial_reuse=_decided(True),
            max_attention_window=_decided(()),
        ),
        engine=EnginePlan(
            overlap_scheduler=_decided(True),
            allreduce_strategy=_decided("auto"),
            cuda_graphs=_decided(True),
            cuda_graph_max_batch_size=_decided(4),
            cuda_graph_padding=_decided(False),
            autotuner=_decided(True),
            moe_backend=_decided("auto"),
            min_latency=_decided(False),
            stream_interval=_decided(1),
        ),
        serve=Serve(),
        environment={},
        memory=MemoryPlan(
            capacity_bytes=1 << 30,
            terms=(),
            kv_budget_bytes=1 << 29,
            kv_bytes_per_token=1,
            kv_bytes_per_sequence=1,
            sequences=1,
            min_sequences=1,
            kv_bytes_longest=1,
            longest_sequence=512,
            parameters_even_split=1,
            parameters_held=1,
        ),
        communication=CommunicationPlan(all_reduces=0, payload_bytes=0, sent_bytes_per_gpu=0),
        findings=(),
    )


def _quantization(
    weights: WeightFormat,
    kv_cache: KvFormat,
    exclude: tuple[str, ...],
    groups: dict[str, PartFormat],
    group_size: int | None,
) -> QuantizationPlan:
    """Decide formats as a plan for release 1.2.1 does."""
    formats = Formats(weights, kv_cache, exclude, groups, group_size)
    if set(formats.used) & set(GROUPED):
        formats = replace(formats, group_size=group_size or GROUP_SIZE)
    return QuantizationPlan(
        weights=_decided(weights),
        kv_cache=_decided(kv_cache),
        exclude=_decided(exclude),
        groups=_decided(groups) if groups else None,
        group_size=_decided(formats.group_size) if formats.group_size else None,
        algo=algo_of(formats, "unified_hf", "1.2.1"),
    )


def _decided(value: T) -> Decided[T]:
    return Decided(value=value, source="profile", reason="test")


def plan_as_stored(folder: Path) -> Plan:
    """Plan a folder under a shipped profile whose formats are left out, on a CPU; refused is what cannot run."""
    small = {"limits.max_seq_len": 256, "load.input_tokens": 64, "load.output_tokens": 64}
    loaded = with_changes(load_profile("cpu-rehearsal-simulated"), small)
    origins = {key: place for key, place in loaded.origins.items() if not key.startswith("quantization")}
    plan = make_plan(load_model(folder), replace(loaded, origins=origins), hardware_for(loaded.profile))
    require_ok(plan)
    return plan
