"""What a rank runs in each layer: products, attention, recurrent states, collectives, and the kernels in between.

Everything follows from the weights that ``spec.tensors`` names and from how ``plan.weights`` shares them out, so a
family that can be planned can be timed. Pure arithmetic; ``estimate.costs`` turns it into seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil
from typing import Literal

from trtllm_kit.estimate.attention import Attending, State, attending_of, state_of
from trtllm_kit.estimate.kernels import kernels_of, more_launches, quantised_bytes, row_bytes_of
from trtllm_kit.estimate.subject import Subject
from trtllm_kit.plan.communication import ACTIVATION_BYTES
from trtllm_kit.plan.formats import FORMATS, Formats, number_format
from trtllm_kit.plan.parallelism import Split, exchanged, stages
from trtllm_kit.plan.quantization import fused_groups, kinds_by_format, tensor_formats
from trtllm_kit.plan.weights import elements_held, expert_places, input_features, input_parts
from trtllm_kit.spec.model import Attention, Experts, Layer, ModelSpec
from trtllm_kit.spec.profile_formats import PartFormat
from trtllm_kit.spec.tensors import Role, TensorFact, layer_tensors

Part = Literal["mixer", "feed_forward", "experts", "head"]


@dataclass(frozen=True, slots=True)
class Product:
    """One matrix product of a rank: each row of ``inputs`` elements becomes ``outputs``."""

    part: Part
    outputs: int
    """Of one rank; with experts, of each."""
    inputs: int
    format: PartFormat
    weight_bytes: int
    """Weights and scales that a rank reads; with experts, of each."""
    experts: int = 0
    """Experts of this rank that share out the rows; 0 for a plain product, which takes them all."""


@dataclass(frozen=True, slots=True)
class Routed:
    """The experts of a layer, as far as traffic and balance depend on them."""

    experts: int
    per_token: int
    places: int
    """Experts that a rank holds."""
    ranks: int
    """Ranks that the experts are shared out over."""


@dataclass(frozen=True, slots=True)
class LayerWork:
    """What a rank runs in one kind of layer."""

    count: int
    """Layers alike in the stage."""
    products: tuple[Product, ...]
    attending: Attending | None
    state: State | None
    routed: Routed | None
    row_bytes: int
    """Bytes that everything but products and attention reads and writes for a row."""
    kernels: int
    """Kernels of the layer, products and attention included, but not what experts need beside their products."""
    launches: int
    """Kernels that the host launches for the layer in a step with prompts."""
    reduces: int
    """All-reduces of the layer's hidden states, where tensor ranks share it."""
    exchanged: tuple[int, int] = (0, 0)
    """Bytes of a row that context ranks exchange before attention and after it."""


@dataclass(frozen=True, slots=True)
class StageWork:
    """What a rank of one pipeline stage runs."""

    layers: tuple[LayerWork, ...]
    head: Product | None
    """The output head, on the last stage."""
    hidden: int

    @property
    def kernels(self) -> int:
        """Kernels of one forward pass through the stage, but for what experts need beside their products."""
        return sum(layer.count * layer.kernels for layer in self.layers) + (_HEAD_KERNELS if self.head else 0)

    @property
    def routed_layers(self) -> int:
        """Layers with experts."""
        return sum(layer.count for layer in self.layers if layer.routed is not None)

    @property
    def launches(self) -> int:
        """Kernels that the host launches for one forward pass."""
        return sum(layer.count * layer.launches for layer in self.layers) + (_HEAD_KERNELS if self.head else 0)

    @property
    def reduces(self) -> int:
        """All-reduces of one forward pass."""
        return sum(layer.count * layer.reduces for layer in self.layers)


def stages_of(subject: Subject) -> tuple[StageWork, ...]:
    """Return the work of each pipeline stage, kept for subjects that share model, formats and split."""
    return _kept(subject.model, subject.formats, subject.split, dense_split(subject))


def dense_split(subject: Subject) -> Split:
    """Return how everything but routed experts is split: not at all over ranks with requests of their own."""
    whole = replace(subject.split, tensor=1, expert=1, attention_dp=False)
    return whole if subject.attention_dp else subject.split


_KEPT: dict[tuple[object, ...], tuple[ModelSpec, tuple[StageWork, ...]]] = {}
_MOST_KEPT = 4096


def _kept(model: ModelSpec, formats: Formats, split: Split, dense: Split) -> tuple[StageWork, ...]:
    """Look the work up by the model's identity: its hash takes longer than a step's time may."""
    said = (formats.weights, formats.kv_cache, formats.exclude, formats.group_size, formats.passed_through)
    key: tuple[object, ...] = (id(model), said, tuple(formats.groups.items()), split, dense)
    if key not in _KEPT:
        if len(_KEPT) >= _MOST_KEPT:
            _KEPT.clear()
        work = tuple(_stage(model, formats, split, dense, stage) for stage in stages(model, split.pipeline))
        _KEPT[key] = (model, work)  # with the model, whose identity is its own while it lives
    return _KEPT[key][1]


def _stage(model: ModelSpec, formats: Formats, split: Split, dense: Split, stage: range) -> StageWork:
    layers = tuple(
        _layer(model, number, formats, (split, dense), count) for number, count in _kinds(model, formats, stage)
    )
    last = stage.stop == len(model.layers)
    return StageWork(layers, _head(model, dense) if last else None, model.hidden)


_KINDS: dict[tuple[object, ...], tuple[ModelSpec, tuple[tuple[int, int], ...]]] = {}


def _kinds(model: ModelSpec, formats: Formats, stage: range) -> tuple[tuple[int, int], ...]:
    key: tuple[object, ...] = (id(model), formats.weights, formats.exclude, tuple(formats.groups), stage)
    if key not in _KINDS:
        if len(_KINDS) >= _MOST_KEPT:
            _KINDS.clear()
        _KINDS[key] = (model, tuple(kinds_by_format(model, formats, stage)))
    return _KINDS[key][1]


def _layer(model: ModelSpec, number: int, formats: Formats, splits: tuple[Split, Split], count: int) -> LayerWork:
    layer, (split, dense) = model.layers[number], splits
    products = tuple(_products(model, number, formats, splits))
    block = layer.feed_forward
    routed = _routed(block, split) if isinstance(block, Experts) else None
    attending = attending_of(layer, dense.heads, formats.kv_cache)
    state = state_of(layer, dense.tensor)
    parts = (layer.mixer is not None) + (block is not None)
    return LayerWork(
        count=count,
        products=products,
        attending=attending,
        state=state,
        routed=routed,
        row_bytes=row_bytes_of(layer, model, dense) + quantised_bytes(products),
        kernels=kernels_of(layer, products),
        launches=kernels_of(layer, products) + more_launches(layer),
        reduces=parts if dense.tensor > 1 else 0,
        exchanged=_exchanged(layer, dense),
    )


def _exchanged(layer: Layer, dense: Split) -> tuple[int, int]:
    if dense.context == 1 or not isinstance(layer.mixer, Attention):
        return (0, 0)
    before, after = exchanged(layer.mixer, dense.tensor)
    return (ACTIVATION_BYTES * before, ACTIVATION_BYTES * after)


def _products(model: ModelSpec, number: int, formats: Formats, splits: tuple[Split, Split]) -> Iterator[Product]:
    """Yield the products of a layer; weights that the runtime fuses are one product."""
    layer, (split, dense) = model.layers[number], splits
    chosen = tensor_formats(model, number, formats)
    grouped: set[str] = set()
    for group in fused_groups(model, number):
        grouped |= {fact.name for fact in group}
        for alike in _by_shape(group):
            routed = _is_routed(alike[0])
            name = chosen.get(alike[0].name, "bf16")
            yield _product(alike, name, split if routed else dense, layer, formats.group_size)
    for fact in layer_tensors(model, number):
        if fact.name not in grouped and len(fact.shape) > 1 and fact.role not in _NO_PRODUCT:
            yield _product((fact,), chosen.get(fact.name, "bf16"), dense, layer, formats.group_size)


_NO_PRODUCT = frozenset({Role.NORM, Role.CONVOLUTION, Role.STATE, Role.WORD_EXPERTS, Role.RESIDUAL, Role.SINK})


def _by_shape(group: tuple[TensorFact, ...]) -> Iterator[tuple[TensorFact, ...]]:
    """Yield the parts of a fused group that take the same input: gate and up, and then down."""
    down = tuple(fact for fact in group if fact.role in (Role.DOWN, Role.EXPERT_DOWN, Role.SHARED_DOWN))
    first = tuple(fact for fact in group if fact not in down)
    yield from (part for part in (first, down) if part)


def _is_routed(fact: TensorFact) -> bool:
    return fact.copies > 1 or fact.role in (Role.EXPERT_GATE_UP, Role.EXPERT_DOWN)


def _product(
    facts: tuple[TensorFact, ...], name: PartFormat, split: Split, layer: Layer, group_size: int | None
) -> Product:
    first, routed = facts[0], _is_routed(facts[0])
    experts = _experts_of(first)
    places = expert_places(experts, split) if routed else 1
    inputs = ceil(input_features(first) / input_parts(first, split))
    elements = sum(_read(fact, split, layer) for fact in facts) // places
    outputs = max(1, elements // inputs)
    scales = sum(
        scale.bytes * scale.count(outputs, inputs)
        for scale in number_format(name, group_size).scales
        if scale.rows or scale.columns
    )
    part: Part = "experts" if routed else "mixer" if _of_mixer(first) else "feed_forward"
    return Product(part, outputs, inputs, name, FORMATS[name].bytes(elements) + scales, places if routed else 0)


def _read(fact: TensorFact, split: Split, layer: Layer) -> int:
    """Return the elements that one pass reads; of a latent's expansion a rank holds half twice, and reads it once."""
    if fact.role is Role.LATENT_UP:
        return ceil(fact.elements / split.tensor)
    return elements_held(fact, split, layer)


def _experts_of(fact: TensorFact) -> int:
    return fact.shape[0] if fact.role in (Role.EXPERT_GATE_UP, Role.EXPERT_DOWN) else fact.copies


def _of_mixer(fact: TensorFact) -> bool:
    return fact.role not in _FEED_FORWARD


_FEED_FORWARD = frozenset({
    Role.GATE, Role.UP, Role.GATE_UP, Role.DOWN, Role.SHARED_GATE, Role.SHARED_UP, Role.SHARED_DOWN, Role.ROUTER,
    Role.SHARED_SWITCH, Role.EXPERT_LATENT_DOWN, Role.EXPERT_LATENT_UP, Role.EXPERT_GATE_UP, Role.EXPERT_DOWN,
})  # fmt: skip


def _routed(block: Experts, split: Split) -> Routed:
    return Routed(block.experts, block.per_token, expert_places(block.experts, split), split.expert)


def _head(model: ModelSpec, dense: Split) -> Product:
    outputs = ceil(model.vocab / dense.tensor)
    return Product("head", outputs, model.hidden, "bf16", 2 * outputs * model.hidden)


_HEAD_KERNELS = 6
"""Last norm, output head, gather, and what chooses the next token."""
