"""The hardware profile of a machine: its figures and sources, and that it is read and used again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.doctor.support import card, machine
from trtllm_kit.doctor.facts import Machine
from trtllm_kit.doctor.match import card_in
from trtllm_kit.doctor.written import hardware_of, hardware_text
from trtllm_kit.errors import MissingTool, UnknownHardware
from trtllm_kit.spec.ceilings import known_of
from trtllm_kit.spec.hardware import Gpu, Reached
from trtllm_kit.spec.hardware_file import read_hardware
from trtllm_kit.spec.load import hardware_names, load_hardware, load_profile

CATALOGUE = [load_hardware(name).gpu for name in hardware_names()]


@pytest.mark.parametrize(
    ("name", "capability", "mebibytes", "known"),
    [
        ("NVIDIA H200", 90, 143771, "NVIDIA H200 SXM 141GB"),
        ("NVIDIA H100 80GB HBM3", 90, 81559, "NVIDIA H100 SXM 80GB"),
        ("NVIDIA A100-SXM4-80GB", 80, 81920, "NVIDIA A100 SXM 80GB"),
        ("NVIDIA L40S", 89, 46068, "NVIDIA L40S 48GB"),
        ("NVIDIA A100-SXM4-40GB", 80, 40960, None),
        ("NVIDIA L40", 89, 46068, None),
        ("NVIDIA GeForce RTX 4090", 89, 24564, None),
    ],
)
def test_cards_as_their_drivers_name_them(name: str, capability: int, mebibytes: int, known: str | None) -> None:
    """A card of the catalogue is known by its model, compute capability and memory; a neighbour is not taken for it."""
    one = card(name=name, compute_capability=capability, memory_bytes=mebibytes << 20)
    gpu = card_in(one, CATALOGUE)
    assert known == (gpu.name if gpu else None)


def test_every_figure_has_its_source_and_the_file_is_read_again(tmp_path: Path) -> None:
    """What the driver told is measured, what no driver tells is the catalogue's, and reading gives the same back."""
    file = tmp_path / "here.yaml"
    hardware = hardware_of(machine(), CATALOGUE, str(file))
    file.write_text(hardware_text(hardware))
    assert hardware == read_hardware(str(file)) == load_hardware(str(file))
    assert (8, 8, True) == (hardware.gpus_per_node, hardware.nvlink_domain, hardware.nvlink_multicast)
    gpu = hardware.gpu
    assert gpu.nvlink_bytes_per_second is not None
    assert 450e9 == gpu.nvlink_bytes_per_second.value
    assert "measured: NVML of NVIDIA H200, driver 590.48.01, total memory" == gpu.memory_bytes.source
    assert "data sheet" in gpu.memory_bandwidth.source
    figures = [gpu.memory_bytes, gpu.memory_bandwidth, *gpu.dense_flops.values(), hardware.host_memory_bytes]
    assert all(figure is not None and figure.source for figure in figures)


def test_a_machine_without_gpus_and_a_card_without_data_sheet_are_refused() -> None:
    """Nothing is made up: the error says what lacks."""
    with pytest.raises(MissingTool):
        hardware_of(Machine(), CATALOGUE, "x.yaml")
    strange = machine(1, "", cards=(card(name="NVIDIA GeForce RTX 4090", compute_capability=89),))
    with pytest.raises(UnknownHardware, match="RTX 4090"):
        hardware_of(strange, CATALOGUE, "x.yaml")


def test_the_least_memory_and_the_lowest_limit_of_all_cards_hold() -> None:
    """Ranks are alike, so the smallest card sets what is planned."""
    whole = machine()
    cards = (replace(whole.cards[0], power_limit_watts=500.0, memory_bytes=150_000_000_000), *whole.cards[1:])
    hardware = hardware_of(replace(whole, cards=cards), CATALOGUE, "x.yaml")
    assert hardware.power_limit_watts is not None
    assert (500.0, 150e9) == (hardware.power_limit_watts.value, hardware.gpu.memory_bytes.value)


def _with_ceilings(gpu: Gpu, **values: float) -> Gpu:
    made = {name: Reached(value=one, low=one / 2, high=one * 1.1, source="here") for name, one in values.items()}
    return gpu.model_copy(update={"ceilings": made})


def test_measured_ceilings_come_before_the_architectures() -> None:
    """The card's own constant replaces its architecture's, with its bounds and source; all others stay."""
    gpu = load_hardware("h200x1").gpu
    before, after = known_of(gpu, "1.2.1"), known_of(_with_ceilings(gpu, stream_share=0.5), "1.2.1")
    one = after.constants["stream_share"]
    assert (0.5, 0.25, 0.55, "measured", "here") == (one.value, one.low, one.high, one.how, one.source)
    rest = {name: one for name, one in after.constants.items() if name != "stream_share"}
    assert rest == {name: one for name, one in before.constants.items() if name != "stream_share"}
    assert 0.5 == after.ceilings.stream_share


def test_a_card_that_was_measured_is_not_transferred() -> None:
    """GH200 takes Hopper's constants as transferred until something was measured on it."""
    gpu = load_hardware("gh200-nvl32").gpu
    assert known_of(gpu, "1.2.1").transferred
    assert not known_of(_with_ceilings(gpu, stream_share=0.8), "1.2.1").transferred


def test_a_profile_names_the_file(tmp_path: Path) -> None:
    """``hardware:`` of a deploy profile takes a path, and an unknown name is still refused."""
    file = tmp_path / "here.yaml"
    file.write_text(hardware_text(hardware_of(machine(1, ""), CATALOGUE, str(file))))
    profile = tmp_path / "p.yaml"
    profile.write_text(f"base: h200x1-llama3.1-8b-fp8\nname: here\nhardware: {file}\n")
    assert str(file) == load_hardware(load_profile(str(profile)).profile.hardware).name


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("summary: a\n", "gpu"),
        ("[1]\n", "mapping"),
        ("gpus_per_node: 0\n", "at least 1"),
        ("gpu:\n  ceilings:\n    step_seconds: {value: 1.0, low: 1.0, high: 1.0, source: a}\n", "has no step_seconds"),
        ("gpu:\n  ceilings:\n    stream_share: {value: 1.0, low: 2.0, high: 1.0, source: a}\n", "low <= value"),
    ],
)
def test_a_file_that_is_no_hardware_profile_is_refused(tmp_path: Path, text: str, why: str) -> None:
    """A missing card, another document, counts and ceilings that cannot be: one error, with what is wrong."""
    import yaml

    file = tmp_path / "bad.yaml"
    whole = yaml.safe_load(hardware_text(hardware_of(machine(1, ""), CATALOGUE, str(file))))
    changes = yaml.safe_load(text)
    if isinstance(changes, dict) and "summary" not in changes:
        gpu = whole["gpu"] | changes.pop("gpu", {})
        text = yaml.safe_dump(whole | changes | {"gpu": gpu})
    file.write_text(text)
    with pytest.raises(UnknownHardware) as refused:
        read_hardware(str(file))
    assert why in refused.value.why
