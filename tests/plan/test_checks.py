"""Every rule: a case in which it speaks, what it says, and that it is silent otherwise; and the page about them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.specs import (
    hardware,
    llama,
    llama_8b,
    llama_70b,
    llama_405b,
    maverick,
    profile,
    qwen3_moe,
    rehearsal,
    smollm2,
)
from trtllm_kit.findings import Finding, Severity
from trtllm_kit.plan.checks import RULES
from trtllm_kit.plan.settle import settle
from trtllm_kit.spec.hardware import Hardware
from trtllm_kit.spec.model import Attention, Layer, ModelSpec

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "checks.md"


def findings(model: ModelSpec, machine: Hardware, changes: Mapping[str, Any] | None = None) -> tuple[Finding, ...]:
    """Plan and return what the checks found."""
    return settle(model, profile(changes), machine).findings


def sliding(window: int) -> ModelSpec:
    """Make a small Mistral with one window."""
    attention = Attention(kind="sliding", heads=32, kv_heads=8, head_dim=128, window=window)
    layers = tuple(Layer(attention=attention, feed_forward=layer.feed_forward) for layer in llama_8b().layers)
    changes = {"layers": layers, "family": "mistral", "architecture": "MistralForCausalLM"}
    return llama_8b().model_copy(update=changes)


def with_facts(model: ModelSpec, **facts: Any) -> ModelSpec:
    """Return a model with some facts changed."""
    return model.model_copy(update=facts)


ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO
SPEAKS: list[tuple[str, Severity, ModelSpec, Hardware, dict[str, Any], str, str]] = [
    ("PF1", ERROR, smollm2(), hardware(8), {"parallelism.tensor": 2},
     "9 heads / 2 tensor ranks", "parallelism.tensor: 1 (legal here: 1, 3)"),
    ("PF2", ERROR, smollm2(), hardware(8), {"parallelism.tensor": 2},
     "3 KV heads, 2 tensor ranks", "parallelism.tensor: 1 (legal here: 1, 3)"),
    ("PF2", WARNING, llama_8b(), hardware(16), {"parallelism.tensor": 16},
     "8 KV heads, 16 tensor ranks, 1 a rank", "parallelism.tensor: 8"),
    ("PF2", INFO, qwen3_moe(), hardware(8), {"parallelism.tensor": 8},
     "4 KV heads, 8 tensor ranks, 1 a rank", "nothing to do: 4 ranks hold too few sequences"),
    ("PF3", ERROR, llama(2, 3200, 32, 32, 8640), hardware(), {},
     "100 is not a multiple of 8", "pad the weights to heads of 104, or use another model"),
    ("PF4", INFO, llama(2, 4096, 32, 8, 14336, vocab=32001), hardware(2), {"parallelism.tensor": 2},
     "32,001 words padded to 32,002 over 2 ranks", "nothing to do"),
    ("PF6", ERROR, llama(2, 64, 8, 8, 100), hardware(8), {"parallelism.tensor": 8},
     "100 / 8 ranks", "parallelism.tensor: 4 (legal here: 1, 2, 4)"),
    ("PF7", ERROR, llama_8b(), hardware(capability=80), {"quantization.weights": "fp8"},
     "compute capability 80; fp8 runs on 89, 90, 100, 103, 120", "quantization.weights: bf16"),
    ("PF7", WARNING, llama_8b(), hardware(capability=80), {"quantization.weights": "fp8", "trtllm_version": "main"},
     "compute capability 80", "quantization.weights: bf16"),
    ("PF8", ERROR, llama_8b(), hardware(capability=75), {"quantization.kv_cache": "fp8"},
     "compute capability 75; fp8 runs on 80, 86", "choose hardware with a newer GPU"),
    ("PF8", WARNING, llama_8b(), hardware(), {"quantization.kv_cache": "fp8"},
     "weights bf16, kv_cache fp8", "quantization.weights: fp8, or quantization.kv_cache: bf16"),
    ("PF8", WARNING, with_facts(llama_8b(), family="qwen2", architecture="Qwen2ForCausalLM"), hardware(),
     {"quantization.kv_cache": "fp8", "quantization.weights": "fp8"},
     "family qwen2, kv_cache fp8", "quantization.kv_cache: bf16, or compare both with trtkit evaluate"),
    ("PF11", ERROR, smollm2(), hardware(), {"limits.max_seq_len": 16384},
     "max_seq_len 16,384, the model's positions 8,192", "limits.max_seq_len: 8192"),
    ("PF12", ERROR, with_facts(llama_8b(), quantized_as="awq"), hardware(), {},
     "quant_method is awq", "give the folder of the model's 16-bit original"),
    ("PF12", WARNING, maverick(), hardware(8), {"quantization.weights": "fp8"},
     "weights fp8, family llama4", "quantization.weights: bf16"),
    ("PF13", WARNING, maverick(), hardware(8), {"toolchain": "mock"},
     "through trtllm-build: listed for no release", "toolchain: llm-api with trtllm_version: 1.2.1"),
    ("PF13", WARNING, with_facts(maverick(), architecture="Llama4ForCausalLM"), hardware(8), {},
     "listed for 1.0.0 to main", "trtllm_version: main"),
    ("PF18", ERROR, llama_70b(), hardware(), {},
     "640.00 MiB needed for the KV cache, 0 B left for it; the other terms take 136.31 GiB of 80.00 GiB",
     "lower load.min_concurrency or choose hardware with more memory"),
    ("PF18", ERROR, llama_8b(), hardware(1, 24), {"limits.max_seq_len": 131072},
     "16.00 GiB needed", "limits.max_seq_len: 35136"),
    ("PF19", WARNING, llama_8b(), hardware(), {"trtllm_version": "1.3.0rc14"},
     "up to 1.2.1", "trtllm_version: 1.2.1"),
    ("PF20", ERROR, llama_70b(), hardware(2), {"parallelism.tensor": 4},
     "4 ranks, 2 GPUs", "parallelism.tensor: 2 (legal here: 1, 2)"),
    ("PF20", WARNING, llama_70b(), hardware(8, nodes=2), {"parallelism.tensor": 16},
     "16 tensor ranks, 8 GPUs", "parallelism.tensor: 8 with parallelism.pipeline: 2"),
    ("PF22", ERROR, llama_8b(), hardware(), {"load.input_tokens": 4000, "load.output_tokens": 1000},
     "4,000 input + 1,000 output = 5,000, max_seq_len 4,096", "limits.max_seq_len: 5000"),
    ("PF22", ERROR, llama_8b(), hardware(),
     {"load.input_tokens": 3000, "limits.max_num_tokens": 2048, "scheduler.chunked_prefill": False},
     "3,000 input tokens, max_num_tokens 2,048", "scheduler.chunked_prefill: true"),
    ("PF22", ERROR, llama_8b(), hardware(), {"load.min_concurrency": 64},
     "min_concurrency 64, max_batch_size 32", "limits.max_batch_size: 64"),
    ("PF22", WARNING, llama_8b(), hardware(), {"limits.max_batch_size": 1024, "limits.max_num_tokens": 512},
     "1,024 tokens (requests x beams), max_num_tokens 512", "limits.max_num_tokens: 1024"),
    ("PF22", WARNING, llama_8b(), hardware(), {"limits.max_beam_width": 32},
     "max_beam_width 32, 16 were seen to work", "limits.max_beam_width: 16"),
    ("PF23", WARNING, sliding(1024), hardware(), {},
     "window 1,024, max_seq_len 4,096", "kv_cache.enable_block_reuse: false"),
    ("PF24", ERROR, llama_8b(), hardware(), {"trtllm_version": "1.0.0", "kv_cache.tokens_per_block": 64},
     "runtime.tokens_per_block is 64, 1.0.0 always uses 32; the key is in 1.1.0",
     "kv_cache.tokens_per_block: 32, or trtllm_version: main"),
    ("PF26", ERROR, llama_8b(), hardware(), {"trtllm_version": "main", "toolchain": "mock"},
     "main has llm-api", "toolchain: auto"),
    ("PF26", ERROR, llama_8b(), hardware(), {"trtllm_version": "0.21"},
     "trtkit runs llm-api, mock", "trtllm_version: 1.2.1, or toolchain: mock to rehearse the engine road"),
    ("PF27", ERROR, llama_8b(), hardware(), {"kv_cache.tokens_per_block": 48},
     "tokens_per_block 48", "kv_cache.tokens_per_block: 32"),
    ("PF28", ERROR, qwen3_moe(2), hardware(8), {"parallelism.tensor": 8, "parallelism.expert": 3},
     "8 tensor ranks / 3 expert ranks", "parallelism.expert: 2 (legal with tensor 8: 1, 2, 4, 8)"),
    ("PF20", ERROR, llama_70b(), hardware(2), {"parallelism.pipeline": 4},
     "4 ranks, 2 GPUs", "parallelism.pipeline: 1 and parallelism.tensor: auto; test has 2 GPUs"),
    ("PF28", ERROR, llama_70b(), hardware(2), {"parallelism.expert": 2},
     "expert 2, 0 experts", "parallelism.expert: 1"),
    ("PF29", ERROR, smollm2(), rehearsal(), {},
     "hardware cpu-rehearsal is a cpu", "runtime: reference (real text) or runtime: simulated (paced tokens)"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "severity", "model", "machine", "changes", "compared", "suggestion"), SPEAKS)
def test_a_rule_names_the_numbers_and_what_works(
    rule: str, severity: Severity, model: ModelSpec, machine: Hardware, changes: dict[str, Any], compared: str,
    suggestion: str,
) -> None:  # fmt: skip
    """Each finding has its severity, the numbers compared and the nearest setting that works."""
    said = [finding for finding in findings(model, machine, changes) if finding.rule == rule]
    assert [severity] == [finding.severity for finding in said if compared in finding.compared][:1], said
    assert suggestion in [finding.suggestion for finding in said]


SUGGESTED = re.compile(r"([a-z_]+(?:\.[a-z_]+)?): ([a-z0-9._-]+)")


@pytest.mark.parametrize(
    ("rule", "model", "machine", "changes", "suggestion"),
    [(row[0], row[2], row[3], row[4], row[6]) for row in SPEAKS if SUGGESTED.match(row[6])],
)
def test_the_suggested_setting_silences_the_rule(
    rule: str, model: ModelSpec, machine: Hardware, changes: dict[str, Any], suggestion: str
) -> None:
    """Following a suggestion of the form ``key: value`` ends the finding it came with."""
    numbers = {
        key: yaml_value(value) for key, value in SUGGESTED.findall(suggestion.partition(" (")[0].partition(", or")[0])
    }
    before = [finding for finding in findings(model, machine, changes) if finding.suggestion == suggestion]
    after = findings(model, machine, changes | numbers)
    assert before
    assert not [finding for finding in after if finding.rule == rule and finding.message == before[0].message]


def yaml_value(text: str) -> object:
    """Read a suggested value as YAML would."""
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.isdigit() else text


@pytest.mark.parametrize(
    ("model", "machine", "changes"),
    [
        (llama_8b(), hardware(), {}),
        (llama_70b(), hardware(8), {}),
        (qwen3_moe(), hardware(8, 141), {"parallelism.tensor": 4}),
        (
            smollm2(),
            rehearsal(),
            {"runtime": "reference", "quantization.weights": "fp8", "quantization.kv_cache": "fp8"},
        ),
        (llama_8b(), hardware(), {"toolchain": "mock"}),
        (llama_8b(), hardware(capability=120), {"quantization.weights": "fp8", "quantization.kv_cache": "fp8"}),
        (sliding(4096), hardware(), {}),
        (llama_8b(), hardware(), {"trtllm_version": "1.0.0"}),
    ],
)
def test_a_sound_profile_has_no_finding(model: ModelSpec, machine: Hardware, changes: dict[str, Any]) -> None:
    """Rules are silent when nothing is wrong."""
    assert () == findings(model, machine, changes)


def test_errors_come_first() -> None:
    """What stops a verb is shown before what only warns."""
    changes = {"parallelism.tensor": 16, "kv_cache.tokens_per_block": 48, "limits.max_beam_width": 32}
    severities = [finding.severity for finding in findings(llama_8b(), hardware(16), changes)]
    assert [Severity.ERROR, Severity.WARNING, Severity.WARNING] == severities


def test_every_rule_has_a_case_above_and_an_id_of_its_own() -> None:
    """A rule without a case that makes it speak is not tested."""
    ids = [rule.id for rule in RULES]
    assert len(ids) == len(set(ids))
    assert set(ids) == {row[0] for row in SPEAKS}


def test_the_page_has_a_heading_for_every_rule() -> None:
    """docs/reference/checks.md lists exactly the rules that run, with their titles."""
    headings = re.findall(r"^## (PF\d+): (.+)$", PAGE.read_text("utf-8"), re.MULTILINE)
    assert sorted((rule.id, rule.title) for rule in RULES) == sorted(headings)


def test_a_rehearsal_has_no_gpu_gate() -> None:
    """The CPU runtimes compute in float32, so no format is refused there."""
    changes = {"runtime": "reference", "quantization.weights": "fp8", "quantization.kv_cache": "fp8"}
    assert () == findings(smollm2(), rehearsal(), changes)


def test_405b_over_32_ranks_is_a_warning_only() -> None:
    """The shipped use of copied KV heads can be run."""
    changes = {"quantization.weights": "fp8", "quantization.kv_cache": "fp8", "parallelism.tensor": 32}
    found = findings(llama_405b(), hardware(2, 95, nodes=16, nvlink=32), changes)
    assert [("PF2", Severity.WARNING)] == [(finding.rule, finding.severity) for finding in found]
