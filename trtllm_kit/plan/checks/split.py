"""Checks of the split over GPUs: heads, widths, vocabulary, experts, ranks against GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import ceil

from trtllm_kit.findings import Finding, Severity
from trtllm_kit.plan.checks.case import Case, Rule
from trtllm_kit.plan.checks.shapes import rows_of_bytes
from trtllm_kit.plan.given.facts import LaunchFacts
from trtllm_kit.plan.given.launches import launch
from trtllm_kit.plan.memory import memory_plan
from trtllm_kit.plan.parallelism import Split, fast_reach, kv_heads_per_rank, legal_tensors, obstacles
from trtllm_kit.units import counted
from trtllm_kit.upstream.bounds import bound
from trtllm_kit.upstream.failures import failure


def _in_the_way(rule: str) -> Callable[[Case], Iterator[Finding]]:
    """Make the check that reports one rule's obstacles to the split."""

    def check(case: Case) -> Iterator[Finding]:
        for obstacle in case.obstacles:
            if obstacle.rule != rule:
                continue
            yield Finding(
                rule=rule,
                severity=Severity.ERROR if obstacle.hard else Severity.WARNING,
                message=obstacle.message,
                compared=obstacle.compared,
                suggestion=_SUGGESTIONS.get(rule, _tensor_suggestion)(case),
            )

    return check


def widths(case: Case) -> Iterator[Finding]:
    """PF6: a width that the ranks cannot split evenly, or not into rows that the kernels of its format take."""
    uneven = list(_in_the_way("PF6")(case))
    yield from uneven
    if not uneven:
        yield from rows_of_bytes(case)


def kv_heads(case: Case) -> Iterator[Finding]:
    """PF2: KV heads that can be neither split nor copied, and KV heads that are copied."""
    yield from _in_the_way("PF2")(case)
    copies, ranks = case.plan.parallelism.kv_replication.value, case.split.heads
    if copies < 2 or any(obstacle.rule == "PF2" for obstacle in case.obstacles):
        return
    attentions = case.plan.model.attentions
    heads, held = min(one.kv_heads for one in attentions), kv_heads_per_rank(attentions[0], ranks)
    yield Finding(
        rule="PF2",
        severity=Severity.INFO,  # asked for, or the fewest ranks that fit: auto takes no more
        message=_COPIED_LATENT if _is_latent(case) else _COPIED_HEADS.format(copies),
        compared=f"{counted(heads, 'KV head')}, {ranks} {_named(case.split)}, {held} a rank",
        suggestion=_without_copies(case, replace(case.split, tensor=heads))
        if case.split.context == 1
        else f"nothing to do, or parallelism.context: {max(1, heads // case.split.tensor)}",
    )


def _named(split: Split) -> str:
    return "tensor ranks" if split.context == 1 else "tensor and context ranks"


_COPIED_HEADS = "Every KV head is copied {} times, which multiplies the whole KV cache by it."
_COPIED_LATENT = "Every tensor rank caches the whole latent vector of every token: more ranks hold no more of them."


def _is_latent(case: Case) -> bool:
    return any(attention.latent is not None for attention in case.plan.model.attentions)


def _without_copies(case: Case, split: Split) -> str:
    """Say whether as many ranks as there are KV heads would do, and what it would leave unused."""
    blocked = obstacles(case.plan.model, split, case.hardware)
    if blocked:
        return f"nothing to do: parallelism.tensor {split.tensor} is not legal here, {blocked[0].compared}"
    if not memory_plan(replace(case.sizing, split=split)).fits:
        return f"nothing to do: parallelism.tensor {split.tensor} holds too little"
    idle = case.hardware.gpus - split.gpus
    return f"parallelism.tensor: {split.tensor} (holds what is asked too, and leaves {counted(idle, 'GPU')} idle)"


def ranks(case: Case) -> Iterator[Finding]:
    """PF20: more ranks than GPUs, and tensor ranks whose results travel over a network or over PCIe."""
    yield from _in_the_way("PF20")(case)
    yield from _machine(case)
    machine, split = case.hardware, case.split
    if machine.is_rehearsal or split.tensor == 1 or not machine.nvlink_domain < split.tensor <= fast_reach(machine):
        return
    yield Finding(
        rule="PF20",
        severity=Severity.WARNING,
        message="Tensor ranks exchange every layer's result over PCIe: these GPUs have no NVLink to each other.",
        compared=f"{split.tensor} tensor ranks, {_pcie_time(case)}",
        suggestion=_instead_of_pcie(case),
    )


def _pcie_time(case: Case) -> str:
    """Return what a prefill sends and how long that takes at the link's rate, which is a floor."""
    traffic, link = case.plan.communication, case.hardware.gpu.pcie
    sent = f"each GPU sends {traffic.sent_bytes_per_gpu / 1e9:.1f} GB for {case.profile.load.input_tokens:,} tokens"
    if link is None:
        return sent
    rate = link.bytes_per_second.value
    return (
        f"{sent}, {traffic.sent_bytes_per_gpu / rate * 1e3:.0f} ms at best "
        f"over PCIe {link.generation} x{link.lanes} at {rate / 1e9:.0f} GB/s"
    )


def _instead_of_pcie(case: Case) -> str:
    """Propose pipeline stages where they hold what is asked, and what to know of NCCL without NVLink."""
    staged = replace(case.split, tensor=1, expert=1, pipeline=case.split.world_size, attention_dp=False, context=1)
    works = not obstacles(case.plan.model, staged, case.hardware)
    works = works and memory_plan(replace(case.sizing, split=staged)).fits
    way = f"parallelism.tensor: 1 with parallelism.pipeline: {staged.pipeline} (only the ends of stages talk); " * works
    return way + (
        "or keep them, on GPUs that `nvidia-smi topo -m` shows as PIX or PXB; "
        "a first all-reduce that hangs is the IOMMU or ACS, and ends with NCCL_P2P_DISABLE=1"
    )


def head_size(case: Case) -> Iterator[Finding]:
    """PF3: a head size the attention kernels do not take."""
    step = bound("head_size_step")
    for size in sorted({attention.head_dim for attention in case.plan.model.attentions}):
        if size % step.value == 0:
            continue
        padded = ceil(size / step.value) * round(step.value)
        yield Finding(
            rule="PF3",
            severity=Severity.ERROR if step.certainty == "read" else Severity.WARNING,
            message=f"The attention kernels are not known to take heads of {size} elements.",
            compared=f"{size} is not a multiple of {step.value:g}",
            suggestion=f"pad the weights to heads of {padded}, or use another model",
        )


def _machine(case: Case) -> Iterator[Finding]:
    """Yield what the rules of launches say of this machine and these variables."""
    facts = LaunchFacts(case.plan.release.value, machine=case.hardware.name, variables=case.plan.variables)
    yield from launch(facts)
    yield from _over_nodes(case)


def _over_nodes(case: Case) -> Iterator[Finding]:
    """Yield what a launch over several nodes must say, and have: host names, GPUs a node, the fabric of NVLink."""
    version, here, split = case.plan.release.value, case.hardware.gpus_per_node, case.split
    hosts, fabric = failure("hosts_not_named", version), failure("fabric_down", version)
    if hosts is None or fabric is None or not here < split.world_size <= case.hardware.gpus:
        return
    nvlink = here < split.tensor <= case.hardware.nvlink_domain
    down = f" NVLink between nodes whose IMEX is not up {fabric.note}." if nvlink else ""
    yield Finding(
        rule="PF20",
        severity=Severity.INFO,  # how it is launched is not the plan's to know
        message=f"The ranks are on several nodes: a launch that names none {hosts.note}.{down}",
        compared=f"{split.world_size} ranks, {counted(here, 'GPU')} a node, {ceil(split.world_size / here)} nodes",
        suggestion=f"one process a rank (srun, LeaderWorkerSet) with trtllm-llmapi-launch, gpus_per_node {here}"
        + (", and nvidia-imex on every node" if nvlink else ""),
    )


def vocabulary(case: Case) -> Iterator[Finding]:
    """PF4: a vocabulary that is padded, so that the ranks can share it or for an output head in AWQ."""
    vocab, ranks = case.plan.model.vocab, case.split.dense
    if vocab % ranks:
        padded = ceil(vocab / ranks) * ranks
        yield Finding(
            rule="PF4",
            severity=Severity.INFO,
            message="The vocabulary is padded so that the tensor ranks can share it.",
            compared=f"{vocab:,} words padded to {padded:,} over {ranks} ranks",
            suggestion="nothing to do",
        )
    yield from _awq_head(case)


def _awq_head(case: Case) -> Iterator[Finding]:
    known = failure("awq_head_rows", case.plan.release.value)
    vocab, awq = case.plan.model.vocab, {"int4_awq", "w4a8_awq"} & set(case.plan.quantization.formats.used)
    if known is None or not awq or case.plan.layout.value != "tensorrt_llm" or vocab % known.value == 0:
        return
    padded = ceil(vocab / known.value) * known.value
    yield Finding(
        rule="PF4",
        severity=Severity.INFO,
        message=f"The output head of an AWQ checkpoint for engines {known.note}, with rows that are never chosen.",
        compared=f"{vocab:,} words padded to {padded:,}, a multiple of {known.value}",
        suggestion="nothing to do",
    )


def _tensor_suggestion(case: Case) -> str:
    legal = legal_tensors(case.plan.model, case.hardware, case.split)
    if not legal:
        return "parallelism.expert: 1 and parallelism.pipeline: 1 leave more ways to split; none is legal as it is"
    nearest = min(legal, key=lambda size: (abs(size - case.split.tensor), size))
    return f"parallelism.tensor: {nearest} (legal here: {', '.join(map(str, legal))})"


def _expert_suggestion(case: Case) -> str:
    """Name the expert ranks that bring no new obstacle, and the nearest of them."""
    known = {obstacle.rule for obstacle in case.obstacles} - {"PF28"}
    splits = [replace(case.split, expert=size) for size in range(1, case.split.tensor + 1)]
    legal = [
        split.expert
        for split in splits
        if {obstacle.rule for obstacle in obstacles(case.plan.model, split, case.hardware)} <= known
    ]
    if not legal:
        return "parallelism.expert: 1 with parallelism.tensor: auto"
    nearest = min(legal, key=lambda size: (abs(size - case.split.expert), size))
    return f"parallelism.expert: {nearest} (legal with tensor {case.split.tensor}: {', '.join(map(str, legal))})"


def _rank_suggestion(case: Case) -> str:
    model, hardware, split = case.plan.model, case.hardware, case.split
    fewer = hardware.gpus // split.world_size
    if split.replicas > 1 and 0 < fewer < split.replicas:
        return f"parallelism.replicas: {fewer}"
    if not legal_tensors(model, hardware, split):
        return (
            f"parallelism.pipeline: 1 and parallelism.tensor: auto; {hardware.name} has {counted(hardware.gpus, 'GPU')}"
        )
    reach = fast_reach(hardware)
    if split.tensor > reach:
        stages = ceil(split.tensor / reach) * split.pipeline
        within = replace(split, tensor=reach, pipeline=stages)
        if not obstacles(model, within, hardware):
            return f"parallelism.tensor: {reach} with parallelism.pipeline: {stages}"
    return _tensor_suggestion(case)


_SUGGESTIONS = {"PF20": _rank_suggestion, "PF28": _expert_suggestion}

RULES = (
    Rule("PF1", "Attention heads split over tensor ranks", _in_the_way("PF1"), keys=("parallelism.tensor",)),
    Rule("PF2", "KV heads split or copied over tensor ranks", kv_heads, keys=("parallelism.tensor",)),
    Rule("PF3", "Head size", head_size, keys=("parallelism.tensor",)),
    Rule("PF4", "Vocabulary padded for the tensor ranks", vocabulary, keys=("parallelism.tensor",)),
    Rule(
        "PF6",
        "Widths split over ranks",
        widths,
        keys=("parallelism.tensor", "parallelism.expert", "quantization.weights"),
    ),
    Rule("PF20", "Ranks against GPUs, nodes and NVLink", ranks, keys=("parallelism", "hardware")),
    Rule(
        "PF28",
        "Experts shared out over expert ranks",
        _in_the_way("PF28"),
        keys=("parallelism.expert", "parallelism.tensor"),
    ),
)
