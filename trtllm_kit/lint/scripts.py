"""Lints a shell script or Dockerfile: the commands of the engine road, and how it starts servers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from trtllm_kit.findings import Finding, Severity
from trtllm_kit.lint.context import Context
from trtllm_kit.lint.kinds import Kind
from trtllm_kit.lint.launched import Launched, launched
from trtllm_kit.lint.read import read_bytes
from trtllm_kit.lint.report import Located, Read, in_order, located
from trtllm_kit.lint.shell import STOPS, Started, started, started_in_image
from trtllm_kit.plan.given.commands import Around, Command, command_line, exporter, parse_command, plugin_command
from trtllm_kit.plan.given.engines import plugin_types
from trtllm_kit.plan.given.facts import LaunchFacts
from trtllm_kit.plan.given.finding import found
from trtllm_kit.plan.given.launches import launch
from trtllm_kit.plan.plan import Plan
from trtllm_kit.plan.room import calibration_bytes, rank_bytes
from trtllm_kit.shell.words import Broken
from trtllm_kit.spec.model import Experts
from trtllm_kit.upstream.serve_options import COMMANDS, SERVE

_BUILD = "trtllm-build"
_PROGRAMS = (_BUILD, "convert_checkpoint.py", "quantize.py", SERVE)
_MODELOPT = re.compile(r"nvidia-modelopt(?:\[[\w,-]+\])?==([\w.]+)")
_ASKS = (("command", "-v"), ("command", "-V"))
"""How a script asks whether a program is there."""
_MOST_TEXT = 80
"""Letters shown of what was not read."""
_MOST_SERVERS = 100
"""Servers beside which another one is looked at."""
_ENGINES = ("trtllm-build", "mock")
"""Toolchains whose ranks are started by MPI; the LLM API starts its own."""


def lint_script(path: Path, kind: str, context: Context) -> Read:
    """Lint one script or Dockerfile; raises ``NotLinted`` and ``StorageError``."""
    release, said_by = context.settle(None)
    image = kind == Kind.DOCKERFILE
    read = tuple((started_in_image if image else started)(read_bytes(path)))
    commands = tuple(one for one in read if isinstance(one, Started))
    servers = tuple(server for one in commands for server in launched(one))
    if image:  # which says nothing of how many containers there are
        servers = tuple(replace(one, ranks=None) for one in servers)
    said = [
        *(Located(not_read(one), path.name, one.line) for one in read if isinstance(one, Broken)),
        *_commands(commands, path.name, release, context),
        *_servers(servers, path, release, context),
        *_together(commands, path.name, release),
    ]
    facts = {"commands": len(commands), "servers": len(servers)}
    return Read(kind, release, said_by, facts, in_order(dict.fromkeys(said)))


def not_read(broken: Broken) -> Finding:
    """Return the finding about a part of a script that was not read: nobody knows what is wrong there."""
    text = broken.text if len(broken.text) <= _MOST_TEXT else f"{broken.text[: _MOST_TEXT - 1]}…"
    return found(
        "PF52",
        Severity.WARNING,
        f"a part of the script was not read: {text}" if text else "a part of the script was not read",
        broken.why,
        "mend it, or look at it yourself",
    )


def _commands(commands: tuple[Started, ...], file: str, release: str, context: Context) -> Iterator[Located]:
    """Yield what the rules say of each command of the engine road."""
    around = _around(context, release)
    plan = context.plan
    for one in commands:
        command = _command(one)
        if command is not None:
            known = around if _says_all(one) else replace(around, positions=None)
            for finding in located(_of_command(command, known, plan), file, one.lines):
                yield finding._replace(line=finding.line or one.line)
        version = next((match[1] for word in one.words if (match := _MODELOPT.fullmatch(word))), None)
        if version is not None and plan is not None:
            yield from (Located(finding, file, one.line) for finding in exporter(plan.model.architecture, version))


def _command(one: Started) -> Command | None:
    """Return the command of the engine road, behind whatever starts it; None for another one.

    Options whose name the script does not say are left out; a value that it does not say stands as it is written,
    which is the value of no rule.
    """
    words = one.words
    at = next((number for number, word in enumerate(words) if Path(word).name in _PROGRAMS), None)
    if at is None or words[0] in STOPS or words[:2] in _ASKS:
        return None
    command = parse_command([word for word in words[at:] if not _names_unsaid_option(word, one)])
    sub = words[at + 1] if words[at + 1 :] else ""
    program = f"{SERVE} {sub}" if command.program == SERVE and sub in COMMANDS else command.program
    return Command(program, command.options)


def _names_unsaid_option(word: str, one: Started) -> bool:
    return word in one.unsaid and word.startswith("--") and "$" in word.partition("=")[0]


def _says_all(one: Started) -> bool:
    """Whether no word may be options that the script does not say, ``$EXTRA`` or ``"$@"``."""
    pairs = zip(("", *one.words), one.words, strict=False)
    return not any(
        word in one.unsaid and word.startswith("$") and ("@" in word or not before.startswith("--") or "=" in before)
        for before, word in pairs
    )


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
            ranks=server.ranks or 1,
            wanted_ranks=wanted.ranks if server.triton and server.ranks is not None else None,
            nodes=wanted.nodes if (server.ranks or 1) > 1 else 1,
            gpus_per_node=wanted.gpus_per_node,
            asked_gpus_per_node=server.gpus_per_node,
            names_hosts=server.names_hosts,
            orchestrator=server.orchestrator,
            shm_bytes=server.shm_bytes,
            variables=server.variables,
            folder_holds_clone=_holds_clone(path, server.folder),
        )
        yield from (Located(finding, path.name, server.line) for finding in launch(facts))


def _together(commands: tuple[Started, ...], file: str, release: str) -> Iterator[Located]:
    """Yield prefixes that servers share while they run side by side in one memory."""
    side_by_side: list[Launched] = []
    for command in commands:
        if command.words[0] in STOPS:
            side_by_side.clear()
        for server in launched(command):
            if server.shm_bytes is None:  # a container's own memory is shared with nobody
                with_it = [server, *(one for one in side_by_side if _both_run(one, server))]
                prefixes = tuple(prefix for one in with_it for prefix in one.prefixes)
                found = launch(LaunchFacts(release, shm_prefixes=prefixes)) if server.prefixes else ()
                yield from (Located(finding, file, server.line) for finding in found)
                side_by_side = [*side_by_side[-_MOST_SERVERS:], server]
            if not server.background:
                side_by_side.clear()


def _both_run(one: Launched, other: Launched) -> bool:
    """Whether a script that starts one of two servers starts the other too.

    Not where two arms of one branch start them, nor where a branch in a loop may be taken in one turn only.
    """
    apart = any(branch == same and arm != another for branch, arm in one.arms for same, another in other.arms)
    turns = one.line == other.line and any(branch for branch, _ in one.arms)
    return not apart and not turns


def _holds_clone(script: Path, folder: str | None) -> bool:
    """Whether the folder that a script changes to holds a folder ``tensorrt_llm``; unknown is no."""
    return folder is not None and (script.parent / folder / "tensorrt_llm").is_dir()
