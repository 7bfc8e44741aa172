"""What is known of each GPU, whoever reports it: Triton, the DCGM exporter under old and new names, or NVML. Pure.

Each quantity has one unit here. Values are by GPU (``GPU-...``, a MIG instance after a slash). Names and units:
metrics.cc of the Triton server, dcgm_fields.h of DCGM 4.6 with its aliases, nvml.h; ``trtkit_gpu_*`` is what
``sources.nvml`` reads.
DCGM writes what it could not read as a huge number; such a value is left out, and so is missing, never zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from trtllm_kit.health.ranges import format_number
from trtllm_kit.health.snapshot import Labels, Measured, NoReading, Reading, Snapshot, Trouble, Unit

WHOLE_SERVER = ""
BLANK_VALUE = 140737488355328.0
"""DCGM's mark for a number it does not have; the one for whole numbers is larger still."""
Family = tuple[str, float]
"""A family's name and what its values are multiplied with."""

UTILIZATION: Sequence[Family] = (
    ("nv_gpu_utilization", 1.0),
    ("DCGM_FI_DEV_GPU_UTIL", 0.01),
    ("DCGM_FI_DEV_GPU_UTIL_RATIO", 0.01),
    ("trtkit_gpu_utilization", 1.0),
)
POWER: Sequence[Family] = (
    ("nv_gpu_power_usage", 1.0),
    ("DCGM_FI_DEV_POWER_USAGE", 1.0),
    ("DCGM_FI_DEV_BOARD_POWER_WATTS", 1.0),
    ("trtkit_gpu_power_watts", 1.0),
)
POWER_LIMIT: Sequence[Family] = (
    ("nv_gpu_power_limit", 1.0),
    ("DCGM_FI_DEV_POWER_MGMT_LIMIT", 1.0),
    ("DCGM_FI_DEV_BOARD_POWER_LIMIT_REQUESTED_WATTS", 1.0),
    ("trtkit_gpu_power_limit_watts", 1.0),
)
TEMPERATURE: Sequence[Family] = (
    ("DCGM_FI_DEV_GPU_TEMP", 1.0),
    ("DCGM_FI_DEV_GPU_TEMP_CELSIUS", 1.0),
    ("trtkit_gpu_temperature_celsius", 1.0),
)
CLOCK_REASONS: Sequence[Family] = (
    ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", 1.0),
    ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", 1.0),
    ("trtkit_gpu_clock_reasons", 1.0),
)
ECC: Sequence[Family] = (("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 1.0), ("trtkit_gpu_ecc_uncorrected", 1.0))
REMAP_FAILED: Sequence[Family] = (
    ("DCGM_FI_DEV_ROW_REMAP_FAILURE", 1.0),
    ("DCGM_FI_DEV_ROW_REMAP_FAILED", 1.0),
    ("trtkit_gpu_row_remap_failed", 1.0),
)
XID: Sequence[Family] = (("DCGM_FI_DEV_XID_ERRORS", 1.0), ("DCGM_FI_DEV_XID_ERROR", 1.0))
NVLINK: Sequence[Sequence[Family]] = tuple(
    (
        (f"DCGM_FI_DEV_NVLINK_{kind}_ERROR_COUNT_TOTAL", 1.0),
        (f"DCGM_FI_DEV_NVLINK_{kind}_ERROR_TOTAL", 1.0),
        (f"trtkit_gpu_nvlink_{kind.lower()}_errors_total", 1.0),
    )
    for kind in ("CRC_FLIT", "REPLAY", "RECOVERY")
)
"""Without CRC_DATA: on two sound H200s that counter grew by 100 a second with the traffic, with not one replay."""
_MEMORY_USED: Sequence[Family] = (
    ("nv_gpu_memory_used_bytes", 1.0),
    ("DCGM_FI_DEV_FB_USED", float(1 << 20)),
    ("trtkit_gpu_memory_used_bytes", 1.0),
)
_MEMORY_TOTAL: Sequence[Family] = (("nv_gpu_memory_total_bytes", 1.0), ("trtkit_gpu_memory_total_bytes", 1.0))
_MEMORY_REST = (("DCGM_FI_DEV_FB_FREE", float(1 << 20)), ("DCGM_FI_DEV_FB_RESERVED", float(1 << 20)))

SW_POWER_CAP, HW_SLOWDOWN, SW_THERMAL, HW_THERMAL, HW_POWER_BRAKE = 4, 8, 32, 64, 128
"""Bits of the reasons for which a clock is lower than it could be."""
_THERMAL = SW_THERMAL | HW_THERMAL | HW_SLOWDOWN | HW_POWER_BRAKE
_ROUNDING = 1e-6
_n = format_number


def by_gpu(snapshot: Snapshot, families: Sequence[Family]) -> tuple[str, Mapping[str, float]]:
    """Return values by GPU, each of the first family that tells of that GPU, and the names of the families.

    Several who report one GPU count once; where nobody does, the first family's name and nothing else.
    """
    found: dict[str, float] = {}
    names: list[str] = []
    for name, scale in families:
        told = _told(snapshot.series.get(name, {}), scale)
        new = {gpu: value for gpu, value in told.items() if gpu not in found}
        if new:
            found |= new
            names.append(name)
    return "|".join(names) or families[0][0], found


def _told(values: Mapping[Labels, float], scale: float) -> dict[str, float]:
    found: dict[str, float] = {}
    for labels, value in values.items():
        if not BLANK_VALUE <= value < math.inf:
            gpu = _gpu(labels)
            found[gpu] = _larger(found.get(gpu, -math.inf), value * scale)
    return found


def _larger(one: float, other: float) -> float:
    """Return the larger of what two series say of the same GPU; what is no number is not hidden by the other."""
    return one if math.isnan(one) or one >= other else other


def _gpu(labels: Labels) -> str:
    names = dict(labels)
    gpu = next((names[key] for key in ("gpu_uuid", "UUID", "uuid", "gpu") if names.get(key)), "a GPU")
    instance = names.get("GPU_I_ID", "")
    return f"{gpu}/{instance}" if instance else gpu


def _utilization(snapshot: Snapshot) -> tuple[str, Mapping[str, float]]:
    """Return the busy share by GPU, without those of the server's own host that it does not use.

    Triton names the GPUs that it sees; an exporter names all of the host, and somebody else may compute on the others.
    """
    name, values = by_gpu(snapshot, UTILIZATION)
    own = {_gpu(labels) for labels in snapshot.series.get(UTILIZATION[0][0], {})}
    if not own or own >= values.keys():
        return name, values
    hosts = {
        _gpu(labels): dict(labels).get("Hostname", "")
        for one, _ in UTILIZATION[1:]
        for labels in snapshot.series.get(one, {})
    }
    its = {hosts[gpu] for gpu in own if gpu in hosts}
    return name, {gpu: value for gpu, value in values.items() if gpu in own or hosts[gpu] not in its}


def mean_utilization(snapshot: Snapshot) -> Measured:
    """Average the share of time in which a kernel ran, 0 to 1, over all GPUs; the detail has the extremes."""
    name, values = _utilization(snapshot)
    wrong = _wrong_shares(name, values)
    if wrong is not None:
        return {WHOLE_SERVER: wrong}
    numbers = list(values.values())
    detail = f"{_n(min(numbers))} to {_n(max(numbers))} over {len(numbers)} GPUs" if len(numbers) > 1 else "1 GPU"
    return {WHOLE_SERVER: Reading(math.fsum(numbers) / len(numbers), Unit.RATIO, name, detail=detail)}


def imbalance(snapshot: Snapshot) -> Measured:
    """Subtract the idlest GPU's share of busy time from the busiest one's; one GPU alone is balanced."""
    name, values = _utilization(snapshot)
    wrong = _wrong_shares(name, values)
    if wrong is not None:
        return {WHOLE_SERVER: wrong}
    low, high = min(values, key=lambda gpu: values[gpu]), max(values, key=lambda gpu: values[gpu])
    detail = f"{low} {_n(values[low])}, {high} {_n(values[high])}"
    return {WHOLE_SERVER: Reading(values[high] - values[low], Unit.RATIO, name, detail=detail)}


def memory_usage(snapshot: Snapshot) -> Measured:
    """Read the share of GPU memory in use, of the fullest GPU."""
    name, used = by_gpu(snapshot, _MEMORY_USED)
    _, total = by_gpu(snapshot, _MEMORY_TOTAL)
    if not total:
        rest = [by_gpu(snapshot, (family,))[1] for family in _MEMORY_REST]
        total = {gpu: value + math.fsum(part.get(gpu, 0.0) for part in rest) for gpu, value in used.items() if rest[0]}
    shares = {gpu: value / total[gpu] for gpu, value in used.items() if total.get(gpu)}
    wrong = _wrong_shares(name, shares)
    return {WHOLE_SERVER: wrong or _worst(shares, Unit.RATIO, name)}


def power_usage(snapshot: Snapshot) -> Measured:
    """Read the power drawn over the power limit, of the GPU nearest to it."""
    name, drawn = by_gpu(snapshot, POWER)
    _, limits = by_gpu(snapshot, POWER_LIMIT)
    shares = {gpu: watts / limits[gpu] for gpu, watts in drawn.items() if limits.get(gpu)}
    if drawn and not shares:
        return {WHOLE_SERVER: NoReading(Trouble.MISSING, "no GPU's power limit is known", POWER_LIMIT[0][0])}
    return {WHOLE_SERVER: _wrong(name, shares) or _worst(shares, Unit.FACTOR, name)}


def temperature(snapshot: Snapshot) -> Measured:
    """Read the temperature of the hottest GPU, degrees Celsius."""
    return _of_worst(snapshot, TEMPERATURE, Unit.CELSIUS)


def throttled(snapshot: Snapshot) -> Measured:
    """Count the GPUs whose clock heat or a power brake holds down."""
    return _held_by(snapshot, _THERMAL)


def power_capped(snapshot: Snapshot) -> Measured:
    """Count the GPUs whose clock the power limit holds down."""
    return _held_by(snapshot, SW_POWER_CAP)


def _held_by(snapshot: Snapshot, bits: int) -> Measured:
    name, reasons = by_gpu(snapshot, CLOCK_REASONS)
    wrong = _wrong(name, reasons)
    if wrong is not None:
        return {WHOLE_SERVER: wrong}
    held = sorted(gpu for gpu, value in reasons.items() if int(value) & bits)
    return {WHOLE_SERVER: Reading(float(len(held)), Unit.COUNT, name, detail=", ".join(held))}


def ecc_errors(snapshot: Snapshot) -> Measured:
    """Count the memory errors that could not be corrected since the driver was loaded, of the worst GPU."""
    return _of_worst(snapshot, ECC, Unit.COUNT)


def remap_failures(snapshot: Snapshot) -> Measured:
    """Tell whether a GPU could not replace a broken row of its memory: 1, else 0."""
    return _of_worst(snapshot, REMAP_FAILED, Unit.COUNT)


def _of_worst(snapshot: Snapshot, families: Sequence[Family], unit: Unit) -> Measured:
    name, values = by_gpu(snapshot, families)
    return {WHOLE_SERVER: _wrong(name, values) or _worst(values, unit, name)}


def _worst(values: Mapping[str, float], unit: Unit, name: str) -> Reading:
    gpu = max(sorted(values), key=lambda one: values[one])
    return Reading(values[gpu], unit, name, detail=gpu if len(values) > 1 else "")


def _wrong(name: str, values: Mapping[str, float]) -> NoReading | None:
    """Say why there is nothing to compare; None when every value is believable."""
    if not values:
        return NoReading(Trouble.MISSING, "the page has no such series", name)
    for gpu, value in sorted(values.items()):
        if not math.isfinite(value):
            return NoReading(Trouble.NOT_A_NUMBER, f"{gpu} is {value}", name)
        if value < 0:
            return NoReading(Trouble.CONTRADICTING, f"{gpu} is {_n(value)}, below 0", name)
    return None


def _wrong_shares(name: str, values: Mapping[str, float]) -> NoReading | None:
    wrong = _wrong(name, values)
    if wrong is not None:
        return wrong
    over = next((gpu for gpu in sorted(values) if values[gpu] > 1 + _ROUNDING), None)
    if over is None:
        return None
    return NoReading(Trouble.CONTRADICTING, f"{over} is at {_n(values[over])}, above 1", name)


READERS: Mapping[str, tuple[Unit, Callable[[Snapshot], Measured], str]] = {
    "gpu_utilization": (Unit.RATIO, mean_utilization, "share of time in which a kernel ran, mean of all GPUs"),
    "gpu_imbalance": (Unit.RATIO, imbalance, "share of busy time of the busiest GPU less that of the idlest"),
    "gpu_memory_usage": (Unit.RATIO, memory_usage, "share of GPU memory in use, of the fullest GPU"),
    "gpu_power_usage": (Unit.FACTOR, power_usage, "power drawn over the power limit, of the GPU nearest to it"),
    "gpu_temperature": (Unit.CELSIUS, temperature, "temperature of the hottest GPU"),
    "gpus_throttled": (Unit.COUNT, throttled, "GPUs slowed down by heat or a power brake"),
    "gpus_power_capped": (Unit.COUNT, power_capped, "GPUs slowed down by their power limit"),
    "gpu_ecc_errors": (Unit.COUNT, ecc_errors, "memory errors not corrected since the driver was loaded"),
    "gpu_remap_failures": (Unit.COUNT, remap_failures, "a GPU could not replace a broken row of its memory"),
}
"""The named metrics of GPUs: unit, reader, summary."""
