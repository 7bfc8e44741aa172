"""One tensor of the output: what it is called, what it holds, and what it is made of."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from trtllm_kit.checkpoint.header import item_bytes
from trtllm_kit.checkpoint.matrix import Matrix

PLAIN = "plain"
"""The format of what is copied or rounded to 16 bit; it has one part, ``weight``."""
WEIGHT = "weight"


@dataclass(frozen=True)
class TensorStep:
    """One tensor of the output; every layout gives a tuple of them, and nothing behind asks which layout it was."""

    name: str
    dtype: str
    """As safetensors spells it."""
    shape: tuple[int, ...]
    file: str = ""
    source: Matrix | None = None
    """What it is made from; None for a calibrated scale, and for ones."""
    format: str = PLAIN
    """``plain``, or a key of ``formats.ENCODERS``."""
    part: str = WEIGHT
    """``weight``, or one of the scales that the format has: ``weight_scale``, ``input_scale``, ``k_scale`` ..."""
    scaled_with: tuple[Matrix, ...] = ()
    """Other matrices that share this one's largest magnitude, since the runtime keeps all of them under one scale."""
    measured: tuple[str, ...] = ()
    """Of a calibrated scale: what calibration measures, as the scale's name in the unified layout; the largest counts.

    ``….q_proj.input_scale``, ``….k_proj.k_scale``, ``….experts.down_proj_input_scale``. Ones without any.
    """
    blocks: int = 1
    """Matrices one below the other in ``source`` (experts in one tensor), each scaled alone; so in ``scaled_with``."""
    as_stored: bool = False
    """It lies in the source in this format already."""

    def parted(self) -> tuple[TensorStep, ...]:
        """Return a step for each block, in order; name and shape stay those of the whole."""
        if self.blocks == 1 or self.source is None:
            return (self,)
        return tuple(
            replace(
                self,
                source=self.source.block(number, self.blocks),
                scaled_with=tuple(matrix.block(number, self.blocks) for matrix in self.scaled_with),
                blocks=1,
            )
            for number in range(self.blocks)
        )

    @property
    def copied(self) -> bool:
        """Whether its elements are those of the source, or those rounded to 16 bit."""
        return self.format == PLAIN or self.as_stored

    @property
    def scanned(self) -> tuple[Matrix, ...]:
        """The matrices whose largest magnitude scales it: its own, unless one that it shares a scale with holds it."""
        if self.source is None:
            return ()
        held = any(matrix.holds(self.source) for matrix in self.scaled_with)
        return self.scaled_with if held else (self.source, *self.scaled_with)

    @property
    def nbytes(self) -> int:
        """Size of the data."""
        return math.prod(self.shape) * item_bytes(self.dtype)

    @property
    def origin(self) -> str:
        """Where its numbers come from, in words."""
        if self.source is None:
            return f"calibration: {_named(self.measured)}" if self.measured else "the number 1"
        if self.part == WEIGHT or not self.scaled_with:
            return str(self.source)
        return f"{self.source}, with {', '.join(map(str, self.scaled_with))}"


_NAMED = 4
"""Names that are written out; of more, the count is told."""


def _named(names: tuple[str, ...]) -> str:
    return ", ".join(names) if len(names) <= _NAMED else f"{names[0]} and {len(names) - 1} more"
