"""Remedies: each is verified, the nearest come first, pairs come only when no single change helps."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.specs import hardware, llama_8b, llama_70b, llama_405b, profile, qwen3_moe
from trtllm_kit.findings import errors
from trtllm_kit.plan.decide import make_plan
from trtllm_kit.plan.remedies import KNOBS, Attempt, nearest_fits, other_machines, with_changes
from trtllm_kit.plan.settle import settle
from trtllm_kit.spec.hardware import Hardware
from trtllm_kit.spec.model import ModelSpec

MANY = {"load.min_concurrency": 64, "limits.max_batch_size": 64}


@pytest.mark.parametrize(
    ("model", "machine", "changes", "nearest"),
    [
        (llama_8b(), hardware(1, 30), MANY | {"load.min_concurrency": 39}, "kv_cache.free_gpu_memory_fraction: 0.92"),
        (llama_8b(), hardware(8, 30), MANY | {"parallelism.tensor": 1}, "parallelism.tensor: 2"),
        (llama_70b(), hardware(1, 141), MANY, "quantization.weights: fp8"),
        (llama_8b(), hardware(1, 24), {"limits.max_num_tokens": 65536}, "limits.max_num_tokens: 32768"),
        (llama_8b(), hardware(1, 24), {"limits.max_seq_len": 40000}, "limits.max_seq_len: 35136"),
    ],
)
def test_the_nearest_change_comes_first(
    model: ModelSpec, machine: Hardware, changes: dict[str, Any], nearest: str
) -> None:
    """What costs no quality and breaks no promise is offered before what does."""
    assert nearest in [remedy.change for remedy in nearest_fits(model, profile(changes), machine)]


def test_fewer_replicas_are_offered_when_they_keep_the_ranks_away() -> None:
    """Four copies of 70B on eight GPUs have two each, which is too few; two copies of four ranks fit."""
    changes = MANY | {"parallelism.tensor": 2, "parallelism.replicas": 4}
    offered = {remedy.change: remedy.cost for remedy in nearest_fits(llama_70b(), profile(changes), hardware(8))}
    wanted = "parallelism.tensor: 4, parallelism.replicas: 2"
    assert "fewer replicas, so fewer requests at once in all" == offered[wanted]


@pytest.mark.parametrize(
    ("model", "machine", "changes"),
    [
        (llama_70b(), hardware(8), MANY | {"parallelism.tensor": 2, "parallelism.replicas": 4}),
        (llama_8b(), hardware(2, 24), MANY | {"parallelism.tensor": 1}),
        (llama_70b(), hardware(2), MANY),
        (qwen3_moe(), hardware(8, 80), {"load.min_concurrency": 300, "limits.max_batch_size": 512}),
        (llama_405b(), hardware(8), {"load.min_concurrency": 2}),
        (llama_70b(), hardware(1, 80), {}),
        (llama_70b(), hardware(1, 74), {"load.min_concurrency": 8}),
    ],
)
def test_every_remedy_was_planned_and_fits(model: ModelSpec, machine: Hardware, changes: dict[str, Any]) -> None:
    """Following any remedy gives a plan without errors that holds the asked sequences."""
    loaded = profile(changes)
    remedies = nearest_fits(model, loaded, machine)
    assert remedies
    for remedy in remedies:
        made = make_plan(model, with_changes(loaded, remedy.changes), machine)
        assert () == errors(made.findings), remedy
        assert made.memory.fits
        assert remedy.sequences == made.memory.sequences
        assert remedy.change == ", ".join(f"{key}: {value}" for key, value in remedy.changes.items())


def test_pairs_are_tried_when_no_single_change_helps() -> None:
    """Eight sequences of 70B on 76 GiB take fp8 weights and an fp8 cache, or fp8 weights and a smaller promise."""
    remedies = nearest_fits(llama_70b(), profile({"load.min_concurrency": 8}), hardware(1, 76))
    wanted = [
        "quantization.weights: fp8, quantization.kv_cache: fp8",
        "quantization.weights: fp8, load.min_concurrency: 4",
    ]
    assert wanted == [remedy.change for remedy in remedies if "load.input_tokens" not in remedy.changes]


def test_a_plan_that_fits_has_no_remedy() -> None:
    """There is nothing to mend."""
    assert () == nearest_fits(llama_8b(), profile(), hardware())


def test_what_nothing_mends_has_no_remedy_and_says_what_it_takes() -> None:
    """405B on one GPU: the finding tells how much memory the weights alone need."""
    made = make_plan(llama_405b(), profile(), hardware(1, 141))
    assert () == nearest_fits(llama_405b(), profile(), hardware(1, 141))
    assert "the weights alone take 381.90 GiB in fp8" in made.findings[0].suggestion


def test_the_finding_lists_the_remedies() -> None:
    """The suggestion of PF18 is the list that trtkit plan shows."""
    loaded = profile(MANY)
    finding = make_plan(llama_70b(), loaded, hardware(1, 141)).findings[0]
    remedies = nearest_fits(llama_70b(), loaded, hardware(1, 141))
    assert "; or ".join(f"{r.change} ({r.sequences:,} sequences fit)" for r in remedies) == finding.suggestion


def test_an_error_of_another_kind_does_not_hide_the_remedies() -> None:
    """A profile can be wrong and too large at once."""
    loaded = profile(MANY | {"kv_cache.tokens_per_block": 48})
    assert "quantization.weights: fp8" in [r.change for r in nearest_fits(llama_70b(), loaded, hardware(1, 141))]


def test_no_remedy_brings_a_new_error() -> None:
    """An Ampere GPU is not told to take fp8 weights."""
    hopper, ampere = (
        [remedy.changes for remedy in nearest_fits(llama_8b(), profile(MANY), hardware(1, 32, capability))]
        for capability in (90, 80)
    )
    assert {"quantization.weights": "fp8"} in hopper
    assert ampere == [changes for changes in hopper if "quantization.weights" not in changes]


def test_changed_keys_count_as_set_by_the_profile() -> None:
    """A plan made with a remedy says so, and the profile given is left as it was."""
    loaded = profile()
    changed = with_changes(loaded, {"parallelism.tensor": 2, "kv_cache.free_gpu_memory_fraction": 0.8})
    assert (2, 0.8) == (changed.profile.parallelism.tensor, changed.profile.kv_cache.free_gpu_memory_fraction)
    assert "profile" == changed.source("parallelism.tensor")
    assert "default" == loaded.source("parallelism.tensor")
    assert "profile" == settle(llama_8b(), changed, hardware(2)).parallelism.tensor.source


def test_a_whole_section_that_is_set_counts_key_by_key() -> None:
    """What a section gives was asked, and what it leaves at none was not."""
    asked = {"kind": "eagle3", "draft_tokens": 3, "draft_checkpoint": "x", "capture_layers": None}
    changed = with_changes(profile(), {"speculation": asked})
    given = {name for name in asked if changed.source(f"speculation.{name}") == "profile"}
    assert {"kind", "draft_tokens", "draft_checkpoint"} == given


def test_steps_are_never_made_smaller_than_a_full_batch() -> None:
    """Halving stops where every request still gets its token in one step, which 3,000 requests reach at 4,096."""
    loaded = profile({"limits.max_batch_size": 3000, "limits.max_num_tokens": 16384})
    attempt = Attempt(llama_8b(), loaded, hardware(), settle(llama_8b(), loaded, hardware()))
    offered = [value["limits.max_num_tokens"] for knob in KNOBS for value in knob.values(attempt) if
               "limits.max_num_tokens" in value]  # fmt: skip
    assert [8192, 4096] == offered


def test_fractions_stop_where_start_up_needs_the_rest() -> None:
    """More than 0.95 is not offered: allocations after start-up have failed there."""
    attempt = Attempt(llama_8b(), profile(), hardware(), settle(llama_8b(), profile(), hardware()))
    offered = [value["kv_cache.free_gpu_memory_fraction"] for value in KNOBS[0].values(attempt)]
    assert [0.91, 0.92, 0.93, 0.94, 0.95] == offered


def test_the_longest_sequence_that_fits_is_offered_and_not_the_asked_one() -> None:
    """Of 40,000 tokens 35,136 fit on 24 GiB; nobody is told 2,048, the length of the asked request."""
    changes = {"limits.max_seq_len": 40_000}
    remedies = nearest_fits(llama_8b(), profile(changes), hardware(1, 24))
    assert [35_136] == [r.changes["limits.max_seq_len"] for r in remedies if "limits.max_seq_len" in r.changes]
    assert not [r.change for r in remedies if "load.min_concurrency" in r.changes]


def test_every_knob_says_what_it_costs() -> None:
    """A remedy is never presented as free."""
    assert all(knob.cost for knob in KNOBS)


def test_a_model_that_fits_nowhere_on_its_machine_is_told_where_it_does() -> None:
    """405B on one small machine is offered the machine it fits, planned there with ranks of its own."""
    small = hardware()
    large = hardware(32).model_copy(update={"name": "large"})
    model, asked = llama_405b(), profile({"quantization.weights": "fp8", "quantization.kv_cache": "fp8"})
    plan = settle(model, asked, small)
    assert () == nearest_fits(model, asked, small)

    found = other_machines(plan, model, asked, [small, large])
    assert ["large"] == [remedy.changes["hardware"] for remedy in found]
    ranks = {"hardware": "large", "parallelism.tensor": found[0].changes["parallelism.tensor"]}
    assert settle(model, with_changes(asked, ranks), large).memory.fits
