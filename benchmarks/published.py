"""Published throughput of TensorRT-LLM, and what the estimate says of the same runs.

The tables are those of upstream's performance overviews: all requests queued at once, prompts and answers of one length
each. The file that lists them is named by the caller; ``published_performance`` is where it holds them.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from benchmarks.models import model_spec
from benchmarks.points import BLOCK, cache_of, capacity
from trtllm_kit.estimate.subject import Subject
from trtllm_kit.estimate.work import Chunk, Clock, StepWork
from trtllm_kit.plan.formats import Formats
from trtllm_kit.plan.memory import Sizing
from trtllm_kit.plan.parallelism import Split
from trtllm_kit.spec.hardware import Hardware
from trtllm_kit.spec.load import load_hardware
from trtllm_kit.spec.profile import Limits, Load

MODELS = {
    "DeepSeek-R1-0528": "deepseek-r1",
    "gpt-oss-120b": "gpt-oss-120b",
    "gpt-oss-20b": "gpt-oss-20b",
    "Llama-3.3-70B": "llama-3.1-70b",
    "Llama-3.1-8B": "llama-3.1-8b",
    "Llama-3.1-405B": "llama-3.1-405b",
    "Llama-4-Maverick": "llama-4-maverick",
    "Llama-4-Scout": "llama-4-scout",
    "Qwen3-235B-A22B": "qwen3-235b-a22b",
    "Qwen3-30B-A3B": "qwen3-30b-a3b",
}
"""The tables' names by those of ``models.yaml``; Llama 3.3 70B has the shape of 3.1."""
MIXTURES = frozenset(MODELS.values()) - {"llama-3.1-70b", "llama-3.1-8b", "llama-3.1-405b"}
"""Models with experts, which were run with ``enable_attention_dp`` and ``--ep``."""
MACHINES = {
    "H200": "h200x8-700w",
    "H100": "h100x8",
    "B200": "dgx-b200",
    "GB200": "gb200-nvl72",
    "RTX6000Pro": "rtx-pro-6000x8",
}
RELEASES = {"perf-1.0": "1.0.0", "perf-new": "1.2.1"}
"""The release of each table; the newer one says nothing closer than the end of 2025."""
MOST_SEQUENCES, MOST_TOKENS = 4096, 32768
"""Assumed ends of what trtllm-bench chooses for max_batch_size and max_num_tokens by cache and lengths."""
REQUESTS = 3000
"""Where a table does not say how many requests were queued."""


@dataclass(frozen=True, slots=True)
class Published:
    """One published figure."""

    table: str
    model: str
    gpu: str
    parallel: str
    precision: str
    prompt: int
    answer: int
    tokens_per_second: float
    """Output tokens a second of all GPUs of the replica."""
    requests: int

    @property
    def split(self) -> Split:
        """Return the ranks: ``DEP4PP2`` are four with requests of their own, twice."""
        ranks, stages = self._ranks
        return Split(
            tensor=ranks, pipeline=stages, expert=ranks if self.attention_dp else 1, attention_dp=self.attention_dp
        )

    @property
    def attention_dp(self) -> bool:
        """Whether ranks have requests of their own: all models with experts ran so, say the tables' commands."""
        return self.parallel.startswith("DEP") or (self.model in MIXTURES and self._ranks[0] > 1)

    @property
    def _ranks(self) -> tuple[int, int]:
        found = re.fullmatch(r"(?:TP|DEP)(\d+)(?:PP(\d+))?", self.parallel)
        if found is None:
            raise ValueError(f"parallel {self.parallel!r} is none of TP4, DEP4, TP4PP2")
        return int(found[1]), int(found[2] or 1)


def read_published(path: Path) -> list[Published]:
    """Read the tables of a file.

    Raises ``OSError`` when the file cannot be read, ``KeyError`` when it has no such tables.
    """
    document = yaml.load(path.read_text("utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    published = document["published_performance"]
    rows = (dict(zip(published["columns"], row, strict=True)) for row in published["rows"])
    return [_published(row, published["docs"], published["method"]) for row in rows]


def _published(row: dict[str, Any], docs: dict[str, Any], method: dict[str, Any]) -> Published:
    table, per_gpu = row["doc"], "PER GPU" in docs[row["doc"]]["unit"]
    counts = method["requests_new" if per_gpu else "requests_1_0"]
    found = Published(
        table=table,
        model=MODELS[row["model"]],
        gpu=row["gpu"],
        parallel=row["parallel"],
        precision=row["precision"],
        prompt=row["isl"],
        answer=row["osl"],
        tokens_per_second=row["output_tokens_per_s"],
        requests=counts.get(f"{row['isl']}/{row['osl']}", REQUESTS),
    )
    gpus = found.split.world_size if per_gpu else 1
    return Published(
        **{name: getattr(found, name) for name in Published.__slots__}
        | {"tokens_per_second": found.tokens_per_second * gpus}
    )


def predicted(row: Published, clock_of: Callable[[Subject], Clock]) -> float:
    """Return the output tokens a second that the estimate gives."""
    subject = subject_of_row(row)
    stages = subject.split.pipeline
    total = queued_seconds(subject, clock_of(subject), row.prompt, row.answer, -(-row.requests // stages))
    return row.requests * row.answer / total


def subject_of_row(row: Published) -> Subject:
    """Return what a published run is thought to be: batch and tokens of a step as the cache and the lengths allow."""
    tokens = row.prompt + row.answer
    held = _held(row, MOST_SEQUENCES)
    batch = max(1, min(MOST_SEQUENCES, held // tokens))
    ranks = row.split.data
    balanced = -(-batch * tokens // row.answer // ranks)
    return Subject(
        model=model_spec(row.model),
        hardware=_machine(row.gpu),
        formats=formats_of(row),
        split=row.split,
        release=RELEASES[row.table],
        max_batch_size=-(-batch // ranks),
        max_num_tokens=max(min(balanced, MOST_TOKENS), row.prompt + batch // ranks),
        max_seq_len=tokens,
        kv_tokens=held,
        tokens_per_block=BLOCK,
        served=False,
    )


def _held(row: Published, batch: int) -> int:
    sizing = Sizing(
        model=model_spec(row.model),
        hardware=_machine(row.gpu),
        split=row.split,
        formats=formats_of(row),
        runtime="tensorrt_llm",
        limits=Limits(max_batch_size=batch, max_num_tokens=8192, max_seq_len=row.prompt + row.answer),
        kv_cache=cache_of(0.95, row.prompt + row.answer),
        load=Load(input_tokens=row.prompt, output_tokens=row.answer),
    )
    return capacity(sizing)


@cache
def _machine(gpu: str) -> Hardware:
    return load_hardware(MACHINES[gpu])


def formats_of(row: Published) -> Formats:
    """Return the formats of a table's precision, by what is published of that model in it."""
    if row.model.startswith("gpt-oss"):
        return Formats("mxfp4", "fp8", exclude=("lm_head", "*self_attn*", "*router*"))
    if row.model == "deepseek-r1":
        if row.precision == "FP8":
            return Formats("fp8_block", "fp8")
        return Formats("nvfp4", "fp8", exclude=("lm_head", "*self_attn.q*", "*self_attn.kv*"))
    return Formats("fp8" if row.precision == "FP8" else "nvfp4", "fp8")


def queued_seconds(subject: Subject, clock: Clock, prompt: int, answer: int, requests: int) -> float:
    """Return the seconds until requests of one length, queued together, are answered.

    Requests whose prompts ran in one step finish in one step, so they are counted, not listed. Pipeline stages each
    have a batch of their own in them, and share out the cache.
    """
    ranks, stages = subject.split.data, subject.split.pipeline
    most = min(subject.slots, subject.kv_tokens // (prompt + answer)) // stages or 1
    groups: deque[tuple[int, int]] = deque()
    now, step, running, context, left = 0.0, 0, 0, 0, requests
    while left or running:
        room = (subject.max_num_tokens * ranks - running) // prompt
        new = max(0, min(left, most - running, room))
        if new:
            now += clock.seconds(StepWork((Chunk(prompt),) * new, running, context))
            step, context = step + 1, context + running + new * (prompt + 1)
            groups.append((step + answer - 1, new))
            left, running = left - new, running + new
        else:
            steps = groups[0][0] - step
            now += clock.decode_run(running, context, steps)
            step, context = step + steps, context + running * steps
        while groups and groups[0][0] <= step:
            _, done = groups.popleft()
            running, context = running - done, context - done * (prompt + answer)
    return now
