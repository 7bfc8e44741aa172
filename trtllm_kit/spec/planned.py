"""Which families are planned and no more: what converts or runs a model asks here before its first byte."""

from __future__ import annotations

from typing import get_args

from trtllm_kit.errors import UnknownArchitecture
from trtllm_kit.spec.model import ConvertedFamily, ModelSpec


def planned_problem(model: ModelSpec) -> UnknownArchitecture | None:
    """Return why a family is neither converted nor run; None for one that is."""
    if model.converted:
        return None
    return UnknownArchitecture(
        f"{model.architecture} is planned, not converted",
        why=f"trtkit converts and runs {', '.join(get_args(ConvertedFamily))}; this one is {model.family}",
        hint="serve a published checkpoint as it is: trtkit plan says whether it fits, and on which releases",
    )


def require_converted(model: ModelSpec) -> None:
    """Raise ``UnknownArchitecture`` for a family that the kit plans but neither converts nor runs."""
    problem = planned_problem(model)
    if problem is not None:
        raise problem
