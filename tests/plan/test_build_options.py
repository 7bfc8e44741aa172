"""Options of trtllm-build: each is chosen for a reason, and none is passed to a release that does not take it."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.support.specs import hardware, llama_8b, profile, qwen3_moe
from trtllm_kit.build.llm_api import llm_api_document
from trtllm_kit.build.step import Run
from trtllm_kit.build.toolchain import steps
from trtllm_kit.findings import Severity, errors
from trtllm_kit.plan.plan import Plan
from trtllm_kit.plan.settle import settle
from trtllm_kit.upstream import known_releases, release
from trtllm_kit.upstream.llm_api import unknown_llm_api_keys
from trtllm_kit.upstream.trtllm_build import build_flag, build_flags

BUILT = tuple(name for name in known_releases() if "trtllm-build" in release(name).toolchains)
ENGINES = {"toolchain": "trtllm-build", "trtllm_version": "0.20.0"}
FP8 = {"quantization.weights": "fp8", "quantization.kv_cache": "fp8"}


def plan_of(changes: dict[str, Any] | None = None, gpus: int = 8) -> Plan:
    """Plan engines of 8B for 0.20.0."""
    return settle(llama_8b(), profile(ENGINES | (changes or {})), hardware(gpus))


def value_of(made: Plan, name: str) -> object:
    """Return what an option is given; None when it is not passed."""
    assert made.build is not None
    decided = made.build.options.get(f"--{name}")
    return None if decided is None else decided.value


@pytest.mark.parametrize("version", BUILT)
def test_only_options_of_the_release_are_passed_and_all_that_flip(version: str) -> None:
    """Every option is in the release's table and takes its value; those whose default changed are always there."""
    made = plan_of({"trtllm_version": version})
    assert made.build is not None
    for name, decided in made.build.options.items():
        row = build_flag(version, name)
        assert row is not None, name
        assert row.accepts(decided.value), (name, decided.value)
        assert decided.reason
    flipping = {"max_batch_size", "tokens_per_block", "use_paged_context_fmha", "use_fp8_context_fmha", "gemm_plugin"}
    assert flipping <= {name.removeprefix("--") for name in made.build.options}


@pytest.mark.parametrize(
    ("changes", "name", "expected"),
    [
        ({}, "gemm_plugin", "auto"),
        (FP8, "gemm_plugin", "disable"),
        ({"build.options": {"weight_streaming": True}}, "gemm_plugin", "disable"),
        ({"quantization.weights": "fp8_rowwise"}, "fp8_rowwise_gemm_plugin", "auto"),
        ({}, "fp8_rowwise_gemm_plugin", "disable"),
        (FP8, "use_fp8_context_fmha", "enable"),
        ({"quantization.weights": "fp8"}, "use_fp8_context_fmha", "disable"),
        (FP8, "use_paged_context_fmha", "enable"),
        ({"quantization.kv_cache": "fp8"}, "use_paged_context_fmha", "disable"),
        ({"kv_cache.enable_block_reuse": False, "scheduler.chunked_prefill": False}, "use_paged_context_fmha",
         "disable"),
        ({"parallelism.tensor": 2}, "reduce_fusion", "enable"),
        ({"parallelism.tensor": 1}, "reduce_fusion", "disable"),
        ({"parallelism.tensor": 2, "parallelism.pipeline": 2}, "reduce_fusion", "enable"),
        ({"parallelism.tensor": 2, "parallelism.pipeline": 2, "trtllm_version": "0.18.2"}, "reduce_fusion", "disable"),
        ({"parallelism.tensor": 2} | FP8, "user_buffer", "enable"),
        ({"parallelism.tensor": 2}, "user_buffer", "disable"),
        ({"parallelism.tensor": 2, "trtllm_version": "0.15.0"} | FP8, "user_buffer", None),
        ({"trtllm_version": "0.12.0"}, "paged_kv_cache", "enable"),
        ({"trtllm_version": "0.12.0"}, "use_fused_mlp", True),
        ({"trtllm_version": "0.13.0"}, "use_fused_mlp", "enable"),
        ({"trtllm_version": "0.13.0"}, "paged_kv_cache", None),
        ({"trtllm_version": "0.13.0"}, "kv_cache_type", "paged"),
        ({"parallelism.tensor": 4, "parallelism.pipeline": 2}, "workers", 8),
        ({"build.options": {"workers": 1}}, "workers", 1),
        ({"build.options": {"multiple_profiles": "enable"}}, "opt_num_tokens", None),
        ({"build.options": {"lora_target_modules": ("attn_q",)}}, "lora_plugin", "bfloat16"),
        ({}, "lora_plugin", "disable"),
        ({"limits.max_seq_len": 2000}, "max_input_len", 2000),
        ({"speculation.kind": "ngram", "speculation.draft_tokens": 5}, "speculative_decoding_mode",
         "draft_tokens_external"),
        ({"speculation.kind": "ngram", "speculation.draft_tokens": 5}, "max_draft_len", 5),
        ({}, "speculative_decoding_mode", None),
    ],
)  # fmt: skip
def test_an_option_follows_the_plan(changes: dict[str, Any], name: str, expected: object) -> None:
    """Formats, ranks, limits, speculation and release decide; the profile overrides."""
    assert expected == value_of(plan_of(changes), name)


def test_experts_get_their_plugin() -> None:
    """A model with experts is built with their kernels."""
    made = settle(qwen3_moe(2), profile(ENGINES), hardware(8))
    assert "auto" == value_of(made, "moe_plugin")
    assert "disable" == value_of(plan_of(), "moe_plugin")


def test_an_option_of_the_profile_says_so() -> None:
    """What an operator sets is told apart from what a rule chose."""
    made = plan_of({"build.options": {"gemm_plugin": "fp8"}, "build.options.gemm_plugin": "fp8"})
    assert made.build is not None
    assert ("fp8", "profile") == (made.build.options["--gemm_plugin"].value, made.build.options["--gemm_plugin"].source)
    assert "rule" == made.build.options["--workers"].source


CASES: tuple[tuple[str, dict[str, Any], Severity | None, str, str], ...] = (
    ("unknown", {"build.options": {"gem_plugin": "auto"}}, Severity.ERROR, "no release has it", "gemm_plugin"),
    ("unread release", {"build.options": {"gem_plugin": "auto"}, "trtllm_version": "0.17.0"}, Severity.WARNING,
     "no release has it", "gemm_plugin"),
    ("too early", {"build.options": {"user_buffer": "enable"}, "trtllm_version": "0.15.0"}, Severity.WARNING,
     "0.16.0, 0.17.0", "trtllm_version: 0.16.0"),
    ("in time", {"build.options": {"user_buffer": "enable"}}, None, "", ""),
    ("gone", {"build.options": {"auto_parallel": 2}, "trtllm_version": "1.2.1"}, Severity.ERROR,
     "parallelism of the checkpoint takes its place", "leave build.options.auto_parallel out"),
    ("there still", {"build.options": {"auto_parallel": 2}, "trtllm_version": "1.1.0"}, None, "", ""),
    ("value", {"build.options": {"gemm_plugin": "fp16"}}, Severity.ERROR, "it takes one of auto", "float16"),
    ("yaml", {"build.options": {"multiple_profiles": True}}, Severity.ERROR, "multiple_profiles is true;", "enable"),
    ("place", {"build.options": {"output_dir": "/x"}}, Severity.ERROR, "trtkit sets it", "leave"),
    ("swiglu", {"build.options": {"gemm_swiglu_plugin": "fp8"}}, Severity.WARNING, "bf16 weights", "disable"),
    ("swiglu of fp8", {"build.options": {"gemm_swiglu_plugin": "fp8"}} | FP8, None, "", ""),
    ("swiglu without fusion", {"build.options": {"gemm_swiglu_plugin": "fp8", "use_fused_mlp": "disable"}} | FP8,
     Severity.ERROR, "use_fused_mlp disable", "use_fused_mlp: enable"),
    ("logits", {"build.options": {"gather_context_logits": True}, "speculation.kind": "ngram",
                "speculation.draft_tokens": 3}, Severity.WARNING, "max_draft_len 3", "gather_context_logits: false"),
    ("logits alone", {"build.options": {"gather_context_logits": True}}, None, "", ""),
    ("no drafts", {"build.options": {"speculative_decoding_mode": "lookahead_decoding"}}, Severity.WARNING,
     "max_draft_len 0", "max_draft_len: 4"),
    ("lookahead", {"build.options": {"speculative_decoding_mode": "lookahead_decoding", "max_draft_len": 4}}, None,
     "", ""),
    ("heads", {"build.options": {"speculative_decoding_mode": "medusa", "max_draft_len": 63}}, Severity.WARNING,
     "speculative_decoding_mode medusa", "lookahead_decoding"),
    ("mtp", {"speculation.kind": "mtp", "speculation.draft_tokens": 1}, Severity.ERROR, "drafts with draft_target",
     "toolchain: llm-api"),
    ("scatter", {"build.options": {"pp_reduce_scatter": "enable"}}, Severity.WARNING, "LlamaForCausalLM", "disable"),
    ("int8 cache", {"quantization.kv_cache": "int8", "build.options": {"use_paged_context_fmha": "enable"},
                    "trtllm_version": "0.18.2"}, Severity.ERROR, "int8 KV cache", "use_paged_context_fmha: disable"),
    ("int8 cache later", {"quantization.kv_cache": "int8", "build.options": {"use_paged_context_fmha": "enable"}},
     None, "", ""),
    ("container", {"build.runner": "docker"}, None, "", ""),
    ("no container", {"build.runner": "docker", "trtllm_version": "1.3.0rc5"}, Severity.ERROR, "no build.image",
     "trtllm_version: 1.2.1"),
)  # fmt: skip


@pytest.mark.parametrize(("label", "changes", "severity", "compared", "advice"), CASES, ids=[case[0] for case in CASES])
def test_options_are_checked(
    label: str, changes: dict[str, Any], severity: Severity | None, compared: str, advice: str
) -> None:
    """What the release, the formats or another option refuses is found, and what is legal is not."""
    found = [finding for finding in plan_of(changes).findings if finding.rule == "PF41"]
    assert ([] if severity is None else [severity]) == [finding.severity for finding in found][:1], (label, found)
    if severity is not None:
        assert compared in found[0].compared
        assert advice in found[0].suggestion


def test_an_option_that_the_release_lacks_is_never_passed() -> None:
    """It is told of, and left out."""
    made = plan_of({"build.options": {"user_buffer": "enable", "nonsense": 1}, "trtllm_version": "0.15.0"})
    assert (None, None) == (value_of(made, "user_buffer"), value_of(made, "nonsense"))


def test_plans_of_other_toolchains_have_no_builder() -> None:
    """The LLM API and the stand-in pass over the section."""
    made = settle(llama_8b(), profile({"build.options": {"nonsense": 1}}), hardware(8))
    assert made.build is None
    assert "PF41" not in {finding.rule for finding in made.findings}


def random_changes(chance: random.Random, version: str) -> dict[str, Any]:
    """Draw a profile for a release: formats, ranks, limits, speculation, and options with values they take."""
    changes: dict[str, Any] = {
        "trtllm_version": version,
        "toolchain": chance.choice([name for name in release(version).toolchains if name != "mock"]),
        "quantization.weights": chance.choice(["bf16", "fp8", "fp8_rowwise", "nvfp4", "int8_wo", "int4_awq"]),
        "quantization.kv_cache": chance.choice(["bf16", "fp8"]),
        "parallelism.tensor": chance.choice([1, 2, 4, 8]),
        "limits.max_batch_size": chance.choice([1, 8, 64, 512]),
        "limits.max_beam_width": chance.choice([1, 1, 2]),
        "limits.max_num_tokens": chance.choice([1024, 8192]),
        "kv_cache.enable_block_reuse": chance.random() < 0.5,
        "kv_cache.tokens_per_block": chance.choice([32, 64]),
        "scheduler.chunked_prefill": chance.random() < 0.5,
        "engine.cuda_graphs": chance.random() < 0.5,
        "engine.stream_interval": chance.choice([1, 10]),
    }
    if chance.random() < 0.3:
        changes |= {"speculation.kind": "ngram", "speculation.draft_tokens": chance.choice([1, 4])}
    takes = [row for row in build_flags(version) if row.choices and row.takes == "choice"]
    if takes and chance.random() < 0.5:
        row = chance.choice(takes)
        changes["build.options"] = {row.flag.removeprefix("--"): chance.choice(row.choices)}
    return changes


@pytest.mark.parametrize("version", known_releases())
def test_no_random_plan_holds_a_word_that_its_release_does_not_know(version: str) -> None:
    """Legal ones of forty random plans pass only options, values and LLM-API keys of the release's tables."""
    chance, legal = random.Random(version), 0
    for _ in range(40):
        made = settle(llama_8b(), profile(random_changes(chance, version)), hardware(8))
        if errors(made.findings):
            continue
        legal += 1
        if made.toolchain.value == "llm-api":
            assert () == unknown_llm_api_keys(version, llm_api_document(made))
            continue
        words = [word for step in steps(made) if isinstance(step, Run) for word in step.argv[1:]]
        for place, word in enumerate(words):
            if word.startswith("--"):
                row = build_flag(version, word)
                assert row is not None, word
                following = words[place + 1 : place + 2]
                assert row.takes not in ("choice", "switch") or following[0] in (row.choices or ("enable", "disable"))
    assert legal
