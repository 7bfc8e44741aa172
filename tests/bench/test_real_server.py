"""The client against a real Triton with the rehearsal's model, over HTTP and gRPC."""

from __future__ import annotations

import os
import re
import signal
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.ports import free_ports
from tests.support.rehearsal import make_repository, running
from trtllm_kit.bench.client import address_of
from trtllm_kit.bench.discover import discover
from trtllm_kit.bench.drive import Limits
from trtllm_kit.bench.load import Load
from trtllm_kit.bench.record import Counted
from trtllm_kit.bench.run import Bench, Server
from trtllm_kit.estimate.workload import ClosedLoop, Workload, fixed
from trtllm_kit.serve.process import Server as Running

pytestmark = pytest.mark.triton
TOKENS = 20


@pytest.fixture(scope="module")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server whose tokens take 20 ms each."""
    repository, plan = make_repository(tmp_path_factory.mktemp("bench"))
    with running(repository, plan.serve) as server:
        yield server


def bench(server: Server) -> Bench:
    """Return a run of six requests by three users, the first of each not counted."""
    load = Load(Workload(fixed(12), fixed(TOKENS), ClosedLoop(3), 9, warmup=3))
    return Bench(server, load, limits=Limits(answer=20))


def wait_for_streams(metrics: str, wanted: int) -> None:
    """Wait until so many requests are under way."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        page = urllib.request.urlopen(metrics).read().decode()
        active = re.search(r'nv_trt_llm_request_metrics\{.*request_type="active".*\} (\d+)', page)
        if active and int(active[1]) >= wanted:
            return
        time.sleep(0.05)
    pytest.fail(f"fewer than {wanted} requests under way after 30 s")


def test_the_server_says_what_it_speaks(triton: Running) -> None:
    """A deployed repository is known by its tensors."""
    assert ("triton", "tensorrt_llm") == discover(address_of(triton.urls.http), None)


def test_streams_over_http_have_the_pace_of_the_server(triton: Running) -> None:
    """Every answer is whole, tokens follow in no less than most of the server's 20 ms, and its metrics are kept."""
    server = Server(address_of(triton.urls.http), "triton", "tensorrt_llm", silence=10, metrics=triton.urls.metrics)
    once = bench(server).once(bench(server).load)
    figures = once.figures
    assert (6, 6 * TOKENS, {}) == (figures.answered, figures.output_tokens, figures.failures)
    assert {str(Counted.LIMIT): 6} == figures.counted
    assert 0.015 < figures.histograms["tpot"].at(0.5)
    assert 0 == once.scraped["failed"]
    assert all(0 <= at + 1 <= figures.seconds + 10 for at in once.scraped["seconds"])


def test_streams_over_grpc_are_the_same(triton: Running) -> None:
    """The same requests over gRPC have as many tokens, and the same pace."""
    pytest.importorskip("tritonclient.grpc")
    address = address_of(triton.urls.grpc if "://" in triton.urls.grpc else f"grpc://{triton.urls.grpc}")
    server = Server(address, "triton", "tensorrt_llm", grpc=True, silence=10)
    figures = bench(server).once(bench(server).load).figures
    assert (6, 6 * TOKENS, {}) == (figures.answered, figures.output_tokens, figures.failures)
    assert 0.015 < figures.histograms["tpot"].at(0.5)


def test_a_model_that_is_not_there_is_a_status(triton: Running) -> None:
    """Requests to an unknown model fail by their status, over HTTP and gRPC."""
    pytest.importorskip("tritonclient.grpc")
    http = Server(address_of(triton.urls.http), "triton", "none", silence=10)
    grpc = Server(address_of(f"grpc://{triton.urls.grpc}"), "triton", "none", grpc=True, silence=10)
    load = Load(Workload(fixed(4), fixed(2), ClosedLoop(1), 1))
    found = [bench(server).once(load).figures.failures for server in (http, grpc)]
    assert {"status": 1} == found[0]
    assert 1 == sum(found[1].values())


def test_a_grpc_port_that_is_closed_is_refused() -> None:
    """Nobody listens: the request is refused and the run ends."""
    pytest.importorskip("tritonclient.grpc")
    (port,) = free_ports(1)
    server = Server(address_of(f"grpc://127.0.0.1:{port}"), "triton", "m", grpc=True, silence=10)
    load = Load(Workload(fixed(4), fixed(2), ClosedLoop(1), 1))
    assert {"refused": 1} == bench(server).once(load).figures.failures


def test_a_server_that_dies_breaks_its_streams(tmp_path: Path) -> None:
    """Streams under way when the server is killed are broken, HTTP and gRPC alike; later requests are refused."""
    pytest.importorskip("tritonclient.grpc")
    repository, plan = make_repository(tmp_path)
    with running(repository, plan.serve) as dying:
        servers = (
            Server(address_of(dying.urls.http), "triton", "tensorrt_llm", silence=5),
            Server(address_of(f"grpc://{dying.urls.grpc}"), "triton", "tensorrt_llm", grpc=True, silence=5),
        )
        load = Load(Workload(fixed(12), fixed(200), ClosedLoop(1), 2))
        found = []
        with ThreadPoolExecutor() as pool:
            runs = [pool.submit(lambda one=one: bench(one).once(load)) for one in servers]
            wait_for_streams(dying.urls.metrics, len(servers))
            time.sleep(0.3)  # some tokens of each
            os.kill(dying.pid, signal.SIGKILL)
            found = [run.result(30) for run in runs]
    for once in found:
        assert {"broken": 1, "refused": 1} == once.figures.failures
        assert len(once.records[0].stamps) > 3
