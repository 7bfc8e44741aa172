"""Opens a Hugging Face folder's weights: one safetensors file, or the shards that the index names.

Data is read with plain reads into numpy arrays rather than mapped: a disk that fails or a file that shrinks during
the run is then an error with three lines, where a mapped page would kill the process.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trtllm_kit.checkpoint.header import INDEX, FileHeader, StoredTensor, read_header, reopen
from trtllm_kit.checkpoint.matrix import Slice, whole
from trtllm_kit.checkpoint.problems import raise_all
from trtllm_kit.checkpoint.rectangle import Raw, rectangle
from trtllm_kit.errors import KitError, ModelNotFound, WeightFileError, WeightIndexError, storage_error
from trtllm_kit.files import UnfitFile, read_file
from trtllm_kit.spec.hf_keys import as_json
from trtllm_kit.strict_json import parse_json

SINGLE = "model.safetensors"
_LONGEST_NAME = 255
"""Bytes of a file's name that Linux file systems allow."""
_PICKLES = (".bin", ".pt", ".pth", ".ckpt")


@dataclass(frozen=True)
class WeightFolder:
    """The weights of one folder, located and not yet read."""

    folder: Path
    files: tuple[FileHeader, ...]
    tensors: dict[str, StoredTensor]
    """By name; of a sharded folder only what the index names."""
    unindexed: frozenset[str] = frozenset()
    """Tensors that lie in a shard and that the index does not name."""

    def read(self, name: str) -> Raw:
        """Return a whole tensor."""
        stored = self.tensors[name]
        part = whole(stored).slices[0]
        return self.rows(part, *part.rows).reshape(stored.shape)

    def rows(self, part: Slice, begin: int, end: int) -> Raw:
        """Return rows ``begin`` to ``end`` of a slice, (rows, columns), in a new array of stored elements.

        Raises ``WeightFileError`` when the file is no longer the one that was opened. May be called by several
        threads at once.
        """
        stored = self.tensors[part.tensor]
        rows = (part.rows[0] + begin, part.rows[0] + end)
        try:
            with reopen(stored.file, stored.stamp) as file:
                if part.transposed:
                    return np.ascontiguousarray(rectangle(file, stored, part.index, part.columns, rows).T)
                return rectangle(file, stored, part.index, rows, part.columns)
        except OSError as error:
            error.filename = error.filename or str(stored.file)
            raise storage_error(error, f"reading {stored.name}") from None


def open_weights(folder: Path) -> WeightFolder:
    """Locate every tensor; raises one error with all that is wrong with the index and the files.

    Raises ``ModelNotFound``, ``WeightFileError``, ``WeightIndexError`` or ``StorageError``.
    """
    if os.path.lexists(folder / INDEX):
        return _open_sharded(folder)
    if os.path.lexists(folder / SINGLE):
        header = read_header(folder / SINGLE)
        return WeightFolder(folder, (header,), header.tensors)
    raise _no_weights(folder)


def _open_sharded(folder: Path) -> WeightFolder:
    weight_map = _read_index(folder / INDEX)
    headers: dict[str, FileHeader] = {}
    problems: list[KitError] = []
    for file, count in sorted(Counter(weight_map.values()).items()):
        try:
            headers[file] = _shard(folder, file, count)
        except KitError as error:
            problems.append(error)
    tensors: dict[str, StoredTensor] = {}
    for name, file in weight_map.items():
        if file not in headers:
            continue
        if name in headers[file].tensors:
            tensors[name] = headers[file].tensors[name]
        else:
            problems.append(_not_in_shard(name, file))
    raise_all(problems, folder)
    stored = {name for header in headers.values() for name in header.tensors}
    return WeightFolder(folder, tuple(headers.values()), tensors, frozenset(stored - tensors.keys()))


def _shard(folder: Path, file: str, tensors: int) -> FileHeader:
    path = folder / file
    if not os.path.lexists(path):
        raise WeightIndexError(
            f"shard {file} is missing", why=f"{INDEX} says it holds {tensors} tensors", hint=f"download {file} again"
        )
    return read_header(path)


def _not_in_shard(name: str, file: str) -> WeightIndexError:
    return WeightIndexError(
        f"tensor {name} is not where the index says",
        why=f"{INDEX} says it lies in {file}, whose header does not name it",
        hint=f"download {INDEX} and {file} again, from the same revision",
    )


def _read_index(path: Path) -> dict[str, str]:
    try:
        document = parse_json(read_file(path))
    except UnfitFile as error:
        raise _bad_index(path, error.unfit) from None
    except OSError as error:
        raise storage_error(error, "reading the weight index") from None
    except ValueError as error:
        raise _bad_index(path, f"it is not JSON with a weight_map: {error}") from None
    weight_map = document.get("weight_map") if isinstance(document, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        raise _bad_index(path, "it has no weight_map, or an empty one")
    for tensor, file in weight_map.items():
        if not _is_file_name(file):
            raise _bad_index(path, f"it gives tensor {tensor} the file {as_json(file)}; a shard lies beside the index")
    return weight_map


def _is_file_name(file: object) -> bool:
    """Whether a value names a file beside the index: no path, no folder, and nothing a file system refuses."""
    if not isinstance(file, str) or file in ("", ".", "..") or "/" in file or "\0" in file:
        return False
    return len(os.fsencode(file)) <= _LONGEST_NAME


def _bad_index(path: Path, why: str) -> WeightIndexError:
    return WeightIndexError(f"{path} cannot be used", why=why, hint=f"download {path.name} again")


def _no_weights(folder: Path) -> KitError:
    if not folder.is_dir():
        return ModelNotFound(f"there is no folder {folder}", why="a model is a folder", hint="check the path")
    shards = sorted(path.name for path in folder.glob("*.safetensors"))
    pickles = sorted(path.name for path in folder.iterdir() if path.suffix in _PICKLES)
    if shards:
        return WeightIndexError(
            f"{folder} holds {len(shards)} safetensors files and no {INDEX}",
            why=f"without it nothing says that {shards[0]} and the others are all of the model",
            hint=f"download {INDEX}, or rename a single file to {SINGLE}",
        )
    if pickles:
        return WeightFileError(
            f"{folder} holds weights only as pickles ({pickles[0]})",
            why="a pickle runs code when it is read; the kit reads safetensors only",
            hint="save it again with transformers: model.save_pretrained(folder, safe_serialization=True)",
        )
    return WeightFileError(
        f"{folder} holds no weights", why=f"neither {SINGLE} nor {INDEX} is there", hint="download the model's weights"
    )
