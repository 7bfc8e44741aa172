"""``trtkit plan`` on real folders: what it says of weight files, and what a release makes of settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cli import Ran, trtkit
from tests.support.tiny_model import write_tiny_model

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 4000000000\n"
ASKED = ("--profile", "cpu-rehearsal-simulated")


def rules(ran: Ran) -> set[str]:
    """Return the rules that found an error."""
    return {finding["rule"] for finding in ran.json["findings"] if finding["severity"] == "error"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a tiny model of two shards."""
    return write_tiny_model(tmp_path_factory.mktemp("models") / "tiny", shards=2)


def test_a_whole_model_has_no_finding_about_its_files(model: Path) -> None:
    """What the kit's own writer makes passes, and the plan's digest does not depend on the folder."""
    ran = trtkit("--json", "plan", model, *ASKED)
    assert set() == {"PF4", "PF9", "PF10"} & {finding["rule"] for finding in ran.json["findings"]}


def test_a_pointer_stops_a_plan_before_the_first_byte(model: Path) -> None:
    """A shard that is a git-LFS pointer is exit 1 with PF9, and the digest stays that of the plan."""
    whole = trtkit("--json", "plan", model, *ASKED)
    shard = sorted(model.glob("*.safetensors"))[0]
    kept = shard.read_bytes()
    shard.write_bytes(POINTER)
    ran = trtkit("--json", "plan", model, *ASKED)
    shard.write_bytes(kept)
    assert (1, True) == (ran.code, "PF9" in rules(ran))
    assert whole.json["digest"] == ran.json["digest"]


def test_effective_settings_are_shown_when_asked_for(model: Path) -> None:
    """The section stands in the text with --effective alone, and in JSON always."""
    title = "What the release makes of the settings without a word"
    with_it, without = (trtkit("plan", model, *ASKED, *more) for more in (("--effective",), ()))
    assert (True, False) == (title in with_it.out, title in without.out)
    assert isinstance(trtkit("--json", "plan", model, *ASKED).json["effective"], list)
