"""How long one forward step takes, and which term binds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from trtllm_kit.estimate.attention import pairs_within
from trtllm_kit.estimate.costs import StageCost
from trtllm_kit.estimate.decode import DecodeStep, Line
from trtllm_kit.estimate.links import hand_over
from trtllm_kit.estimate.operations import stages_of
from trtllm_kit.estimate.subject import Subject
from trtllm_kit.estimate.work import Chunk, StepWork
from trtllm_kit.plan.communication import ACTIVATION_BYTES
from trtllm_kit.spec.ceilings import LEAST_CERTAIN, How, Known, bounds_of, known_of


@dataclass(frozen=True, slots=True)
class Term:
    """One part of a step's time."""

    name: str
    seconds: float
    low: float
    high: float
    source: How
    """The least certain of the constants it rests on."""


@dataclass(frozen=True, slots=True)
class StepTime:
    """One step, explained: its GPU terms add up, and where the host takes longer, that binds."""

    seconds: float
    terms: tuple[Term, ...]
    """Of the GPU, the longest stage's where there are several."""
    host: Term
    """What the host takes to prepare and launch the step."""
    exposed: float
    """Seconds that nothing hides."""
    binds: str
    """The name of the longest term, or ``host``."""


class StepClock:
    """Tells the seconds of steps of one subject; coefficients are made once, and decode steps kept by batch."""

    def __init__(self, subject: Subject, known: Known | None = None) -> None:
        """Make the coefficients; ``known`` stands in for what is known of the subject's card."""
        self.subject = subject
        self.known = known or known_of(subject.hardware.gpu, subject.release, subject.backend)
        self._ceilings = self.known.ceilings
        clock = subject.hardware.clock_hz
        speed = clock.value / self.known.clock_hz if clock is not None else 1.0
        self._stages = tuple(StageCost(stage, subject, self._ceilings, speed) for stage in stages_of(subject))
        self._ranks = subject.split.data
        self._decodes: dict[tuple[int, int], DecodeStep] = {}
        draft = subject.speculation
        self._draft = 0.0 if draft is None else draft.draft_tokens * self._draft_seconds(draft.draft_bytes)

    @property
    def borrowed(self) -> str:
        """The architecture whose constants stand in for a card that was not measured; empty for one that was."""
        return self.known.architecture if self.known.transferred else ""

    @property
    def request_seconds(self) -> float:
        """Seconds of a request before it waits for the engine."""
        return self._ceilings.request_seconds

    @property
    def reply_seconds(self) -> float:
        """Seconds of its first token behind the engine, which count to the time to it."""
        return self._ceilings.reply_seconds

    def seconds(self, work: StepWork) -> float:
        """Return the seconds of a step, from its start to that of the next."""
        if not work.chunks:
            return self._decode(work.sequences, work.width).seconds(work.context) if work.sequences else 0.0
        busy = sum(self._mixed(stage, work) for stage in self._stages)
        return self._with_host(busy + self._hand_overs(work.rows), work)

    def stage_seconds(self, work: StepWork) -> tuple[float, ...]:
        """Return the seconds that each pipeline stage's GPUs are busy with a step."""
        return tuple(self._mixed(stage, work) for stage in self._stages)

    def decode_run(self, sequences: int, context: int, steps: int) -> float:
        """Return the seconds of consecutive steps in which each of ``sequences`` generates one token a step.

        ``context`` is the sum of their cached tokens in the first step. It is the sum of the single steps, in closed
        form: a step's time grows with the context by straight lines that end at the layers' windows.
        """
        return self._decode(sequences, 1).run(context, steps) if sequences and steps > 0 else 0.0

    def explain(self, work: StepWork) -> StepTime:
        """Return a step's terms with their intervals, and which of them binds."""
        low, high = (StepClock(self.subject, bounded) for bounded in bounds_of(self.known))
        stage = max(range(len(self._stages)), key=lambda number: self.stage_seconds(work)[number])
        terms = tuple(
            Term(name, seconds, min(seconds, best), max(seconds, worst), self._source(name, self._stages[stage]))
            for (name, seconds), (_, best), (_, worst) in zip(
                self._terms(stage, work), low._terms(stage, work), high._terms(stage, work), strict=True
            )
            if seconds
        )
        host = Term(
            "host", self._host(work), low._host(work), high._host(work), self._source("host", self._stages[stage])
        )
        busy = sum(term.seconds for term in terms)
        longest = max(terms, key=lambda term: term.seconds, default=host)
        binds = "host" if host.seconds > busy else longest.name
        return StepTime(self.seconds(work), terms, host, self._ceilings.exposed_seconds, binds)

    # --- inside --------------------------------------------------------------------------------------------------

    def _decode(self, sequences: int, width: int) -> DecodeStep:
        kept = self._decodes.get((sequences, width))
        if kept is None:
            kept = self._decodes[sequences, width] = self._decode_step(sequences, width)
        return kept

    def _decode_step(self, sequences: int, width: int) -> DecodeStep:
        work = StepWork(sequences=sequences, width=width)
        base = sum(self._mixed(stage, work) for stage in self._stages) + self._hand_overs(work.rows)
        host = self._host(work)
        drafted = self._draft if width > 1 else 0.0
        overlaps = self.subject.overlap_scheduler
        exposed = self._ceilings.exposed_seconds + (0.0 if overlaps else host)
        lines = self._lines(self._stages, sequences, width)
        return DecodeStep(sequences, base + drafted, lines, host if overlaps else 0.0, exposed)

    def _lines(self, stages: Iterable[StageCost], sequences: int, width: int) -> tuple[Line, ...]:
        """Return generation attention over the cached tokens of a sequence, one line a window."""
        slopes: dict[float, float] = {}
        for cost in (cost for stage in stages for cost in stage.attending):
            window = float("inf") if cost.window is None else float(cost.window)
            each = sequences / self._ranks
            slopes[window] = slopes.get(window, 0.0) + each * max(cost.key, width * cost.key_row)
            if cost.scored:
                slopes[float("inf")] = slopes.get(float("inf"), 0.0) + each * cost.scored
        return tuple(Line(slope, window) for window, slope in slopes.items())

    def _mixed(self, stage: StageCost, work: StepWork) -> float:
        return sum(seconds for _, seconds in self._stage_terms(stage, work))

    def _terms(self, stage: int, work: StepWork) -> tuple[tuple[str, float], ...]:
        last = stage == len(self._stages) - 1
        drafted = self._draft if last and work.sequences and work.width > 1 else 0.0
        return (*self._stage_terms(self._stages[stage], work), ("draft", drafted))

    def _stage_terms(self, stage: StageCost, work: StepWork) -> Iterator[tuple[str, float]]:
        """Yield the terms of one stage on its fullest rank."""
        rows = work.prompt_tokens + work.sequences * work.width
        yield from self._context_free(stage, rows, self._own_rows(work), work.sequences * work.width + len(work.chunks))
        yield "prompt attention", self._prompt_attention(stage, work.chunks)
        yield "generation attention", self._generation_attention(stage, work.sequences, work.context, work.width)
        own = work.sequences / self._ranks
        yield "recurrent states", own * stage.state_sequence + self._own_rows(work) * stage.state_row

    def _context_free(self, stage: StageCost, rows: int, own: float, chosen: int) -> Iterator[tuple[str, float]]:
        """Yield what the cached tokens do not matter to: rows of the replica, of a rank, and tokens to choose."""
        yield "products", stage.products(own)
        yield "experts", stage.expert_products(rows if self._ranks > 1 else own)
        yield "output head", stage.head_product(chosen / self._ranks)
        yield "norms and activations", own * stage.moved_row
        yield "gaps between kernels", stage.gaps
        yield "collectives", stage.collectives(rows)

    def _own_rows(self, work: StepWork) -> float:
        """Return the rows of the fullest rank: a prompt is computed by one rank where ranks have their own requests."""
        generating = work.sequences * work.width
        if self._ranks == 1:
            return -(-(work.prompt_tokens + generating) // self.subject.split.context)
        sharing = min(self._ranks, len(work.chunks)) or 1
        return work.prompt_tokens / sharing + generating / self._ranks

    def _prompt_attention(self, stage: StageCost, chunks: tuple[Chunk, ...]) -> float:
        sharing = min(self._ranks, len(chunks)) or 1
        total = 0.0
        for cost in stage.attending:
            for chunk in chunks:
                total += cost.pair * pairs_within(chunk.new, chunk.past, cost.window)
                total += cost.scored * (chunk.new + chunk.past)
        return total / sharing

    def _generation_attention(self, stage: StageCost, sequences: int, context: int, width: int) -> float:
        if not sequences:
            return 0.0
        mean = context / sequences
        return sum(line.at(mean) for line in self._lines((stage,), sequences, width))

    def _host(self, work: StepWork) -> float:
        """Return the host's seconds: to prepare the step, and to launch its kernels where it is not recorded."""
        answers = work.sequences + len(work.chunks)
        prepared = self._ceilings.step_seconds + self._ceilings.sequence_seconds * answers
        if self.subject.served:
            prepared += self._ceilings.stream_seconds * answers
        if work.chunks or not self.subject.cuda_graphs:
            kernels = max(stage.launches for stage in self._stages)
            return prepared + kernels * self._ceilings.launch_seconds
        return prepared

    def _with_host(self, busy: float, work: StepWork) -> float:
        host = self._host(work)
        both = max(busy, host) if self.subject.overlap_scheduler else busy + host
        return both + self._ceilings.exposed_seconds

    def _hand_overs(self, rows: int) -> float:
        hops = len(self._stages) - 1
        if not hops:
            return 0.0
        split = self.subject.split
        payload = rows / split.context * self.subject.model.hidden * ACTIVATION_BYTES
        return hops * hand_over(self.subject.hardware, self._ceilings, split.tensor * split.context, payload)

    def _draft_seconds(self, draft_bytes: int) -> float:
        read = self.subject.hardware.gpu.memory_bandwidth.value * self._ceilings.stream_share
        return draft_bytes / read + _DRAFT_KERNELS * self._ceilings.kernel_seconds

    def _source(self, term: str, stage: StageCost) -> How:
        if term == "collectives" and self.subject.split.context > 1:
            return "roofline"  # nobody measured how context ranks exchange heads
        names = {*_RESTS_ON.get(term, ()), *stage.shares.get(term, ())}
        names |= {stage.prompt_share} if term == "prompt attention" else set()
        sources = [self.known.constants[name].how for name in names]
        return next(how for how in LEAST_CERTAIN if how in sources)


_DRAFT_KERNELS = 12
"""Kernels of one layer of a draft with its head."""
_RESTS_ON: dict[str, tuple[str, ...]] = {
    "products": ("stream_share", "overlap"),
    "experts": ("stream_share", "overlap", "expert_share", "expert_spread"),
    "output head": ("stream_share", "product_share_16"),
    "norms and activations": ("moved_share", "traffic"),
    "gaps between kernels": ("kernel_seconds", "routing_seconds"),
    "collectives": ("reduce_seconds", "ring_seconds", "link_share"),
    "generation attention": ("cache_share",),
    "recurrent states": ("moved_share",),
    "draft": ("stream_share",),
    "host": ("step_seconds", "launch_seconds"),
}
"""Constants of each term, beside the shares of the formats and of the cache."""
