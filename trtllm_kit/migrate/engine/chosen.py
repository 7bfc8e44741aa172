"""Which of several settings of one key holds, and what the builder did where nobody said anything (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trtllm_kit.migrate.engine.row import Row
from trtllm_kit.migrate.found import Found, Reader
from trtllm_kit.spec.profile import Load
from trtllm_kit.upstream.engine_settings import runtime_defaults
from trtllm_kit.upstream.releases import known_releases, release, unknown_release
from trtllm_kit.upstream.trtllm_build import build_flag

ORDER = (
    Reader.PARAMETER, Reader.FILL, Reader.SERVE, Reader.ENGINE, Reader.CHECKPOINT, Reader.QUANTIZE, Reader.CONVERT,
    Reader.BUILD, Reader.LAUNCHER, Reader.TRITON, Reader.MPI, Reader.FIELD, Reader.CONTAINER, Reader.ENVIRONMENT,
)  # fmt: skip
"""Whose word holds: the runtime's before what the engine was built with, what was built before what was asked."""
_MAIN_MODEL = "tensorrt_llm"
_SHORTEST = 2
"""Tokens of a prompt and an answer of one each."""
_BUILDER_DEFAULTS = ("max_batch_size", "max_num_tokens")


@dataclass(frozen=True)
class Assumed:
    """What held although no file says it: a default of the engine road that differs from the new one's."""

    key: str
    value: Any
    why: str


def choose(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Return the rows in their order, those that another one overrules marked with its place.

    Several that say the same all hold. Of one reader the later one holds; of several models the one named
    ``tensorrt_llm``.
    """
    winners: dict[str, Row] = {}
    for row in rows:
        key = row.key or row.llm
        if row.value is not None and key and (key not in winners or _rank(row) <= _rank(winners[key])):
            winners[key] = row
    return tuple(_marked(row, winners.get(row.key or row.llm)) for row in rows)


def _rank(row: Row) -> tuple[int, bool]:
    return ORDER.index(row.setting.reader), row.setting.model not in ("", _MAIN_MODEL)


def _marked(row: Row, winner: Row | None) -> Row:
    if winner is None or row.value is None or row.value == winner.value:
        return row
    later = "the later one holds" if winner.setting.reader is row.setting.reader else "the other one comes first"
    note = f"overruled by {winner.setting.reader.value} at {winner.setting.where} ({winner.shown!r}): {later}"
    return replace(row, overruled_by=winner.setting.where, note=f"{row.note}; {note}" if row.note else note)


def written(rows: Sequence[Row]) -> dict[str, Row]:
    """Return the row that each key of a profile takes its value from, in the order of the rows."""
    found: dict[str, Row] = {}
    for row in rows:
        if row.writes:
            found.setdefault(row.place, row)
    return found


def assumed(found: Found, rows: Sequence[Row], positions: int | None = None) -> tuple[Assumed, ...]:
    """Return the defaults of the engine road that nobody overruled and that differ from a profile's own.

    ``positions`` are those of the model, where its Hugging Face folder was named.
    """
    return tuple(_assumed(found, written(rows), positions))


def _assumed(found: Found, keys: dict[str, Row], positions: int | None) -> Iterator[Assumed]:
    readers = {setting.reader for setting in found.settings}
    if Reader.BUILD in readers and Reader.ENGINE not in readers:
        yield from _of_builder(found, keys)
    if readers & {Reader.BUILD, Reader.ENGINE, Reader.CHECKPOINT} and "limits.max_seq_len" not in keys:
        known = positions or _positions(found)
        if known is not None:
            yield Assumed("limits.max_seq_len", known, "no file sets it: the builder takes the model's positions")
    yield from _short_load(keys, positions or _positions(found))
    runtime = any(setting.reader in (Reader.PARAMETER, Reader.FILL) for setting in found.settings)
    for row in runtime_defaults() if runtime else ():
        if row.key not in keys:
            yield Assumed(row.key, row.value, f"no file sets {row.name}: {row.means}")


def _short_load(keys: dict[str, Row], positions: int | None) -> Iterator[Assumed]:
    """Yield a load that fits sequences shorter than the one a profile is sized for."""
    row = keys.get("limits.max_seq_len")
    longest = row.value if row is not None else positions
    usual = Load()
    if not isinstance(longest, int) or longest < _SHORTEST or longest >= usual.input_tokens + usual.output_tokens:
        return
    prompt = longest // 2
    why = f"the load to size for is no longer than limits.max_seq_len {longest}"
    yield Assumed("load.input_tokens", prompt, why)
    yield Assumed("load.output_tokens", longest - prompt, why)


def _of_builder(found: Found, keys: dict[str, Row]) -> Iterator[Assumed]:
    """Yield the limits of an engine that no option sets; none of an option whose value could not be read."""
    release = found.release
    version = release if release and not unknown_release(release) else _newest_builder()
    named = f"of release {version}" if release else f"of release {version}, for no file names the release"
    for name in _BUILDER_DEFAULTS:
        flag = build_flag(version, f"--{name}") or build_flag(_newest_builder(), f"--{name}")
        told = any(f"--{name}" in one.text or f"--{name} is near" in one.why for one in found.unread)
        if f"limits.{name}" not in keys and not told and flag is not None and flag.default is not None:
            yield Assumed(f"limits.{name}", flag.default, f"no file sets --{name}: the builder's own default {named}")


def _positions(found: Found) -> int | None:
    said = (one.value for one in found.settings if one.name.rpartition(".")[2] == "max_position_embeddings")
    return next((value for value in said if isinstance(value, int) and value > 0), None)


def _newest_builder() -> str:
    """Return the last finished release that has a builder: it stands for one that no file names."""
    return [name for name in known_releases() if "trtllm-build" in release(name).toolchains and "rc" not in name][-1]
