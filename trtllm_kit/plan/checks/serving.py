"""Checks of what will serve: the runtime against hardware, engine and release, and the ports."""

from __future__ import annotations

from collections.abc import Iterator

from trtllm_kit.findings import Finding, Severity
from trtllm_kit.plan.checks.case import Case, Rule
from trtllm_kit.upstream import nearest_release, release

_LAST_PORT = 65535
_PORTS = ("http_port", "grpc_port", "metrics_port")


def runtime(case: Case) -> Iterator[Finding]:
    """PF29: the runtime does not run on that hardware, cannot load that engine, or has no model in the release."""
    chosen, toolchain, version = case.plan.runtime.runtime.value, case.plan.toolchain.value, case.plan.release.value
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
    if toolchain == "trtllm-build":
        yield Finding(
            rule="PF29",
            severity=Severity.WARNING,  # the engine can be built all the same
            message="Engines are served through Triton's C++ backend, and trtkit writes repositories of the llmapi "
            "model alone: trtkit build makes the engine, and trtkit deploy refuses.",
            compared=f"toolchain {toolchain}, release {version}",
            suggestion="serve the engine folder with the tensorrtllm backend of the release's container"
            + (", or toolchain: llm-api" if "llm-api" in release(version).toolchains else ""),
        )
    if toolchain == "mock" and not release(version).triton_llmapi_model:
        nearest = nearest_release(version, lambda name: release(name).triton_llmapi_model)
        yield _refused(
            f"Release {version} has no llmapi model for Triton, and trtkit writes repositories of that model alone.",
            f"{version} serves engines through the C++ backend; the model is in {nearest} and later",
            f"trtllm_version: {nearest}",
        )


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
        "Runtime against the hardware, the engine and the release",
        runtime,
        keys=("runtime", "toolchain", "hardware", "trtllm_version"),
    ),
    Rule("PF30", "Ports of the server", ports, keys=("serve.http_port", "serve.grpc_port", "serve.metrics_port")),
)
