"""The verb, run as its users and cron run it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.health.support import answers, engine_page, free_port, page, stub_server
from tests.support.cli import trtkit
from trtllm_kit.cli import check_options
from trtllm_kit.health import check

PROFILE = "cpu-rehearsal-simulated"


def test_a_healthy_server_is_one_line_and_exit_0() -> None:
    """With a profile and a URL the line says OK, and the rule that the rehearsal cannot have is listed."""
    with stub_server(answers(page("triton-2.51-heartbeat-idle-1"), page("triton-2.51-heartbeat-idle-2"))) as url:
        ran = trtkit("check-health", "--profile", PROFILE, "--url", url, "--interval", "0.1")
    first, *rest = ran.out.splitlines()
    assert first.startswith("TRTKIT OK: ")
    assert any("gpu-utilization, " in line and line.endswith(": hardware cpu-rehearsal has no GPU") for line in rest)
    assert all(line.startswith("[not applicable] ") for line in rest)
    assert (0, "") == (ran.code, ran.err)


def test_json_is_the_same_verdict() -> None:
    """--json prints the object whose state and exit code the line shows."""
    with stub_server(answers(engine_page(queued=50))) as url:
        ran = trtkit("check-health", "--json", "--profile", PROFILE, "--url", url, "--interval", "0.1")
    assert (1, "WARNING", 1) == (ran.code, ran.json["state"], ran.json["exit_code"])
    assert "queue-depth" == ran.json["findings"][0]["rule"]


def test_without_a_profile_the_shipped_rules_stand() -> None:
    """A URL alone is judged by every shipped rule, so a server without GPUs is UNKNOWN."""
    with stub_server(answers(engine_page())) as url:
        ran = trtkit("check-health", "--url", url, "--samples", "1")
    assert 3 == ran.code
    assert "gpu-utilization: no usable number: the page has no such series" in ran.out
    assert "a server without a GPU has none: give --profile or --repository" in ran.out


def test_a_refusing_server_is_exit_2() -> None:
    """Nothing that listens is CRITICAL."""
    ran = trtkit("check-health", "--profile", PROFILE, "--url", f"http://127.0.0.1:{free_port()}/metrics")
    assert 2 == ran.code
    assert ran.out.startswith("TRTKIT CRITICAL: scrape: ")


def test_verbose_shows_where_each_number_was_read() -> None:
    """--verbose lists the findings that are OK too, each with its source."""
    with stub_server(answers(engine_page())) as url:
        ran = trtkit("check-health", "-v", "--profile", PROFILE, "--url", url, "--samples", "1")
    assert '  read from: nv_trt_llm_request_metrics{request_type="queued"}' in ran.out.splitlines()


def test_a_profile_changes_the_alerts(tmp_path: Path) -> None:
    """The profile's threshold and severity are used; a wrong name is UNKNOWN with a suggestion on stderr."""
    right, wrong = tmp_path / "right.yaml", tmp_path / "wrong.yaml"
    head = f"base: {PROFILE}\nschema_version: 1\nname: mine\nalerts:\n"
    right.write_text(head + '  kv-cache-usage: {ok: "0:0.1", severity: critical}\n')
    wrong.write_text(head + "  kv-cache-use: {samples: 3}\n")
    with stub_server(answers(engine_page())) as url:
        critical = trtkit("check-health", "--profile", right, "--url", url, "--samples", "1")
        unknown = trtkit("check-health", "--profile", wrong, "--url", url, "--samples", "1")
    assert 2 == critical.code
    assert "kv-cache-usage (tensorrt_llm/1): 0.12, healthy is 0:0.1" in critical.out
    assert 3 == unknown.code
    assert unknown.out.startswith("TRTKIT UNKNOWN: ")
    assert "did you mean kv-cache-usage?" in unknown.err


@pytest.mark.parametrize("wrong", [["--timeout", "0"], ["--interval", "nan"], ["--samples", "0"], ["--url"], ["--no"]])
def test_a_wrong_option_is_unknown_with_one_line(wrong: list[str]) -> None:
    """A mistyped cron line is UNKNOWN and never reads as a state of the server."""
    ran = trtkit("check-health", "--profile", PROFILE, *wrong)
    assert 3 == ran.code
    (line,) = ran.out.splitlines()
    assert line.startswith("TRTKIT UNKNOWN: ")


def test_the_help_shows_the_defaults_that_hold() -> None:
    """The defaults of the options are those of the check."""
    assert (check_options.INTERVAL_SECONDS, check_options.TIMEOUT_SECONDS) == (
        check.INTERVAL_SECONDS, check.TIMEOUT_SECONDS
    )  # fmt: skip
