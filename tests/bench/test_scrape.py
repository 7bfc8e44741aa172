"""What a server told during a run."""

from __future__ import annotations

from typing import Any

import pytest

from trtllm_kit.bench import scraper
from trtllm_kit.bench.scrape import Scraped
from trtllm_kit.health.access import ANYBODY


def reading(clock: float, values: dict[str, float], reason: str = "") -> dict[str, Any]:
    """Return a reading of a page."""
    return {"clock": clock, "ok": not reason, "reason": reason, "values": values}


def scraped(*readings: dict[str, Any]) -> dict[str, Any]:
    """Return what is kept of a run that began at 100 and took ten seconds."""
    made = Scraped()
    made.readings = list(readings)
    return made.document(100.0, 10.0)


def test_series_that_change_are_kept_on_the_clock_of_the_run() -> None:
    """A reading counts from the start of the run; what stays the same, and what lies outside the run, is left out."""
    found = scraped(
        reading(90.0, {"a": 0.0, "b": 7.0}), reading(101.0, {"a": 1.0, "b": 7.0}), reading(102.5, {"a": 2.0, "b": 7.0})
    )
    assert ([1.0, 2.5], {"a": [1.0, 2.0]}) == (found["seconds"], found["series"])


def test_readings_that_failed_are_counted() -> None:
    """A page that could not be read is told of, with the reason."""
    found = scraped(reading(101.0, {"a": 1.0}), reading(102.0, {}, "refused"))
    assert (1, "refused") == (found["failed"], found["reason"])


@pytest.mark.parametrize(
    ("family", "unit"),
    [
        ("nv_energy_consumption", 1.0),
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 1000.0),
        ("trtkit_gpu_energy_joules", 1.0),
    ],
)
def test_power_is_that_of_all_gpus(family: str, unit: float) -> None:
    """Two GPUs that took 600 and 1,400 joules in two seconds drew 1,000 watts, in the unit of Triton, DCGM and NVML."""
    one, two = f'{family}{{gpu="0"}}', f'{family}{{gpu="1"}}'
    found = scraped(reading(101.0, {one: 5.0, two: 0.0}), reading(103.0, {one: 5.0 + 600 * unit, two: 1400 * unit}))
    assert 1000.0 == pytest.approx(found["watts"])


def test_a_counter_that_began_anew_tells_no_power() -> None:
    """A counter that fell, or that one reading lacks, gives no figure rather than a wrong one."""
    name = "nv_energy_consumption{}"
    assert "watts" not in scraped(reading(101.0, {name: 50.0}), reading(103.0, {name: 10.0}))
    assert "watts" not in scraped(reading(101.0, {name: 50.0}), reading(103.0, {}))
    assert "watts" not in scraped(reading(101.0, {"a": 50.0}))


def test_the_driver_is_asked_where_the_gpus_are_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a page its numbers alone are the reading; a driver that is away makes it a failed one, and says why."""
    told = {"trtkit_gpu_energy_joules": {(("uuid", "GPU-1"),): 7.5}}
    monkeypatch.setattr(scraper, "read_gpus", lambda: (told, ""))
    found = scraper.reading("", ANYBODY, nvml=True)
    assert (True, {'trtkit_gpu_energy_joules{uuid="GPU-1"}': 7.5}) == (found["ok"], found["values"])
    monkeypatch.setattr(scraper, "read_gpus", lambda: ({}, "there is no NVIDIA driver here"))
    assert (False, "there is no NVIDIA driver here") == tuple(
        scraper.reading("", ANYBODY, nvml=True)[key] for key in ("ok", "reason")
    )
