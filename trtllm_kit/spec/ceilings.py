"""How much of a card's peaks each kind of operation reaches, and what each step costs beside them.

``ceilings.yaml`` has a few physical constants for each architecture and for the runtime of a range of releases, each
with its bounds and the data it was fitted or measured on. A card without measurements takes its architecture's
constants, and an architecture without any those of Hopper; what came so is ``transferred``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, Literal

from trtllm_kit.resources import package_file
from trtllm_kit.shipped_yaml import parse_yaml, read_shipped
from trtllm_kit.spec.hardware import Gpu
from trtllm_kit.upstream.facts import in_range

How = Literal["measured", "fitted", "roofline"]
LEAST_CERTAIN: tuple[How, ...] = ("roofline", "fitted", "measured")
"""The least certain first: what rests on several constants is as certain as the least certain of them."""
Backend = Literal["pytorch", "tensorrt"]
"""What runs a step: the PyTorch backend, which records generation steps and launches others, or a built engine."""
CEILINGS = package_file("spec", "ceilings.yaml")


@dataclass(frozen=True, slots=True)
class Constant:
    """One figure, the range it can lie in, and where it comes from."""

    value: float
    low: float
    high: float
    how: How
    source: str


@dataclass(frozen=True, slots=True)
class Ceilings:
    """The constants of one architecture and one release; shares are of the card's peak, times are seconds."""

    stream_share: float
    """Of the memory bandwidth, that reading weights reaches."""
    cache_share: float
    """Of the memory bandwidth, that reading keys and values reaches."""
    moved_share: float
    """Of the memory bandwidth, that norms, activations and quantisation reach as one kernel."""
    product_share_16: float
    """Of the peak, that large products in 16 bit reach."""
    product_share_8: float
    """The same in 8 bit."""
    product_share_8_block: float
    """The same in 8 bit with a scale for each block of weights."""
    product_share_4: float
    """The same in 4 bit."""
    unpack_share: float
    """Of the 16-bit peak, that products reach whose 4-bit weights are unpacked to 16 bit on the way."""
    expert_share: float
    """Of a plain product's arithmetic rate, what products grouped by expert reach."""
    expert_padding: float
    """Rows that an expert's part of such a product is filled up with, to whole tiles."""
    expert_spread: float
    """Of a batch's tokens, those that choose their experts independently of the others."""
    routing_seconds: float
    """Of a layer with experts, to choose them, to sort rows by them and to gather what they return."""
    overlap: float
    """Exponent p of (memory^p + arithmetic^p)^(1/p): 1 adds both up, a large one hides the shorter."""
    prompt_attention_share: float
    """Of the 16-bit peak, that attention over a prompt reaches."""
    prompt_attention_share_8: float
    """The same where keys and values are cached in 8 bit or less, which attention then works in."""
    generation_attention_share: float
    """The same, of arithmetic while generating."""
    kernel_seconds: float
    """Between a kernel and the next in a recorded step, beside the work of both."""
    reduce_seconds: float
    """Of an all-reduce of nothing between two ranks, in one shot: every rank reads what all others have."""
    reduce_rank_seconds: float
    """More for each doubling of the ranks."""
    ring_seconds: float
    """Of an all-reduce of nothing in two phases, which sends less: for each doubling of the ranks."""
    link_share: float
    """Of a link's bandwidth, that collectives reach."""
    bridge_crowding: float
    """Exponent by which ranks on PCIe share a bridge: n get (2 / n) to this power of a link; 0 for no sharing."""
    network_seconds: float
    """Of a collective of nothing between nodes, for each doubling of the nodes."""
    expert_skew: float
    """How much more than by chance the fullest expert rank has to do; 1 where experts are chosen evenly."""
    step_seconds: float
    """For the host to prepare a step, beside the GPU's work on the one before."""
    sequence_seconds: float
    """More for each sequence."""
    stream_seconds: float
    """More for each token that is streamed to a client."""
    traffic: float
    """How often norms, activations and quantisation move what as one kernel each they would move once."""
    reduce_hidden: float
    """Of a two-phase all-reduce over switches that add up, what products hide."""
    launch_seconds: float
    """For the host to launch a kernel in a step that is not recorded."""
    exposed_seconds: float
    """Of a step, that nothing hides."""
    request_seconds: float
    """For a request before it waits for the engine: its text to tokens, the way to the scheduler."""
    reply_seconds: float
    """For its first token behind the engine: to text, and the way back."""


HOST = (
    "step_seconds", "sequence_seconds", "stream_seconds", "traffic", "reduce_hidden", "launch_seconds",
    "exposed_seconds", "request_seconds", "reply_seconds",
)  # fmt: skip
"""Constants of the runtime and not of the card: a backend of a release has them."""


def card_constants() -> tuple[str, ...]:
    """Return the names of the constants that a card has, and no runtime."""
    return tuple(name for name in _FIELDS if name not in HOST)


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of one card under one release."""

    ceilings: Ceilings
    constants: dict[str, Constant]
    architecture: str
    """Whose constants those of the card are."""
    host: str
    """Whose constants those of the runtime are."""
    clock_hz: float
    """Clock of the multiprocessors that the shares of arithmetic hold at, hertz."""
    transferred: bool
    """Whether no measurement of this card went into them."""


def known_of(gpu: Gpu, release: str, backend: Backend = "pytorch") -> Known:
    """Return the constants of a card's architecture, or Hopper's for one without, and those of a backend's release.

    Constants that were measured on the card itself, ``gpu.ceilings``, come before its architecture's.

    Raises:
        ValueError: ``release`` is not the name of one.

    """
    cards, hosts = _rows()
    row = next((row for row in cards.values() if gpu.name in row.cards), None)
    row = row or cards.get(gpu.architecture) or cards[FALLBACK]
    host = next(host for host in hosts if host.backend == backend and in_range(release, host.since, host.until))
    own = {name: Constant(one.value, one.low, one.high, "measured", one.source) for name, one in gpu.ceilings.items()}
    constants, foreign = row.constants | own | host.constants, gpu.name not in row.cards and not own
    known = Known(_NOTHING, constants, row.architecture, host.name, row.clock_hz, foreign)
    return with_values(known, {name: constant.value for name, constant in known.constants.items()})


def with_values(known: Known, values: Mapping[str, float]) -> Known:
    """Return the same with other values."""
    return replace(known, ceilings=Ceilings(**values))


def bounds_of(known: Known) -> tuple[Known, Known]:
    """Return the same with every constant at its favourable bound, and with every one at its other."""
    best, worst = dict[str, float](), dict[str, float]()
    for name, constant in known.constants.items():
        more_is_better = "_share" in name or name == "overlap"
        low, high = constant.low, constant.high
        best[name], worst[name] = (high, low) if more_is_better else (low, high)
    return with_values(known, best), with_values(known, worst)


FALLBACK = "hopper"
_FIELDS = tuple(field.name for field in fields(Ceilings))
_NOTHING = Ceilings(**dict.fromkeys(_FIELDS, 0.0))


@dataclass(frozen=True, slots=True)
class CardRow:
    """One architecture in the file."""

    architecture: str
    cards: tuple[str, ...]
    """Names of the cards whose measurements the constants rest on."""
    clock_hz: float
    constants: dict[str, Constant]


@dataclass(frozen=True, slots=True)
class HostRow:
    """The runtime of a range of releases in the file."""

    backend: Backend
    since: str | None
    until: str | None
    constants: dict[str, Constant]

    @property
    def name(self) -> str:
        """The backend and its first and last release: ``pytorch 1.1.0rc0 to 1.2.0rc0``."""
        return f"{self.backend} {self.since or 'first'} to {self.until or 'last'}"


@cache
def _rows() -> tuple[dict[str, CardRow], tuple[HostRow, ...]]:
    document = read_shipped(CEILINGS, parse_yaml)
    sources: dict[str, str] = document["sources"]
    cards: dict[str, CardRow] = {}
    for row in document["architectures"]:
        base = cards[row["base"]].constants if "base" in row else {}
        own = base | _constants(row, sources)
        cards[row["architecture"]] = CardRow(row["architecture"], tuple(row["cards"]), row["clock_hz"], own)
    hosts = tuple(
        HostRow(row["backend"], row["since"], row["until"], _constants(row, sources)) for row in document["hosts"]
    )
    return cards, hosts


def _constants(row: dict[str, Any], sources: Mapping[str, str]) -> dict[str, Constant]:
    return {
        name: Constant(figure["value"], figure["low"], figure["high"], figure["how"], sources[figure["source"]])
        for name, figure in row["constants"].items()
    }
