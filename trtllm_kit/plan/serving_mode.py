"""How servers are started: of a built engine a leader and its ranks, or an orchestrator with ranks of its own.

A leader's servers, one a rank, run one engine; an orchestrator is one server that runs any number, with several
instances of each. Which of them it is says the environment that the backend reads. A server of the llmapi model has as
many instances as the profile says.
"""

from __future__ import annotations

from collections.abc import Mapping

from trtllm_kit.light import dataclass
from trtllm_kit.plan.plan import Decided, Plan
from trtllm_kit.upstream import release

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


def serves_engines(plan: Plan) -> bool:
    """Whether the C++ backend serves the plan's engine: the llmapi model loads none, and old releases lack it."""
    toolchain = plan.toolchain.value
    return toolchain == "trtllm-build" or (toolchain == "mock" and not release(plan.release.value).triton_llmapi_model)


def orchestrated(plan: Plan) -> bool:
    """Whether one server of engines hands requests to ranks of its own."""
    return plan.variables.get(ORCHESTRATOR) == "1" and serves_engines(plan)


def spawns(plan: Plan) -> bool:
    """Whether an orchestrator starts its ranks itself."""
    return plan.variables.get(SPAWNS) != "0"


def instances(plan: Plan) -> int:
    """Return the instances of the engine in one server: an orchestrator's has those of all replicas."""
    return plan.parallelism.replicas.value if orchestrated(plan) else plan.serve.instances


def device_sets(plan: Plan, first: int = 0) -> str:
    """Return the GPUs of every instance of a server, as ``gpu_device_ids`` takes them: ``0,1;2,3``."""
    world = plan.parallelism.world_size
    starts = range(first, first + instances(plan) * world, world)
    return ";".join(",".join(str(start + rank) for rank in range(world)) for start in starts)


def with_orchestrator(plan: Plan) -> Mapping[str, Decided[str]]:
    """Return the environment of a plan; two engines in one server need an orchestrator, unless the profile says."""
    if not has_draft(plan) or ORCHESTRATOR in plan.environment:
        return plan.environment
    reason = "a draft model's engine stands beside the model's, and a leader's ranks are those of one engine"
    return {**plan.environment, ORCHESTRATOR: Decided(value="1", source="rule", reason=reason)}


def obstacle(plan: Plan) -> Obstacle | None:
    """Return why no repository can be made for a plan, if that is so."""
    if not serves_engines(plan):
        return _of_instances(plan)
    if plan.serve.instances > 1 or plan.serve.warm_up_requests:
        return Obstacle(
            "Instances and warm-up requests are the llmapi model's; an orchestrator has an instance of an engine for "
            "each replica.",
            f"serve.instances {plan.serve.instances}, serve.warm_up_requests {plan.serve.warm_up_requests}",
            f"serve.instances: 1 with warm_up_requests: 0 (and environment.{ORCHESTRATOR}: '1')",
        )
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


def _of_instances(plan: Plan) -> Obstacle | None:
    """Return why the replicas of a plan do not fill servers of so many instances."""
    replicas, each = plan.parallelism.replicas.value, plan.serve.instances
    if replicas % each == 0:
        return None
    fits = max(number for number in range(1, each) if replicas % number == 0)
    return Obstacle(
        "Every server has as many instances as any other.",
        f"parallelism.replicas {replicas}, serve.instances {each}",
        f"serve.instances: {fits}",
    )
