"""A measured row as a question to the estimate: the subject that is timed, and the lengths of its requests."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from benchmarks.models import model_spec
from benchmarks.runs import Run, run_of
from benchmarks.silicon import Row
from trtllm_kit.estimate.batching import simulate
from trtllm_kit.estimate.subject import Speculation, Subject, kv_tokens
from trtllm_kit.estimate.work import Clock
from trtllm_kit.estimate.workload import ClosedLoop, Workload, within
from trtllm_kit.plan.memory import Sizing, memory_plan
from trtllm_kit.plan.parallelism import Split
from trtllm_kit.spec.hardware import Hardware
from trtllm_kit.spec.load import load_hardware
from trtllm_kit.spec.profile import KvCache, Limits, Load

MACHINES = {"h200_sxm": "h200x8-700w", "h100_sxm": "h100x8", "b200_sxm": "dgx-b200", "gb200": "gb200-nvl72"}
RELEASES = {"": "1.1.0rc2.post2", "gpt-oss-dev": "1.1.0rc2.post2"}
"""Releases of versions that name none: rows of October and November 2025 ran the release candidate of that time."""
BLOCK = 32
"""Tokens of a KV block, TensorRT-LLM's default."""
MTP_ACCEPTANCE = (0.85, 0.7, 0.6)
"""Chance that the draft token of each position is taken when all before it were: assumed, no row has it."""


@dataclass(frozen=True, slots=True)
class Point:
    """One row with everything the estimate asks for."""

    row: Row
    run: Run
    subject: Subject

    @property
    def workload(self) -> Workload:
        """The load of one replica: a closed loop whose slots all start together."""
        row, run = self.row, self.run
        return Workload(
            prompts=within(run.shortest, row.prompt),
            answers=within(run.shortest, row.answer),
            arrivals=ClosedLoop(run.slots),
            requests=run.requests,
        )


@dataclass(frozen=True, slots=True)
class Times:
    """Means over the requests of a run, seconds."""

    ttft_s: float
    tpot_s: float


def times_of(point: Point, clock: Clock) -> Times:
    """Return what the product's simulation says of a row's requests."""
    outcome = simulate(point.subject, clock, point.workload, hold=point.run.hold)
    return Times(outcome.ttft.mean, outcome.tpot.mean)


def point_of(row: Row) -> Point:
    """Return a row's point."""
    run = run_of(row)
    return Point(row, run, _subject(row, run))


@cache
def machine(system: str) -> Hardware:
    """Return the machine that a system's name stands for."""
    return load_hardware(MACHINES[system])


def _subject(row: Row, run: Run) -> Subject:
    split = Split(tensor=row.tensor, expert=row.expert, attention_dp=row.attention_dp)
    drafting = Speculation("mtp", run.draft_tokens, MTP_ACCEPTANCE[: run.draft_tokens]) if run.draft_tokens else None
    return Subject(
        model=model_spec(row.model),
        hardware=machine(row.system),
        formats=run.formats,
        split=split,
        release=RELEASES.get(row.version, row.version),
        max_batch_size=run.max_batch_size,
        max_num_tokens=run.max_num_tokens,
        max_seq_len=run.max_seq_len,
        kv_tokens=_capacity(row, run, split),
        tokens_per_block=BLOCK,
        speculation=drafting,
    )


def capacity(sizing: Sizing) -> int:
    """Return the tokens that the KV cache of a replica holds by the memory model, in whole blocks.

    With attention data parallelism the caches of the ranks add up.
    """
    tokens, block = sizing.load.input_tokens + sizing.load.output_tokens, sizing.kv_cache.tokens_per_block
    plan = memory_plan(sizing)
    each = kv_tokens(plan.kv_budget_bytes, plan.kv_bytes_per_token, plan.kv_bytes_per_sequence, block, tokens)
    return each * plan.data_ranks


def cache_of(fraction: float, longest: int) -> KvCache:
    """Return the cache of a run that set no windows: layers with one keep every token all the same."""
    return KvCache(
        free_gpu_memory_fraction=fraction,
        tokens_per_block=BLOCK,
        enable_block_reuse=False,
        max_attention_window=(longest,),
    )


def _capacity(row: Row, run: Run, split: Split) -> int:
    limits = Limits(max_batch_size=run.max_batch_size, max_num_tokens=run.max_num_tokens, max_seq_len=run.max_seq_len)
    sizing = Sizing(
        model=model_spec(row.model),
        hardware=machine(row.system),
        split=split,
        formats=run.formats,
        runtime="tensorrt_llm",
        limits=limits,
        kv_cache=cache_of(run.kv_fraction, run.max_seq_len),
        load=Load(input_tokens=row.prompt, output_tokens=row.answer),
    )
    return capacity(sizing)
