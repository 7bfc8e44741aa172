"""One snapshot of one target from everything that tells of it, and the findings of what is not a number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from trtllm_kit.health.access import ANYBODY
from trtllm_kit.health.memory import Memory
from trtllm_kit.health.snapshot import Snapshot, Target
from trtllm_kit.health.sources.process import is_running
from trtllm_kit.health.sources.prometheus_text import scrape
from trtllm_kit.health.verdict import Finding, Kind, State

EXPIRED = "expired-engine"
RANKS = "ranks"
Read = TypeVar("Read")


def gather(target: Target, timeout_seconds: float, before: Snapshot | None = None) -> Snapshot:
    """Read a target's page and, at the same time, those beside it; ``before`` is the sample before this one.

    A page beside it that cannot be read takes nothing away; it is in ``beside_failed``.
    """

    def own_page() -> Snapshot:
        return scrape(target.url, timeout_seconds, before=before, access=target.access)

    if not target.beside and not target.nvml:
        return with_process(target, own_page())
    main, others = _beside(target, timeout_seconds, own_page)
    return with_process(target, _merged(target, main, others))


def gather_range(target: Target, timeout_seconds: float) -> tuple[Snapshot, ...]:
    """Read what a Prometheus has seen of a target and, at the same time, what stands beside it: that is of now."""
    from trtllm_kit.health.sources.prometheus_api import read_range

    def seen() -> tuple[Snapshot, ...]:
        return read_range(target.via, target.url, timeout_seconds, target.access)

    if not target.beside and not target.nvml:
        return seen()
    samples, others = _beside(target, timeout_seconds, seen)
    return (*samples[:-1], _merged(target, samples[-1], others))


def _beside(target: Target, timeout_seconds: float, own: Callable[[], Read]) -> tuple[Read, list[Snapshot | None]]:
    """Read the pages beside a target in threads while ``own`` reads its own; None for one that was not done in time."""
    from threading import Thread

    found: list[Snapshot | None] = [None] * len(target.beside)

    def read(place: int) -> None:  # they are of somebody else, to whom the target's secrets are not told
        found[place] = scrape(target.beside[place], timeout_seconds, access=ANYBODY)

    threads = [Thread(target=read, args=(place,), daemon=True) for place in range(len(found))]
    for thread in threads:
        thread.start()
    made = own()
    for thread in threads:
        thread.join(timeout_seconds)
    return made, list(found)


def _merged(target: Target, main: Snapshot, others: Sequence[Snapshot | None]) -> Snapshot:
    """Put the series of all pages together; of a family on two pages the target's own stands."""
    series, stamps = dict(main.series), dict(main.timestamps)
    failed = []
    for url, other in zip(target.beside, others, strict=True):
        if other is None or not other.ok:
            failed.append((replace(target, url=url).shown_url, other.reason if other else "no answer in time"))
            continue
        series = {**other.series, **series}
        stamps = {**other.timestamps, **stamps}
    if target.nvml:
        from trtllm_kit.health.sources.nvml import read_gpus

        gpus, reason = read_gpus()
        series |= gpus
        failed.extend([("NVML", reason)] if reason else [])
    return replace(main, series=series if main.ok else {}, timestamps=stamps, beside_failed=tuple(failed))


def with_process(target: Target, snapshot: Snapshot) -> Snapshot:
    """Note of a page that could not be read whether the target's process lives, where it is known."""
    if target.pid is None or snapshot.ok:
        return snapshot
    return replace(snapshot, process_running=is_running(target.pid))


def found_beside(target: Target, known: Memory) -> tuple[Memory, list[Finding]]:
    """Look at what is no number: whether what runs is what was deployed, the ranks' processes, the logs, the canary.

    Returns what is known after, how far logs were read and when the canary last went well, and what was found.
    """
    findings = []
    if target.expired:
        advice = "restart the server: trtkit stop, then trtkit deploy --start"
        findings.append(Finding(EXPIRED, "", State.WARNING, Kind.EXPIRED, target.expired, "", advice))
    gone = [pid for pid in target.ranks if not is_running(pid)]
    if gone:
        message = f"{len(gone)} of {len(target.ranks)} processes of ranks are gone: {', '.join(map(str, gone))}"
        advice = "no request can be served without them: restart the server"
        findings.append(Finding(RANKS, "", State.CRITICAL, Kind.SCRAPE_FAILED, message, "", advice))
    if target.log_files:
        from trtllm_kit.health.sources.logs import read_logs

        logs, told = read_logs(target.log_files, known.logs)
        known = replace(known, logs=logs)
        findings.extend(told)
    if target.canary:
        from trtllm_kit.health.sources.canary import last_or_new

        canary, finding = last_or_new(target, known.canary)
        known = replace(known, canary=canary)
        findings.append(finding)
    return known, findings
