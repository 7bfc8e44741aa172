"""Checks of the engine settings, of attention windows and of the host cache."""

from __future__ import annotations

from collections.abc import Iterator

from trtllm_kit.findings import Finding, Severity
from trtllm_kit.plan.checks.case import Case, Rule
from trtllm_kit.plan.settle_engine import graphs_obstacle, overlap_obstacle
from trtllm_kit.spec.model import Attention, Experts, Layer
from trtllm_kit.units import GIB, counted, format_bytes
from trtllm_kit.upstream.bounds import bound
from trtllm_kit.upstream.combinations import combination
from trtllm_kit.upstream.memory import holds_window_only

MULTICAST = ("mnnvl", "nccl_symmetric")
"""All-reduce strategies that sum inside the NVLink switch."""


def windows(case: Case) -> Iterator[Finding]:
    """PF37: attention windows that cut what layers see, or that no layer needs."""
    asked, longest = case.profile.kv_cache.max_attention_window, case.plan.limits.max_seq_len.value
    if asked == "auto":
        return
    layers = case.plan.model.layers
    cut, kept = _cut_and_kept(layers, asked, longest)
    if cut:
        yield _found(
            "PF37",
            Severity.WARNING,
            "Layers lose text that they were trained to look back at; what left the window cannot be asked about.",
            f"{len(cut)} of {len(layers)} layers keep fewer than the {longest:,} tokens of limits.max_seq_len, "
            f"or than their own window (first: layer {cut[0]})",
            "kv_cache.max_attention_window: auto",
        )
    if kept:
        yield _found(
            "PF37",
            Severity.INFO,
            "Layers keep tokens that their own window does not reach.",
            f"{len(kept)} of {len(layers)} layers (first: layer {kept[0]})",
            "kv_cache.max_attention_window: auto",
        )
    if len(asked) > len(layers):
        yield _found(
            "PF37",
            Severity.WARNING,
            "More windows are listed than the model has layers.",
            f"{counted(len(asked), 'window')}, {counted(len(layers), 'layer')}",
            "kv_cache.max_attention_window: auto, or a pattern that is repeated over the layers",
        )


def _cut_and_kept(layers: tuple[Layer, ...], asked: tuple[int, ...], longest: int) -> tuple[list[int], list[int]]:
    """Return the layers that lose tokens which they see, and those that keep more than they see."""
    cut: list[int] = []
    kept: list[int] = []
    for number, layer in enumerate(layers):
        if not isinstance(layer.mixer, Attention):
            continue
        window, seen = min(asked[number % len(asked)], longest), layer.mixer.window or longest
        if window < min(seen, longest):
            cut.append(number)
        elif window > seen and holds_window_only(layer.mixer.kind):
            kept.append(number)
    return cut, kept


def settings(case: Case) -> Iterator[Finding]:
    """PF38: engine settings that do not suit the model, the machine or each other."""
    yield from _experts(case)
    yield from _reductions(case)
    yield from _switches(case)
    if case.plan.engine.min_latency.value and case.plan.model.family != "llama4":
        yield _found(
            "PF38",
            Severity.WARNING,
            "The kernels of min_latency are made for Llama 4 alone.",
            f"engine.min_latency true, the model is of family {case.plan.model.family}",
            "engine.min_latency: false",
        )


def _experts(case: Case) -> Iterator[Finding]:
    counts = [one.feed_forward.experts for one in case.plan.model.layers if isinstance(one.feed_forward, Experts)]
    backend, slots = case.plan.engine.moe_backend.value, case.plan.engine.expert_slots
    if not counts:
        for key, unset in (("moe_backend", backend == "auto"), ("expert_slots", slots is None)):
            if not unset:
                message = f"engine.{key} has no meaning for a model without experts."
                yield _found("PF38", Severity.WARNING, message, f"engine.{key} is set", f"leave engine.{key} out")
        return
    if slots is None:
        return
    experts, ranks = max(counts), case.split.expert
    if slots.value < experts or slots.value % ranks:
        fitting = max(experts, slots.value)
        yield _found(
            "PF38",
            Severity.ERROR,
            "The expert slots must hold every expert and be shared out evenly over the expert ranks.",
            f"expert_slots {slots.value}, {counted(experts, 'expert')}, {counted(ranks, 'expert rank')}",
            f"engine.expert_slots: {-(-fitting // ranks) * ranks}",
        )
    elif ranks == 1:
        yield _found(
            "PF38",
            Severity.WARNING,
            "Copies of experts balance nothing on a single expert rank.",
            f"expert_slots {slots.value}, parallelism.expert 1",
            "leave engine.expert_slots out, or raise parallelism.expert",
        )


def _reductions(case: Case) -> Iterator[Finding]:
    strategy, ranks = case.plan.engine.allreduce_strategy.value, case.split.tensor
    if strategy == "auto":
        return
    if ranks == 1:
        message = "There is nothing to reduce with one tensor rank."
        compared = f"engine.allreduce_strategy {strategy}, parallelism.tensor 1"
        yield _found("PF38", Severity.INFO, message, compared, "engine.allreduce_strategy: auto")
    elif strategy in MULTICAST and not case.hardware.nvlink_multicast:
        yield _found(
            "PF38",
            Severity.WARNING,
            "The all-reduce strategy sums inside the NVLink switch, which the machine is not known to do.",
            f"engine.allreduce_strategy {strategy}, no NVLink multicast on {case.hardware.name}",
            "engine.allreduce_strategy: auto",
        )


def _switches(case: Case) -> Iterator[Finding]:
    """Yield what the profile insists on beside beams, and recorded batches that never come."""
    engine, version = case.plan.engine, case.plan.release.value
    insisted = {
        "overlap_scheduler": (engine.overlap_scheduler, overlap_obstacle(case.profile, version)),
        "cuda_graphs": (engine.cuda_graphs, graphs_obstacle(case.profile, version)),
    }
    for key, (decided, known) in insisted.items():
        if decided.value and known is not None and known.name.startswith("beams"):
            yield _found(
                "PF38",
                Severity.WARNING,
                f"Beams and {key.replace('_', ' ')} {known.note} in release {version}.",
                f"engine.{key} true, limits.max_beam_width {case.plan.limits.max_beam_width.value}",
                f"engine.{key}: auto",
            )
    recorded, batch = engine.cuda_graph_max_batch_size.value, case.plan.limits.max_batch_size.value
    if engine.cuda_graphs.value and recorded != batch:
        worse = "Larger batches run unrecorded" if recorded < batch else "Batches are recorded that never come"
        compared = f"engine.cuda_graph_max_batch_size {recorded}, limits.max_batch_size {batch}"
        yield _found("PF38", Severity.INFO, f"{worse}.", compared, "engine.cuda_graph_max_batch_size: auto")


def host_cache(case: Case) -> Iterator[Finding]:
    """PF39: a host cache that nothing fills or that a release was seen to mix up."""
    runtime, version = case.plan.runtime, case.plan.release.value
    host, priority = runtime.host_cache_bytes, runtime.secondary_offload_min_priority
    if host is None:
        if priority is not None:
            yield _found(
                "PF39",
                Severity.WARNING,
                "An offload priority does nothing without a host cache.",
                f"secondary_offload_min_priority {priority.value}, no host_cache_bytes",
                "kv_cache.host_cache_bytes: 32 GiB, or leave the priority out",
            )
        return
    if not runtime.enable_block_reuse.value:
        yield _found(
            "PF39",
            Severity.WARNING,
            "Without block reuse nothing is read back from the host cache.",
            "host_cache_bytes is set, enable_block_reuse false",
            "kv_cache.enable_block_reuse: true",
        )
    elif known := combination("host_cache_with_block_reuse", version):
        yield _found(
            "PF39",
            Severity.WARNING,
            f"Host cache and block reuse together {known.note} in releases like {version}.",
            f"host_cache_bytes {host.value:,}, enable_block_reuse true",
            "trtllm_version: 1.2.1, or leave kv_cache.host_cache_bytes out",
        )
    yield from _host_room(case, host.value)
    usual = round(bound("block_priority").value)
    if priority is not None and priority.value > usual:
        yield _found(
            "PF39",
            Severity.WARNING,
            "No block moves to the host unless a request raises its priority.",
            f"secondary_offload_min_priority {priority.value}, blocks have {usual}",
            f"kv_cache.secondary_offload_min_priority: {usual}",
        )


def _host_room(case: Case, host: int) -> Iterator[Finding]:
    """Yield host caches of one node's ranks that its memory does not hold."""
    had, ranks = case.hardware.host_memory_bytes, min(case.split.gpus, case.hardware.gpus_per_node)
    if had is None or host * ranks <= had.value:
        return
    half = int(had.value) // ranks // 2 // GIB
    yield _found(
        "PF39",
        Severity.WARNING,
        "The host caches of a node's ranks are more than its memory, and pinned memory is never swapped.",
        f"{counted(ranks, 'rank')} x {format_bytes(host)} = {format_bytes(ranks * host)}, "
        f"{format_bytes(had.value)} in a node of {case.hardware.name}",
        f"kv_cache.host_cache_bytes: {half} GiB",
    )


def _found(rule: str, severity: Severity, message: str, compared: str, suggestion: str) -> Finding:
    return Finding(rule=rule, severity=severity, message=message, compared=compared, suggestion=suggestion)


RULES = (
    Rule(
        "PF37",
        "Attention windows against the model",
        windows,
        keys=("kv_cache.max_attention_window", "limits.max_seq_len"),
    ),
    Rule(
        "PF38",
        "Engine settings against the model, the machine and each other",
        settings,
        keys=(
            "engine",
            "limits.max_beam_width",
            "limits.max_batch_size",
            "parallelism.expert",
            "parallelism.tensor",
            "hardware",
            "trtllm_version",
        ),
    ),
    Rule(
        "PF39",
        "Host cache of the KV cache",
        host_cache,
        keys=(
            "kv_cache.host_cache_bytes",
            "kv_cache.secondary_offload_min_priority",
            "kv_cache.enable_block_reuse",
            "hardware",
            "trtllm_version",
        ),
    ),
)
