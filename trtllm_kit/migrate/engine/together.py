"""Settings that say something only together with others: formats, drafts, ranks, lengths (pure)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import replace

from trtllm_kit.migrate.engine.around import Around
from trtllm_kit.migrate.engine.number_formats import (
    kv_switch,
    read_algo,
    read_convert_format,
    read_group_size,
    read_kv_algo,
    read_qformat,
)
from trtllm_kit.migrate.engine.row import Row
from trtllm_kit.migrate.engine.values import value_as
from trtllm_kit.migrate.found import Reader
from trtllm_kit.units import counted
from trtllm_kit.upstream.engine_settings import plain_value, stays_in_16_bit
from trtllm_kit.upstream.triton import llmapi_tensors

_MOST_LAYERS = 4


def read_together(row: Row, part: str, around: Around) -> Row:
    """Return the row with what the settings around it make of it."""
    return _PARTS[part](row, around)


def _input_length(row: Row, around: Around) -> Row:
    """Return the row of the longest prompt, which says nothing where it is no narrower than the whole."""
    longest = around.named("max_seq_len")
    if isinstance(longest, int) and value_as("whole", row.setting.value) >= longest:
        return replace(row, how="dropped", lost="", instead="", note=f"limits.max_seq_len {longest} holds prompts too")
    return row


def _exclude(row: Row, _around: Around) -> Row:
    """Return the row of layers that stay in 16 bit, which says nothing where it names those of the default alone."""
    value = row.setting.value
    named = [str(one) for one in value] if isinstance(value, list | tuple) else [str(value)]
    others = [one for one in named if not stays_in_16_bit(one)]
    if not others:
        note = "these stay in 16 bit by default (quantization.exclude)"
        return replace(row, how="dropped", lost="", instead="", note=note)
    more = f" and {len(others) - _MOST_LAYERS} more" if len(others) > _MOST_LAYERS else ""
    return replace(row, lost=f"{counted(len(others), 'layer')} in 16 bit: {', '.join(others[:_MOST_LAYERS])}{more}")


def _adapters(row: Row, around: Around) -> Row:
    """Return the row of adapters, which no request to a Triton model can name in a release without their tensors."""
    row = replace(row, value=value_as("flag", row.setting.value))
    inputs, _ = llmapi_tensors(around.to)
    return row if any(one.name == "lora_name" for one in inputs) else replace(row, how="approximate")


def _world_size(row: Row, around: Around) -> Row:
    """Return the row of the number of ranks, which leaves the split open where nothing else says it."""
    size = value_as("whole", row.setting.value)
    if _says_split(around) or size == 1:
        return row
    return replace(row, how="approximate", lost=_SPLIT, instead=_split_of(size), note="")


_SPLIT = "how the ranks were split, which no file says: parallelism.tensor stays auto, and the plan chooses it"


def _says_split(around: Around) -> bool:
    return any(around.named(name) is not None for name in ("tp_size", "tensor_parallel_size"))


def _split_of(ranks: int) -> str:
    return f"parallelism.tensor: {ranks} where the engine had no stages; or migrate its folder too"


def _lookahead(row: Row, around: Around) -> Row:
    length = around.named("lookahead_ngram_size")
    if length is None:
        return replace(
            row, how="none", key="", value=None, lost="drafting, until the section is written: answers stay the same",
            instead="add speculation: {kind: ngram, draft_tokens: 3}; trtkit tune draft-length finds the number",
        )  # fmt: skip
    return replace(row, value="ngram")


def _lookahead_ngram(row: Row, around: Around) -> Row:
    """Return the row of the length of n-grams, whose first token is known, so that one less is drafted."""
    size = value_as("whole", row.setting.value)
    asked = {plain_value(around.named("decoding_mode")), plain_value(around.named("speculative_decoding_mode"))}
    if not asked & {"lookahead", "lookahead_decoding", "8"}:
        return replace(row, how="dropped", key="", value=None, note="lookahead was not switched on")
    return replace(row, value=max(1, size - 1))


def _draft_length(row: Row, around: Around) -> Row:
    mode = plain_value(around.named("speculative_decoding_mode"))
    if mode in ("", "none", "1"):
        return replace(row, how="dropped", lost="", instead="", note="no mode that drafts is switched on")
    return row


def _triton_batch(row: Row, around: Around) -> Row:
    """Return the row of Triton's own size of a call; the engine's own bounds a step, and holds where a file says it."""
    size = value_as("whole", row.setting.value)
    engines = (Reader.ENGINE, Reader.BUILD, Reader.SERVE)
    if any(one.name.rpartition(".")[2] == "max_batch_size" for one in around.found.settings if one.reader in engines):
        return replace(
            row, how="dropped", key="", llm="", note="a call holds one request; the engine's own limit holds for a step"
        )
    return replace(
        row, value=size, lost="the engine's own limit, which may be another and stands in its config.json",
        instead="migrate the engine folder or its build script together with the repository",
    )  # fmt: skip


def _device_ids(row: Row, around: Around) -> Row:
    """Return the row of sets of GPUs, one for each instance; a single set chooses GPUs for the whole server.

    A set of several GPUs says how many ranks an instance has, and not how they are split.
    """
    row, ranks = _of_sets(row), len(re.findall(r"\d+", str(row.setting.value).partition(";")[0]))
    if row.value is None or ranks <= 1 or _says_split(around):
        return row
    steps = _split_of(ranks) if row.instead == _NOTHING_TO_DO else f"{row.instead}; {_split_of(ranks)}"
    return replace(row, lost=f"{row.lost}; {_SPLIT}", instead=steps)


_NOTHING_TO_DO = "nothing to do"


def _of_sets(row: Row) -> Row:
    sets = [one for one in re.split(";", str(row.setting.value)) if one.strip()]
    if len(sets) > 1:
        return replace(row, key="parallelism.replicas", value=len(sets))
    return replace(
        row, key="environment.CUDA_VISIBLE_DEVICES", value=sets[0].replace(" ", "") if sets else None,
        lost="the parameter: the variable of the process chooses the same GPUs", instead=_NOTHING_TO_DO,
    )  # fmt: skip


def _document(row: Row, around: Around) -> Row:
    """Return the row of a YAML of the LLM API, with the command that says what its keys are called now.

    It is not read in its place: which of it and the options holds, and what a key was called, hangs on the release.
    """
    file, now = shlex.quote(str(row.setting.value)), around.found.release or "RELEASE"
    command = f"trtkit migrate yaml {file} --from {now} --to {around.to}"
    return replace(row, instead=f"{command}; then llm_api.options in the profile takes its keys")


_PARTS: dict[str, Callable[[Row, Around], Row]] = {
    "algo": read_algo,
    "qformat": read_qformat,
    "convert_format": read_convert_format,
    "kv_algo": read_kv_algo,
    "int8_kv": kv_switch("int8"),
    "fp8_kv": kv_switch("fp8"),
    "group_size": read_group_size,
    "input_length": _input_length,
    "exclude": _exclude,
    "adapters": _adapters,
    "world_size": _world_size,
    "lookahead": _lookahead,
    "lookahead_ngram": _lookahead_ngram,
    "draft_length": _draft_length,
    "device_ids": _device_ids,
    "triton_batch": _triton_batch,
    "document": _document,
}
