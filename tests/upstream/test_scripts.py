"""Options of trtllm-serve, trtllm-bench and trtllm-eval: exactly the recorded names of each release read."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from trtllm_kit.upstream.tables import entries

COMMANDS = {
    "trtllm-serve": ("serve_cli", "serve"),
    "trtllm-serve disaggregated": ("serve_cli", "disaggregated"),
    "trtllm-serve disaggregated_mpi_worker": ("serve_cli", "disaggregated_mpi_worker"),
    "trtllm-serve mm_embedding_serve": ("serve_cli", "mm_embedding_serve"),
    "trtllm-bench": ("bench_cli", "common"),
    "trtllm-bench throughput": ("bench_cli", "throughput"),
    "trtllm-bench latency": ("bench_cli", "latency"),
    "trtllm-bench build": ("bench_cli", "build"),
    "trtllm-eval": ("eval_cli", "shared"),
}
READ = [("1.0.0", command) for command in list(COMMANDS)[:3]]
READ += [("1.1.0", command) for command in list(COMMANDS)[:4]]
READ += [("1.2.1", command) for command in COMMANDS]


def names(recorded: Iterable[Any]) -> set[str]:
    """Return the option names in a list of options, written as ``-c/--config``, ``--a = --b`` or ``{flags: [...]}``."""
    words = [" ".join(one["flags"]) if isinstance(one, dict) else str(one) for one in recorded]
    return {name for word in words for name in re.findall(r"(?<![\w-])--?[a-z][\w-]*", word)}


def ours(program: str, version: str) -> set[str]:
    """Return the names of a program's options in a release, aliases too."""
    held = [row for row in entries("scripts") if row.kind == program and row.holds(version)]
    return {name for row in held for name in (row.key, *row.facts.get("aliases", ()))}


@pytest.mark.parametrize(("version", "command"), READ)
def test_a_command_has_exactly_the_recorded_options(shared: Path, version: str, command: str) -> None:
    """No option of a release read is missing, and none was invented."""
    document = yaml.load((shared / "contract" / f"llmapi-{version}.yaml").read_text("utf-8"), Loader=yaml.CSafeLoader)
    section, name = COMMANDS[command]
    assert names(document[section][name]) == ours(command, version)


@pytest.mark.parametrize(
    ("program", "flag", "before", "after"),
    [
        ("trtllm-serve disaggregated", "--metrics-log-interval", "1.0.0", "1.1.0"),
        ("trtllm-serve mm_embedding_serve", "--max_num_tokens", "1.0.0", "1.1.0"),
        ("trtllm-bench latency", "--extra_llm_api_options", "1.1.0", "1.2.1"),
        ("trtllm-bench throughput", "--disable_chunked_context", "1.1.0", "1.2.1"),
        ("trtllm-serve disaggregated", "--schedule_style", "1.2.1", "main"),
        ("trtllm-bench build", "--quantization", "main", "1.2.1"),
    ],
)
def test_an_option_is_of_its_releases(program: str, flag: str, before: str, after: str) -> None:
    """An option came with a release, or went with the engines."""
    assert [False, True] == [flag in ours(program, version) for version in (before, after)]
