"""Options of trtllm-build: each is chosen for a reason, and none is passed to a release that does not take it."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from tests.support.specs import hardware, llama_8b, profile, qwen3_moe
from trtllm_kit.build.llm_api import llm_api_document
from trtllm_kit.build.step import Run
from trtllm_kit.build.toolchain import steps
from trtllm_kit.findings import Severity, errors
from trtllm_kit.plan.plan import Plan
from trtllm_kit.plan.settle import settle
from trtllm_kit.spec.adapter import AdapterFacts
from trtllm_kit.spec.draft import DraftFacts
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
    ("heads", {"build.options": {"speculative_decoding_mode": "medusa", "max_draft_len": 63}}, None, "", ""),
    ("eagle", {"speculation.kind": "eagle", "speculation.draft_tokens": 8, "trtllm_version": "0.14.0"},
     Severity.ERROR, "drafts with draft_target, ngram, lookahead, medusa, redrafter", "speculation.kind: draft_target"),
    ("eagle later", {"speculation.kind": "eagle", "speculation.draft_tokens": 8, "trtllm_version": "0.15.0",
                     "limits.max_batch_size": 64}, None, "", ""),
    ("eagle of many", {"speculation.kind": "eagle", "speculation.draft_tokens": 300, "trtllm_version": "0.18.2",
                       "limits.max_batch_size": 64}, Severity.ERROR, "max_draft_len is 300", "max_draft_len: 256"),
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


@pytest.mark.parametrize(
    ("kind", "mode", "since"),
    [("draft_target", "draft_tokens_external", "0.12.0"), ("ngram", "draft_tokens_external", "0.12.0"),
     ("lookahead", "lookahead_decoding", "0.12.0"), ("medusa", "medusa", "0.12.0"),
     ("redrafter", "explicit_draft_tokens", "0.12.0"), ("eagle", "eagle", "0.15.0")],
)  # fmt: skip
def test_a_kind_becomes_the_mode_of_the_release(kind: str, mode: str, since: str) -> None:
    """With its drafts as the length, and paged context attention to check them; no mode before the release has it."""
    asked = {"speculation.kind": kind, "speculation.draft_tokens": 6, "limits.max_batch_size": 8}
    asked |= {"speculation.draft_checkpoint": "draft"} if kind == "draft_target" else {}
    for version in BUILT:
        made = plan_of(asked | {"trtllm_version": version})
        held = BUILT.index(version) >= BUILT.index(since)
        assert (mode if held else None) == value_of(made, "speculative_decoding_mode"), version
        assert (6 if held else None) == value_of(made, "max_draft_len"), version
        assert not held or value_of(made, "use_paged_context_fmha") == "enable"


@pytest.mark.parametrize("kind", ["medusa", "eagle", "redrafter", "lookahead"])
def test_kinds_of_engines_are_refused_by_the_llm_api(kind: str) -> None:
    """The suggestion is the toolchain that has them; no key of theirs is written."""
    asked = {"speculation.kind": kind, "speculation.draft_tokens": 4}
    made = settle(llama_8b(), profile(asked), hardware(8))
    (refused,) = [one for one in errors(made.findings) if one.rule == "PF25"]
    assert ("toolchain: trtllm-build", True) == (
        refused.suggestion.removeprefix("speculation.kind: eagle3 for a head of EAGLE-3, or "),
        "eagle3, mtp, ngram, draft_target" in refused.compared,
    )
    assert "speculative_config" not in llm_api_document(made)


@pytest.mark.parametrize(("kind", "named"), [("medusa", "4 of"), ("redrafter", "1 of"), ("eagle", "estimate")])
def test_heads_of_a_given_checkpoint_take_memory(kind: str, named: str) -> None:
    """Their weights are a term of the plan, which says that it is an estimate."""
    asked = {"speculation.kind": kind, "speculation.draft_tokens": 4, "limits.max_batch_size": 8}
    (term,) = [one for one in plan_of(asked).memory.terms if one.name == "draft weights"]
    assert (True, True, True) == ("estimate" in term.how, named in term.how, term.bytes > 10**7)


DRAFT = DraftFacts(
    architectures=("LlamaForCausalLM",), hidden_size=64, intermediate_size=128, num_hidden_layers=2,
    num_attention_heads=4, vocab_size=128256, mapping={"world_size": 2, "tp_size": 1, "pp_size": 2},
    quantization={"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}, dtype="bfloat16",
)  # fmt: skip


def draft_value(made: Plan, name: str) -> object:
    """Return what an option of the draft's engine is given."""
    assert made.build is not None
    assert made.build.draft_options is not None
    return made.build.draft_options[f"--{name}"].value


@pytest.mark.parametrize(
    ("model", "draft", "gemm", "attention"),
    [
        ({}, {}, ("auto", "disable"), ("disable", "enable")),
        (FP8, {"quantization": {}}, ("disable", "auto"), ("enable", "disable")),
        (FP8, {}, ("disable", "disable"), ("enable", "enable")),
    ],
)
def test_the_draft_s_options_suit_its_own_format(
    model: dict[str, Any], draft: dict[str, Any], gemm: tuple[str, str], attention: tuple[str, str]
) -> None:
    """Kernels and attention follow the checkpoint that each engine is built of; limits and blocks are one."""
    asked = ENGINES | model
    asked |= {"speculation.kind": "draft_target", "speculation.draft_tokens": 3, "speculation.draft_checkpoint": "x"}
    loaded = replace(profile(asked), draft=DRAFT.model_copy(update=draft))
    made = settle(llama_8b(), loaded, hardware(8))
    assert gemm == (value_of(made, "gemm_plugin"), draft_value(made, "gemm_plugin"))
    assert attention == (value_of(made, "use_fp8_context_fmha"), draft_value(made, "use_fp8_context_fmha"))
    assert 2 == draft_value(made, "workers")
    for name in ("max_batch_size", "max_seq_len", "tokens_per_block", "kv_cache_type"):
        assert value_of(made, name) == draft_value(made, name)


def test_options_of_the_profile_for_the_model_s_format_are_not_the_draft_s() -> None:
    """What else the profile sets holds for both engines."""
    asked = ENGINES | {"speculation.kind": "draft_target", "speculation.draft_tokens": 3,
                       "speculation.draft_checkpoint": "x",
                       "build.options": {"gemm_plugin": "float16", "context_fmha": "disable"}}  # fmt: skip
    made = settle(llama_8b(), profile(asked), hardware(8))
    assert ("float16", "auto") == (value_of(made, "gemm_plugin"), draft_value(made, "gemm_plugin"))
    assert ("disable", "disable") == (value_of(made, "context_fmha"), draft_value(made, "context_fmha"))


def test_an_adapter_of_a_larger_rank_than_asked_is_told() -> None:
    """The rank of the file beside the asked one; without an asked one the file's is taken."""
    facts = AdapterFacts(folder="/a", rank=32, layers=("q_proj", "gate_proj"))
    options = {"lora_dir": ("/a",)}
    loaded = replace(profile(ENGINES | {"build.options": options}), adapters=(facts,))
    made = settle(llama_8b(), loaded, hardware(8))
    assert (32, ("attn_q", "mlp_h_to_4h")) == (value_of(made, "max_lora_rank"), value_of(made, "lora_target_modules"))
    asked = replace(profile(ENGINES | {"build.options": options | {"max_lora_rank": 8}}), adapters=(facts,))
    said = [one.compared for one in settle(llama_8b(), asked, hardware(8)).findings if one.rule == "PF41"]
    assert ["r 32 of /a, max_lora_rank 8"] == said


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
        kind = chance.choice(["ngram", "ngram", "lookahead", "medusa", "eagle", "redrafter"])
        changes |= {"speculation.kind": kind, "speculation.draft_tokens": chance.choice([1, 4])}
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
