"""Asks the CUDA driver by ctypes and prints one JSON object: its version, NVLink multicast, and who reads whose memory.

Functions and attributes: cuda.h of CUDA 12. No context is made.
"""

import ctypes
import json
from typing import Any

LIBRARY = "libcuda.so.1"
MULTICAST, MAJOR, MINOR = 132, 75, 76
"""Attributes of a device."""


def main() -> None:
    """Print what the driver tells, or why it tells nothing."""
    try:
        driver = ctypes.CDLL(LIBRARY)
    except OSError as error:
        print(json.dumps({"error": str(error)}))  # noqa: T201 - a program of its own
        return
    print(json.dumps(told(driver)))  # noqa: T201


def told(driver: Any) -> dict[str, Any]:
    """Return what a library like the driver's tells."""
    code = driver.cuInit(0)
    if code != 0:
        return {"error": f"cuInit: CUDA error {code}"}
    count = _number(driver.cuDeviceGetCount) or 0
    version = _number(driver.cuDriverGetVersion)
    cards = [
        {
            "multicast": _attribute(driver, number, MULTICAST),
            "major": _attribute(driver, number, MAJOR),
            "minor": _attribute(driver, number, MINOR),
        }
        for number in range(count)
    ]
    peers = [
        [one, other, _number(driver.cuDeviceCanAccessPeer, one, other)]
        for one in range(count)
        for other in range(count)
        if one != other
    ]
    found: dict[str, Any] = {"cards": cards, "peers": peers}
    return found | ({"cuda": f"{version // 1000}.{version % 1000 // 10}"} if version else {})


def _number(function: Any, *arguments: int) -> int | None:
    value = ctypes.c_int()
    return value.value if function(ctypes.byref(value), *arguments) == 0 else None


def _attribute(driver: Any, device: int, attribute: int) -> int | None:
    return _number(driver.cuDeviceGetAttribute, attribute, device)


if __name__ == "__main__":
    main()
