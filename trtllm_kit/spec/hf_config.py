"""From ``config.json`` to a ``ModelSpec``, with all problems of the file at once.

``hf_table`` has the reader of each family. A key that is absent has the default of its family's configuration
class in Hugging Face transformers (``models/<family>/configuration_<family>.py``, read at release 5.14) where that
default holds for the whole family: no bias, untied embeddings, the rope base. Sizes and counts are required, but
for those that a family's published files leave out (Gemma 3).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trtllm_kit.errors import ModelConfigError, UnknownArchitecture
from trtllm_kit.spec.hf_keys import MOST_PROBLEMS, KeyProblem, Keys, as_json
from trtllm_kit.spec.hf_neutral import check_model_rest
from trtllm_kit.spec.hf_stored import EXPERT_TYPE, MODELOPT, read_stored, unsound_list
from trtllm_kit.spec.hf_table import FAMILIES, Family, family
from trtllm_kit.spec.model import ModelSpec

__all__ = ["FAMILIES", "read_model_spec"]

_EPSILONS = ("rms_norm_eps", "layer_norm_epsilon", "norm_eps", "layernorm_epsilon")
_DTYPES = ("bfloat16", "float16", "float32")


def read_model_spec(config: Mapping[str, Any], where: str, modelopt: Mapping[str, Any] | None = None) -> ModelSpec:
    """Read the text part of a model from its ``config.json``; ``where`` names the file in messages.

    ``modelopt`` is what ``hf_quant_config.json`` beside it has as ``quantization``.

    Raises ``UnknownArchitecture``, or ``ModelConfigError`` with every key that is missing, has no meaning, or asks
    for arithmetic the kit does not do.
    """
    outer = Keys(config)
    architecture = _architecture(outer, where)
    reads = family(architecture)
    keys = (_text_part(outer) if reads.wrapped else outer).completed(reads.defaults)
    parts = _common(keys, reads) | {"layers": reads.layers(keys)} | reads.facts(keys)
    parts["rope"] = reads.rope(keys, reads.theta, neighbours=reads.neighbours)
    inline = outer if outer.values.get("quantization_config") is not None else keys
    method = _quantized_as(inline) or (None if modelopt is None else MODELOPT)
    keys.ignore("architectures", "model_type", "transformers_version")
    check_model_rest(keys)
    if outer.problems:
        raise _refusal(where, outer.problems)
    if reads.prefix:
        parts |= {"prefix": reads.prefix}
    elif reads.wrapped:
        parts |= {"prefix": "language_model.model.", "head_name": "language_model.lm_head.weight"}
    spec = ModelSpec(family=reads.name, architecture=architecture, **parts)
    if method is None:
        return spec
    stated = dict(inline.values.get("quantization_config") or {}) | {EXPERT_TYPE: keys.values.get(EXPERT_TYPE)}
    return spec.model_copy(update={"stored": read_stored(spec, method, stated, modelopt)})


def _architecture(keys: Keys, where: str) -> str:
    """Return the architecture the file names: exactly one, and one the kit knows."""
    names = keys.values.get("architectures")
    if not (isinstance(names, list) and len(names) == 1 and isinstance(names[0], str)):
        keys.note("architectures", "a list with the name of one architecture")
        raise _refusal(where, keys.problems)
    if names[0] in FAMILIES:
        return names[0]
    raise UnknownArchitecture(
        f"{where} describes a {names[0]}",
        why=f"the kit reads {', '.join(sorted(FAMILIES))}",
        hint="use a model of one of these architectures",
    )


def _text_part(outer: Keys) -> Keys:
    """Return the keys of ``text_config``, completed by what the outer mapping states for the whole model."""
    section = outer.section("text_config")
    if section is None:
        if outer.sound("text_config"):
            outer.note("text_config", "the mapping that describes the text model")
        return outer
    text = Keys(section, "text_config.", outer.problems)
    completed = dict(section)
    for key in ("dtype", "torch_dtype", "tie_word_embeddings", "bos_token_id", "eos_token_id"):
        stated = outer.values.get(key)
        if stated is None:
            continue
        if section.get(key) is None:
            completed[key] = stated
        elif stated != section[key] and not key.endswith("_token_id"):
            text.note(key, f"the value outside text_config, {as_json(stated)}")
    return Keys(completed, "text_config.", outer.problems)


def _common(keys: Keys, reads: Family) -> dict[str, Any]:
    """Read what every family states in the same way."""
    activation = keys.spelling("hidden_activation", "hidden_act", "mlp_hidden_act")
    keys.word(activation, reads.activations, default=reads.activations[0])
    vocab = keys.integer("vocab_size")
    return {
        "hidden": keys.integer("hidden_size"),
        "vocab": vocab,
        "max_position": keys.integer("max_position_embeddings"),
        "norm_epsilon": keys.number(keys.spelling(*_EPSILONS)),
        "tied_embeddings": keys.flag("tie_word_embeddings", default=False),
        "dtype": keys.word(keys.spelling("dtype", "torch_dtype"), _DTYPES, reads.dtype),
        "bos_token": next(iter(_tokens(keys, "bos_token_id", vocab)), None),
        "eos_tokens": _tokens(keys, "eos_token_id", vocab),
    }


def _tokens(keys: Keys, key: str, vocab: int) -> tuple[int, ...]:
    """Return the tokens that begin (one or none) or end (one, a list, or none) a text.

    One outside the vocabulary is refused: as a beginning it has no embedding, and as an end it never comes, so that
    every answer would run into its limit.
    """
    if key == "eos_token_id" and isinstance(keys.values.get(key), list):
        tokens = keys.integers(key) or ()
    else:
        token = keys.optional_integer(key, least=0)
        tokens = () if token is None else (token,)
    if any(token >= vocab for token in tokens) and keys.sound("vocab_size"):
        keys.note(key, f"a token of the vocabulary, 0 to {vocab - 1}")
    return tokens


def _quantized_as(keys: Keys) -> str | None:
    """Return the method of an already quantised checkpoint, or None for plain weights."""
    section = keys.section("quantization_config")
    if section is None:
        return None
    unsound = unsound_list(section)
    if unsound is not None:
        keys.note("quantization_config", f"a list of module names as its {unsound}")
    producer = section.get("producer")
    method = section.get("quant_method") or (producer.get("name") if isinstance(producer, dict) else None)
    if isinstance(method, str):
        return method
    keys.note("quantization_config", "its quant_method, or the name of its producer")
    return None


def _refusal(where: str, problems: list[KeyProblem]) -> ModelConfigError:
    """Make one error of all problems: three lines for one, a list for several."""
    hint = "correct config.json, or fetch the model's own again; drop a key only if it has no effect on the model"
    first = problems[0]
    if len(problems) == 1:
        return ModelConfigError(f"{where}: {first.key} {first.state}", why=f"expected {first.expected}", hint=hint)
    return ModelConfigError(
        f"{where} has {len(problems)} problems{' or more' if len(problems) == MOST_PROBLEMS else ''}",
        why="these keys are missing, have no meaning, or ask for arithmetic the kit does not do",
        hint=hint,
        problems=tuple(str(problem) for problem in problems),
    )
