"""A module like pynvml whose driver answers from a table; what is not in it is not supported."""

# ruff: noqa: D102, D105  # methods named and described by nvml.h

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

H200 = {
    "Name": "NVIDIA H200", "UUID": "GPU-0", "MemoryInfo": SimpleNamespace(total=150754820096, used=644939776),
    "CudaComputeCapability": (9, 0), "EnforcedPowerLimit": 700000, "PowerManagementDefaultLimit": 700000,
    "ClockInfo": 345, "MaxClockInfo": 1980, "CurrentClocksEventReasons": 1, "Temperature": 32, "PersistenceMode": 1,
    "MigMode": [0, 0], "EccMode": [1, 1], "TotalEccErrors": 0, "RemappedRows": [0, 2, 0, 0],
    "PciInfo": SimpleNamespace(busId=b"00000000:00:06.0"),
    "CurrPcieLinkGeneration": 5, "MaxPcieLinkGeneration": 5, "CurrPcieLinkWidth": 16, "MaxPcieLinkWidth": 16,
}  # fmt: skip
"""What an H200 answered, by the function's name without ``nvmlDeviceGet``."""


class FakeError(Exception):
    """Stands in for NVMLError."""


class Fabric(ctypes.Structure):
    """Stands in for c_nvmlGpuFabricInfo_v2_t."""

    _fields_ = [("state", ctypes.c_ubyte), ("status", ctypes.c_uint)]


class FakeNvml:
    """As many cards as tables are given."""

    NVMLError = FakeError
    c_nvmlGpuFabricInfo_v2_t = Fabric  # noqa: N815

    def __init__(self, *cards: dict[str, Any], fabric: tuple[int, int] | None = None) -> None:
        self.cards, self.fabric = cards, fabric

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.159.04"

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:
        return 13000

    def nvmlDeviceGetCount(self) -> int:
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, number: int) -> dict[str, Any]:
        if not self.cards[number]:
            raise FakeError("GPU is lost")
        return self.cards[number]

    def nvmlDeviceGetGpuFabricInfoV(self, handle: dict[str, Any], answer: Any) -> None:
        if self.fabric is None:
            raise FakeError("Not Supported")
        answer._obj.state, answer._obj.status = self.fabric

    def nvmlDeviceGetNvLinkState(self, handle: dict[str, Any], link: int) -> int:
        states = handle.get("links", ())
        if link >= len(states):
            raise FakeError("Invalid Argument")
        return int(states[link])

    def nvmlDeviceGetNvLinkErrorCounter(self, handle: dict[str, Any], link: int, counter: int) -> int:
        if "errors" not in handle:
            raise FakeError("Not Supported")
        return int(handle["errors"][counter])

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvmlDeviceGet"):
            raise AttributeError(name)
        key = name.removeprefix("nvmlDeviceGet")

        def answer(handle: dict[str, Any], *_: object) -> Any:
            if key not in handle:
                raise FakeError("Not Supported")
            return handle[key]

        return answer
