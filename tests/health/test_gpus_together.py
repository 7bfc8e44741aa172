"""GPUs of which several tell: Triton, the DCGM exporter of one host or more, NVML. Each counts once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.health.support import NOW, engine_page, snapshot
from tests.health.test_changes import histogram
from trtllm_kit.health.judge import judge
from trtllm_kit.health.load import shipped_rules
from trtllm_kit.health.memory import NOTHING, USUAL_AFTER, Run, Usual
from trtllm_kit.health.metrics import METRICS
from trtllm_kit.health.snapshot import NoReading, Reading, Trouble
from trtllm_kit.health.verdict import State


def triton(**gpus: float) -> str:
    """Write Triton's utilisation of some GPUs."""
    return engine_page(active=1) + "".join(
        f'nv_gpu_utilization{{gpu_uuid="{gpu}"}} {busy}\n' for gpu, busy in gpus.items()
    )


def dcgm(host: str, family: str = "GPU_UTIL", **gpus: float) -> str:
    """Write what the exporter of a host says of its GPUs."""
    rows = [f'DCGM_FI_DEV_{family}{{UUID="{gpu}",Hostname="{host}"}} {value}\n' for gpu, value in gpus.items()]
    return "".join(rows)


def nvml(family: str = "utilization", **gpus: float) -> str:
    """Write what the driver says of this machine's GPUs."""
    return "".join(f'trtkit_gpu_{family}{{uuid="{gpu}"}} {value}\n' for gpu, value in gpus.items())


@pytest.mark.parametrize(
    ("text", "mean", "detail"),
    [
        (triton(a=0.8, b=0.6), 0.7, "0.6 to 0.8 over 2 GPUs"),
        (triton(a=0.8) + dcgm("h", a=10), 0.8, "1 GPU"),
        (triton(a=0.8) + dcgm("h", a=10, other=0), 0.8, "1 GPU"),
        (triton(a=0.8) + nvml(a=0.1, other=0.0), 0.8, "1 GPU"),
        (triton(a=0.8) + dcgm("h", a=10) + dcgm("far", c=40), 0.6, "0.4 to 0.8 over 2 GPUs"),
        (dcgm("h", a=80, b=60), 0.7, "0.6 to 0.8 over 2 GPUs"),
        (dcgm("h", a=80) + nvml(a=0.1, b=0.6), 0.7, "0.6 to 0.8 over 2 GPUs"),
        (triton(a=0.8) + dcgm("h", b=20), 0.5, "0.2 to 0.8 over 2 GPUs"),
    ],
    ids=["triton", "both", "the host has more", "the driver has more", "another host", "exporter", "two", "no overlap"],
)
def test_one_gpu_counts_once(text: str, mean: float, detail: str) -> None:
    """The server's own page goes first; of its own host only the GPUs that it names count, of another host all."""
    reading = METRICS["gpu_utilization"].read(snapshot(text))[""]
    assert isinstance(reading, Reading)
    assert (pytest.approx(mean), detail) == (reading.value, reading.detail)


def test_what_one_does_not_tell_another_does() -> None:
    """A GPU whose number the exporter could not read is read of the driver, and the other is not hidden by it."""
    text = engine_page() + dcgm("h", "GPU_TEMP", a=9223372036854775794, b=70) + nvml("temperature_celsius", a=88)
    reading = METRICS["gpu_temperature"].read(snapshot(text))[""]
    assert isinstance(reading, Reading)
    assert (88.0, "a", "DCGM_FI_DEV_GPU_TEMP|trtkit_gpu_temperature_celsius") == (
        reading.value, reading.detail, reading.source
    )  # fmt: skip


def test_power_and_its_limit_may_come_of_two() -> None:
    """The share of the limit is of one GPU, whoever tells its power and whoever its limit."""
    text = engine_page() + 'nv_gpu_power_usage{gpu_uuid="a"} 350\n' + dcgm("h", "POWER_MGMT_LIMIT", a=700, b=350)
    reading = METRICS["gpu_power_usage"].read(snapshot(text))[""]
    assert isinstance(reading, Reading)
    assert 0.5 == reading.value


def test_jitter_is_shown_with_the_errors_of_links() -> None:
    """First tokens that swing are told with how many errors each GPU's links made meanwhile."""
    rule = next(rule for rule in shipped_rules() if rule.name == "ttft-jitter")
    pages = [
        of_ttft(0.1, count) + dcgm("h", "NVLINK_REPLAY_ERROR_COUNT_TOTAL", a=errors, b=7)
        for count, errors in ((0, 5), (100, 8))
    ]
    memory = replace(
        NOTHING, usual={("ttft_jitter", ""): Usual(USUAL_AFTER, 0.05)}, runs={("ttft-jitter", ""): Run(1, fired=False)}
    )
    (finding,) = judge(rule, [snapshot(pages[0], -300.0), snapshot(pages[1])], memory)
    assert State.WARNING is finding.state
    assert "nvlink_errors: a 3, b 0" in finding.message


def of_ttft(mean: float, count: int) -> str:
    """Write the histogram of so many first tokens."""
    return engine_page() + histogram("trtllm_time_to_first_token_seconds", count, count, count, total=mean * count)


@pytest.mark.parametrize(("first", "second"), [(1, 200), (200, 1)])
def test_the_oldest_of_several_decides_whether_it_is_stale(first: int, second: int) -> None:
    """A number that is put together of two exporters is stale when one of them is."""
    rows = [
        f'DCGM_FI_DEV_GPU_TEMP{{UUID="a"}} 60 {round((NOW - first) * 1000)}\n',
        f'DCGM_FI_DEV_GPU_TEMP_CELSIUS{{UUID="b"}} 60 {round((NOW - second) * 1000)}\n',
    ]
    reading = METRICS["gpu_temperature"].read(snapshot(engine_page() + "".join(rows)))[""]
    assert isinstance(reading, NoReading)
    assert Trouble.STALE is reading.trouble
