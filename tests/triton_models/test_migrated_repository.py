"""The arguments that a migration wrote into a repository are ones that the llmapi model reads."""

from __future__ import annotations

from pathlib import Path

from settings import read_settings
from tests.migrate.engine.settings import found_of
from tests.plan.conftest import golden_model
from trtllm_kit.migrate.engine.profile import Asked
from trtllm_kit.migrate.engine.whole import Model, migrate
from trtllm_kit.migrate.found import Reader
from trtllm_kit.spec.load import load_hardware

from .test_settings import arguments


def test_keys_that_profiles_do_not_have_reach_the_runtime(tmp_path: Path) -> None:
    """Beside those of the plan; the section for the model files is not handed on."""
    found = found_of((Reader.BUILD, "max_lora_rank", 8), (Reader.BUILD, "max_batch_size", 64))
    asked = Asked("1.2.1", "h200x1", "of the test", "migrated", "build.sh")
    made = migrate(found, asked, load_hardware("h200x1"), Model("m", golden_model("llama-3.1-8b"), 8192))
    given = arguments(tmp_path)
    (tmp_path / "1" / "model.yaml").write_text(made.files["repository/tensorrt_llm/1/model.yaml"])
    read = read_settings(given).llm_args

    assert ({"max_lora_rank": 8}, 64) == (read["lora_config"], read["max_batch_size"])
    assert "triton_config" not in read
