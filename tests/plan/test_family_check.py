"""PF13: what is said of a family is as sure as what is known of it."""

from __future__ import annotations

import pytest

from tests.support.specs import hardware, llama_8b, profile
from trtllm_kit.findings import Finding, Severity
from trtllm_kit.plan.settle import settle
from trtllm_kit.spec.hf_config import FAMILIES
from trtllm_kit.upstream import known_releases, release
from trtllm_kit.upstream.families import family_support, unlisted

PYTORCH = (*(name for name in known_releases() if "llm-api" in release(name).toolchains), "1.3.0rc14")
UNSURE = {
    architecture: version
    for architecture in FAMILIES
    for version in PYTORCH
    if (found := family_support(architecture, "llm-api", version)) is not None and found.certainty == "recalled"
}
"""A release that an architecture is recalled for, by architecture."""


def said(architecture: str, version: str) -> list[Finding]:
    """Return what PF13 says of an architecture on a release."""
    model = llama_8b().model_copy(update={"architecture": architecture})
    made = settle(model, profile({"trtllm_version": version, "toolchain": "llm-api"}), hardware(8))
    return [found for found in made.findings if found.rule == "PF13"]


@pytest.mark.parametrize("architecture", FAMILIES)
def test_every_family_is_answered(architecture: str) -> None:
    """A family that the kit reads is loaded by some release, or was looked for in the lists: never both."""
    listed = any(family_support(architecture, "llm-api", version) for version in PYTORCH)

    assert listed == (unlisted(architecture) is None)


def test_some_families_are_recalled() -> None:
    """The cases of the next test exist."""
    assert "Qwen3VLForConditionalGeneration" in UNSURE


@pytest.mark.parametrize("architecture", UNSURE)
def test_what_is_recalled_is_a_warning(architecture: str) -> None:
    """A row that nobody checked neither refuses the release nor vouches for it."""
    assert [Severity.WARNING] == [found.severity for found in said(architecture, UNSURE[architecture])]


@pytest.mark.parametrize("architecture", [name for name in FAMILIES if unlisted(name)])
@pytest.mark.parametrize("version", ["1.2.1", "main"])
def test_a_family_of_no_list_is_a_warning_with_the_lists(architecture: str, version: str) -> None:
    """A list that leaves a model out proves nothing, so which lists were read is said."""
    (found,) = said(architecture, version)

    assert Severity.WARNING is found.severity
    assert "in none of the lists that were read, of 1.0.0, " in found.compared


def test_the_answer_changes_with_the_release() -> None:
    """DeepSeek-V3.2 is silent where its list was read, and a warning before it came."""
    assert [] == said("DeepseekV32ForCausalLM", "1.2.1")
    assert [Severity.WARNING] == [found.severity for found in said("DeepseekV32ForCausalLM", "1.0.0")]


def test_gemma_2_has_engines_all_the_same() -> None:
    """The lists that were looked through are those of the PyTorch backend; the other world has its own rows."""
    model = llama_8b().model_copy(update={"architecture": "Gemma2ForCausalLM"})
    changes = {"trtllm_version": "0.18", "toolchain": "trtllm-build"}
    (found,) = (one for one in settle(model, profile(changes), hardware(8)).findings if one.rule == "PF13")

    assert "listed for 0.12.0 to 1.3.0rc20" in found.compared
