"""The fields of Triton's ``config.pbtxt``, message by message, and the words its enumerations have."""

from __future__ import annotations

from functools import cache

from trtllm_kit.upstream.facts import Fact, rows

_TABLE = "model_config"
TOP = "ModelConfig"


class ConfigField(Fact):
    """One field of one message."""

    key: str
    """Message and field, ``ModelConfig.max_batch_size``; a message within a message has both names."""
    type: str
    """``string``, ``int``, ``float``, ``bool``, an enumeration's name, or a message's."""
    repeated: bool = False


class _Enumeration(Fact):
    name: str
    values: tuple[str, ...]


def config_field(message: str, field: str) -> ConfigField | None:
    """Return what is known of a message's field; None when the message has none of that name."""
    return _fields().get(f"{message}.{field}")


def field_names(message: str) -> tuple[str, ...]:
    """Return the fields of a message, in the order of its definition."""
    return tuple(key.rpartition(".")[2] for key in _fields() if key.rpartition(".")[0] == message)


def words_of(enumeration: str) -> tuple[str, ...]:
    """Return the words of an enumeration; empty for a name that is none."""
    return _enumerations().get(enumeration, ())


@cache
def _fields() -> dict[str, ConfigField]:
    return {row.key: row for row in rows(_TABLE, "fields", ConfigField)}


@cache
def _enumerations() -> dict[str, tuple[str, ...]]:
    return {row.name: row.values for row in rows(_TABLE, "enums", _Enumeration)}
