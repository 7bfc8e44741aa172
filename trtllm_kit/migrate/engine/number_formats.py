"""Number formats of the engine road, as a release without engines and its GPU take them (pure)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from trtllm_kit.migrate.engine.around import Around
from trtllm_kit.migrate.engine.row import Row
from trtllm_kit.migrate.engine.values import value_as
from trtllm_kit.migrate.found import Reader
from trtllm_kit.spec.profile_formats import GROUP_SIZES
from trtllm_kit.upstream.engine_settings import format_of, nearest_formats, plain_value
from trtllm_kit.upstream.precision import formats_for
from trtllm_kit.upstream.quant_algos import quant_algo

_NOT_QUANTISED = ("", "no_quant", "full_prec", "auto")
_INT4 = ("int4_wo", "int4_awq", "w4a8_awq")


def _formatted(row: Row, found: str | None, around: Around, *, named: object) -> Row:
    """Return the row with a number format that the release serves, the nearest one where it serves not that."""
    if found is None:
        return replace(
            row,
            how="none",
            value=None,
            lost=f"the format {named}, which no PyTorch backend reads",
            instead="set quantization.weights to fp8, int4_awq or nvfp4 and quantise the original (trtkit convert)",
        )
    if _is_served(found, around):
        return replace(row, value=found)
    instead = next((one for one in nearest_formats(found) if _is_served(one, around)), None)
    where = f"release {around.to} does not run without engines" + (
        f" on compute capability {around.capability // 10}.{around.capability % 10}" if around.capability else ""
    )
    return replace(
        row,
        how="none" if instead is None else "approximate",
        value=instead,
        lost=f"{found}, which {where}: " + (f"{instead} stands in its place" if instead else "16 bit are left"),
        instead="compare answers with trtkit migrate compare, and quality with trtkit evaluate",
    )


def _is_served(number_format: str, around: Around) -> bool:
    """Whether the release's PyTorch backend reads a format, and the GPU takes it."""
    if not quant_algo(number_format, "unified_hf", around.to).in_release:
        return False
    return not around.capability or number_format in formats_for("weights", around.capability, around.to)


def read_algo(row: Row, around: Around) -> Row:
    """Return the row of ``quant_algo`` of rank files or an engine."""
    text = plain_value(row.setting.value)
    if text in _NOT_QUANTISED:
        return _in_16_bit(row)
    algo = str(row.setting.value).upper()
    return _formatted(row, format_of(algo), around, named=row.setting.value)


def _in_16_bit(row: Row) -> Row:
    return replace(row, how="dropped", value=None, note="16 bit is the default")


def read_qformat(row: Row, around: Around) -> Row:
    """Return the row of ``--qformat`` of the quantiser, which is a search where several formats are named."""
    text = plain_value(row.setting.value)
    if text in _NOT_QUANTISED:
        return _in_16_bit(row)
    if around.named("autoq_format") is not None or "," in text:
        return replace(
            row, how="none", value=None, lost="the mix of formats that was searched",
            instead="quantization: {weights: mixed, groups: {attention: FORMAT, feed_forward: FORMAT}}",
        )  # fmt: skip
    return _formatted(row, format_of(text), around, named=text)


def read_convert_format(row: Row, around: Around) -> Row:
    """Read the switches of ``convert_checkpoint.py`` that name a format, and those that say more of it."""
    asked = _converted(around)
    name = row.setting.name
    if asked is None:
        return replace(row, how="dropped", value=None, note="without the switch that it belongs to it says nothing")
    switch, found, named = asked
    if name != switch:
        return replace(
            row, how="dropped", value=None, key="", note=f"it belongs to {switch}, whose row says the format"
        )
    return _formatted(row, found, around, named=named)


def _converted(around: Around) -> tuple[str, str | None, str] | None:
    """Return the switch of the converter that names the format, the format in a profile's words, and upstream's."""
    on = {name for name in _SWITCHES if _is_on(around.value(name, Reader.CONVERT))}
    if "use_weight_only" in on:
        precision = str(around.value("weight_only_precision", Reader.CONVERT) or "int8")
        return "use_weight_only", format_of(precision), precision
    return next(((switch, format_of(switch), switch) for switch in _SWITCHES if switch in on), None)


_SWITCHES = ("use_weight_only", "use_fp8", "use_fp8_rowwise", "use_nvfp4", "use_qserve", "smoothquant", "sq")
"""Of the converter, one of which names the format."""


def _is_on(value: object) -> bool:
    return plain_value(value) not in ("", "false", "0")


def read_kv_algo(row: Row, around: Around) -> Row:
    """Return the row of the format of the KV cache; int8 becomes fp8, of the same size."""
    text = plain_value(row.setting.value)
    if text in ("", "auto"):
        return replace(row, how="dropped", value=None, note="the checkpoint's own format is the default")
    kept = "fp8" if text == "int8" else text
    taken = not around.capability or kept in formats_for("kv_cache", around.capability, around.to)
    if kept not in ("fp8", "nvfp4") or not taken:
        return replace(
            row,
            how="none",
            value=None,
            lost=f"a KV cache in {row.setting.value}: it stays in 16 bit, of twice the size",
            instead="lower limits.max_batch_size where it does not fit; quantization.kv_cache says what the GPU takes",
        )
    if text != "int8":
        return replace(row, value=text)
    return replace(
        row,
        how="approximate",
        value="fp8",
        lost="int8: the PyTorch backend keeps fp8 in its place, of the same size",
        instead="compare answers with trtkit migrate compare",
    )


def kv_switch(number_format: str) -> Callable[[Row, Around], Row]:
    """Return what reads a switch of the converter that is one format of the KV cache."""

    def read(row: Row, around: Around) -> Row:
        if not _is_on(row.setting.value):
            return replace(row, how="dropped", value=None, lost="", instead="", note="it is off")
        named = replace(row, setting=replace(row.setting, value=number_format))
        return replace(read_kv_algo(named, around), setting=row.setting)

    return read


def read_group_size(row: Row, around: Around) -> Row:
    """Return the row of a size of groups, which says something beside a format that has them."""
    formats = [around.named("quant_algo"), around.named("qformat")]
    found = {format_of(str(one)) or format_of(str(one).upper()) for one in formats if one is not None}
    size = value_as("whole", row.setting.value)
    if not found & set(_INT4):
        return replace(row, how="dropped", value=None, note="no format with groups is named")
    if size in GROUP_SIZES:
        return replace(row, value=size)
    return replace(
        row,
        how="approximate",
        value=None,
        lost=f"groups of {size}: 64 and 128 are made",
        instead="quantization.group_size: 64",
    )
