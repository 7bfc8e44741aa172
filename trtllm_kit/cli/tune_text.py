"""How the terminal shows an estimate and a decision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trtllm_kit.cli.session import heading, table
from trtllm_kit.tune.report import FIGURE_COLUMNS, figure_rows, in_unit, setting_word
from trtllm_kit.units import format_bytes, format_seconds

Document = Mapping[str, Any]
_FEW = 6
"""Rows of a list that is not verbose."""


def decision_text(found: Document, *, verbose: bool) -> str:
    """Lay out a decision for reading."""
    shown = found["winner"] or found["nearest"]
    count = found["counts"]
    parts = [found["question"]["words"], *_measured(found), heading("Verdict"), _verdict(found)]
    if shown:
        parts += [heading("Settings"), _settings(shown, verbose=verbose), *_warnings(shown)]
        parts += [heading("Figures"), estimate_text(shown["estimate"], verbose=verbose), *_cost(shown)]
    if found["others"]:
        parts += [heading("Others"), _others(found["others"] if verbose else found["others"][:_FEW])]
    if len(found["points"]) > 1:
        parts += [heading("Speed of a GPU against speed of a user"), _chart(found)]
    parts += [
        heading("What stopped the others"),
        f"{count['configurations']:,} configurations: {count['bounded']:,} legal and bounded in closed form, "
        f"{count['simulations']:,} simulations that stand for {count['simulated_configurations']:,} of them, "
        f"{count['keep_the_promise']:,} keep the promise",
        _stopped(found["stopped"], verbose=verbose),
    ]
    if "written" in found:
        parts.append(f"written: {found['written']}")
    return "\n".join(parts)


def _measured(found: Document) -> list[str]:
    """Say what was learned from a deployment."""
    if "measured" not in found:
        return []
    learned = found["measured"]
    factors, (ttft, ttft_after) = learned["correction"], (learned["ttft_before"], learned["ttft_after"])
    tpot, tpot_after = learned["tpot_before"], learned["tpot_after"]
    return [
        f"measured: steps with prompts take {factors['prompt']:.2f} times, others {factors['generation']:.2f} times "
        f"what was predicted; first tokens were off by {ttft:.0%} and are by {ttft_after:.0%}, later tokens by "
        f"{tpot:.0%} and {tpot_after:.0%} (each load by the others' factors)",
        *(f"WARNING: the client was late {doubt}" for doubt in learned["doubts"]),
    ]


def _verdict(found: Document) -> str:
    if found["winner"]:
        return f"{found['winner']['words']} on {found['winner']['machine']}"
    if not found["nearest"]:
        return f"no configuration can run: {found['blocking']}"
    return f"no configuration keeps the promise: {found['blocking']}\nnearest: {found['nearest']['words']}"


def _settings(shown: Document, *, verbose: bool) -> str:
    memory = shown["memory"]
    changed = [key for key in shown["changes"] if verbose or key in shown["differing"]]
    rows = [(key, setting_word(shown["changes"][key])) for key in changed]
    terms = sorted(memory["terms"].items(), key=lambda term: -term[1])
    uses = [f"{name} {format_bytes(size)}" for name, size in (terms if verbose else terms[:2])]
    uses.append(f"KV cache {format_bytes(memory['kv_cache'])} of {format_bytes(memory['capacity'])}")
    return (
        f"{table(('profile key', 'value'), rows) if rows else 'those of the profile, as it is'}\n"
        f"memory of a GPU: {', '.join(uses)}"
    )


def _warnings(shown: Document) -> list[str]:
    """Say what the plan of the configuration warns of."""
    return [
        f"WARNING {one['rule']}: {one['message']} ({one['compared']}) try: {one['suggestion']}"
        for one in shown["warnings"]
    ]


def estimate_text(estimate: Document, *, verbose: bool) -> str:
    """Lay out figures, the terms of the steps, and what was taken for granted."""
    terms = [part for part in estimate["parts"] if verbose or part["share"] >= 0.02]
    shares = ", ".join(f"{part['name']} {part['share']:.0%}" for part in terms)
    lines = [
        table(FIGURE_COLUMNS, figure_rows(estimate["figures"])),
        f"binds: {estimate['binds']}; the time goes to {shares}",
        *(f"note: {note}" for note in estimate["notes"]),
    ]
    return "\n".join(lines)


def _cost(shown: Document) -> list[str]:
    cost, words = shown["cost"], []
    if cost["per_million_tokens"] is not None:
        words.append(f"{cost['per_million_tokens']:.3g} a million output tokens")
    if cost["joules_per_token"] is not None:
        words.append(
            f"at most {cost['joules_per_token']:.3g} J a token, {cost['requests_per_s_per_watt']:.3g} requests/s/W"
        )
    return [f"cost: {'; '.join(words)}"] if words else []


def _others(others: list[Document]) -> str:
    rows = [
        (
            one["words"],
            f"{one['tokens_per_s']:,.0f}",
            f"{one['tokens_per_s_per_gpu']:,.0f}",
            _time(one["ttft_at_percentile"]),
            _time(one["tpot_at_percentile"]),
            one["lost"],
        )
        for one in others
    ]
    return table(("configuration", "tokens/s", "tokens/s/GPU", "ttft", "tpot", "lost because"), rows)


def _time(seconds: float) -> str:
    return in_unit(seconds, "s") if seconds < 60 else format_seconds(seconds)


def _chart(found: Document) -> str:
    from trtllm_kit.tune.chart import chart

    def at(point: Document) -> tuple[float, float]:
        return point["tokens_per_s_per_user"], point["tokens_per_s_per_gpu"]

    marks = [(*at(point), "." if point["kept"] else "x") for point in found["points"]]
    marks.sort(key=lambda mark: mark[2] == ".")
    marks += [(*at(point), "o") for point in found["front"]]
    if found["winner"]:
        marks.append((*at(found["winner"]), "W"))
    legend = "W the winner, o on the front, . keeps the promise, x does not"
    return f"{chart(marks, 'tokens/s of a user', 'tokens/s of a GPU')}\n{legend}"


def _stopped(stopped: list[Document], *, verbose: bool) -> str:
    rows = [
        (
            one["constraint"],
            f"{one['shapes']:,}",
            f"{one['configurations']:,}",
            f"{one['message']} {one['compared']}" + (f" ({one['example']})" if verbose else ""),
        )
        for one in stopped
    ]
    return table(("constraint", "whole shapes", "configurations", "the first of them"), rows) if rows else "nothing"
