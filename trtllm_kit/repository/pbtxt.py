"""Writes a ``ModelConfig`` as ``config.pbtxt`` (protobuf text format).

Every string is escaped here and nowhere else, so that no name or value can change the structure of the file.
"""

from __future__ import annotations

from collections.abc import Iterator

from trtllm_kit.repository.model_config import ModelConfig, ModelTensor

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
    yield f"backend: {quote(config.backend)}"
    yield f"max_batch_size: {config.max_batch_size}"
    yield f"model_transaction_policy {{ decoupled: {_bool(config.decoupled)} }}"
    group = config.instance_group
    yield f"instance_group [ {{ count: {group.count} kind: {group.kind} }} ]"
    yield from _tensors("input", config.inputs)
    yield from _tensors("output", config.outputs)
    for key, value in config.parameters.items():
        yield f"parameters {{ key: {quote(key)} value {{ string_value: {quote(value)} }} }}"


def _tensors(field: str, tensors: tuple[ModelTensor, ...]) -> Iterator[str]:
    for tensor in tensors:
        dims = ", ".join(str(size) for size in tensor.dims)
        optional = " optional: true" if tensor.optional else ""
        yield f"{field} {{ name: {quote(tensor.name)} data_type: {tensor.data_type} dims: [ {dims} ]{optional} }}"


def _bool(value: bool) -> str:
    return "true" if value else "false"
