"""Every shipped rule in every situation: it fires, it does not, its number is missing, no number, stale, set back, new.

A rule that is shipped and has no row here fails the first test.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple

import pytest

from tests.health.support import NOW, TARGET, engine_page, snapshot
from tests.health.test_changes import drafts, histogram, queue, xid
from tests.health.test_rule_situations import gpus
from trtllm_kit.health.evaluate import evaluate, next_memory
from trtllm_kit.health.judge import judge, unjudged
from trtllm_kit.health.load import shipped_rules
from trtllm_kit.health.memory import NOTHING, USUAL_AFTER, Memory, Usual
from trtllm_kit.health.rules import Rule, Ruleset, When
from trtllm_kit.health.snapshot import Snapshot
from trtllm_kit.health.verdict import Finding, Kind, State

RULES = {rule.name: rule for rule in shipped_rules()}
TTFT, GAP = "trtllm_time_to_first_token_seconds", "trtllm_time_per_output_token_seconds"
BUSY = engine_page(active=3, scheduled=3)
FAR = 300.0
"""Seconds between the two moments of a change."""


class Row(NamedTuple):
    """Pages of one rule, and the families that its number is read from."""

    family: str
    """What the names of the families begin with."""
    good: str
    bad: str
    before: str = ""
    """The page a window ago, of a rule that compares two moments."""


def of_ttft(mean: float) -> str:
    """Write a histogram of a hundred first tokens with a mean, seconds."""
    return histogram(TTFT, 50, 98, 100, total=100 * mean)


def nvlink(errors: int) -> str:
    """Write the errors of one GPU's links."""
    return BUSY + f'DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL{{gpu="0",UUID="GPU-a"}} {errors}\n'


def reused(hits: int, misses: int) -> str:
    """Write the blocks that were found and were not."""
    return f"trtllm_kv_cache_reused_blocks_total {hits}\ntrtllm_kv_cache_missed_blocks_total {misses}\n"


QUIET_TTFT, QUIET_GAP = histogram(TTFT, 0, 0, 0, total=0), histogram(GAP, 0, 0, 0, total=0)
DCGM = "DCGM_FI_DEV_"
ROWS = {
    "kv-cache-usage": Row("nv_trt_llm_kv", engine_page(fraction=0.9), engine_page(fraction=0.91)),
    "gpu-utilization": Row("nv_gpu", BUSY + "nv_gpu_utilization 0.8\n", BUSY + "nv_gpu_utilization 0.9\n"),
    "queue-depth": Row("nv_trt_llm_request", engine_page(queued=10), engine_page(queued=11)),
    "kv-pressure": Row(
        "nv_trt_llm_kv", engine_page(fraction=0.9, queued=1), engine_page(fraction=0.96, queued=1)
    ),
    "paused-requests": Row("nv_trt_llm_inflight", engine_page(paused=0), engine_page(paused=1)),
    "hidden-queue": Row("nv_trt_llm_request", engine_page(active=63), engine_page(active=64)),
    "triton-queue": Row("nv_inference_", queue(400e6, 500e6), queue(600e6, 300e6), queue(0, 0)),
    "concurrency-collapse": Row(
        "nv_trt_llm_request", engine_page(active=4, scheduled=2), engine_page(active=4, scheduled=1)
    ),
    "reuse": Row("trtllm_kv_cache", reused(100, 900), reused(10, 990), reused(0, 0)),
    "spec-acceptance": Row("trtllm_spec", drafts(1000, 700), drafts(1000, 500), drafts(0, 0)),
    "spec-signature": Row("trtllm_spec", drafts(1000, 1), drafts(1000, 0), drafts(0, 0)),
    "ttft-jitter": Row("trtllm_time_to", of_ttft(0.11), of_ttft(0.12), QUIET_TTFT),
    "ttft-tail": Row("trtllm_time_to", histogram(TTFT, 50, 98, 100), histogram(TTFT, 98, 98, 100), QUIET_TTFT),
    "inter-token-gap": Row("trtllm_time_per", histogram(GAP, 90, 100, 100), histogram(GAP, 90, 95, 100), QUIET_GAP),
    "gpu-imbalance": Row(DCGM, gpus(GPU_UTIL="95/75"), gpus(GPU_UTIL="95/60")),
    "gpu-memory": Row(DCGM, gpus(FB_USED=97, FB_FREE=3), gpus(FB_USED=99, FB_FREE=1)),
    "gpu-temperature": Row(DCGM, gpus(GPU_TEMP=80), gpus(GPU_TEMP=86)),
    "thermal-throttle": Row(DCGM, gpus(CLOCKS_EVENT_REASONS=4), gpus(CLOCKS_EVENT_REASONS=64)),
    "power-cap": Row(DCGM, gpus(CLOCKS_EVENT_REASONS=64), gpus(CLOCKS_EVENT_REASONS=4)),
    "gpu-ecc": Row(DCGM, gpus(ECC_DBE_VOL_TOTAL=0), gpus(ECC_DBE_VOL_TOTAL=1)),
    "gpu-row-remap": Row(DCGM, gpus(ROW_REMAP_FAILURE=0), gpus(ROW_REMAP_FAILURE=1)),
    "gpu-fault": Row(DCGM, BUSY + xid(43), BUSY + xid(79), BUSY + xid(0)),
    "nvlink-errors": Row(DCGM, nvlink(7), nvlink(8), nvlink(7)),
}  # fmt: skip
OTHER_COUNTS = (queue(1, 1), "trtllm_kv_cache_reused_blocks_total 1\n")
"""Something that grows with requests: a server that shows none of it has begun anew."""
EACH = pytest.mark.parametrize("name", list(ROWS))


def samples(name: str, text: str, before: str | None = None) -> list[Snapshot]:
    """Make the samples in which a page stays: as many as the rule wants, or the page of a window ago and it."""
    row, rule = ROWS[name], RULES[name]
    earlier = row.before if before is None else before
    if rule.change is not None:
        return [snapshot(earlier, -FAR), snapshot(text)]
    return [snapshot(text, float(number - rule.samples + 1)) for number in range(rule.samples)]


def memory_of(rule: Rule) -> Memory:
    """Return what is remembered of a server whose first tokens take 0.1 s, a window ago."""
    usual = {(rule.metric, ""): Usual(USUAL_AFTER, 0.1)} if rule.change and rule.change.baseline else {}
    return replace(NOTHING, usual=usual)


def found(name: str, text: str, memory: Memory | None = None, before: str | None = None) -> Finding:
    """Judge a page that stays, by one rule; a rule of two moments is asked as often as it wants."""
    rule = RULES[name]
    held = memory or memory_of(rule)
    taken = samples(name, text, before)
    for _ in range(rule.samples - 1 if rule.change is not None else 0):  # the checks before this one
        verdict = evaluate(TARGET, taken, Ruleset((rule,)), held)
        held = replace(next_memory(held, taken, Ruleset((rule,)), verdict), usual=held.usual, moments=())
    (finding,) = judge(rule, taken, held)
    return finding


def changed(name: str, text: str, value: str) -> str:
    """Write a page with another value, or with a time stamp behind it, for the families of the rule."""
    return re.sub(rf"^({ROWS[name].family}\S* )(\S+)$", rf"\g<1>{value}", text, flags=re.MULTILINE)


def test_every_rule_has_its_row() -> None:
    """The rows are those of the shipped rules."""
    assert RULES.keys() == ROWS.keys()


@EACH
def test_it_fires(name: str) -> None:
    """Outside for as many samples as it wants it has its severity, its reason and an advice."""
    finding = found(name, ROWS[name].bad)
    assert (Kind.OUTSIDE, RULES[name].severity, True) == (finding.kind, finding.state, bool(finding.advice))


@EACH
def test_it_does_not_fire(name: str) -> None:
    """At the edge of what is healthy it is OK."""
    finding = found(name, ROWS[name].good)
    assert (Kind.WITHIN, State.OK) == (finding.kind, finding.state)


@EACH
def test_without_its_number_it_is_what_it_says(name: str) -> None:
    """A page that never had the family is what the rule says of it; one that had it is not OK."""
    rule, row = RULES[name], ROWS[name]
    bare = re.sub(rf"^{row.family}.*\n", "", row.good, flags=re.MULTILINE) + "other 1\n"
    finding = found(name, bare, before="other 1\n")
    assert (Kind.MISSING, rule.on_missing) == (finding.kind, finding.state)
    verdict = evaluate(TARGET, samples(name, row.good), Ruleset((rule,)), memory_of(rule))
    before = next_memory(NOTHING, samples(name, row.good), Ruleset((rule,)), verdict)
    gone = found(name, bare + OTHER_COUNTS[row.family == "nv_inference_"], memory=before)
    assert State.OK is not gone.state


@EACH
def test_no_number_is_unknown(name: str) -> None:
    """A value that is NaN is UNKNOWN, whatever is said of a missing one."""
    finding = found(name, changed(name, ROWS[name].good, "NaN"))
    assert (Kind.NOT_A_NUMBER, State.UNKNOWN) == (finding.kind, finding.state)


@EACH
@pytest.mark.parametrize("which", ["good", "bad"])
def test_a_stale_number_is_unknown(name: str, which: str) -> None:
    """A value that its exporter stamped two minutes and a second ago is UNKNOWN; one of a minute ago is judged."""
    text = getattr(ROWS[name], which)
    for age, kinds in ((121, {Kind.STALE}), (60, {Kind.WITHIN, Kind.OUTSIDE})):
        stamped = changed(name, text, rf"\g<2> {round((NOW - age) * 1000)}")
        finding = found(name, stamped)
        assert finding.kind in kinds
        assert (State.UNKNOWN is finding.state) is (Kind.STALE in kinds)


@EACH
def test_after_a_restart_it_begins_anew(name: str) -> None:
    """Where counters fell nothing is compared; a number that is healthy after a restart is OK at once."""
    rule, row = RULES[name], ROWS[name]
    if rule.change is None:
        after = [*samples(name, row.bad)[: rule.samples - 1], snapshot(row.good, 60.0)]
        assert [State.OK] == [finding.state for finding in judge(rule, after, memory_of(rule))]
    elif rule.change.grows:
        fallen = [snapshot(row.bad, -FAR), snapshot(row.before.replace(" 7", " 6"))]
        assert [] == judge(rule, fallen, memory_of(rule))
    else:
        assert State.OK is found(name, row.before, before=row.bad).state


@EACH
def test_the_first_look_decides_nothing_that_takes_more(name: str) -> None:
    """One sample of a server that is not known fires only where one is enough; a change is not judged yet."""
    rule, row = RULES[name], ROWS[name]
    findings = judge(rule, [snapshot(row.bad)], NOTHING)
    if rule.change is not None:
        assert ([], [rule.name]) == (findings, [skip.rule for skip in unjudged(rule, findings)])
        return
    expected = (Kind.OUTSIDE, rule.severity) if rule.samples == 1 else (Kind.UNDECIDED, State.UNKNOWN)
    assert [expected] == [(finding.kind, finding.state) for finding in findings]
    assert [State.OK] == [finding.state for finding in judge(rule, [snapshot(row.good)], NOTHING)]


@pytest.mark.parametrize("name", [name for name, rule in RULES.items() if rule.when is not When.ALWAYS])
def test_whether_it_asks_is_unknown_where_that_is_stale(name: str) -> None:
    """A rule that asks only while requests are there is not OK where their number is of long ago."""
    text = re.sub(
        r"^(nv_trt_llm_request\S* )(\S+)$",
        rf"\g<1>\g<2> {round((NOW - 121) * 1000)}",
        ROWS[name].good,
        flags=re.MULTILINE,
    )
    assert State.UNKNOWN is found(name, text).state
