"""Options that describe traffic and what is promised to it, which ``estimate`` and ``tune`` share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trtllm_kit.errors import UsageError

if TYPE_CHECKING:
    from trtllm_kit.estimate.outcome import Slo
    from trtllm_kit.spec.hardware import Hardware

MOST_AT_ONCE = 16_384
"""Requests under way that a command takes: each of them is simulated."""

InputOption = Annotated[
    int | None,
    typer.Option("--isl", metavar="TOKENS", min=1, help="Longest prompt.", show_default="load.input_tokens"),
]
OutputOption = Annotated[
    int | None,
    typer.Option("--osl", metavar="TOKENS", min=1, help="Longest answer.", show_default="load.output_tokens"),
]
ConcurrencyOption = Annotated[
    int | None,
    typer.Option(
        "--concurrency",
        metavar="COUNT",
        min=1,
        max=MOST_AT_ONCE,
        help="Requests that are always under way, in all replicas. Without it and --rate, estimate takes what the "
        "profile promises, and tune looks for the best.",
    ),
]
RateOption = Annotated[
    float | None, typer.Option("--rate", metavar="NUMBER", help="Requests a second in all, at random times instead.")
]
SloOption = Annotated[
    str | None,
    typer.Option("--slo", metavar="LIMITS", help="What is promised: ttft=500ms,tpot=30ms,gap=300ms,e2e=10s, or some."),
]
PercentileOption = Annotated[
    int,
    typer.Option("--percentile", metavar="50|90|95|99|100", help="Share of the requests that must keep it, percent."),
]
SpreadOption = Annotated[
    float,
    typer.Option(
        "--shortest", metavar="SHARE", help="Shortest prompt and answer as a share of the longest; 1 for one length."
    ),
]
PrefixOption = Annotated[
    int,
    typer.Option("--shared-prefix", metavar="TOKENS", min=0, help="First tokens that all prompts have in common."),
]
AcceptanceOption = Annotated[
    str | None,
    typer.Option(
        "--acceptance",
        metavar="SHARES",
        help="Chance of each draft position when those before were taken, e.g. 0.8,0.7,0.6; without it nothing drafts.",
    ),
]
PriceOption = Annotated[
    str | None,
    typer.Option(
        "--gpu-hour-price", metavar="PRICE", help="Of one GPU: 2.5, or by machine h200x8-700w=3,h100x8=2; any currency."
    ),
]
SeedOption = Annotated[int, typer.Option("--seed", metavar="NUMBER", min=0, help="Of the lengths and arrivals.")]


def slo_from(text: str | None, percentile: int) -> Slo:
    """Return a promise as asked on the command line; raises ``UsageError``."""
    from trtllm_kit.estimate.outcome import Slo
    from trtllm_kit.estimate.spread import PERCENTILES
    from trtllm_kit.tune.question import slo_of

    known = next((one for one in PERCENTILES if one == percentile), None)
    if known is None:
        listed = ", ".join(map(str, PERCENTILES))
        raise UsageError(f"--percentile {percentile}", why=f"figures are kept at {listed}", hint="--percentile 95")
    try:
        return Slo(percentile=known) if text is None else slo_of(text, known)
    except ValueError as error:
        raise UsageError(f"--slo {text} is not understood", why=str(error), hint="--slo ttft=500ms,tpot=30ms") from None


def chances_from(text: str | None) -> tuple[float, ...]:
    """Return chances of draft positions; raises ``UsageError`` for one outside 0 to 1."""
    values = numbers("--acceptance", text, "0.8,0.7,0.6")
    for value in values:
        if not 0 <= value <= 1:
            raise UsageError(
                f"--acceptance {value:g}", why="a chance is between 0 and 1", hint="--acceptance 0.8,0.7,0.6"
            )
    return values


def numbers(option: str, text: str | None, example: str) -> tuple[float, ...]:
    """Return the numbers of a list with commas; raises ``UsageError``."""
    try:
        return () if text is None else tuple(float(part) for part in text.split(","))
    except ValueError:
        raise UsageError(
            f"{option} {text} is not understood", why="it takes numbers with commas between", hint=f"{option} {example}"
        ) from None


def prices_from(text: str | None) -> dict[str, float]:
    """Return prices by machine, ``""`` for every other; raises ``UsageError``."""
    prices: dict[str, float] = {}
    for part in () if text is None else text.split(","):
        name, equals, number = part.rpartition("=")
        try:
            prices[name.strip() if equals else ""] = float(number)
        except ValueError:
            raise UsageError(
                f"--gpu-hour-price {text} is not understood",
                why=f"{number!r} is no number",
                hint="--gpu-hour-price 2.5",
            ) from None
        if not 0 < float(number) < float("inf"):
            raise UsageError(
                f"--gpu-hour-price {number}", why="a price is above 0", hint="leave it out for a free machine"
            )
    return prices


def check_load(concurrency: int | None, rate: float | None, shortest: float) -> None:
    """Raise ``UsageError`` for a load that contradicts itself."""
    if concurrency is not None and rate is not None:
        raise UsageError(
            f"--concurrency {concurrency} and --rate {rate:g}",
            why="requests either follow one another, or come at random times",
            hint="give one of the two",
        )
    if rate is not None and not 0 < rate < float("inf"):
        raise UsageError(f"--rate {rate:g}", why="requests come at a rate above 0", hint="--rate 2.5")
    if not 0 < shortest <= 1:
        raise UsageError(f"--shortest {shortest:g}", why="it is a share above 0, up to 1", hint="--shortest 0.8")


def with_power(machine: Hardware, watts: float) -> Hardware:
    """Return a machine whose GPUs run at another power limit; raises ``UsageError``."""
    from trtllm_kit.spec.load import hardware_names, load_hardware
    from trtllm_kit.tune.power import at_power

    return at_power(machine, watts, map(load_hardware, hardware_names()))
