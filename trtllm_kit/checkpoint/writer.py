"""Writes one safetensors file as a stream: header first, then tile after tile, hashed while it is written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from trtllm_kit.checkpoint.hashed_file import NOTHING, Begun, HashedFile, Mark, begun
from trtllm_kit.checkpoint.rectangle import Raw
from trtllm_kit.checkpoint.step import TensorStep
from trtllm_kit.errors import InternalError
from trtllm_kit.staging import Prefix

_ALIGNMENT = 8
"""The data begins on a multiple of this."""


def earlier_part(path: Path, steps: Sequence[TensorStep], prefix: Prefix | None) -> Begun:
    """Return what an earlier run left of a file, when it ends where a tensor does and is as it was recorded."""
    if prefix is None or steps_behind(steps, prefix.bytes) is None:
        return NOTHING
    return begun(path, prefix)


def steps_behind(steps: Sequence[TensorStep], done: int) -> Sequence[TensorStep] | None:
    """Return the steps behind the first ``done`` bytes of their file; None when no tensor begins there."""
    if not done:
        return steps
    at = len(header_bytes(steps))
    for number, step in enumerate(steps):
        if at == done:
            return steps[number:]
        at += step.nbytes
    return () if at == done else None


def write_safetensors(
    path: Path,
    steps: Sequence[TensorStep],
    pieces: Iterable[Raw],
    earlier: Begun = NOTHING,
    mark: Mark | None = None,
    mark_bytes: int = 0,
) -> str:
    """Write ``steps`` in order from the ``pieces`` of their data; returns the file's SHA-256 as hex.

    The size of every tensor is known before its data, so nothing is held but the pieces on their way. No piece lies
    across the border of two tensors. ``earlier`` is what is there already, with which ``pieces`` go on.
    """
    with HashedFile(path, earlier, mark, mark_bytes) as file:
        if not earlier.bytes:
            file.write(header_bytes(steps))
        left = iter(pieces)
        for step in steps_behind(steps, earlier.bytes) or ():
            written = 0
            while written < step.nbytes and (piece := next(left, None)) is not None:
                file.write(piece)
                written += piece.nbytes
            if written != step.nbytes:
                raise _other_size(step, written)
            file.border()
        more = sum(piece.nbytes for piece in left)
        if more:
            raise _other_size(steps[-1], steps[-1].nbytes + more)
    return file.hexdigest


def _other_size(step: TensorStep, written: int) -> InternalError:
    return InternalError(
        f"tensor {step.name} came out as {written} bytes",
        why=f"its header says {step.nbytes}",
        hint="report this with the model's config.json",
    )


def header_bytes(steps: Sequence[TensorStep]) -> bytes:
    """Return the length and header of a file that holds ``steps`` in order."""
    document: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for step in steps:
        entry = {"dtype": step.dtype, "shape": list(step.shape), "data_offsets": [at, at + step.nbytes]}
        document[step.name] = entry
        at += step.nbytes
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text
