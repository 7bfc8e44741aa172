"""Checks of the split over GPUs: heads, widths, vocabulary, experts, ranks against GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import ceil

from trtllm_kit.findings import Finding, Severity
from trtllm_kit.plan.checks.case import Case, Rule
from trtllm_kit.plan.memory import memory_plan
from trtllm_kit.plan.parallelism import Split, fast_reach, kv_heads_per_rank, legal_tensors, obstacles
from trtllm_kit.upstream.bounds import bound


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


def kv_heads(case: Case) -> Iterator[Finding]:
    """PF2: KV heads that can be neither split nor copied, and KV heads that are copied."""
    yield from _in_the_way("PF2")(case)
    copies, ranks = case.plan.parallelism.kv_replication.value, case.split.tensor
    if copies < 2 or any(obstacle.rule == "PF2" for obstacle in case.obstacles):
        return
    heads = min(layer.attention.kv_heads for layer in case.plan.model.layers)
    held = kv_heads_per_rank(case.plan.model.layers[0].attention, ranks)
    yield Finding(
        rule="PF2",
        severity=Severity.INFO,  # asked for, or the fewest ranks that fit: auto takes no more
        message=f"Every KV head is copied {copies} times, which multiplies the whole KV cache by it.",
        compared=f"{heads} KV heads, {ranks} tensor ranks, {held} a rank",
        suggestion=_without_copies(case, replace(case.split, tensor=heads)),
    )


def _without_copies(case: Case, split: Split) -> str:
    """Say whether as many ranks as there are KV heads would do, and what it would leave unused."""
    blocked = obstacles(case.plan.model, split, case.hardware)
    if blocked:
        return f"nothing to do: {split.tensor} ranks are not legal here, {blocked[0].compared}"
    if not memory_plan(replace(case.sizing, split=split)).fits:
        return f"nothing to do: {split.tensor} ranks hold too little"
    idle = case.hardware.gpus - split.world_size
    return f"parallelism.tensor: {split.tensor} (holds what is asked too, and leaves {idle} GPUs idle)"


def head_size(case: Case) -> Iterator[Finding]:
    """PF3: a head size the attention kernels do not take."""
    step = bound("head_size_step")
    for size in sorted({layer.attention.head_dim for layer in case.plan.model.layers}):
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


def vocabulary(case: Case) -> Iterator[Finding]:
    """PF4: a vocabulary that is padded so that the ranks can share it."""
    vocab, ranks = case.plan.model.vocab, case.split.tensor
    if vocab % ranks == 0:
        return
    padded = ceil(vocab / ranks) * ranks
    yield Finding(
        rule="PF4",
        severity=Severity.INFO,
        message="The vocabulary is padded so that the tensor ranks can share it.",
        compared=f"{vocab:,} words padded to {padded:,} over {ranks} ranks",
        suggestion="nothing to do",
    )


def _tensor_suggestion(case: Case) -> str:
    asked = case.profile.parallelism
    legal = legal_tensors(case.plan.model, case.hardware, asked.pipeline, asked.expert)
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
    model, hardware, pipeline = case.plan.model, case.hardware, case.split.pipeline
    if not legal_tensors(model, hardware, pipeline, case.split.expert):
        return f"parallelism.pipeline: 1 and parallelism.tensor: auto; {hardware.name} has {hardware.gpus} GPUs"
    reach = fast_reach(hardware)
    if case.split.tensor > reach:
        stages = ceil(case.split.tensor / reach) * pipeline
        within = Split(reach, stages, case.split.expert)
        if not obstacles(model, within, hardware):
            return f"parallelism.tensor: {reach} with parallelism.pipeline: {stages}"
    return _tensor_suggestion(case)


_SUGGESTIONS = {"PF20": _rank_suggestion, "PF28": _expert_suggestion}

RULES = (
    Rule("PF1", "Attention heads split over tensor ranks", _in_the_way("PF1")),
    Rule("PF2", "KV heads split or copied over tensor ranks", kv_heads),
    Rule("PF3", "Head size", head_size),
    Rule("PF4", "Vocabulary padded for the tensor ranks", vocabulary),
    Rule("PF6", "Feed-forward width split over ranks", _in_the_way("PF6")),
    Rule("PF20", "Ranks against GPUs, nodes and NVLink", _in_the_way("PF20")),
    Rule("PF28", "Experts shared out over expert ranks", _in_the_way("PF28")),
)
