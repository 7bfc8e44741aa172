"""A run as it was asked for: repeats of a load, the server's metrics beside it, and the document of all of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from trtllm_kit.bench.client import Address, Client, HttpClient
from trtllm_kit.bench.dialects import DIALECTS
from trtllm_kit.bench.drive import Limits, Told, drive, records_of
from trtllm_kit.bench.figures import Figures, figures_of, merged
from trtllm_kit.bench.lag import Lag
from trtllm_kit.bench.load import Load
from trtllm_kit.bench.prompts import Prompts, Tokenizer
from trtllm_kit.bench.record import Record
from trtllm_kit.bench.result import Worth, document_of
from trtllm_kit.bench.saturation import Step, at_users, most_of, reached, saturation
from trtllm_kit.bench.scrape import scraping
from trtllm_kit.estimate.outcome import Slo
from trtllm_kit.estimate.workload import Poisson

if TYPE_CHECKING:
    from trtllm_kit.bench.grpc_client import GrpcClient

_LIMITS, _WORTH = Limits(), Worth()


@dataclass(frozen=True, slots=True)
class Server:
    """Who is asked, and how."""

    address: Address
    api: str
    """A name of ``DIALECTS``."""
    model: str
    grpc: bool = False
    silence: float = 60.0
    """Longest wait for the next byte, seconds."""
    exact: bool = False
    """Whether answers are to go on to their full length."""
    metrics: str | None = None
    """URL of a Prometheus page."""
    headers: tuple[tuple[str, str], ...] = ()
    nvml: bool = False
    """Whether the GPUs behind it are this machine's, and their driver is asked for their energy."""

    @property
    def watched(self) -> bool:
        """Whether something is read beside the run."""
        return self.metrics is not None or self.nvml

    def client(self) -> Client:
        """Return a client; to be called in a running loop."""
        kind: type[HttpClient | GrpcClient] = HttpClient
        if self.grpc:
            from trtllm_kit.bench.grpc_client import GrpcClient

            kind = GrpcClient
        return kind(
            self.address,
            DIALECTS[self.api],
            self.model,
            silence=self.silence,
            exact=self.exact,
            headers=dict(self.headers),
        )


@dataclass(frozen=True, slots=True)
class Once:
    """What one repeat gave."""

    figures: Figures
    records: tuple[Record, ...]
    lag: Lag
    scraped: dict[str, Any]
    stopped: KeyboardInterrupt | None = None


@dataclass(frozen=True, slots=True)
class Bench:
    """A run: what is sent to whom, how often, and what is promised."""

    server: Server
    load: Load
    tokenizer: Tokenizer | None = None
    slo: Slo | None = None
    limits: Limits = _LIMITS
    repeats: int = 1
    worth: Worth = _WORTH

    def once(self, load: Load, told: Told | None = None) -> Once:
        """Run a load once."""
        prompts = Prompts(load, self.tokenizer)
        with scraping(self.server.metrics, self.server.address.ca, nvml=self.server.nvml) as scraped:
            tell = told and (lambda glance: told(replace(glance, page=scraped.newest())))
            driven = drive(load, prompts, self.server.client, self.limits, tell)
        records = records_of(driven, load, prompts)
        page = scraped.document(driven.begun, driven.seconds) if self.server.watched else {}
        return Once(figures_of(records, self.slo, load.nth), records, driven.lag, page, driven.stopped)

    def run(
        self, asked: Mapping[str, Any], told: Told | None = None
    ) -> tuple[dict[str, Any], KeyboardInterrupt | None]:
        """Run it all; return the document of the run, and what interrupted it before its end, where something did.

        The requests in the document are those of the last repeat.
        """
        runs: list[Once] = []
        for seed in range(self.load.workload.seed, self.load.workload.seed + self.repeats):
            runs.append(self.once(_seeded(self.load, seed), told))
            if runs[-1].stopped is not None:
                break
        return self._document(asked, runs), runs[-1].stopped

    def _document(self, asked: Mapping[str, Any], runs: Sequence[Once]) -> dict[str, Any]:
        figures = [one.figures for one in runs]
        worst = max((one.lag for one in runs), key=lambda lag: (bool(lag.bottleneck), lag.p99))
        document = document_of(asked, figures, merged(figures), worst, runs[-1].records, self.worth)
        watts, rate = runs[-1].scraped.get("watts"), figures[-1].output_tokens_per_second
        if watts is not None and rate:
            document["figures"] |= {"watts": watts, "joules_per_output_token": watts / rate}
        if runs[-1].stopped is not None:
            document["interrupted"] = True
        return document | ({"server": runs[-1].scraped} if self.server.watched else {})

    def saturated(self, say: Callable[[str], None]) -> tuple[Step, ...]:
        """Find how much the server takes."""

        def measure(users: int) -> Figures:
            once = self.once(at_users(self.load, users))
            if once.stopped is not None:
                raise once.stopped
            figures = once.figures
            rates = figures.requests_per_second, figures.output_tokens_per_second
            say(f"{users} users: {rates[0]:.2f} answers/s, {rates[1]:.0f} tokens/s")
            return figures

        return saturation(measure)

    def at_fraction(self, steps: tuple[Step, ...], fraction: float) -> Bench:
        """Return the run at a fraction of the saturation, at random times."""
        rate = most_of(steps).requests_per_second * fraction
        return replace(self, load=replace(self.load, workload=replace(self.load.workload, arrivals=Poisson(rate))))


def steps_document(steps: tuple[Step, ...], fraction: float) -> dict[str, Any]:
    """Return how the saturation was found."""
    best = most_of(steps)
    return {
        "saturation": asdict(best)
        | {"fraction": fraction, "rate": best.requests_per_second * fraction, "reached": reached(steps)},
        "saturation_steps": [asdict(step) for step in steps],
    }


def _seeded(load: Load, seed: int) -> Load:
    return load if seed == load.workload.seed else replace(load, workload=replace(load.workload, seed=seed))
