"""Checks of what will serve: the runtime against hardware, engine and release, and the ports."""

from __future__ import annotations

from collections.abc import Iterator

from trtllm_kit.findings import Finding, Severity
from trtllm_kit.plan.checks.case import Case, Rule
from trtllm_kit.plan.serving_mode import obstacle

_LAST_PORT = 65535
_PORTS = ("http_port", "grpc_port", "metrics_port")


def runtime(case: Case) -> Iterator[Finding]:
    """PF29: the runtime does not run on that hardware, or cannot load that engine."""
    chosen, toolchain = case.plan.runtime.runtime.value, case.plan.toolchain.value
    if chosen == "tensorrt_llm" and case.hardware.is_rehearsal:
        yield _refused(
            "The tensorrt_llm runtime needs an NVIDIA GPU.",
            f"hardware {case.hardware.name} is a {case.hardware.gpu.kind}",
            "runtime: reference (real text) or runtime: simulated (paced tokens)",
        )
    if chosen == "tensorrt_llm" and toolchain == "mock":
        yield _refused(
            "The tensorrt_llm runtime cannot load the stand-in engine of toolchain mock.",
            f"runtime {chosen}, toolchain {toolchain}: its rank files hold no weights",
            "runtime: simulated (paced tokens), or toolchain: llm-api",
        )
    in_the_way = obstacle(case.plan) if toolchain == "trtllm-build" else None
    if in_the_way is not None:
        yield _refused(in_the_way.what, in_the_way.compared, in_the_way.way_out)


def ports(case: Case) -> Iterator[Finding]:
    """PF30: two endpoints on one port."""
    numbers = {name: getattr(case.plan.serve, name) for name in _PORTS}
    for place, name in enumerate(_PORTS):
        earlier = next((other for other in _PORTS[:place] if numbers[other] == numbers[name]), None)
        if earlier is None:
            continue
        free = max(numbers.values()) + 1
        yield Finding(
            rule="PF30",
            severity=Severity.ERROR,
            message="Two endpoints of the server are on one port, which can be bound once.",
            compared=f"serve.{earlier} {numbers[earlier]}, serve.{name} {numbers[name]}",
            suggestion=f"serve.{name}: {free if free <= _LAST_PORT else min(numbers.values()) - 1}",
        )


def _refused(message: str, compared: str, suggestion: str) -> Finding:
    return Finding(rule="PF29", severity=Severity.ERROR, message=message, compared=compared, suggestion=suggestion)


RULES = (
    Rule(
        "PF29",
        "Runtime against the hardware and the engine",
        runtime,
        keys=("runtime", "toolchain", "hardware", "parallelism.replicas"),
    ),
    Rule("PF30", "Ports of the server", ports, keys=("serve.http_port", "serve.grpc_port", "serve.metrics_port")),
)
