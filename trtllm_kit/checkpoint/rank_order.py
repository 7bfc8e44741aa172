"""From a plan to an engine's checkpoint: what stands in its way, its tensors, its configuration files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from trtllm_kit.checkpoint.header import StoredTensor
from trtllm_kit.checkpoint.problems import raise_all
from trtllm_kit.checkpoint.rank_config import CONFIG, QUANT_CFG, quant_cfg, rank_config
from trtllm_kit.checkpoint.rank_layout import rank_steps
from trtllm_kit.checkpoint.step import TensorStep
from trtllm_kit.plan.plan import Plan
from trtllm_kit.plan.rank_problems import rank_problems
from trtllm_kit.plan.ranks import order_of


def require_laid_out(plan: Plan, source: Path) -> None:
    """Raise everything at once that keeps a plan from being laid out for its release.

    The class is ``FormatNotMade`` or ``UnknownArchitecture``, whichever problem comes first.
    """
    raise_all(rank_problems(order_of(plan)), source)


def steps_of(plan: Plan, stored: Mapping[str, StoredTensor]) -> tuple[TensorStep, ...]:
    """Return every tensor of every rank."""
    return rank_steps(order_of(plan), stored)


def configuration(plan: Plan) -> dict[str, str]:
    """Return the text of each configuration file by its name."""
    order = order_of(plan)
    mixed = quant_cfg(order)
    return {CONFIG: rank_config(order)} | ({} if mixed is None else {QUANT_CFG: mixed})
