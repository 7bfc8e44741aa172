"""Lints a shell script: the commands of the engine road, and how it starts servers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trtllm_kit.findings import Finding
from trtllm_kit.lint.context import Context
from trtllm_kit.lint.launched import Launched, launched
from trtllm_kit.lint.read import read_bytes
from trtllm_kit.lint.report import Located, Read, in_order
from trtllm_kit.lint.shell import Started, started
from trtllm_kit.plan.given.commands import Around, Command, command_line, exporter, parse_command, plugin_command
from trtllm_kit.plan.given.engines import plugin_types
from trtllm_kit.plan.given.facts import LaunchFacts
from trtllm_kit.plan.given.launches import launch
from trtllm_kit.plan.plan import Plan
from trtllm_kit.plan.room import calibration_bytes, rank_bytes
from trtllm_kit.spec.model import Experts
from trtllm_kit.upstream.serve_options import COMMANDS, SERVE

_BUILD = "trtllm-build"
_PROGRAMS = (_BUILD, "convert_checkpoint.py", "quantize.py", SERVE)
_MODELOPT = re.compile(r"nvidia-modelopt(?:\[[\w,-]+\])?==([\w.]+)")
_ENGINES = ("trtllm-build", "mock")
"""Toolchains whose ranks are started by MPI; the LLM API starts its own."""


def lint_script(path: Path, kind: str, context: Context) -> Read:
    """Lint one script; raises ``NotLinted`` and ``StorageError``."""
    release, said_by = context.settle(None)
    commands = tuple(started(read_bytes(path)))
    servers = tuple(server for one in commands for server in launched(one))
    found = [*_commands(commands, path.name, release, context), *_servers(servers, path, release, context)]
    facts = {"commands": len(commands), "servers": len(servers)}
    return Read(kind, release, said_by, facts, in_order(found))


def _commands(commands: tuple[Started, ...], file: str, release: str, context: Context) -> Iterator[Located]:
    """Yield what the rules say of each command of the engine road."""
    around = _around(context, release)
    plan = context.plan
    for one in commands:
        command = _command(one.words)
        if command is not None:
            yield from (Located(finding, file, one.line) for finding in _of_command(command, around, plan))
        version = next((match[1] for word in one.words if (match := _MODELOPT.fullmatch(word))), None)
        if version is not None and plan is not None:
            yield from (Located(finding, file, one.line) for finding in exporter(plan.model.architecture, version))


def _command(words: tuple[str, ...]) -> Command | None:
    """Return the command of the engine road in these words, behind whatever starts it; None for another one."""
    at = next((number for number, word in enumerate(words) if Path(word).name in _PROGRAMS), None)
    if at is None:
        return None
    command = parse_command(list(words[at:]))
    sub = words[at + 1] if words[at + 1 :] else ""
    named = command.program == SERVE and sub in COMMANDS
    return Command(f"{SERVE} {sub}", command.options) if named else command


def _of_command(command: Command, around: Around, plan: Plan | None) -> Iterator[Finding]:
    yield from command_line(command, around)
    if command.program == _BUILD and plan is not None:
        yield from plugin_types(plugin_command(command, plan.model.dtype, around.release), around.release)


def _around(context: Context, release: str) -> Around:
    """Return what the plan knows of the model and the machine; nothing of either without one."""
    plan, machine = context.plan, context.hardware
    if plan is None:
        return Around(release, quantised=None)
    memory = machine.host_memory_bytes if machine is not None else None
    before, after = calibration_bytes(plan.model, plan.quantization.formats)
    return Around(
        release,
        quantised=plan.model.stored is not None,
        experts=any(isinstance(layer.feed_forward, Experts) for layer in plan.model.layers),
        positions=plan.model.max_position,
        weights_bytes=before,
        rank_bytes=max(rank_bytes(plan), default=None),
        host_bytes=int(memory.value) if memory is not None else None,
        dtype=plan.model.dtype,
        calibrated_bytes=after,
        gpu_bytes=int(machine.gpus * machine.gpu.memory_bytes.value) if machine is not None else None,
    )


@dataclass(frozen=True)
class _Wanted:
    """What a plan asks of a launch."""

    ranks: int | None = None
    nodes: int = 1
    gpus_per_node: int | None = None


def _wanted(context: Context) -> _Wanted:
    plan, machine = context.plan, context.hardware
    if plan is None or machine is None:
        return _Wanted()
    world = plan.parallelism.world_size
    ranks = world if plan.toolchain.value in _ENGINES else None
    return _Wanted(ranks, -(-world // machine.gpus_per_node), machine.gpus_per_node)


def _servers(servers: tuple[Launched, ...], path: Path, release: str, context: Context) -> Iterator[Located]:
    wanted = _wanted(context)
    for server in servers:
        facts = LaunchFacts(
            release,
            ranks=server.ranks,
            wanted_ranks=wanted.ranks if server.triton else None,
            nodes=wanted.nodes if server.ranks > 1 else 1,
            gpus_per_node=wanted.gpus_per_node,
            asked_gpus_per_node=server.gpus_per_node,
            names_hosts=server.names_hosts,
            orchestrator=server.orchestrator,
            shm_bytes=server.shm_bytes,
            variables=server.variables,
            folder_holds_clone=_holds_clone(path, server.folder),
        )
        yield from (Located(finding, path.name, server.line) for finding in launch(facts))
    yield from _together(servers, path.name, release)


def _together(servers: tuple[Launched, ...], file: str, release: str) -> Iterator[Located]:
    """Yield prefixes that servers share while they run side by side in one memory."""
    side_by_side: list[Launched] = []
    for server in servers:
        if server.shm_bytes is None:  # a container's own memory is shared with nobody
            side_by_side.append(server)
            prefixes = tuple(prefix for one in side_by_side for prefix in one.prefixes)
            found = launch(LaunchFacts(release, shm_prefixes=prefixes)) if server.prefixes else ()
            yield from (Located(finding, file, server.line) for finding in found)
        if not server.background:
            side_by_side.clear()


def _holds_clone(script: Path, folder: str | None) -> bool:
    """Whether the folder that a script changes to holds a folder ``tensorrt_llm``; unknown is no."""
    return folder is not None and (script.parent / folder / "tensorrt_llm").is_dir()
