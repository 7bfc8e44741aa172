"""The weights of prediction layers (MTP), which draft further tokens: each family stores them in its own way.

DeepSeek's and Qwen3.5's names are those of their published files. MiMo's and Nemotron-3's were read in the runtimes
that load them (vLLM's ``mimo_mtp`` and ``nemotron_h_mtp``), Step's in llm-compressor's and vLLM's ``step3p5_mtp``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from trtllm_kit.spec.model import Layer, ModelSpec
from trtllm_kit.spec.sparse_tensors import outer_residual_tensors
from trtllm_kit.spec.tensor_fact import Role, TensorFact

LayerTensors = Callable[[ModelSpec, str, int, Layer], Iterator[TensorFact]]
"""Yields the tensors of a layer whose names begin with the given text."""


def prediction_facts(model: ModelSpec, layer_tensors: LayerTensors) -> Iterator[TensorFact]:
    """Yield the tensors of all prediction layers."""
    if model.family in ("qwen3_5", "qwen3_5_moe"):
        yield from _qwen3_5(model, layer_tensors)
        return
    for step in range(model.prediction_layers):
        number = len(model.layers) + step
        if model.family == "nemotron_h":
            yield from _nemotron_h(model, step, number, layer_tensors)
        elif model.family == "mimo":
            yield from _mimo(model, step, number, layer_tensors)
        elif model.family == "step3":
            yield from _step(model, number, layer_tensors)
        elif model.family == "deepseek_v4":
            yield from _deepseek_v4(model, step, number, layer_tensors)
        elif model.family == "minimax_m3":
            yield from _minimax_m3(model, step, number, layer_tensors)
        else:
            yield from _deepseek(model, number, layer_tensors)


def _fact(base: str, suffix: str, role: Role, number: int, *shape: int) -> TensorFact:
    return TensorFact(name=base + suffix, shape=shape, role=role, layer=number)


def _joined(
    model: ModelSpec, base: str, number: int, names: tuple[str, ...], layer_tensors: LayerTensors
) -> Iterator[TensorFact]:
    """Yield norms, one projection (the last name) that joins word and hidden state, and the layers behind it."""
    *norms, projection = names
    for name in norms:
        yield _fact(base, f"{name}.weight", Role.NORM, number, model.hidden)
    yield _fact(base, f"{projection}.weight", Role.PREDICTION, number, model.hidden, 2 * model.hidden)
    for layer in model.prediction_step:
        yield from layer_tensors(model, base, number, layer)


def _deepseek(model: ModelSpec, number: int, layer_tensors: LayerTensors) -> Iterator[TensorFact]:
    """Yield a layer with an embedding and a head of its own in the file; GLM's files have them once."""
    own_ends = model.family != "glm_moe_dsa"
    base, hidden = f"{model.prefix}layers.{number}.", model.hidden
    if own_ends:
        yield _fact(base, "embed_tokens.weight", Role.EMBEDDING, number, model.vocab, hidden)
    yield _fact(base, "enorm.weight", Role.NORM, number, hidden)
    yield _fact(base, "hnorm.weight", Role.NORM, number, hidden)
    yield _fact(base, "eh_proj.weight", Role.PREDICTION, number, hidden, 2 * hidden)
    for layer in model.prediction_step:
        yield from layer_tensors(model, base, number, layer)
    yield _fact(base, "shared_head.norm.weight", Role.NORM, number, hidden)
    if own_ends:
        yield _fact(base, "shared_head.head.weight", Role.HEAD, number, model.vocab, hidden)


def _step(model: ModelSpec, number: int, layer_tensors: LayerTensors) -> Iterator[TensorFact]:
    """Yield a dense layer with a head of its own; the embedding is the model's."""
    base, hidden = f"{model.prefix}layers.{number}.", model.hidden
    yield from _joined(
        model, base, number, ("enorm", "hnorm", "transformer.shared_head.norm", "eh_proj"), layer_tensors
    )
    yield _fact(base, "transformer.shared_head.output.weight", Role.HEAD, number, model.vocab, hidden)


def _deepseek_v4(model: ModelSpec, step: int, number: int, layer_tensors: LayerTensors) -> Iterator[TensorFact]:
    """Yield a layer that joins by two projections and mixes its hidden states by itself; the model's ends serve it."""
    base, hidden = f"mtp.{step}.", model.hidden
    for name in ("enorm", "hnorm", "norm"):
        yield _fact(base, f"{name}.weight", Role.NORM, number, hidden)
    for name in ("e_proj", "h_proj"):
        yield _fact(base, f"{name}.weight", Role.PREDICTION, number, hidden, hidden)
    for layer in model.prediction_step:
        yield from layer_tensors(model, base, number, layer)
    for fact in outer_residual_tensors(base, hidden, model.streams, model.residual_block):
        yield fact.model_copy(update={"layer": number})


def _minimax_m3(model: ModelSpec, step: int, number: int, layer_tensors: LayerTensors) -> Iterator[TensorFact]:
    """Yield a layer without ends of its own, named as MiniMax-M3's loaders leave it out; its shapes are near."""
    base = f"{model.prefix}mtp.layers.{step}."
    yield from _joined(model, base, number, ("enorm", "hnorm", "final_layernorm", "eh_proj"), layer_tensors)


def _qwen3_5(model: ModelSpec, layer_tensors: LayerTensors) -> Iterator[TensorFact]:
    """Yield one projection for all layers; embedding and head are the model's."""
    if not model.prediction_layers:
        return
    first, hidden = len(model.layers), model.hidden
    yield _fact("mtp.", "fc.weight", Role.PREDICTION, first, hidden, 2 * hidden)
    for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"):
        yield _fact("mtp.", f"{name}.weight", Role.NORM, first, hidden)
    for step in range(model.prediction_layers):
        yield from layer_tensors(model, f"mtp.layers.{step}.", first + step, model.prediction_step[0])


def _nemotron_h(model: ModelSpec, step: int, number: int, layer_tensors: LayerTensors) -> Iterator[TensorFact]:
    """Yield the several layers of one step; the first joins, the last has a norm behind it."""
    hidden, several = model.hidden, len(model.prediction_step)
    first, last = f"mtp.layers.{step * several}.", f"mtp.layers.{step * several + several - 1}."
    yield _fact(first, "enorm.weight", Role.NORM, number, hidden)
    yield _fact(first, "hnorm.weight", Role.NORM, number, hidden)
    yield _fact(first, "eh_proj.weight", Role.PREDICTION, number, hidden, 2 * hidden)
    for place, layer in enumerate(model.prediction_step):
        yield from layer_tensors(model, f"mtp.layers.{step * several + place}.", number, layer)
    yield _fact(last, "final_layernorm.weight", Role.NORM, number, hidden)


def _mimo(model: ModelSpec, step: int, number: int, layer_tensors: LayerTensors) -> Iterator[TensorFact]:
    base = f"{model.prefix}mtp_layers.{step}."
    names = ("token_layernorm", "hidden_layernorm", "final_layernorm", "input_proj")
    yield from _joined(model, base, number, names, layer_tensors)
