"""Checks of what will serve: the runtime against hardware, engine and release, and the ports."""

from __future__ import annotations

from collections.abc import Iterator

from trtllm_kit.findings import Finding, Severity
from trtllm_kit.plan.checks.case import Case, Rule
from trtllm_kit.plan.serving_mode import instances, obstacle, orchestrated, serves_engines
from trtllm_kit.spec.mixers import Attention

_LAST_PORT = 65535
_ONE_ANSWER = ("reference", "transformers")
"""Runtimes behind the llmapi model that compute real text, and one answer to a request."""
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
    if chosen == "transformers":
        yield from _of_transformers(case)
    in_the_way = obstacle(case.plan)
    if in_the_way is not None:
        yield _refused(in_the_way.what, in_the_way.compared, in_the_way.way_out)
    yield from _of_instances(case)
    beams = case.plan.limits.max_beam_width.value
    if beams > 1 and chosen in _ONE_ANSWER and not serves_engines(case.plan):
        yield Finding(
            rule="PF29",
            severity=Severity.WARNING,
            message=f"The {chosen} runtime searches no beams: its answers are not those that the engine will give.",
            compared=f"limits.max_beam_width {beams}, runtime {chosen}",
            suggestion="limits.max_beam_width: 1, or runtime: tensorrt_llm",
        )


def _of_instances(case: Case) -> Iterator[Finding]:
    """Yield instances that have no GPUs of their own beside each other, and what nobody has confirmed of them."""
    plan, count, world = case.plan, instances(case.plan), case.plan.parallelism.world_size
    if count == 1 or plan.runtime.runtime.value != "tensorrt_llm" or case.hardware.is_rehearsal:
        return
    here = case.hardware.gpus_per_node
    key = "serve.instances" if not orchestrated(plan) else "parallelism.replicas"
    if count * world > here:
        yield _refused(
            "The instances of one server have their GPUs on one node.",
            f"{count} instances of {world} GPUs, {here} on a node of {case.hardware.name}",
            f"{key}: {max(1, here // world)}",
        )
    elif world > 1 and not orchestrated(plan):
        yield Finding(
            rule="PF29",
            severity=Severity.WARNING,
            message="Instances of several GPUs start their ranks themselves; not confirmed for this release.",
            compared=f"serve.instances {count}, {world} ranks each",
            suggestion="serve.instances: 1, with a server for each replica",
        )


def _of_transformers(case: Case) -> Iterator[Finding]:
    """Yield what that runtime cannot do: it computes one plain 16-bit model on one GPU, and keeps whole sequences."""
    plan, formats = case.plan, case.plan.quantization.formats
    if plan.toolchain.value == "trtllm-build":
        yield _refused(
            "The transformers runtime stands behind the llmapi model, and an engine is served by Triton's backend.",
            f"runtime transformers, toolchain {plan.toolchain.value}",
            "toolchain: llm-api",
        )
    if formats.quantises or formats.kv_cache != "bf16":
        yield _refused(
            "The transformers runtime computes in 16 bit: it applies no scales of a converted checkpoint.",
            f"quantization.weights {formats.weights}, quantization.kv_cache {formats.kv_cache}",
            "quantization.weights: bf16 with quantization.kv_cache: bf16",
        )
    if plan.parallelism.world_size > 1:
        yield _refused(
            "The transformers runtime runs on one GPU.",
            f"the plan has {plan.parallelism.world_size} ranks",
            "parallelism.tensor: 1 with pipeline and context 1",
        )
    if other := sorted({_kind(layer.mixer) for layer in plan.model.layers} - {"full"}):
        yield _refused(
            "The transformers runtime keeps keys and values of whole sequences, and nothing else.",
            f"{plan.model.architecture} has layers of kind {', '.join(other)}",
            "runtime: tensorrt_llm, or runtime: reference on a CPU",
        )


def _kind(mixer: object) -> str:
    """Return what a layer keeps of a sequence: ``full`` for all keys and values, as they are."""
    if not isinstance(mixer, Attention):
        return type(mixer).__name__.lower()
    if mixer.latent is not None or mixer.compression is not None or mixer.indexer is not None:
        return "latent" if mixer.latent is not None else "compressed"
    return mixer.kind


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
        keys=("runtime", "toolchain", "hardware", "parallelism.replicas", "serve.instances", "serve.warm_up_requests"),
    ),
    Rule("PF30", "Ports of the server", ports, keys=("serve.http_port", "serve.grpc_port", "serve.metrics_port")),
)
