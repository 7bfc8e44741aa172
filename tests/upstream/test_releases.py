"""Release names, toolchains, containers."""

from __future__ import annotations

import pytest

from trtllm_kit.errors import UsageError
from trtllm_kit.upstream import known_releases, nearest_release, release
from trtllm_kit.upstream.facts import in_range


@pytest.mark.parametrize(
    ("asked", "version"),
    [
        ("1.2.1", "1.2.1"),
        ("1.2", "1.2.1"),
        ("1.0", "1.0.0"),
        ("0.17", "0.17.0.post1"),
        ("1.3.0rc14", "1.3.0rc14"),
        ("1.3rc", "1.3.0rc29"),
        ("main", "main"),
        (" 1.1.0 ", "1.1.0"),
        ("v1.2.1", "1.2.1"),
        ("1.2.1.0", "1.2.1"),
        ("1", "1.0.0"),
        ("1.3rc14", "1.3.0rc14"),
        ("0.17.0post1", "0.17.0.post1"),
    ],
)
def test_a_series_means_its_newest_release(asked: str, version: str) -> None:
    """Exact names stay, two-part names mean the newest of the series, container builds are never meant."""
    assert version == release(asked).version


@pytest.mark.parametrize(
    "asked", ["1.2.5", "9.9", "latest", "", "1.3.0rc99", "v1.2.1-dirty", "1.3.0rc14.dev2", "1.2.1+mine"]
)
def test_an_unknown_release_lists_the_known_ones(asked: str) -> None:
    """The error names what was asked and every release the kit knows."""
    with pytest.raises(UsageError) as caught:
        release(asked)
    assert repr(asked) in caught.value.what
    assert "1.2.1" in caught.value.why
    assert "main" in caught.value.why
    assert 2 == caught.value.exit_code


def test_every_listed_release_can_be_asked_for() -> None:
    """No row of the table is out of reach."""
    assert list(known_releases()) == [release(name).version for name in known_releases()]


@pytest.mark.parametrize(
    ("version", "toolchains"),
    [
        ("0.21.0", ("trtllm-build", "mock")),
        ("1.0.0", ("trtllm-build", "llm-api", "mock")),
        ("1.2.1", ("trtllm-build", "llm-api", "mock")),
        ("1.3.0rc20", ("trtllm-build", "llm-api", "mock")),
        ("1.3.0rc21", ("llm-api",)),
        ("main", ("llm-api",)),
    ],
)
def test_engines_end_with_1_3_0rc20_and_the_pytorch_backend_begins_with_1_0(
    version: str, toolchains: tuple[str, ...]
) -> None:
    """The two worlds overlap from 1.0 to 1.3.0rc20; mock follows trtllm-build."""
    assert toolchains == release(version).toolchains


def test_the_container_named_is_the_newest_that_serves_the_llmapi_model() -> None:
    """1.2.1 is in four containers, of which 26.07 cannot import the model; main is in none."""
    assert "nvcr.io/nvidia/tritonserver:26.06-trtllm-python-py3" == release("1.2.1").image
    assert release("1.2.1").images[-1].startswith("nvcr.io/nvidia/tritonserver:26.07")
    assert release("main").image is None


@pytest.mark.parametrize("version", ["0.18.1", "1.0.1", "1.0.2", "1.3.0rc14"])
def test_a_row_lends_its_containers_and_its_date_to_no_other_release(version: str) -> None:
    """Container 25.11 holds 1.0.3.2510 and not 1.0.1; when a release of a span came out is not known."""
    assert ((), None) == (release(version).images, release(version).date)
    assert release("1.0.3.2510").image is not None
    assert "2026-06-30" == release("1.3.0rc20").date


@pytest.mark.parametrize(
    ("version", "since", "nearest"),
    [
        ("0.20.0", "1.0.0", "1.0.0"),
        ("1.0.0", "0.12.0", "1.0.3.2510"),
        ("1.3.0rc14", "1.1.0", "1.2.1"),
        ("main", "0.12.0", "1.2.1"),
        ("1.2.1", "1.3.0rc0", "main"),
    ],
)
def test_the_nearest_release_is_the_first_later_one_in_a_container(version: str, since: str, nearest: str) -> None:
    """Without a later one it is the last earlier one in a container, and only then one that is in none."""
    assert nearest == nearest_release(version, lambda name: in_range(name, since, None))


def test_there_is_no_nearest_release_when_none_suits() -> None:
    """The question has an answer for every release, and that may be none."""
    assert nearest_release("1.2.1", lambda name: False) is None


def test_the_llmapi_model_comes_with_0_19() -> None:
    """Older containers cannot serve the llmapi model."""
    assert not release("0.18.2").triton_llmapi_model
    assert release("0.19.0").triton_llmapi_model
