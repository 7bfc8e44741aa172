"""A decision as one object, which the terminal, ``--json`` and the page all show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trtllm_kit.estimate.answer import Estimate
from trtllm_kit.findings import warnings
from trtllm_kit.plan.plan import Plan
from trtllm_kit.tune.cost import joules_per_token, per_million_tokens, requests_per_watt
from trtllm_kit.tune.decision import Decision, Planned, runners_up
from trtllm_kit.tune.points import CLOSE, Point, missed, missed_words, plainness, worth
from trtllm_kit.tune.question import Question
from trtllm_kit.tune.stopped import COLUMNS, by_constraint, rows
from trtllm_kit.tune.written import different_keys, plain
from trtllm_kit.units import format_bytes, format_seconds

SHOWN_OTHERS = 8


def document(
    decision: Decision, estimate: Estimate | None, *, model: str = "", everything: bool = False
) -> dict[str, Any]:
    """Return all of a decision as plain data.

    ``model`` is what the operator calls it; ``everything`` adds each configuration that is out, one row each.
    """
    search, question = decision.search, decision.search.question
    found: dict[str, Any] = {
        "verdict": "yes" if decision.winner else "no",
        "model": model,
        "question": question_document(question, decision),
        "counts": counts(decision),
        "winner": _planned(decision, decision.winner, estimate),
        "nearest": None if decision.winner else _planned(decision, decision.nearest, estimate),
        "blocking": decision.blocking,
        "front": [point_document(point, question) for point in decision.front],
        "others": [other_document(point, decision) for point in runners_up(decision, SHOWN_OTHERS)],
        "points": [point_document(point, question) for point in distinct(search.points)],
        "stopped": [
            {
                "constraint": one.name,
                "shapes": one.shapes,
                "configurations": one.configurations,
                "example": one.example.words(),
                "message": one.example.refusal.message,
                "compared": one.example.refusal.compared,
            }
            for one in by_constraint(search.stopped)
        ],
    }
    if everything:
        found["left_out"] = {"columns": list(COLUMNS), "rows": list(rows(search.stopped))}
    return found


def question_document(question: Question, decision: Decision) -> dict[str, Any]:
    """Return what was asked."""
    asked = decision.asked
    return {
        "profile": asked.loaded.profile.name,
        "model": asked.model.architecture,
        "machines": list(asked.machines),
        "input_tokens": question.input_tokens,
        "output_tokens": question.output_tokens,
        "concurrency": question.concurrency,
        "rate": question.rate,
        "objective": question.objective,
        "slo": question.slo.limits,
        "percentile": question.slo.percentile,
        "acceptance": list(question.acceptance),
        "shared_prefix": question.shared_prefix,
        "words": f"{question.load_words()}; promise: {question.slo.words()}; aim: {question.objective}",
    }


def counts(decision: Decision) -> dict[str, int]:
    """Return how many configurations came how far."""
    search = decision.search
    shapes = {one.shape for one in search.stopped if one.candidate is None}
    legal = len(search.hopefuls)
    refused = sum(1 for one in search.stopped if one.candidate is not None and one.refusal.constraint in OF_SIZES)
    return {
        "shapes_refused": len(shapes),
        "configurations": search.bounded + refused,
        "bounded": search.bounded,
        "let_through": legal,
        "simulations": search.simulated,
        "simulated_configurations": len(search.points),
        "keep_the_promise": len(search.kept),
    }


OF_SIZES = ("memory", "kv_cache", "max_num_tokens")
"""Constraints that a configuration meets before anything of it is timed."""


def _planned(decision: Decision, planned: Planned | None, estimate: Estimate | None) -> dict[str, Any] | None:
    if planned is None:
        return None
    point, question = planned.point, decision.search.question
    return point_document(point, question) | {
        "changes": {key: plain(value) for key, value in planned.changes.items()},
        "differing": sorted(differing(decision, planned)),
        "estimate": None if estimate is None else estimate.document(),
        "memory": memory_document(planned.plan),
        "warnings": [
            {"rule": one.rule, "message": one.message, "compared": one.compared, "suggestion": one.suggestion}
            for one in warnings(planned.plan.findings)
        ],
        "cost": cost_document(point),
        "missed": missed_words(point.seen, question.slo),
    }


def differing(decision: Decision, planned: Planned) -> set[str]:
    """Return the dotted keys whose value is another than in the profile that was given."""
    return different_keys(decision.asked.loaded.profile, planned.changes)


def memory_document(plan: Plan) -> dict[str, Any]:
    """Return the memory table of a plan, bytes on the fullest GPU."""
    memory = plan.memory
    return {
        "capacity": memory.capacity_bytes,
        "kv_cache": memory.kv_budget_bytes,
        "terms": {term.name: term.bytes for term in memory.terms},
    }


def cost_document(point: Point) -> dict[str, float | None]:
    """Return what tokens cost; None where price or power limit is not known."""
    gpus, tokens = point.candidate.gpus, point.tokens_per_s
    priced = None if point.price is None else per_million_tokens(point.price, gpus, tokens)
    joules = None if point.watts is None else joules_per_token(point.watts, gpus, tokens)
    answers = None if point.watts is None else requests_per_watt(point.watts, gpus, point.requests_per_s)
    return {"per_million_tokens": priced, "joules_per_token": joules, "requests_per_s_per_watt": answers}


def point_document(point: Point, question: Question) -> dict[str, Any]:
    """Return a point as plain data; durations in seconds."""
    candidate, seen = point.candidate, point.seen
    shape, percentile = candidate.shape, question.slo.percentile
    return {
        "machine": shape.machine,
        "weights": shape.weights,
        "kv_cache": shape.kv_cache,
        "tensor": shape.tensor,
        "pipeline": shape.pipeline,
        "expert": shape.expert,
        "attention_dp": shape.attention_dp,
        "context": shape.context,
        "draft_tokens": shape.draft_tokens,
        "replicas": candidate.replicas,
        "gpus": candidate.gpus,
        "max_batch_size": candidate.max_batch_size,
        "max_num_tokens": candidate.max_num_tokens,
        "chunked_prefill": candidate.chunked_prefill,
        "kv_fraction": candidate.kv_fraction,
        "policy": candidate.policy,
        "concurrency": point.concurrency,
        "tokens_per_s": point.tokens_per_s,
        "requests_per_s": point.requests_per_s,
        "tokens_per_s_per_gpu": point.tokens_per_s_per_gpu,
        "tokens_per_s_per_user": point.tokens_per_s_per_user,
        "ttft_mean": seen.ttft.mean,
        "tpot_mean": seen.tpot.mean,
        **{f"{name}_at_percentile": seen.at(name, percentile) for name in ("ttft", "tpot", "gap", "e2e")},
        "keeps": seen.keeps,
        "kept": not missed(seen, question.slo),
        "words": candidate.words(),
    }


def other_document(point: Point, decision: Decision) -> dict[str, Any]:
    """Return a point that did not win, with what it reaches of the winner's worth and why it lost."""
    question = decision.search.question
    found = point_document(point, question)
    top = decision.shown
    best = worth(top.point, question.objective) if top else 0.0
    share = worth(point, question.objective) / best if best else 0.0
    lost = missed_words(point.seen, question.slo)
    words = f"{share:.0%} of the winner's {question.objective}"
    if top and share >= 1 - CLOSE and plainness(point.candidate) > plainness(top.point.candidate):
        words += ", which asks for less"
    return found | {"worth": share, "lost": lost or words}


def distinct(points: Iterable[Point]) -> list[Point]:
    """Return one point of each group that no simulation tells apart: same shape, replicas, load and figures."""
    seen: dict[tuple[Any, ...], Point] = {}
    for point in points:
        candidate = point.candidate
        key = (candidate.shape, candidate.replicas, point.concurrency, point.tokens_per_s, point.seen.ttft.mean)
        seen.setdefault(key, point)
    return list(seen.values())


FIGURE_COLUMNS = ("figure", "value", "interval", "rests on")


def figure_rows(figures: Iterable[Mapping[str, Any]]) -> list[tuple[str, str, str, str]]:
    """Return figures of an estimate's document as cells of ``FIGURE_COLUMNS``."""
    rows = []
    for figure in figures:
        ends = [in_unit(figure[end], figure["unit"]) for end in ("low", "high") if figure[end] is not None]
        value = in_unit(figure["value"], figure["unit"])
        rows.append((figure["name"], value, " to ".join(ends) or "not stated", figure["source"]))
    return rows


def setting_word(value: Any) -> str:
    """Spell a profile key's value as YAML does; nothing is ``none``."""
    return str(value).lower() if isinstance(value, bool) else "none" if value is None else str(value)


def in_unit(value: float, unit: str) -> str:
    """Spell a value in its unit."""
    if unit == "s":
        return f"{value * 1e3:.1f} ms" if value < 0.1 else format_seconds(value)
    if unit == "B":
        return format_bytes(value)
    if unit == "share":
        return f"{value:.1%}"
    number = f"{value:,.0f}" if value >= 100 else f"{value:,.3g}"
    return f"{number} {unit}".strip()
