"""What keys and values of a prompt take from the server that read it to the one that answers, with its interval."""

from __future__ import annotations

from dataclasses import dataclass

from trtllm_kit.estimate.disaggregated import Transfer
from trtllm_kit.estimate.links import Way, between_servers
from trtllm_kit.estimate.step_time import StepTime, Term
from trtllm_kit.plan.plan import Plan
from trtllm_kit.plan.recurrent import state_bytes_per_sequence
from trtllm_kit.spec.ceilings import LEAST_CERTAIN, Backend, Known, bounds_of, known_of
from trtllm_kit.spec.hardware import Hardware

TERM = "KV transfer"


@dataclass(frozen=True, slots=True)
class Sending:
    """A transfer, and the same at the bounds of what is known of the links."""

    transfer: Transfer
    best: Transfer
    worst: Transfer
    way: Way
    ranks: int
    """Ranks of a server that send parts of one request."""
    known: Known

    def term(self, tokens: int) -> Term:
        """Return what the keys and values of a prompt of that many tokens take, seconds."""
        names = ("link_share", "network_seconds" if self.way.over == "network" else "reduce_seconds")
        sources = [self.known.constants[name].how for name in names]
        source = next(how for how in LEAST_CERTAIN if how in sources)
        return Term(TERM, self.transfer.seconds(tokens), self.best.seconds(tokens), self.worst.seconds(tokens), source)

    def step(self, tokens: int) -> StepTime:
        """Return the same as something that first tokens wait for: no host, one term."""
        term = self.term(tokens)
        return StepTime(term.seconds, (term,), Term("host", 0.0, 0.0, 0.0, term.source), 0.0, TERM)


def sending(plan: Plan, hardware: Hardware, servers: int, tokens: int) -> Sending:
    """Return how prompts get to another of so many servers of a plan in all, for sequences of ``tokens`` tokens.

    Every rank sends what it holds over its own link; with attention data parallelism one rank holds all of a request.
    """
    backend: Backend = "tensorrt" if plan.toolchain.value == "trtllm-build" else "pytorch"
    known = known_of(hardware.gpu, plan.release.value, backend)
    gpus = servers * plan.parallelism.world_size
    ranks = plan.parallelism.world_size // plan.parallelism.split.data
    best, worst = bounds_of(known)
    ways = [between_servers(hardware, one.ceilings, gpus) for one in (known, best, worst)]
    made = [_transfer(plan, way, ranks, tokens) for way in ways]
    return Sending(made[0], made[1], made[2], ways[0], ranks, known)


def _transfer(plan: Plan, way: Way, ranks: int, tokens: int) -> Transfer:
    state = state_bytes_per_sequence(plan.model.layers, plan.parallelism.split.dense) / plan.parallelism.split.pipeline
    return Transfer(
        bytes_per_token=ranks * _bytes_per_token(plan, tokens),
        bytes_per_second=ranks * way.bytes_per_second,
        latency_seconds=way.latency_seconds + state / way.bytes_per_second,
    )


def _bytes_per_token(plan: Plan, tokens: int) -> float:
    """Return the bytes a token takes on a rank; where layers keep a window, the mean over a sequence."""
    memory = plan.memory
    return min(memory.kv_bytes_per_token, memory.kv_bytes_per_sequence / tokens)
