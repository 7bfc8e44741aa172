"""Settle the number formats of a checkpoint, and what the release calls them."""

from __future__ import annotations

from trtllm_kit.plan.asked import as_asked, reason_of, source_of
from trtllm_kit.plan.formats import GROUP_SIZE, Formats
from trtllm_kit.plan.passing import stored_formats
from trtllm_kit.plan.plan import Decided, QuantizationPlan
from trtllm_kit.spec.load import LoadedProfile
from trtllm_kit.spec.model import ModelSpec
from trtllm_kit.spec.profile_formats import GROUPED, Quantization
from trtllm_kit.upstream.quant_algos import MIXED_PRECISION, Layout, quant_algo
from trtllm_kit.upstream.trtllm_checkpoint import rank_format


def asked_formats(asked: Quantization) -> Formats:
    """Return the formats a profile asks for, with upstream's group size where it leaves that open."""
    formats = Formats(
        weights=asked.weights,
        kv_cache=asked.kv_cache,
        exclude=asked.exclude,
        groups=asked.groups.by_name if asked.groups else {},
    )
    if not set(formats.used) & set(GROUPED):
        return formats
    size = GROUP_SIZE if asked.group_size == "auto" else asked.group_size
    return Formats(formats.weights, formats.kv_cache, formats.exclude, formats.groups, size)


def formats_of(model: ModelSpec, loaded: LoadedProfile) -> Formats:
    """Return the formats that will be served: those the weights come in, or those the profile asks for."""
    return stored_formats(model, loaded) or asked_formats(loaded.profile.quantization)


def quantization_plan(model: ModelSpec, loaded: LoadedProfile, layout: Layout, version: str) -> QuantizationPlan:
    """Decide the number formats, with upstream's name for them."""
    stored = stored_formats(model, loaded)
    if stored is not None:
        return _passed_through(model, loaded, stored, algo_of(stored, layout, version))
    asked = loaded.profile.quantization
    formats = asked_formats(asked)
    groups = dict(formats.groups)
    return QuantizationPlan(
        weights=as_asked(loaded, "quantization.weights", asked.weights),
        kv_cache=as_asked(loaded, "quantization.kv_cache", asked.kv_cache),
        exclude=as_asked(loaded, "quantization.exclude", asked.exclude),
        groups=as_asked(loaded, "quantization.groups", groups) if groups else None,
        group_size=_group_size(loaded, formats.group_size if _has_groups(formats, layout, version) else None),
        algo=algo_of(formats, layout, version),
    )


def _passed_through(
    model: ModelSpec, loaded: LoadedProfile, formats: Formats, algo: Decided[str] | None
) -> QuantizationPlan:
    method, scheme = (model.stored.method, model.stored.scheme) if model.stored else ("", "")
    reason, size = f"the checkpoint is stored so ({method}: {scheme})", formats.group_size
    agreed = "asked by the profile, and the checkpoint is stored so"
    from_profile = {key for key in ("weights", "kv_cache") if loaded.source(f"quantization.{key}") == "profile"}
    return QuantizationPlan(
        weights=Decided(
            value=formats.weights,
            source="profile" if "weights" in from_profile else "model",
            reason=agreed if "weights" in from_profile else reason,
        ),
        kv_cache=Decided(
            value=formats.kv_cache,
            source="profile" if "kv_cache" in from_profile else "model",
            reason="asked by the profile" if "kv_cache" in from_profile else reason,
        ),
        exclude=Decided(value=formats.exclude, source="model", reason="what the checkpoint keeps in 16 bit"),
        groups=Decided(value=dict(formats.groups), source="model", reason=reason) if formats.groups else None,
        group_size=None if size is None else Decided(value=size, source="model", reason=reason),
        algo=algo,
        passed_through=Decided(value=True, source="model", reason=reason),
    )


def _has_groups(formats: Formats, layout: Layout, version: str) -> bool:
    """Whether a file holds scales of groups: not where ``trtllm-build`` makes the format, with a scale a row."""
    grouped = [name for name in formats.used if name in GROUPED]
    if layout == "unified_hf":
        return bool(grouped)
    return any(row is None or row.packed for row in (rank_format(name, version) for name in grouped))


def _group_size(loaded: LoadedProfile, size: int | None) -> Decided[int] | None:
    if size is None:
        return None
    if loaded.profile.quantization.group_size != "auto":
        source, reason = source_of(loaded, "quantization.group_size"), reason_of(loaded, "quantization.group_size")
        return Decided(value=size, source=source, reason=reason)
    return Decided(value=size, source="upstream", reason=f"upstream's default of int4 is {GROUP_SIZE}")


def algo_of(formats: Formats, layout: Layout, version: str) -> Decided[str] | None:
    """Name what the checkpoint says it is: of several formats, that they are mixed."""
    if not formats.used:
        return None
    if len(formats.used) > 1:
        reason = f"{len(formats.used)} formats beside 16 bit: {', '.join(formats.used)}"
        return Decided(value=MIXED_PRECISION, source="upstream", reason=reason)
    only = formats.used[0]
    known = quant_algo(only, layout, version)
    reason = f"{only} in layout {layout}" + ("" if known.in_release else f"; {version} is not known to have the word")
    return Decided(value=known.algo, source="upstream", reason=reason)
