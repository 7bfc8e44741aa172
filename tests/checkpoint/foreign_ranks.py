"""Rank files as other makers leave them, made from trtkit's by hand: with numpy alone, and none of the product."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.checkpoint.plans import T
from tests.checkpoint.ranks import rank_plan, read_file
from tests.support.quantised import Stored, read_safetensors, write_stored
from trtllm_kit.plan.passing import held_formats
from trtllm_kit.plan.plan import Decided, Plan
from trtllm_kit.plan.settle_formats import algo_of
from trtllm_kit.spec.load import load_model

Tensors = dict[str, Stored]
RECORD = "trtkit-conversion.json"
EMBEDDING, HEAD = "transformer.vocab_embedding.weight", "lm_head.weight"


def plan_again(folder: Path, tensor: int = 1, pipeline: int = 1, expert: int = 1) -> Plan:
    """Plan rank files of a folder in the formats that it is stored in."""
    plan, stored = rank_plan(folder, tensor, pipeline, expert), load_model(folder).stored
    if stored is None:
        return plan
    formats = held_formats(stored, stored.weights, stored.kv_cache)
    held: dict[str, Any] = {"weights": formats.weights, "kv_cache": formats.kv_cache, "exclude": formats.exclude}
    update: dict[str, Any] = {name: _decided(value) for name, value in (held | {"passed_through": True}).items()}
    update["algo"] = algo_of(formats, "tensorrt_llm", "1.2.1")
    return plan.model_copy(update={"quantization": plan.quantization.model_copy(update=update)})


def _decided(value: T) -> Decided[T]:
    return Decided(value=value, source="model", reason="test")


def same_files(ours: Path, theirs: Path) -> list[str]:
    """Return the names of rank files and tensors that two folders do not hold alike; empty when all are equal."""
    names = sorted({path.name for folder in (ours, theirs) for path in folder.glob("*.safetensors")})
    differing = []
    for file in names:
        one, other = read_file(ours / file), read_file(theirs / file)
        differing += [f"{file}: {name}" for name in sorted(one.keys() ^ other.keys())]
        differing += [f"{file}: {name}" for name in one.keys() & other.keys() if not _alike(one[name], other[name])]
    return differing


def _alike(one: tuple[str, NDArray[Any]], other: tuple[str, NDArray[Any]]) -> bool:
    return (one[0], one[1].shape, one[1].tobytes()) == (other[0], other[1].shape, other[1].tobytes())


def copied(folder: Path, out: Path, *, record: bool = False) -> Path:
    """Copy a folder of rank files; others than trtkit leave no record of the conversion, and no manifest."""
    shutil.copytree(folder, out)
    for name in ("trtkit-manifest.json", "calibration.json", *(() if record else (RECORD,))):
        (out / name).unlink(missing_ok=True)
    return out


def described(folder: Path, **changes: Any) -> None:
    """Change keys of ``config.json``; a dotted one is of a section, and None takes a key out."""
    path = folder / "config.json"
    document = json.loads(path.read_text("utf-8"))
    for dotted, value in changes.items():
        section, _, key = dotted.rpartition("__")
        held = document.setdefault(section, {}) if section else document
        held.pop(key, None)
        if value is not None:
            held[key] = value
    path.write_text(json.dumps(document), encoding="utf-8")


def changed(folder: Path, change: Callable[[str, Tensors], Tensors | None], files: str = "rank*.safetensors") -> None:
    """Write each rank file again with what ``change`` makes of its name and tensors."""
    for path in sorted(folder.glob(files)):
        tensors = read_safetensors(path)
        write_stored(path, change(path.name, tensors) or tensors)


def of_array(dtype: str, array: NDArray[Any]) -> Stored:
    """Return an array as a stored tensor."""
    return Stored(dtype, array.shape, np.ascontiguousarray(array).tobytes())


def bits_of(stored: Stored) -> NDArray[np.uint16]:
    """Return the bits of a 16-bit tensor."""
    return np.frombuffer(stored.data, np.uint16).reshape(stored.shape)


def whole_embedding(folder: Path, ranks: int, vocab: int) -> NDArray[np.uint16]:
    """Return the embedding of all tensor ranks of the first stage, without padding."""
    parts = [bits_of(read_safetensors(folder / f"rank{number}.safetensors")[EMBEDDING]) for number in range(ranks)]
    return np.concatenate(parts)[:vocab]


def flipped(stored: Stored, at: int = 0) -> Stored:
    """Return a tensor with one bit of one byte turned over."""
    data = bytearray(stored.data)
    data[at] ^= 1
    return stored._replace(data=bytes(data))


def with_tensors(more: Mapping[str, Stored]) -> Callable[[str, Tensors], Tensors]:
    """Return a change that adds tensors to every file."""
    return lambda _, tensors: {**tensors, **more}
