"""Plans: honest sources, the choice of ranks, refusal, digests, time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.specs import hardware, llama_8b, llama_70b, llama_405b, profile, qwen3_moe, rehearsal, smollm2
from trtllm_kit.build.llm_api import llm_api_document
from trtllm_kit.checkpoint.plan_file import plan_text
from trtllm_kit.errors import KitError, PlanRefused, UsageError
from trtllm_kit.plan.decide import make_plan, require_ok
from trtllm_kit.plan.plan import Plan, profile_key
from trtllm_kit.spec.hf_config import read_model_spec
from trtllm_kit.spec.load import load_hardware
from trtllm_kit.spec.model import ModelSpec
from trtllm_kit.spec.profile import DeployProfile
from trtllm_kit.upstream.llm_api import unknown_llm_api_keys

REPLICAS = {"parallelism.replicas": 2}
LONG = {"limits.max_seq_len": 131072, "load.input_tokens": 122_880, "load.output_tokens": 4096}


def plan_of(changes: dict[str, Any] | None = None) -> Plan:
    """Plan 8B on one GPU."""
    return make_plan(llama_8b(), profile(changes), hardware())


def test_a_key_the_profile_sets_is_the_profiles_and_every_other_a_default() -> None:
    """No decision claims to have been asked for when it was not."""
    made = plan_of({"limits.max_batch_size": 32, "quantization.kv_cache": "bf16"})
    sources = {key: decision.source for key, decision in made.decisions()}
    assert ["quantization.kv_cache", "limits.max_batch_size"] == [
        key for key, source in sources.items() if source == "profile" and key != "release"
    ]
    assert "default" == sources["limits.max_num_tokens"]
    assert {"rule", "model", "upstream", "profile", "default"} == set(sources.values())


def test_every_decision_has_a_reason() -> None:
    """A value without a reason is not a decision."""
    assert all(decision.reason for _, decision in plan_of().decisions())


@pytest.mark.parametrize(
    ("asked", "decided", "source"),
    [
        ("1.2.1", "1.2.1", "profile"),
        ("1.2", "1.2.1", "upstream"),
        ("v1.2.1", "1.2.1", "upstream"),
        ("main", "main", "profile"),
    ],
)
def test_a_series_is_settled_to_a_release(asked: str, decided: str, source: str) -> None:
    """The plan names one release and who chose it."""
    release = plan_of({"trtllm_version": asked}).release
    assert (decided, source) == (release.value, release.source)


def test_an_unknown_release_is_a_usage_error() -> None:
    """There is nothing to plan against."""
    with pytest.raises(UsageError, match=r"'9.9' is not a release"):
        plan_of({"trtllm_version": "9.9"})


@pytest.mark.parametrize(
    ("changes", "toolchain"),
    [({}, "llm-api"), ({"trtllm_version": "0.21"}, "trtllm-build"), ({"toolchain": "mock"}, "mock")],
)
def test_the_toolchain_follows_the_release_unless_asked(changes: dict[str, Any], toolchain: str) -> None:
    """Releases before 1.0 need built engines."""
    assert toolchain == plan_of(changes).toolchain.value


def test_auto_takes_the_fewest_ranks_that_fit_and_says_what_fewer_hold() -> None:
    """70B in 16 bit needs four 80 GiB GPUs for 64 sequences."""
    changes = {"load.min_concurrency": 64, "limits.max_batch_size": 64}
    tensor = make_plan(llama_70b(), profile(changes), hardware(8)).parallelism.tensor
    assert (4, "rule") == (tensor.value, tensor.source)
    wanted = "fewest ranks that fit; of 64 asked sequences tensor 1 holds 0, tensor 2 holds 27, tensor 4 holds 241"
    assert wanted == tensor.reason


def test_auto_skips_rank_counts_that_do_not_divide_the_heads() -> None:
    """SmolLM2 has 9 heads and 3 KV heads: after 1 comes 3."""
    tiny = make_plan(smollm2(), profile({"load.min_concurrency": 32}), hardware(8, 4.1)).parallelism.tensor
    assert 3 == tiny.value


def test_auto_takes_ranks_that_hold_the_longest_sequence_too() -> None:
    """What PF18 refuses is not chosen: one rank of 24 GiB holds 17 asked sequences of 8B and none of 131,072 tokens."""
    made = make_plan(llama_8b(), profile({"limits.max_seq_len": 131_072}), hardware(4, 24))
    assert 2 == made.parallelism.tensor.value
    wanted = "of 1 asked sequences tensor 1 holds 17 but none longer than 35,136 tokens, tensor 2 holds"
    assert wanted in made.parallelism.tensor.reason
    require_ok(made)


def test_auto_takes_all_it_may_when_nothing_fits() -> None:
    """The plan is then an error with the largest legal split, not a crash."""
    made = make_plan(llama_405b(), profile(), hardware(2))
    assert 2 == made.parallelism.tensor.value
    assert not made.memory.fits
    assert ["PF18"] == [finding.rule for finding in made.findings]


def test_replicas_share_the_gpus_and_each_holds_what_is_asked() -> None:
    """Two copies of 70B on eight GPUs have four each; memory and sequences are those of one copy."""
    changes = {"parallelism.tensor": 4, "load.min_concurrency": 8}
    one, two = (make_plan(llama_70b(), profile({**changes, **more}), hardware(8)) for more in ({}, REPLICAS))
    assert ("default", 1, "profile", 2) == (
        one.parallelism.replicas.source,
        one.parallelism.replicas.value,
        two.parallelism.replicas.source,
        two.parallelism.replicas.value,
    )
    assert (one.memory, one.communication, 4) == (two.memory, two.communication, two.parallelism.world_size)


def test_auto_leaves_room_for_every_replica() -> None:
    """Two copies of 70B in BF16 with many sequences get no more than four of eight GPUs each."""
    changes = {"load.min_concurrency": 64, "limits.max_batch_size": 64}
    alone, pair = (
        make_plan(llama_70b(), profile({**changes, **more}), hardware(8)).parallelism.tensor.value
        for more in ({"load.input_tokens": 3000}, REPLICAS)
    )
    assert (4, 4) == (alone, pair)


def test_a_plan_that_cannot_run_is_refused_with_its_first_error_and_the_count_of_others() -> None:
    """Three lines: the rule, the numbers, the setting that works."""
    made = plan_of({"serve.grpc_port": 8000, "load.min_concurrency": 64, "limits.max_seq_len": 200_000})
    with pytest.raises(PlanRefused) as caught:
        require_ok(made)
    assert "PF11" in caught.value.what
    assert "(and 2 more errors: trtkit plan lists them)" in caught.value.what
    assert "max_seq_len 200,000, the model's positions 131,072 (max_position_embeddings)" == caught.value.why
    assert "limits.max_seq_len: 131072" == caught.value.hint


def test_a_plan_without_errors_is_not_refused() -> None:
    """Warnings do not stop a verb."""
    require_ok(plan_of({"limits.max_beam_width": 32}))


def test_a_plan_survives_json() -> None:
    """Every stage reads the plan that the first one wrote."""
    made = make_plan(qwen3_moe(4), profile(), hardware(8))
    again = Plan.model_validate_json(made.model_dump_json())
    assert made == again
    assert made.digest == again.digest


def test_equal_plans_have_one_text_whatever_the_order_of_their_mappings() -> None:
    """Two ways to write the same environment are one plan, and so one engine."""
    one, other = (make_plan(llama_8b(), profile({"environment": env}), hardware()) for env in (
        {"A": "1", "B": "2"}, {"B": "2", "A": "1"}))  # fmt: skip
    assert one.digest == other.digest
    assert plan_text(one) == plan_text(other)
    assert one == Plan.model_validate_json(plan_text(one))


def test_the_same_question_gives_the_same_digest() -> None:
    """Nothing of the clock or the machine is in a plan."""
    assert plan_of().digest == plan_of().digest
    assert plan_of().digest != plan_of({"limits.max_batch_size": 16}).digest


def test_the_plan_of_405b_over_32_gpus_has_the_published_figures() -> None:
    """12.68B parameters by even split, 13.08B held, 252 all-reduces."""
    fp8 = {"quantization.weights": "fp8", "quantization.kv_cache": "fp8", "parallelism.tensor": 32}
    made = make_plan(llama_405b(), profile(LONG | fp8), hardware(2, 95, nodes=16, nvlink=32))
    assert 12_682_918_400 == made.memory.parameters_even_split
    assert 13_083_295_744 == made.memory.parameters_held
    assert 252 == made.communication.all_reduces
    assert 4 == made.parallelism.kv_replication.value
    require_ok(made)


def test_a_rehearsal_plan_needs_no_gpu() -> None:
    """The small model fits the CPU with room to spare."""
    made = make_plan(smollm2(), profile({"runtime": "reference", "load.min_concurrency": 4}), rehearsal())
    assert 0 == made.compute_capability
    require_ok(made)


def test_every_recorded_model_can_be_planned_and_configured(shared: Path) -> None:
    """No real config.json that the kit reads breaks the plan, its remedies or the written configuration."""
    models = [model for path in sorted((shared / "models").glob("*_config.json")) for model in readable(path)]
    assert len(models) >= 15
    for model in models:
        for machine in ("dgx-b200", "h200x1"):
            made = make_plan(model, profile({"load.min_concurrency": 32}), load_hardware(machine))
            assert made.memory.fits != ("PF18" in {finding.rule for finding in made.findings})
            assert () == unknown_llm_api_keys("1.2.1", llm_api_document(made))


def readable(path: Path) -> Iterator[ModelSpec]:
    """Yield the model of a file, if it is one the kit reads."""
    with suppress(KitError):
        yield read_model_spec(json.loads(path.read_text("utf-8")), path.name)


def test_every_decision_an_operator_can_set_is_shown_under_its_profile_key() -> None:
    """What the plan calls otherwise has a translation, and each translated key exists in the profile."""
    document = DeployProfile.model_json_schema()
    keys = {profile_key(key) for key, _ in plan_of().decisions()} - {"parallelism.kv_replication", "layout"}
    for key in keys:
        section, _, last = key.rpartition(".")
        owner = document["$defs"][_SECTIONS[section]] if section else document
        assert last in owner["properties"], key


_SECTIONS = {
    "quantization": "Quantization",
    "parallelism": "Parallelism",
    "limits": "Limits",
    "kv_cache": "KvCache",
    "scheduler": "Scheduler",
    "engine": "Engine",
    "speculation": "Speculation",
}
