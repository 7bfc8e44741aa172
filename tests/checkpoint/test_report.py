"""A comparison for reading: rows, one object, and a page that needs nothing but itself."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtllm_kit.checkpoint.evaluate import Comparison
from trtllm_kit.checkpoint.loss import LayerLoss
from trtllm_kit.checkpoint.report import figure_rows, layer_row, report_document
from trtllm_kit.checkpoint.report_html import html_page
from trtllm_kit.spec.quality import Quality

VOID = {"meta", "br", "hr", "img", "link", "input"}


def report(*errors: float) -> Comparison:
    """Return a good report with layers of these errors."""
    layers = tuple(
        LayerLoss(number, error, error * 2, error / 2, error * 3, 1 - error) for number, error in enumerate(errors)
    )
    return Comparison(100, 0.998, 0.9, 0.97, 0.002, 0.03, 20.0, 20.05, layers)


class Balanced(HTMLParser):
    """Fails on a tag that is not closed, or closed out of turn; keeps what may lead elsewhere."""

    def __init__(self) -> None:
        """Start with nothing open."""
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.links: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open a tag."""
        self.seen.append(tag)
        self.links += [f"{name}={value}" for name, value in attrs if name in ("src", "href", "xlink:href", "onload")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open and close a tag."""
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Close the tag that was opened last."""
        assert tag == self.open.pop()


def parsed(page: str) -> Balanced:
    """Return a page that was read to its end."""
    reader = Balanced()
    reader.feed(page)
    reader.close()
    assert [] == reader.open
    return reader


def pictures(page: str) -> list[ET.Element]:
    """Return the pictures of a page, read as XML."""
    return [ET.fromstring(text) for text in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]


def test_the_object_holds_every_figure_and_the_verdict() -> None:
    """JSON values only, layers in their order and the worst first by number."""
    compared = report(0.01, 0.3, 0.0)
    document = json.loads(json.dumps(report_document(compared, Quality()), allow_nan=False))
    assert "yes" == document["verdict"]
    assert 1.0025 == pytest.approx(document["perplexity_ratio"])
    assert [0, 1, 2] == [layer["layer"] for layer in document["layers"]]
    assert [{"layer": 1, "error": 0.3}, {"layer": 0, "error": 0.01}] == document["weakest_layers"]
    assert compared.facts()["weakest_layers"] == document["weakest_layers"]
    assert "refusal" not in document
    refused = report_document(report(0.01), Quality(top1_agreement=0.98))
    assert ("no", [True, False, True]) == (refused["verdict"], [one["holds"] for one in refused["gate"]])
    assert "top-1 agreement 0.9700 (at least 0.98)" in refused["refusal"]["what"]


def test_rows_say_the_unit_of_every_figure() -> None:
    """Shares in percent, divergence in nats."""
    rows = {name: value for name, value, _ in figure_rows(report())}
    assert ("97.00%", "0.002 nats", "1.00250") == (
        rows["top-1 agreement"], rows["KL divergence, mean"], rows["ratio"],
    )  # fmt: skip
    assert ("1", "25.000%", "50.000%", "12.500%", "75.000%", "0.750000") == layer_row(report(0.0, 0.25).layers[1])


@pytest.mark.parametrize("count", [0, 1, 2, 126])
def test_a_page_is_well_formed_and_loads_nothing(count: int) -> None:
    """No script, no link, no picture from elsewhere; light and dark both have colours; small."""
    page = html_page(report(*[0.001 * number for number in range(count)]), Quality(), ("model", "ckpt"))
    reader = parsed(page)
    assert [] == reader.links
    assert not {"script", "link", "img", "iframe", "object"} & set(reader.seen)
    assert not re.search(r"https?:|url\(|@import", page)
    assert "prefers-color-scheme: dark" in page
    assert len(page) < 100_000
    assert (2 if count else 0) == len(pictures(page))


def test_a_picture_has_a_title_and_says_which_layers_lose_most() -> None:
    """A reader who does not see it hears the same; two bars a layer, as tall as what they stand for."""
    own, state = pictures(html_page(report(0.01, 0.04, 0.02), Quality(), ("model", "ckpt")))
    for picture in (own, state):
        named = picture.attrib["aria-labelledby"].split()
        assert named == [picture.find("title").attrib["id"], picture.find("desc").attrib["id"]]  # type: ignore[union-attr]
        assert "img" == picture.attrib["role"]
    assert "layer 1 (4.000%), layer 2 (2.000%), layer 0 (1.000%)" in str(own.findtext("desc"))
    bars = [float(one.attrib["height"]) for one in own.iter("rect")]
    assert 6 == len(bars)
    assert bars[0] == pytest.approx(bars[4] / 2, abs=0.1)
    assert max(bars) == bars[2]
    assert 3 == len(list(state.iter("circle")))


def test_names_of_folders_are_text_and_no_markup() -> None:
    """A folder may be called anything."""
    page = html_page(report(0.1), Quality(), ("<script>alert(1)</script>", 'a"b&c'))
    assert "script" not in parsed(page).seen
    assert "&lt;script&gt;" in page


def test_a_page_of_a_refusal_says_what_failed_and_what_to_try() -> None:
    """The same words as the command's."""
    page = html_page(report(0.1), Quality(top1_agreement=0.99), ("model", "ckpt"))
    assert "the conversion lost too much: top-1 agreement 0.9700 (at least 0.99)" in page
    assert "Try: " in page


@given(errors=st.lists(st.one_of(st.just(0.0), st.floats(1e-12, 1e6)), min_size=1, max_size=8))
def test_every_mark_lies_within_its_picture(errors: list[float]) -> None:
    """Whatever the errors are."""
    for picture in pictures(html_page(report(*errors), Quality(), ("a", "b"))):
        width, height = (float(number) for number in picture.attrib["viewBox"].split()[2:])
        for bar in picture.iter("rect"):
            x, y, wide, tall = (float(bar.attrib[name]) for name in ("x", "y", "width", "height"))
            assert 0 <= x <= x + wide <= width
            assert 0 <= y <= y + tall <= height
        for dot in picture.iter("circle"):
            assert 0 <= float(dot.attrib["cy"]) <= height
