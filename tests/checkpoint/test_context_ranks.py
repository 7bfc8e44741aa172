"""Context ranks read the files of their tensor rank: a conversion writes no others, and says how many read them."""

from __future__ import annotations

import json
from pathlib import Path

from tests.checkpoint.ranks import rank_plan
from tests.support.tiny_model import write_tiny_model
from trtllm_kit.checkpoint.convert import convert
from trtllm_kit.checkpoint.load import open_checkpoint
from trtllm_kit.plan.plan import Decided, Plan
from trtllm_kit.progress import Silent


def in_parts(plan: Plan, context: int) -> Plan:
    """Return a plan with context ranks."""
    asked = Decided(value=context, source="profile", reason="test")
    return plan.model_copy(update={"parallelism": plan.parallelism.model_copy(update={"context": asked})})


def test_context_ranks_have_no_files_of_their_own(tmp_path: Path) -> None:
    """Two tensor ranks with three context ranks: two files, the bytes of two ranks alone, a world of six."""
    source = write_tiny_model(tmp_path / "source", "llama", seed=3)
    whole = rank_plan(source, 2)
    convert(source, whole, tmp_path / "whole", Silent())
    convert(source, in_parts(whole, 3), tmp_path / "parts", Silent())
    names = sorted(path.name for path in (tmp_path / "parts").glob("rank*.safetensors"))
    assert ["rank0.safetensors", "rank1.safetensors"] == names
    for name in names:
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "parts" / name).read_bytes()
    mapping = json.loads((tmp_path / "parts" / "config.json").read_text("utf-8"))["mapping"]
    assert {"world_size": 6, "tp_size": 2, "pp_size": 1, "cp_size": 3} == mapping


def test_such_a_checkpoint_is_read_back_and_is_no_other_s(tmp_path: Path) -> None:
    """Its weights are those of the model, and a plan with other context ranks converts again."""
    source = write_tiny_model(tmp_path / "source", "llama", seed=3)
    plan = in_parts(rank_plan(source, 2), 2)
    convert(source, plan, tmp_path / "made", Silent())
    assert open_checkpoint(tmp_path / "made").model == plan.model
    assert convert(source, plan, tmp_path / "made", Silent()).up_to_date
    assert not convert(source, in_parts(plan, 4), tmp_path / "made", Silent()).up_to_date
    assert 8 == json.loads((tmp_path / "made" / "config.json").read_text("utf-8"))["mapping"]["world_size"]
