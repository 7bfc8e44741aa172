"""Step times from aiconfigurator-core, which stays in an environment of its own: one process call tabulates them.

``AicClock`` answers like ``estimate.step_time.StepClock``, so the batching simulation runs on either. Its package needs
half a gigabyte and a numpy that others here exclude, and it may be renamed; nothing depends on it.
"""

from __future__ import annotations

import json
import subprocess
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trtllm_kit.errors import MissingTool, UsageError
from trtllm_kit.estimate.step_time import StepTime, Term
from trtllm_kit.estimate.subject import Subject
from trtllm_kit.estimate.work import StepWork
from trtllm_kit.resources import package_file

SYSTEMS = {
    "NVIDIA H200 SXM 141GB": "h200_sxm",
    "NVIDIA H100 SXM 80GB": "h100_sxm",
    "NVIDIA A100 SXM 80GB": "a100_sxm",
    "NVIDIA L40S 48GB": "l40s",
    "NVIDIA B200 SXM 180GB": "b200_sxm",
    "NVIDIA GB200 186GB": "gb200",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition 96GB": "rtx_pro_6000_server",
}
"""Its names of the cards that it has measurements of with TensorRT-LLM, by ours."""
_PRODUCTS = {"bf16": "bfloat16", "fp8": "fp8_static", "fp8_block": "fp8_block", "nvfp4": "nvfp4"}
_EXPERTS = _PRODUCTS | {"fp8": "fp8", "mxfp4": "w4a16_mxfp4"}
_BLACKWELL, _BLACKWELL_EXPERTS = 100, {"mxfp4": "w4a8_mxfp4_mxfp8"}
_CACHE = {"bf16": "bfloat16", "fp8": "fp8"}
REST = "all but attention"
NO_HOST = Term("host", 0.0, 0.0, 0.0, "measured")
"""It knows of no host either."""
_SECONDS = 120.0
"""Longest that tables may take, seconds; a second or two is usual."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Values at points of one axis, ascending; between them straight lines, beyond them the last line goes on."""

    points: tuple[float, ...]
    values: tuple[float, ...]

    def at(self, point: float) -> float:
        """Return the value at a point."""
        place = min(max(bisect_right(self.points, point) - 1, 0), len(self.points) - 2)
        low, high = self.points[place], self.points[place + 1]
        share = (point - low) / (high - low)
        return self.values[place] + share * (self.values[place + 1] - self.values[place])


class AicClock:
    """Seconds of steps by its tables: batch and mean context for generation, tokens for prompts."""

    request_seconds = 0.0
    """It knows of no time outside the engine."""
    reply_seconds = 0.0
    borrowed = ""
    """No other card's measurements stand in: a card that it has none of is refused."""

    def __init__(self, subject: Subject, tables: Mapping[str, Any], axes: Axes) -> None:
        """Take the tables of the package, milliseconds, and what they were asked for."""
        self.subject = subject
        self.source = f"aiconfigurator-core {tables['version']}"
        self._ranks = subject.split.data
        self._decode = _by_batch(axes, tables["decode"])
        self._attention = _by_batch(axes, tables["attention"])
        self._rest = _grid(axes.rows, tables["rest"])
        self._prompt = _grid(axes.prompts, tables["prompt"])
        self._batches = axes.batches

    def seconds(self, work: StepWork) -> float:
        """Return the seconds of a step."""
        if not work.chunks and work.width == 1:
            return self._generation(self._decode, work.sequences, work.context) if work.sequences else 0.0
        prompts = sum(self._prompt.at(one.new + one.past) - self._cached(one.past) for one in work.chunks)
        total = self._rest.at(work.rows / self._ranks) + prompts / max(1, min(self._ranks, len(work.chunks)))
        return total + self._attending(work)

    def explain(self, work: StepWork) -> StepTime:
        """Return what the tables tell apart, seconds; they state no interval, so each term is its own."""
        whole, answers = self.seconds(work), self._attending(work)
        rest = whole - answers if not work.chunks else self._rest.at(work.rows / self._ranks)
        parts = {REST: rest, "generation attention": answers, "prompt attention": whole - answers - rest}
        terms = tuple(
            Term(name, seconds, seconds, seconds, "measured") for name, seconds in parts.items() if seconds > 0
        )
        longest = max(terms, key=lambda term: term.seconds, default=NO_HOST)
        return StepTime(whole, terms, NO_HOST, 0.0, longest.name)

    def _attending(self, work: StepWork) -> float:
        return self._generation(self._attention, work.sequences, work.context) if work.sequences else 0.0

    def decode_run(self, sequences: int, context: int, steps: int) -> float:
        """Return the seconds of consecutive generation steps: the mean of the first and the last, for each of them."""
        if not sequences or steps <= 0:
            return 0.0
        last = context + sequences * (steps - 1)
        ends = [self._generation(self._decode, sequences, tokens) for tokens in (context, (context + last) / 2, last)]
        return steps * (ends[0] + 4 * ends[1] + ends[2]) / 6

    def _cached(self, tokens: int) -> float:
        return self._prompt.at(tokens) if tokens else 0.0

    def _generation(self, grids: tuple[Grid, ...], sequences: int, context: float) -> float:
        mean = context / sequences
        return Grid(self._batches, tuple(grid.at(mean) for grid in grids)).at(sequences / self._ranks)


@dataclass(frozen=True, slots=True)
class Axes:
    """What tables are asked for."""

    batches: tuple[float, ...]
    contexts: tuple[float, ...]
    rows: tuple[float, ...]
    prompts: tuple[float, ...]


def axes_of(subject: Subject) -> Axes:
    """Return the points that cover a subject: powers of two, and one beyond its limits."""
    return Axes(
        batches=_powers(1, max(2, subject.max_batch_size)),
        contexts=_powers(64, max(128, subject.max_seq_len)),
        rows=_powers(1, max(2, subject.max_num_tokens)),
        prompts=_powers(16, max(32, subject.max_seq_len)),
    )


def _powers(first: int, most: int) -> tuple[float, ...]:
    found = [float(first)]
    while found[-1] < most:
        found.append(found[-1] * 2)
    return tuple(found)


def tabulated(subject: Subject, model: str, python: str) -> AicClock:
    """Ask the package that ``python`` has, and return the clock of its answer.

    ``model`` is a folder with a config.json, or a hub id that the package carries. Raises ``UsageError`` for what it
    has no name or no data for, ``MissingTool`` where that environment does not answer.
    """
    axes = axes_of(subject)
    asked = {
        "model": model,
        "system": system_of(subject),
        "split": split_of(subject),
        "batches": [int(one) for one in axes.batches],
        "contexts": [int(one) for one in axes.contexts],
        "rows": [int(one) for one in axes.rows],
        "prompts": [int(one) for one in axes.prompts],
    }
    return AicClock(subject, _answer(asked, python), axes)


def system_of(subject: Subject) -> str:
    """Return the package's name of a subject's card; raises ``UsageError`` for one it has no measurements of."""
    card = subject.hardware.gpu.name
    if card not in SYSTEMS:
        raise UsageError(
            f"aiconfigurator has no measurements of {card}",
            why=f"it has them of {', '.join(sorted(SYSTEMS.values()))}",
            hint="trtkit estimate without it: its own step times know every card of the catalogue",
        )
    return SYSTEMS[card]


def split_of(subject: Subject) -> dict[str, int | str]:
    """Return split and number formats in the package's words; raises ``UsageError`` for a format without one."""
    split, formats = subject.split, subject.formats
    weights, cache = formats.weights, formats.kv_cache
    if cache not in _CACHE or weights not in _EXPERTS:
        raise UsageError(
            f"aiconfigurator has no word for weights in {weights} with a KV cache in {cache}",
            why=f"its words are for {', '.join(_EXPERTS)} and {', '.join(_CACHE)}",
            hint="trtkit estimate without it: its own step times know every format that is planned",
        )
    if split.context > 1:
        raise UsageError(
            "aiconfigurator has no word for context parallelism",
            why=f"the profile cuts sequences over {split.context} ranks",
            hint="trtkit estimate without it: its own step times know of context ranks",
        )
    ranks, latent = split.tensor, any(attention.latent for attention in subject.model.attentions)
    newer = _BLACKWELL_EXPERTS if subject.hardware.gpu.compute_capability >= _BLACKWELL else {}
    eight = cache == "fp8" and weights in ("fp8", "nvfp4") and not latent  # its tables of latent attention are 16 bit
    return {
        "tp_size": 1 if subject.attention_dp else ranks,
        "attention_dp_size": ranks if subject.attention_dp else 1,
        "pp_size": split.pipeline,
        "moe_tp_size": ranks // split.expert,
        "moe_ep_size": split.expert,
        "gemm_quant_mode": _PRODUCTS.get(weights, "bfloat16"),
        "moe_quant_mode": (_EXPERTS | newer)[weights],
        "kvcache_quant_mode": _CACHE[cache],
        "fmha_quant_mode": "fp8" if eight else "bfloat16",
    }


def _answer(asked: Mapping[str, object], python: str) -> dict[str, Any]:
    argv = [python, "-I", str(package_file("tune", "aic_tables.py"))]
    try:
        done = subprocess.run(
            argv, input=json.dumps(asked), capture_output=True, text=True, timeout=_SECONDS, check=True
        )
        found: dict[str, Any] = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as broken:
        said = (getattr(broken, "stderr", None) or str(broken)).strip().splitlines()
        why = said[-1][:300] if said else "it said nothing"
        ran = isinstance(broken, subprocess.CalledProcessError) and "No module named" not in why
        raise MissingTool(
            f"{python} gave no step times of aiconfigurator-core for {asked['model']} on {asked['system']}",
            why=why,
            hint="trtkit estimate without it: its own step times know every card and family of the catalogue"
            if ran
            else "pip install aiconfigurator-core into an environment of its own, and name its python",
        ) from None
    return found


def _grid(points: tuple[float, ...], milliseconds: Sequence[float] | Sequence[Sequence[float]]) -> Grid:
    return Grid(points, tuple(float(one) / 1e3 for one in milliseconds))  # type: ignore[arg-type]


def _by_batch(axes: Axes, rows: Sequence[float] | Sequence[Sequence[float]]) -> tuple[Grid, ...]:
    return tuple(_grid(axes.contexts, row) for row in rows)  # type: ignore[arg-type]
