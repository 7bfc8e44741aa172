"""The pages about deploy profiles: what they show is what the loader takes, and no profile is left out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from trtllm_kit.spec.load import load_profile, shipped_profiles

HOW_TO = Path(__file__).resolve().parents[2] / "docs" / "how-to"
EXAMPLES = re.findall(r"```yaml\n(.*?)```", (HOW_TO / "write-a-profile.md").read_text("utf-8"), re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_every_example_of_a_profile_loads(example: str, tmp_path: Path) -> None:
    """A part of a profile loads on top of a shipped one, a whole one as it is."""
    file = tmp_path / "mine.yaml"
    file.write_text(example if "name:" in example else f"base: h200x1-llama3.1-8b-fp8\nname: mine\n{example}")

    assert "mine" == load_profile(str(file)).profile.name


def test_the_page_that_helps_to_choose_names_every_shipped_profile_and_no_other() -> None:
    """A profile that is added or renamed has a row there, once."""
    rows = re.findall(r"^\|.*\| `([^`]+)` \|$", (HOW_TO / "choose-a-profile.md").read_text("utf-8"), re.MULTILINE)

    assert sorted(shipped_profiles()) == sorted(rows)
