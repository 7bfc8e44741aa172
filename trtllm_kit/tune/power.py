"""A machine under another power limit: the clock its GPUs then keep, from what the catalogue knows of the same GPU."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from trtllm_kit.errors import UsageError
from trtllm_kit.spec.hardware import Figure, Hardware


def at_power(machine: Hardware, watts: float, catalogue: Iterable[Hardware]) -> Hardware:
    """Return a machine whose GPUs run at ``watts``, named ``NAME@WATTSW``.

    The clock is that of a machine with the same GPU and limit, or lies on the line between two of them. Raises
    ``UsageError`` for a limit outside of what is known.
    """
    known = known_clocks(machine, catalogue)
    clock = _between(known, watts)
    if clock is None:
        listed = ", ".join(f"{limit:g} W at {hertz / 1e9:.2f} GHz" for limit, hertz in sorted(known.items())) or "none"
        raise UsageError(
            f"no clock is known for {machine.gpu.name} at {watts:g} W",
            why=f"the catalogue knows {listed}, and says nothing beyond them",
            hint="trtkit estimate without --power-limit, or a limit between those",
        )
    source = f"between the limits that the catalogue knows of this GPU: {watts:g} W"
    limits = {
        "name": f"{machine.name}@{watts:g}W",
        "power_limit_watts": Figure(value=watts, source="--power-limit"),
        "clock_hz": Figure(value=clock, source=source),
    }
    return machine.model_copy(update=limits)


def known_clocks(machine: Hardware, catalogue: Iterable[Hardware]) -> dict[float, float]:
    """Return the clocks, hertz, that machines with the same GPU are said to keep, by their power limit, watts."""
    alike = [one for one in (machine, *catalogue) if one.gpu.name == machine.gpu.name]
    return {one.power_limit_watts.value: one.clock_hz.value for one in alike if one.power_limit_watts and one.clock_hz}


def _between(known: dict[float, float], watts: float) -> float | None:
    if watts in known:
        return known[watts]
    for low, high in pairwise(sorted(known)):
        if low < watts < high:
            return known[low] + (known[high] - known[low]) * (watts - low) / (high - low)
    return None
