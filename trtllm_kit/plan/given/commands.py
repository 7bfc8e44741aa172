"""Rules about a command line: options that are gone, formats, memory (PF12, PF14, PF15, PF17, PF48)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field

from trtllm_kit.findings import Finding, Severity
from trtllm_kit.light import dataclass
from trtllm_kit.plan.given.facts import EngineFacts
from trtllm_kit.plan.given.finding import found, of_failure, severity_of
from trtllm_kit.plan.given.serving import serve_call
from trtllm_kit.units import format_bytes
from trtllm_kit.upstream.failures import exporters, failure, gone_flags
from trtllm_kit.upstream.serve_options import SERVE
from trtllm_kit.upstream.trtllm_build import build_flag, build_flags, gone_flag, near_build_flag, unknown_build_flags

_BUILD = "trtllm-build"
_CONVERT = "convert_checkpoint.py"
_QUANTIZE = "quantize.py"
_CALIBRATED = ("--use_fp8", "--use_nvfp4")
_LONG = 32768
"""Positions from which a length that is only inherited is worth a word."""


@dataclass(frozen=True)
class Command:
    """A command line taken apart: the program's last name, and its options with their values."""

    program: str
    options: Mapping[str, str] = field(default_factory=dict)
    """Option -> value; an option without one has an empty value."""


@dataclass(frozen=True)
class Around:
    """What is known of the model and the machine of a command."""

    release: str
    quantised: bool | None = False
    """Whether the model's weights are quantised already; None where nobody knows."""
    experts: bool = False
    positions: int | None = None
    """What an engine would inherit as its longest sequence."""
    weights_bytes: int | None = None
    """Of the model in 16 bit."""
    rank_bytes: int | None = None
    """Of the weights of one rank in the engine."""
    host_bytes: int | None = None
    dtype: str | None = None
    """Type of the stored weights, as config.json spells it."""
    calibrated_bytes: int | None = None
    """Of the weights in the format that is asked for."""
    gpu_bytes: int | None = None
    """Of all GPUs of the machine."""


def parse_command(arguments: list[str]) -> Command:
    """Take an argument list apart; ``python x.py`` counts as ``x.py``, and ``--a=b`` as ``--a b``."""
    words = list(arguments)
    while words and words[0].rsplit("/", 1)[-1].startswith("python"):
        words.pop(0)
    program = words.pop(0).rsplit("/", 1)[-1] if words else ""
    options: dict[str, str] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name, _, value = word.partition("=")
            options[name] = value
        elif name:
            options[name] = f"{options[name]} {word}".strip()
    return Command(program, options)


def command_line(command: Command, around: Around) -> Iterator[Finding]:
    """Run every rule about commands."""
    yield from gone(command, around.release)
    if command.program.startswith(SERVE):
        yield from serve_call(command.options, around.release, command.program)
    if command.program == _CONVERT:
        yield from _formats(command, around)
        yield from _workers(command, around)
    if command.program == _QUANTIZE:
        yield from _float32(command, around)
    if command.program == _BUILD:
        yield from _length(command, around)
        yield from _host_memory(command, around)


def gone(command: Command, release: str) -> Iterator[Finding]:
    """PF15: options that the release does not take, or a command that left altogether."""
    left = failure("engine_flow_gone", release)
    if left is not None and command.program in (_BUILD, _CONVERT):
        yield of_failure(
            "PF15",
            left,
            f"{command.program} {left.note} in release {release}.",
            f"asked of {release}, the last with it is 1.3.0rc20",
            "give the Hugging Face checkpoint to the server (toolchain: llm-api)",
        )
        return
    yield from _build_flags(command, release)
    for row in gone_flags():
        if row.program == command.program and row.flag in command.options and row.gone(release):
            yield _gone(
                command.program, release, row.flag, row.removed, row.replacement, surely=row.certainty == "read"
            )


def _build_flags(command: Command, release: str) -> Iterator[Finding]:
    """Yield options of ``trtllm-build`` that the release does not take: gone, not there yet, or never there."""
    if command.program != _BUILD or not build_flags(release):
        return
    for flag in command.options:
        known = gone_flag(release, flag)
        if known is not None and build_flag(release, flag) is None:
            surely = known.seen_from(release).certainty == "read"
            yield _gone(_BUILD, release, flag, str(known.until), known.instead, surely=surely)
        elif known is None and flag in unknown_build_flags(release, (flag,)):
            near = near_build_flag(release, flag)
            yield found(
                "PF15",
                Severity.WARNING,
                f"{_BUILD} of release {release} is not known to take {flag}.",
                f"{flag} is in no list of options that was read for it; not confirmed for this release",
                f"write {near}" if near else f"leave {flag} out",
            )


def _gone(program: str, release: str, flag: str, since: str, instead: str, *, surely: bool) -> Finding:
    doubt = "" if surely else "; not confirmed for this release"
    return found(
        "PF15",
        Severity.ERROR if surely else Severity.WARNING,
        f"{program} of release {release} does not take {flag}.",
        f"{flag} is gone since {since}{doubt}",
        f"write {instead}" if instead.startswith("--") else f"use {instead}",
    )


def exporter(architecture: str, modelopt: str) -> Iterator[Finding]:
    """PF13: a ModelOpt that was seen to fail while it exported the architecture."""
    for row in exporters():
        if row.architecture == architecture and _below(modelopt, row.fails_below):
            yield found(
                "PF13",
                Severity.WARNING,
                f"ModelOpt {modelopt} was seen to fail on {architecture}.",
                f"ModelOpt {modelopt}, {row.fails_below} exports it",
                f"install nvidia-modelopt {row.fails_below} or newer",
            )


def _formats(command: Command, around: Around) -> Iterator[Finding]:
    asked = [name for name in _CALIBRATED if name in command.options]
    known = failure("converter_calibrates", around.release)
    if asked and known is not None and around.quantised is False:
        yield of_failure(
            "PF12",
            known,
            f"{asked[0]} on a model in 16 bit {known.note}: the converter measures no scales.",
            f"{asked[0]}, weights not quantised",
            "quantise first (quantize.py, or trtkit convert), and convert the result",
        )
    rowwise = failure("rowwise_experts", around.release)
    if "--use_fp8_rowwise" in command.options and around.experts and rowwise is not None:
        yield of_failure(
            "PF12",
            rowwise,
            f"Scales by row for experts {rowwise.note} in releases like {around.release}.",
            "--use_fp8_rowwise, a model with experts",
            "FP8 with one scale a tensor (quantize.py --qformat fp8)",
        )


def _workers(command: Command, around: Around) -> Iterator[Finding]:
    known, workers = failure("workers_load_whole", around.release), _count(command, "--workers")
    if known is None or around.weights_bytes is None or around.host_bytes is None:
        return
    needed = workers * around.weights_bytes
    if needed <= around.host_bytes:
        return
    fit = around.host_bytes // around.weights_bytes
    yield of_failure(
        "PF14",
        known,
        f"Every worker of the conversion {known.note}, and they do not fit the CPU's memory.",
        f"{workers} x {format_bytes(around.weights_bytes)} = {format_bytes(needed)}, "
        f"{format_bytes(around.host_bytes)} there",
        f"--workers {fit}" if fit else "a machine with more memory, or trtkit convert, which reads in pieces",
    )


def _float32(command: Command, around: Around) -> Iterator[Finding]:
    """Yield a calibration that is told to hold weights of 16 bit as float32, which the GPUs have no room for."""
    known, stored = failure("float32_load", around.release), around.weights_bytes
    if known is None or command.options.get("--dtype") != "float32" or around.dtype in (None, "float32"):
        return
    if stored is None or around.calibrated_bytes is None or around.gpu_bytes is None:
        return
    needed = 2 * stored + around.calibrated_bytes
    if needed > around.gpu_bytes:
        yield of_failure(
            "PF14",
            known,
            f"A calibration in float32 {known.note}, and that does not fit the GPUs.",
            f"2 x {format_bytes(stored)} as float32 + {format_bytes(around.calibrated_bytes)} of the result = "
            f"{format_bytes(needed)}, {format_bytes(around.gpu_bytes)} in all GPUs",
            f"--dtype {around.dtype}, the type that the weights are stored in",
        )


def _host_memory(command: Command, around: Around) -> Iterator[Finding]:
    known, workers = failure("build_in_cpu_memory", around.release), _count(command, "--workers")
    if known is None or around.rank_bytes is None or around.host_bytes is None:
        return
    needed = workers * known.value * around.rank_bytes
    if needed > around.host_bytes:
        yield of_failure(
            "PF14",
            known,
            f"The build of a rank {known.note} in CPU memory, and that is more than there is.",
            f"{workers} x {known.value} x {format_bytes(around.rank_bytes)} = {format_bytes(needed)}, "
            f"{format_bytes(around.host_bytes)} there",
            "--workers 1, more tensor ranks, or a machine with more memory",
        )


def _length(command: Command, around: Around) -> Iterator[Finding]:
    known = failure("inherited_length", around.release)
    asked = {"--max_seq_len", "--max_decoder_seq_len", "--build_config"} & command.options.keys()
    if known is not None and not asked and around.positions is not None and around.positions >= _LONG:
        yield found(
            "PF17",
            Severity.WARNING,
            f"The longest sequence {known.note}, and memory is laid out for it.",
            f"--max_seq_len absent, the model's positions {around.positions:,}",
            "--max_seq_len with the longest prompt and answer together",
        )
    if command.options.get("--context_fmha") == "disable":
        scores = failure("scores_in_memory", around.release)
        if scores is not None:
            yield found(
                "PF17",
                severity_of(scores),
                f"Attention without context FMHA {scores.note}.",
                "--context_fmha disable; not confirmed for this release",
                "--context_fmha enable",
            )


def plugin_command(command: Command, dtype: str, release: str) -> EngineFacts:
    """Return the engine that a build would make, as far as its plugins go: what PF16 is asked about."""
    plugins = {name.removeprefix("--"): value for name, value in command.options.items() if name.endswith("_plugin")}
    return EngineFacts(version=release, dtype=dtype, plugins=plugins)


def _count(command: Command, option: str) -> int:
    text = command.options.get(option, "1")
    return int(text) if text.isdigit() and int(text) > 0 else 1


def _below(version: str, least: str) -> bool:
    numbers = [[int(part) for part in text.split(".")[:2] if part.isdigit()] for text in (version, least)]
    return numbers[0] < numbers[1]
