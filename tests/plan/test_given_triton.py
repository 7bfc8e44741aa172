"""Rules about models of a repository, ensembles, the llmapi model, checkpoints and values of a document.

For each a thing that must be spoken of, one near it that must not, and a release that answers otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from tests.plan.trials import ERROR, GONE, WARNING, Rule, Trial
from trtllm_kit.findings import Finding
from trtllm_kit.plan.given.checkpoints import CheckpointFacts, checkpoint
from trtllm_kit.plan.given.ensembles import Member, Step, ensemble
from trtllm_kit.plan.given.facts import InstanceGroup, RepositoryFacts, TritonModel
from trtllm_kit.plan.given.llmapi_model import llmapi_model
from trtllm_kit.plan.given.parameters import parameters
from trtllm_kit.plan.given.repositories import repository
from trtllm_kit.plan.given.triton_models import triton_model
from trtllm_kit.plan.given.values import values

TYPES = {"a": "TYPE_INT32", "b": "TYPE_FP32"}


def whole(steps: tuple[Step, ...], *, batch: int = 4, types: Mapping[str, str] | None = None, **member: Any) -> Rule:
    """Check an ensemble ``e`` of one member ``m``, which has tensors a (needed) and b."""
    facts = {"max_batch_size": 4, "types": TYPES, "inputs": frozenset("a")} | member
    members = {"e": Member(batch, types or {}, steps=steps), "m": Member(**facts)}
    return lambda version: ensemble("e", members, version)


GOOD = (Step("m", {"a": "x"}, {"b": "y"}),)


def llm(
    version: str, values_of: Mapping[str, str], backend: str = "tensorrtllm", *, needed: bool = True
) -> Iterable[Finding]:
    """Check parameters of the engine's model, beside those that must be there."""
    beside = dict.fromkeys(("tokenizer_dir", "guided_decoding_backend", "xgrammar_tokenizer_info_path"), "")
    own = (beside if needed else {}) | dict(values_of)
    return parameters(TritonModel("tensorrt_llm", backend, parameters=own), version)


def folder(version: str, model: TritonModel, name: str = "m", versions: tuple[str, ...] = ("1",)) -> Iterable[Finding]:
    """Check a model's folder."""
    return triton_model(model, name, versions, version)


def hosted(
    version: str, settings: Any, *, decoupled: bool = True, states: bool = True, **model: Any
) -> Iterable[Finding]:
    """Check an llmapi model."""
    facts = {"name": "m", "backend": "python", "decoupled": decoupled, "llmapi": True} | model
    return llmapi_model(TritonModel(**facts), {"triton_config": settings}, version, states_policy=states)


def named(version: str, paths: Mapping[str, bool]) -> Iterable[Finding]:
    """Check a repository whose model names an engine."""
    model = TritonModel("tensorrt_llm", "tensorrtllm", parameters={"gpt_model_path": "/e"})
    return repository(RepositoryFacts((model,), version, paths=paths))


PLAIN = {"max_batch_size": 0, "decoupled": True}
MAPPING = {"world_size": 4, "tp_size": 2, "pp_size": 2}
RANKS = dict.fromkeys(range(4), 100)


def ranks(version: str, capability: int | None = None, **facts: Any) -> Iterable[Finding]:
    """Check a checkpoint of four ranks."""
    whole = {
        "architecture": "LlamaForCausalLM",
        "heads": 32,
        "kv_heads": 8,
        "layers": 32,
        "mapping": MAPPING,
        "files": RANKS,
    }
    return checkpoint(CheckpointFacts(**(whole | facts)), version, capability)


TRIALS: dict[str, Trial] = {
    "ensemble-member-absent": Trial("PF21", WARNING, "e: step n, no folder of that name; not confirmed",
        whole((*GOOD, Step("n"))), whole(GOOD), other=None),
    "ensemble-above-member": Trial("PF21", ERROR, "e: max_batch_size 8, m has 4", whole(GOOD, batch=8), whole(GOOD),
        other=None),
    "ensemble-tensor-absent": Trial("PF21", WARNING, "e: step m has no c", whole((Step("m", {"a": "x", "c": "z"}),)),
        whole((Step("m", {"a": "x", "b": "z"}),)), other=None),
    "ensemble-input-not-mapped": Trial("PF21", WARNING, "e: step m gets no a", whole((Step("m", {}, {"b": "y"}),)),
        whole((Step("m", {}, {"b": "y"}),), optional=frozenset("a")), other=None),
    "ensemble-types-differ": Trial("PF21", ERROR, "e: x is TYPE_STRING in e, a of m is TYPE_INT32",
        whole(GOOD, types={"x": "TYPE_STRING"}), whole(GOOD, types={"x": "TYPE_INT32"}), other=None),
    "types-between-steps": Trial("PF21", ERROR, "e: x is TYPE_INT32 in m, b of m is TYPE_FP32",
        whole((Step("m", {"a": "x"}, {"b": "x"}),)), whole((Step("m", {"a": "x"}, {"b": "y"}),)), other=None),
    "folder-of-other-name": Trial("PF21", WARNING, "n: name n, folder m", lambda v: folder(v, TritonModel("n")),
        lambda v: folder(v, TritonModel("m")), other=None),
    "no-version-folder": Trial("PF21", WARNING, "m: no folder named by a number",
        lambda v: folder(v, TritonModel("m"), versions=()), lambda v: folder(v, TritonModel("m")), other=None),
    "backend-gone": Trial("PF19", ERROR, f"m: backend tensorrtllm, release {GONE}",
        lambda v: folder(v, TritonModel("m", "tensorrtllm")), lambda v: folder(v, TritonModel("m", "python")),
        release=GONE, other="1.2.1"),
    "llmapi-before-its-time": Trial("PF21", WARNING, "m: a model.yaml beside config.pbtxt, release 0.18.2",
        lambda v: folder(v, TritonModel("m", "python", llmapi=True)), lambda v: folder(v, TritonModel("m", "python")),
        release="0.18.2", other="0.19.0"),
    "parameter-word": Trial("PF21", WARNING, "gpt_model_type is inflight; it takes inflight_fused_batching",
        lambda v: llm(v, {"gpt_model_type": "inflight"}), lambda v: llm(v, {"gpt_model_type": "V1"}), other=None),
    "parameter-word-of-later": Trial("PF21", WARNING, "tensorrt_llm: decoding_mode is eagle; it takes top_k",
        lambda v: llm(v, {"decoding_mode": "eagle"}), lambda v: llm(v, {"decoding_mode": "medusa"}),
        release="0.14.0", other="0.15.0"),
    "parameter-boolean": Trial("PF21", WARNING, "tensorrt_llm: enable_kv_cache_reuse is yes; it takes true or false",
        lambda v: llm(v, {"enable_kv_cache_reuse": "yes"}), lambda v: llm(v, {"enable_kv_cache_reuse": "TRUE"}),
        other=None),
    "parameter-share": Trial("PF21", WARNING, "kv_cache_free_gpu_mem_fraction is 85; it takes a number from 0 to 1",
        lambda v: llm(v, {"kv_cache_free_gpu_mem_fraction": "85"}),
        lambda v: llm(v, {"kv_cache_free_gpu_mem_fraction": ".85"}), other=None),
    "parameter-sets": Trial("PF21", WARNING, "tensorrt_llm: gpu_device_ids is GPU-0",
        lambda v: llm(v, {"gpu_device_ids": "GPU-0"}), lambda v: llm(v, {"gpu_device_ids": "0,1;2,3"}), other=None),
    "parameter-placeholder": Trial("PF21", WARNING, "max_beam_width is two",
        lambda v: llm(v, {"max_beam_width": "two"}), lambda v: llm(v, {"max_beam_width": "${max_beam_width}"}),
        other=None),
    "parameters-that-must-be-there": Trial("PF21", WARNING,
        "tensorrt_llm: tokenizer_dir, guided_decoding_backend, xgrammar_tokenizer_info_path absent",
        lambda v: llm(v, {}, needed=False), lambda v: llm(v, {}, "python", needed=False), other="0.16.0"),
    "overlap-in-python": Trial("PF21", WARNING, "tensorrt_llm: enable_trt_overlap true, backend python",
        lambda v: llm(v, {"enable_trt_overlap": "True"}, "python"), lambda v: llm(v, {"enable_trt_overlap": "True"}),
        other=None),
    "metrics-off": Trial("PF23", WARNING, "tensorrt_llm: iter_stats_max_iterations 0, backend tensorrtllm",
        lambda v: llm(v, {"iter_stats_max_iterations": "0"}), lambda v: llm(v, {"iter_stats_max_iterations": "1"}),
        other=None),
    "llmapi-settings-absent": Trial("PF21", WARNING, "m: triton_config lacks max_batch_size and decoupled",
        lambda v: hosted(v, None), lambda v: hosted(v, PLAIN), other="0.18.2"),
    "llmapi-batching": Trial("PF21", WARNING, "m: triton_config.max_batch_size 8",
        lambda v: hosted(v, PLAIN | {"max_batch_size": 8}), lambda v: hosted(v, PLAIN), other="0.18.2"),
    "llmapi-policy-differs": Trial("PF21", WARNING, "m: triton_config.decoupled true, model_transaction_policy false",
        lambda v: hosted(v, PLAIN, decoupled=False), lambda v: hosted(v, PLAIN), other="0.18.2"),
    "llmapi-policy-absent": Trial("PF21", WARNING, "m: triton_config.decoupled true, model_transaction_policy absent",
        lambda v: hosted(v, PLAIN, decoupled=False, states=False),
        lambda v: hosted(v, PLAIN | {"decoupled": False}, decoupled=False, states=False), other="0.18.2"),
    "llmapi-devices": Trial("PF21", WARNING, "m: gpu_device_ids has 2, instance_group 1",
        lambda v: hosted(v, PLAIN, parameters={"gpu_device_ids": "0,1;2,3"}),
        lambda v: hosted(v, PLAIN, parameters={"gpu_device_ids": "0,1;2,3"}, instances=(InstanceGroup("KIND_CPU", 2),)),
        release="1.3.0rc3", other="1.2.1"),
    "rank-file-missing": Trial("PF9", ERROR, "4 ranks by its mapping (tensor x pipeline), missing 3",
        lambda v: ranks(v, files={0: 1, 1: 1, 2: 1}), ranks, other=None),
    "rank-file-broken": Trial("PF9", ERROR, "it holds 3 bytes",
        lambda v: ranks(v, broken={1: "it holds 3 bytes"}), ranks, other=None),
    "rank-file-too-many": Trial("PF9", WARNING, "4 ranks by its mapping, more files for 4",
        lambda v: ranks(v, files=RANKS | {4: 100}), ranks, other=None),
    "checkpoint-without-config": Trial("PF9", ERROR, "4 rank files, 0 config.json",
        lambda v: ranks(v, config=False), ranks, other=None),
    "context-ranks-share-files": Trial("PF9", ERROR, "8 ranks by its mapping (tensor x pipeline), missing 4, 5, 6, 7",
        lambda v: ranks(v, mapping={"tp_size": 4, "pp_size": 2}),
        lambda v: ranks(v, mapping={"tp_size": 2, "pp_size": 2, "cp_size": 2, "world_size": 8}), other=None),
    "world-of-mapping": Trial("PF20", ERROR, "world_size 8, tensor x pipeline x context is 4",
        lambda v: ranks(v, mapping=MAPPING | {"world_size": 8}), ranks, release="0.16.0"),
    "expert-sizes": Trial("PF20", WARNING, "moe_tp_size 2 x moe_ep_size 2, tp_size 2",
        lambda v: ranks(v, mapping=MAPPING | {"moe_tp_size": 2, "moe_ep_size": 2}),
        lambda v: ranks(v, mapping=MAPPING | {"moe_tp_size": 1, "moe_ep_size": 2})),
    "heads-over-ranks": Trial("PF1", ERROR, "33 heads, 2 tensor ranks",
        lambda v: ranks(v, heads=33, kv_heads=2), ranks, release="0.12.0"),
    "kv-heads-over-ranks": Trial("PF2", WARNING, "3 KV heads, 2 tensor ranks",
        lambda v: ranks(v, kv_heads=3), lambda v: ranks(v, kv_heads=1)),
    "layers-over-stages": Trial("PF20", WARNING, "33 layers, pp_size 2",
        lambda v: ranks(v, layers=33), ranks, release="0.18.2", other="0.19.0"),
    "key-of-later-release": Trial("PF12", ERROR, "quantization.use_meta_recipe; known are",
        lambda v: ranks(v, quantization={"use_meta_recipe": False}),
        lambda v: ranks(v, quantization={"quant_algo": None, "group_size": 128}), release="0.14.0", other="0.15.0"),
    "key-of-late-release": Trial("PF12", ERROR, "mapping.moe_cluster_size; known are",
        lambda v: ranks(v, mapping=MAPPING | {"moe_cluster_size": 1}),
        lambda v: ranks(v, mapping=MAPPING | {"gpus_per_node": 8}), release="0.16.0", other="1.0.0"),
    "family-of-engines": Trial("PF13", WARNING, "Qwen3ForCausalLM: listed for",
        lambda v: ranks(v, architecture="Qwen3ForCausalLM"), ranks, release="0.16.0", other="1.0.0"),
    "rope-kind": Trial("PF11", WARNING, "rotary_scaling yarn; known are default, linear, llama3",
        lambda v: ranks(v, rope_kind="yarn"), lambda v: ranks(v, rope_kind="llama3"), other=None),
    "rope-kind-of-others": Trial("PF11", WARNING, "rotary_scaling yarn",
        lambda v: ranks(v, rope_kind="yarn"),
        lambda v: ranks(v, rope_kind="yarn", architecture="DeepseekV2ForCausalLM"), other=None),
    "engine-folder-not-there": Trial("PF21", WARNING, "tensorrt_llm: gpt_model_path /e",
        lambda v: named(v, {"/e": False}), lambda v: named(v, {"/e": True}), release="1.2.1"),
    "format-of-gpu": Trial("PF7", ERROR, "compute capability 80; FP8 runs on",
        lambda v: ranks(v, 80, quantization={"quant_algo": "FP8"}),
        lambda v: ranks(v, 90, quantization={"quant_algo": "FP8"}), other=None),
    "value-of-enumeration": Trial("PF24", ERROR, "scheduler_config.capacity_scheduler_policy is NO_EVICT; it takes",
        lambda v: values({"scheduler_config": {"capacity_scheduler_policy": "NO_EVICT"}}, v),
        lambda v: values({"scheduler_config": {"capacity_scheduler_policy": "guaranteed_no_evict"}}, v), other=None),
    "value-of-later-release": Trial("PF24", ERROR, "moe_config.backend is TRITON; it takes CUTLASS",
        lambda v: values({"moe_config": {"backend": "TRITON"}}, v),
        lambda v: values({"moe_config": {"backend": "CUTLASS"}}, v), release="1.0.0", other="1.1.0"),
    "value-near-a-release": Trial("PF24", WARNING, "not confirmed for this release",
        lambda v: values({"allreduce_strategy": "RING"}, v), lambda v: values({"allreduce_strategy": "NCCL"}, v),
        release="1.2.0", other=None),
}  # fmt: skip


@pytest.mark.parametrize("name", TRIALS)
def test_the_rule_speaks_of_the_thing(name: str) -> None:
    """The rule, the severity and the numbers compared."""
    trial = TRIALS[name]
    found = list(trial.speaks(trial.release))
    assert [(trial.rule, trial.severity)] == [(one.rule, one.severity) for one in found], found
    assert trial.compared in found[0].compared
    assert found[0].suggestion


@pytest.mark.parametrize("name", TRIALS)
def test_a_near_thing_is_passed(name: str) -> None:
    """What is legal beside it is not spoken of."""
    trial = TRIALS[name]
    assert [] == list(trial.near(trial.release))


@pytest.mark.parametrize("name", [name for name, trial in TRIALS.items() if trial.other is not None])
def test_another_release_answers_otherwise(name: str) -> None:
    """The same thing, asked of a release in which the fact does not hold or is less certain."""
    trial = TRIALS[name]
    said = [
        [(one.severity, one.rule) for one in trial.speaks(version)] for version in (trial.release, str(trial.other))
    ]
    assert said[0] != said[1]
