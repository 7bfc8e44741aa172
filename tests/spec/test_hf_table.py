"""The table of architectures, whose readers are imported one family at a time."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import get_args

import pytest

from trtllm_kit.spec.hf_table import _GROUPS, FAMILIES, Group, family
from trtllm_kit.spec.model import Family


@pytest.mark.parametrize(("group", "names"), _GROUPS)
def test_a_group_has_the_readers_of_the_names_it_is_listed_with(
    group: Callable[[], Group], names: tuple[str, ...]
) -> None:
    """Every architecture that is listed can be read, and none can that is not."""
    assert names == tuple(group())


def test_no_architecture_is_listed_twice() -> None:
    """One file is read in one way."""
    assert len(set(FAMILIES)) == len(FAMILIES)


def test_every_family_has_an_architecture() -> None:
    """What a model spec can be called is read from some file, and the other way round."""
    planned_and_converted = {name for part in get_args(Family) for name in get_args(part)}
    assert planned_and_converted == {family(name).name for name in FAMILIES}


def test_an_architecture_that_is_not_listed_is_refused() -> None:
    """Asking for it is a mistake of the caller, who can look it up."""
    with pytest.raises(KeyError, match="OtherForCausalLM"):
        family("OtherForCausalLM")


def test_the_readers_of_other_families_are_left_alone() -> None:
    """A verb that reads a Llama imports nothing of Gemma."""
    code = (
        "import sys, trtllm_kit.spec.hf_config; from trtllm_kit.spec.hf_table import family; "
        "family('LlamaForCausalLM'); sys.exit('trtllm_kit.spec.hf_gemma' in sys.modules)"
    )
    assert 0 == subprocess.run([sys.executable, "-c", code], check=False).returncode
