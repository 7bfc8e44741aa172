"""Profiles that nobody wrote: whatever plan is legal, its repository loads in a real tritonserver."""

from __future__ import annotations

import itertools
import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.ports import free_ports
from tests.support.rehearsal import make_engine
from tests.support.tiny_model import write_tiny_model
from trtllm_kit.errors import PlanRefused
from trtllm_kit.plan.serving_mode import SPAWNS, serves_engines
from trtllm_kit.progress import Silent
from trtllm_kit.repository.compose import deploy
from trtllm_kit.serve.launch import server_command
from trtllm_kit.serve.process import Server, stand_in_files
from trtllm_kit.serve.tritonserver import find_tritonserver
from trtllm_kit.spec.profile import Serve
from trtllm_kit.upstream import known_releases

pytestmark = pytest.mark.triton
ODD = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)


def some(toolchain: st.SearchStrategy[str], **keys: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Set the toolchain, one that needs no builder of upstream's, and any of these keys."""
    return st.fixed_dictionaries(
        {"toolchain": toolchain}, optional={name.replace("__", "."): value for name, value in keys.items()}
    )


CHANGES = some(
    st.sampled_from(["mock", "llm-api"]),
    trtllm_version=st.sampled_from(known_releases()),
    hardware=st.sampled_from(["cpu-rehearsal", "h200x8-700w"]),
    parallelism__tensor=st.sampled_from([1, 2, 3]),
    parallelism__replicas=st.sampled_from([1, 2, 4]),
    limits__max_batch_size=st.integers(1, 64),
    limits__max_num_tokens=st.integers(1, 4096),
    limits__max_seq_len=st.integers(2, 512),
    limits__max_beam_width=st.sampled_from([1, 1, 2]),
    load__input_tokens=st.sampled_from([1, 1, 64]),
    load__output_tokens=st.sampled_from([1, 1, 64]),
    kv_cache__tokens_per_block=st.sampled_from([1, 16, 32, 48, 64]),
    kv_cache__free_gpu_memory_fraction=st.sampled_from([0.1, 0.5, 0.9]),
    kv_cache__enable_block_reuse=st.booleans(),
    scheduler__policy=st.sampled_from(["guaranteed_no_evict", "max_utilization"]),
    scheduler__chunked_prefill=st.booleans(),
    serve__warm_up_requests=st.integers(0, 2),
    serve__instances=st.sampled_from([1, 1, 2]),
    serve__token_seconds=st.sampled_from([0.001, 0.02]),
    environment=st.dictionaries(st.sampled_from(["NCCL_DEBUG", "A"]), ODD, max_size=2)
    | st.sampled_from([{"TRTLLM_ORCHESTRATOR": "1"}, {"TRTLLM_ORCHESTRATOR": "1", SPAWNS: "0"}]),
    summary=ODD,
    model_class=ODD,
)


@dataclass
class Triton:
    """A server that loads models when it is told to, from a folder whose content changes."""

    server: Server
    folder: Path
    root: Path
    numbers: Iterator[int] = field(default_factory=itertools.count)
    loaded: int = 0
    refused: int = 0

    def ask(self, name: str, verb: str) -> str:
        """Load or unload a model; return why that failed, empty where it did not."""
        url = f"{self.server.urls.http}/v2/repository/models/{name}/{verb}"
        body = b'{"parameters": {"unload_dependents": true}}' if verb == "unload" else b"{}"
        try:
            with urllib.request.urlopen(urllib.request.Request(url, body), timeout=60):
                return ""
        except urllib.error.HTTPError as error:
            return error.read().decode()


@pytest.fixture(scope="module")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Triton]:
    """Start the server with no model."""
    root = tmp_path_factory.mktemp("fuzzed")
    write_tiny_model(root / "model")
    folder = root / "repository"
    folder.mkdir()
    serve = Serve(**dict(zip(("http_port", "grpc_port", "metrics_port"), free_ports(3), strict=True)))
    workspace = root / "trtkit-fuzzed"
    command = server_command(folder, serve, os.environ, find_tritonserver(os.environ), workspace, stand_in_files())
    command = replace(command, argv=(*command.argv, "--model-control-mode=explicit"))
    with Server(command, root / "log") as server:
        server.start()
        server.wait_ready(20, Silent())
        yield Triton(server, folder, root)


def loads_or_is_refused(triton: Triton, changes: dict[str, Any]) -> None:
    """Take a profile down the road; a plan without an ERROR has a repository that loads and unloads."""
    place = triton.root / f"made{next(triton.numbers)}"
    place.mkdir()
    (place / "model").symlink_to(triton.root / "model")
    try:
        engine, plan = make_engine(place, changes)
    except PlanRefused:
        triton.refused += 1
        return
    shutil.rmtree(triton.folder)
    deploy(engine, plan, triton.folder)
    names = ("ensemble", "tensorrt_llm_bls") if serves_engines(plan) else ("tensorrt_llm",)
    try:
        assert dict.fromkeys(names, "") == {name: triton.ask(name, "load") for name in names}
    finally:
        for name in names:
            triton.ask(name, "unload")
        shutil.rmtree(place)
    triton.loaded += 1


FEW = settings(
    deadline=None, max_examples=16, derandomize=True, suppress_health_check=[HealthCheck.too_slow], database=None
)


@FEW
@given(changes=CHANGES)
def test_a_few_legal_plans_load(triton: Triton, changes: dict[str, Any]) -> None:
    """The same few each time."""
    loads_or_is_refused(triton, changes)


def test_some_of_them_were_legal(triton: Triton) -> None:
    """Else nothing was proved above."""
    if triton.loaded + triton.refused == 0:
        pytest.skip("no profile was tried in this run")
    assert triton.loaded > 0


@pytest.mark.slow
@settings(FEW, max_examples=300, derandomize=False)
@given(changes=CHANGES)
def test_many_legal_plans_load(triton: Triton, changes: dict[str, Any]) -> None:
    """Others each time."""
    loads_or_is_refused(triton, changes)
