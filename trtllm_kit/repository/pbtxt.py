"""Writes a ``ModelConfig`` as ``config.pbtxt`` (protobuf text format).

Every string is escaped here and nowhere else, so that no name or value can change the structure of the file.
"""

from __future__ import annotations

from collections.abc import Iterator

from trtllm_kit.repository.model_config import Batching, EnsembleStep, ModelConfig, ModelTensor

_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def write_pbtxt(config: ModelConfig) -> str:
    """Return the text of ``config.pbtxt``; parsing it gives the same configuration back."""
    return "\n".join(_lines(config)) + "\n"


def quote(text: str) -> str:
    """Return a string literal: quoted, control characters in octal, everything else as UTF-8."""
    return '"' + "".join(_ESCAPES.get(letter) or _plain_or_octal(letter) for letter in text) + '"'


def _plain_or_octal(letter: str) -> str:
    return letter if letter.isprintable() else "".join(f"\\{byte:03o}" for byte in letter.encode())


def _lines(config: ModelConfig) -> Iterator[str]:
    yield f"name: {quote(config.name)}"
    yield f"backend: {quote(config.backend)}" if config.backend else 'platform: "ensemble"'
    yield f"max_batch_size: {config.max_batch_size}"
    if config.backend:
        yield f"model_transaction_policy {{ decoupled: {_bool(config.decoupled)} }}"
        group = config.instance_group
        yield f"instance_group [ {{ count: {group.count} kind: {group.kind} }} ]"
    if config.batching is not None:
        yield from _batching(config.batching)
    yield from _tensors("input", config.inputs)
    yield from _tensors("output", config.outputs)
    for key, value in config.parameters.items():
        yield f"parameters {{ key: {quote(key)} value {{ string_value: {quote(value)} }} }}"
    if config.steps:
        yield "ensemble_scheduling {"
        yield from (line for step in config.steps for line in _step(step))
        yield "}"


def _tensors(field: str, tensors: tuple[ModelTensor, ...]) -> Iterator[str]:
    for tensor in tensors:
        dims = ", ".join(str(size) for size in tensor.dims)
        shape = " reshape: { shape: [ ] }" if tensor.scalar else ""
        optional = " optional: true" if tensor.optional else ""
        ragged = " allow_ragged_batch: true" if tensor.ragged else ""
        kind = f"name: {quote(tensor.name)} data_type: {tensor.data_type} dims: [ {dims} ]"
        yield f"{field} {{ {kind}{shape}{optional}{ragged} }}"


def _batching(batching: Batching) -> Iterator[str]:
    yield "dynamic_batching {"
    if batching.preferred:
        yield f"  preferred_batch_size: [ {', '.join(map(str, batching.preferred))} ]"
    yield f"  max_queue_delay_microseconds: {batching.queue_delay_microseconds}"
    yield f"  default_queue_policy: {{ max_queue_size: {batching.max_queue_size} }}"
    yield "}"


def _step(step: EnsembleStep) -> Iterator[str]:
    yield f"  step {{ model_name: {quote(step.model)} model_version: -1"
    for field, pairs in (("input_map", step.inputs), ("output_map", step.outputs)):
        for inner, outer in pairs.items():
            yield f"    {field} {{ key: {quote(inner)} value: {quote(outer)} }}"
    yield "  }"


def _bool(value: bool) -> str:
    return "true" if value else "false"
