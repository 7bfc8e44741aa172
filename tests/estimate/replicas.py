"""Replicas and clocks for tests of batching: small, with step times that are easy to add up by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.support.specs import hardware, llama_70b
from trtllm_kit.estimate.engine import Engine
from trtllm_kit.estimate.run import Run
from trtllm_kit.estimate.subject import Speculation, Subject
from trtllm_kit.estimate.work import StepWork
from trtllm_kit.estimate.workload import Request
from trtllm_kit.plan.formats import Formats
from trtllm_kit.plan.parallelism import Split

MODEL, MACHINE = llama_70b(), hardware(8)


class Straight:
    """A clock whose steps are straight lines: 10 ms, and so much for each sequence, cached token and prompt token."""

    STEP, SEQUENCE, CACHED, PROMPT, PAIR, DRAFT = 10e-3, 1e-4, 2e-8, 3e-5, 1e-9, 1e-5

    def seconds(self, work: StepWork) -> float:
        """Return the seconds of one step."""
        prompts = sum(self.PROMPT * one.new + self.PAIR * one.new * (one.past + one.new / 2) for one in work.chunks)
        drafts = self.DRAFT * work.sequences * (work.width - 1)
        return self.STEP + self.SEQUENCE * work.sequences + self.CACHED * work.context + prompts + drafts

    def decode_run(self, sequences: int, context: int, steps: int) -> float:
        """Return the sum over ``steps`` steps."""
        first = self.STEP + self.SEQUENCE * sequences + self.CACHED * context
        return steps * first + self.CACHED * sequences * steps * (steps - 1) / 2


class Even:
    """A clock on which every step takes a second, whatever is in it."""

    def seconds(self, work: StepWork) -> float:
        """Return 1."""
        return 1.0

    def decode_run(self, sequences: int, context: int, steps: int) -> float:
        """Return the steps."""
        return float(steps)


def replica(**changes: Any) -> Subject:
    """Return one replica of 64 slots, 8,192 tokens a step and 400,000 tokens of cache, without overlap."""
    settings: dict[str, Any] = {
        "model": MODEL,
        "hardware": MACHINE,
        "formats": Formats("fp8"),
        "split": Split(4),
        "release": "1.2.1",
        "max_batch_size": 64,
        "max_num_tokens": 8192,
        "max_seq_len": 16384,
        "kv_tokens": 400_000,
        "chunked_prefill": True,
        "overlap_scheduler": False,
    }
    shares = changes.pop("attention_dp", False)
    settings |= changes
    if shares:
        settings["split"] = replace(settings["split"], attention_dp=True)
    return Subject(**settings)


def drafting(*acceptance: float) -> Speculation:
    """Return speculation of as many draft tokens as there are chances."""
    return Speculation("eagle3", len(acceptance), acceptance)


def engine_with(*requests: Request, clock: Any = None, seed: int | None = None, **changes: Any) -> Engine:
    """Return an engine with requests that came at time 0."""
    engine = Engine(replica(**changes), clock or Even(), seed=seed)
    for number, request in enumerate(requests):
        engine.submit(number, request, 0.0)
    return engine


def steps(engine: Engine, count: int = 1000) -> list[Run]:
    """Take single steps until nothing is left, or so many."""
    runs = []
    while not engine.idle and len(runs) < count:
        run = engine.advance(most_steps=1)
        assert run is not None
        runs.append(run)
    return runs
