"""Metric families, precedence and containers by release."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from trtllm_kit.upstream import known_releases, release
from trtllm_kit.upstream.metrics import families_of
from trtllm_kit.upstream.precedence import precedence
from trtllm_kit.upstream.stack import container

PROMETHEUS = "/prometheus/metrics"


def recorded(shared: Path) -> Any:
    """Read what was recorded of the metrics."""
    document = yaml.safe_load((shared / "contract" / "llmapi-contract.yaml").read_text("utf-8"))
    return document["metrics"]


def test_main_has_exactly_the_recorded_families(shared: Path) -> None:
    """Every family of main's collector with its kind, and no other."""
    groups = recorded(shared)["prometheus"]["main_all"]
    theirs = {f"trtllm_{name.split(' ')[0]}": kind for kind, names in groups.items() for name in names}
    assert theirs == {row.name: row.kind for row in families_of("trtllm-serve", PROMETHEUS, "main")}


def test_a_stable_release_has_five_families() -> None:
    """1.2.1 tells of requests alone; what the KV cache does came with 1.3."""
    names = {row.name for row in families_of("trtllm-serve", PROMETHEUS, "1.2.1")}
    assert 5 == len(names)
    assert "trtllm_kv_cache_utilization" not in names
    assert "trtllm_kv_cache_utilization" in {row.name for row in families_of("trtllm-serve", PROMETHEUS, "1.3.0rc20")}
    assert () == families_of("trtllm-serve", PROMETHEUS, "1.0.0")


def test_the_records_of_an_iteration_have_the_recorded_fields(shared: Path) -> None:
    """What /metrics answers in every release with an LLM API, and what main adds."""
    page = recorded(shared)["json_endpoint"]
    sections = ("kvCacheStats", "inflightBatchingStats", "specDecodingStats")
    always = set(page["top"]) | {f"{name}.{field}" for name in sections for field in page[name]}
    assert always == {row.name for row in families_of("trtllm-serve", "/metrics", "1.0.0")}
    assert set(page["main_extra"]) <= {row.name for row in families_of("trtllm-serve", "/metrics", "main")} - always


@pytest.mark.parametrize(
    ("version", "yaml_wins", "certainty"),
    [("1.0.0", True, "read"), ("1.2.1", True, "read"), ("1.3.0rc14", True, "near"), ("1.3.0rc20", False, "near"),
     ("main", False, "read")],
)  # fmt: skip
def test_who_wins_flipped_with_1_3(version: str, yaml_wins: bool, certainty: str) -> None:
    """Up to early 1.3 the YAML overwrites the command line; later the command line overwrites it."""
    found = precedence(version)
    assert found is not None
    assert (yaml_wins, certainty) == (found.yaml_wins, found.certainty)


def test_before_the_llm_api_nothing_is_said_of_precedence() -> None:
    """Engines are served by Triton's parameters alone."""
    assert precedence("0.21.0") is None


def test_every_container_holds_the_release_that_names_it() -> None:
    """The tags of the releases and those of the containers are the same, and agree on what is inside."""
    for version in known_releases():
        for image in release(version).images:
            found = container(image.rpartition(":")[2].partition("-")[0])
            assert found is not None, image
            assert version == found.trtllm


@pytest.mark.parametrize(
    ("tag", "tensorrt", "cuda", "driver", "python"),
    [
        ("24.08", "10.3.0", "12.5.1", "555.42.06", "3.10.12"),
        ("25.10", "10.11.0.33", "12.9.1", "575.57.08", "3.12.3"),
        ("26.07", "10.14.1.48", "13.1", "590.44.01", "3.12.3"),
    ],
)
def test_what_a_container_brings(tag: str, tensorrt: str, cuda: str, driver: str, python: str) -> None:
    """TensorRT, CUDA, driver and Python of a tag."""
    found = container(tag)
    assert found is not None
    assert (tensorrt, cuda, driver, python) == (found.tensorrt, found.cuda, found.driver, found.python)
