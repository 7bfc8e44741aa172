"""PF25: speculation against the release, the other settings, the model and the draft model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.specs import hardware, llama_8b, profile, rehearsal
from trtllm_kit.findings import Finding, Severity
from trtllm_kit.plan.settle import settle
from trtllm_kit.spec.draft import DraftFacts
from trtllm_kit.spec.model import ModelSpec

ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO
EAGLE = {"kind": "eagle3", "draft_tokens": 3, "draft_checkpoint": "x"}
MTP = {"kind": "mtp", "draft_tokens": 1}
NGRAM = {"kind": "ngram", "draft_tokens": 3}
TARGET = {"kind": "draft_target", "draft_tokens": 3, "draft_checkpoint": "x"}
PARD = {"kind": "pard", "draft_tokens": 4, "draft_checkpoint": "x"}
SUFFIX = {"kind": "sa", "draft_tokens": 4}
AUTO = {"kind": "auto", "draft_tokens": 4}
MEDUSA = {"kind": "medusa", "draft_tokens": 4}
GATE = {"acceptance_threshold": 0.6, "acceptance_window": 32}
HEAD = DraftFacts(
    architectures=("LlamaForCausalLMEagle3",), hidden_size=4096, intermediate_size=14336, num_hidden_layers=1,
    num_attention_heads=32, num_key_value_heads=8, vocab_size=128256, draft_vocab_size=32000, tokenizer_sha256="a" * 64,
)  # fmt: skip


def found(
    changes: dict[str, Any], draft: DraftFacts | str | None = HEAD, model: ModelSpec | None = None, **more: Any
) -> list[Finding]:
    """Return what PF25 says of 8B on two large GPUs."""
    loaded = replace(profile(changes), draft=draft, **more)
    plan = settle(model or llama_8b(), loaded, hardware(2, 192, 100))
    return [finding for finding in plan.findings if finding.rule == "PF25"]


def with_layers(count: int) -> ModelSpec:
    """Make 8B with prediction layers."""
    return llama_8b().model_copy(update={"prediction_layers": count})


SPEAKS: list[tuple[Severity, dict[str, Any], ModelSpec, str, str]] = [
    (ERROR, {"speculation": EAGLE | GATE, "trtllm_version": "1.1.0"}, llama_8b(),
     "acceptance_rate_threshold or acceptance_length_threshold is in main, 1.2.1", "trtllm_version: 1.2.0"),
    (WARNING, {"speculation": EAGLE | GATE, "trtllm_version": "1.3.0rc14"}, llama_8b(),
     "acceptance_window is 32", "leave speculation.acceptance_window out"),
    (ERROR, {"speculation": EAGLE | {"capture_layers": (1, 2, 3)}, "trtllm_version": "1.0.0"}, llama_8b(),
     "eagle3_layers_to_capture is in 1.1.0, 1.2.1, main", "leave speculation.capture_layers out"),
    (WARNING, {"speculation": TARGET, "trtllm_version": "1.3.0rc14"}, llama_8b(),
     "decoding_type Draft_Target, of DraftTarget, Draft_Target", "or try it"),
    (ERROR, {"speculation": PARD, "trtllm_version": "1.2.1"}, llama_8b(),
     "llm-api with 1.2.1; it drafts with eagle3, mtp, ngram, draft_target, auto", "trtllm_version: main"),
    (ERROR, {"speculation": SUFFIX, "trtllm_version": "1.0.0"}, llama_8b(),
     "llm-api with 1.0.0; it drafts with eagle3, mtp", "trtllm_version: main"),
    (WARNING, {"speculation": SUFFIX, "trtllm_version": "1.2.0"}, llama_8b(), "llm-api with 1.2.0", "trtllm_version:"),
    (ERROR, {"speculation": MEDUSA, "trtllm_version": "1.2.0", "toolchain": "llm-api"}, llama_8b(),
     "llm-api with 1.2.0", "toolchain: trtllm-build"),
    (WARNING, {"speculation": PARD, "parallelism.pipeline": 2, "trtllm_version": "main"}, llama_8b(),
     "parallelism.pipeline 2", "parallelism.pipeline: 1"),
    (WARNING, {"speculation": AUTO, "engine.overlap_scheduler": True}, llama_8b(),
     "engine.overlap_scheduler true", "engine.overlap_scheduler: auto"),
    (ERROR, {"speculation": EAGLE, "parallelism.pipeline": 2}, llama_8b(),
     "parallelism.pipeline 2", "parallelism.pipeline: 1"),
    (WARNING, {"speculation": EAGLE, "parallelism.pipeline": 2, "trtllm_version": "1.1.0"}, llama_8b(),
     "parallelism.pipeline 2", "parallelism.pipeline: 1"),
    (WARNING, {"speculation": NGRAM, "parallelism.pipeline": 2}, llama_8b(),
     "parallelism.pipeline 2", "parallelism.pipeline: 1"),
    (ERROR, {"speculation": MTP, "limits.max_beam_width": 2, "trtllm_version": "1.1.0"}, with_layers(1),
     "limits.max_beam_width 2", "limits.max_beam_width: 1"),
    (WARNING, {"speculation": EAGLE, "limits.max_beam_width": 2}, llama_8b(),
     "limits.max_beam_width 2", "limits.max_beam_width: 1"),
    (WARNING, {"speculation": MTP, "kv_cache.max_attention_window": (1024,), "trtllm_version": "1.1.0"},
     with_layers(1), "a window of 1,024 tokens, limits.max_seq_len 4,096", "leave speculation out"),
    (WARNING, {"speculation": NGRAM, "engine.overlap_scheduler": True}, llama_8b(),
     "engine.overlap_scheduler true", "engine.overlap_scheduler: auto"),
    (ERROR, {"speculation": MTP}, llama_8b(), "config.json states 0 of them", "speculation.kind: ngram"),
    (WARNING, {"speculation": MTP | {"draft_tokens": 5}}, with_layers(3),
     "speculation.draft_tokens 5, 3 prediction layers", "speculation.draft_tokens: 3"),
    (ERROR, {"speculation": EAGLE | {"capture_layers": (1, 15, 32)}}, llama_8b(),
     "capture_layers 32, the model has 32 layers from 0 on", "speculation.capture_layers: [1, 15, 28]"),
]  # fmt: skip


@pytest.mark.parametrize(("severity", "changes", "model", "compared", "suggestion"), SPEAKS)
def test_the_rule_names_the_numbers_and_what_works(
    severity: Severity, changes: dict[str, Any], model: ModelSpec, compared: str, suggestion: str
) -> None:
    """Each finding has its severity, the numbers compared and what to change."""
    said = [finding for finding in found(changes, model=model) if compared in finding.compared]
    assert [severity] == [finding.severity for finding in said], found(changes, model=model)
    assert suggestion in said[0].suggestion


@pytest.mark.parametrize("version", ["1.0.0", "1.1.0", "1.2.1", "1.3.0rc14", "main"])
@pytest.mark.parametrize("asked", [EAGLE, MTP, NGRAM, AUTO])
def test_sound_speculation_is_silent_in_every_release(version: str, asked: dict[str, Any]) -> None:
    """What each release has, under the name it has, is no finding."""
    assert [] == found({"speculation": asked, "trtllm_version": version}, model=with_layers(1))


@pytest.mark.parametrize("version", ["1.3.0rc14", "main"])
@pytest.mark.parametrize("asked", [PARD, SUFFIX | {"max_ngram": 3}, SUFFIX])
def test_kinds_of_1_3_are_silent_from_there_on(version: str, asked: dict[str, Any]) -> None:
    """A parallel draft model and the suffix automaton are taken by the releases that have them."""
    assert [] == found({"speculation": asked, "trtllm_version": version})


@pytest.mark.parametrize(
    ("facts", "severity", "compared"),
    [
        (
            {"vocab_size": 32000, "draft_vocab_size": None},
            ERROR,
            "vocab_size 32,000 of the draft, 128,256 of the model",
        ),
        ({"vocab_size": 128_384}, WARNING, "vocab_size 128,384 of the draft, 128,256 of the model"),
        ({"vocab_size": 128_000}, WARNING, "vocab_size 128,000 of the draft, 128,256 of the model"),
        ({"vocab_size": 127_999}, ERROR, "vocab_size 127,999 of the draft, 128,256 of the model"),
        ({"draft_vocab_size": 200000}, ERROR, "draft_vocab_size 200,000, vocab_size 128,256"),
        ({"hidden_size": 2048}, ERROR, "2,048 of the head, 4,096 of the model"),
        ({"target_hidden_size": 8192}, ERROR, "8,192 of the head, 4,096 of the model"),
        ({"architectures": ("LlamaForCausalLMEagle",)}, WARNING, "architecture LlamaForCausalLMEagle"),
        ({"architectures": ("LlamaForCausalLM",)}, WARNING, "LlamaForCausalLMEagle3 is the usual one"),
        ({"architectures": ()}, WARNING, "architecture not named"),
    ],
)
def test_a_draft_that_does_not_fit_the_model_is_named(facts: dict[str, Any], severity: Severity, compared: str) -> None:
    """Vocabulary, width and architecture are compared with the model's."""
    said = found({"speculation": EAGLE}, HEAD.model_copy(update=facts))
    assert [severity] == [finding.severity for finding in said]
    assert compared in said[0].compared


def test_a_narrow_head_that_says_what_it_reads_fits() -> None:
    """The hidden state it reads counts, not its own width."""
    assert [] == found(
        {"speculation": EAGLE}, HEAD.model_copy(update={"hidden_size": 2048, "target_hidden_size": 4096})
    )


def test_a_whole_draft_model_needs_the_same_words_only() -> None:
    """Width and architecture of a draft model are its own business."""
    small = HEAD.model_copy(update={"hidden_size": 2048, "architectures": ("LlamaForCausalLM",)})
    assert [] == found({"speculation": TARGET}, small)
    assert [] == found({"speculation": PARD, "trtllm_version": "main"}, small)


def test_a_draft_that_is_not_here_is_a_warning_and_a_broken_one_an_error() -> None:
    """What was not checked is said; what cannot be read would not load either."""
    absent, broken = found({"speculation": EAGLE}, None), found({"speculation": EAGLE}, "its config.json is no JSON")
    assert [WARNING] == [finding.severity for finding in absent]
    assert "nothing of it was checked" in absent[0].message
    assert [(ERROR, "its config.json is no JSON")] == [(finding.severity, finding.compared) for finding in broken]


@pytest.mark.parametrize(("own", "count"), [("a" * 64, 0), ("b" * 64, 1), (None, 0)])
def test_tokenizers_are_compared_when_both_are_here(own: str | None, count: int) -> None:
    """Different files are a warning, since equal words may have other numbers."""
    said = found({"speculation": EAGLE}, target_tokenizer_sha256=own)
    assert count == len(said)
    assert all(finding.severity is WARNING for finding in said)


def test_a_rehearsal_says_that_it_drafts_nothing() -> None:
    """Speculation stays in the profile and is left to the real runtime."""
    plan = settle(llama_8b(), profile({"speculation": NGRAM, "runtime": "simulated"}), rehearsal(64))
    said = [finding for finding in plan.findings if finding.rule == "PF25"]
    assert [INFO] == [finding.severity for finding in said]
