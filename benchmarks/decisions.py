"""What published texts say of single machines: times to first tokens, shares of communication, and choices.

They are of 2024, and of engines that were built.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from benchmarks.models import model_spec
from benchmarks.points import BLOCK, capacity
from benchmarks.published import queued_seconds
from trtllm_kit.estimate.step_time import StepClock
from trtllm_kit.estimate.subject import Subject
from trtllm_kit.estimate.work import Chunk, StepWork
from trtllm_kit.plan.formats import Formats
from trtllm_kit.plan.memory import Sizing
from trtllm_kit.plan.parallelism import Split
from trtllm_kit.spec.hardware import Figure, Hardware
from trtllm_kit.spec.load import load_hardware
from trtllm_kit.spec.profile import KvCache, Limits, Load

ClockOf = Callable[[Subject], StepClock]
FP8 = Formats("fp8", "fp8")
FIRST_TOKENS = {
    ("llama-3.1-70b", 4096): 0.064,
    ("llama-3.1-70b", 32768): 0.472,
    ("llama-3.1-70b", 122880): 2.197,
    ("llama-3.1-405b", 4096): 0.208,
    ("llama-3.1-405b", 32768): 1.627,
    ("llama-3.1-405b", 122880): 7.508,
}
"""Seconds to the first token by model and prompt tokens, 32 tensor ranks of GH200 NVL32; none of them was fitted."""
SHARES = {"gh200-nvl32": 0.15, "4 nodes of 8 H100 over InfiniBand": 0.50}
"""What communication is said to take of a prefill over 32 ranks."""
SHARE_PROMPT = 122880
REQUESTS_PER_SECOND = {"h200x8-700w": 78.0, "h200x4-1000w": 89.0}
"""Of Llama 2 70B on H200 by power limit; only the ratio is usable."""
CHOSEN_RANKS = {"h200x1": 1, "h100x2": 2}
"""GPUs for Llama 2 70B: one H200 does what takes two H100."""


@dataclass(frozen=True, slots=True)
class FirstToken:
    """One time to a first token."""

    model: str
    prompt: int
    predicted: float
    stated: float

    @property
    def error(self) -> float:
        """Return the error as a share of what was stated."""
        return self.predicted / self.stated - 1


def first_tokens(clock_of: ClockOf) -> list[FirstToken]:
    """Return the stated times beside the predicted ones: one prompt alone in one step, without any request's HTTP."""
    machine = load_hardware("gh200-nvl32")
    found = []
    for (model, prompt), stated in FIRST_TOKENS.items():
        clock = clock_of(_subject(model, machine, Split(tensor=32)))
        found.append(FirstToken(model, prompt, clock.seconds(StepWork((Chunk(prompt),))), stated))
    return found


def communication_shares(clock_of: ClockOf) -> dict[str, float]:
    """Return what collectives take of a long prefill of Llama 405B over 32 ranks, by machine."""
    machines = {"gh200-nvl32": load_hardware("gh200-nvl32"), "4 nodes of 8 H100 over InfiniBand": _four_nodes()}
    return {name: _share(clock_of, machine) for name, machine in machines.items()}


def _share(clock_of: ClockOf, machine: Hardware) -> float:
    clock = clock_of(_subject("llama-3.1-405b", machine, Split(tensor=32)))
    work = StepWork((Chunk(SHARE_PROMPT),))
    terms = {term.name: term.seconds for term in clock.explain(work).terms}
    return terms["collectives"] / sum(terms.values())


def _four_nodes() -> Hardware:
    return load_hardware("h100x8").model_copy(update={"nodes": 4, "name": "h100x32"})


@dataclass(frozen=True, slots=True)
class Power:
    """Requests a second of one H200 at two power limits."""

    low: float
    high: float
    watts: tuple[float, float]

    @property
    def ratio(self) -> float:
        """Return what the higher limit gives, as a share of the lower one's."""
        return self.high / self.low

    @property
    def same_choice(self) -> bool:
        """Whether more power gives more requests, and fewer for each watt, as is stated."""
        return self.high > self.low and self.high / self.watts[1] < self.low / self.watts[0]


def power(clock_of: ClockOf) -> Power:
    """Return the requests a second of Llama 2 70B with prompts and answers of 300 tokens, by power limit."""
    low, high = (load_hardware(name) for name in REQUESTS_PER_SECOND)
    rates = [
        _rate(clock_of, replace(_subject("llama-2-70b", one, Split()), max_seq_len=600), 300) for one in (low, high)
    ]
    return Power(rates[0], rates[1], (_watts(low), _watts(high)))


def _rate(clock_of: ClockOf, subject: Subject, tokens: int, requests: int = 4096) -> float:
    return requests / queued_seconds(subject, clock_of(subject), tokens, tokens, requests)


def _watts(machine: Hardware) -> float:
    limit: Figure | None = machine.power_limit_watts or machine.gpu.power_limit_watts
    if limit is None:
        raise ValueError(f"{machine.name} has no power limit")
    return limit.value


def chosen_ranks(clock_of: ClockOf, sequences: int = 32) -> dict[str, dict[int, float]]:
    """Return tokens a second and GPU by tensor ranks, of Llama 2 70B with ``sequences`` requests of 2,048 + 1,024.

    Ranks whose cache does not hold those requests are not among them.
    """
    found: dict[str, dict[int, float]] = {}
    for name, card in (("h200x1", "h200x8-700w"), ("h100x2", "h100x8")):
        rates = {}
        for ranks in (1, 2, 4, 8):
            subject = _subject("llama-2-70b", load_hardware(card), Split(tensor=ranks), load=(2048, 1024))
            if subject.kv_tokens >= sequences * 3072:
                subject = replace(subject, max_batch_size=sequences, max_num_tokens=4096)
                seconds = queued_seconds(subject, clock_of(subject), 2048, 1024, 10 * sequences)
                rates[ranks] = 10 * sequences * 1024 / seconds / ranks
        found[name] = rates
    return found


def _subject(model: str, machine: Hardware, split: Split, load: tuple[int, int] = (300, 300)) -> Subject:
    limits = Limits(max_batch_size=1024, max_num_tokens=8192, max_seq_len=sum(load))
    sizing = Sizing(
        model=model_spec(model),
        hardware=machine,
        split=split,
        formats=FP8,
        runtime="tensorrt_llm",
        limits=limits,
        kv_cache=KvCache(free_gpu_memory_fraction=0.9, tokens_per_block=BLOCK),
        load=Load(input_tokens=load[0], output_tokens=load[1]),
    )
    return Subject(
        model=sizing.model,
        hardware=machine,
        formats=FP8,
        split=split,
        release="1.0.0",
        max_batch_size=limits.max_batch_size,
        max_num_tokens=limits.max_num_tokens,
        max_seq_len=limits.max_seq_len,
        kv_tokens=capacity(sizing),
        tokens_per_block=BLOCK,
        backend="tensorrt",
        served=False,
    )
