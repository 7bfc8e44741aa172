"""How the servers of a built engine are started: a leader and its ranks, or an orchestrator with ranks of its own.

A leader's servers, one a rank, run one engine; an orchestrator is one server that runs any number, with several
instances of each. Which of them it is says the environment that the backend reads.
"""

from __future__ import annotations

from collections.abc import Mapping

from trtllm_kit.light import dataclass
from trtllm_kit.plan.plan import Decided, Plan

ORCHESTRATOR, SPAWNS = "TRTLLM_ORCHESTRATOR", "TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES"


@dataclass(frozen=True)
class Obstacle:
    """What keeps an engine from being served as the plan says."""

    what: str
    compared: str
    way_out: str


def has_draft(plan: Plan) -> bool:
    """Whether a draft model's engine stands beside the model's."""
    return plan.build is not None and plan.build.draft_ranks is not None


def orchestrated(plan: Plan) -> bool:
    """Whether one server hands requests to ranks of its own."""
    return plan.variables.get(ORCHESTRATOR) == "1"


def spawns(plan: Plan) -> bool:
    """Whether an orchestrator starts its ranks itself."""
    return plan.variables.get(SPAWNS) != "0"


def instances(plan: Plan) -> int:
    """Return the instances of the engine in one server: every replica's in an orchestrator's, else one."""
    return plan.parallelism.replicas.value if orchestrated(plan) else 1


def with_orchestrator(plan: Plan) -> Mapping[str, Decided[str]]:
    """Return the environment of a plan; two engines in one server need an orchestrator, unless the profile says."""
    if not has_draft(plan) or ORCHESTRATOR in plan.environment:
        return plan.environment
    reason = "a draft model's engine stands beside the model's, and a leader's ranks are those of one engine"
    return {**plan.environment, ORCHESTRATOR: Decided(value="1", source="rule", reason=reason)}


def obstacle(plan: Plan) -> Obstacle | None:
    """Return why no repository can be made for a plan of engines, if that is so."""
    if orchestrated(plan) and not spawns(plan) and instances(plan) > 1:
        return Obstacle(
            "Ranks that are started beforehand are those of one instance: participant_ids names them once.",
            f"{instances(plan)} instances, {SPAWNS}=0",
            "parallelism.replicas: 1",
        )
    if has_draft(plan) and not orchestrated(plan):
        return Obstacle(
            "A leader's ranks are those of one engine, and a draft model's engine is a second.",
            f"speculation.kind draft_target, {ORCHESTRATOR}={plan.variables.get(ORCHESTRATOR, '')}",
            f"environment.{ORCHESTRATOR}: '1'",
        )
    return None
