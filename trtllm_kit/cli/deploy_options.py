"""What ``trtkit deploy`` is told: one name for each option."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EngineArgument = Annotated[Path, typer.Argument(metavar="ENGINE", help="Folder that trtkit build made.")]
StartOption = Annotated[bool, typer.Option("--start", help="Start tritonserver on it; Ctrl-C stops it cleanly.")]
BackgroundOption = Annotated[
    bool,
    typer.Option(
        "--background", help="With --start: leave the server running, or the one that runs; trtkit stop ends it."
    ),
]
RestartOption = Annotated[
    bool,
    typer.Option("--restart", help="With --background: replace a server that runs on what the folder held before."),
]
TargetOption = Annotated[
    list[str],
    typer.Option(
        "--target",
        metavar="NAME",
        help="Write what serves the repository elsewhere: local, mpirun, slurm, kubernetes, dynamo, monitoring. "
        "May be given several times.",
    ),
]
TargetOutOption = Annotated[
    Path | None,
    typer.Option("--target-out", metavar="FOLDER", help="Folder of the targets; without it OUT.NAME, beside OUT."),
]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Give up changes that a person made to files that are written again.")
]
