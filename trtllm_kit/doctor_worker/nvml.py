"""Asks the driver of every GPU through NVML (nvidia-ml-py) and prints one JSON object; what is not told is left out.

Names are those of ``doctor.facts.Card``; constants and functions those of nvml.h.
"""

import json
from collections.abc import Callable
from typing import Any

MOST_LINKS = 36
ERRORS = {"replay": 0, "recovery": 1, "crc_flit": 2}
SUMS = {"replay": 52, "recovery": 59, "crc_flit": 38}
"""Fields that add up all links, where they are not asked one by one."""
FABRIC_QUESTIONS = (
    ("c_nvmlGpuFabricInfo_v3_t", "nvmlDeviceGetGpuFabricInfoV"),
    ("c_nvmlGpuFabricInfo_v2_t", "nvmlDeviceGetGpuFabricInfoV"),
)
"""Structures of nvidia-ml-py and the functions that fill them, without the first: 13.x has its fields elsewhere."""
FABRIC = {0: "not supported", 1: "not started", 2: "in progress", 3: "completed"}


def main() -> None:
    """Print what the driver tells, or why it tells nothing."""
    try:
        import pynvml as nvml

        nvml.nvmlInit()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}))  # noqa: T201 - a program of its own
        return
    print(json.dumps(told(nvml)))  # noqa: T201


def told(nvml: Any) -> dict[str, Any]:
    """Return what a module like pynvml tells of the machine."""
    found: dict[str, Any] = {"driver": _text(nvml.nvmlSystemGetDriverVersion())}
    cuda = _asked(nvml, "nvmlSystemGetCudaDriverVersion_v2")
    if cuda is not None:
        found["cuda"] = f"{cuda // 1000}.{cuda % 1000 // 10}"
    cards, lost = [], []
    for number in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(number)
            card = {"index": number, "name": _text(nvml.nvmlDeviceGetName(handle))}
        except nvml.NVMLError as error:
            lost.append([number, str(error)])
            continue
        cards.append({name: value for name, value in (card | _card(nvml, handle)).items() if value is not None})
    return found | {"cards": cards, "lost": lost}


def _card(nvml: Any, handle: Any) -> dict[str, Any]:
    ask: Callable[..., Any] = lambda name, *rest: _asked(nvml, name, handle, *rest)  # noqa: E731
    memory, capability = ask("nvmlDeviceGetMemoryInfo"), ask("nvmlDeviceGetCudaComputeCapability")
    mig, ecc, rows = ask("nvmlDeviceGetMigMode"), ask("nvmlDeviceGetEccMode"), ask("nvmlDeviceGetRemappedRows")
    pci, reasons = ask("nvmlDeviceGetPciInfo"), ask("nvmlDeviceGetCurrentClocksEventReasons")
    reasons = ask("nvmlDeviceGetCurrentClocksThrottleReasons") if reasons is None else reasons
    persistence = ask("nvmlDeviceGetPersistenceMode")
    return {
        "uuid": _text(ask("nvmlDeviceGetUUID")),
        "bus": _text(pci.busId) if pci is not None else None,
        "compute_capability": capability[0] * 10 + capability[1] if capability else None,
        "memory_bytes": memory.total if memory is not None else None,
        "memory_used_bytes": memory.used if memory is not None else None,
        "power_limit_watts": _thousandth(ask("nvmlDeviceGetEnforcedPowerLimit")),
        "power_default_watts": _thousandth(ask("nvmlDeviceGetPowerManagementDefaultLimit")),
        "clock_mhz": ask("nvmlDeviceGetClockInfo", 1),
        "clock_most_mhz": ask("nvmlDeviceGetMaxClockInfo", 1),
        "clock_reasons": reasons,
        "temperature": ask("nvmlDeviceGetTemperature", 0),
        "persistence": None if persistence is None else bool(persistence),
        "mig": None if mig is None else bool(mig[0]),
        "ecc": None if ecc is None else bool(ecc[0]),
        "ecc_uncorrected": ask("nvmlDeviceGetTotalEccErrors", 1, 0),
        "remap_pending": None if rows is None else bool(rows[2]),
        "remap_failed": None if rows is None else bool(rows[3]),
        "pcie_generation": ask("nvmlDeviceGetCurrPcieLinkGeneration"),
        "pcie_generation_most": ask("nvmlDeviceGetMaxPcieLinkGeneration"),
        "pcie_lanes": ask("nvmlDeviceGetCurrPcieLinkWidth"),
        "pcie_lanes_most": ask("nvmlDeviceGetMaxPcieLinkWidth"),
        **_fabric(nvml, handle),
        **_links(nvml, handle),
    }


def _fabric(nvml: Any, handle: Any) -> dict[str, Any]:
    """Return the state of the registration with the NVLink fabric, by the newest structure that the driver fills."""
    import ctypes

    for structure, function in FABRIC_QUESTIONS:
        answer = getattr(nvml, structure)() if hasattr(nvml, structure) else None
        if answer is not None and _filled(nvml, function, handle, ctypes.byref(answer)):
            state, status = FABRIC.get(int(answer.state)), int(answer.status)
            told_status = ("success" if status == 0 else f"NVML error {status}") if state == "completed" else None
            return {"fabric": state, "fabric_status": told_status}
    return {}


def _filled(nvml: Any, function: str, handle: Any, answer: Any) -> bool:
    """Whether a driver fills a structure; an older one does not know it."""
    try:
        getattr(nvml, function)(handle, answer)
    except (AttributeError, nvml.NVMLError):
        return False
    return True


def _links(nvml: Any, handle: Any) -> dict[str, Any]:
    """Count the NVLinks that are up and down, and add up their errors."""
    states = []
    for link in range(MOST_LINKS):
        state = _asked(nvml, "nvmlDeviceGetNvLinkState", handle, link)
        if state is None:
            break
        states.append(bool(state))
    errors = {}
    for kind, counter in ERRORS.items():
        up = (link for link, is_up in enumerate(states) if is_up)
        told_of = [_asked(nvml, "nvmlDeviceGetNvLinkErrorCounter", handle, link, counter) for link in up]
        values = [value for value in told_of if value is not None] or _sum_of_links(nvml, handle, kind)
        if values:
            errors[kind] = sum(values)
    found: dict[str, Any] = {"link_errors": errors}
    return found | ({"links_up": sum(states), "links_down": len(states) - sum(states)} if states else {})


def _sum_of_links(nvml: Any, handle: Any, kind: str) -> list[int]:
    fields = _asked(nvml, "nvmlDeviceGetFieldValues", handle, [SUMS[kind]])
    return [int(fields[0].value.ullVal)] if fields and fields[0].nvmlReturn == 0 else []


def _asked(nvml: Any, name: str, *arguments: Any) -> Any:
    """Call a function; None where the module or the driver has none such, or the card does not support it."""
    try:
        return getattr(nvml, name)(*arguments)
    except (AttributeError, nvml.NVMLError, TypeError):
        return None


def _text(value: Any) -> str | None:
    return value.decode("ascii", "replace") if isinstance(value, bytes) else value


def _thousandth(value: Any) -> float | None:
    return None if value is None else value / 1e3


if __name__ == "__main__":
    main()
