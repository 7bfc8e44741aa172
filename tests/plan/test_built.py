"""Rules about engines, asked of the engine that a plan would build: silent on what trtkit chooses by itself."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.specs import hardware, llama_8b, llama_70b, profile, qwen3_moe
from trtllm_kit.findings import Finding, Severity
from trtllm_kit.plan.settle import settle
from trtllm_kit.spec.model import ModelSpec
from trtllm_kit.upstream import known_releases, release

BUILDING = [version for version in known_releases() if "trtllm-build" in release(version).toolchains]
NGRAM = {"speculation": {"kind": "ngram", "draft_tokens": 3}}
FP8 = {"quantization.weights": "fp8", "quantization.kv_cache": "fp8"}
INT8_CACHE = {"quantization.weights": "int8_wo", "quantization.kv_cache": "int8"}
TRITON = "nvcr.io/nvidia/tritonserver:{}-trtllm-python-py3"
WHOLE = [({}, llama_8b()), (FP8, llama_70b()), (NGRAM, llama_8b()), ({}, qwen3_moe(2)),
         (FP8 | {"limits.max_beam_width": 4}, llama_8b()),
         ({"scheduler.chunked_prefill": False, "kv_cache.enable_block_reuse": False}, llama_8b())]  # fmt: skip
RULES = ("PF16", "PF17", "PF21", "PF22", "PF23", "PF25")


def findings(changes: dict[str, Any], model: ModelSpec | None = None, version: str = "1.2.1") -> list[Finding]:
    """Plan an engine on four large GPUs and return what was found."""
    asked = profile({"toolchain": "trtllm-build", "trtllm_version": version} | changes)
    return list(settle(model or llama_8b(), asked, hardware(4, 192)).findings)


def of_engines(found: list[Finding]) -> list[str]:
    """Return what the rules about engines said, in numbers."""
    return [one.compared for one in found if one.rule in RULES]


@pytest.mark.parametrize("version", BUILDING)
@pytest.mark.parametrize(("changes", "model"), WHOLE)
def test_options_that_trtkit_chooses_are_not_spoken_of(version: str, changes: dict[str, Any], model: ModelSpec) -> None:
    """Every release that builds engines, with every option as the plan sets it: no rule about engines objects."""
    assert [] == of_engines(findings(changes, model, version))


def test_an_int8_cache_is_told_what_it_costs() -> None:
    """Paged context attention cannot read an INT8 KV cache, so reuse is switched off and chunked prefill is refused."""
    said = [one for one in findings(INT8_CACHE, version="0.20.0") if one.rule == "PF23"]
    assert ["block reuse asked, use_paged_context_fmha disable; not confirmed for this release",
            "chunked context asked, use_paged_context_fmha disable; not confirmed for this release",
    ] == [one.compared for one in said]  # fmt: skip
    without = {"kv_cache.enable_block_reuse": False, "scheduler.chunked_prefill": False}
    assert [] == of_engines(findings(INT8_CACHE | without, version="0.20.0"))


@pytest.mark.parametrize(
    ("build", "said"),
    [
        ({"runner": "docker", "image": TRITON.format("25.05")}, ["engine of 0.19.0 with TensorRT 10.9.0.34"]),
        ({"runner": "docker", "image": TRITON.format("25.06")}, []),
        ({"runner": "docker", "image": TRITON.format("25.07")}, []),
        ({"runner": "docker", "image": "mine:2025"}, []),
        ({"runner": "docker", "image": "mine:25.05.1"}, []),
        ({"runner": "docker"}, []),
        ({"runner": "local", "image": TRITON.format("25.05")}, []),
    ],
)
def test_a_container_of_another_tensorrt_is_no_builder_for_the_release(build: dict[str, Any], said: list[str]) -> None:
    """What a container of a known month brings is compared with the release; nothing is made of other names."""
    found = findings({"build": build}, version="0.20.0")
    assert said == [one.compared.partition(",")[0] for one in found if one.rule == "PF19"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_beam_width": 1}, ["4 beams asked, max_beam_width 1; not confirmed for this release"]),
        ({"max_beam_width": 4}, []),
        ({"max_num_tokens": 1024}, []),
        (
            {"max_num_tokens": 1024, "use_paged_context_fmha": "disable"},
            ["prompt 2,048, max_num_tokens 1,024; not confirmed for this release"],
        ),
    ],
)
def test_limits_of_the_profile_s_own_options_are_compared_with_what_is_asked(
    options: dict[str, Any], said: list[str]
) -> None:
    """An option in the plan's place may let in less than the load asks for; with paged context prompts go in chunks."""
    changes = {"limits.max_beam_width": 4, "load.input_tokens": 2048, "build": {"options": options}}
    assert said == [one.compared for one in findings(changes) if one.rule == "PF22"]


def test_the_llm_api_builds_nothing_and_is_not_asked() -> None:
    """The same options mean nothing to a toolchain that runs no builder."""
    options = {"gemm_plugin": "float16", "context_fmha": "disable", "max_input_len": 1}
    found = findings({"toolchain": "llm-api", "build": {"options": options}})
    assert [] == [one for one in found if one.rule in RULES or one.severity is Severity.ERROR]
