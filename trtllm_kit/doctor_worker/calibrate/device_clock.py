"""Times on a card: device events around replays of a CUDA graph, over inputs that no cache holds.

A graph replays without the gaps of separate launches, as an engine's decode step does. ``Pool`` gives every call other
weights: as many sets as exceed three times the L2, so what is timed is read from memory, as in a model of many layers.
"""

from __future__ import annotations

import functools
import itertools
import math
import statistics
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

E4M3 = torch.float8_e4m3fn
L2_TIMES = 3


class Pool:
    """Random values that tensors are cut from; ``elements`` of bf16 and as many of e4m3 on ``device``."""

    def __init__(self, elements: int, device: str) -> None:
        self.device = device
        self._of = {torch.bfloat16: torch.empty(elements, dtype=torch.bfloat16, device=device)}
        step = 1 << 28
        for start in range(0, elements, step):
            self._of[torch.bfloat16][start : start + step].normal_()
        self._of[E4M3] = torch.empty(elements, dtype=E4M3, device=device)
        for start in range(0, elements, step):
            part = slice(start, start + step)
            self._of[E4M3][part] = self._of[torch.bfloat16][part].to(E4M3)

    def sets(self, shape: Sequence[int], dtype: torch.dtype, most: int = 64) -> list[Tensor]:
        """Return tensors of one shape: together at least three times the L2, at least two, at most ``most``.

        Raises ValueError where the pool is smaller than one of them.
        """
        each = math.prod(shape)
        whole = self._of[dtype]
        room = whole.numel() // each
        if not room:
            raise ValueError(f"a pool of {whole.numel()} elements holds no tensor of {each}")
        count = min(max(2, math.ceil(L2_TIMES * l2_bytes(self.device) / (each * whole.element_size()))), most, room)
        return [whole[index * each : (index + 1) * each].view(*shape) for index in range(count)]

    def one(self, shape: Sequence[int], dtype: torch.dtype = torch.bfloat16) -> Tensor:
        """Return one tensor, from the end of the pool, so that it shares nothing with few ``sets``."""
        return self._of[dtype][-math.prod(shape) :].view(*shape)


def l2_bytes(device: str) -> int:
    """Return the size of the second-level cache; 0 on a CPU, where nothing is timed in earnest."""
    return int(torch.cuda.get_device_properties(device).L2_cache_size) if device.startswith("cuda") else 0


def milliseconds(calls: Sequence[Callable[[], object]], rounds: int = 5, target_ms: float = 4.0) -> float:
    """Return the median milliseconds of one call.

    The calls are captured one after the other in a graph, the sequence repeated until a replay takes about
    ``target_ms``. The median is over ``rounds`` replays, queued behind one that warms up, so that no launch of a graph
    is waited for. Without a card a call runs once on the CPU, to rehearse.
    """
    if not torch.cuda.is_available():
        calls[0]()
        return math.nan
    for call in calls[:2]:  # handles, compiled kernels, heuristics
        call()
    rough = eager_milliseconds(calls[:2])
    count = max(1, min(300, round(target_ms / max(rough, 0.002))))
    graph = captured([calls[index % len(calls)] for index in range(count)])
    return replayed_milliseconds(graph, rounds) / count


def captured(calls: Sequence[Callable[[], object]]) -> torch.cuda.CUDAGraph:
    """Return a graph of calls; all graphs share the memory of what their calls allocate."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=_shared_memory()):
        for call in calls:
            call()
    return graph


@functools.cache
def _shared_memory() -> tuple[int, int]:
    handle: tuple[int, int] = torch.cuda.graph_pool_handle()
    _KEPT.append(torch.cuda.CUDAGraph())
    with torch.cuda.graph(_KEPT[0], pool=handle):
        torch.zeros(1, device="cuda")
    return handle


_KEPT: list[torch.cuda.CUDAGraph] = []
"""A graph that keeps the shared memory alive."""


def replayed_milliseconds(graph: torch.cuda.CUDAGraph, rounds: int) -> float:
    """Return the median of the device's milliseconds of a replay."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(rounds + 1)]
    graph.replay()
    events[0].record()
    for event in events[1:]:
        graph.replay()
        event.record()
    events[-1].synchronize()
    times = [float(one.elapsed_time(two)) for one, two in itertools.pairwise(events)]
    return statistics.median(times)


def eager_milliseconds(calls: Sequence[Callable[[], object]]) -> float:
    """Return milliseconds of one call launched the plain way, launch gaps included."""
    begun, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begun.record()
    for call in calls:
        call()
    ended.record()
    ended.synchronize()
    return float(begun.elapsed_time(ended)) / len(calls)
