"""Reads a checkpoint folder, plain or quantised, into the reference forward pass."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trtllm_kit.checkpoint.check import check_loadable
from trtllm_kit.checkpoint.plan_file import CONVERSION_FILE, read_conversion
from trtllm_kit.checkpoint.rank_layout import formats_of_the_build
from trtllm_kit.checkpoint.rank_load import RankWeights
from trtllm_kit.checkpoint.reader import open_weights
from trtllm_kit.checkpoint.stored_weights import StoredWeights
from trtllm_kit.errors import MissingExtra, ModelNotFound, TensorError, storage_error
from trtllm_kit.files import UnfitFile, read_file
from trtllm_kit.plan.conversion import ConversionRecord, RankRecord
from trtllm_kit.plan.parallelism import Split
from trtllm_kit.plan.ranks import RankOrder
from trtllm_kit.reference.layer_reader import Weights
from trtllm_kit.reference.model import ReferenceModel
from trtllm_kit.spec.load import load_model
from trtllm_kit.spec.model import ModelSpec, StoredFormats
from trtllm_kit.spec.planned import require_converted
from trtllm_kit.spec.profile_formats import KvFormat
from trtllm_kit.upstream.quant_algos import MIXED_PRECISION, algos_of
from trtllm_kit.upstream.trtllm_checkpoint import vocabulary_multiple

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TOKENIZER = "tokenizer.json"


def load_reference(folder: Path, longest: int | None = None) -> ReferenceModel:
    """Load a Hugging Face folder or a converted checkpoint; takes four bytes of memory a parameter.

    ``longest`` is the longest sequence that will be run, tokens; None stands for what the model claims.
    Raises what ``spec.load_model`` and ``checkpoint.reader`` raise, and ``TensorError`` for a format other than those
    of ``formats.DECODERS`` and plain BF16, FP16 and FP32.
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
    weights: Weights
    kv_format: KvFormat


def open_checkpoint(folder: Path) -> OpenCheckpoint:
    """Open a folder for reading its layers one at a time; raises what ``load_reference`` raises."""
    made = read_conversion(folder) if os.path.lexists(folder / CONVERSION_FILE) else None
    if made is not None and made.ranks is not None:
        return OpenCheckpoint(made.model, _rank_weights(folder, made, made.ranks), made.quantization.kv_cache)
    model = load_model(folder)
    require_converted(model)
    weights = open_weights(folder)
    kv_format = _kv_format(folder, model)
    check_loadable(weights, model)
    stored = StoredWeights(weights)
    if model.stored is not None:
        _require_agreement(folder, stored, model.stored)
    return OpenCheckpoint(model, stored, kv_format)


def _rank_weights(folder: Path, made: ConversionRecord, ranks: RankRecord) -> RankWeights:
    """Read an engine's checkpoint with the weights that the engine will have, packed by the build or before it."""
    split = Split(ranks.tensor, ranks.pipeline, ranks.expert)
    order = RankOrder(made.model, made.quantization.formats, split, ranks.release)
    multiple = vocabulary_multiple(order.formats.used, order.release)
    return RankWeights(folder, made.model, split, formats_of_the_build(order), multiple)


def _require_agreement(folder: Path, weights: StoredWeights, claimed: StoredFormats) -> None:
    """Raise ``TensorError`` when the configuration calls the weights by another format than their tensors have."""
    found, named = weights.formats, claimed.scheme
    if named != MIXED_PRECISION and any(one != claimed.weights and named not in algos_of(one) for one in found):
        raise TensorError(
            f"{folder} has weights of format {named}, says its configuration",
            why=f"its tensors are stored as {', '.join(found)}",
            hint="convert the model's plain weights with trtkit convert",
        )


def _kv_format(folder: Path, model: ModelSpec) -> KvFormat:
    """Return the KV format: of quantised weights their own file says it, of plain ones the record of the conversion."""
    if model.stored is not None and model.stored.kv_cache != "bf16":
        return _as_run(model.stored.kv_cache)
    made = read_conversion(folder) if os.path.lexists(folder / CONVERSION_FILE) else None
    return "bf16" if made is None else _as_run(made.quantization.kv_cache)


def _as_run(kv_cache: str) -> KvFormat:
    """Return the KV format that a cache of the unified layout is run in: PyTorch's backend has none of INT8."""
    return _RUN.get(kv_cache, "bf16")


_RUN: dict[str, KvFormat] = {"fp8": "fp8", "nvfp4": "nvfp4"}
