"""The figures of ``convert_8b`` as Markdown tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

GB, MIB = 1e9, 1 << 20


def table(results: dict[str, Any]) -> str:
    """Return what the stages that are there have found."""
    sections = {"machine": _machine, "native": _native, "modelopt": _modelopt, "scales": _scales}
    sections |= {"answers": _answers, "rates": _rates}
    return "\n\n".join("\n".join(lines(results[name])) for name, lines in sections.items() if name in results)


def _rows(head: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    yield from (f"| {' | '.join(map(str, row))} |" for row in rows)


def _machine(told: dict[str, Any]) -> Iterator[str]:
    return _rows(("machine", ""), list(told.items()))


def _native(told: dict[str, Any]) -> Iterator[str]:
    rows = [_phase(phase) for phase in told["phases"] if phase["seconds"] >= 0.05]
    total = ("all", f"{told['seconds']:.1f}", "", f"{told['anonymous_bytes'] / MIB:.0f}")
    return _rows(("trtkit, FP8 and FP8 KV", "seconds", "rate", "anonymous MiB"), [*rows, total])


def _phase(phase: dict[str, Any]) -> tuple[str, str, str, str]:
    rate = phase["done"] / phase["seconds"]
    words = {"bytes": f"{rate / GB:.2f} GB/s", "layers": f"{rate:.2f} layers/s"}
    return (
        phase["label"],
        f"{phase['seconds']:.1f}",
        words.get(phase["unit"], ""),
        f"{phase['anonymous_bytes'] / MIB:.0f}",
    )


def _modelopt(told: dict[str, Any]) -> Iterator[str]:
    rows: list[tuple[str, ...]] = []
    for dtype, one in told.items():
        gpu = "" if one["gpu_bytes"] is None else f"{one['gpu_bytes'] / GB:.1f}"
        rows += [
            (dtype, phase["label"], f"{phase['seconds']:.1f}", f"{phase['anonymous_bytes'] / MIB:.0f}", "")
            for phase in one["phases"]
        ]
        rows.append((dtype, "all", f"{one['seconds']:.1f}", f"{one['anonymous_bytes'] / MIB:.0f}", gpu))
    return _rows(("nvidia-modelopt", "phase", "seconds", "anonymous MiB", "GPU GB"), rows)


def _scales(told: dict[str, Any]) -> Iterator[str]:
    rows = [
        ("names, types and shapes equal", told["names_types_shapes_equal"]),
        ("weights", told["weights"]),
        ("weight scales", told["weight_scales"]),
        ("bytes compared", f"{told['bytes_compared'] / GB:.2f} GB"),
        *((f"{kind} with another byte", count) for kind, count in told["different"].items()),
        *((name.replace("_", " "), figure) for name, figure in told["rules"].items()),
    ]
    for dtype, kinds in told["magnitudes"].items():
        for kind, one in kinds.items():
            words = f"median {one['median']:.3%}, largest {one['largest']:.3%}, "
            rows.append((f"{kind} beside {dtype}", words + f"{one['within_1_percent']} of {one['count']} within 1 %"))
    return _rows(("both checkpoints", ""), rows)


def _answers(told: dict[str, Any]) -> Iterator[str]:
    names = list(next(iter(told.values())))
    rows = [(name, *(f"{figures[name]:.5g}" for figures in told.values())) for name in names]
    return _rows(("against BF16 on the card", *told), rows)


def _rates(told: dict[str, Any]) -> Iterator[str]:
    size = told["source_bytes"]
    rows = [
        (
            weights,
            f"{one['seconds']:.2f}",
            f"{size / one['seconds'] / GB:.2f}",
            f"{size / one['copy_seconds'] / GB:.2f}",
            f"{one['rate_over_copy']:.2f}",
            f"{one['anonymous_bytes'] / MIB:.0f}",
        )
        for weights, one in told.items()
        if isinstance(one, dict)
    ]
    return _rows(("format", "seconds", "GB/s of the source", "cp, GB/s", "rate over cp", "anonymous MiB"), rows)
