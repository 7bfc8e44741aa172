"""A tiny random model taken down the whole road, and the server that answers with it."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.ports import free_ports
from tests.support.specs import profile, rehearsal
from tests.support.tiny_model import write_tiny_model
from trtllm_kit.build.engine import build
from trtllm_kit.checkpoint.convert import convert
from trtllm_kit.plan.decide import make_plan, require_ok
from trtllm_kit.plan.plan import Plan
from trtllm_kit.progress import Silent
from trtllm_kit.repository.compose import deploy
from trtllm_kit.serve.process import Server, start
from trtllm_kit.spec.load import load_hardware, load_model
from trtllm_kit.spec.profile import Serve

_PROFILE: dict[str, Any] = {
    "hardware": "cpu-rehearsal",
    "runtime": "simulated",
    "limits.max_batch_size": 16,
    "limits.max_num_tokens": 256,
    "limits.max_seq_len": 512,
    "load.input_tokens": 64,
    "load.output_tokens": 64,
    "serve.start_grace": 20,
    "serve.token_seconds": 0.02,
}


def plan_of(model: Path, changes: Mapping[str, Any] | None = None, *, kv_blocks: int = 64) -> Plan:
    """Plan the rehearsal of a model folder; ``changes`` are dotted profile keys, the KV pool is of that size.

    It is for the CPU, or for the machine that they name.
    """
    wanted = _PROFILE | dict(changes or {})
    machine = rehearsal() if wanted["hardware"] == _PROFILE["hardware"] else load_hardware(wanted["hardware"])
    plan = make_plan(load_model(model), profile(wanted), machine)
    require_ok(plan)
    budget = kv_blocks * plan.runtime.tokens_per_block.value * plan.memory.kv_bytes_per_token
    return plan.model_copy(update={"memory": plan.memory.model_copy(update={"kv_budget_bytes": budget})})


def make_engine(root: Path, changes: Mapping[str, Any] | None = None, *, kv_blocks: int = 64) -> tuple[Path, Plan]:
    """Make ``root/engine`` of a tiny model; return it with its plan."""
    model = root / "model" if (root / "model").is_dir() else write_tiny_model(root / "model")
    plan = plan_of(model, changes, kv_blocks=kv_blocks)
    convert(model, plan, root / "checkpoint", Silent())
    build(root / "checkpoint", plan, root / "engine", Silent())
    return root / "engine", plan


def make_repository(root: Path, changes: Mapping[str, Any] | None = None, *, kv_blocks: int = 64) -> tuple[Path, Plan]:
    """Make ``root/repository`` of a tiny model, on ports nobody uses; return it with its plan."""
    ports = dict(zip(("serve.http_port", "serve.grpc_port", "serve.metrics_port"), free_ports(3), strict=True))
    engine, plan = make_engine(root, ports | dict(changes or {}), kv_blocks=kv_blocks)
    deploy(engine, plan, root / "repository")
    return root / "repository", plan


@contextmanager
def running(repository: Path, serve: Serve) -> Iterator[Server]:
    """Run a server on a repository; when a test fails in it, its log is shown."""
    with start(repository, serve, {}, Silent()) as server:
        try:
            yield server
        except BaseException as error:
            error.add_note("\n".join(["the server said:", *server.tail(50)]))
            raise


def series(server: Server) -> dict[str, dict[str, float]]:
    """Read the metrics page: by family, by the label value that is neither model nor version (or ``le``)."""
    with urllib.request.urlopen(server.urls.metrics, timeout=5) as page:
        lines = page.read().decode().splitlines()
    found: dict[str, dict[str, float]] = {}
    for line in lines:
        if not line.startswith("#") and "{" in line:
            name, _, rest = line.partition("{")
            labels, _, value = rest.rpartition("} ")
            words = dict(pair.split("=", 1) for pair in labels.split(","))
            kept = [text.strip('"') for key, text in words.items() if key not in ("model", "version")]
            found.setdefault(name, {})[" ".join(sorted(kept))] = float(value)
    return found


def until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    """Wait until something is true; fail when it does not become so."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)
