"""What one machine can start of what a plan describes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.specs import hardware, llama_70b, profile, rehearsal
from trtllm_kit.errors import UsageError
from trtllm_kit.plan.decide import make_plan
from trtllm_kit.plan.plan import Plan
from trtllm_kit.serve.startable import require_secrets, require_startable
from trtllm_kit.spec.hardware import Hardware

OUT = Path("repository")
NODE, CLUSTER = hardware(8, 141.0), hardware(4, 141.0, nodes=4)


def planned(machine: Hardware, **changes: Any) -> Plan:
    """Plan 8 ranks."""
    return make_plan(llama_70b(), profile({"parallelism.tensor": 8} | changes), machine)


def test_ranks_on_several_nodes_are_refused_with_what_to_run_instead() -> None:
    """Eight ranks over nodes of four GPUs: the numbers, and the targets that start them."""
    with pytest.raises(UsageError, match="for 2 nodes") as refused:
        require_startable(planned(CLUSTER), CLUSTER, OUT)

    assert "8 ranks, and a node of" in refused.value.why
    assert "--target slurm" in refused.value.hint


def test_ranks_of_an_engine_that_are_servers_are_refused() -> None:
    """Also on one node: a leader's ranks, and those that wait for an orchestrator; one that starts them is alone."""
    engines = {"toolchain": "trtllm-build"}

    with pytest.raises(UsageError, match="served by 8 servers together"):
        require_startable(planned(NODE, **engines), NODE, OUT)
    one = engines | {"environment.TRTLLM_ORCHESTRATOR": "1"}
    require_startable(planned(NODE, **one), NODE, OUT)
    with pytest.raises(UsageError, match="served by 9 servers together"):
        require_startable(planned(NODE, **one, **{"environment.TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES": "0"}), NODE, OUT)


def test_what_one_machine_can_start_is_let_through() -> None:
    """All ranks of the LLM API on one node, and every rehearsal of what needs several."""
    require_startable(planned(NODE), NODE, OUT)
    require_startable(planned(CLUSTER, runtime="simulated"), CLUSTER, OUT)
    machine = rehearsal()
    require_startable(make_plan(llama_70b(), profile({"runtime": "simulated"}), machine), machine, OUT)


def test_secrets_are_in_the_shell() -> None:
    """Those that it lacks, or has empty, are named; no value is."""
    with pytest.raises(UsageError, match="A, B: not set here"):
        require_secrets(("B", "C", "A"), {"B": "", "C": "x"})
    require_secrets(("C",), {"C": "x"})
