"""From settings to rows: what each meant, and what it becomes in the release that will serve (pure)."""

from __future__ import annotations

from dataclasses import replace

from trtllm_kit.migrate.engine.around import Around
from trtllm_kit.migrate.engine.row import Row
from trtllm_kit.migrate.engine.together import read_together
from trtllm_kit.migrate.engine.values import value_as
from trtllm_kit.migrate.engine.variables import variable_row
from trtllm_kit.migrate.found import Found, Reader, Setting
from trtllm_kit.upstream.engine_settings import Meaning, meaning, plain_value
from trtllm_kit.upstream.llm_api import limits_section, llm_api_key
from trtllm_kit.upstream.llm_api_inside import inside_key

_UNKNOWN = "trtkit knows no setting of that name"


def rows_of(found: Found, to: str, capability: int = 0) -> tuple[Row, ...]:
    """Return one row for each setting, in the order they were found.

    ``to`` is the release that will serve, and ``capability`` the compute capability of its GPU, times ten; 0 where
    that is not known.
    """
    around = Around(found, to, capability)
    return tuple(_row(setting, around) for setting in found.settings)


def _row(setting: Setting, around: Around) -> Row:
    if setting.reader is Reader.ENVIRONMENT:
        return variable_row(setting, around.to)
    kind, name = around.kind(setting)
    known = meaning(kind, name, setting.value, setting.model)
    if known is None:
        return Row(
            setting, _UNKNOWN, "none", lost="nobody knows what it did",
            instead="look it up in the documentation of its program, and set what it did in the profile",
        )  # fmt: skip
    row = Row(
        setting,
        known.means,
        known.how,
        known.key,
        _llm_key(known, around.to),
        lost=known.lost,
        instead=known.instead,
        note=known.note,
        secret=known.secret,
    )
    if known.asks_nothing(setting.value) and known.part not in ("algo", "qformat", "kv_algo"):
        return _not_asked(row, known)
    if known.how == "dropped" and not known.part:
        return replace(row, key="", llm="")
    try:
        read = read_together(row, known.part, around) if known.part else _valued(row, known)
    except ValueError as error:
        return _unfit(row, str(error))
    return _clean(_in_release(read, around.to))


def _clean(row: Row) -> Row:
    """Return the row without what only another way would say: nothing is lost of what is exact or dropped."""
    if row.how == "dropped":
        return replace(row, key="", llm="", value=None, lost="", instead="")
    return replace(row, lost="", instead="") if row.how == "exact" else row


def _not_asked(row: Row, known: Meaning) -> Row:
    """Drop a setting that asks for nothing: it was off, or nobody filled it in."""
    text = plain_value(row.setting.value)
    why = "nobody filled it in: the default held" if not text else f"{row.setting.value} asks for nothing"
    note = known.note if known.how == "dropped" and known.note else why
    return replace(row, how="dropped", key="", llm="", lost="", instead="", note=note)


def _valued(row: Row, known: Meaning) -> Row:
    if not known.key and not known.llm:
        return row
    if known.values:
        word = plain_value(row.setting.value)
        if word not in known.values:
            raise ValueError(f"one of {', '.join(known.values)}")
        return replace(row, value=known.values[word])
    value = value_as(known.takes, row.setting.value)
    if known.how == "none":
        return row
    return replace(row, value=value)


def _unfit(row: Row, wanted: str) -> Row:
    """Return the row of a value that its reader would not take: nothing is made of it."""
    return replace(
        row, how="none", value=None, lost=f"the value {row.setting.value!r}, which is not {wanted}",
        instead=f"set {row.key or row.llm or 'it'} by hand where it was meant",
    )  # fmt: skip


def _in_release(row: Row, to: str) -> Row:
    """Return the row, without an equivalent where the release does not take the key of the LLM API."""
    by_kind = row.key.startswith("speculation.")  # what that section takes follows from its kind: the plan asks
    if row.value is None or not row.llm or by_kind or llm_api_key(to, row.llm) is not None or _inside(to, row.llm):
        return row
    return replace(
        row, how="none", value=None, lost=f"LLM-API key {row.llm}, which release {to} does not take",
        instead=row.instead or "nothing: the release's own default holds",
    )  # fmt: skip


def _inside(to: str, key: str) -> bool:
    """Whether a release takes a key within a section whose inside has a table of its own."""
    section = key.partition(".")[0]
    return llm_api_key(to, section) is not None and inside_key(to, key, "") is not None


def _llm_key(known: Meaning, to: str) -> str:
    """Return the LLM API's key, or what the profile's key is written as in that release."""
    written = known.llm or _WRITTEN_AS.get(known.key, "")
    section = limits_section(to) if known.key.startswith("limits.") else ""
    return f"{section}.{written}" if section else written


_WRITTEN_AS = {
    "limits.max_batch_size": "max_batch_size",
    "limits.max_num_tokens": "max_num_tokens",
    "limits.max_seq_len": "max_seq_len",
    "limits.max_beam_width": "max_beam_width",
    "parallelism.tensor": "tensor_parallel_size",
    "parallelism.pipeline": "pipeline_parallel_size",
    "parallelism.expert": "moe_expert_parallel_size",
    "parallelism.attention_dp": "enable_attention_dp",
    "quantization.kv_cache": "kv_cache_config.dtype",
    "kv_cache.free_gpu_memory_fraction": "kv_cache_config.free_gpu_memory_fraction",
    "kv_cache.tokens_per_block": "kv_cache_config.tokens_per_block",
    "kv_cache.enable_block_reuse": "kv_cache_config.enable_block_reuse",
    "kv_cache.max_attention_window": "kv_cache_config.max_attention_window",
    "kv_cache.host_cache_bytes": "kv_cache_config.host_cache_size",
    "scheduler.policy": "scheduler_config.capacity_scheduler_policy",
    "scheduler.chunked_prefill": "enable_chunked_prefill",
    "engine.overlap_scheduler": "disable_overlap_scheduler",
    "engine.cuda_graphs": "cuda_graph_config",
    "speculation.kind": "speculative_config.decoding_type",
    "speculation.draft_tokens": "speculative_config.max_draft_len",
}
"""What a profile's key is written as in the YAML of the LLM API."""
