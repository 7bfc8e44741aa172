"""How a model may be split over GPUs: what stands in the way of a split, and which splits are free of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from math import ceil

from trtllm_kit.light import dataclass
from trtllm_kit.spec.hardware import Hardware
from trtllm_kit.spec.model import Attention, DeltaNet, Experts, KimiDelta, Layer, Mamba, ModelSpec
from trtllm_kit.units import counted


@dataclass(frozen=True)
class Split:
    """Ranks in each direction; ``expert`` shares out experts among the ``tensor`` ranks, ``replicas`` share nothing."""

    tensor: int = 1
    pipeline: int = 1
    expert: int = 1
    replicas: int = 1
    expert_slots: int = 0
    """Places for experts over the expert ranks; fewer than a block's experts means one place each."""
    attention_dp: bool = False
    """Tensor ranks each serve requests of their own with whole layers, and share out the routed experts alone."""
    context: int = 1
    """Ranks that each take a part of every sequence's tokens with the same weights, and a part of the heads to attend.

    Rank numbers: those of tensor parallelism are neighbours, then those of context, then the stages.
    """

    @property
    def world_size(self) -> int:
        """Ranks of one replica."""
        return self.tensor * self.pipeline * self.context

    @property
    def shares(self) -> int:
        """Ranks of one replica that hold different weights: each has a file in a checkpoint of rank files."""
        return self.tensor * self.pipeline

    @property
    def heads(self) -> int:
        """Ranks that share out the heads of one request while attending."""
        return self.dense * self.context

    @property
    def dense(self) -> int:
        """Ranks that split everything but routed experts: 1 with attention data parallelism."""
        return 1 if self.attention_dp else self.tensor

    @property
    def data(self) -> int:
        """Ranks that have requests of their own, and caches that add up: 1 without attention data parallelism."""
        return self.tensor if self.attention_dp else 1

    def places(self, batch: int) -> int:
        """Return the requests of one replica that are under way at once, where a step takes ``batch`` of them.

        Each micro-batch of the pipeline is a step of its own, and so is each rank's with requests of its own
        (``_torch/pyexecutor``: ``max_batch_size * pp_size`` sequences of a rank).
        """
        return batch * self.pipeline * self.data

    @property
    def gpus(self) -> int:
        """Ranks of all replicas, each on a GPU of its own."""
        return self.world_size * self.replicas

    @property
    def expert_tensor(self) -> int:
        """Ranks that split each single expert."""
        return max(1, self.tensor // self.expert)


@dataclass(frozen=True)
class Obstacle:
    """One thing in the way of a split."""

    rule: str
    message: str
    compared: str
    hard: bool = True
    """False when the split would run, only slowly."""


def obstacles(model: ModelSpec, split: Split, hardware: Hardware) -> tuple[Obstacle, ...]:
    """Return everything in the way of a split on that hardware; an empty tuple means it is free to run."""
    found = [*_gpu_obstacles(split, hardware), *_expert_obstacles(model, split)]
    if split.pipeline > len(model.layers):
        compared = f"{split.pipeline} stages, {counted(len(model.layers), 'layer')}"
        found.append(Obstacle("PF20", "A pipeline stage would hold no layer.", compared))
    for layer in dict.fromkeys(model.layers):
        found += _layer_obstacles(layer, split)
    return tuple(dict.fromkeys(found))


def legal_tensors(model: ModelSpec, hardware: Hardware, split: Split) -> tuple[int, ...]:
    """Return the tensor rank counts, ascending, with nothing in their way at the other counts of a split."""
    sizes = range(1, hardware.gpus // (split.pipeline * split.context * split.replicas) + 1)
    return tuple(size for size in sizes if not obstacles(model, replace(split, tensor=size), hardware))


def kv_heads_per_rank(attention: Attention, tensor: int) -> int:
    """Return the KV heads a tensor rank holds: its share, and at least one, which is then a copy."""
    return ceil(attention.kv_heads / tensor)


def exchanged(attention: Attention, tensor: int) -> tuple[int, int]:
    """Return the elements of a token that context ranks exchange before attention and after it, of one tensor rank.

    Before it they give away tokens of heads they do not attend with, and after it the answers of tokens they do not
    hold.
    """
    heads, kept = ceil(attention.heads / tensor), kv_heads_per_rank(attention, tensor)
    return heads * attention.head_dim + kept * (
        attention.head_dim + attention.value_width
    ), heads * attention.value_width


def kv_replication(model: ModelSpec, tensor: int) -> int:
    """Return the copies of every KV head over the tensor ranks."""
    return max((ceil(tensor / attention.kv_heads) for attention in dict.fromkeys(model.attentions)), default=1)


def stages(model: ModelSpec, pipeline: int) -> tuple[range, ...]:
    """Return the layer numbers of each pipeline stage; the first stages take the layers that are left over."""
    each, left = divmod(len(model.layers), pipeline)
    starts = [stage * each + min(stage, left) for stage in range(pipeline + 1)]
    return tuple(range(start, end) for start, end in pairwise(starts))


def fast_reach(hardware: Hardware) -> int:
    """Return how many GPUs reach each other without leaving the NVLink domain or, with none, the node."""
    return max(hardware.nvlink_domain, hardware.gpus_per_node)


def _gpu_obstacles(split: Split, hardware: Hardware) -> Iterator[Obstacle]:
    reach, together = fast_reach(hardware), split.tensor * split.context
    named = "tensor rank" if split.context == 1 else "tensor and context rank"
    if split.gpus > hardware.gpus:
        copies = f" x {split.replicas} replicas" if split.replicas > 1 else ""
        parts = f" x {split.context} context" if split.context > 1 else ""
        compared = f"{split.tensor} tensor x {split.pipeline} pipeline{parts}{copies} = {counted(split.gpus, 'rank')}"
        message = f"{hardware.name} has fewer GPUs than the split has ranks."
        yield Obstacle("PF20", message, f"{compared}, {counted(hardware.gpus, 'GPU')}")
    elif together > reach:  # so there are several nodes
        message = f"{named.capitalize()}s would exchange every layer's result over the network between nodes."
        compared = f"{counted(together, named)}, {counted(reach, 'GPU')} in one node or NVLink domain"
        yield Obstacle("PF20", message, compared, hard=False)
    elif split.pipeline * split.replicas > (room := reach // together * (hardware.gpus // reach)):
        message = f"Some {named}s would exchange every layer's result over the network between nodes."
        groups = f"{counted(split.pipeline * split.replicas, 'group')} of {counted(together, named)}"
        compared = f"{groups}, room for {room} within nodes or NVLink domains of {counted(reach, 'GPU')}"
        yield Obstacle("PF20", message, compared, hard=False)


def _expert_obstacles(model: ModelSpec, split: Split) -> Iterator[Obstacle]:
    counts = {layer.feed_forward.experts for layer in model.layers if isinstance(layer.feed_forward, Experts)}
    if split.expert > 1 and not counts:
        yield Obstacle("PF28", "The model has no experts to share out.", f"expert {split.expert}, 0 experts")
    elif split.tensor % split.expert:
        compared = f"{counted(split.tensor, 'tensor rank')} / {split.expert} expert ranks is not whole"
        yield Obstacle("PF28", "The expert ranks do not divide the tensor ranks.", compared)
    for count in sorted(count for count in counts if count % split.expert):
        compared = f"{count} experts / {split.expert} expert ranks is not whole"
        yield Obstacle("PF28", "The experts cannot be shared out evenly.", compared)


def _layer_obstacles(layer: Layer, split: Split) -> Iterator[Obstacle]:
    if isinstance(layer.mixer, Attention):
        yield from _attention_obstacles(layer.mixer, split)
    elif layer.mixer is not None:
        yield from _state_obstacles(layer.mixer, split.dense)
    for width, parts in _widths(layer, split):
        if width % parts:
            compared = f"{width} / {parts} ranks is not whole"
            yield Obstacle(
                "PF6", f"A feed-forward block of width {width} cannot be split over {parts} ranks.", compared
            )


def _attention_obstacles(attention: Attention, split: Split) -> Iterator[Obstacle]:
    heads, kept, ranks = attention.heads, attention.kv_heads, split.heads
    named = "tensor ranks" if split.context == 1 else f"ranks ({split.dense} tensor x {split.context} context)"
    if heads % ranks:
        compared = f"{heads} heads / {ranks} {named} is not whole"
        yield Obstacle("PF1", f"{heads} attention heads cannot be split over {ranks} {named}.", compared)
    if max(kept, ranks) % min(kept, ranks):
        compared = f"{counted(kept, 'KV head')}, {ranks} {named}: neither divides the other"
        yield Obstacle("PF2", f"{kept} KV heads can be neither split nor copied over {ranks} {named}.", compared)


def _state_obstacles(mixer: DeltaNet | Mamba | KimiDelta, ranks: int) -> Iterator[Obstacle]:
    """Yield the counts of a recurrent mixer that ranks cannot share; whether fewer groups are copied is not known."""
    heads = mixer.value_heads if isinstance(mixer, DeltaNet) else mixer.heads
    if heads % ranks:
        compared = f"{heads} heads / {ranks} tensor ranks is not whole"
        yield Obstacle("PF1", f"{heads} heads with a state cannot be split over {ranks} tensor ranks.", compared)
        return
    groups = {DeltaNet: "key_heads", Mamba: "groups"}.get(type(mixer), "heads")
    count = getattr(mixer, groups)
    if count % ranks:
        compared = f"{count} key heads or groups / {ranks} tensor ranks is not whole"
        message = f"{ranks} tensor ranks share out {count} groups of heads, which is not confirmed to work."
        yield Obstacle("PF1", message, compared, hard=False)


def _widths(layer: Layer, split: Split) -> Iterator[tuple[int, int]]:
    """Yield each feed-forward width of a layer with the number of ranks that split it."""
    block = layer.feed_forward
    if block is None:
        return
    if not isinstance(block, Experts):
        yield block.intermediate, split.dense
        return
    yield block.intermediate, split.expert_tensor
    if block.shared_intermediate:
        yield block.shared_intermediate, split.dense
