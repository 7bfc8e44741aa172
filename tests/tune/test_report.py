"""The decision as an object, as a page, and as letters."""

from __future__ import annotations

import json
import re
from functools import cache
from html.parser import HTMLParser
from typing import Any

import pytest

from tests.support.specs import llama_8b
from trtllm_kit.estimate.outcome import Slo
from trtllm_kit.spec.load import hardware_for, load_profile
from trtllm_kit.tune.chart import chart
from trtllm_kit.tune.html import html_page
from trtllm_kit.tune.picture import Frame, axis, number
from trtllm_kit.tune.question import Question
from trtllm_kit.tune.report import document, in_unit
from trtllm_kit.tune.room import Asked
from trtllm_kit.tune.run import estimate_of, tune


@cache
def found() -> dict[str, Any]:
    """Return the document of a small decision."""
    loaded = load_profile("h200x1-llama3.1-8b-fp8")
    machine = hardware_for(loaded.profile)
    question = Question(512, 64, concurrency=8, slo=Slo(ttft=1.0), prices={"": 2.5})
    decision = tune(Asked(llama_8b(), loaded, {machine.name: machine}, question))
    assert decision.winner is not None
    return document(decision, estimate_of(decision, decision.winner), model="<b>mine & yours</b>", everything=True)


class Tags(HTMLParser):
    """Collects the tags of a page, and checks that they close."""

    def __init__(self) -> None:
        """Begin with nothing."""
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open a tag."""
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in ("meta", "line", "rect", "circle", "polyline"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Close the tag that was opened last."""
        if tag not in ("line", "rect", "circle", "polyline"):
            assert self.open.pop() == tag


def test_the_object_is_json_and_counts_add_up() -> None:
    """What is shown can be written; whatever was bounded was simulated or is listed with its constraint."""
    shown = json.loads(json.dumps(found()))
    counts = shown["counts"]
    assert counts["bounded"] <= counts["configurations"]
    assert counts["keep_the_promise"] <= counts["simulated_configurations"]
    listed = [row for row in shown["left_out"]["rows"] if row[7] is not None]
    assert counts["configurations"] <= len(listed) + counts["simulated_configurations"]
    assert "yes" == shown["verdict"]


def test_a_million_tokens_have_the_price_of_the_winners_rate() -> None:
    """The cost in the report is the price of its GPUs over the tokens it says they write."""
    winner = found()["winner"]
    expected = 2.5 * winner["gpus"] / 3600 / winner["tokens_per_s"] * 1e6
    assert expected == pytest.approx(winner["cost"]["per_million_tokens"])


def test_the_page_stands_alone() -> None:
    """Every tag closes, nothing is loaded from anywhere, and names from outside are text."""
    page, tags = html_page(found()), Tags()
    tags.feed(page)
    assert [] == tags.open
    loading = {"src", "href", "xlink:href", "data", "action", "srcset"}
    assert [] == [pair for pair in tags.attributes if pair[0] in loading]
    assert "url(" not in page
    assert "@import" not in page
    assert "fetch(" not in page
    assert "<b>mine" not in page
    assert "&lt;b&gt;mine &amp; yours&lt;/b&gt;" in page


def test_the_page_draws_every_point_and_the_script_knows_it() -> None:
    """There is a mark for each simulated point, one of them the winner, and the data that the script shows of each."""
    page = html_page(found())
    data = re.search(r'<script type="application/json" id="points">(.*?)</script>', page, re.DOTALL)
    assert data is not None
    points = json.loads(data[1])
    marks = re.findall(r'class="point ([^"]*)" data-point="(\d+)"', page)
    assert len(found()["points"]) == len(points) == len(marks)
    assert set(range(len(points))) == {int(place) for _, place in marks}
    assert "winner" in marks[-1][0]  # on top of all others
    assert 1 == sum("winner" in style for style, _ in marks)


def test_the_page_shows_memory_and_time_in_full() -> None:
    """The parts of the memory bar add up to the GPU's memory, those of the time bar to the whole."""
    page = html_page(found())
    for name in ("memory", "time"):
        drawing = page[page.index(f'<svg id="{name}"') :]
        widths = re.findall(
            r'<rect class="part[^"]*" x="[^"]*" y="[^"]*" width="([^"]*)"', drawing[: drawing.index("</svg>")]
        )
        assert 720 == pytest.approx(sum(map(float, widths)), abs=1)


def test_a_chart_puts_points_where_their_values_are() -> None:
    """The largest across is at the right end, the largest upwards on the first line; the last of a place is seen."""
    drawn = chart([(0.0, 10.0, "a"), (100.0, 0.1, "b"), (100.0, 0.1, "c")], "across", "up").splitlines()
    assert drawn[1].endswith("|a")
    assert drawn[14].endswith("c")
    assert "b" not in "".join(drawn[1:15])


@pytest.mark.parametrize(
    ("values", "end"), [([3.1], 4.0), ([0.011], 0.0125), ([], 1.0), ([0.0], 1.0), ([7000], 7500.0)]
)
def test_an_axis_ends_at_a_round_number_beyond_the_largest(values: list[float], end: float) -> None:
    """Values fill more than half of the picture; without any it ends at 1."""
    assert end == pytest.approx(axis("", values).end)


def test_values_beyond_an_axis_stay_in_the_picture() -> None:
    """What is not finite, or larger than the end, is drawn at the edge."""
    frame = Frame(axis("", [1.0]), axis("", [1.0]))
    assert frame.x(1.0) == frame.x(99.0)
    assert frame.y(0.0) == frame.y(-5.0)


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [(0.0123, "s", "12.3 ms"), (1.25, "s", "1.25 s"), (0.5, "share", "50.0%"), (5661.3, "tokens/s", "5,661 tokens/s")],
)
def test_figures_are_spelled_in_their_unit(value: float, unit: str, words: str) -> None:
    """Milliseconds keep a digit where steps differ by it."""
    assert words == in_unit(value, unit)


def test_numbers_of_an_axis_are_short() -> None:
    """Thousands are k from ten of them on."""
    assert ["0.05", "1,200", "12k", "2.5"] == [number(value) for value in (0.05, 1200, 12000, 2.5)]
