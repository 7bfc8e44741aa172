"""The GPUs of this machine, asked of the driver through NVML. What is not answered is left out, never taken for 0.

Functions and constants: nvml.h of CUDA 12 and 13. Units are turned into base units here: W, bytes, degrees Celsius,
shares from 0 to 1.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

from trtllm_kit.health.snapshot import Labels

Families = dict[str, dict[Labels, float]]
LIBRARY = "libnvidia-ml.so.1"
MOST_LINKS = 36
_OK = 0
_UNCORRECTED, _VOLATILE, _ON_DIE = 1, 0, 0
_LINK_COUNTERS = {"replay": 0, "recovery": 1, "crc_flit": 2}
_LINK_FIELDS = {"replay": 52, "recovery": 59, "crc_flit": 38}
"""Sums over all links, for GPUs whose links are not asked one by one."""


class _Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]  # ctypes wants a list


class _Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class _Field(ctypes.Structure):
    _fields_ = [
        ("fieldId", ctypes.c_uint),
        ("scopeId", ctypes.c_uint),
        ("timestamp", ctypes.c_longlong),
        ("latencyUsec", ctypes.c_longlong),
        ("valueType", ctypes.c_int),
        ("nvmlReturn", ctypes.c_int),
        ("value", ctypes.c_ulonglong),
    ]


def read_gpus(library: Any = None) -> tuple[Families, str]:
    """Read every GPU; returns families by GPU, and why nothing could be read, or an empty text.

    ``library`` stands in for the driver's own.
    """
    try:
        nvml = ctypes.CDLL(LIBRARY) if library is None else library
        if (code := nvml.nvmlInit_v2()) != _OK:
            return {}, f"the driver does not answer: NVML error {code}"
        count = ctypes.c_uint()
        if (code := nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))) != _OK:
            return {}, f"the driver does not tell its GPUs: NVML error {code}"
    except (OSError, AttributeError) as error:
        return {}, f"there is no NVIDIA driver here: {error}"
    found: Families = {}
    lost = [number for number in range(count.value) if not _read(nvml, number, found)]
    nvml.nvmlShutdown()
    if lost:
        return (
            found,
            f"GPU {', '.join(map(str, lost))} of {count.value} does not answer: it may have fallen off the bus",
        )
    return found, "" if count.value else "the driver has no GPU"


def _read(nvml: Any, number: int, found: Families) -> bool:
    """Add one GPU's numbers; false where it cannot be reached."""
    handle, uuid = ctypes.c_void_p(), ctypes.create_string_buffer(96)
    if nvml.nvmlDeviceGetHandleByIndex_v2(number, ctypes.byref(handle)) != _OK:
        return False
    if nvml.nvmlDeviceGetUUID(handle, uuid, 96) != _OK:
        return False
    labels: Labels = (("uuid", uuid.value.decode("ascii", "replace")),)
    for name, value in (*_numbers(nvml, handle), *_links(nvml, handle)):
        found.setdefault(f"trtkit_gpu_{name}", {})[labels] = value
    return True


def _numbers(nvml: Any, handle: Any) -> Iterator[tuple[str, float]]:
    utilization, memory = _Utilization(), _Memory()
    if _asked(nvml, "nvmlDeviceGetUtilizationRates", handle, utilization):
        yield "utilization", utilization.gpu / 100
    if _asked(nvml, "nvmlDeviceGetMemoryInfo", handle, memory):
        yield "memory_used_bytes", float(memory.used)
        yield "memory_total_bytes", float(memory.total)
    for name, function, scale in (
        ("power_watts", "nvmlDeviceGetPowerUsage", 1e-3),
        ("power_limit_watts", "nvmlDeviceGetEnforcedPowerLimit", 1e-3),
    ):
        value = ctypes.c_uint()
        if _asked(nvml, function, handle, value):
            yield name, value.value * scale
    value = ctypes.c_uint()
    if _asked(nvml, "nvmlDeviceGetTemperature", handle, _ON_DIE, value):
        yield "temperature_celsius", float(value.value)
    reasons = ctypes.c_ulonglong()
    if any(_asked(nvml, f"nvmlDeviceGetCurrentClocks{word}Reasons", handle, reasons) for word in ("Event", "Throttle")):
        yield "clock_reasons", float(reasons.value)
    energy = ctypes.c_ulonglong()
    if _asked(nvml, "nvmlDeviceGetTotalEnergyConsumption", handle, energy):
        yield "energy_joules", energy.value * 1e-3
    errors = ctypes.c_ulonglong()
    if _asked(nvml, "nvmlDeviceGetTotalEccErrors", handle, _UNCORRECTED, _VOLATILE, errors):
        yield "ecc_uncorrected", float(errors.value)
    rows = [ctypes.c_uint() for _ in range(4)]  # corrected, uncorrected, pending, failed
    if _function(nvml, "nvmlDeviceGetRemappedRows")(handle, *map(ctypes.byref, rows)) == _OK:
        yield "row_remap_failed", float(rows[3].value)


def _links(nvml: Any, handle: Any) -> Iterator[tuple[str, float]]:
    """Add up the errors of all links that are up; where links are not told one by one, the sums of the driver."""
    active = list(_active_links(nvml, handle))
    for kind, counter in _LINK_COUNTERS.items():
        values = []
        for link in active:
            value = ctypes.c_ulonglong()
            if _asked(nvml, "nvmlDeviceGetNvLinkErrorCounter", handle, link, counter, value):
                values.append(float(value.value))
        if values:
            yield f"nvlink_{kind}_errors_total", sum(values)
            continue
        field = _Field(fieldId=_LINK_FIELDS[kind])
        asked = _function(nvml, "nvmlDeviceGetFieldValues")(handle, 1, ctypes.byref(field))
        if asked == _OK and field.nvmlReturn == _OK:
            yield f"nvlink_{kind}_errors_total", float(field.value)


def _active_links(nvml: Any, handle: Any) -> Iterator[int]:
    for link in range(MOST_LINKS):
        state = ctypes.c_uint()
        if not _asked(nvml, "nvmlDeviceGetNvLinkState", handle, link, state):
            return
        if state.value:
            yield link


def _asked(nvml: Any, name: str, *arguments: Any) -> bool:
    """Call a function whose last argument takes the answer; whether there is one."""
    *given, answer = arguments
    return _function(nvml, name)(*given, ctypes.byref(answer)) == _OK


def _function(nvml: Any, name: str) -> Callable[..., int]:
    """Return a function of the library; an older driver that lacks it does not support what it tells."""
    try:
        found: Callable[..., int] = getattr(nvml, name)
    except AttributeError:
        return lambda *_: -1
    return found
