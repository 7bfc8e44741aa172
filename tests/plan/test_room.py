"""What a model takes beside the GPUs that serve it: files, conversion, build."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoint.ranks import rank_plan
from tests.plan.conftest import golden_model
from tests.support.specs import hardware, llama_8b, profile
from tests.support.tiny_model import write_tiny_model
from trtllm_kit.checkpoint.convert import conversion_steps
from trtllm_kit.cli.plan import plan_text
from trtllm_kit.findings import Finding, Severity
from trtllm_kit.plan.room import OWN_CONVERSION, room
from trtllm_kit.plan.settle import settle
from trtllm_kit.spec.hardware import Figure
from trtllm_kit.spec.model import StoredFormats
from trtllm_kit.spec.profile_formats import KvFormat, WeightFormat

GIB = 1 << 30
LINEAR = 6_979_321_856
"""Elements of 8B in the linear layers of its blocks."""
ALL = 8_030_261_248
STORED, CONVERTED = "checkpoint as it comes, disk", "checkpoint as converted, disk"
CALIBRATION, CONVERSION = "calibration by ModelOpt, memory", "conversion, memory"
BUILD = "engine build, CPU memory"


def rooms(changes: dict[str, Any], **facts: Any) -> dict[str, int]:
    """Return the bytes of 8B on eight GPUs by line."""
    model = llama_8b().model_copy(update=facts)
    return {term.name: term.bytes for term in room(settle(model, profile(changes), hardware(8)))}


def memory_findings(changes: dict[str, Any], host_gib: float | None) -> list[Finding]:
    """Return what PF14 says on a machine whose CPUs have that memory."""
    figure = None if host_gib is None else Figure(value=host_gib * GIB, source="test")
    machine = hardware(8).model_copy(update={"host_memory_bytes": figure})
    return [found for found in settle(llama_8b(), profile(changes), machine).findings if found.rule == "PF14"]


def test_fp8_made_here() -> None:
    """8B comes with 2 B an element, leaves with 1 B and a pair of scales a layer part, and takes 600 MiB between."""
    scales = 32 * (7 * 8 + 8)
    found = rooms({"quantization.weights": "fp8", "quantization.kv_cache": "fp8"})

    assert {STORED: 2 * ALL, CONVERTED: 2 * ALL - LINEAR + scales, CONVERSION: 600 << 20} == found
    assert OWN_CONVERSION == found[CONVERSION]


def test_a_calibration_holds_both() -> None:
    """ModelOpt has 16 bit and the result at once."""
    found = rooms({"quantization.weights": "int4_awq"})

    assert 2 * ALL + found[CONVERTED] == found[CALIBRATION]
    assert CONVERSION not in found


def test_a_checkpoint_that_is_passed_on_is_not_made() -> None:
    """What comes in FP8 is counted as it comes, and nothing is converted."""
    stored = StoredFormats(method="modelopt", scheme="FP8", weights="fp8", kv_cache="bf16", exclude=("lm_head",))
    found = rooms({}, stored=stored)

    assert {STORED: 2 * ALL - LINEAR + 32 * 7 * 8} == found


def test_a_family_that_is_planned_alone_is_not_converted() -> None:
    """Nothing is said of files that nobody writes."""
    made = settle(golden_model("qwen3.5"), profile({"trtllm_version": "main"}), hardware(8))

    assert [STORED] == [term.name for term in room(made)]


@pytest.mark.parametrize(("ranks", "workers", "at_once"), [(1, "auto", 1), (4, "auto", 4), (4, 1, 1), (4, 2, 2)])
def test_a_build_holds_its_ranks_twice(ranks: int, workers: int | str, at_once: int) -> None:
    """Each rank that is built at once takes its weights two times."""
    options = {} if workers == "auto" else {"workers": workers}
    changes = {"toolchain": "trtllm-build", "trtllm_version": "0.21", "parallelism.tensor": ranks}
    found = rooms(changes | {"build.options": options})

    assert found[CONVERTED] * 2 * at_once == found[BUILD] * ranks


@pytest.mark.parametrize(("tensor", "pipeline"), [(1, 1), (2, 1), (2, 2)])
@pytest.mark.parametrize(
    ("weights", "kv_cache"), [("bf16", "bf16"), ("fp8", "fp8"), ("int8_wo", "int8"), ("int4_wo", "bf16")]
)
def test_the_files_of_all_ranks(
    tmp_path: Path, weights: WeightFormat, kv_cache: KvFormat, tensor: int, pipeline: int
) -> None:
    """What ``convert`` lays out for ``trtllm-build`` is within 1 in 1,000 of what was said; it makes INT8 itself."""
    folder = write_tiny_model(tmp_path / "model", "llama", hidden_size=128, intermediate_size=256)
    plan = rank_plan(folder, tensor, pipeline, weights=weights, kv_cache=kv_cache)
    written = sum(step.nbytes for step in conversion_steps(folder, plan))

    assert pytest.approx(written, rel=1e-3) == {term.name: term.bytes for term in room(plan)}[CONVERTED]


def test_no_engine_no_build() -> None:
    """The LLM API builds nothing ahead."""
    assert BUILD not in rooms({"toolchain": "llm-api"})


BUILT = {"toolchain": "trtllm-build", "trtllm_version": "0.21", "parallelism.tensor": 4}


def test_a_build_that_the_cpus_do_not_hold() -> None:
    """Four ranks of 8B at once take more than 28 GiB, with all numbers; known near the release, so a WARNING."""
    (found,) = memory_findings(BUILT, 28)

    assert Severity.WARNING is found.severity
    assert "4 ranks at once, each holds its weights 2 times" in found.compared
    assert "28.00 GiB in a node; not confirmed for this release" in found.compared
    assert "build.options: {workers: 1}" in found.suggestion


@pytest.mark.parametrize(
    ("changes", "host_gib"),
    [
        ({}, 32),
        ({}, None),
        ({"build.options": {"workers": 1}}, 8),
        ({"toolchain": "llm-api", "trtllm_version": "1.2.1"}, 8),
    ],
)
def test_a_build_that_fits_is_not_spoken_of(changes: dict[str, Any], host_gib: float | None) -> None:
    """Enough memory, memory that nobody states, what was suggested, and a release without a build are silent."""
    assert [] == memory_findings(BUILT | changes, host_gib)


def test_the_plan_shows_it() -> None:
    """The text has the lines with bytes and the arithmetic; without --verbose the arithmetic is left out."""
    made = settle(llama_8b(), profile({}), hardware(8))
    whole, short = (plan_text(made, (), verbose=verbose) for verbose in (True, False))

    assert re.search(r"checkpoint as it comes, disk +14\.96 GiB +16 bit, prediction", whole)
    assert re.search(r"conversion, memory +600\.00 MiB *$", short, re.MULTILINE)
