"""One key of a profile explained: meaning, values, cost, releases, shipped profiles, checks, near spellings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.specs import profile
from trtllm_kit.errors import UsageError
from trtllm_kit.plan.checks import RULES
from trtllm_kit.plan.explain import cost_of, explain, keys
from trtllm_kit.upstream.llm_api import llm_api_key
from trtllm_kit.upstream.llm_api_inside import inside_key, kinds_of
from trtllm_kit.upstream.speculation import KINDS, speculation_field
from trtllm_kit.upstream.trtllm_build import build_flag

KEYS = keys()


def becomes(key: str) -> dict[str, str | None]:
    """Return the upstream name of a key by release."""
    return {one.release: one.key for one in explain(key, ()).becomes}


@given(st.sampled_from(KEYS))
def test_every_key_is_explained_and_what_it_becomes_exists(key: str) -> None:
    """No key is without words, and every name given for a release is in that release's table."""
    found = explain(key, ())
    assert found.description
    assert found.values
    for one in found.becomes:
        section, _, field = (one.key or "").rpartition(".")
        if one.key is None or key.startswith("environment.") or field == "decoding_type":
            continue
        if key.startswith("build.options."):
            assert build_flag(one.release, one.key) is not None
        elif key.startswith("llm_api.options."):
            kinds = (None, *kinds_of(one.release, one.key.partition(".")[0]))
            inside = any(inside_key(one.release, one.key, kind) for kind in kinds)
            assert inside or llm_api_key(one.release, one.key) is not None
        elif section == "speculative_config":
            assert any(speculation_field(kind, field, one.release) for kind in KINDS)
        else:
            assert llm_api_key(one.release, one.key) is not None


def test_a_key_is_followed_through_the_releases() -> None:
    """Limits moved, the draft gate was renamed, and 1.0 had no expert slots."""
    assert {"1.0.0": "build_config.max_batch_size", "1.1.0": "max_batch_size", "1.2.1": "max_batch_size",
            "main": "max_batch_size"} == becomes("limits.max_batch_size")  # fmt: skip
    gate = becomes("speculation.acceptance_threshold")
    assert [None, None] == [gate["1.0.0"], gate["1.1.0"]]
    assert "speculative_config.acceptance_length_threshold" == gate["1.2.1"]
    assert "speculative_config.acceptance_rate_threshold" == gate["main"]
    assert becomes("engine.expert_slots")["1.0.0"] is None
    assert {} == becomes("serve.http_port")


def test_an_option_of_the_builder_is_followed_through_the_releases() -> None:
    """What it takes, its default where the release has it, and who sets it."""
    options = profile({"build.options": {"user_buffer": "enable"}})
    found = explain("build.options.user_buffer", (options, profile()))
    assert ({"test": "enable"}, {"PF41"} <= set(found.checks)) == (found.set_by, True)
    named = {one.release: one.key for one in found.becomes}
    assert (None, "--user_buffer") == (named["0.15.0"], named["0.20.0"])
    kinds = {one.release: one.default for one in explain("build.options.max_batch_size", ()).becomes}
    assert 2048 == kinds["1.2.1"]
    assert "one of" in explain("build.options.gemm_plugin", ()).values
    assert "build.options.output_dir" not in KEYS


def test_an_argument_of_the_llm_api_is_followed_through_the_releases() -> None:
    """What it takes and who sets it; keys that another key of a profile stands for are none."""
    options = profile({"llm_api.options": {"lora_config.lora_target_modules": ("attn_q",)}})
    found = explain("llm_api.options.lora_config.lora_target_modules", (options, profile()))
    assert "a list, each item text" == found.values
    assert ({"test": ["attn_q"]}, {"PF24"}) == (found.set_by, set(found.checks))
    assert "adapters" in found.cost
    assert None is becomes("llm_api.options.nvfp4_gemm_config.allowed_backends")["1.1.0"]
    assert "llm_api.options.kv_cache_config.max_tokens" in KEYS
    own = ("kv_cache_config.dtype", "max_seq_len", "model", "kv_cache_config", "speculative_config")
    assert not {f"llm_api.options.{one}" for one in own} & set(KEYS)
    with pytest.raises(UsageError) as caught:
        explain("llm_api.options.kv_cache_config.dtype", ())
    assert "trtkit profiles explain quantization.kv_cache" == caught.value.hint


def test_words_of_a_release_are_listed_with_it() -> None:
    """Who reads the kind sees how each release spells it."""
    allowed = {one.release: one.allowed for one in explain("speculation.kind", ()).becomes}
    assert ("Eagle", "MTP", "NGram", "DraftTarget", "AUTO") == allowed["1.2.1"]
    assert "Eagle3" in allowed["main"]


def test_shipped_profiles_that_set_a_key_are_listed_with_the_value() -> None:
    """Only who sets it counts, not who keeps the default."""
    mine = profile({"engine.stream_interval": 10})
    assert {"test": 10} == explain("engine.stream_interval", (mine, profile())).set_by
    assert {} == explain("engine.autotuner", (mine,)).set_by
    variables = profile({"environment": {"NCCL_DEBUG": "INFO"}})
    assert {"test": "INFO"} == explain("environment.NCCL_DEBUG", (variables,)).set_by


def test_the_cost_is_what_the_description_names() -> None:
    """Sentences with a cost, and only those."""
    assert "Raising it costs KV cache and logits." == explain("limits.max_batch_size", ()).cost
    assert "" == cost_of("Lower case, digits, dot.")
    assert "It costs time." == cost_of("It is quick. It costs time. It is done.")


def test_checks_that_look_at_a_key_are_named() -> None:
    """A rule of a whole section looks at its keys, and a section is looked at by the rules of its keys."""
    assert {"PF25", "PF18"} <= set(explain("speculation.kind", ()).checks)
    assert {"PF30"} == set(explain("serve.grpc_port", ()).checks)
    assert {"PF29", "PF30"} == set(explain("serve", ()).checks)
    assert {"PF36"} == set(explain("environment.NCCL_DEBUG", ()).checks)


def test_every_rule_names_keys_that_exist() -> None:
    """A rule looks at something an operator can set."""
    for rule in RULES:
        assert rule.keys, rule.id
        assert set(rule.keys) <= set(KEYS), rule.id


@pytest.mark.parametrize(
    ("key", "near"),
    [("max_batch_size", "limits.max_batch_size"), ("engine.moe_backnd", "engine.moe_backend"),
     ("environment.NCCL_DEBG", "environment.NCCL_DEBUG"), ("speculation.knd", "speculation.kind"),
     ("build.options.gemm_plugn", "build.options.gemm_plugin"), ("gemm_plugin", "build.options.gemm_plugin"),
     ("LIMITS.MAX_SEQ_LEN", "limits.max_seq_len"), ("environment.nccl_debug", "environment.NCCL_DEBUG")],
)  # fmt: skip
def test_an_unknown_key_is_answered_with_a_near_one(key: str, near: str) -> None:
    """The hint is a command that works."""
    with pytest.raises(UsageError) as caught:
        explain(key, ())
    assert f"trtkit profiles explain {near}" == caught.value.hint
    assert explain(near, ()).key == near


def test_a_key_like_no_other_leads_to_the_list() -> None:
    """Nothing is guessed where nothing is near."""
    with pytest.raises(UsageError) as caught:
        explain("zzzzzzzzzz", ())
    assert caught.value.hint.startswith("trtkit profiles schema")


def test_no_profile_needs_a_base() -> None:
    """Only keys without which a profile is refused are told to be set."""
    assert not explain("base", ()).required
    assert explain("speculation.kind", ()).required
