"""Every rule over a machine: what it finds, and that sound machines of several kinds have no finding."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.doctor.support import HOST, SERVES, card, found, machine, with_card, with_host
from trtllm_kit.doctor.checks import RULES, diagnose
from trtllm_kit.doctor.facts import Disk, Environment, Machine, Program, RdmaPort, Unread
from trtllm_kit.doctor.kernel_log import read_switch_errors
from trtllm_kit.doctor.wanted import Wanted
from trtllm_kit.findings import Severity
from trtllm_kit.spec.load import load_hardware

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "doctor-rules.md"
ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO
BARE = replace(HOST, daemons={"nv-fabricmanager": False, "nvidia-imex": False, "nvidia-persistenced": False})


def _l40s(**changes: object) -> Machine:
    """Return eight L40S on PCIe, which have no NVLink, no fabric and no multicast."""
    cards = tuple(
        card(index, name="NVIDIA L40S", compute_capability=89, memory_bytes=48305799168, fabric=None,
             fabric_status=None, links_up=None, links_down=None, link_errors={}, multicast=False,
             power_limit_watts=350.0, power_default_watts=350.0)
        for index in range(8)
    )  # fmt: skip
    host = replace(HOST, nvswitches=0)
    return machine(topology="l40sx8.topo.txt", cards=cards, host=host, **changes)


@pytest.mark.parametrize("count", [1, 2, 8])
def test_sound_machines_have_no_finding(count: int) -> None:
    """One, two and eight H200s with everything in place: every rule is silent."""
    topology = {1: "", 2: "h200x2.topo.txt", 8: "h200x8.topo.txt"}[count]
    assert [] == found(machine(count, topology))
    assert ("yes", 0) == (
        diagnose(machine(count, topology), Wanted()).verdict,
        diagnose(machine(count, topology), Wanted()).exit_code(strict=False),
    )


def test_a_pcie_box_is_told_of_and_not_refused() -> None:
    """Eight L40S are what they are meant to be: remarks, and no error or warning."""
    assert {("DR12", INFO), ("DR32", INFO)} == {(one.rule, one.severity) for one in found(_l40s())}


def test_an_idle_card_at_a_lower_pcie_generation_is_no_warning() -> None:
    """Idle GPUs lower their link; the same under load is a warning."""
    assert [INFO] == [one.severity for one in found(with_card(pcie_generation=1), rule="DR9")]
    assert [WARNING] == [one.severity for one in found(with_card(pcie_generation=1, clock_reasons=0), rule="DR9")]


KERNEL = """\
[ 12.1] nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46 MC TS crumbstore MCTO (First)
[ 12.2] NVRM: Xid (PCI:0000:06:00): 79, pid=7, GPU has fallen off the bus.
[ 99.0] nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up
[ 99.1] nvidia-nvswitch1: SXid (PCI:0000:c2:00.0): 12028, Non-fatal, Link 21 egress non-posted PRIV error
"""

FAULTS = {
    "of several kinds": (with_card(3, name="NVIDIA H100 80GB HBM3"), "DR3", WARNING, "1 x NVIDIA H100 80GB HBM3"),
    "uncorrected errors": (with_card(4, ecc_uncorrected=2), "DR4", ERROR, "GPU 4: 2 since"),
    "remapping failed": (with_card(4, remap_failed=True, remap_pending=True), "DR4", ERROR, "failed: yes"),
    "remapping pending": (with_card(4, remap_pending=True), "DR4", WARNING, "pending: yes"),
    "ECC off": (with_card(ecc=False), "DR4", INFO, "ECC: off"),
    "hot": (with_card(2, clock_reasons=64, temperature=91.0), "DR5", WARNING, "345 of 1980 MHz, 91 °C"),
    "power brake": (with_card(2, clock_reasons=128 | 4), "DR5", WARNING, "345 of 1980"),
    "clocks set": (with_card(2, clock_reasons=2), "DR5", INFO, "345 of 1980"),
    "at its power limit": (with_card(2, clock_reasons=4), "DR5", INFO, "limit 700 W"),
    "unequal limits": (with_card(1, power_limit_watts=600.0), "DR6", WARNING, "GPU 1: 600"),
    "MIG": (with_card(6, mig=True), "DR7", WARNING, "MIG: on"),
    "no persistence": (replace(with_card(6, persistence=False), host=BARE), "DR8", INFO, "persistence mode: off"),
    "lanes": (with_card(5, pcie_lanes=8), "DR9", WARNING, "8 of 16 lanes"),
    "in use": (with_card(5, memory_used_bytes=70 << 30), "DR10", INFO, "GPU 5: 70.00 GiB of 140.40 GiB taken"),
    "odd pair": (machine(topology="h200x8-odd-pair.topo.txt"), "DR11", ERROR, "GPU 2 and 5: NV12; others NV18"),
    "odd GPU": (machine(topology="h200x8-odd-gpu.topo.txt"), "DR11", ERROR, "others NV18"),
    "bridge": (machine(4, "a40x4-bridge-missing.topo.txt"), "DR11", WARNING, "GPU 2 and 3: PXB; others NV4"),
    "bridged pairs": (machine(4, "a40x4-bridges.topo.txt"), "DR12", INFO, "groups: 0, 1; 2, 3"),
    "links down": (with_card(7, links_up=16, links_down=2), "DR13", ERROR, "GPU 7: 16 of 18 up"),
    "recoveries": (with_card(7, link_errors={"replay": 9, "recovery": 2}), "DR14", WARNING, "9 replay, 2 recovery"),
    "replays": (with_card(7, link_errors={"replay": 9, "recovery": 0}), "DR14", INFO, "GPU 7: 9 replay"),
    "no peers over NVLink": (machine(peers={(0, 1): "NS", (0, 2): "OK"}), "DR15", ERROR, "GPU 0 and 1: it is not"),
    "no peers over PCIe": (_l40s(peers={(0, 1): "CNS", (0, 2): "OK"}), "DR15", WARNING, "the chipset"),
    "fabric waits": (with_card(0, fabric="in progress"), "DR16", ERROR, "GPU 0: in progress"),
    "fabric failed": (with_card(0, fabric_status="insufficient resources"), "DR16", ERROR, "insufficient"),
    "no fabric manager": (machine(host=BARE), "DR16", ERROR, "nv-fabricmanager: not running"),
    "no NVLS": (with_card(0, multicast=False), "DR17", WARNING, "not offered"),
    "IMEX": (with_card(0, name="NVIDIA GB200"), "DR18", INFO, "channels: 0, nvidia-imex: not seen"),
    "host memory": (with_host(memory_bytes=64 << 30), "DR19", INFO, "64.00 GiB, GPU 140.40 GiB"),
    "shm": (with_host(shm_bytes=64 << 20), "DR20", WARNING, "64.00 MiB, 1.00 GiB wanted"),
    "shm full": (with_host(shm_free_bytes=1 << 20), "DR20", WARNING, "1.00 MiB free"),
    "open files": (with_host(open_files=1024), "DR21", WARNING, "1024, 4096 wanted"),
    "locked memory": (with_host(locked_bytes=8 << 20), "DR21", WARNING, "8.00 MiB"),
    "cores": (with_host(cores=16), "DR22", WARNING, "16 cores, 32 wanted"),
    "NUMA": (machine(), "DR23", INFO, "GPU 0: 0, GPU 1: 0"),
    "disk": (with_host(disks=(Disk("/data", 1 << 40, 5 << 30),)), "DR24", WARNING, "5.00 GiB free of 1.00 TiB"),
    "port": (with_host(taken_ports={8000: "HTTP"}), "DR25", INFO, "listened on: yes"),
    "driver": (machine(driver="550.90.07"), "DR26", WARNING, "driver 550.90.07; CUDA 13.1 of container 26."),
    "numpy": (
        machine(environments=(SERVES, Environment("/p", {"nvidia-pytriton": "0.7.0", "numpy": "2.4.6"}))),
        "DR27", ERROR, "numpy 2.4.6, below 2 wanted",
    ),
    "TensorRT": (
        machine(environments=(Environment("/p", {"tensorrt-llm": "1.2.1", "tensorrt": "10.13.3"}),)),
        "DR27", WARNING, "TensorRT 10.13.3, 10.14 wanted",
    ),
    "nothing serves": (machine(environments=()), "DR28", WARNING, "not found"),
    "no container toolkit": (
        machine(environments=(), programs=(Program("docker", "/usr/bin/docker", "28.2"),)), "DR28", WARNING,
        "docker 28.2, nvidia-ctk: not found",
    ),
    "no mpirun": (machine(programs=()), "DR29", WARNING, "mpirun: not found"),
    "fatal in a switch": (
        with_host(switch_errors=read_switch_errors(KERNEL)), "DR30", ERROR, "1 fatal, 1 others, the last: SXid 20034",
    ),
    "error in a switch": (with_host(switch_errors=read_switch_errors(KERNEL)), "DR30", WARNING, "SXid 12028"),
    "RDMA port down": (
        with_host(rdma=(RdmaPort("mlx5_0", 1, True), RdmaPort("mlx5_1", 1, False))), "DR31", INFO, "mlx5_1/1",
    ),
    "slow memory": (_l40s(), "DR32", INFO, "362 TFLOP/s in 16 bit, 864 GB/s: 419 operations a byte"),
    "unread": (machine(unread=(Unread("the topology", "no answer"),)), "DR1", WARNING, "no answer"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_by_its_rule_alone(name: str) -> None:
    """The rule gives that severity with the numbers compared and one thing to try, and a sound machine has no such."""
    of, rule, severity, compared = FAULTS[name]
    mine = found(of, rule=rule)
    assert severity in [one.severity for one in mine]
    assert any(compared in one.compared for one in mine), [one.compared for one in mine]
    assert all(one.suggestion for one in mine)
    if rule != "DR23":
        assert [] == found(machine(), rule=rule)


def test_every_rule_has_a_fault_here() -> None:
    """No rule goes without a case that it finds; DR2 has its own below."""
    assert {rule.name for rule in RULES} == {rule for _, rule, _, _ in FAULTS.values()} | {"DR2"}


def test_the_odd_gpu_is_named_once() -> None:
    """A GPU that all odd pairs share is named, not its seven pairs."""
    only = found(machine(topology="h200x8-odd-gpu.topo.txt"), rule="DR11")
    assert ["GPU 3 is joined by less NVLink than the others"] == [one.message for one in only]


@pytest.mark.parametrize(
    ("of", "name", "severities"),
    [
        (machine(), "h200x8-700w", []),
        (machine(1, ""), "h200x1", []),
        (_l40s(), "l40sx8", []),
        (machine(2, "h200x2.topo.txt"), "h200x8-700w", [ERROR]),
        (machine(), "h100x8", [WARNING]),
        (_l40s(), "h200x8-700w", [ERROR, ERROR, WARNING]),
        (machine(topology="h200x8-odd-gpu.topo.txt"), "h200x8-700w", [ERROR]),
        (machine(), "cpu-rehearsal", []),
    ],
)
def test_a_machine_against_the_hardware_of_a_profile(of: Machine, name: str, severities: list[Severity]) -> None:
    """The same machine has no finding; fewer GPUs, other cards, fewer NVLinks and lower limits have each their own."""
    assert severities == [one.severity for one in found(of, Wanted("p", load_hardware(name)), "DR2")]


def test_a_limit_that_the_hardware_means_is_no_fault() -> None:
    """Cards at 1,000 W of 1,200 W are right where the hardware profile runs them at 1,000 W."""
    cards = tuple(card(index, power_limit_watts=1000.0, power_default_watts=1200.0) for index in range(4))
    of = machine(4, "gb200x4.topo.txt", cards=cards)
    assert [] == found(of, Wanted("p", load_hardware("h200x4-1000w")), "DR6")
    assert [WARNING] == [one.severity for one in found(of, rule="DR6")]


def test_imex_of_a_profile_that_spans_nodes() -> None:
    """NVLink over nodes needs a channel: a warning for a profile that uses it, silence once it is there."""
    wanted = Wanted("p", load_hardware("gb200-nvl72"))
    of = machine(4, "gb200x4.topo.txt")
    assert [WARNING] == [one.severity for one in found(of, wanted, "DR18")]
    ready = replace(HOST, imex_channels=1, daemons={**HOST.daemons, "nvidia-imex": True})  # type: ignore[dict-item]
    assert [] == found(replace(of, host=ready), wanted, "DR18")


def test_without_gpus_the_verdict_is_unknown_and_for_the_cpu_it_is_not() -> None:
    """Exit code 3 where GPUs could not be read, 0 for a profile that runs on the CPU, and 3 for one that is lost."""
    blind = Machine(host=HOST, unread=(Unread("the GPUs", "there is no nvidia-smi here"),))
    assert ("unknown", 3) == (diagnose(blind, Wanted()).verdict, diagnose(blind, Wanted()).exit_code(strict=False))
    assert 0 == diagnose(blind, Wanted("p", load_hardware("cpu-rehearsal"))).exit_code(strict=True)
    lost = machine(unread=(Unread("GPU 8", "it does not answer"),))
    assert 3 == diagnose(lost, Wanted()).exit_code(strict=False)


def test_exit_codes_of_errors_and_warnings() -> None:
    """An ERROR is 1; a WARNING is 0, and 1 under strict."""
    assert 1 == diagnose(with_card(ecc_uncorrected=1), Wanted()).exit_code(strict=False)
    warned = diagnose(with_card(mig=True), Wanted())
    assert (0, 1) == (warned.exit_code(strict=False), warned.exit_code(strict=True))


def test_the_reference_lists_every_rule() -> None:
    """docs/reference/doctor-rules.md has a heading for each rule with its title, in their order."""
    heads = [line.removeprefix("## ") for line in PAGE.read_text().splitlines() if line.startswith("## ")]
    assert [f"{rule.name}: {rule.title}" for rule in RULES] == heads


def test_a_release_that_is_in_no_container_asks_for_no_driver() -> None:
    """What was not read is not judged."""
    of = machine(driver="450.0", environments=(Environment("/p", {"tensorrt-llm": "1.3.0rc15"}),))
    assert [] == found(of, rule="DR26")


def test_another_release_than_the_profiles() -> None:
    """The installed release and the profile's are compared as they are."""
    assert [WARNING] == [one.severity for one in found(machine(), Wanted("p", release="1.1.0"), "DR27")]
    assert [] == found(machine(), Wanted("p", release="1.2.1"), "DR27")


def test_ranks_over_nodes_want_an_active_rdma_port() -> None:
    """A profile whose hardware spans nodes warns without one, and is silent with one; on one node nothing is asked."""
    over = Wanted(profile="p", hardware=load_hardware("gh200-nvl32"))
    assert [WARNING] == [one.severity for one in found(machine(), over, rule="DR31")]
    up = with_host(rdma=(RdmaPort("mlx5_0", 1, True, "400 Gb/sec (4X NDR)", "InfiniBand"),))
    assert [] == found(up, over, rule="DR31")
    assert [] == found(with_host(rdma=(RdmaPort("mlx5_0", 1, False),)), rule="DR31")


def test_a_wheels_tritonserver_serves() -> None:
    """An environment with nvidia-pytriton has a tritonserver, which is not on PATH."""
    one = machine(1, "", environments=(Environment("/p", {"nvidia-pytriton": "0.7.0", "numpy": "1.26.4"}),))
    assert [] == found(one, rule="DR28")
