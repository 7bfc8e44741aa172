"""A small chart of points in letters, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from trtllm_kit.tune.picture import axis, number

COLUMNS, LINES = 64, 14


def chart(points: Sequence[tuple[float, float, str]], across: str, up: str) -> str:
    """Return points in a frame; each is its place across, upwards, and the letter that marks it.

    Where several fall on one place the last is seen, so the most important come last.
    """
    wide, high = axis(across, (point[0] for point in points)), axis(up, (point[1] for point in points))
    sheet = [[" "] * COLUMNS for _ in range(LINES)]
    for x, y, letter in points:
        column = min(COLUMNS - 1, int(x / wide.end * COLUMNS))
        line = min(LINES - 1, int(y / high.end * LINES))
        sheet[LINES - 1 - line][column] = letter
    margin = max(len(number(high.end)), 1)
    lines = [f"{up}"]
    for place, row in enumerate(sheet):
        label = number(high.end) if place == 0 else ""
        lines.append(f"{label:>{margin}} |{''.join(row).rstrip()}")
    lines.append(f"{'0':>{margin}} +{'-' * COLUMNS}")
    end = number(wide.end)
    lines.append(f"{'':>{margin}}  0{across:^{COLUMNS - 1 - len(end)}}{end}")
    return "\n".join(line.rstrip() for line in lines)
