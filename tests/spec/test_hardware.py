"""The hardware catalogue: figures, sources, and how it is asked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from trtllm_kit.errors import UnknownHardware
from trtllm_kit.spec.hardware import Figure, Hardware
from trtllm_kit.spec.load import hardware_for, hardware_names, load_hardware, load_profile

NAMES = (
    "h200x1",
    "h200x8-700w",
    "h200x4-1000w",
    "h100x8",
    "h100x2",
    "a100x8",
    "dgx-b200",
    "gb200-nvl72",
    "gh200-nvl32",
    "l40sx8",
    "l40s-cluster",
    "rtx-pro-6000x8",
    "cpu-rehearsal",
)


def figures(hardware: Hardware) -> Iterator[Figure]:
    """Yield every figure of a machine."""
    gpu = hardware.gpu
    yield from (gpu.memory_bytes, gpu.memory_bandwidth, *gpu.dense_flops.values(), *gpu.sparse_flops.values())
    optional = (
        gpu.power_limit_watts,
        gpu.nvlink_bytes_per_second,
        gpu.clock_hz,
        gpu.pcie.bytes_per_second if gpu.pcie else None,
        hardware.power_limit_watts,
        hardware.clock_hz,
        hardware.network_bytes_per_second,
        hardware.host_memory_bytes,
    )
    yield from (figure for figure in optional if figure is not None)


def value(figure: Figure | None) -> float | None:
    """Return the number of a figure that may be absent."""
    return None if figure is None else figure.value


def test_the_catalogue_lists_its_machines_in_order() -> None:
    """Names come in the order of the file."""
    assert NAMES == hardware_names()


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_has_a_source(name: str) -> None:
    """Each machine validates; each figure is positive and says where it was read."""
    hardware = load_hardware(name)

    assert name == hardware.name
    assert hardware.summary
    assert all(figure.value > 0 and len(figure.source) > 20 for figure in figures(hardware))


@pytest.mark.parametrize(
    ("name", "gpus", "domain", "capability", "gib", "bandwidth", "fp8", "nvlink"),
    [
        ("h200x1", 1, 1, 90, 140.40, 4.8e12, 1978.9e12, 450e9),
        ("h200x8-700w", 8, 8, 90, 140.40, 4.8e12, 1978.9e12, 450e9),
        ("h200x4-1000w", 4, 4, 90, 140.40, 4.8e12, 1978.9e12, 450e9),
        ("h100x8", 8, 8, 90, 79.65, 3.35e12, 1978.9e12, 450e9),
        ("h100x2", 2, 2, 90, 79.65, 3.35e12, 1978.9e12, 450e9),
        ("a100x8", 8, 8, 80, 80.0, 2.039e12, None, 300e9),
        ("dgx-b200", 8, 8, 100, 179.06, 8e12, 4.5e15, 900e9),
        ("gb200-nvl72", 72, 72, 100, 185.03, 8e12, 5e15, 900e9),
        ("gh200-nvl32", 32, 32, 90, 95.58, 4e12, 1978.9e12, 450e9),
        ("l40sx8", 8, 1, 89, 44.99, 864e9, 733e12, None),
        ("l40s-cluster", 16, 1, 89, 44.99, 864e9, 733e12, None),
        ("rtx-pro-6000x8", 8, 1, 120, 95.59, 1.597e12, 935.6e12, None),
    ],
)
def test_figures_of_the_gpu_machines(
    name: str,
    gpus: int,
    domain: int,
    capability: int,
    gib: float,
    bandwidth: float,
    fp8: float | None,
    nvlink: float | None,
) -> None:
    """The figures that plans rest on, in base units and dense."""
    hardware = load_hardware(name)
    gpu = hardware.gpu

    assert (gpus, domain, capability) == (hardware.gpus, hardware.nvlink_domain, gpu.compute_capability)
    assert gib == pytest.approx(gpu.memory_bytes.value / 2**30, abs=0.01)
    assert (bandwidth, fp8, nvlink) == (
        gpu.memory_bandwidth.value,
        value(gpu.dense_flops.get("fp8")),
        value(gpu.nvlink_bytes_per_second),
    )


def test_gh200_nvl32_dense_and_sparse() -> None:
    """The 127 PFLOPS of the announcement are the 2:4-sparse rate of 32 GPUs; dense it is 63.3."""
    gpu = load_hardware("gh200-nvl32").gpu

    assert 63.3e15 == pytest.approx(32 * gpu.dense_flops["fp8"].value, rel=1e-3)
    assert 127e15 == pytest.approx(32 * gpu.sparse_flops["fp8"].value, rel=3e-3)


def test_gh200_nvl32_is_sixteen_nodes_of_two() -> None:
    """One NVLink domain spans the nodes."""
    hardware = load_hardware("gh200-nvl32")

    assert (2, 16) == (hardware.gpus_per_node, hardware.nodes)


def test_nvlink_multicast_needs_a_switch_of_hopper_or_later() -> None:
    """A100 boards, directly linked GPUs and PCIe machines have none."""
    machines = map(load_hardware, NAMES)

    assert {"h200x8-700w", "h100x8", "dgx-b200", "gb200-nvl72", "gh200-nvl32"} == {
        machine.name for machine in machines if machine.nvlink_multicast
    }


def test_a_gpu_without_nvlink_says_what_its_pcie_carries() -> None:
    """Ranks on such cards have nothing else to talk over."""
    gpus = [load_hardware(name).gpu for name in NAMES if not load_hardware(name).is_rehearsal]
    links = {gpu.name: gpu.pcie for gpu in gpus if gpu.nvlink_bytes_per_second is None}

    assert {
        "NVIDIA L40S 48GB": (4, 32e9),
        "NVIDIA RTX PRO 6000 Blackwell Server Edition 96GB": (5, 64e9),
    } == {name: link and (link.generation, link.bytes_per_second.value) for name, link in links.items()}


def test_clocks_under_two_power_limits_are_a_text_s_statement() -> None:
    """700 W at 1.8 GHz and 1,000 W at 2.1 GHz were stated, not measured, and the source says so."""
    slow, fast = load_hardware("h200x8-700w"), load_hardware("h200x4-1000w")

    assert [(700, 1.8e9), (1000, 2.1e9)] == [
        (value(one.power_limit_watts), value(one.clock_hz)) for one in (slow, fast)
    ]
    assert all(one.clock_hz is not None and "stated by a published text" in one.clock_hz.source for one in (slow, fast))


def test_the_h200_figures_are_those_of_a_real_card(shared: Path) -> None:
    """Memory, power limit and highest clock stand in a recorded answer of NVML."""
    recorded = (shared / "perf" / "h200_nvml.txt").read_text("utf-8")
    gpu = load_hardware("h200x1").gpu

    assert f", {gpu.memory_bytes.value:.0f})" in recorded
    assert gpu.clock_hz is not None
    assert f", {gpu.clock_hz.value / 1e6:.0f} MHz," in recorded
    assert gpu.power_limit_watts is not None
    assert f", {gpu.power_limit_watts.value:.2f} W," in recorded


def test_h100_dense_rate_is_its_multiprocessors_times_their_clock() -> None:
    """132 SMs of 4,096 dense BF16 operations a cycle at 1.83 GHz."""
    assert 132 * 4 * 1024 * 1.83e9 == pytest.approx(load_hardware("h100x8").gpu.dense_flops["bf16"].value, rel=1e-4)


def test_gb200_nvl72_adds_up_to_its_data_sheet() -> None:
    """720 PFLOPS of sparse FP8, 1,440 of sparse FP4, 576 TB/s and about 13.4 TB in a rack."""
    machine = load_hardware("gb200-nvl72")
    gpu = machine.gpu

    assert (4, 18) == (machine.gpus_per_node, machine.nodes)
    assert (720e15, 1440e15, 576e12) == (
        72 * gpu.sparse_flops["fp8"].value,
        72 * gpu.sparse_flops["nvfp4"].value,
        72 * gpu.memory_bandwidth.value,
    )
    assert 13.4e12 == pytest.approx(72 * 186e9, rel=2e-3)
    assert 72 * gpu.memory_bytes.value > 13.4e12


def test_sparse_rates_are_about_twice_the_dense_ones() -> None:
    """No dense figure is a sparse one by mistake."""
    for name in NAMES:
        gpu = load_hardware(name).gpu
        for number_format, sparse in gpu.sparse_flops.items():
            assert 2 == pytest.approx(sparse.value / gpu.dense_flops[number_format].value, rel=2e-2)


def test_the_rehearsal_is_a_cpu() -> None:
    """No NVLink, no compute capability, eight GiB."""
    hardware = load_hardware("cpu-rehearsal")

    assert (True, 1, 0, None) == (
        hardware.is_rehearsal,
        hardware.gpus,
        hardware.gpu.compute_capability,
        hardware.gpu.nvlink_bytes_per_second,
    )
    assert 8 * 2**30 == hardware.gpu.memory_bytes.value


def test_an_unknown_machine_lists_the_known_ones() -> None:
    """The error suggests the nearest name."""
    with pytest.raises(UnknownHardware) as caught:
        load_hardware("h200x8")

    assert "no hardware profile h200x8" == caught.value.what
    assert "h200x8-700w" in caught.value.hint
    assert "gh200-nvl32" in caught.value.why


def test_a_profile_can_state_its_own_memory() -> None:
    """``gpu_memory`` takes the place of the catalogue's figure, and says so."""
    profile = load_profile("cpu-rehearsal-smollm2").profile

    assert load_hardware("cpu-rehearsal") == hardware_for(profile)
    assert (
        Figure(value=1024.0, source="gpu_memory of the deploy profile")
        == hardware_for(profile.model_copy(update={"gpu_memory": 1024})).gpu.memory_bytes
    )
