"""Settings as they were found in somebody's files: who reads them, what they say and where (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

HIDDEN = "(a secret, not shown)"
"""What stands in a report for a secret, which stays in the file where it was found."""


class Reader(StrEnum):
    """The program that reads a setting: it gives a name its meaning."""

    BUILD = "trtllm-build"
    CONVERT = "convert_checkpoint.py"
    QUANTIZE = "quantize.py"
    ENGINE = "engine config.json"
    CHECKPOINT = "checkpoint config.json"
    PARAMETER = "parameter of config.pbtxt"
    FIELD = "field of config.pbtxt"
    FILL = "fill_template.py"
    LAUNCHER = "launch_triton_server.py"
    TRITON = "tritonserver"
    SERVE = "trtllm-serve"
    MPI = "mpirun"
    CONTAINER = "container"
    ENVIRONMENT = "environment"


@dataclass(frozen=True, order=True)
class Where:
    """A place in a file; ``line`` counts from 1, and is 0 where a format has no lines worth naming."""

    file: str
    line: int = 0

    def __str__(self) -> str:
        """Return ``file:line``, or the file alone."""
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True)
class Setting:
    """One setting somebody made.

    ``name`` is the word of its reader: an option without dashes and with ``_`` (``max_batch_size``), a key with dots
    (``build_config.plugin_config.paged_kv_cache``), a parameter of a model's ``config.pbtxt``, an environment variable.
    ``value`` is what JSON can say; a flag that takes no value is True, a placeholder that nobody filled is None.
    ``model`` is the model of the Triton repository that it belongs to.
    """

    reader: Reader
    name: str
    value: object
    where: Where
    model: str = ""


@dataclass(frozen=True)
class Unread:
    """Words that could not be read as settings, with the reason: they are told of, and never guessed."""

    where: Where
    text: str
    why: str


@dataclass(frozen=True)
class Found:
    """All that was found under one path. ``release`` is the TensorRT-LLM that the files name; empty where none does."""

    settings: tuple[Setting, ...]
    unread: tuple[Unread, ...] = ()
    release: str = ""
    release_from: Where | None = None
