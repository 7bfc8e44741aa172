"""What drafting takes: weights and KV cache by hand, estimates that say so, and never less for more drafts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.specs import hardware, llama_8b, llama_70b, profile
from trtllm_kit.plan.parallelism import Split
from trtllm_kit.plan.plan import Plan
from trtllm_kit.plan.settle import settle
from trtllm_kit.plan.speculation import Drafting, DraftMemory, draft_memory, logit_rows
from trtllm_kit.spec.draft import DraftFacts
from trtllm_kit.spec.model import ModelSpec
from trtllm_kit.spec.profile_sections import NEEDED, Speculation

HEAD = DraftFacts(
    architectures=("LlamaForCausalLMEagle3",), hidden_size=4096, intermediate_size=14336, num_hidden_layers=1,
    num_attention_heads=32, num_key_value_heads=8, vocab_size=128256, draft_vocab_size=32000,
)  # fmt: skip
SMALL = DraftFacts(
    hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8,
    head_dim=64, vocab_size=128256,
)  # fmt: skip


def taken(kind: str, draft: DraftFacts | None = None, model: ModelSpec | None = None, **changes: Any) -> DraftMemory:
    """Return what three drafted tokens take on one rank of release 1.2.1."""
    named = {"draft_checkpoint": "x"} if kind in NEEDED["draft_checkpoint"] else {}
    asked = Speculation.model_validate({"kind": kind, "draft_tokens": 3, **named})
    drafting = Drafting(asked, changes.get("version", "1.2.1"), draft)
    return draft_memory(drafting, model or llama_8b(), changes.get("split", Split()))


def planned(changes: dict[str, Any], draft: DraftFacts | None = None) -> Plan:
    """Plan 8B on one GPU."""
    return settle(llama_8b(), replace(profile(changes), draft=draft), hardware(1, 80))


def test_an_eagle3_head_is_counted_by_hand() -> None:
    """Fusion of three states, doubled inputs of attention, feed-forward, and a head of the words it drafts."""
    fusion, words = 3 * 4096 * 4096, 32000 * 4096
    attention = (32 + 2 * 8) * 128 * 2 * 4096 + 32 * 128 * 4096
    head = taken("eagle3", HEAD)
    assert 2 * (fusion + attention + 3 * 14336 * 4096 + words) == head.weight_bytes
    assert "its config.json" in head.how
    assert 5 == head.tokens
    assert 3 == sum(head.attentions.values())


def test_ranks_share_the_head_but_not_the_fusion() -> None:
    """Four ranks hold a quarter of everything that is split."""
    whole, quarter = taken("eagle3", HEAD).weight_bytes, taken("eagle3", HEAD, split=Split(4)).weight_bytes
    fusion = 2 * 3 * 4096 * 4096
    assert (whole - fusion) // 4 == quarter - fusion


def test_a_head_that_is_not_here_is_estimated_from_the_model_and_said_so() -> None:
    """The estimate for 8B is what its published head has, and the arithmetic names it an estimate."""
    guess = taken("eagle3")
    assert taken("eagle3", HEAD).weight_bytes == guess.weight_bytes
    assert "estimate: the folder is not here" in guess.how


def test_a_whole_draft_model_is_counted_with_its_layers() -> None:
    """Llama 3.2 1B beside 70B: 1.24 B parameters and an embedding counted twice, sixteen layers of KV cache."""
    small = taken("draft_target", SMALL, llama_70b())
    layer = (32 + 16) * 64 * 2048 + 32 * 64 * 2048 + 3 * 8192 * 2048
    assert 2 * (16 * layer + 2 * 128256 * 2048) == small.weight_bytes
    assert {8: 16} == {kind.kv_heads: count for kind, count in small.attentions.items()}
    assert 3 == small.tokens


def test_a_draft_model_that_is_not_here_is_taken_for_a_tenth() -> None:
    """A tenth of the weights and of the layers, with a how that says estimate."""
    guess = taken("draft_target", None, llama_70b())
    assert 8 == sum(guess.attentions.values())
    assert guess.how.startswith("estimate: the folder is not here; a tenth of 70,5")


def test_prediction_layers_are_weights_and_cache_of_the_model_itself() -> None:
    """One prediction layer is a decoder layer and a projection of twice the width; 1.2 caches a layer a token."""
    own = taken("mtp", model=llama_8b().model_copy(update={"prediction_layers": 1}))
    layer = 4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14336 + 2 * 4096
    assert 2 * (layer + 2 * 4096**2) == own.weight_bytes
    assert [3] == list(own.attentions.values())


def test_ngram_takes_tokens_only() -> None:
    """Text is looked up on the host."""
    drafts = taken("ngram")
    assert (0, 0, 3) == (drafts.weight_bytes, sum(drafts.attentions.values()), drafts.tokens)


def test_a_parallel_draft_model_is_counted_whole_with_its_masks() -> None:
    """Its weights and layers are those of any draft model; four drafts a step are eight tokens, and three more held."""
    small = taken("pard", SMALL, llama_70b(), version="main")
    assert taken("draft_target", SMALL, llama_70b()).weight_bytes == small.weight_bytes
    assert {8: 16} == {kind.kv_heads: count for kind, count in small.attentions.items()}
    assert 2 * 3 - 1 + 3 - 1 == small.tokens
    asked = Speculation.model_validate({"kind": "pard", "draft_tokens": 4, "draft_checkpoint": "x"})
    assert 8 == logit_rows(Drafting(asked, "main", SMALL))


def test_what_looks_text_up_takes_tokens_only() -> None:
    """The suffix automaton drafts on the GPU and keeps no cache of its own; AUTO is n-grams."""
    found = {kind: taken(kind, version="main") for kind in ("sa", "auto")}
    assert [(0, 0, 5), (0, 0, 3)] == [
        (one.weight_bytes, sum(one.attentions.values()), one.tokens) for one in found.values()
    ]


def test_auto_is_counted_with_the_drafts_that_the_release_takes() -> None:
    """Seven are asked; n-grams of three are drafted, and of five where no more than four requests run at once."""
    asked = {"speculation.kind": "auto", "speculation.draft_tokens": 7}
    taken_by = {batch: planned(asked | {"limits.max_batch_size": batch}).speculation for batch in (4, 5)}
    assert {4: (5, "upstream"), 5: (3, "upstream")} == {
        batch: (made.draft_tokens.value, made.draft_tokens.source) for batch, made in taken_by.items() if made
    }
    many, few = planned(asked), planned({"speculation.kind": "ngram", "speculation.draft_tokens": 3})
    assert few.memory == many.memory


def test_the_plan_counts_weights_cache_tokens_and_logits_of_the_drafts() -> None:
    """Each of the four shows in the memory table of a plan."""
    bare = planned({})
    drafted = planned({"speculation": {"kind": "eagle3", "draft_tokens": 3, "draft_checkpoint": "x"}}, HEAD)
    before, after = ({term.name: term.bytes for term in plan.memory.terms} for plan in (bare, drafted))
    assert taken("eagle3", HEAD).weight_bytes == after["draft weights"]
    assert 4 * before["logits"] == after["logits"]
    assert bare.memory.kv_bytes_per_token + 3 * 2 * 8 * 128 * 2 == drafted.memory.kv_bytes_per_token
    assert drafted.memory.kv_bytes_per_sequence > bare.memory.kv_bytes_per_sequence
    assert drafted.memory.sequences < bare.memory.sequences


@settings(max_examples=40, deadline=None)
@given(kind=st.sampled_from(["eagle3", "ngram", "draft_target", "pard", "sa", "auto"]), tokens=st.integers(1, 16))
def test_more_drafts_never_let_more_sequences_fit(kind: str, tokens: int) -> None:
    """Every drafted token costs something or nothing, and never gives memory back."""
    named = {"draft_checkpoint": "x"} if kind in NEEDED["draft_checkpoint"] else {}
    release = {"trtllm_version": "main"} if kind in ("pard", "sa") else {}
    fewer, more = (
        planned({"speculation": {"kind": kind, "draft_tokens": count, **named}} | release)
        for count in (tokens, tokens + 1)
    )
    assert more.memory.sequences <= fewer.memory.sequences
    assert more.memory.kv_bytes_longest >= fewer.memory.kv_bytes_longest


def test_a_rehearsal_counts_no_drafts() -> None:
    """Only the real runtime drafts."""
    changes = {"runtime": "simulated", "speculation": {"kind": "ngram", "draft_tokens": 3}}
    assert planned({"runtime": "simulated"}).memory == planned(changes).memory
    assert 1 == logit_rows(None)


@pytest.mark.parametrize(("asked", "value", "source"), [("auto", 2, "upstream"), (5, 5, "profile")])
def test_the_ngram_length_is_decided_when_it_is_not_asked(asked: Any, value: int, source: str) -> None:
    """Releases before main refuse their own default, so the plan gives main's."""
    made = planned({
        "speculation.kind": "ngram", "speculation.draft_tokens": 3, "speculation.max_ngram": asked,
    })  # fmt: skip
    assert made.speculation is not None
    assert made.speculation.max_ngram is not None
    assert (value, source) == (made.speculation.max_ngram.value, made.speculation.max_ngram.source)
