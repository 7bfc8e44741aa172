"""Reads a checkpoint folder, plain or FP8, into the reference forward pass."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trtllm_kit.checkpoint.check import check_loadable
from trtllm_kit.checkpoint.formats import to_float32
from trtllm_kit.checkpoint.names import QUANT_CONFIG, scale_name
from trtllm_kit.checkpoint.plan_file import CONVERSION_FILE, read_conversion
from trtllm_kit.checkpoint.reader import WeightFolder, open_weights
from trtllm_kit.dtypes import F32, decode_e4m3
from trtllm_kit.errors import MissingExtra, ModelNotFound, TensorError, storage_error
from trtllm_kit.files import UnfitFile, read_file
from trtllm_kit.reference.model import ReferenceModel
from trtllm_kit.spec.load import load_model
from trtllm_kit.spec.model import ModelSpec
from trtllm_kit.spec.profile import KvFormat
from trtllm_kit.strict_json import parse_json

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TOKENIZER = "tokenizer.json"


def load_reference(folder: Path, longest: int | None = None) -> ReferenceModel:
    """Load a Hugging Face folder or a converted checkpoint; takes four bytes of memory a parameter.

    ``longest`` is the longest sequence that will be run, tokens; None stands for what the model claims.
    Raises what ``spec.load_model`` and ``checkpoint.reader`` raise, and ``TensorError`` for a format other than
    BF16, FP16, FP32 and per-tensor FP8.
    """
    opened = open_checkpoint(folder)
    return ReferenceModel(opened.model, opened.weights, opened.kv_format, longest)


def load_tokenizer(folder: Path) -> Tokenizer:
    """Load ``tokenizer.json``; raises ``MissingExtra`` without the package, ``ModelNotFound`` without the file."""
    path = folder / TOKENIZER
    try:
        raw = read_file(path)
    except FileNotFoundError:
        raw = None
    except UnfitFile as error:
        raise _bad_tokenizer(path, error.unfit) from None
    except OSError as error:
        raise storage_error(error, "reading the tokenizer") from None
    return parse_tokenizer(raw, folder)


def parse_tokenizer(raw: bytes | None, folder: Path) -> Tokenizer:
    """Return the tokenizer in the bytes of ``folder``'s ``tokenizer.json``, None when it has none."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise MissingExtra(
            "the Python package tokenizers is not installed",
            why="text must become tokens for calibration, the quality report and the reference runtime",
            hint="pip install 'trtllm-kit[rehearsal]'",
        ) from None
    if raw is None:
        raise ModelNotFound(
            f"{folder} has no tokenizer.json",
            why="the kit reads fast tokenizers only",
            hint="save one with transformers: AutoTokenizer.from_pretrained(model).save_pretrained(folder)",
        )
    try:
        return Tokenizer.from_buffer(raw)
    except ValueError as error:
        raise _bad_tokenizer(folder / TOKENIZER, f"tokenizers says: {error}") from None


def _bad_tokenizer(path: Path, why: str) -> ModelNotFound:
    return ModelNotFound(f"{path} cannot be read", why=why, hint=f"download {path.name} again")


@dataclass(frozen=True)
class OpenCheckpoint:
    """A checkpoint that is located, checked and ready to be read tensor by tensor."""

    model: ModelSpec
    weights: StoredWeights
    kv_format: KvFormat


def open_checkpoint(folder: Path) -> OpenCheckpoint:
    """Open a folder for reading its layers one at a time; raises what ``load_reference`` raises."""
    model = load_model(folder)
    weights = open_weights(folder)
    kv_format = _kv_format(folder, model)
    check_loadable(weights, model)
    return OpenCheckpoint(model, StoredWeights(weights), kv_format)


@dataclass(frozen=True)
class StoredWeights:
    """The tensors of a folder as float32; the reference forward pass reads them through this."""

    folder: WeightFolder

    def tensor(self, name: str) -> F32:
        """Return a tensor as float32, FP8 multiplied by its ``weight_scale``."""
        stored = self.folder.tensors[name]
        raw = self.folder.read(name)
        if stored.dtype != "F8_E4M3":
            return to_float32(raw, stored.dtype)
        scale = self.scale(scale_name(name, "weight_scale"))
        return decode_e4m3(raw) * np.float32(1.0 if scale is None else scale)

    def scale(self, name: str) -> float | None:
        """Return a scalar, or None when the folder has none of that name."""
        if name not in self.folder.tensors:
            return None
        values = to_float32(self.folder.read(name), self.folder.tensors[name].dtype).ravel()
        if values.size != 1 or not np.isfinite(values).all() or values[0] <= 0.0:
            raise TensorError(
                f"scale {name} is {values.tolist()[:4]}",
                why="a per-tensor scale is one finite number above zero",
                hint="convert the checkpoint again",
            )
        return float(values[0])


def _kv_format(folder: Path, model: ModelSpec) -> KvFormat:
    """Return the KV format: of quantised weights their own file says it, of plain ones the record of the conversion."""
    if model.quantized_as is None:
        made = read_conversion(folder) if os.path.lexists(folder / CONVERSION_FILE) else None
        return "fp8" if made is not None and made.quantization.kv_cache == "fp8" else "bf16"
    quantization = _quantization(folder)
    if quantization.get("quant_algo") != "FP8":
        raise TensorError(
            f"{folder} has weights of format {quantization.get('quant_algo')}",
            why="the reference forward pass reads plain weights and per-tensor FP8",
            hint="convert the model's plain weights with trtkit convert",
        )
    return "fp8" if quantization.get("kv_cache_quant_algo") == "FP8" else "bf16"


def _quantization(folder: Path) -> dict[str, Any]:
    path = folder / QUANT_CONFIG
    try:
        document = parse_json(read_file(path))
    except UnfitFile as error:
        raise _bad_quantization(path, error.unfit) from None
    except OSError as error:
        raise storage_error(error, "reading how the checkpoint is quantised") from None
    except ValueError as error:
        raise _bad_quantization(path, f"the parser says: {error}") from None
    section = document.get("quantization") if isinstance(document, dict) else None
    if not isinstance(section, dict):
        raise _bad_quantization(path, "it holds no object named quantization")
    return section


def _bad_quantization(path: Path, why: str) -> TensorError:
    return TensorError(f"{path} cannot be used", why=why, hint="convert the model again")
