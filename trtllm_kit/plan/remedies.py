"""The nearest changes that make a plan fit: single changes first, then pairs, each verified by planning it.

Candidates come in the order of ``KNOBS``, which is the order of nearness: what costs neither quality nor a
promise first (a larger fraction, idle GPUs, smaller steps), then number formats, then the promises themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from trtllm_kit.findings import errors
from trtllm_kit.frozen import Frozen
from trtllm_kit.light import dataclass
from trtllm_kit.plan.checks.capacity import MEMORY_RULE
from trtllm_kit.plan.parallelism import Split, legal_tensors, obstacles
from trtllm_kit.plan.plan import Plan
from trtllm_kit.plan.settle import settle, split_of
from trtllm_kit.spec.hardware import Hardware
from trtllm_kit.spec.load import LoadedProfile
from trtllm_kit.spec.model import ModelSpec
from trtllm_kit.spec.profile import DeployProfile
from trtllm_kit.upstream.bounds import bound

LEAST_STEP_TOKENS = 512
MOST_REMEDIES = 6


class Remedy(Frozen):
    """One verified way to make a plan fit."""

    change: str
    """Profile keys and values, e.g. ``"parallelism.tensor: 2"``."""
    changes: dict[str, Any]
    """The same as dotted keys and values."""
    sequences: int
    """Sequences of the (then) asked length that fit."""
    cost: str
    """What the change takes from someone."""


Changes = dict[str, Any]


@dataclass(frozen=True)
class Attempt:
    """What a knob needs to know to propose values."""

    model: ModelSpec
    loaded: LoadedProfile
    hardware: Hardware
    plan: Plan

    @property
    def profile(self) -> DeployProfile:
        """The profile before the change."""
        return self.loaded.profile

    @property
    def split(self) -> Split:
        """The ranks that the plan settled on."""
        return split_of(self.profile, self.plan.parallelism.tensor.value)

    def after(self, changes: Mapping[str, Any]) -> Plan:
        """Plan with some keys changed."""
        return settle(self.model, with_changes(self.loaded, changes), self.hardware)

    def with_(self, changes: Mapping[str, Any]) -> Attempt:
        """Return the attempt that begins where these changes lead."""
        return replace(self, loaded=with_changes(self.loaded, changes), plan=self.after(changes))


@dataclass(frozen=True)
class Knob:
    """One thing that can be turned: which values to try, mildest first, and what turning it costs."""

    values: Callable[[Attempt], Iterator[Changes]]
    cost: str


def nearest_fits(model: ModelSpec, loaded: LoadedProfile, hardware: Hardware) -> tuple[Remedy, ...]:
    """Return the nearest changes that make the plan fit, nearest first; empty when it fits or nothing helps.

    Each was planned: the asked sequences fit, and no error was added to those the plan has for other reasons.
    """
    return nearest_to(settle(model, loaded, hardware), model, loaded, hardware)


def nearest_to(plan: Plan, model: ModelSpec, loaded: LoadedProfile, hardware: Hardware) -> tuple[Remedy, ...]:
    """Do the same for a plan that is already made of the other three."""
    if not any(finding.rule == MEMORY_RULE for finding in errors(plan.findings)):
        return ()
    attempt = Attempt(model, loaded, hardware, plan)
    singles = (_first_that_works(attempt, knob.values(attempt), knob.cost) for knob in KNOBS)
    found = [remedy for remedy in singles if remedy is not None]
    return tuple(found or islice(_pairs(attempt), MOST_REMEDIES))


def other_machines(
    plan: Plan, model: ModelSpec, loaded: LoadedProfile, machines: Iterable[Hardware]
) -> tuple[Remedy, ...]:
    """Return the machines on which the same profile fits, the fewest GPUs first; each was planned.

    For a plan that nothing on its own machine makes fit. Ranks are chosen anew there.
    """
    found = []
    for machine in machines:
        if machine.name == plan.hardware or machine.is_rehearsal:
            continue
        changes: Changes = {"hardware": machine.name, "gpu_memory": None, "parallelism.tensor": "auto"}
        there = Attempt(model, loaded, machine, plan)
        remedy = _remedy(there, changes, "another machine")
        if remedy is not None:
            ranks = there.after(changes).parallelism.tensor.value
            settled = {"hardware": machine.name, "parallelism.tensor": ranks}
            found.append(remedy.model_copy(update={"changes": settled, "change": _in_words(settled)}))
    return tuple(sorted(found, key=lambda one: one.changes["parallelism.tensor"]))


def with_changes(loaded: LoadedProfile, changes: Mapping[str, Any]) -> LoadedProfile:
    """Return the profile with dotted keys set, each counted as set by the profile."""
    document = loaded.profile.model_dump()
    for key, value in changes.items():
        *path, last = key.split(".")
        section = document
        for name in path:
            section = section[name]
        section[last] = value
    origins = {**loaded.origins, **dict.fromkeys(_set_by(changes), "a change proposed by trtkit")}
    return replace(loaded, profile=DeployProfile.model_validate(document), origins=origins)


def _set_by(changes: Mapping[str, Any]) -> Iterator[str]:
    """Yield the dotted keys that changes set: a whole section sets each of its own that is given."""
    for key, value in changes.items():
        yield key
        if isinstance(value, Mapping):
            yield from (f"{key}.{name}" for name, one in value.items() if one is not None)


def summary(remedies: tuple[Remedy, ...]) -> str:
    """Put remedies into one line for a finding's suggestion."""
    return "; or ".join(f"{remedy.change} ({remedy.sequences:,} sequences fit)" for remedy in remedies)


def _first_that_works(attempt: Attempt, values: Iterator[Changes], cost: str) -> Remedy | None:
    tries = (_remedy(attempt, changes, cost) for changes in values)
    return next((remedy for remedy in tries if remedy is not None), None)


def _pairs(attempt: Attempt) -> Iterator[Remedy]:
    """Turn two knobs at once: the earlier one as far as it goes, the later one as little as then helps."""
    for place, one in enumerate(KNOBS):
        reach = list(one.values(attempt))
        if not reach:
            continue
        farthest, turned = reach[-1], attempt.with_(reach[-1])
        for other in KNOBS[place + 1 :]:
            tries = ({**farthest, **more} for more in other.values(turned))
            remedy = _first_that_works(attempt, tries, f"{one.cost}; {other.cost}")
            if remedy is not None:
                yield remedy


def _remedy(attempt: Attempt, changes: Changes, cost: str) -> Remedy | None:
    """Plan with the changes; return None when that plan has an error which the plan had not, or still does not fit."""
    plan = attempt.after(changes)
    known = {finding.rule for finding in errors(attempt.plan.findings)} - {MEMORY_RULE}
    if not {finding.rule for finding in errors(plan.findings)} <= known:
        return None
    return Remedy(change=_in_words(changes), changes=changes, sequences=plan.memory.sequences, cost=cost)


def _in_words(changes: Changes) -> str:
    return ", ".join(f"{key}: {value}" for key, value in changes.items())


def _fractions(attempt: Attempt) -> Iterator[Changes]:
    asked = round(attempt.profile.kv_cache.free_gpu_memory_fraction * 100)
    most = bound("free_gpu_memory_fraction").value
    for percent in range(asked + 1, round(most * 100) + 1):
        yield {"kv_cache.free_gpu_memory_fraction": percent / 100}


def _tensors(attempt: Attempt) -> Iterator[Changes]:
    for size in legal_tensors(attempt.model, attempt.hardware, attempt.split):
        if size > attempt.split.tensor:
            yield {"parallelism.tensor": size}


def _tensors_of_fewer_replicas(attempt: Attempt) -> Iterator[Changes]:
    """Propose tensor ranks that there is no room for beside all replicas, each with the most replicas it leaves."""
    split = attempt.split
    taken = legal_tensors(attempt.model, attempt.hardware, split)
    for size in legal_tensors(attempt.model, attempt.hardware, replace(split, replicas=1)):
        if split.replicas > 1 and size > split.tensor and size not in taken:
            replicas = attempt.hardware.gpus // (size * split.pipeline * split.context)
            yield {"parallelism.tensor": size, "parallelism.replicas": min(replicas, split.replicas)}


def _pipelines(attempt: Attempt) -> Iterator[Changes]:
    split = attempt.split
    for stages in range(
        split.pipeline + 1, attempt.hardware.gpus // (split.tensor * split.context * split.replicas) + 1
    ):
        if not obstacles(attempt.model, replace(split, pipeline=stages), attempt.hardware):
            yield {"parallelism.pipeline": stages}


def _step_tokens(attempt: Attempt) -> Iterator[Changes]:
    size = attempt.profile.limits.max_num_tokens // 2
    while size >= max(LEAST_STEP_TOKENS, attempt.profile.limits.max_batch_size):
        yield {"limits.max_num_tokens": size}
        size //= 2


def _batches(attempt: Attempt) -> Iterator[Changes]:
    size = attempt.profile.limits.max_batch_size // 2
    while attempt.split.places(size) >= attempt.profile.load.min_concurrency:
        yield {"limits.max_batch_size": size}
        size //= 2


def _fp8_cache(attempt: Attempt) -> Iterator[Changes]:
    if attempt.profile.quantization.kv_cache == "bf16":
        yield {"quantization.kv_cache": "fp8"}


def _fp8_weights(attempt: Attempt) -> Iterator[Changes]:
    if attempt.profile.quantization.weights == "bf16":
        yield {"quantization.weights": "fp8"}


def _fewer_sequences(attempt: Attempt) -> Iterator[Changes]:
    if 0 < attempt.plan.memory.sequences < attempt.profile.load.min_concurrency:
        yield {"load.min_concurrency": attempt.plan.memory.sequences}


def _shorter_prompts(attempt: Attempt) -> Iterator[Changes]:
    """Propose the longest prompt, in whole blocks, with which the asked sequences would fit."""
    memory, load = attempt.plan.memory, attempt.profile.load
    a_rank = -(-load.min_concurrency // memory.data_ranks)
    tokens = memory.kv_budget_bytes // a_rank // max(1, memory.kv_bytes_per_token)
    block = attempt.profile.kv_cache.tokens_per_block
    longest = tokens // block * block - load.output_tokens * attempt.profile.limits.max_beam_width
    if 0 < longest < load.input_tokens:
        yield {"load.input_tokens": longest}


def _shorter_sequences(attempt: Attempt) -> Iterator[Changes]:
    """Propose the longest max_seq_len that fits, else that of the asked request, when only the longest does not fit."""
    memory, load = attempt.plan.memory, attempt.profile.load
    asked = load.input_tokens + load.output_tokens
    if memory.holds_asked and not memory.holds_longest:
        for tokens in (memory.longest_sequence, asked):
            if asked <= tokens < attempt.profile.limits.max_seq_len:
                yield {"limits.max_seq_len": tokens}


KNOBS = (
    Knob(_fractions, "less memory left for the moments after start-up"),
    Knob(_tensors, "more GPUs"),
    Knob(_tensors_of_fewer_replicas, "fewer replicas, so fewer requests at once in all"),
    Knob(_pipelines, "more GPUs, and each request passes them one after another"),
    Knob(_step_tokens, "long prompts take more steps"),
    Knob(_batches, "fewer requests in one step"),
    Knob(_shorter_sequences, "longer requests are refused"),
    Knob(_fp8_weights, "weights in 8 bit: convert reports how much it lost"),
    Knob(_fp8_cache, "keys and values in 8 bit: convert reports how much it lost"),
    Knob(_fewer_sequences, "a smaller promise: more requests wait"),
    Knob(_shorter_prompts, "a smaller promise: shorter prompts"),
)
"""Nearest first."""
