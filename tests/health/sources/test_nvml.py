"""The driver's answers: real ones as they were recorded, and what a virtual machine does not answer."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import pytest

from trtllm_kit.health import gpus
from trtllm_kit.health.metrics import METRICS
from trtllm_kit.health.snapshot import NoReading, Outcome, Reading, Snapshot, Trouble
from trtllm_kit.health.sources.nvml import read_gpus

NOT_SUPPORTED, LOST = 3, 15
IDLE: dict[str, Any] = {
    "UtilizationRates": (0, 0), "MemoryInfo": (150754820096, 150109880320, 644939776), "PowerUsage": 78776,
    "EnforcedPowerLimit": 700000, "Temperature": 37, "CurrentClocksEventReasons": 1, "TotalEccErrors": 0,
    "RemappedRows": (0, 2, 0, 0), "NvLinkState": [1] * 18, "NvLinkErrorCounter": {0: 0, 1: 0, 2: 0},
}  # fmt: skip
"""An H200 SXM of two, driver 580, idle; two of its rows were remapped, and that went well."""
LOADED = IDLE | {
    "UtilizationRates": (96, 20), "MemoryInfo": (150754820096, 149184184320, 1570635776), "PowerUsage": 692269,
    "Temperature": 64, "CurrentClocksEventReasons": 4,
}  # fmt: skip
"""The same under matrix products: at 692 of 700 W the power limit holds its clock."""
ALONE = IDLE | {"PowerUsage": 127114, "UtilizationRates": None, "NvLinkState": None, "NvLinkErrorCounter": None}
"""A single H200 in a virtual machine: neither its utilisation nor its links are told."""


class Driver:
    """Stands in for libnvidia-ml: answers each function as recorded, and "not supported" to the others."""

    def __init__(self, *cards: Mapping[str, Any] | None, init: int = 0) -> None:
        self.cards = cards
        self.init = init

    def nvmlInit_v2(self) -> int:
        """Answer as told."""
        return self.init

    def nvmlShutdown(self) -> int:
        """Do nothing."""
        return 0

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        """Count the cards."""
        count._obj.value = len(self.cards)
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, number: int, handle: Any) -> int:
        """Give the card's number as its handle; a card that is None fell off the bus."""
        handle._obj.value = number + 1
        return 0 if self.cards[number] is not None else LOST

    def nvmlDeviceGetUUID(self, handle: Any, text: Any, _size: int) -> int:
        """Name a card."""
        text.value = f"GPU-{handle.value - 1}".encode()
        return 0

    def __getattr__(self, name: str) -> Any:
        """Return a function that gives a recorded answer; AttributeError for what the driver does not have."""
        what = name.removeprefix("nvmlDeviceGet")
        if what == "CurrentClocksEventReasons" and all(card and what not in card for card in self.cards):
            raise AttributeError(name)

        def answer(handle: Any, *given: Any) -> int:
            card = self.cards[handle.value - 1] or {}
            value = card.get(what)
            if isinstance(value, list):
                value = value[given[0]] if given[0] < len(value) else None
            if isinstance(value, dict):
                value = value.get(given[1])
            if value is None:
                return NOT_SUPPORTED
            return _write(value, given)

        return answer


def _write(value: Any, given: tuple[Any, ...]) -> int:
    target = given[-1]._obj
    if isinstance(target, ctypes.Structure):
        for (name, *_), number in zip(target._fields_, value, strict=True):
            setattr(target, name, number)
    elif isinstance(value, tuple):
        for one, number in zip(given, value, strict=True):
            one._obj.value = number
    else:
        target.value = value
    return 0


def read(name: str, driver: Driver) -> Reading | NoReading:
    """Read a metric of GPUs from what the driver says."""
    families, _ = read_gpus(driver)
    return METRICS[name].read(Snapshot(Outcome.OK, "", 0.0, 0.0, 0.0, series=families))[""]


@pytest.mark.parametrize(
    ("name", "idle", "loaded"),
    [
        ("gpu_utilization", 0.0, 0.96),
        ("gpu_memory_usage", 644939776 / 150754820096, 1570635776 / 150754820096),
        ("gpu_power_usage", 78.776 / 700, 692.269 / 700),
        ("gpu_temperature", 37.0, 64.0),
        ("gpus_throttled", 0.0, 0.0),
        ("gpus_power_capped", 0.0, 1.0),
        ("gpu_ecc_errors", 0.0, 0.0),
        ("gpu_remap_failures", 0.0, 0.0),
    ],
)
def test_a_real_card_idle_and_under_load(name: str, idle: float, loaded: float) -> None:
    """Recorded answers of an H200 become the numbers that nvidia-smi showed beside them, in base units."""
    for card, expected in ((IDLE, idle), (LOADED, loaded)):
        reading = read(name, Driver(card))
        assert isinstance(reading, Reading)
        assert pytest.approx(expected) == reading.value


def test_what_a_virtual_machine_does_not_tell_is_missing() -> None:
    """What is "not supported" leaves a metric missing; it is never 0."""
    reading = read("gpu_utilization", Driver(ALONE))
    assert isinstance(reading, NoReading)
    assert Trouble.MISSING is reading.trouble
    families, reason = read_gpus(Driver(ALONE))
    assert ("", False) == (reason, any("nvlink" in name for name in families))
    assert 1 == len(families["trtkit_gpu_power_watts"])


def test_links_of_every_card_are_counted() -> None:
    """Errors of all links that are up add up, by card; a link that is down is not asked."""
    broken = IDLE | {"NvLinkState": [1, 0, 1], "NvLinkErrorCounter": {0: 2, 1: 0, 2: 5}}
    families, _ = read_gpus(Driver(IDLE, broken))
    assert {"GPU-0": 0.0, "GPU-1": 4.0} == {
        key[0][1]: n for key, n in families["trtkit_gpu_nvlink_replay_errors_total"].items()
    }
    assert all(any(family[2][0] in families for family in gpus.NVLINK) for _ in gpus.NVLINK)


def test_an_older_driver_has_the_older_name_of_the_clock_reasons() -> None:
    """A driver that knows throttle reasons and no event reasons is asked for those."""
    old = {key: value for key, value in IDLE.items() if key != "CurrentClocksEventReasons"}
    reading = read("gpus_throttled", Driver(old | {"CurrentClocksThrottleReasons": 64}))
    assert isinstance(reading, Reading)
    assert 1.0 == reading.value


def test_a_card_off_the_bus_is_told_and_the_others_are_read() -> None:
    """One of two cards that does not answer is a reason, and takes nothing away from the other."""
    families, reason = read_gpus(Driver(None, IDLE))
    assert reason.startswith("GPU 0 of 2 does not answer")
    assert 1 == len(families["trtkit_gpu_power_watts"])


@pytest.mark.parametrize(
    ("driver", "expected"),
    [(Driver(IDLE, init=9), "the driver does not answer: NVML error 9"), (Driver(), "the driver has no GPU")],
)
def test_a_driver_without_an_answer_is_a_reason(driver: Driver, expected: str) -> None:
    """A driver that fails, or has no card, gives nothing and says why."""
    assert ({}, expected) == read_gpus(driver)
