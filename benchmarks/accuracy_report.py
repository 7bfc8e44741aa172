"""The figures of accuracy as lines for a terminal, and as a page."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from benchmarks.accuracy_record import choices
from benchmarks.accuracy_run import Findings
from benchmarks.decisions import CHOSEN_RANKS, SHARES
from benchmarks.figures import Errors
from benchmarks.points import MTP_ACCEPTANCE, machine
from trtllm_kit.spec.ceilings import Constant, known_of

PAGE = Path(__file__).with_name("accuracy_page.md")
LEFT_OUT = Path(__file__).with_name("left_out.json")


def lines(found: Findings) -> Iterator[str]:
    """Yield the report, line by line."""
    yield f"{len(found.compared)} measured rows; errors are (estimate - measured) / measured"
    for reason, count in found.table.left_out.items():
        yield f"  left out: {count:4}  {reason}"
    yield from _groups(found)
    yield from _targets(found)
    yield from _throughput(found)
    yield from _stated(found)
    yield from _left_out()
    yield from assumed(found)
    yield from _constants()


def _groups(found: Findings) -> Iterator[str]:
    yield ""
    yield f"{'':46} {'rows':>5}   TPOT: mean median  bias  worst      TTFT: mean median   bias  worst"
    for group in found.groups:
        yield f"{group.name:46} {group.tpot.count:5}   {_figures(group.tpot)}      {_figures(group.ttft)}"
    yield "the row that is worst of each"
    for group in found.groups:
        yield f"  TPOT {group.worst_tpot:72} TTFT {group.worst_ttft}"


def _figures(errors: Errors) -> str:
    return f"{errors.mape:10.1%} {errors.median:6.1%} {errors.bias:+6.1%} {errors.worst:+6.0%}"


def _targets(found: Findings) -> Iterator[str]:
    yield ""
    yield "held to"
    for held in found.held:
        target, group = held.target, held.group
        asked = [_asked("TPOT", group.tpot, target.tpot), _asked("TTFT", group.ttft, target.ttft)]
        yield f"  {'ok  ' if held.met else 'MISS'}  {target.name:40} {'   '.join(filter(None, asked))}"


def _asked(name: str, errors: Errors, limit: float | None) -> str:
    return "" if limit is None else f"{name} {errors.mape:6.1%} of at most {limit:.0%}"


def _throughput(found: Findings) -> Iterator[str]:
    yield ""
    if not found.throughput:
        yield "published throughput: SKIPPED, no file of it"
        return
    yield "published throughput: median error at most 20 %, rank correlation at least 0.95 within a model"
    for one in found.throughput:
        errors = one.errors
        yield (
            f"  {one.model:20} {errors.count:4} figures   median {errors.median:6.1%}   bias {errors.bias:+6.1%}"
            f"   worst {errors.worst:+6.0%}   rank correlation {one.rank:.3f}"
        )


def _stated(found: Findings) -> Iterator[str]:
    yield ""
    yield "time to first token of 32 GH200 in one NVLink domain: each within 20 %, none fitted by itself"
    for one in found.first_tokens:
        yield (
            f"  {one.model:16} {one.prompt:7} tokens   {one.predicted:7.3f} s, stated {one.stated:7.3f} s"
            f"   {one.error:+6.1%}"
        )
    yield "share of communication in a prefill of Llama 405B over 32 ranks: within 10 points"
    for name, share in found.shares.items():
        yield f"  {name:40} {share:6.1%}, stated {SHARES[name]:.0%}"
    yield f"1,000 W against 700 W, Llama 2 70B on H200: {found.power.ratio:.3f} times the requests, stated 1.141"
    for name, rates in found.ranks.items():
        shown = ", ".join(f"{ranks} GPU: {rate:.0f}" for ranks, rate in rates.items())
        yield f"Llama 2 70B on {name}: tokens a second and GPU by ranks {shown}; stated {CHOSEN_RANKS[name]}"
    for name, right in choices(found).items():
        yield f"  {'ok  ' if right else 'MISS'}  {name}"


def _left_out() -> Iterator[str]:
    yield ""
    if not LEFT_OUT.is_file():
        yield "left out in turn: not computed; leave_out.py --write does, in some minutes"
        return
    yield "left out in turn, and predicted with constants fitted on the others alone (leave_out.py)"
    for name, one in json.loads(LEFT_OUT.read_text("utf-8")).items():
        yield (
            f"  {name:24} {one['rows']:4} rows   TPOT {one['tpot']:6.1%} bias {one['tpot_bias']:+6.1%}"
            f"   TTFT {one['ttft']:6.1%} median {one['ttft_median']:6.1%} bias {one['ttft_bias']:+6.1%}"
        )


def assumed(found: Findings) -> Iterator[str]:
    """Yield what the rows do not say, and what was taken for it."""
    yield ""
    yield "how the rows were run (runs.yaml): what their table does not say"
    runs = Counter((one.point.run.name, one.point.run.certainty, one.point.run.source) for one in found.compared)
    for (name, certainty, source), count in runs.items():
        yield f"  {count:4} rows  {certainty:8} {name}: {source}"
    accepted = ", ".join(f"{chance:g}" for chance in MTP_ACCEPTANCE)
    yield f"  MTP drafts are taken with chances {accepted} by position: assumed"
    yield "  prompts are computed in the weights' format, as generated tokens are"


def _constants() -> Iterator[str]:
    for system in ("h200_sxm", "b200_sxm"):
        gpu = machine(system).gpu
        yield ""
        yield f"constants of {gpu.name}"
        for name, constant in known_of(gpu, "1.2.1").constants.items():
            yield f"  {name:28} {_constant(constant)}"


def _constant(constant: Constant) -> str:
    return f"{constant.value:10.4g}   {constant.low:.3g} to {constant.high:.3g}   {constant.how}: {constant.source}"


def page(found: Findings, day: str) -> str:
    """Return the page of the documentation: the report of one day, as the command printed it."""
    report = "\n".join(line.rstrip() for line in lines(found))
    return PAGE.read_text("utf-8").format(day=day, report=report)
