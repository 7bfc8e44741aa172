"""``llm_api.options``: keys of the LLM API that no other key of a profile stands for, from the profile to the YAML."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.specs import hardware, llama_8b, profile
from trtllm_kit.build.llm_api import llm_api_document, llm_api_yaml
from trtllm_kit.build.toolchain import steps
from trtllm_kit.checkpoint.plan_file import plan_text
from trtllm_kit.findings import Finding, Severity, errors
from trtllm_kit.lint.documents import document_findings
from trtllm_kit.plan.llm_options import GRAPH_SIZES, SECTION, is_an_option, own_words
from trtllm_kit.plan.plan import Plan
from trtllm_kit.plan.settle import settle
from trtllm_kit.repository.compose import model_yaml
from trtllm_kit.upstream.llm_api import keys_taken, unknown_llm_api_keys
from trtllm_kit.yaml_lines import parse_yaml

LORA: dict[str, Any] = {
    "enable_lora": True,
    "lora_config.max_lora_rank": 64,
    "lora_config.lora_target_modules": ["attn_q", "attn_v"],
    "peft_cache_config.host_cache_size": 1 << 30,
}
NGRAM = {"kind": "ngram", "draft_tokens": 4}


def plan_of(options: dict[str, Any], **changes: Any) -> Plan:
    """Plan 8B for release 1.2.1 with those options and keys, whose dots are written as two underscores."""
    dotted = {key.replace("__", "."): value for key, value in changes.items()}
    asked = {SECTION: options} if options else {}
    return settle(llama_8b(), profile(asked | dotted), hardware(8))


def said(options: dict[str, Any], **changes: Any) -> list[Finding]:
    """Return what the plan says of options, and not of the same profile without them."""
    before = plan_of({}, **changes).findings
    return [one for one in plan_of(options, **changes).findings if one not in before]


def told(options: dict[str, Any], **changes: Any) -> list[tuple[str, Severity]]:
    """Return rule and severity of each."""
    return [(one.rule, one.severity) for one in said(options, **changes)]


def test_options_flow_into_every_yaml_with_the_profile_as_their_source() -> None:
    """The plan says who set them; engine, Triton model and plan's own keys hold them nested."""
    made = plan_of(LORA)
    documents = [llm_api_document(made), yaml.safe_load(llm_api_yaml(made)), yaml.safe_load(model_yaml(made))]
    decided = {key: one.source for key, one in made.decisions() if key.startswith(SECTION)}

    assert dict.fromkeys((f"{SECTION}.{name}" for name in LORA), "profile") == decided
    for document in documents:
        assert (True, 1 << 30) == (document["enable_lora"], document["peft_cache_config"]["host_cache_size"])
        assert {"max_lora_rank": 64, "lora_target_modules": ["attn_q", "attn_v"]} == document["lora_config"]
        assert made.limits.max_seq_len.value == document["max_seq_len"]
    assert () == errors(made.findings)


def test_a_profile_without_options_has_the_plan_and_the_yaml_it_had() -> None:
    """No digest of a plan changes, and none of an engine."""
    assert "llm_api" not in plan_of({}).model_dump()
    assert plan_of({}).digest == plan_of({}, llm_api={}).digest


def test_options_are_part_of_the_engine_and_survive_the_plan_file() -> None:
    """Another value is another digest; a stored plan writes the same YAML."""
    one, other = plan_of({"enable_lora": True}), plan_of({"enable_lora": False})
    stored = Plan.model_validate_json(plan_text(plan_of(LORA)))

    assert one.digest != other.digest
    assert steps(one) != steps(other)
    assert llm_api_yaml(plan_of(LORA)) == llm_api_yaml(stored)
    assert plan_of(LORA).digest == stored.digest


@pytest.mark.parametrize(
    ("name", "value", "instead"),
    [
        ("kv_cache_config.dtype", "fp8", "quantization.kv_cache in its place"),
        ("max_seq_len", 4096, "limits.max_seq_len in its place"),
        ("build_config.max_seq_len", 4096, ""),
        ("disable_overlap_scheduler", True, "engine.overlap_scheduler in its place"),
        ("tensor_parallel_size", 2, "parallelism.tensor in its place"),
        ("context_parallel_size", 2, "parallelism.context in its place"),
        ("env_overrides", {"LD_PRELOAD": "x.so"}, "environment in its place"),
        ("cuda_graph_config", None, "engine.cuda_graphs in its place"),
        ("speculative_config.decoding_type", "MTP", "speculation.kind in its place"),
        ("speculative_config.max_concurrency", 2, "speculation.kind and draft_tokens"),
        ("model", "/elsewhere", "serve.checkpoint_path for another place"),
        ("model.name", "/elsewhere", "leave llm_api.options.model.name out"),
        ("backend", "tensorrt", "leave llm_api.options.backend out"),
        ("return_perf_metrics", False, "leave llm_api.options.return_perf_metrics out"),
        ("triton_config.decoupled", False, "leave llm_api.options.triton_config.decoupled out"),
        ("kv_cache_config", None, "llm_api.options.kv_cache_config.NAME"),
        ("kv_cache_config.dtype.inside", 1, "leave llm_api.options.kv_cache_config.dtype.inside out"),
        ("lora_config", {"max_lora_rank": 8}, "llm_api.options.lora_config.max_lora_rank"),
    ],
)
def test_a_key_with_a_word_of_its_own_is_refused_with_that_word(name: str, value: object, instead: str) -> None:
    """And it does not reach the YAML, whatever else is asked."""
    found = said({name: value, "enable_lora": True})

    assert ("PF24", Severity.ERROR) == (found[0].rule, found[0].severity)
    assert instead in found[0].suggestion
    if instead:
        assert llm_api_document(plan_of({"enable_lora": True})) == llm_api_document(
            plan_of({name: value, "enable_lora": True})
        )


@pytest.mark.parametrize("release", ["1.0.0", "1.2.1", "main"])
def test_no_option_changes_what_the_plan_decided(release: str) -> None:
    """Each key the release takes is refused or leaves every other key of the YAML as it was."""
    plain = _flat(llm_api_document(plan_of({}, trtllm_version=release)))
    for name in keys_taken(release):
        document = _flat(llm_api_document(plan_of({name: "x"}, trtllm_version=release)))
        alone = {key: value for key, value in document.items() if key != name and not f"{name}.".startswith(f"{key}.")}
        assert alone == {key: value for key, value in plain.items() if key in alone}, name
        lost = {key for key in plain if document.get(key) != plain[key]}
        assert (set() if name != GRAPH_SIZES else {"cuda_graph_config.max_batch_size"}) == lost, name
        assert is_an_option(release, name) or name not in document or name in plain, name


def _flat(document: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a document's leaves by dotted key."""
    found: dict[str, Any] = {}
    for name, value in document.items():
        inside = _flat(value, f"{prefix}{name}.") if isinstance(value, dict) and value else {f"{prefix}{name}": value}
        found |= inside
    return found


def test_every_key_that_a_plan_writes_is_one_that_no_option_may_be() -> None:
    """Taken from the YAML of plans that set all they can."""
    wide = {
        "limits.max_beam_width": 2, "parallelism.attention_dp": True, "engine.attention_dp_balance": True,
        "engine.cuda_graphs": True, "kv_cache.host_cache_bytes": 1 << 30, "speculation": NGRAM,
        "engine.allreduce_strategy": "nccl", "engine.min_latency": True, "engine.stream_interval": 2,
    }  # fmt: skip
    for release in ("1.0.0", "1.1.0", "1.2.1", "main"):
        plan = settle(llama_8b(), profile(wide | {"trtllm_version": release}), hardware(8))
        for key in _flat(llm_api_document(plan)):
            refused = settle(
                llama_8b(), profile(wide | {"trtllm_version": release, SECTION: {key: 1}}), hardware(8)
            ).findings
            assert any(f"cannot set {key}." in one.message for one in refused), (release, key)


@pytest.mark.parametrize(
    ("options", "release", "expected"),
    [
        ({"enable_loraa": True}, "1.2.1", Severity.ERROR),
        ({"kv_cache_config.max_rank": 8}, "1.2.1", Severity.ERROR),
        ({"enable_loraa": True}, "1.2.0", Severity.WARNING),
        ({"guided_decoding_backend": "outlines"}, "1.2.1", Severity.ERROR),
        ({"kv_cache_config.use_kv_cache_manager_v2": True}, "main", Severity.WARNING),
        ({"guided_decoding_backend": "xgrammar"}, "1.2.1", None),
        ({"nvfp4_gemm_config.allowed_backends": ["cutlass"]}, "1.2.1", None),
    ],
)
def test_options_give_the_findings_that_lint_gives_of_the_yaml(
    options: dict[str, Any], release: str, expected: Severity | None
) -> None:
    """Rule, severity, words and what was compared are the same; the way out names the profile's key."""
    plan = plan_of(options, trtllm_version=release)
    lint = _linted(plan) - _linted(plan_of({}, trtllm_version=release))

    assert ({expected} if expected else set()) == {severity for _, severity, _, _ in lint}
    assert lint == {_words(one) for one in said(options, trtllm_version=release)}


def _linted(plan: Plan) -> set[tuple[str, Severity, str, str]]:
    """Return what lint finds in the YAML of a plan."""
    read = parse_yaml(llm_api_yaml(plan).encode())
    return {_words(one.finding) for one in document_findings(read, "llm_args.yaml", plan.release.value)}


def _words(finding: Finding) -> tuple[str, Severity, str, str]:
    return finding.rule, finding.severity, finding.message, finding.compared


@pytest.mark.parametrize(
    ("options", "severity", "takes"),
    [
        ({"enable_lora": 3}, Severity.ERROR, "it takes true or false"),
        ({"batch_wait_timeout_ms": "soon"}, Severity.ERROR, "it takes a number"),
        ({"cuda_graph_config.batch_sizes": [1, "two"]}, Severity.ERROR, "a list, each item a whole number or null"),
        ({"cuda_graph_config.batch_sizes": 4}, Severity.ERROR, "a list, each item a whole number or null"),
        ({"lora_config.max_lora_rank": "many"}, Severity.WARNING, "it takes a whole number"),
        ({"nvfp4_gemm_config.allowed_backends": ["cuda"]}, Severity.ERROR, "it takes one of cutlass"),
    ],
)
def test_a_value_of_another_type_is_told(options: dict[str, Any], severity: Severity, takes: str) -> None:
    """Surely where the release's own keys were read, as a warning where others' were."""
    (found,) = [one for one in said(options) if "value" in one.message]

    assert (severity, True) == (found.severity, takes in found.compared)


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ({"enable_lora": "true", "batch_wait_timeout_iters": "3"}, {}),
        ({"garbage_collection_gen0_threshold": 20000.0}, {}),
        ({"kv_connector_config": {}, "peft_cache_config": {}}, {}),
        ({"moe_config.load_balancer": "balance.yaml"}, {}),
        ({"speculative_config.max_concurrency": 8}, {"speculation": NGRAM}),
        ({"scheduler_config.context_chunking_policy": "FIRST_COME_FIRST_SERVED"}, {}),
        ({"cuda_graph_config.batch_sizes": [1, 2, 8]}, {}),
        ({"sparse_attention_config.algorithm": "rocket", "sparse_attention_config.window_size": 4}, {}),
        ({"enable_trtllm_sampler": True}, {"trtllm_version": "1.0.0"}),
        ({"trust_remote_code": True, "tokenizer": "/models/tokenizer"}, {}),
    ],
)
def test_what_the_release_takes_has_no_error(options: dict[str, Any], changes: dict[str, Any]) -> None:
    """And the YAML holds it."""
    plan = plan_of(options, **changes)
    document = _flat(llm_api_document(plan))

    assert [] == [one for one in said(options, **changes) if one.severity is Severity.ERROR]
    assert options.items() <= document.items()
    assert () == unknown_llm_api_keys(plan.release.value, llm_api_document(plan))


def test_a_list_of_graph_sizes_takes_the_place_of_the_largest_one() -> None:
    """Releases refuse both; a largest that the profile sets otherwise is an error."""
    sizes = {"cuda_graph_config.batch_sizes": [1, 2, 8]}
    asked = {"engine__cuda_graph_max_batch_size": 16}

    assert {"enable_padding": True, "batch_sizes": [1, 2, 8]} == llm_api_document(plan_of(sizes))["cuda_graph_config"]
    assert [("PF24", Severity.ERROR)] == told(sizes, **asked)
    assert [] == told(sizes, engine__cuda_graph_max_batch_size=8)
    assert [("PF24", Severity.ERROR)] == told(sizes, engine__cuda_graphs=False)
    assert None is llm_api_document(plan_of(sizes, engine__cuda_graphs=False))["cuda_graph_config"]


@pytest.mark.parametrize(("toolchain", "release"), [("trtllm-build", "1.2.1"), ("mock", "0.15.0")])
def test_engines_say_that_options_mean_nothing_to_them(toolchain: str, release: str) -> None:
    """A warning, and a plan without them."""
    changes = {"toolchain": toolchain, "trtllm_version": release}

    assert [("PF24", Severity.WARNING)] == told(LORA, **changes)
    assert plan_of({}, **changes).digest == plan_of(LORA, **changes).model_copy(
        update={"findings": plan_of({}, **changes).findings}
    ).digest  # fmt: skip


def test_memory_that_no_sum_has_is_told() -> None:
    """Adapters with the share of their cache; a KV cache bounded below what was promised, and not one above it."""
    (lora,) = said(LORA | {"peft_cache_config.device_cache_percent": 0.25})
    (bound,) = said({"kv_cache_config.max_tokens": 100})

    assert (Severity.WARNING, True) == (lora.severity, "adapters' cache is 25% of that" in lora.compared)
    assert (Severity.WARNING, "llm_api.options.kv_cache_config.max_tokens: 4096") == (
        bound.severity, bound.suggestion.partition(",")[0]
    )  # fmt: skip
    assert [] == said({"kv_cache_config.max_tokens": 1 << 20})
    assert [] == said({"enable_lora": False, "dtype": "bfloat16", "print_iter_log": True})


def test_own_words_are_keys_of_profiles() -> None:
    """What a refusal tells to write can be written."""
    words = set(own_words("1.0.0").values())
    sections = profile().profile.model_dump()

    assert set() == {word for word in words if word.partition(".")[0] not in sections}


HOSTILE = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\x00"), max_size=40).filter(
    lambda text: all(letter in "\t\n" or (ord(letter) >= 32 and letter != "\x7f") for letter in text)
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 53), 1 << 53) | st.floats(allow_nan=False, allow_infinity=False)
    | HOSTILE | st.sampled_from(["yes", "null", "1e3", "010", "a: b", "# x", "${HOME}", "'\"`$(id)", "---\na: 1"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(HOSTILE, inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@given(value=VALUES)
@settings(max_examples=40, deadline=None)
def test_values_are_data_and_never_structure(value: Any) -> None:
    """Whatever a value is, the YAML has it as it stood under its own key, and every other key as it was."""
    plan = plan_of({"reasoning_parser": value})
    document = yaml.safe_load(llm_api_yaml(plan))
    stored = Plan.model_validate(json.loads(plan.model_dump_json()))

    assert value == document.pop("reasoning_parser")
    assert llm_api_document(plan_of({})) == document
    assert plan.digest == stored.digest
