"""From a plan to runs of ``trtllm-build``: the model's engine, and that of a draft model beside it (pure)."""

from __future__ import annotations

from collections.abc import Mapping

from trtllm_kit.build.llm_api import CHECKPOINT
from trtllm_kit.build.runner import Command, wrapped
from trtllm_kit.build.step import Link, Run, Step
from trtllm_kit.errors import NoToolchain
from trtllm_kit.plan.build_options import words
from trtllm_kit.plan.plan import BuildPlan, Plan
from trtllm_kit.spec.profile_build import OptionValue
from trtllm_kit.upstream.trtllm_build import build_flag

PROGRAM = "trtllm-build"
DRAFT = "draft"
"""Folder of the draft model's engine, inside the model's."""
DRAFT_CHECKPOINT = "draft_checkpoint"
_ENGINE_CONFIG = "config.json"
_TIMINGS = "{}.cache"
"""Kernel timings of a run, beside the engine: the builder keeps them in its working folder unless it is told where."""


def trtllm_build_steps(plan: Plan) -> tuple[Step, ...]:
    """Return the runs of the builder; raises ``NoToolchain`` for a plan that settled none."""
    build = plan.build
    if build is None:
        raise NoToolchain(
            "the plan has no options for trtllm-build",
            why="it was made by a release of trtkit that did not run the builder",
            hint="plan again with trtkit plan",
        )
    asked = {name: decided.value for name, decided in build.options.items()}
    model = _run(plan, build, asked, CHECKPOINT, ".", plan.parallelism.world_size)
    if build.draft_ranks is None:
        return (model,)
    link = Link(path=DRAFT_CHECKPOINT, to="draft")
    chosen = {name: decided.value for name, decided in (build.draft_options or {}).items()}
    return (link, model, _run(plan, build, chosen, DRAFT_CHECKPOINT, DRAFT, build.draft_ranks.value))


def engine_files(ranks: int, folder: str = ".") -> tuple[str, ...]:
    """Return the files of an engine: its configuration and one file a rank."""
    prefix = "" if folder == "." else f"{folder}/"
    return tuple(f"{prefix}{name}" for name in (_ENGINE_CONFIG, *(f"rank{rank}.engine" for rank in range(ranks))))


def _run(
    plan: Plan, build: BuildPlan, options: Mapping[str, OptionValue], checkpoint: str, folder: str, ranks: int
) -> Run:
    timings = _TIMINGS.format("model" if folder == "." else folder)
    argv = [PROGRAM, "--checkpoint_dir", checkpoint, "--output_dir", folder, "--output_timing_cache", timings]
    for name, value in options.items():
        flag = build_flag(plan.release.value, name)
        if flag is not None:
            argv += flag.argv(value)
    command = Command(
        words=tuple(argv),
        environment=plan.variables,
        image=build.image.value if build.image else None,
        template=build.template.value if build.template else (),
        draft=build.draft_ranks is not None,
        read=words(options.get("--lora_dir")),
    )
    started = wrapped(build.runner.value, command)
    return Run(
        argv=started.words,
        env=dict(started.environment),
        inputs=(checkpoint,),
        outputs=engine_files(ranks, folder),
        timeout_seconds=build.timeout_seconds.value,
        afterwards=started.afterwards,
        release=plan.release.value,
    )
