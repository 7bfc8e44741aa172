"""Seconds of one pipeline stage's work on one rank, term by term: peaks of the card times the shares that are reached.

A product takes ``(stream^p + arithmetic^p)^(1/p)``: reading its weights, and its operations at the rate of its number
format. Attention takes the longer of reading keys and values and working on them. The rest is bytes moved, gaps between
kernels, and collectives.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, sqrt

from trtllm_kit.estimate.links import Links, links_of
from trtllm_kit.estimate.operations import LayerWork, Product, Routed, StageWork
from trtllm_kit.estimate.subject import Subject
from trtllm_kit.plan.communication import ACTIVATION_BYTES
from trtllm_kit.spec.ceilings import Ceilings
from trtllm_kit.spec.hardware import Gpu
from trtllm_kit.spec.profile_formats import PartFormat

_COMPUTED_IN: dict[PartFormat, tuple[str, ...]] = {
    "fp8": ("fp8",),
    "fp8_rowwise": ("fp8",),
    "fp8_block": ("fp8",),
    "mxfp8": ("fp8",),
    "mxfp4": ("fp8",),
    "w4a8_awq": ("fp8",),
    "int8_sq": ("int8", "fp8"),
    "nvfp4": ("nvfp4",),
}
"""Number types that products of a format are computed in, the first that the card has; 16 bit without one."""
_SHARES = {"fp8": "product_share_8", "int8": "product_share_8", "nvfp4": "product_share_4"}
_BLOCKS = ("fp8_block", "mxfp8")
_UNPACKED = ("int4_wo", "int4_awq", "mxfp4")
"""Formats whose weights are unpacked to 16 bit; MXFP4 on Hopper and older alone."""
_HOPPER = 90


@dataclass(frozen=True, slots=True)
class PlainCost:
    """Products with the same cost."""

    count: int
    stream: float
    """Seconds to read the weights."""
    row: float
    """Seconds of arithmetic a row."""


@dataclass(frozen=True, slots=True)
class ExpertCost:
    """Products grouped by expert, of layers alike."""

    count: int
    stream: float
    """Seconds to read one expert's weights."""
    row: float
    """Seconds of arithmetic of a row in one expert."""
    routed: Routed


@dataclass(frozen=True, slots=True)
class AttendingCost:
    """Attention of layers alike, all of them together."""

    pair: float
    """Seconds of a pair of a query and a key in a prompt."""
    key: float
    """Seconds of a key that a generating sequence reads."""
    key_row: float
    """Seconds of arithmetic for it and each token of a step's ``width``."""
    scored: float
    """Seconds of every key before the query, read or not."""
    window: int | None


def share_of(gpu: Gpu, name: PartFormat) -> tuple[float, str]:
    """Return the peak of a card for products in a format, operations a second, and the constant that is its share."""
    if name in _UNPACKED and not (name == "mxfp4" and gpu.compute_capability > _HOPPER):
        return half_rate(gpu), "unpack_share"
    kind = next((kind for kind in _COMPUTED_IN.get(name, ()) if kind in gpu.dense_flops), "")
    if not kind:
        return half_rate(gpu), "product_share_16"
    blocks = kind == "fp8" and name in _BLOCKS
    return gpu.dense_flops[kind].value, "product_share_8_block" if blocks else _SHARES[kind]


def half_rate(gpu: Gpu) -> float:
    """Return the peak of a card in 16 bit, operations a second; of one that states none, the least it states."""
    stated = gpu.dense_flops.get("bf16") or gpu.dense_flops.get("fp16")
    return stated.value if stated else min(figure.value for figure in gpu.dense_flops.values())


class StageCost:
    """The seconds of one stage's terms, by rows, sequences and pairs; all are those of one rank."""

    def __init__(self, stage: StageWork, subject: Subject, ceilings: Ceilings, speed: float) -> None:
        """Turn operations into seconds on the subject's card, whose clock is ``speed`` times that of its ceilings."""
        gpu, split = subject.hardware.gpu, subject.split
        self._speed = speed
        self.shares: dict[str, set[str]] = {"products": set(), "experts": set()}
        self._gpu, self._ceilings, self._p = gpu, ceilings, ceilings.overlap
        self._bandwidth = gpu.memory_bandwidth.value
        self.prompt_share = "prompt_attention_share" + ("" if subject.formats.kv_cache == "bf16" else "_8")
        self.launches = stage.launches
        self.hidden = stage.hidden
        self.links: Links = links_of(subject.hardware, ceilings, split.tensor)
        self.reduces = stage.reduces
        self.head = None if stage.head is None else self._one(stage.head, 1)
        self.shares["products"].clear()  # the head is a term of its own
        self.plain = self._plain(stage)
        self.experts = tuple(cost for layer in stage.layers for cost in self._experts(layer))
        self.attending = tuple(self._attending(layer) for layer in stage.layers if layer.attending is not None)
        moved = self._bandwidth * ceilings.moved_share
        self.moved_row = ceilings.traffic * sum(layer.count * layer.row_bytes for layer in stage.layers) / moved
        states = [(layer.count, layer.state) for layer in stage.layers if layer.state is not None]
        self.state_sequence = sum(2 * count * state.bytes_per_sequence for count, state in states) / moved
        half = half_rate(gpu) * speed * ceilings.generation_attention_share
        self.state_row = sum(count * state.flops_per_token for count, state in states) / half
        self.exchanged_layers = stage.routed_layers if subject.attention_dp else 0
        self.gaps = stage.kernels * ceilings.kernel_seconds + stage.routed_layers * ceilings.routing_seconds
        self._attention_dp, self._tensor = subject.attention_dp, split.tensor
        self._context, self._apart = split.context, links_of(subject.hardware, ceilings, split.tensor * split.context)
        self._exchanged = tuple((layer.count, *layer.exchanged) for layer in stage.layers if layer.exchanged[0])

    def _plain(self, stage: StageWork) -> tuple[PlainCost, ...]:
        merged: dict[tuple[float, float], int] = {}
        for layer in stage.layers:
            for product in layer.products:
                if not product.experts:
                    one = self._one(product, 1)
                    merged[one.stream, one.row] = merged.get((one.stream, one.row), 0) + layer.count
        return tuple(PlainCost(count, stream, row) for (stream, row), count in merged.items())

    def _one(self, product: Product, count: int) -> PlainCost:
        stream = product.weight_bytes / (self._bandwidth * self._ceilings.stream_share)
        peak, share = share_of(self._gpu, product.format)
        self.shares["experts" if product.experts else "products"].add(share)
        rate = peak * float(getattr(self._ceilings, share)) * self._speed
        row = 2 * product.outputs * product.inputs / rate
        return PlainCost(count, stream, row)

    def _experts(self, layer: LayerWork) -> tuple[ExpertCost, ...]:
        if layer.routed is None:
            return ()
        found = []
        for product in layer.products:
            if product.experts:
                one = self._one(product, layer.count)
                share = self._ceilings.expert_share
                found.append(ExpertCost(layer.count, one.stream, one.row / share, layer.routed))
        return tuple(found)

    def _attending(self, layer: LayerWork) -> AttendingCost:
        work, ceilings = layer.attending, self._ceilings
        assert work is not None  # noqa: S101 - the caller has looked
        peak = half_rate(self._gpu) * self._speed
        prompt = peak * float(getattr(ceilings, self.prompt_share))
        generation = peak * ceilings.generation_attention_share
        read = self._bandwidth * ceilings.cache_share
        return AttendingCost(
            pair=layer.count * work.prompt_flops / prompt,
            key=layer.count * work.bytes_per_key / read,
            key_row=layer.count * work.generation_flops / generation,
            scored=layer.count * max(work.scored_bytes / read, work.scored_flops / generation),
            window=work.window,
        )

    # --- terms -------------------------------------------------------------------------------------------------

    def products(self, rows: float) -> float:
        """Return the seconds of plain products over that many rows."""
        p = self._p
        return float(sum(one.count * (one.stream**p + (one.row * rows) ** p) ** (1 / p) for one in self.plain))

    def head_product(self, rows: float) -> float:
        """Return the seconds of the output head for that many tokens to choose."""
        if self.head is None or not rows:
            return 0.0
        p = self._p
        return float((self.head.stream**p + (self.head.row * rows) ** p) ** (1 / p))

    def expert_products(self, rows: float) -> float:
        """Return the seconds of the experts of the fullest rank, for rows of the whole replica."""
        return sum(self._of_experts(cost, rows) for cost in self.experts)

    def _of_experts(self, cost: ExpertCost, rows: float) -> float:
        routed, p = cost.routed, self._p
        chosen = routed.per_token / routed.experts
        active = routed.places * (1 - (1 - chosen) ** max(1.0, rows * self._ceilings.expert_spread))
        mine = rows * routed.per_token * min(1.0, routed.places / routed.experts)
        mine = _fullest(mine, routed.ranks, self._ceilings.expert_skew) + active * self._ceilings.expert_padding
        return float(cost.count * ((active * cost.stream) ** p + (mine * cost.row) ** p) ** (1 / p))

    def collectives(self, rows: float) -> float:
        """Return the seconds of a pass's collectives over rows of the whole replica.

        Ranks with requests of their own gather the rows of all before experts and give each its result back after.
        Context ranks reduce their own rows among tensor ranks, and exchange heads for rows around attention.
        """
        row_bytes = ACTIVATION_BYTES * self.hidden
        if not self._attention_dp:
            mine = rows / self._context
            return self.reduces * self.links.all_reduce(mine * row_bytes) + self._exchange(mine)
        others = (self._tensor - 1) / self._tensor
        return 2 * self.exchanged_layers * self.links.exchange(others * rows * row_bytes)

    def _exchange(self, mine: float) -> float:
        """Return the seconds in which context ranks give others their share of heads, and get rows back."""
        others = (self._context - 1) / self._context
        return sum(
            count * (self._apart.exchange(others * mine * before) + self._apart.exchange(others * mine * after))
            for count, before, after in self._exchanged
        )


def _fullest(mean: float, ranks: int, skew: float) -> float:
    """Return the rows of the fullest of several ranks: the mean, and what chance and uneven choice add."""
    if ranks == 1:
        return mean
    return skew * mean + sqrt(2 * log(ranks) * mean)
