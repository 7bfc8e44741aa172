"""Documents as text: YAML and JSON that say the same to every reader, whatever the strings in them hold.

YAML 1.1 and 1.2, and the readers of either, disagree about plain words such as ``no``, ``1e3`` or ``0o17``. So a string
is written plain only where every reader takes it for one; all others are quoted, and nothing leaves ASCII.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

Document = Mapping[str, Any]
_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*(:[A-Za-z0-9_./-]+)*")
"""Words that no reader of YAML takes for anything but text, but for those of ``_RESERVED``."""
_RESERVED = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"})
_WIDTH = 1 << 20
"""Longer than any line: a string that is not broken over lines reads the same in every reader."""


def yaml_text(*documents: Document, head: str = "") -> str:
    """Write documents as one YAML stream, ASCII only; ``head`` becomes comments, a line each.

    Equal documents give equal text. Raises ``ValueError`` for values that are no JSON.
    """
    comment = "".join(f"# {_one_line(line)}\n" for line in head.splitlines())
    body = "---\n".join(
        yaml.dump(
            document, Dumper=_Dumper, sort_keys=False, default_flow_style=False, width=_WIDTH, allow_unicode=False
        )
        for document in documents
    )
    return comment + body


def json_text(document: Document) -> str:
    """Write a document as JSON for people and programs: indented, ASCII only; raises ``ValueError`` for NaN."""
    return json.dumps(document, indent=1, ensure_ascii=True, allow_nan=False) + "\n"


def csv_text(rows: Iterable[Iterable[str]], head: str = "") -> str:
    """Write rows as the DCGM exporter reads them: values apart by a comma and a space, no quotes.

    Raises ``ValueError`` for a value with a comma, a quote or a line break, which that reader cannot take.
    """
    lines = [f"# {_one_line(line)}" for line in head.splitlines()]
    for row in rows:
        values = list(row)
        for value in values[:-1]:
            if not re.fullmatch(r"[A-Za-z0-9_]+", value):
                raise ValueError(f"{value!r} cannot stand in such a list")
        if re.search(r"[,\"\r\n]", values[-1]):
            raise ValueError(f"{values[-1]!r} cannot stand in such a list")
        lines.append(", ".join(values))
    return "\n".join(lines) + "\n"


def _one_line(text: str) -> str:
    return ascii(text)[1:-1] if not (text.isascii() and text.isprintable()) else text


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]  # either of two classes
    """Writes strings so that every reader agrees, and refuses what is no JSON."""

    def ignore_aliases(self, _data: Any) -> bool:
        """Write a value in full each time it occurs."""
        return True


def _string(dumper: Any, text: str) -> Any:
    if _PLAIN.fullmatch(text) and text.lower() not in _RESERVED:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text)
    lines = text.split("\n")
    block = len(lines) > 1 and all(_fits_a_block(line) for line in lines) and not lines[0].startswith(" ")
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if block else '"')


def _fits_a_block(line: str) -> bool:
    return line.isascii() and (line.isprintable() or not line) and not line.endswith(" ")


def _mapping(dumper: Any, mapping: Document) -> Any:
    for key in mapping:
        if not isinstance(key, str):
            raise ValueError(f"{key!r} is no key of a JSON object")
    return dumper.represent_mapping("tag:yaml.org,2002:map", mapping.items(), flow_style=None if mapping else True)


def _float(dumper: Any, number: float) -> Any:
    if not math.isfinite(number):
        raise ValueError(f"{number} is no number of JSON")
    return dumper.represent_scalar("tag:yaml.org,2002:float", repr(number))


def _refuse(_dumper: Any, value: Any) -> Any:
    raise ValueError(f"{type(value).__name__} is no value of JSON")


_Dumper.yaml_representers = {kind: _Dumper.yaml_representers[kind] for kind in (type(None), bool, int, list)}
_Dumper.yaml_multi_representers = {}
_Dumper.add_representer(str, _string)
_Dumper.add_representer(float, _float)
_Dumper.add_multi_representer(Mapping, _mapping)
_Dumper.add_representer(dict, _mapping)
_Dumper.add_representer(tuple, lambda dumper, items: dumper.represent_list(items))
_Dumper.add_multi_representer(object, _refuse)
