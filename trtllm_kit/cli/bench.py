"""``trtkit bench``: how fast a running deployment is, as its users feel it; and runs held against each other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from trtllm_kit.cli.bench_options import (
    ApiOption,
    ArrivalsOption,
    CaOption,
    ConcurrencyOption,
    CsvOption,
    DurationOption,
    GpuHourPriceOption,
    GpusOption,
    HeaderOption,
    HistoryOption,
    HtmlOption,
    IgnoreEosOption,
    IslOption,
    LiveOption,
    LoadFractionOption,
    MetricsUrlOption,
    ModelOption,
    NameOption,
    NvmlOption,
    OslOption,
    OutOption,
    PrefixesOption,
    RampOption,
    RateOption,
    RepeatsOption,
    RequestsOption,
    ScenarioOption,
    SharedPrefixOption,
    ShortestOption,
    TemperatureOption,
    TimeoutOption,
    TokenizerOption,
    TopPOption,
    TraceOption,
    TurnsOption,
    UrlArgument,
    WarmupOption,
)
from trtllm_kit.cli.load_options import PercentileOption, SeedOption, SloOption, slo_from
from trtllm_kit.cli.session import Session, heading, table
from trtllm_kit.cli.shorthand import short_for

RUN = "run"


app = typer.Typer(
    cls=short_for(RUN),
    help="How fast a running deployment is: trtkit bench URL is short for bench run URL.",
    no_args_is_help=True,
)


@app.command(RUN)
def run(
    context: typer.Context,
    url: UrlArgument,
    *,
    api: ApiOption = None,
    model: ModelOption = None,
    scenario: ScenarioOption = None,
    trace: TraceOption = None,
    concurrency: ConcurrencyOption = None,
    rate: RateOption = None,
    arrivals: ArrivalsOption = None,
    ramp: RampOption = None,
    load_fraction: LoadFractionOption = None,
    requests: RequestsOption = None,
    duration: DurationOption = None,
    warmup: WarmupOption = None,
    isl: IslOption = None,
    osl: OslOption = None,
    shortest: ShortestOption = 1.0,
    shared_prefix: SharedPrefixOption = 0,
    prefixes: PrefixesOption = 1,
    turns: TurnsOption = 1,
    tokenizer: TokenizerOption = None,
    temperature: TemperatureOption = None,
    top_p: TopPOption = None,
    ignore_eos: IgnoreEosOption = False,
    slo: SloOption = None,
    percentile: PercentileOption = 95,
    timeout: TimeoutOption = "60s",
    metrics_url: MetricsUrlOption = None,
    nvml: NvmlOption = False,
    repeats: RepeatsOption = 1,
    gpus: GpusOption = None,
    gpu_hour_price: GpuHourPriceOption = None,
    seed: SeedOption = 0,
    header: HeaderOption = None,
    ca: CaOption = None,
    out: OutOption = None,
    csv: CsvOption = None,
    html: HtmlOption = None,
    history: HistoryOption = None,
    name: NameOption = "",
    live: LiveOption = True,
) -> int:
    """Send a load to a running server and measure what its users feel. Exit 1: the SLO is not kept.

    Ctrl-C ends it with what was measured up to then, marked as interrupted.
    """
    from trtllm_kit.cli.bench_run import asked_bench, measured, written

    session: Session = context.obj
    given = {
        "url": url, "api": api, "model": model, "header": header, "ca": ca, "timeout": timeout,
        "scenario": scenario, "trace": trace, "concurrency": concurrency, "rate": rate, "arrivals": arrivals,
        "ramp": ramp, "load_fraction": load_fraction, "requests": requests, "duration": duration, "warmup": warmup,
        "isl": isl, "osl": osl, "shortest": shortest, "shared_prefix": shared_prefix, "prefixes": prefixes,
        "turns": turns, "tokenizer": tokenizer, "temperature": temperature, "top_p": top_p, "ignore_eos": ignore_eos,
        "slo": slo, "promise": slo_from(slo, percentile), "percentile": percentile, "metrics_url": metrics_url,
        "nvml": nvml, "repeats": repeats, "gpus": gpus, "gpu_hour_price": gpu_hour_price, "seed": seed,
        "out": out, "csv": csv, "html": html, "history": history, "name": name,
    }  # fmt: skip
    bench, asked = asked_bench(given)
    document, stopped = measured(session, bench, asked, load_fraction, live=live)
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
    document = read_result(run)
    written(document, csv=csv, html=html, name=run.name)
    shown = {key: value for key, value in document.items() if key not in ("histograms", "requests", "server")}
    session.result(shown, lambda: _text(document))
    return 0
