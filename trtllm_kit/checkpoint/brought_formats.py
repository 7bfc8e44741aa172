"""Number formats of weights that were found tensor by tensor, as the formats of a whole checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

from trtllm_kit.checkpoint.formats import profile_name
from trtllm_kit.errors import FormatNotMade
from trtllm_kit.plan.formats import Formats
from trtllm_kit.plan.plan import Decided, QuantizationPlan
from trtllm_kit.plan.quantization import HEAD, fused_groups, module_of
from trtllm_kit.plan.settle_formats import algo_of
from trtllm_kit.spec.model import ModelSpec
from trtllm_kit.spec.profile_formats import GROUP_SIZES, GROUPED, KvFormat, PartFormat
from trtllm_kit.upstream.facts import MAIN

_REASON = "the rank files hold them so"


def formats_found(model: ModelSpec, forms: Mapping[str, str], kv_cache: KvFormat) -> QuantizationPlan:
    """Return the formats of a checkpoint by the form of every weight that is not plain; names are Hugging Face's.

    Raises ``FormatNotMade`` for a weight outside the layers, which the layout has in 16 bit alone.
    """
    linears = dict(_linears(model))
    outside = [name for name in forms if name not in linears]
    if outside:
        raise FormatNotMade(
            f"{outside[0]} is {profile_name(forms[outside[0]])}",
            why="ModelOpt's unified layout keeps embedding and head in 16 bit, and no loader asks for their scales",
            hint="migrate from a checkpoint that was quantised without --quantize_lm_head",
        )
    named = {name: cast("PartFormat", profile_name(form)) for name, form in forms.items()}
    used = tuple(dict.fromkeys(named.values()))
    kept = tuple(module for name, module in linears.items() if name not in named)
    groups = {module_of(name): chosen for name, chosen in named.items()} if len(used) > 1 else {}
    formats = Formats(
        weights="mixed" if groups else used[0] if used else "bf16",
        kv_cache=kv_cache,
        exclude=(HEAD,) if groups or not used else (*kept, HEAD),
        groups=groups,
        group_size=_group_size(forms),
        passed_through=bool(used),
    )
    return QuantizationPlan(
        weights=Decided(value=formats.weights, source="model", reason=_REASON),
        kv_cache=Decided(value=kv_cache, source="model", reason=_REASON),
        exclude=Decided(value=formats.exclude, source="model", reason=_REASON),
        groups=Decided(value=groups, source="model", reason=_REASON) if groups else None,
        group_size=Decided(value=formats.group_size, source="model", reason=_REASON) if formats.group_size else None,
        algo=algo_of(formats, "unified_hf", MAIN),
        passed_through=Decided(value=True, source="model", reason=_REASON) if used else None,
    )


def _linears(model: ModelSpec) -> Iterator[tuple[str, str]]:
    """Yield name and module of every linear weight."""
    for number in range(len(model.layers)):
        for group in fused_groups(model, number):
            yield from ((name, module_of(name)) for fact in group for name in fact.names())


def _group_size(forms: Mapping[str, str]) -> int | None:
    sizes = {
        next((size for size in GROUP_SIZES if form.endswith(f"_{size}")), GROUP_SIZES[0])
        for form in forms.values()
        if profile_name(form) in GROUPED
    }
    return next(iter(sizes), None)
