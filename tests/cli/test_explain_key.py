"""``trtkit profiles explain`` as its users run it."""

from __future__ import annotations

from tests.support.cli import trtkit
from trtllm_kit.cli.explain_key import complete_key


def test_a_key_is_explained_in_words() -> None:
    """Meaning, cost, what it becomes in each release, who sets it and which checks look at it."""
    ran = trtkit("profiles", "explain", "limits.max_batch_size")
    assert (0, "") == (ran.code, ran.err)
    for text in (
        "Requests in one step.",
        "costs KV cache",
        "build_config.max_batch_size",
        "h200x1-llama3.1-8b-fp8",
        "PF22",
    ):
        assert text in ran.out, text


def test_the_same_stands_in_json() -> None:
    """One object with the fields the text is made of."""
    found = trtkit("--json", "profiles", "explain", "environment.TRTLLM_ENABLE_PDL").json
    assert "0 or 1" == found["values"]
    assert {"1.1.0": "0", "1.2.1": "1"}.items() <= {one["release"]: one["default"] for one in found["becomes"]}.items()


def test_an_unknown_key_is_a_usage_error_with_a_near_one() -> None:
    """Exit code 2, and the command that works."""
    ran = trtkit("profiles", "explain", "max_batch_size")
    assert 2 == ran.code
    assert "try: trtkit profiles explain limits.max_batch_size" in ran.err


def test_keys_are_completed() -> None:
    """The shell offers keys, sections and variables."""
    assert "speculation.draft_tokens" in complete_key("speculation.d")
    assert "environment.NCCL_DEBUG" in complete_key("environment.NCCL_D")
    assert [] == complete_key("nothing.such")
