"""What a number format is to the converter: its parts, and how they are made tile by tile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from trtllm_kit.checkpoint.rectangle import Raw
from trtllm_kit.dtypes import F32, U16
from trtllm_kit.errors import InternalError


class Part(NamedTuple):
    """One stored tensor of a quantised matrix."""

    name: str
    """``weight``, ``weight_scale``, ``weight_scale_2`` ..."""
    dtype: str
    """As safetensors spells it."""
    shape: tuple[int, ...]


class Encoder(Protocol):
    """Makes the parts of a matrix; tiles may be encoded at the same time by several threads, in any order."""

    @property
    def row_step(self) -> int:
        """Tiles hold a multiple of this many rows, but for the last."""

    @property
    def needs_amax(self) -> bool:
        """Whether max |x| of the whole matrix (and of what shares its scale) is wanted before the first tile."""

    def parts(self, rows: int, columns: int) -> tuple[Part, ...]:
        """Return the parts of a (rows, columns) matrix, ``weight`` first; not what calibration measures."""

    def encode(self, tile: U16, dtype: str, amax: float | None) -> tuple[Raw, ...]:
        """Return the parts that grow with the rows, in the order of ``parts``, of the tile's rows.

        ``tile`` is (rows, columns), the bits of finite ``BF16`` or ``F16`` values as ``dtype`` says.
        """

    def constants(self, amax: float | None) -> Mapping[str, Raw]:
        """Return the parts that are one for the matrix by name, e.g. a per-tensor ``weight_scale``."""


Decoder = Callable[[Mapping[str, Raw], str], F32]
"""Returns the values of a matrix from its parts by name, and the 16-bit dtype it came from."""


def known(amax: float | None) -> float:
    """Return the largest magnitude that an encoder with ``needs_amax`` was given."""
    if amax is None:
        raise InternalError(
            "a format was not told the largest magnitude", why="its encoder says needs_amax", hint="report this"
        )
    return amax
