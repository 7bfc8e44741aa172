"""Faults that are switched on in a real tritonserver, and what a client and the metrics page see of them."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from tests.support.rehearsal import make_repository, series, until
from trtllm_kit.errors import RequestFailed
from trtllm_kit.progress import Silent
from trtllm_kit.serve.client import Sampling, generate, stream
from trtllm_kit.serve.process import Server, start

pytestmark = pytest.mark.triton
MODEL = "tensorrt_llm"
GENERAL, REQUESTS, KV = "nv_trt_llm_general_metrics", "nv_trt_llm_request_metrics", "nv_trt_llm_kv_cache_block_metrics"


class Drill:
    """A server whose faults are switched while it runs."""

    def __init__(self, server: Server, switch: Path) -> None:
        self.server, self._switch = server, switch

    def turn(self, **faults: Any) -> None:
        """Switch them."""
        self._switch.with_suffix(".new").write_text(json.dumps(faults))
        self._switch.with_suffix(".new").replace(self._switch)

    def steps(self) -> float:
        """Return the iteration counter."""
        return series(self.server)[GENERAL]["iteration_counter"]


@pytest.fixture(scope="module")
def drill(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drill]:
    """One server for all drills; the last of them ends it."""
    root = tmp_path_factory.mktemp("drill")
    (root / "faults.json").write_text("{}")
    repository, plan = make_repository(root)
    with start(repository, plan.serve, {"TRTKIT_FAULTS": str(root / "faults.json")}, Silent()) as server:
        yield Drill(server, root / "faults.json")


def test_a_stall_shows_as_a_counter_that_stands_still(drill: Drill) -> None:
    """Requests are active meanwhile; the answer goes on where it stopped when the stall is over."""
    pieces = stream(drill.server.urls.http, MODEL, "tell me", Sampling(max_tokens=30))
    first = next(pieces).text
    drill.turn(stall=True)
    time.sleep(0.6)
    before = drill.steps()
    time.sleep(0.5)

    assert before == drill.steps()
    assert 1 == series(drill.server)[REQUESTS]["active"]
    drill.turn()
    assert 30 == len((first + "".join(piece.text for piece in pieces)).split())


def test_lost_metrics_are_no_numbers_while_answers_go_on(drill: Drill) -> None:
    """No gauge of the engine is taken for idle."""
    drill.turn(lost_metrics=True)
    until(lambda: math.isnan(series(drill.server)[REQUESTS]["active"]))

    assert 3 == len(generate(drill.server.urls.http, MODEL, "tell me", Sampling(max_tokens=3)).text.split())
    drill.turn()
    until(lambda: series(drill.server)[REQUESTS]["active"] == 0)


def test_an_exhausted_cache_is_full_and_gives_everything_back(drill: Drill) -> None:
    """Blocks are used up to the share that was asked for, whether or not anybody asks anything."""
    drill.turn(kv_exhaustion=0.95)
    until(lambda: series(drill.server)[KV]["fraction"] > 0.9)
    drill.turn()

    until(lambda: series(drill.server)[KV]["used"] == 0)


def test_the_model_dies_in_the_middle_of_a_stream(drill: Drill) -> None:
    """The client's stream breaks off after the tokens it has, and is not taken for a whole answer."""
    drill.turn(exit_after_tokens=5)
    time.sleep(0.2)

    texts: list[str] = []
    pieces = stream(drill.server.urls.http, MODEL, "tell me", Sampling(max_tokens=50), timeout_seconds=15)
    with pytest.raises((RequestFailed, HTTPException, OSError)):
        texts.extend(piece.text for piece in pieces)
    assert 1 <= len(texts) <= 5
