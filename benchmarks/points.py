"""A measured row as a question to the estimate: the subject that is timed, and the lengths of its requests."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from functools import cache

from benchmarks.models import model_spec
from benchmarks.runs import Run, run_of
from benchmarks.silicon import Row
from trtllm_kit.estimate.operations import StageWork, stages_of
from trtllm_kit.estimate.subject import Speculation, Subject, kv_tokens
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

    def lengths(self, seed: int = 0) -> tuple[tuple[int, int], ...]:
        """Return prompt and answer of each request of a replica, tokens."""
        draw, row, shortest = random.Random(seed), self.row, self.run.shortest
        low, few = int(row.prompt * shortest), int(row.answer * shortest)
        return tuple((draw.randint(low, row.prompt), draw.randint(few, row.answer)) for _ in range(self.run.requests))


def point_of(row: Row) -> Point:
    """Return a row's point."""
    run = run_of(row)
    return Point(row, run, _subject(row, run))


@cache
def machine(system: str) -> Hardware:
    """Return the machine that a system's name stands for."""
    return load_hardware(MACHINES[system])


def _subject(row: Row, run: Run) -> Subject:
    split = Split(tensor=row.tensor, expert=row.expert)
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
        attention_dp=row.attention_dp,
        speculation=drafting,
    )


def capacity(sizing: Sizing, attention_dp: bool) -> int:
    """Return the tokens that the KV cache of a replica holds by the memory model, in whole blocks.

    With attention data parallelism every rank holds all heads of its own requests, and the ranks' caches add up.
    """
    tokens, block = sizing.load.input_tokens + sizing.load.output_tokens, sizing.kv_cache.tokens_per_block
    plan = memory_plan(sizing)
    if not attention_dp:
        return kv_tokens(plan.kv_budget_bytes, plan.kv_bytes_per_token, plan.kv_bytes_per_sequence, block, tokens)
    alone = memory_plan(replace(sizing, split=replace(sizing.split, tensor=1, expert=1)))
    copied = _weight_bytes(sizing, attention_dp=True) - _weight_bytes(sizing, attention_dp=False)
    budget = plan.kv_budget_bytes - round(copied * sizing.kv_cache.free_gpu_memory_fraction)
    each = kv_tokens(budget, alone.kv_bytes_per_token, alone.kv_bytes_per_sequence, block, tokens)
    return each * sizing.split.tensor


def cache_of(fraction: float, longest: int) -> KvCache:
    """Return the cache of a run that set no windows: layers with one keep every token all the same."""
    return KvCache(
        free_gpu_memory_fraction=fraction,
        tokens_per_block=BLOCK,
        enable_block_reuse=False,
        max_attention_window=(longest,),
    )


def _weight_bytes(sizing: Sizing, *, attention_dp: bool) -> int:
    """Return the bytes of the matrices that the fullest rank reads: with requests of its own, all but experts whole."""
    subject = Subject(
        model=sizing.model,
        hardware=sizing.hardware,
        formats=sizing.formats,
        split=sizing.split,
        release="1.0.0",
        max_batch_size=1,
        max_num_tokens=1,
        max_seq_len=1,
        kv_tokens=0,
        attention_dp=attention_dp,
    )
    return max(_stage_bytes(stage) for stage in stages_of(subject))


def _stage_bytes(stage: StageWork) -> int:
    layers = sum(
        layer.count * product.weight_bytes * (product.experts or 1)
        for layer in stage.layers
        for product in layer.products
    )
    return layers + (stage.head.weight_bytes if stage.head else 0)


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
    return capacity(sizing, row.attention_dp)
