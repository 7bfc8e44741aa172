"""The constants: complete, within their bounds, each with the data it comes from."""

from __future__ import annotations

from dataclasses import fields

import pytest

from tests.estimate.replicas import replica
from trtllm_kit.estimate.step_time import StepClock
from trtllm_kit.estimate.work import Chunk, StepWork
from trtllm_kit.shipped_yaml import parse_yaml
from trtllm_kit.spec.ceilings import CEILINGS, Ceilings, Known, bounds_of, known_of
from trtllm_kit.spec.load import load_hardware

MACHINES = ("h100x8", "h200x8-700w", "dgx-b200", "l40sx8", "a100x8", "gb200-nvl72", "gh200-nvl32")
RELEASES = ("0.20.0", "1.0.0", "1.1.0", "1.2.1", "1.3.0rc20", "main")


def known(machine: str = "h200x8-700w", release: str = "1.2.1", backend: str = "pytorch") -> Known:
    """Return what is known of a machine's card."""
    return known_of(load_hardware(machine).gpu, release, backend)  # type: ignore[arg-type]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("release", RELEASES)
def test_every_card_and_release_has_every_constant(machine: str, release: str) -> None:
    """Nothing is missing, and the clock takes the values that the file states."""
    found = known(machine, release)
    assert {field.name for field in fields(Ceilings)} == set(found.constants)
    assert {name: one.value for name, one in found.constants.items()} == {
        name: getattr(found.ceilings, name) for name in found.constants
    }


@pytest.mark.parametrize("backend", ["pytorch", "tensorrt"])
def test_values_lie_within_their_bounds_and_say_where_they_come_from(backend: str) -> None:
    """A constant outside its own bounds, or without data, would be a number out of the air."""
    for machine in ("h200x8-700w", "dgx-b200"):
        for name, one in known(machine, backend=backend).constants.items():
            assert one.low <= one.value <= one.high, name
            assert one.how in ("measured", "fitted", "roofline"), name
            assert one.source, name


def test_no_source_is_unused() -> None:
    """Every named source serves a constant."""
    document = parse_yaml(CEILINGS)
    used = {
        figure["source"]
        for rows in (document["architectures"], document["hosts"])
        for row in rows
        for figure in row["constants"].values()
    }
    assert used == set(document["sources"])


def test_cards_without_measurements_are_transferred() -> None:
    """H200 has data of its own; GB200 takes Blackwell's constants, and L40S, whose architecture has none, Hopper's."""
    assert (False, "hopper") == (known().transferred, known().architecture)
    assert (True, "blackwell") == (known("gb200-nvl72").transferred, known("gb200-nvl72").architecture)
    assert (True, "hopper") == (known("l40sx8").transferred, known("l40sx8").architecture)


def test_a_built_engine_launches_faster_than_the_python_backend() -> None:
    """Its constants are a row of their own."""
    assert known(backend="tensorrt").ceilings.launch_seconds < known().ceilings.launch_seconds / 3


def test_something_that_is_no_release_is_refused() -> None:
    """A wrong name would otherwise take some release's constants."""
    with pytest.raises(ValueError, match="not a TensorRT-LLM version"):
        known(release="newest")


@pytest.mark.parametrize(
    "work",
    [StepWork(sequences=64, context=64_000), StepWork((Chunk(4096),)), StepWork((Chunk(1024, 512),), 8, 9000)],
    ids=["generation", "prompt", "both"],
)
@pytest.mark.parametrize("machine", ["h200x8-700w", "dgx-b200", "l40sx8"])
def test_bounds_enclose_the_value(machine: str, work: StepWork) -> None:
    """With every constant at its favourable bound a step is no slower, at the other no faster."""
    subject = replica(hardware=load_hardware(machine))
    middle = known(machine)
    best, worst = (StepClock(subject, bound).seconds(work) for bound in bounds_of(middle))
    assert best < StepClock(subject, middle).seconds(work) < worst
