"""Arguments and options that several verbs share, declared once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trtllm_kit.errors import UsageError
from trtllm_kit.units import parse_bytes, parse_seconds

if TYPE_CHECKING:
    from trtllm_kit.spec.quality import Quality


def complete_profile(incomplete: str) -> list[str]:
    """Complete the name of a shipped deploy profile."""
    from trtllm_kit.spec.load import shipped_profiles

    return [name for name in shipped_profiles() if name.startswith(incomplete)]


def as_duration(text: str | float) -> float:
    """Read a duration on the command line, seconds."""
    try:
        return parse_seconds(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _size(text: str | float) -> int:
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


ModelArgument = Annotated[
    str, typer.Argument(metavar="MODEL", help="Hugging Face folder with config.json, or a hub id (org/name).")
]
ProfileOption = Annotated[
    str,
    typer.Option(
        "--profile", "-p", metavar="NAME|FILE", help="Shipped profile or YAML file.", autocompletion=complete_profile
    ),
]
OptionalProfileOption = Annotated[
    str | None,
    typer.Option(
        "--profile", "-p", metavar="NAME|FILE", help="Shipped profile or YAML file.", autocompletion=complete_profile
    ),
]
OutOption = Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="Folder to make.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show what would be written; write nothing.")]
VersionOption = Annotated[
    str | None,
    typer.Option("--trtllm-version", metavar="V", help="TensorRT-LLM release that will serve, before any other word."),
]
StrictOption = Annotated[bool, typer.Option("--strict", help="Let WARNING findings fail the verb (exit 1).")]
MountOption = Annotated[
    list[str] | None,
    typer.Option(
        "--mount", metavar="HOST:PATH", help="Where the server sees a folder of this machine; may be repeated."
    ),
]
LockWaitOption = Annotated[
    float,
    typer.Option(
        "--lock-wait",
        metavar="DURATION",
        parser=as_duration,
        show_default="10s",
        help="How long to wait for another run that works on the same output, e.g. 30s, 10min, 2h.",
    ),
]
UnattendedOption = Annotated[
    bool,
    typer.Option("--unattended", help="For cron: silent when nothing changed, else one line; errors on stderr alone."),
]
LogFileOption = Annotated[
    Path | None,
    typer.Option("--log-file", metavar="FILE", help="Write what the run says there too, with times and a run id."),
]
LogSizeOption = Annotated[
    int,
    typer.Option(
        "--log-size",
        metavar="SIZE",
        parser=_size,
        show_default="10 MiB",
        help="Size beyond which FILE becomes FILE.1 and a new one begins.",
    ),
]
LogKeepOption = Annotated[int, typer.Option("--log-keep", metavar="COUNT", min=0, help="How many older logs to keep.")]
StoreOption = Annotated[
    Path | None,
    typer.Option(
        "--store",
        metavar="FOLDER",
        envvar="TRTKIT_ENGINE_STORE",
        help="Take the engine from this store, and keep it there when it had to be built.",
    ),
]
CalibStepsOption = Annotated[
    int | None,
    typer.Option("--calib-steps", metavar="COUNT", min=1, help="First denoising steps to measure a UNet on [8]."),
]
CalibDataOption = Annotated[
    Path | None,
    typer.Option("--calib-data", metavar="FILE", help="Text or JSONL of your own domain to measure scales on."),
]
CalibFieldOption = Annotated[
    str | None, typer.Option("--calib-field", metavar="NAME", help="Field of a JSONL record that holds its text.")
]
CalibSamplesOption = Annotated[
    int | None, typer.Option("--calib-samples", metavar="COUNT", min=1, help="Pieces of text to run.")
]
CalibLengthOption = Annotated[
    int | None, typer.Option("--calib-length", metavar="TOKENS", min=1, help="Tokens of a piece.")
]
CalibSeedOption = Annotated[
    int | None, typer.Option("--calib-seed", metavar="NUMBER", min=0, help="Which pieces are taken; 0 takes the first.")
]
GateOption = Annotated[
    str | None,
    typer.Option(
        "--gate",
        metavar="LIMITS",
        help="What may be lost, e.g. ppl=0.5%,top1=99%,kl=0.01,cosine=0.999; beyond it exit 1.",
    ),
]


def gate_of(gate: str | None, asked: Quality | None = None) -> Quality:
    """Return the limits of a profile with those of ``--gate`` in their place; raises ``UsageError``."""
    from trtllm_kit.spec.quality import Quality, with_gate

    limits = asked or Quality()
    try:
        return limits if gate is None else with_gate(limits, gate)
    except ValueError as error:
        raise UsageError(f"--gate {gate} is not understood", why=str(error), hint="--gate ppl=0.5%,top1=99%") from None


def mounted(text: str) -> tuple[Path, str]:
    """Read HOST:PATH, as container tools have it."""
    host, _, inside = text.partition(":")
    if not host or not inside.startswith("/"):
        raise UsageError(
            f"--mount {text} is not understood",
            why="it takes a folder of this machine, a colon, and the absolute path under which the server sees it",
            hint="--mount /data/models:/models",
        )
    return Path(host), inside.rstrip("/")
