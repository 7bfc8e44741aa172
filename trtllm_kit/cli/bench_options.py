"""What ``trtkit bench`` is told: one name for each option."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

UrlArgument = Annotated[
    str, typer.Argument(metavar="URL", help="http://HOST:PORT, https://, or Triton's grpc:// and grpcs://.")
]
ApiOption = Annotated[
    str | None,
    typer.Option(
        "--api", metavar="NAME", help="triton, triton-legacy, openai or openai-chat.", show_default="asked of it"
    ),
]
ModelOption = Annotated[
    str | None, typer.Option("--model", "-m", metavar="NAME", help="What the server calls the model.")
]
ScenarioOption = Annotated[
    str | None,
    typer.Option("--scenario", metavar="NAME", help="first-to-nth, coding, summarise, multi-turn or agentic."),
]
TraceOption = Annotated[
    Path | None, typer.Option("--trace", metavar="FILE", help="Requests of a JSONL file, at their times.")
]
ConcurrencyOption = Annotated[
    int | None,
    typer.Option(
        "--concurrency",
        metavar="COUNT",
        min=1,
        max=4096,
        help="Users, each with one request under way.",
        show_default="1",
    ),
]
RateOption = Annotated[
    float | None, typer.Option("--rate", metavar="NUMBER", help="Requests a second, whatever the server does.")
]
ArrivalsOption = Annotated[
    str | None,
    typer.Option(
        "--arrivals",
        metavar="KIND",
        help="Of --rate: poisson, constant or gamma:SPREAD.",
        show_default="poisson",
    ),
]
RampOption = Annotated[
    str | None, typer.Option("--ramp", metavar="FIRST:LAST", help="A rate that goes from one figure to another.")
]
LoadFractionOption = Annotated[
    float | None,
    typer.Option("--load-fraction", metavar="SHARE", help="Find the saturation, and run at a share of it."),
]
RequestsOption = Annotated[
    int | None,
    typer.Option("--requests", "-n", metavar="COUNT", min=1, max=1_000_000, show_default="100, 10 a user at least"),
]
DurationOption = Annotated[
    str | None, typer.Option("--duration", metavar="TIME", help="Send nothing more after it, e.g. 60s.")
]
WarmupOption = Annotated[
    int | None,
    typer.Option("--warmup", metavar="COUNT", min=0, help="First requests, in no figure.", show_default="one a user"),
]
IslOption = Annotated[
    int | None, typer.Option("--isl", metavar="TOKENS", min=1, help="Longest prompt.", show_default="512")
]
OslOption = Annotated[
    int | None, typer.Option("--osl", metavar="TOKENS", min=1, help="Longest answer.", show_default="128")
]
ShortestOption = Annotated[
    float, typer.Option("--shortest", metavar="SHARE", help="Shortest prompt and answer, of the longest.")
]
SharedPrefixOption = Annotated[
    int, typer.Option("--shared-prefix", metavar="TOKENS", min=0, help="First tokens that prompts have in common.")
]
PrefixesOption = Annotated[
    int, typer.Option("--prefixes", metavar="COUNT", min=1, help="Different such beginnings, in turn.")
]
TurnsOption = Annotated[
    int, typer.Option("--turns", metavar="COUNT", min=1, help="Requests of a conversation, each on those before.")
]
TokenizerOption = Annotated[
    Path | None, typer.Option("--tokenizer", metavar="FOLDER", help="Count tokens exactly, by the model's own.")
]
TemperatureOption = Annotated[float | None, typer.Option("--temperature", metavar="NUMBER", min=0)]
TopPOption = Annotated[float | None, typer.Option("--top-p", metavar="SHARE", min=0, max=1)]
IgnoreEosOption = Annotated[
    bool, typer.Option("--ignore-eos", help="Ask for answers of the full length, where the interface can.")
]
TimeoutOption = Annotated[str, typer.Option("--timeout", metavar="TIME", help="Longest silence of a stream.")]
MetricsUrlOption = Annotated[
    str | None, typer.Option("--metrics-url", metavar="URL", help="The server's metrics page, read meanwhile.")
]
NvmlOption = Annotated[
    bool, typer.Option("--nvml", help="The GPUs are this machine's: ask their driver for power and energy meanwhile.")
]
RepeatsOption = Annotated[int, typer.Option("--repeats", metavar="COUNT", min=1, max=50, help="Runs in all.")]
GpusOption = Annotated[int | None, typer.Option("--gpus", metavar="COUNT", min=1, help="GPUs behind the URL.")]
GpuHourPriceOption = Annotated[
    float | None, typer.Option("--gpu-hour-price", metavar="PRICE", min=0, help="Of one GPU, any currency.")
]
HeaderOption = Annotated[
    list[str] | None, typer.Option("--header", metavar="NAME:VALUE", help="Sent with each request.")
]
CaOption = Annotated[
    str | None,
    typer.Option("--ca", metavar="FILE", help="Certificates to trust, for https.", show_default="the system's"),
]
OutOption = Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the run as JSON.")]
CsvOption = Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write each request as CSV.")]
HtmlOption = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write the run as a page.")]
HistoryOption = Annotated[
    Path | None, typer.Option("--history", metavar="FOLDER", help="Keep the run in a folder, for list and compare.")
]
NameOption = Annotated[str, typer.Option("--name", metavar="NAME", help="Of the run in the history.")]
LiveOption = Annotated[
    bool, typer.Option("--live/--no-live", help="On a terminal show the run on the whole screen while it goes on.")
]
