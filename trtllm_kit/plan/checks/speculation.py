"""Checks of speculative decoding: against the release, the other features, the model, and the draft model."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from trtllm_kit.findings import Finding, Severity
from trtllm_kit.plan.checks import built
from trtllm_kit.plan.checks.case import Case, Rule
from trtllm_kit.plan.plan import SpeculationPlan
from trtllm_kit.plan.speculation_keys import FIELDS, speculation_settings
from trtllm_kit.spec.draft import DraftFacts
from trtllm_kit.upstream import nearest_release
from trtllm_kit.upstream.bounds import bound
from trtllm_kit.upstream.combinations import speculation_with
from trtllm_kit.upstream.speculation import (
    ENGINE_KINDS,
    Kind,
    api_kinds,
    builder_mode,
    decoding_type,
    draft_architecture,
    releases_read,
    releases_with_field,
    speculation_field,
)


def speculation(case: Case) -> Iterator[Finding]:
    """PF25: speculation that the release, the other settings, the model or the draft model do not go with."""
    decided = case.plan.speculation
    if decided is None:
        return
    if case.plan.runtime.runtime.value != "tensorrt_llm":
        yield _found(
            Severity.INFO,
            f"The {case.plan.runtime.runtime.value} runtime drafts nothing: speculation is left to the real one.",
            f"runtime {case.plan.runtime.runtime.value}, speculation.kind {decided.kind.value}",
            "nothing to do in a rehearsal",
        )
    if case.plan.toolchain.value == "llm-api":
        yield from _of_the_api(case, decided)
    yield from (finding for finding in built.requests(case) if finding.rule == "PF25")
    if decided.kind.value == "mtp":
        yield from _prediction_layers(case, decided)
    if decided.draft_checkpoint is not None:
        yield from _draft(case, decided.kind.value, decided.draft_checkpoint.value)


def _of_the_api(case: Case, decided: SpeculationPlan) -> Iterator[Finding]:
    """Yield what the LLM API of the release says of the kind: no such kind, no such fields, not beside that feature."""
    if decoding_type(decided.kind.value, case.plan.release.value) is None:
        yield _no_such_kind(decided.kind.value, case.plan.release.value)
        return
    yield from _fields(case, decided)
    yield from _spelling(case, decided.kind.value)
    yield from _features(case, decided)


def _no_such_kind(kind: Kind, version: str) -> Finding:
    """Return that a kind is engines' alone, or not the release's; only near ones speak for one that was not read."""
    sure = kind in ENGINE_KINDS or version in releases_read()
    nearest = nearest_release(version, lambda name: decoding_type(kind, name) is not None)
    ways = ["speculation.kind: eagle3 for a head of EAGLE-3"] if kind == "eagle" else []
    ways += ["toolchain: trtllm-build"] if builder_mode(kind, version) else []
    ways += [f"trtllm_version: {nearest}"] if nearest else []
    return _found(
        Severity.ERROR if sure else Severity.WARNING,
        f"The PyTorch backend of {version} has no speculation of kind {kind}."
        if sure
        else f"Speculation of kind {kind} is not confirmed for release {version}, so none is written.",
        f"toolchain llm-api with {version}; it drafts with {', '.join(api_kinds(version))}",
        ", or ".join(ways) or "speculation.kind: ngram",
    )


def _fields(case: Case, decided: SpeculationPlan) -> Iterator[Finding]:
    """Yield settings that the release has no field for."""
    kind, version = decided.kind.value, case.plan.release.value
    for key, field, value in speculation_settings(decided, version):
        if speculation_field(kind, field, version) is not None:
            continue
        nearest = nearest_release(version, partial(_takes, kind, FIELDS[key]))
        have = [name for known in FIELDS[key] for name in releases_with_field(kind, known)]
        was_read = version in releases_read()
        left_out = "has no field" if was_read else "is not known to have a field, so none is written,"
        yield _found(
            Severity.ERROR if was_read else Severity.WARNING,
            f"Release {version} {left_out} for speculation.{key} of kind {kind}.",
            f"{key} is {value}; {' or '.join(FIELDS[key])} is in {', '.join(have) or 'none'}",
            f"leave speculation.{key} out" + (f", or trtllm_version: {nearest}" if nearest else ""),
        )


def _spelling(case: Case, kind: Kind) -> Iterator[Finding]:
    """Yield a word for the kind that was read in other releases, when those do not agree."""
    version = case.plan.release.value
    word = decoding_type(kind, version)
    if word is None or word.certainty == "read":
        return
    others = [other for name in releases_read() if (other := decoding_type(kind, name)) is not None]
    if not all(other.takes(word.literal) for other in others):
        spelt = sorted({other.literal for other in others})
        nearest = nearest_release(version, partial(_was_read, kind))
        yield _found(
            Severity.WARNING,
            f"How release {version} spells the kind {kind} was not read; the releases around it disagree.",
            f"decoding_type {word.literal}, of {', '.join(spelt)}",
            f"trtllm_version: {nearest}, or try it",
        )


def _features(case: Case, decided: SpeculationPlan) -> Iterator[Finding]:
    """Yield features that do not go together with the kind in that release."""
    plan = case.plan
    windows = min(plan.runtime.max_attention_window.value, default=plan.limits.max_seq_len.value)
    tried = {
        "pipeline": (case.split.pipeline > 1, f"parallelism.pipeline {case.split.pipeline}", "parallelism.pipeline: 1"),
        "beams": (
            plan.limits.max_beam_width.value > 1,
            f"limits.max_beam_width {plan.limits.max_beam_width.value}",
            "limits.max_beam_width: 1",
        ),
        "sliding_window": (
            windows < plan.limits.max_seq_len.value,
            f"a window of {windows:,} tokens, limits.max_seq_len {plan.limits.max_seq_len.value:,}",
            "leave speculation out, or another release",
        ),
        "overlap": (
            plan.engine.overlap_scheduler.value,
            "engine.overlap_scheduler true",
            "engine.overlap_scheduler: auto",
        ),
    }
    kind, version = decided.kind.value, plan.release.value
    for feature, (used, compared, suggestion) in tried.items():
        known = speculation_with(kind, feature, version) if used else None
        if known is None:
            continue
        refused = known.certainty == "read" and feature in ("pipeline", "beams")
        yield _found(
            Severity.ERROR if refused else Severity.WARNING,
            f"{kind} and {feature.replace('_', ' ')} together {known.note} in release {version}.",
            f"speculation.kind {kind}, {compared}",
            suggestion,
        )


def _prediction_layers(case: Case, decided: SpeculationPlan) -> Iterator[Finding]:
    layers, tokens = case.plan.model.prediction_layers, decided.draft_tokens.value
    if not layers:
        yield _found(
            Severity.ERROR,
            "The model has no prediction layers that could draft.",
            "config.json states 0 of them (num_nextn_predict_layers), speculation.kind mtp",
            "speculation.kind: ngram, or eagle3 with a draft_checkpoint made for the model",
        )
    elif 1 < layers < tokens:
        yield _found(
            Severity.WARNING,
            "More tokens are drafted than the model has prediction layers.",
            f"speculation.draft_tokens {tokens}, {layers} prediction layers",
            f"speculation.draft_tokens: {layers}",
        )


def _draft(case: Case, kind: Kind, named: str) -> Iterator[Finding]:
    facts = case.loaded.draft
    if facts is None:
        yield _found(
            Severity.WARNING,
            f"Draft model {named} is not here, so nothing of it was checked: vocabulary, width, architecture.",
            f"speculation.draft_checkpoint {named} is no folder of this machine; the plan counts an estimate",
            "plan where the folder is, or check its config.json against the model's",
        )
    elif isinstance(facts, str):
        yield _found(Severity.ERROR, "The draft model cannot be read.", facts, "speculation.draft_checkpoint: FOLDER")
    else:
        yield from _vocabulary(case, facts)
        yield from _tokenizers(case, facts)
        if kind == "eagle3":
            yield from _head(case, facts)


def _vocabulary(case: Case, facts: DraftFacts) -> Iterator[Finding]:
    words, padding = case.plan.model.vocab, bound("vocabulary_padding").value
    if facts.vocab_size != words:
        padded = abs(facts.vocab_size - words) <= padding
        yield _found(
            Severity.WARNING if padded else Severity.ERROR,
            "The draft model has another vocabulary than the model it drafts for"
            + (", or the same one with other padding." if padded else "."),
            f"vocab_size {facts.vocab_size:,} of the draft, {words:,} of the model",
            "speculation.draft_checkpoint: a draft made for this model",
        )
    drafted = facts.draft_vocab_size
    if drafted is not None and drafted > facts.vocab_size:
        yield _found(
            Severity.ERROR,
            "The draft model can draft words that its vocabulary does not have.",
            f"draft_vocab_size {drafted:,}, vocab_size {facts.vocab_size:,}",
            "speculation.draft_checkpoint: a draft whose config.json is sound",
        )


def _tokenizers(case: Case, facts: DraftFacts) -> Iterator[Finding]:
    own, theirs = case.loaded.target_tokenizer_sha256, facts.tokenizer_sha256
    if own is not None and theirs is not None and own != theirs:
        yield _found(
            Severity.WARNING,
            "The tokenizers of the draft and of the model are different files; equal words may have other numbers.",
            f"sha256 of tokenizer.json {theirs[:12]} of the draft, {own[:12]} of the model",
            "compare the two vocabularies, or take a draft made for this model",
        )


def _head(case: Case, facts: DraftFacts) -> Iterator[Finding]:
    """Yield what keeps an EAGLE-3 head from reading this model's hidden states."""
    model, read = case.plan.model, facts.target_hidden_size or facts.hidden_size
    if read != model.hidden:
        yield _found(
            Severity.ERROR,
            "The EAGLE-3 head was trained for hidden states of another width.",
            f"{read:,} of the head, {model.hidden:,} of the model",
            "speculation.draft_checkpoint: a head made for this model",
        )
    known = draft_architecture(facts.architecture)
    if known is not None and not known.eagle3:
        yield _found(
            Severity.ERROR if known.certainty == "read" else Severity.WARNING,
            "The draft is no EAGLE-3 head but one of the first EAGLE, which the PyTorch backend answers with nonsense.",
            f"architecture {facts.architecture}",
            "speculation.draft_checkpoint: an EAGLE-3 head (LlamaForCausalLMEagle3)",
        )
    elif known is None:
        yield _found(
            Severity.WARNING,
            "The architecture of the draft is none that is known for an EAGLE-3 head.",
            f"architecture {facts.architecture or 'not named'}, LlamaForCausalLMEagle3 is the usual one",
            "speculation.kind: draft_target for a whole model",
        )
    layers = case.plan.speculation.capture_layers if case.plan.speculation else None
    beyond = [layer for layer in (layers.value if layers else ()) if layer >= len(model.layers)]
    if beyond:
        yield _found(
            Severity.ERROR,
            "Hidden states of layers are asked for that the model does not have.",
            f"capture_layers {', '.join(map(str, beyond))}, the model has {len(model.layers)} layers from 0 on",
            f"speculation.capture_layers: [1, {len(model.layers) // 2 - 1}, {len(model.layers) - 4}]",
        )


def _was_read(kind: Kind, version: str) -> bool:
    word = decoding_type(kind, version)
    return word is not None and word.certainty == "read"


def _takes(kind: Kind, fields: tuple[str, ...], version: str) -> bool:
    return any(speculation_field(kind, field, version) is not None for field in fields)


def _found(severity: Severity, message: str, compared: str, suggestion: str) -> Finding:
    return Finding(rule="PF25", severity=severity, message=message, compared=compared, suggestion=suggestion)


RULES = (
    Rule(
        "PF25",
        "Speculation against the release, the model and the draft model",
        speculation,
        keys=(
            "speculation",
            "parallelism.pipeline",
            "limits.max_beam_width",
            "engine.overlap_scheduler",
            "trtllm_version",
        ),
    ),
)
