"""Toolchains are rows: each is a pure function from a plan to steps. Nothing else knows which one ran."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trtllm_kit.build.llm_api import CHECKPOINT, llm_api_yaml
from trtllm_kit.build.step import PYTHON, Link, Run, Step, WriteFile
from trtllm_kit.build.trtllm_build import trtllm_build_steps
from trtllm_kit.checkpoint.plan_file import PLAN_FILE, plan_text
from trtllm_kit.errors import NoToolchain
from trtllm_kit.plan.plan import Plan
from trtllm_kit.upstream import nearest_release, release

LLM_ARGS = "llm_args.yaml"
ENGINE_CONFIG = "config.json"


@dataclass(frozen=True)
class Toolchain:
    """One way to make an engine folder."""

    name: str
    steps: Callable[[Plan], tuple[Step, ...]]


def steps(plan: Plan) -> tuple[Step, ...]:
    """Return everything the plan's toolchain does, in order; raises ``NoToolchain`` when trtkit has no such row."""
    row = TOOLCHAINS.get(plan.toolchain.value)
    if row is None:
        nearest = nearest_release(plan.release.value, lambda name: "llm-api" in release(name).toolchains)
        raise NoToolchain(
            f"trtkit cannot build with {plan.toolchain.value}",
            why=f"release {plan.release.value} needs it, and trtkit has {', '.join(TOOLCHAINS)}",
            hint=f"set trtllm_version: {nearest}, or toolchain: mock to rehearse the engine road",
        )
    return (WriteFile(path=PLAN_FILE, text=plan_text(plan)), Link(path=CHECKPOINT, to="checkpoint"), *row.steps(plan))


def rank_files(plan: Plan) -> tuple[str, ...]:
    """Return the engine file of each rank."""
    return tuple(f"rank{rank}.engine" for rank in range(plan.parallelism.world_size))


def _llm_api(plan: Plan) -> tuple[Step, ...]:
    return (WriteFile(path=LLM_ARGS, text=llm_api_yaml(plan)),)


def _mock(plan: Plan) -> tuple[Step, ...]:
    argv = (PYTHON, "-m", "trtllm_kit.build.mock", "--plan", PLAN_FILE, "--output_dir", ".")
    outputs = (ENGINE_CONFIG, *rank_files(plan))
    return (Run(argv=argv, inputs=(PLAN_FILE,), outputs=outputs, timeout_seconds=120.0),)


TOOLCHAINS = {
    row.name: row
    for row in (
        Toolchain("llm-api", _llm_api),
        Toolchain("trtllm-build", trtllm_build_steps),
        Toolchain("mock", _mock),
    )
}
