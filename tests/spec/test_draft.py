"""The facts of a draft model, read from its config.json where the folder is here."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtllm_kit.spec.draft import DraftFacts, draft_facts
from trtllm_kit.spec.load import load_profile

HEAD = {
    "architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 1, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    "draft_vocab_size": 32000, "model_type": "llama",
}  # fmt: skip


def loaded(tmp_path: Path, draft: str) -> DraftFacts | str | None:
    """Return what a profile that names a draft knows of it."""
    file = tmp_path / "x.yaml"
    file.write_text(
        "schema_version: 1\nname: x\nhardware: h200x1\ntrtllm_version: 1.2.1\n"
        f"speculation: {{kind: eagle3, draft_tokens: 3, draft_checkpoint: {json.dumps(draft)}}}\n"
    )
    return load_profile(str(file)).draft


def test_an_eagle3_head_is_read() -> None:
    """Counts come from config.json; what it leaves out follows from them."""
    facts = draft_facts(HEAD)
    assert isinstance(facts, DraftFacts)
    assert ("LlamaForCausalLMEagle3", 8, 128, 32000) == (
        facts.architecture, facts.kv_heads, facts.head_width, facts.draft_vocab_size,
    )  # fmt: skip
    bare = draft_facts(
        {key: value for key, value in HEAD.items() if key not in ("num_key_value_heads", "architectures")}
    )
    assert isinstance(bare, DraftFacts)
    assert (32, "") == (bare.kv_heads, bare.architecture)


@given(key=st.sampled_from(["hidden_size", "vocab_size", "num_hidden_layers"]), value=st.sampled_from([0, -1, "x", []]))
def test_a_key_that_is_no_such_number_is_named(key: str, value: Any) -> None:
    """What cannot be read is a text that names the key, never a guess."""
    found = draft_facts(HEAD | {key: value})
    assert f"its config.json does not say {key} in a way that can be read" == found


def test_all_missing_keys_are_named_at_once() -> None:
    """An empty config.json lists what it should have said."""
    found = draft_facts({})
    assert isinstance(found, str)
    assert all(key in found for key in ("hidden_size", "intermediate_size", "num_attention_heads", "vocab_size"))


def test_a_folder_that_is_here_is_read_with_the_hash_of_its_tokenizer(tmp_path: Path) -> None:
    """The profile carries the facts, so that planning reads no file."""
    folder = tmp_path / "draft"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(HEAD))
    (folder / "tokenizer.json").write_text("{}")
    facts = loaded(tmp_path, str(folder))
    assert isinstance(facts, DraftFacts)
    assert hashlib.sha256(b"{}").hexdigest() == facts.tokenizer_sha256


@pytest.mark.parametrize("named", ["nvidia/some-draft", "/not/here", "x" * 5000])
def test_a_folder_that_is_elsewhere_is_no_error(tmp_path: Path, named: str) -> None:
    """The server may see what the planner does not."""
    assert loaded(tmp_path, named) is None


def test_a_folder_without_a_readable_config_says_why(tmp_path: Path) -> None:
    """A broken draft is found before the server is."""
    folder = tmp_path / "draft"
    folder.mkdir()
    assert "config.json" in str(loaded(tmp_path, str(folder)))
    (folder / "config.json").write_text("[]")
    assert "is not a JSON object" in str(loaded(tmp_path, str(folder)))
