"""``trtkit bench``: how fast a running deployment is, as its users feel it; and runs held against each other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from trtllm_kit.cli.load_options import PercentileOption, SeedOption, SloOption, slo_from
from trtllm_kit.cli.session import Session, heading, table
from trtllm_kit.errors import UsageError

RUN = "run"


class WithShorthand(TyperGroup):
    """A group whose verb ``run`` may be left out: ``trtkit bench URL ...``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the verb in front where none is named and no help is asked for."""
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = [RUN, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=WithShorthand,
    help="How fast a running deployment is: trtkit bench URL is short for bench run URL.",
    no_args_is_help=True,
)


@app.command(RUN)
def run(
    context: typer.Context,
    url: Annotated[str, typer.Argument(metavar="URL", help="http://HOST:PORT, https:// or Triton's grpc://.")],
    *,
    api: Annotated[
        str | None,
        typer.Option(
            "--api", metavar="NAME", help="triton, triton-legacy, openai or openai-chat.", show_default="asked of it"
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", metavar="NAME", help="What the server calls the model.")
    ] = None,
    scenario: Annotated[
        str | None,
        typer.Option("--scenario", metavar="NAME", help="first-to-nth, coding, summarise, multi-turn or agentic."),
    ] = None,
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="FILE", help="Requests of a JSONL file, at their times.")
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(
            "--concurrency",
            metavar="COUNT",
            min=1,
            max=4096,
            help="Users, each with one request under way.",
            show_default="1",
        ),
    ] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", metavar="NUMBER", help="Requests a second, whatever the server does.")
    ] = None,
    arrivals: Annotated[
        str | None,
        typer.Option(
            "--arrivals",
            metavar="KIND",
            help="Of --rate: poisson, constant or gamma:SPREAD.",
            show_default="poisson",
        ),
    ] = None,
    ramp: Annotated[
        str | None, typer.Option("--ramp", metavar="FIRST:LAST", help="A rate that goes from one figure to another.")
    ] = None,
    load_fraction: Annotated[
        float | None,
        typer.Option("--load-fraction", metavar="SHARE", help="Find the saturation, and run at a share of it."),
    ] = None,
    requests: Annotated[
        int | None,
        typer.Option("--requests", "-n", metavar="COUNT", min=1, max=1_000_000, show_default="100, 10 a user at least"),
    ] = None,
    duration: Annotated[
        str | None, typer.Option("--duration", metavar="TIME", help="Send nothing more after it, e.g. 60s.")
    ] = None,
    warmup: Annotated[
        int | None,
        typer.Option(
            "--warmup", metavar="COUNT", min=0, help="First requests, in no figure.", show_default="one a user"
        ),
    ] = None,
    isl: Annotated[
        int | None, typer.Option("--isl", metavar="TOKENS", min=1, help="Longest prompt.", show_default="512")
    ] = None,
    osl: Annotated[
        int | None, typer.Option("--osl", metavar="TOKENS", min=1, help="Longest answer.", show_default="128")
    ] = None,
    shortest: Annotated[
        float, typer.Option("--shortest", metavar="SHARE", help="Shortest prompt and answer, of the longest.")
    ] = 1.0,
    shared_prefix: Annotated[
        int, typer.Option("--shared-prefix", metavar="TOKENS", min=0, help="First tokens that prompts have in common.")
    ] = 0,
    prefixes: Annotated[
        int, typer.Option("--prefixes", metavar="COUNT", min=1, help="Different such beginnings, in turn.")
    ] = 1,
    turns: Annotated[
        int, typer.Option("--turns", metavar="COUNT", min=1, help="Requests of a conversation, each on those before.")
    ] = 1,
    tokenizer: Annotated[
        Path | None, typer.Option("--tokenizer", metavar="FOLDER", help="Count tokens exactly, by the model's own.")
    ] = None,
    temperature: Annotated[float | None, typer.Option("--temperature", metavar="NUMBER", min=0)] = None,
    top_p: Annotated[float | None, typer.Option("--top-p", metavar="SHARE", min=0, max=1)] = None,
    ignore_eos: Annotated[
        bool, typer.Option("--ignore-eos", help="Ask for answers of the full length, where the interface can.")
    ] = False,
    slo: SloOption = None,
    percentile: PercentileOption = 95,
    timeout: Annotated[str, typer.Option("--timeout", metavar="TIME", help="Longest silence of a stream.")] = "60s",
    metrics_url: Annotated[
        str | None, typer.Option("--metrics-url", metavar="URL", help="The server's metrics page, read meanwhile.")
    ] = None,
    repeats: Annotated[int, typer.Option("--repeats", metavar="COUNT", min=1, max=50, help="Runs in all.")] = 1,
    gpus: Annotated[int | None, typer.Option("--gpus", metavar="COUNT", min=1, help="GPUs behind the URL.")] = None,
    gpu_hour_price: Annotated[
        float | None, typer.Option("--gpu-hour-price", metavar="PRICE", min=0, help="Of one GPU, any currency.")
    ] = None,
    seed: SeedOption = 0,
    header: Annotated[
        list[str] | None, typer.Option("--header", metavar="NAME:VALUE", help="Sent with each request.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the run as JSON.")] = None,
    csv: Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write each request as CSV.")] = None,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write the run as a page.")] = None,
    history: Annotated[
        Path | None, typer.Option("--history", metavar="FOLDER", help="Keep the run in a folder, for list and compare.")
    ] = None,
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="Of the run in the history.")] = "",
) -> int:
    """Send a load to a running server and measure what its users feel. Exit 1: the SLO is not kept.

    Ctrl-C ends it with what was measured up to then, marked as interrupted.
    """
    from trtllm_kit.cli.bench_run import asked_bench, measured, written

    session: Session = context.obj
    given = {key: value for key, value in locals().items() if key not in ("context", "session")}
    promise = slo_from(slo, percentile)
    bench, asked = asked_bench(given | {"promise": promise})
    document, stopped = measured(session, bench, asked, load_fraction)
    written(document, out=out, csv=csv, html=html, history=history, name=name or scenario or "run")
    code = _show(session, document, percentile)
    if stopped is not None:
        raise stopped
    return code


def _show(session: Session, document: dict[str, Any], percentile: int) -> int:
    kept = document["figures"].get("kept_share")
    document["verdict"] = "no" if kept is not None and kept < percentile / 100 else "yes"
    if document.get("interrupted"):
        document["verdict"] = "unknown"
    shown = {key: value for key, value in document.items() if key not in ("histograms", "requests", "server")}
    session.result(shown, lambda: _text(document))
    return 0 if document["verdict"] == "yes" else 1


def _text(document: dict[str, Any]) -> str:
    from trtllm_kit.bench.report import COLUMNS, latency_rows, notes, rate_rows

    return "\n".join(
        [
            heading("Latencies"),
            table(COLUMNS, latency_rows(document)),
            heading("Rates"),
            table(("rate", "value"), rate_rows(document)),
            *notes(document),
        ]
    )


@app.command("compare")
def compare(
    context: typer.Context,
    a: Annotated[Path, typer.Argument(metavar="A", help="The run to compare with.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="The run that is compared.")],
    *,
    gate: Annotated[
        str | None,
        typer.Option("--gate", metavar="LIMITS", help="By how much B may be worse: ttft.p99=10%,e2e.p50=5%."),
    ] = None,
) -> int:
    """Hold run B against run A. Exit 1: a figure became worse than --gate allows."""
    from trtllm_kit.bench.compare import compare as compared
    from trtllm_kit.bench.compare import gate_of
    from trtllm_kit.bench.history import read_result

    session: Session = context.obj
    limits = gate_of(gate)
    result = compared(read_result(a), read_result(b), limits)
    rows = [
        (row.name, f"{row.a:.4g}", f"{row.b:.4g}", f"{row.change:+.1%}", *_limit(row.limit, row.broken))
        for row in result.rows
    ]
    told = [f"the load differs, {one}" for one in result.differences] + list(result.doubts)
    verdict = f"{len(result.broken)} figures are worse than allowed" if result.broken else "nothing is past a limit"
    columns = ("figure", "A", "B", "change", "limit", "")
    session.result(result.document(), lambda: "\n".join([table(columns, rows), *told, verdict]))
    return 1 if result.broken else 0


def _limit(limit: float | None, broken: bool) -> tuple[str, str]:
    return "" if limit is None else f"{limit:.1%}", "WORSE" if broken else ""


@app.command("list")
def list_runs(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="What --history was given.")],
) -> int:
    """List the runs in a history."""
    from trtllm_kit.bench.history import results_in

    session: Session = context.obj
    found = [(path.name, _line(document)) for path, document in results_in(folder)]
    session.result(
        {"runs": [{"file": name, **line} for name, line in found]},
        lambda: table(
            ("run", "answered", "tokens/s", "ttft p50", "tpot p50"),
            [(name, *_cells(line)) for name, line in found],
        ),
    )
    return 0


def _line(document: dict[str, Any] | None) -> dict[str, Any]:
    if document is None:
        return {"problem": "it cannot be read"}
    figures, latencies = document["figures"], document["figures"]["latencies"]
    return {
        "asked": document["asked"],
        "answered": figures["answered"],
        "interrupted": document.get("interrupted", False),
        **{name: figures[name] for name in ("output_tokens_per_second",) if name in figures},
        **{f"{name}.p50": latencies[name]["p50"] for name in ("ttft", "tpot") if "p50" in latencies.get(name, {})},
    }


def _cells(line: dict[str, Any]) -> tuple[str, ...]:
    from trtllm_kit.bench.report import precise

    if "problem" in line:
        return line["problem"], "", "", ""
    seconds = (precise(line[key]) if key in line else "" for key in ("ttft.p50", "tpot.p50"))
    rate = f"{line['output_tokens_per_second']:,.1f}" if "output_tokens_per_second" in line else ""
    return f"{line['answered']:,}{' (interrupted)' if line['interrupted'] else ''}", rate, *seconds


@app.command("import")
def import_runs(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="AIPerf's profile_export_aiperf.json, GuideLLM's JSON.")],
    history: Annotated[Path, typer.Option("--history", metavar="FOLDER", help="Where the runs are kept.")],
) -> int:
    """Keep runs of AIPerf or GuideLLM in a history, under this tool's names of the figures."""
    from trtllm_kit.bench.history import place_in, read_foreign, write_result

    session: Session = context.obj
    made = []
    for document in read_foreign(file):
        path = place_in(history, file.stem, document["asked"]["tool"].lower())
        write_result(path, document)
        made.append(str(path))
    session.result({"runs": made}, lambda: "\n".join(made))
    return 0


@app.command("report")
def report(
    context: typer.Context,
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run that --out or --history wrote.")],
    *,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write it as a page.")] = None,
    csv: Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write each request as CSV.")] = None,
) -> int:
    """Show a run again, as text, a page or CSV."""
    from trtllm_kit.bench.history import read_result
    from trtllm_kit.cli.bench_run import written

    session: Session = context.obj
    if not run.is_file():
        raise UsageError(f"{run} is no file", why="a run is a file", hint="trtkit bench list FOLDER")
    document = read_result(run)
    written(document, csv=csv, html=html, name=run.name)
    shown = {key: value for key, value in document.items() if key not in ("histograms", "requests", "server")}
    session.result(shown, lambda: _text(document))
    return 0
