"""YAML that comes with the kit: what people edit, and the same as JSON, which is read twenty times as fast.

``make docs`` writes ``derived/<name>.json`` beside ``<name>.yaml``. It names the digest of the YAML that it was made
from, and where that is not the YAML's own, the YAML is read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Document = dict[str, Any]
Parser = Callable[[Path], Document]


def read_shipped(path: Path, parser: Parser) -> Document:
    """Return the document of a YAML file, every key a text and every sequence a list."""
    derived = derived_document(path)
    return _plain_document(parser(path)) if derived is None else derived


def derived_document(path: Path) -> Document | None:
    """Return what was made from a YAML file as it is now; None where it is older than that, or was never made."""
    try:
        derived = derived_path(path).read_bytes()
    except FileNotFoundError:
        return None
    if not derived.startswith(_head(path)):
        return None
    document: Document = json.loads(derived)["document"]
    return document


def derived_path(path: Path) -> Path:
    """Return where the JSON of a YAML file is."""
    return path.with_name("derived") / f"{path.stem}.json"


def derived_text(path: Path, parser: Parser) -> str:
    """Return the JSON of a YAML file, one row a line."""
    sections = []
    for name, value in _plain(parser(path)).items():
        items = ",\n".join(map(_json, value)) if isinstance(value, list) else ""
        sections.append(f"{_json(name)}: " + (f"[\n{items}\n]" if items else _json(value)))
    return _head(path).decode() + ",\n".join(sections) + "\n}}\n"


def parse_yaml(path: Path) -> Document:
    """Return the document of a YAML file as YAML 1.1 has it."""
    import yaml

    # Both loaders are safe; the C one is ten times faster and not in every build of PyYAML.
    document: Document = yaml.load(path.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    return document


def _plain_document(value: Document) -> Document:
    return {str(key): _plain(one) for key, one in value.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    return value


def _head(path: Path) -> bytes:
    """Return the first line of the JSON that belongs to a YAML file."""
    return b'{"made_from": "%s", "document": {\n' % hashlib.sha256(path.read_bytes()).hexdigest().encode()


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
