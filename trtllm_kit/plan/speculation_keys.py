"""Speculation in the LLM API's YAML: which field of which release carries what the plan decided."""

from __future__ import annotations

from collections.abc import Iterator

from trtllm_kit.plan.plan import Plan, SpeculationPlan
from trtllm_kit.upstream.speculation import Kind, decoding_type, draft_gate, own_length, speculation_field

FIELDS: dict[str, tuple[str, ...]] = {
    "kind": ("decoding_type",),
    "draft_tokens": ("max_draft_len", "num_nextn_predict_layers"),
    "draft_checkpoint": ("speculative_model", "speculative_model_dir"),
    "capture_layers": ("eagle3_layers_to_capture",),
    "acceptance_threshold": ("acceptance_rate_threshold", "acceptance_length_threshold"),
    "acceptance_window": ("acceptance_rate_window_size", "acceptance_window"),
    "max_ngram": ("max_matching_ngram_size",),
}
"""Key of the profile's ``speculation`` to the fields it becomes in one release or another, the newest name first."""


def speculation_document(plan: Plan) -> dict[str, object]:
    """Return ``speculative_config`` with the fields that the release has; empty where nothing of it drafts."""
    if plan.speculation is None:
        return {}
    kind, version = plan.speculation.kind.value, plan.release.value
    word = decoding_type(kind, version)
    if word is None:
        return {}
    settings = speculation_settings(plan.speculation, version)
    fields = {field: value for _, field, value in settings if speculation_field(kind, field, version) is not None}
    return {"decoding_type": word.literal, **fields}


def speculation_settings(decided: SpeculationPlan, version: str) -> Iterator[tuple[str, str, object]]:
    """Yield key of the plan, field and value; a field the release lacks goes by the newest name it has anywhere."""
    kind = decided.kind.value
    for field in _length_fields(kind, version):
        yield "draft_tokens", field, decided.draft_tokens.value
    if decided.draft_checkpoint is not None:
        yield "draft_checkpoint", _known(kind, "draft_checkpoint", version), decided.draft_checkpoint.value
    if decided.capture_layers is not None:
        yield "capture_layers", "eagle3_layers_to_capture", list(decided.capture_layers.value)
    if decided.max_ngram is not None:
        yield "max_ngram", "max_matching_ngram_size", decided.max_ngram.value
    if decided.acceptance_threshold is not None:
        yield "acceptance_threshold", _known(kind, "acceptance_threshold", version), gate_threshold(decided, version)
    if decided.acceptance_window is not None:
        yield "acceptance_window", _known(kind, "acceptance_window", version), decided.acceptance_window.value


def gate_threshold(decided: SpeculationPlan, version: str) -> float:
    """Return the threshold in the release's measure: a share of the drafted tokens, or accepted tokens a step."""
    share = decided.acceptance_threshold.value if decided.acceptance_threshold else 0.0
    gate = draft_gate(version)
    counted = gate is not None and gate.measures == "accepted_tokens"
    return round(share * decided.draft_tokens.value, 6) if counted else share


def _length_fields(kind: Kind, version: str) -> tuple[str, ...]:
    """Return the fields that say how much is drafted: none where the kind chooses for itself.

    MTP has one of its own where the release does not fill it in.
    """
    if own_length(kind, version, batch=1) is not None:
        return ()
    own = speculation_field(kind, "num_nextn_predict_layers", version)
    return FIELDS["draft_tokens"] if own is not None and not own.internal else ("max_draft_len",)


def _known(kind: Kind, key: str, version: str) -> str:
    names = FIELDS[key]
    return next((name for name in names if speculation_field(kind, name, version) is not None), names[0])
