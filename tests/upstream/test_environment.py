"""The catalogue of environment variables: values, ranges of releases, near names."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtllm_kit.spec.system_text import MACHINES_OWN
from trtllm_kit.upstream.environment import FAMILIES, near_name, ranges_of, variable, variables

NAMES = sorted({row.name for row in variables()})


@pytest.mark.parametrize("name", [
    "CUDA_DEVICE_MAX_CONNECTIONS", "NCCL_IGNORE_CPU_AFFINITY", "NCCL_DEBUG", "NCCL_NVLS_ENABLE", "NCCL_P2P_LEVEL",
    "NCCL_P2P_DISABLE", "NCCL_IB_DISABLE", "NCCL_IB_HCA", "NCCL_SOCKET_IFNAME", "NCCL_SHM_DISABLE",
    "NCCL_CUMEM_ENABLE", "TRTLLM_ENABLE_PDL", "TRTLLM_LOAD_KV_SCALES", "TRTLLM_USE_UCX_KVCACHE",
    "TRTLLM_SERVER_DISABLE_GC", "TLLM_LOG_LEVEL",
])  # fmt: skip
def test_what_operators_set_is_in_the_catalogue(name: str) -> None:
    """Each of them has a meaning and values in 1.2.1."""
    known = variable(name, "1.2.1")
    assert known is not None
    assert known.does.endswith(".")
    assert known.values


def test_every_row_is_of_one_family_and_may_stand_in_a_profile() -> None:
    """No row is about a variable that a profile refuses, and a default is a value it takes."""
    for row in variables():
        assert row.name.startswith((*FAMILIES, "FORCE_")), row.name
        assert row.name not in MACHINES_OWN
        assert row.default is None or row.accepts(row.default), row.name
        assert (row.takes == "words") == bool(row.allowed), row.name


def test_dependent_launch_becomes_the_default_with_1_2() -> None:
    """Before it the variable switches it on, from then on it only switches it off."""
    defaults = [known.default for name in ("1.1.0", "1.2.0", "main") if (known := variable("TRTLLM_ENABLE_PDL", name))]
    assert ["0", "1", "1"] == defaults


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("TRTLLM_ENABLE_PDL", ["0", "1"], ["true", "", "2", "１"]),
        ("CUDA_DEVICE_MAX_CONNECTIONS", ["1", "8", "32"], ["0", "33", "many", "-1", "1.5", ""]),
        ("NCCL_DEBUG", ["INFO", "WARN", "info"], ["Info?", "ALL", ""]),
        ("NCCL_IB_HCA", ["mlx5_0,mlx5_1", "^mlx5_2"], []),
        ("NCCL_NVLS_ENABLE", ["0", "1", "2"], ["yes"]),
    ],
)
def test_values_are_those_the_reader_knows(name: str, good: list[str], bad: list[str]) -> None:
    """A flag is 0 or 1, a number lies in its range, a word is one of the list."""
    known = variable(name, "1.2.1")
    assert known is not None
    assert all(known.accepts(value) for value in good)
    assert not any(known.accepts(value) for value in bad)


@pytest.mark.parametrize(
    ("name", "bad", "near"),
    [
        ("CUDA_DEVICE_MAX_CONNECTIONS", "99", "32"),
        ("CUDA_DEVICE_MAX_CONNECTIONS", "0", "1"),
        ("CUDA_DEVICE_MAX_CONNECTIONS", "many", None),
        ("NCCL_BUFFSIZE", "9" * 5000, None),
        ("NCCL_IGNORE_CPU_AFFINITY", "yes", "1"),
        ("NCCL_IGNORE_CPU_AFFINITY", "Off", "0"),
        ("NCCL_IGNORE_CPU_AFFINITY", "2", None),
        ("NCCL_NVLS_ENABLE", "true", "1"),
        ("NCCL_DEBUG", "INF", "INFO"),
        ("NCCL_DEBUG", "LOUD", None),
    ],
)
def test_a_wrong_value_is_answered_with_the_one_that_was_meant(name: str, bad: str, near: str | None) -> None:
    """A number goes to the nearer end of its range, a yes never becomes a no, and nothing is guessed from afar."""
    known = variable(name, "1.2.1")
    assert known is not None
    assert not known.accepts(bad)
    assert near == known.nearest(bad)


@given(st.sampled_from(NAMES), st.text(max_size=40))
def test_what_is_proposed_is_accepted(name: str, value: str) -> None:
    """No advice leads to the same finding again."""
    for known in ranges_of(name):
        near = known.nearest(value)
        assert near is None or known.accepts(near)


@given(st.integers(-100, 100))
def test_a_number_is_accepted_exactly_within_its_range(number: int) -> None:
    """Both ends belong to the range."""
    known = variable("CUDA_DEVICE_MAX_CONNECTIONS", "1.2.1")
    assert known is not None
    assert (1 <= number <= 32) == known.accepts(str(number))


@given(name=st.sampled_from(NAMES), place=st.integers(0, 60))
def test_a_name_with_one_letter_left_out_is_recognised(name: str, place: int) -> None:
    """A slip of the finger in the own part of a name is answered with a known name that is as near."""
    start = next((len(family) for family in FAMILIES if name.startswith(family)), 0)
    cut = start + place % (len(name) - start)
    slip = name[:cut] + name[cut + 1 :]
    if not start or slip in NAMES:
        return
    near = near_name(slip)
    assert near is not None
    assert abs(len(near) - len(name)) <= 2


@given(st.from_regex(re.compile(r"[A-Z][A-Z_]{0,20}"), fullmatch=True))
def test_variables_of_other_software_are_left_alone(name: str) -> None:
    """Nothing is guessed about a name outside the families."""
    if not name.startswith(FAMILIES):
        assert near_name(name) is None


@pytest.mark.parametrize(
    "name",
    ["NCCL_NET_GDR_READ", "NCCL_PXN_DISABLE", "NCCL_P2P_PXN_LEVEL", "NCCL_IB_TC", "NCCL_IB_SL", "NCCL_SOCKET_FAMILY",
     "NCCL_TOPO_DUMP_FILE", "NCCL_CHECKS_DISABLE", "NCCL_RAS_ENABLE", "NCCL_WIN_ENABLE", "NCCL_NVB_DISABLE",
     "NCCL_LL128_NTHREADS", "CUDA_DEVICE_ORDER", "CUDA_HOME", "CUDA_MODULE_DATA_LOADING"],
)  # fmt: skip
def test_another_variable_of_the_family_is_no_slip(name: str) -> None:
    """Real variables that the catalogue does not have, or has, are not taken for a misspelling of a neighbour."""
    assert ranges_of(name) or near_name(name) is None


def test_lower_case_is_recognised() -> None:
    """Variables are upper case, and a profile that writes them otherwise sets nothing."""
    assert "NCCL_DEBUG" == near_name("nccl_debug")
    assert near_name("NCCL_SOMETHING_OF_TOMORROW") is None


def test_a_variable_that_ends_with_a_release_means_nothing_after_it() -> None:
    """The unified converter went with the engines."""
    assert variable("TRTLLM_DISABLE_UNIFIED_CONVERTER", "main") is None
    assert variable("TRTLLM_DISABLE_UNIFIED_CONVERTER", "0.20.0") is not None
    assert 2 == len(ranges_of("TRTLLM_ENABLE_PDL"))
    assert () == ranges_of("NOT_THERE")
