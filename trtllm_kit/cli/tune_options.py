"""What ``trtkit tune`` alone is told: one name for each option; ``load_options`` has those of ``estimate`` too."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ObjectiveOption = Annotated[
    str, typer.Option("--objective", metavar="AIM", help="throughput, latency, cost or energy.")
]
HardwareOption = Annotated[
    str | None,
    typer.Option("--hardware", metavar="NAMES", help="Machines to choose from.", show_default="the profile's"),
]
PowerLimitOption = Annotated[
    str | None,
    typer.Option("--power-limit", metavar="WATTS", help="Power limits of a GPU to choose from, e.g. 700,1000."),
]
QuantizationOption = Annotated[
    str | None,
    typer.Option(
        "--quantization",
        metavar="FORMATS",
        help="Formats of the weights to choose from.",
        show_default="bf16, fp8, nvfp4 and the profile's",
    ),
]
OutOption = Annotated[
    Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the winner as a deploy profile.")
]
HtmlOption = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write the report as a page too.")]
MeasureOption = Annotated[
    str | None,
    typer.Option("--measure", metavar="URL", help="Correct predictions by what the profile's own deployment takes."),
]
MeasureLoadsOption = Annotated[
    str, typer.Option("--measure-loads", metavar="COUNTS", help="Requests at once that it is measured at.")
]
ServedModelOption = Annotated[
    str | None,
    typer.Option(
        "--served-model", metavar="NAME", help="What the measured server calls the model; else the one that it names."
    ),
]
EverythingOption = Annotated[
    bool, typer.Option("--all", help="With --json: every configuration that is out, and what stopped it.")
]
