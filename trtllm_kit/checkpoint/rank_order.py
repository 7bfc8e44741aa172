"""From a plan to an engine's checkpoint: what stands in its way, its tensors, its configuration files."""

from __future__ import annotations

from pathlib import Path

from trtllm_kit.checkpoint.problems import raise_all
from trtllm_kit.checkpoint.rank_config import CONFIG, QUANT_CFG, quant_cfg, rank_config
from trtllm_kit.checkpoint.rank_layout import rank_steps
from trtllm_kit.checkpoint.reader import WeightFolder
from trtllm_kit.checkpoint.step import TensorStep
from trtllm_kit.plan.plan import Plan
from trtllm_kit.plan.rank_problems import rank_problems
from trtllm_kit.plan.ranks import order_of


def require_laid_out(plan: Plan, source: Path) -> None:
    """Raise everything at once that keeps a plan from being laid out for its release.

    The class is ``FormatNotMade`` or ``UnknownArchitecture``, whichever problem comes first.
    """
    raise_all(rank_problems(order_of(plan)), source)


def steps_of(plan: Plan, weights: WeightFolder) -> tuple[TensorStep, ...]:
    """Return every tensor of every rank; raises ``TensorError`` for scales that an engine keeps as one, and differ."""
    return rank_steps(order_of(plan), weights.tensors, lambda name: float(weights.read(name).ravel()[0]))


def configuration(plan: Plan) -> dict[str, str]:
    """Return the text of each configuration file by its name."""
    order = order_of(plan)
    mixed = quant_cfg(order)
    return {CONFIG: rank_config(order)} | ({} if mixed is None else {QUANT_CFG: mixed})
