"""What ``read_model_spec`` takes from a whole ``config.json``, and how it refuses one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trtllm_kit.errors import ModelConfigError, UnknownArchitecture
from trtllm_kit.spec.hf_config import FAMILIES, read_model_spec
from trtllm_kit.spec.model import Dense, Experts
from trtllm_kit.spec.tensors import active_parameters, parameters

from .configs import config, read, without, wrapped

SMOLLM2 = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "is_llama_config": True,
    "max_position_embeddings": 8192,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 9,
    "num_hidden_layers": 30,
    "num_key_value_heads": 3,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-5,
    "rope_interleaved": False,
    "rope_scaling": None,
    "rope_theta": 100000,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "vocab_size": 49152,
}


def test_the_model_of_the_quickstart() -> None:
    """SmolLM2-135M has 134,515,008 parameters, a tied head and three KV heads for nine heads."""
    spec = read_model_spec(SMOLLM2, "config.json")

    assert 134_515_008 == parameters(spec) == active_parameters(spec)
    assert (True, 9, 3, 64) == (
        spec.tied_embeddings,
        spec.layers[0].attention.heads,
        spec.layers[0].attention.kv_heads,
        spec.layers[0].attention.head_dim,
    )


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("Qwen--Qwen3-235B-A22B", None),
        ("Qwen--Qwen3-235B-A22B-FP8", "fp8"),
        ("Qwen--Qwen3-32B-FP8-Static-PerTensor", "modelopt"),
    ],
)
def test_real_quantised_checkpoints_say_how(shared: Path, name: str, method: str | None) -> None:
    """The method stands in ``quant_method``, or in the name of the producer."""
    document = json.loads((shared / "models" / f"{name}_config.json").read_text())

    assert method == read_model_spec(document, name).quantized_as


def test_facts_of_a_llama() -> None:
    """The plain keys of a Llama land in the fields of the same meaning."""
    spec = read("llama", bos_token_id=1, eos_token_id=[2, 3], tie_word_embeddings=True, model_type="llama")

    assert ("llama", "LlamaForCausalLM") == (spec.family, spec.architecture)
    assert (32, 64, 128, 4) == (spec.hidden, spec.vocab, spec.max_position, len(spec.layers))
    assert (1e-5, "bfloat16", "silu") == (spec.norm_epsilon, spec.dtype, spec.activation)
    assert (True, 1, (2, 3)) == (spec.tied_embeddings, spec.bos_token, spec.eos_tokens)
    assert ("model.", "lm_head.weight") == (spec.prefix, spec.head_name)


@pytest.mark.parametrize("family", ["llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "llama4"])
def test_absent_keys_have_the_defaults_of_the_family(family: str) -> None:
    """Without the keys a model has untied embeddings, no end token, and silu."""
    spec = read(family)

    assert (family, False, (), None) == (spec.family, spec.tied_embeddings, spec.eos_tokens, spec.quantized_as)


@pytest.mark.parametrize(("value", "tokens"), [(7, (7,)), ([7, 8], (7, 8)), (None, ()), ([], ())])
def test_end_tokens_are_one_several_or_none(value: Any, tokens: tuple[int, ...]) -> None:
    """``eos_token_id`` is a number, a list, or null."""
    assert tokens == read("llama", eos_token_id=value).eos_tokens


@pytest.mark.parametrize("key", ["dtype", "torch_dtype"])
def test_both_spellings_of_the_dtype(key: str) -> None:
    """Old files have ``torch_dtype``, new ones ``dtype``."""
    document = without("llama", "torch_dtype") | {key: "float16"}

    assert "float16" == read_model_spec(document, "c").dtype


def test_the_text_part_of_a_wrapped_model() -> None:
    """A Llama 4 with vision is read from ``text_config``, and its tensors stand under ``language_model.``."""
    spec = read_model_spec(wrapped({"vision_config": {"hidden_size": 9}, "eos_token_id": 5}), "c")

    assert ("llama4", (5,)) == (spec.family, spec.eos_tokens)
    assert ("language_model.model.", "language_model.lm_head.weight") == (spec.prefix, spec.head_name)


def test_what_only_the_outer_part_states_holds_for_the_text() -> None:
    """Dtype and tied embeddings may stand outside ``text_config``."""
    document = wrapped({"torch_dtype": "float16", "tie_word_embeddings": True}, torch_dtype=None)

    spec = read_model_spec(document, "c")

    assert ("float16", True) == (spec.dtype, spec.tied_embeddings)


PROBLEMS: list[tuple[str, dict[str, Any], str, str]] = [
    ("llama", {"num_attention_heads": None}, "num_attention_heads is null", "a whole number of 1 or more"),
    ("llama", {"hidden_size": "32"}, 'hidden_size is "32"', "a whole number of 1 or more"),
    ("llama", {"hidden_size": 32.0}, "hidden_size is 32.0", "a whole number of 1 or more"),
    ("llama", {"vocab_size": True}, "vocab_size is true", "a whole number of 1 or more"),
    ("llama", {"vocab_size": 0}, "vocab_size is 0", "a whole number of 1 or more"),
    ("llama", {"intermediate_size": -1}, "intermediate_size is -1", "a whole number of 1 or more"),
    ("llama", {"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000", "from 1 to 10000"),
    ("llama", {"rms_norm_eps": 0}, "rms_norm_eps is 0", "a number above 0"),
    ("llama", {"rms_norm_eps": float("nan")}, "rms_norm_eps is NaN", "a number above 0"),
    ("llama", {"tie_word_embeddings": "no"}, 'tie_word_embeddings is "no"', "true or false"),
    ("llama", {"eos_token_id": [1, "2"]}, 'eos_token_id is [1, "2"]', "a list of whole numbers"),
    ("llama", {"eos_token_id": -1}, "eos_token_id is -1", "of 0 or more"),
    ("llama", {"torch_dtype": "float8"}, 'torch_dtype is "float8"', "one of bfloat16, float16, float32"),
    ("llama", {"dtype": "float16"}, 'torch_dtype is "bfloat16"', 'the value of dtype, "float16"'),
    ("llama", {"num_key_value_heads": 3}, "num_key_value_heads is 3", "a divisor of num_attention_heads, 4"),
    ("llama", {"hidden_size": 30}, "head_dim is missing", "hidden_size 30 is no multiple of num_attention_heads 4"),
    ("llama", {"head_dim": 7}, "head_dim is 7", "an even width"),
    ("llama", {"hidden_act": "gelu"}, 'hidden_act is "gelu"', "one of silu, swish"),
    ("llama", {"quantization_config": {}}, "quantization_config is {}", "its quant_method"),
    ("llama", {"quantization_config": "fp8"}, 'quantization_config is "fp8"', "a mapping"),
    ("llama", {"architectures": []}, "architectures is []", "a list with the name of one architecture"),
    ("llama", {"architectures": None}, "architectures is null", "a list with the name of one architecture"),
    ("mixtral", {"num_experts_per_tok": 5}, "num_experts_per_tok is 5", "4 or less, the number of experts"),
    ("mixtral", {"num_experts": 8}, "num_experts is 8", "the value of num_local_experts, 4"),
]


@pytest.mark.parametrize(("family", "changes", "state", "expected"), PROBLEMS)
def test_a_bad_key_is_named_with_its_value(family: str, changes: dict[str, Any], state: str, expected: str) -> None:
    """One problem gives three lines: file, key and value; what is expected; what to try."""
    with pytest.raises(ModelConfigError) as caught:
        read(family, **changes)

    what, why, _ = caught.value.lines()
    assert f"config.json: {state}" in what
    assert expected in why
    assert () == caught.value.problems


@pytest.mark.parametrize(
    ("family", "key"),
    [(family, key) for family in ("llama", "qwen3_moe", "llama4") for key in ("num_attention_heads", "hidden_size")]
    + [
        ("llama", "intermediate_size"),
        ("llama", "vocab_size"),
        ("llama", "rms_norm_eps"),
        ("llama", "num_hidden_layers"),
        ("llama", "max_position_embeddings"),
        ("mistral", "num_key_value_heads"),
        ("mixtral", "num_local_experts"),
        ("mixtral", "num_experts_per_tok"),
        ("qwen3_moe", "moe_intermediate_size"),
    ],
)
def test_a_required_key_is_missed(family: str, key: str) -> None:
    """A size or count that is absent is one problem, named, and drags no other along."""
    with pytest.raises(ModelConfigError, match=f"{key} is missing") as caught:
        read_model_spec(without(family, key), "config.json")

    assert () == caught.value.problems


def test_a_file_without_dtype_is_refused() -> None:
    """The number format of the weights is never guessed."""
    with pytest.raises(ModelConfigError, match="dtype is missing"):
        read_model_spec(without("llama", "torch_dtype"), "config.json")


@pytest.mark.parametrize("family", ["llama", "llama4"])
@pytest.mark.parametrize(
    ("key", "value"), [("eos_token_id", 10**9), ("eos_token_id", [2, 10**400]), ("bos_token_id", 10**9)]
)
def test_a_token_outside_the_vocabulary_is_refused(family: str, key: str, value: object) -> None:
    """As an end it never comes, so every answer would run into its limit; as a beginning it has no embedding."""
    document = config(family)
    text = document.get("text_config", document)
    vocab = text["vocab_size"]
    text[key] = value
    with pytest.raises(ModelConfigError, match=f"{key} is .*") as caught:
        read_model_spec(document, "c")
    assert f"a token of the vocabulary, 0 to {vocab - 1}" in str(caught.value)
    text[key] = vocab - 1
    read_model_spec(document, "c")


@pytest.mark.parametrize("key", ["rope_theta", "rms_norm_eps"])
def test_a_whole_number_larger_than_any_float_is_refused(key: str) -> None:
    """It has no float to be computed with."""
    with pytest.raises(ModelConfigError, match=f"{key} is 1000.*"):
        read("llama", **{key: 10**400})
    read("llama", **{key: 10**20})


def test_all_problems_come_at_once() -> None:
    """Five wrong keys are five lines of one error."""
    changes = {
        "hidden_size": -1,
        "num_attention_heads": "x",
        "rope_theta": 0,
        "attention_multiplier": 2.0,
        "dtype": "q",
    }

    with pytest.raises(ModelConfigError) as caught:
        read("llama", **changes | {"torch_dtype": None})

    assert "config.json has 5 problems" == caught.value.what
    assert {"hidden_size", "num_attention_heads", "rope_theta", "attention_multiplier", "dtype"} == {
        problem.split(" ")[0] for problem in caught.value.problems
    }
    assert "    hidden_size is -1; expected a whole number of 1 or more" in str(caught.value).splitlines()


def test_an_unknown_architecture_lists_the_known_ones() -> None:
    """The error names the architecture found and every one the kit reads."""
    with pytest.raises(UnknownArchitecture) as caught:
        read("llama", architectures=["MambaForCausalLM"])

    assert "config.json describes a MambaForCausalLM" == caught.value.what
    assert all(name in caught.value.why for name in FAMILIES)


@pytest.mark.parametrize(
    ("document", "state"),
    [
        (wrapped() | {"text_config": None}, "text_config is null"),
        (wrapped() | {"text_config": 3}, "text_config is 3"),
        (wrapped(hidden_size=0), "text_config.hidden_size is 0"),
        (wrapped({"tie_word_embeddings": True}, tie_word_embeddings=False), "text_config.tie_word_embeddings is false"),
        (wrapped({"torch_dtype": "float32"}), 'text_config.torch_dtype is "bfloat16"'),
    ],
)
def test_problems_of_a_wrapped_model_name_the_part(document: dict[str, Any], state: str) -> None:
    """A key of the text model is named with its path."""
    with pytest.raises(ModelConfigError) as caught:
        read_model_spec(document, "c")

    assert state in str(caught.value)


def test_layers_of_one_kind_are_one_object() -> None:
    """A deep model costs one layer object, not one for each layer."""
    spec = read("llama", num_hidden_layers=10_000)

    assert 1 == len({id(layer) for layer in spec.layers})


def test_the_spec_survives_json() -> None:
    """A spec with experts and dense layers comes back from JSON as it was."""
    spec = read("qwen3_moe", mlp_only_layers=[0])

    assert spec == type(spec).model_validate_json(spec.model_dump_json())
    assert [Dense, Experts] == [type(layer.feed_forward) for layer in spec.layers[:2]]


def test_the_document_is_not_changed() -> None:
    """Reading leaves the mapping it was given as it was."""
    document = config("llama4")

    read_model_spec(document, "c")

    assert config("llama4") == document
