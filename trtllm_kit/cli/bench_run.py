"""What ``trtkit bench`` was asked for, as a run; the run; and the files it leaves."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtllm_kit.bench.drive import Limits
from trtllm_kit.bench.live import title_of
from trtllm_kit.bench.load import MOST_REQUESTS, Load, Sampling, arrivals_of, ramp_of, requests_in
from trtllm_kit.bench.prompts import FileTokenizer
from trtllm_kit.bench.result import Worth
from trtllm_kit.bench.run import Bench, steps_document
from trtllm_kit.bench.scenarios import SCENARIOS, Sizes
from trtllm_kit.bench.trace import trace_load
from trtllm_kit.cli.bench_checks import USUAL_PROMPT, require_sense
from trtllm_kit.cli.bench_live import shown
from trtllm_kit.cli.bench_server import seconds_of, server_of
from trtllm_kit.cli.evaluate import require_place
from trtllm_kit.cli.session import Session
from trtllm_kit.errors import RequestFailed, UsageError, storage_error
from trtllm_kit.estimate.outcome import Slo
from trtllm_kit.estimate.workload import ClosedLoop, Workload, within

if TYPE_CHECKING:
    from trtllm_kit.estimate.workload import Arrivals

_ASKED = ("api", "model", "scenario", "concurrency", "rate", "arrivals", "ramp", "load_fraction", "requests",
          "duration", "warmup", "isl", "osl", "shortest", "shared_prefix", "prefixes", "turns", "ignore_eos",
          "percentile", "repeats", "gpus", "seed")  # fmt: skip


def asked_bench(given: Mapping[str, Any]) -> tuple[Bench, dict[str, Any]]:
    """Return the run that options ask for, and how it is recorded; raises ``UsageError`` before anything is sent."""
    for key in ("out", "csv", "html"):
        if given[key] is not None:
            require_place(given[key])
    if given["history"] is not None:
        _require_folder(given["history"])
    require_sense(given)
    limits = Limits(run=None if given["duration"] is None else seconds_of("--duration", given["duration"]))
    load, promise = _load(given, limits.run)
    load = _warmed(load, given["warmup"])
    tokenizer = None if given["tokenizer"] is None else FileTokenizer(given["tokenizer"])
    server = server_of(
        given["url"], api=given["api"], model=given["model"], header=given["header"], timeout=given["timeout"],
        exact=given["ignore_eos"], metrics_url=given["metrics_url"], ca=given["ca"],
    )  # fmt: skip
    server = replace(server, nvml=given["nvml"])
    worth = Worth(given["gpus"], given["gpu_hour_price"])
    bench = Bench(server, load, tokenizer, promise, limits, given["repeats"], worth)
    asked = {key: given[key] for key in _ASKED} | {"api": server.api, "model": server.model, "grpc": server.grpc}
    if given["rate"] is not None:
        asked["arrivals"] = given["arrivals"] or "poisson"
    asked |= {
        "requests": load.workload.requests,
        "warmup": load.workload.warmup,
        "trace": given["trace"].name if given["trace"] else None,
    }
    words = given["promise"].words() if given["slo"] else _words(promise)
    return bench, asked | {"slo": words}


def _require_folder(folder: Path) -> None:
    """Raise ``StorageError`` for a history that cannot be kept, before minutes of work for it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error(error, "keeping a history") from None
    require_place(folder / "run")


def _warmed(load: Load, warmup: int | None) -> Load:
    """Return the load with the warm-up that was asked for, where one was."""
    if warmup is None:
        return load
    requests = load.workload.requests
    if warmup >= requests:
        raise UsageError(
            f"--warmup {warmup} of {requests} requests", why="no request is left to count", hint="more --requests"
        )
    return replace(load, workload=replace(load.workload, warmup=warmup))


def _load(given: Mapping[str, Any], seconds: float | None) -> tuple[Load, Slo | None]:
    """Return the load and what is promised of it."""
    promise = Slo(**given["promise"].limits) if given["slo"] else None
    chosen = Sampling(given["temperature"], given["top_p"])
    if given["trace"] is not None:
        load = trace_load(
            given["trace"], users=given["concurrency"], requests=given["requests"], answer=given["osl"],
            seed=given["seed"],
        )  # fmt: skip
        return replace(load, sampling=chosen), promise
    if given["scenario"]:
        scenario = SCENARIOS[given["scenario"]]
        sizes = Sizes(given["isl"], given["osl"], given["concurrency"], given["requests"], given["seed"])
        load = scenario.load(sizes)
        if given["rate"] is not None or given["ramp"] is not None:
            load = replace(load, workload=replace(load.workload, arrivals=_arrivals(given, load.workload.requests)))
        usual = load.sampling
        kept = Sampling(
            usual.temperature if chosen.temperature is None else chosen.temperature,
            usual.top_p if chosen.top_p is None else chosen.top_p,
        )
        return replace(load, sampling=kept), promise or scenario.slo
    return Load(_workload(given, seconds), chosen), promise


def _workload(given: Mapping[str, Any], seconds: float | None) -> Workload:
    users = given["concurrency"] or 1
    requests = given["requests"] or _requests(given, users, seconds)
    arrivals = _arrivals(given, requests)
    warmup = users if isinstance(arrivals, ClosedLoop) and requests > 2 * users else 0
    share = given["shortest"]
    return Workload(
        within(share, given["isl"] or USUAL_PROMPT),
        within(share, given["osl"] or 128),
        arrivals,
        requests,
        given["seed"],
        warmup=warmup,
        shared_prefix=given["shared_prefix"],
        prefixes=given["prefixes"],
        turns=given["turns"],
    )


def _requests(given: Mapping[str, Any], users: int, seconds: float | None) -> int:
    """Return how many requests a run has that does not say so: as many as come in its time."""
    if seconds is None:
        return max(100, 10 * users)
    if given["rate"] is not None:
        return requests_in(seconds, given["rate"])
    if given["ramp"] is not None:
        ramp = ramp_of(given["ramp"])
        return requests_in(seconds, (ramp.first_rate + ramp.last_rate) / 2)
    return min(max(1000, 200 * users), MOST_REQUESTS)


def _arrivals(given: Mapping[str, Any], requests: int) -> Arrivals:
    if given["ramp"] is not None:
        return ramp_of(given["ramp"])
    if given["rate"] is not None:
        return arrivals_of(given["arrivals"] or "poisson", given["rate"], requests, given["seed"])
    return ClosedLoop(given["concurrency"] or 1)


def _words(promise: Slo | None) -> str:
    if promise is None:
        return ""
    limits = {key: getattr(promise, key) for key in ("ttft", "tpot", "gap", "e2e")}
    return ", ".join(f"{key} {value * 1e3:g} ms" for key, value in limits.items() if value is not None)


def measured(
    session: Session, bench: Bench, asked: dict[str, Any], fraction: float | None, *, live: bool = True
) -> tuple[dict[str, Any], KeyboardInterrupt | None]:
    """Run; return the document, and what interrupted it. Raises ``RequestFailed`` when nothing at all was answered."""
    found: dict[str, Any] = {}
    if fraction is not None:
        steps = bench.saturated(session.log)
        bench, found = bench.at_fraction(steps, fraction), steps_document(steps, fraction)

    with shown(session, title_of(asked, bench.server.address.place), live=live) as told:
        document, stopped = bench.run(asked, told)
    figures = document["figures"]
    if stopped is not None and not figures["answered"]:
        raise stopped
    if not figures["asked"]:
        raise RequestFailed(
            "no request was counted",
            why=f"{len(document['requests'])} were sent, all of the warm-up",
            hint="--warmup 0, or a longer --duration",
        )
    if not figures["answered"]:
        kinds = ", ".join(f"{count} {kind}" for kind, count in figures["failures"].items()) or "nothing was sent"
        raise RequestFailed(
            f"none of {figures['asked']} requests was answered", why="; ".join([kinds, *figures["why"][:2]]),
            hint="start the server, or correct URL, --api and --model",
        )  # fmt: skip
    return document | found, stopped


def written(
    document: dict[str, Any],
    *,
    out: Path | None = None,
    csv: Path | None = None,
    html: Path | None = None,
    history: Path | None = None,
    name: str = "",
) -> None:
    """Write what was asked for; raises ``StorageError``."""
    from trtllm_kit.bench.history import place_in, write_result
    from trtllm_kit.bench.page import page_of
    from trtllm_kit.bench.report import csv_of
    from trtllm_kit.files import replace_text

    if out is not None:
        write_result(out, document)
    if history is not None:
        write_result(place_in(history, name, time.strftime("%Y%m%dT%H%M%S", time.gmtime())), document)
    try:
        if csv is not None:
            replace_text(csv, csv_of(document))
        if html is not None:
            replace_text(html, page_of(document, f"trtkit bench: {name}"))
    except OSError as error:
        raise storage_error(error, "writing the report") from None
