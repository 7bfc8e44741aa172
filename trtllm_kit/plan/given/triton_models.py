"""Rules about one model of a Triton repository: its folder, and the release that is to serve it (PF19, PF21)."""

from __future__ import annotations

from collections.abc import Iterator

from trtllm_kit.findings import Finding, Severity
from trtllm_kit.plan.given.facts import TritonModel
from trtllm_kit.plan.given.finding import found, of_failure
from trtllm_kit.upstream.failures import failure
from trtllm_kit.upstream.releases import known_releases, release, unknown_release

_ENGINE_BACKENDS = ("tensorrtllm", "tensorrt_llm")


def triton_model(model: TritonModel, folder: str, versions: tuple[str, ...], version: str) -> Iterator[Finding]:
    """Run every rule about a model's folder; ``versions`` are its numbered folders, ``version`` is the release."""
    yield from _name(model, folder, version)
    yield from _versions(model, folder, versions, version)
    yield from _served(model, version)


def _name(model: TritonModel, folder: str, version: str) -> Iterator[Finding]:
    known = failure("model_of_other_name", version)
    if known is not None and model.name != folder:
        message = f"A model whose folder has another name than its configuration {known.note}."
        yield of_failure(
            "PF21", known, message, f"{model.name}: name {model.name}, folder {folder}", f'name: "{folder}"'
        )


def _versions(model: TritonModel, folder: str, versions: tuple[str, ...], version: str) -> Iterator[Finding]:
    known = failure("model_without_version", version)
    if known is not None and not versions:
        message = f"A model without a folder of a version {known.note}; git and some copies leave empty folders out."
        yield of_failure("PF21", known, message, f"{model.name}: no folder named by a number", f"mkdir {folder}/1")


def _served(model: TritonModel, version: str) -> Iterator[Finding]:
    """Yield a model that the release has no backend, or no model files, for."""
    gone = failure("engine_flow_gone", version)
    if gone is not None and model.backend in _ENGINE_BACKENDS:
        yield of_failure(
            "PF19",
            gone,
            f"The backend that runs engines {gone.note} in release {version}.",
            f"{model.name}: backend {model.backend}, release {version}",
            "the llmapi model with the Hugging Face checkpoint, or an image of 1.2.1",
        )
    if model.llmapi and not unknown_release(version) and not release(version).triton_llmapi_model:
        first = next(name for name in known_releases() if release(name).triton_llmapi_model)
        yield found(
            "PF21",
            Severity.WARNING,
            f"Release {version} is not known to have the llmapi model.",
            f"{model.name}: a model.yaml beside config.pbtxt, release {version}; the first with it is {first}",
            f"an image of {first} or newer",
        )
