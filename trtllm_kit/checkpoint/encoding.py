"""Which encoder makes a weight of the unified layout, and which weights no encoder of the wanted format takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trtllm_kit.checkpoint.formats import ENCODERS, STEPS, profile_name
from trtllm_kit.checkpoint.formats.searched import SEARCHED
from trtllm_kit.checkpoint.header import StoredTensor
from trtllm_kit.errors import FormatNotMade, KitError, TensorError
from trtllm_kit.plan.quantization import module_of

_MATRIX = 2
_OF_STACKS = {"fp8": "fp8_once", "nvfp4": "nvfp4_turned"}
"""What becomes of experts that are stored in one tensor, each (input, output)."""


def encoded_as(number_format: str, shape: tuple[int, ...], group_size: int | None) -> str:
    """Return the key of ``formats.ENCODERS`` that makes a weight of a profile's format."""
    if len(shape) != _MATRIX:
        return _OF_STACKS.get(number_format, number_format)
    grouped = f"{number_format}_{group_size}"
    return grouped if grouped in ENCODERS or grouped in SEARCHED else number_format


def unfit(weights: Iterable[tuple[StoredTensor, str]]) -> Iterator[KitError]:
    """Yield an error for each weight, given with its encoder, that cannot be stored so; what is never made first."""
    given = list(weights)
    stacks = [(stored, name) for stored, name in given if len(stored.shape) != _MATRIX]
    yield from (_no_stacks(stored, name) for stored, name in stacks if name not in _OF_STACKS.values())
    for stored, name in given:
        shape = stored.shape[-2:]
        for size, step, axis in zip(shape, STEPS.get(name, (1, 1)), ("output", "input"), strict=True):
            if size % step:
                yield TensorError(
                    f"tensor {stored.name} does not fit {profile_name(name)}",
                    why=f"{size:,} {axis} features are no multiple of {step}, and scales or bytes hold {step} of them",
                    hint=f'add "{module_of(stored.name)}" to quantization.exclude',
                )


def _no_stacks(stored: StoredTensor, name: str) -> FormatNotMade:
    asked = profile_name(name)
    return FormatNotMade(
        f"trtkit does not make {asked} of experts in one tensor",
        why=f"{stored.name} holds {stored.shape[0]} of them, and no release reads such a tensor in {asked}",
        hint=f"set quantization.weights: {' or '.join(_OF_STACKS)}, or quantization.groups with experts: bf16",
    )
