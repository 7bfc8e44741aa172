"""The transformers runtime's batch on a real card: recorded steps against the same steps run kernel by kernel."""

from __future__ import annotations

import sys
from typing import Any

import pytest

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch", reason="needs torch and transformers")
pytest.importorskip("transformers", reason="needs torch and transformers")
if not torch.cuda.is_available():
    pytest.skip("torch sees no CUDA device", allow_module_level=True)

from tests.support.tiny_model import write_tiny_model  # noqa: E402
from trtllm_kit.resources import triton_models  # noqa: E402

sys.path.insert(0, str(triton_models() / "llmapi"))
TOKENS, PROMPTS = 24, (1, 7, 16, 3, 30)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A tiny model on the card, in float32 so that the order of a sum decides nothing."""
    from transformers import AutoModelForCausalLM

    from kv_pool import ATTENTION, register

    folder = write_tiny_model(tmp_path_factory.mktemp("card") / "model", max_position_embeddings=1024)
    register()
    made = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation=ATTENTION)
    return made.to("cuda").eval()


def answers(model: Any, *, recorded: bool) -> tuple[int, list[list[int]]]:
    """Return how many graphs there are, and the greedy tokens of requests that join one after the other."""
    from ask import Ask
    from batch import Batch, Row
    from choice import Chooser
    from kv_pool import Blocks

    batch = Batch(model, model.config.num_hidden_layers, Blocks(64, 4))
    rows = [Row(tuple(range(5, 5 + length)), TOKENS, Chooser(Ask(prompt="p"))) for length in PROMPTS]
    made = batch.record(len(rows), 64) if recorded else 0
    heard: list[list[int]] = [[] for _ in rows]
    for step in range(TOKENS + 2 * len(rows)):
        here = [place for place in range(len(rows)) if place <= step and len(heard[place]) < TOKENS]
        batch.step([rows[place] for place in here])
        for place in here:
            heard[place].append(rows[place].token)
            if len(heard[place]) == TOKENS:
                batch.leave(rows[place])
    return made, heard


def test_recorded_steps_choose_the_same_tokens(model: Any) -> None:
    """Graphs of every shape are there, and a batch that grows and shrinks answers with them as without."""
    _, plain = answers(model, recorded=False)
    made, replayed = answers(model, recorded=True)
    assert 19 == made
    assert plain == replayed
