"""The hardware catalogue: figures, sources, and how it is asked."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from trtllm_kit.errors import UnknownHardware
from trtllm_kit.spec.hardware import Figure, Hardware
from trtllm_kit.spec.load import hardware_for, hardware_names, load_hardware, load_profile

NAMES = ("h200x1", "h200x8-700w", "dgx-b200", "gh200-nvl32", "cpu-rehearsal")


def figures(hardware: Hardware) -> Iterator[Figure]:
    """Yield every figure of a machine."""
    gpu = hardware.gpu
    yield from (gpu.memory_bytes, gpu.memory_bandwidth, *gpu.dense_flops.values(), *gpu.sparse_flops.values())
    optional = (
        gpu.power_limit_watts,
        gpu.nvlink_bytes_per_second,
        hardware.power_limit_watts,
        hardware.host_memory_bytes,
    )
    yield from (figure for figure in optional if figure is not None)


def test_the_catalogue_has_the_five_machines() -> None:
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
        ("dgx-b200", 8, 8, 100, 179.06, 8e12, 4.5e15, 900e9),
        ("gh200-nvl32", 32, 32, 90, 95.58, 4e12, 1978.9e12, 450e9),
    ],
)
def test_figures_of_the_gpu_machines(
    name: str, gpus: int, domain: int, capability: int, gib: float, bandwidth: float, fp8: float, nvlink: float
) -> None:
    """The figures that plans rest on, in base units and dense."""
    hardware = load_hardware(name)
    gpu = hardware.gpu

    assert (gpus, domain, capability) == (hardware.gpus, hardware.nvlink_domain, gpu.compute_capability)
    assert gib == pytest.approx(gpu.memory_bytes.value / 2**30, abs=0.01)
    assert (bandwidth, fp8) == (gpu.memory_bandwidth.value, gpu.dense_flops["fp8"].value)
    assert gpu.nvlink_bytes_per_second is not None
    assert nvlink == gpu.nvlink_bytes_per_second.value


def test_gh200_nvl32_dense_and_sparse() -> None:
    """The 127 PFLOPS of the announcement are the 2:4-sparse rate of 32 GPUs; dense it is 63.3."""
    gpu = load_hardware("gh200-nvl32").gpu

    assert 63.3e15 == pytest.approx(32 * gpu.dense_flops["fp8"].value, rel=1e-3)
    assert 127e15 == pytest.approx(32 * gpu.sparse_flops["fp8"].value, rel=3e-3)


def test_gh200_nvl32_is_sixteen_nodes_of_two() -> None:
    """One NVLink domain spans the nodes."""
    hardware = load_hardware("gh200-nvl32")

    assert (2, 16) == (hardware.gpus_per_node, hardware.nodes)


def test_sparse_rates_are_about_twice_the_dense_ones() -> None:
    """No dense figure is a sparse one by mistake."""
    for name in NAMES:
        gpu = load_hardware(name).gpu
        for number_format, sparse in gpu.sparse_flops.items():
            assert 2 == pytest.approx(sparse.value / gpu.dense_flops[number_format].value, rel=1e-3)


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
