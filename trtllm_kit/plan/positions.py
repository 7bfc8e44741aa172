"""How many positions a model can tell apart: what it was trained on, times what its rope is stretched by."""

from __future__ import annotations

from trtllm_kit.light import dataclass
from trtllm_kit.spec.model import ModelSpec


@dataclass(frozen=True)
class Positions:
    """Sequence lengths a model can be used at, tokens."""

    sure: int
    """Up to here every reading of ``config.json`` agrees."""
    most: int
    """Beyond here no reading allows a sequence."""
    how: str
    """The numbers they come from."""


def usable_positions(model: ModelSpec) -> Positions:
    """Return the positions a model can tell apart.

    YaRN stretches the length it was trained at, whatever ``max_position_embeddings`` says. Linear and dynamic
    scaling stretch ``max_position_embeddings``, but some authors write the product there already. Llama 3's
    scaling and long ropes are always counted in it.
    """
    rope, claimed = model.rope, model.max_position
    if rope.kind == "yarn":
        trained = rope.original_max_position or claimed
        product = round(trained * rope.factor)
        return Positions(product, max(product, claimed), f"{trained:,} x yarn factor {rope.factor:g}")
    if rope.kind in ("linear", "dynamic"):
        product = round(claimed * max(1.0, rope.factor))
        return Positions(claimed, product, f"{claimed:,}, times {rope.kind} factor {rope.factor:g} if not yet counted")
    how = "max_position_embeddings"
    if rope.kind == "longrope" and rope.original_max_position is not None:
        how = f"{how}, trained at {rope.original_max_position:,}"
    return Positions(claimed, claimed, how)
