"""``trtkit estimate`` with servers that part the work, and with another package's step times."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.cli import config_folder, trtkit
from tests.tune.test_aic import TABLES, answering

LOAD = ("--profile", "h200x8-offline", "--isl", "1024", "--osl", "64", "--concurrency", "16")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with the config.json of Llama 3.1 70B."""
    return config_folder(tmp_path_factory.mktemp("models"), "llama-3.1-70b")


def test_servers_for_prompts_are_told_in_text(model: Path) -> None:
    """The text says how many do what, what a prompt sends over which link, and what binds."""
    ran = trtkit("estimate", model, *LOAD, "--prompt-servers", "3")
    assert 0 == ran.code
    for part in ("3 only for prompts, 5 only for answers", "over NVLink, 1 GPU at", "prompt sent, mean", "binds: "):
        assert part in ran.out


def test_servers_for_prompts_have_intervals(model: Path) -> None:
    """The object counts both kinds of servers, and every time lies within an interval that is not a point."""
    ran = trtkit("estimate", model, *LOAD, "--prompt-servers", "3", "--json")
    assert {"prompt": 3, "answering": 5} == ran.json["servers"]
    times = [one for one in ran.json["figures"] if one["unit"] == "s" and one["name"] != "queue, mean"]
    assert times
    assert all(one["low"] < one["value"] < one["high"] for one in times)


def test_a_rate_beyond_servers_for_prompts_breaks_the_promise(model: Path) -> None:
    """Requests that pile up before one prompt server exit with 1."""
    load = ("--profile", "h200x8-offline", "--isl", "1024", "--osl", "8", "--rate", "200")
    ran = trtkit("estimate", model, *load, "--prompt-servers", "1")
    assert 1 == ran.code
    assert "requests come faster than they are answered" in ran.out


def test_no_server_is_left_to_answer(model: Path) -> None:
    """As many prompt servers as replicas are refused with the GPUs that one more would need."""
    ran = trtkit("estimate", model, *LOAD, "--prompt-servers", "8")
    assert 2 == ran.code
    assert "9 servers of 1 GPU take 9; h200x8-700w has 8" in ran.err


@pytest.mark.parametrize("parted", [(), ("--prompt-servers", "4")])
def test_step_times_of_another_package_are_named_in_every_figure(
    model: Path, tmp_path: Path, parted: tuple[str, ...]
) -> None:
    """Each figure of steps names package and version and claims no interval; what links take stays the kit's."""
    ran = trtkit("estimate", model, *LOAD, *parted, "--step-times", answering(tmp_path, TABLES), "--json")
    assert 0 == ran.code
    own = {"prompt sent, mean", "links of prompt servers at work"} if parted else set()
    assert own == {one["name"] for one in ran.json["figures"] if one["source"] != "aiconfigurator-core 0.12.0"}
    assert own == {one["name"] for one in ran.json["figures"] if one["low"] is not None}


def test_step_times_of_another_package_are_those_of_its_tables(model: Path, tmp_path: Path) -> None:
    """Two users a replica whose tables say 5 ms, 1 ms a request and 1 ms each thousand cached tokens: about 8 ms."""
    ran = trtkit("estimate", model, *LOAD, "--step-times", answering(tmp_path, TABLES), "--json")
    later = next(one["value"] for one in ran.json["figures"] if one["name"] == "later token, mean")
    assert 7.5e-3 < later < 9e-3
    text = trtkit("estimate", model, *LOAD, "--step-times", answering(tmp_path, TABLES))
    assert "not stated" in text.out


def test_a_python_without_the_package_is_told_how_to_get_it(model: Path, tmp_path: Path) -> None:
    """The import that fails is the reason, and installing it the one thing to try."""
    python = answering(tmp_path, "import aiconfigurator_core")
    ran = trtkit("estimate", model, *LOAD, "--step-times", python)
    assert 3 == ran.code
    assert "No module named 'aiconfigurator_core'" in ran.err
    assert "try: pip install aiconfigurator-core" in ran.err


def test_a_package_without_data_is_not_told_to_be_installed(model: Path, tmp_path: Path) -> None:
    """Model and card are named with what the package said, and the kit's own step times are the way on."""
    python = answering(tmp_path, "sys.exit('no measurements for this family')")
    ran = trtkit("estimate", model, *LOAD, "--step-times", python)
    assert 3 == ran.code
    assert f"{os.fspath(model)} on h200_sxm" in ran.err
    assert "no measurements for this family" in ran.err
    assert "try: trtkit estimate without it" in ran.err


def test_a_card_it_never_measured_is_refused_before_it_is_asked(tmp_path: Path) -> None:
    """The package has no GH200: it is named with the cards that it has, and no program is started."""
    model = config_folder(tmp_path, "llama-3.1-70b")
    load = ("--profile", "gh200-nvl32-llama3.1-70b-fp8", "--isl", "1024", "--osl", "64")
    ran = trtkit("estimate", model, *load, "--step-times", tmp_path / "nowhere")
    assert 2 == ran.code
    assert "aiconfigurator has no measurements of" in ran.err
