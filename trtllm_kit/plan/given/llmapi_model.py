"""Rules about the llmapi model of Triton: ``triton_config`` of its YAML against ``config.pbtxt`` (PF21)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trtllm_kit.findings import Finding, Severity
from trtllm_kit.plan.given.facts import TritonModel
from trtllm_kit.plan.given.finding import found, of_failure
from trtllm_kit.upstream.failures import failure

RULE = "PF21"
SECTION = "triton_config"


def llmapi_model(
    model: TritonModel, given: Mapping[str, Any], release: str, *, states_policy: bool
) -> Iterator[Finding]:
    """Run every rule about it; ``states_policy`` is whether ``config.pbtxt`` has a transaction policy at all."""
    section = given.get(SECTION)
    settings = section if isinstance(section, Mapping) else {}
    yield from _needed(model, settings, release)
    yield from _batching(model, settings, release)
    yield from _policy(model, settings, release, states_policy=states_policy)
    yield from _devices(model, release)


def _needed(model: TritonModel, settings: Mapping[str, Any], release: str) -> Iterator[Finding]:
    known = failure("llmapi_settings_absent", release)
    missing = [key for key in ("max_batch_size", "decoupled") if key not in settings]
    if known is not None and missing:
        yield of_failure(
            RULE,
            known,
            f"A model.yaml without these keys of {SECTION} {known.note}.",
            f"{model.name}: {SECTION} lacks {' and '.join(missing)}",
            f"{SECTION}: {{max_batch_size: 0, decoupled: {str(model.decoupled).lower()}}}",
        )


def _batching(model: TritonModel, settings: Mapping[str, Any], release: str) -> Iterator[Finding]:
    known, size = failure("llmapi_batching", release), settings.get("max_batch_size", 0)
    if known is not None and size not in (0, None):
        yield of_failure(
            RULE,
            known,
            f"Batching by Triton {known.note} by the llmapi model, which batches in flight.",
            f"{model.name}: {SECTION}.max_batch_size {size}",
            f"{SECTION}.max_batch_size: 0",
        )


def _policy(model: TritonModel, settings: Mapping[str, Any], release: str, *, states_policy: bool) -> Iterator[Finding]:
    known, asked = failure("llmapi_policy_differs", release), settings.get("decoupled")
    if known is None or not isinstance(asked, bool) or asked == model.decoupled:
        return
    spelt = str(asked).lower()
    compared = f"{model.name}: {SECTION}.decoupled {spelt}, model_transaction_policy "
    way_out = f"model_transaction_policy {{ decoupled: {spelt} }} in config.pbtxt"
    if states_policy:
        message = f"Two answers to whether the model is decoupled {known.note}."
        yield of_failure(RULE, known, message, f"{compared}{str(model.decoupled).lower()}", way_out)
        return
    yield found(
        RULE,
        Severity.WARNING,
        "config.pbtxt does not say that the model is decoupled; a server that does not complete configurations, as "
        "upstream's launcher starts it, sends the first part of a stream alone.",
        f"{compared}absent",
        way_out,
    )


def _devices(model: TritonModel, release: str) -> Iterator[Finding]:
    known, devices = failure("llmapi_devices", release), model.parameters.get("gpu_device_ids", "")
    instances = sum(group.count for group in model.instances) or 1
    sets = len([part for part in devices.split(";") if part.strip()])
    if known is not None and sets and "${" not in devices and sets != instances:
        yield of_failure(
            RULE,
            known,
            f"As many sets of GPUs as instances are wanted, and another number {known.note}.",
            f"{model.name}: gpu_device_ids has {sets}, instance_group {instances}",
            f"count: {sets} in instance_group",
        )
