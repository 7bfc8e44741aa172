"""Reads the ``config.json`` of engines and of TensorRT-LLM checkpoints: every value is a setting (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trtllm_kit.migrate.found import Reader, Setting, Unread, Where
from trtllm_kit.migrate.reading.json_lines import lines_of
from trtllm_kit.migrate.reading.named import Named
from trtllm_kit.migrate.reading.options import unread
from trtllm_kit.strict_json import parse_json
from trtllm_kit.upstream.releases import release, unknown_release

Said = Setting | Unread | Named
_MOST_VALUES = 200_000
_ENGINE = ("build_config", "builder_config", "plugin_config")
_CHECKPOINT = ("architecture", "mapping")


def kind_of(document: object) -> Reader | None:
    """Return whose document it is: an engine's, a checkpoint's, or None for another one."""
    if not isinstance(document, Mapping):
        return None
    if any(name in document for name in _ENGINE):
        return Reader.ENGINE
    return Reader.CHECKPOINT if all(name in document for name in _CHECKPOINT) else None


def read_config(raw: bytes, file: str) -> Iterator[Said]:
    """Yield the settings of a ``config.json``; nothing for one of another kind, such as a Hugging Face model's."""
    try:
        document = parse_json(raw, _MOST_VALUES)
    except ValueError as error:
        yield unread(Where(file), raw[:200].decode("utf-8", errors="replace"), f"it is not JSON: {error}")
        return
    reader = kind_of(document)
    if reader is not None:
        yield from _settings(document, reader, raw.decode("utf-8-sig"), file)


def read_layers(raw: bytes, file: str) -> Iterator[Said]:
    """Yield the settings of ``quant_cfg.json``, which says the format of each layer of a checkpoint."""
    try:
        document = parse_json(raw, _MOST_VALUES)
    except ValueError as error:
        yield unread(Where(file), raw[:200].decode("utf-8", errors="replace"), f"it is not JSON: {error}")
        return
    if isinstance(document, dict) and "quantized_layers" in document:
        yield from _settings({"quant_cfg": document}, Reader.CHECKPOINT, "", file)


def _settings(document: Mapping[str, object], reader: Reader, text: str, file: str) -> Iterator[Said]:
    lines = lines_of(text)
    for name, value in _leaves(document, ""):
        yield Setting(reader, name, value, Where(file, lines.get(name, 0)))
    version = document.get("version")
    if reader is Reader.ENGINE and isinstance(version, str):
        where = Where(file, lines.get("version", 0))
        if unknown_release(version):
            yield unread(where, f"version {version}", f"no release that trtkit knows: {unknown_release(version)}")
        else:
            yield Named(release(version).version, where)


def _leaves(value: Mapping[str, object], prefix: str) -> Iterator[tuple[str, object]]:
    for key, inner in value.items():
        if isinstance(inner, dict) and inner:
            yield from _leaves(inner, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", inner
