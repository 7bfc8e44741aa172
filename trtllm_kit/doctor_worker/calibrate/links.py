"""Collectives between the cards of one machine, by kind and size.

One process a card, NCCL through torch, captured in a graph and replayed; beside it the same launched one by one. Bytes
are those of a rank's whole buffer: what is reduced, what is gathered or scattered altogether, what is sent to all
ranks, what one card sends another. NVLink multicast stays off.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from .device_clock import replayed_milliseconds

HEADS = {"links": ("kind", "ranks", "bytes", "graph_ms", "eager_ms", "bus_gb_per_second")}
OFF = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}
IN_GRAPH = 16
Rows = list[tuple[Any, ...]]


def measured(ranks: int, small: bool) -> Iterator[tuple[Any, ...]]:
    """Run one process a card, on 2, 4 and 8 of them as far as there are so many, and yield their rows."""
    os.environ.update(OFF)
    for count in (one for one in (2, 4, 8) if one <= ranks):
        with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
            free.close()
            file = Path(folder) / "rows.json"
            try:
                torch.multiprocessing.spawn(_rank, (count, port, small, str(file)), nprocs=count)
            finally:
                yield from map(tuple, json.loads(file.read_text()) if file.exists() else [])


def _rank(rank: int, ranks: int, port: int, small: bool, file: str) -> None:
    torch.cuda.set_device(rank)
    dist.init_process_group(
        "nccl", f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks, device_id=torch.device("cuda", rank)
    )
    rows: Rows = []
    sizes = [1 << power for power in ((14, 20) if small else range(12, 30))]
    for kind in (*KINDS, "one shot", "two shot"):
        for size in sizes:
            if kind in KINDS or size <= 1 << 24:
                rows.append(_one(kind, size, ranks))
        if rank == 0:
            Path(file).write_text(json.dumps(rows))
    dist.destroy_process_group()


def _one(kind: str, size: int, ranks: int) -> tuple[Any, ...]:
    call = KINDS[kind](size, ranks) if kind in KINDS else _symmetric(kind, size)
    for _ in range(3):
        call()
    graph_ms, eager_ms = _replayed(call), _eager(call)
    moved = {"all_reduce": 2 * (ranks - 1) / ranks, "one shot": 2 * (ranks - 1) / ranks, "p2p": 1.0, "p2p both": 1.0}
    moved["two shot"] = moved["all_reduce"]
    rate = size * moved.get(kind, (ranks - 1) / ranks) / graph_ms / 1e6
    return (kind, ranks, size, graph_ms, eager_ms, rate)


def _replayed(call: Callable[[], object]) -> float:
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    dist.barrier()
    with torch.cuda.graph(graph):
        for _ in range(IN_GRAPH):
            call()
    torch.cuda.synchronize()
    dist.barrier()
    return _slowest(replayed_milliseconds(graph, 7) / IN_GRAPH)


def _eager(call: Callable[[], object]) -> float:
    taken = []
    for _ in range(7):
        torch.cuda.synchronize()
        dist.barrier()
        torch.cuda.synchronize()
        begun = time.perf_counter()
        call()
        torch.cuda.synchronize()
        taken.append((time.perf_counter() - begun) * 1e3)
    return _slowest(statistics.median(taken))


def _slowest(value: float) -> float:
    told = torch.tensor([value], device="cuda", dtype=torch.float64)
    dist.all_reduce(told, dist.ReduceOp.MAX)
    return float(told)


def _values(size: int) -> torch.Tensor:
    """Return random bf16, so small that sums of sums stay finite."""
    return torch.randn(size // 2, device="cuda", dtype=torch.bfloat16) * 1e-36


def _all_reduce(size: int, ranks: int) -> Callable[[], object]:
    del ranks
    return partial(dist.all_reduce, _values(size))


def _all_gather(size: int, ranks: int) -> Callable[[], object]:
    return partial(dist.all_gather_into_tensor, _values(size), _values(size // ranks))


def _reduce_scatter(size: int, ranks: int) -> Callable[[], object]:
    return partial(dist.reduce_scatter_tensor, _values(size // ranks), _values(size))


def _all_to_all(size: int, ranks: int) -> Callable[[], object]:
    del ranks
    return partial(dist.all_to_all_single, _values(size), _values(size))


def _p2p(size: int, ranks: int) -> Callable[[], object]:
    """Send from rank 0 to rank 1; others wait."""
    del ranks
    rank, values = dist.get_rank(), _values(size)
    return {0: partial(dist.send, values, 1), 1: partial(dist.recv, values, 0)}.get(rank, lambda: None)


def _p2p_both(size: int, ranks: int) -> Callable[[], object]:
    """Send to the next rank and receive from the one before, at once."""
    rank, sent, got = dist.get_rank(), _values(size), _values(size)

    def call() -> None:
        sides = [dist.P2POp(dist.isend, sent, (rank + 1) % ranks), dist.P2POp(dist.irecv, got, (rank - 1) % ranks)]
        for work in dist.batch_isend_irecv(sides):
            work.wait()

    return call


KINDS: dict[str, Callable[[int, int], Callable[[], object]]] = {
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
    "p2p": _p2p,
    "p2p both": _p2p_both,
}


def _symmetric(kind: str, size: int) -> Callable[[], object]:
    """Return torch's own all-reduce over memory that the cards map of each other, as engines do for small messages."""
    import torch.distributed._symmetric_memory as symmetric

    group = dist.group.WORLD.group_name
    values = symmetric.empty(size // 2, dtype=torch.bfloat16, device="cuda")
    values.copy_(_values(size))
    symmetric.rendezvous(values, group)
    name = {"one shot": "one_shot_all_reduce", "two shot": "two_shot_all_reduce_"}[kind]
    return partial(getattr(torch.ops.symm_mem, name), values, "sum", group)
