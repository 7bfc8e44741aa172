"""What is shown of a run while it goes on."""

from __future__ import annotations

import json

import pytest

from trtllm_kit.bench.heard import Heard
from trtllm_kit.bench.live import Glance, View, Watch, read_glance, title_of


def heard(*stamps: float) -> Heard:
    """Return an answer whose pieces came at given times."""
    return Heard(stamps=list(stamps), texts=["x"] * len(stamps))


def glance(seconds: float, **changes: object) -> Glance:
    """Return a second in which little happened."""
    told: dict[str, object] = {
        "ended": 0, "failed": 0, "running": 4, "pieces": 100, "firsts": (0.15,) * 9 + (0.4,), "paces": (0.02,) * 4
    }  # fmt: skip
    return Glance(seconds, **(told | changes))  # type: ignore[arg-type]


def test_a_look_takes_what_came_since_the_last() -> None:
    """A first token counts once, from when the request was due; a stream's pace is over its pieces since then."""
    watch, one, two = Watch(), heard(1.5), heard()
    assert (1, (0.5,), ()) == watch.look([(0, 1.0, one), (1, 1.0, two)])
    one.stamps += [1.75, 2.0]
    two.stamps += [2.0, 2.25, 2.75]
    assert (5, (1.0,), (0.25, 0.375)) == watch.look([(0, 1.0, one), (1, 1.0, two)])
    assert (0, (), ()) == watch.look([(0, 1.0, one), (1, 1.0, two)])


def test_a_glance_is_a_line_and_read_again() -> None:
    """What the client writes the viewer reads; a line that was cut is refused."""
    one = glance(2.0, page='{"values": {}}')
    assert one == read_glance(one.line())
    assert "\n" not in one.line()
    for other in ("{}", "[]", one.line()[:-5]):
        with pytest.raises(ValueError, match=r"no glance|delimiter|Unterminated|Expecting|property"):
            read_glance(other)


def rows(*glances: Glance) -> list[str]:
    """Return the screen after some seconds."""
    view = View("title")
    for one in glances:
        view.take(one)
    return list(view.rows())


def row(name: str, shown: list[str]) -> str:
    """Return the line of a name."""
    (found,) = [line for line in shown if line.startswith(name)]
    return found


def test_the_screen_tells_rates_and_percentiles() -> None:
    """Pieces a second over the time since the last telling; percentiles over all first tokens, with a bar a bucket."""
    shown = rows(glance(1.0), glance(3.0, pieces=500, ended=7, failed=2))
    assert "3 s: 7 requests ended, 2 failed, 4 under way" == shown[1]
    assert row("pieces/s", shown).endswith("  250")
    assert "p50 150 ms  p90 150 ms  p99 400 ms" in row("first token ", shown)
    assert "p50 20 ms" in row("later tokens", shown)
    assert "18" == row("up to 200 ms", shown).split()[-1]
    assert "2" == row("up to 500 ms", shown).split()[-1]


def test_before_the_first_token_nothing_is_claimed() -> None:
    """Without first tokens there is no percentile, and no bucket."""
    shown = rows(glance(1.0, pieces=0, firsts=(), paces=()))
    assert "none yet" in row("first token ", shown)
    assert "first tokens" == shown[-1]


def test_the_server_is_shown_beside_it() -> None:
    """Series that are known are shown by name: cache as a share, requests over all models; not a number is unknown."""
    cache = 'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction",model="m",version="1"}'
    queue = 'nv_trt_llm_request_metrics{model="%s",request_type="queued",version="1"}'
    page = json.dumps({"values": {cache: 0.5, queue % "a": 3, queue % "b": 4, "nv_gpu_utilization{}": float("nan")}})
    shown = rows(glance(1.0, page=page), glance(2.0))
    assert row("KV cache used", shown).endswith("  50%")
    assert row("waiting", shown).endswith("  7")
    assert row("GPU busy", shown).endswith("  unknown")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"concurrency": 4, "isl": 20}, "4 users, 20 + 128 tokens, 8 requests in all"),
        ({"rate": 2.5, "scenario": "coding"}, "2.5 requests/s, coding, 8 requests in all"),
        ({}, "1 user, 512 + 128 tokens, 8 requests in all"),
    ],
)
def test_the_title_says_what_runs(asked: dict[str, object], words: str) -> None:
    """The load in words, with what is taken where nothing was said."""
    assert words in title_of(asked | {"requests": 8}, "h:1")
