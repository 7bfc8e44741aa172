"""Machines at other power limits."""

from __future__ import annotations

import pytest

from trtllm_kit.errors import UsageError
from trtllm_kit.spec.hardware import Hardware
from trtllm_kit.spec.load import hardware_names, load_hardware
from trtllm_kit.tune.power import at_power


def catalogue() -> list[Hardware]:
    """Load every machine."""
    return [load_hardware(name) for name in hardware_names()]


@pytest.mark.parametrize(("watts", "clock"), [(700, 1.8e9), (850, 1.95e9), (1000, 2.1e9)])
def test_the_clock_lies_on_the_line_between_known_limits(watts: float, clock: float) -> None:
    """700 W and 1,000 W are in the catalogue with 1.8 and 2.1 GHz; halfway between them is 1.95 GHz."""
    machine = at_power(load_hardware("h200x8-700w"), watts, catalogue())
    assert machine.clock_hz is not None
    assert machine.power_limit_watts is not None
    assert (clock, watts) == (pytest.approx(machine.clock_hz.value), machine.power_limit_watts.value)
    assert f"h200x8-700w@{watts:g}W" == machine.name


def test_beyond_what_is_known_there_is_no_clock() -> None:
    """A limit outside of the known ones is refused with those that are known."""
    with pytest.raises(UsageError, match="at 500 W") as refused:
        at_power(load_hardware("h200x8-700w"), 500, catalogue())
    assert "700 W at 1.80 GHz, 1000 W at 2.10 GHz" in refused.value.why
