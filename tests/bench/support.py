"""Loads and records that tests of the bench share."""

from __future__ import annotations

from typing import Any

from trtllm_kit.bench.client import HttpClient, address_of
from trtllm_kit.bench.dialects import DIALECTS
from trtllm_kit.bench.drive import Driven, Limits, drive
from trtllm_kit.bench.load import Load
from trtllm_kit.bench.prompts import Prompts
from trtllm_kit.bench.record import Counted, Record
from trtllm_kit.estimate.workload import Arrivals, ClosedLoop, Workload, fixed


def small_load(
    users: int = 2, requests: int = 6, tokens: int = 6, arrivals: Arrivals | None = None, **more: Any
) -> Load:
    """Return a small load of equal requests."""
    return Load(Workload(fixed(8), fixed(tokens), arrivals or ClosedLoop(users), requests, **more))


def driven_at(url: str, load: Load, api: str = "triton", silence: float = 10.0, limits: Limits | None = None) -> Driven:
    """Run a load against a server."""
    model = DIALECTS[api].model or "m"
    return drive(
        load,
        Prompts(load),
        lambda: HttpClient(address_of(url), DIALECTS[api], model, silence=silence),
        limits or Limits(answer=5),
    )


def record(number: int = 0, intended: float = 0.0, stamps: tuple[float, ...] = (1.0, 2.0), **more: Any) -> Record:
    """Return a request that was answered, a token a piece."""
    given = {"prompt": 8, "answer": len(stamps), "counted": Counted.SERVER, "ended": stamps[-1] if stamps else intended}
    return Record(number=number, intended=intended, **{"sent": intended, "stamps": stamps} | given | more)
