"""``base:`` of a profile: documents are merged from the farthest base to the document itself.

Mappings merge key by key, everything else is replaced whole. ``name`` is never inherited, so that two
deployments cannot carry the same one by accident.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trtllm_kit.spec.document import DataPath, Document, Problem, dotted
from trtllm_kit.spec.shipped_profile import read_profile
from trtllm_kit.spec.yaml_errors import did_you_mean

BASE = "base"
_OWN = "name"


def is_file_name(text: str) -> bool:
    """Whether a profile is named by a path rather than by the name of a shipped one."""
    return "/" in text or text.endswith((".yaml", ".yml"))


def read_with_bases(path: Path, label: str, shipped: Mapping[str, Path]) -> Document:
    """Read a document and its bases, and merge them; ``shipped`` holds what ``base:`` can name without a path.

    Raises ``StorageError`` when a file cannot be opened. A missing or circular base is a problem of the document.
    """
    chain = [read_profile(path, label, shipped)]
    read = [path.resolve()]
    while BASE in chain[-1].data:
        base = chain[-1].data.pop(BASE)
        found = _find(base, path, chain[-1].label, shipped)
        if isinstance(found, tuple) and found[0].resolve() in read:
            circle = " -> ".join([*(one.label for one in chain), found[1]])
            found = f"the bases go in a circle: {circle}"
        if isinstance(found, str):
            chain[-1].problems.append(Problem(chain[-1].places[(BASE,)], found, BASE))
            chain[-1].complete = False
            break
        path = found[0]
        read.append(path.resolve())
        chain.append(read_profile(path, found[1], shipped))
    return _merged(chain)


def files_with_bases(path: Path, shipped: Mapping[str, Path]) -> list[Path]:
    """Return the file of a document and those of its bases, as far as they can be read."""
    files = [path]
    while isinstance(base := read_profile(files[-1], path.name, shipped).data.get(BASE), str):
        found = _find(base, files[-1], path.name, shipped)
        if isinstance(found, str) or found[0] in files:
            break
        files.append(found[0])
    return files


def origins(document: Document) -> dict[str, str]:
    """Return, for every key the documents set, the ``file:line`` that set it last; keys are dotted."""
    return {dotted(path): str(document.places[path]) for path in _key_paths(document.data, ())}


def _find(base: object, path: Path, label: str, shipped: Mapping[str, Path]) -> tuple[Path, str] | str:
    """Return the file of a base with its label, or what is wrong with it."""
    if not isinstance(base, str):
        return "found no text; allowed the name of a shipped profile, or a file relative to this one"
    if is_file_name(base):
        file = path.parent / base
        return (file, str(Path(label).parent / base)) if file.is_file() else f"found {base}; there is no such file"
    if base in shipped:
        return shipped[base], shipped[base].name
    choices = ", ".join(shipped)
    return f"found {base}; allowed a file relative to this one, or one of {choices}{did_you_mean(base, shipped)}"


def _merged(chain: list[Document]) -> Document:
    """Lay the documents of a chain, nearest first, over one another."""
    whole = Document(chain[0].label)
    for document in reversed(chain):
        own = document is chain[0]
        data = {key: value for key, value in document.data.items() if own or key != _OWN}
        whole.data = _overlaid(whole.data, data)
        whole.places |= document.places
        whole.spelled |= document.spelled
        whole.problems += document.problems
        whole.complete = whole.complete and document.complete
    return whole


def _overlaid(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        merged[key] = _overlaid(under, value) if isinstance(under, dict) and isinstance(value, dict) else value
    return merged


def _key_paths(data: dict[str, Any], path: DataPath) -> list[DataPath]:
    paths: list[DataPath] = []
    for key, value in data.items():
        paths.append((*path, key))
        if isinstance(value, dict):
            paths += _key_paths(value, (*path, key))
    return paths
