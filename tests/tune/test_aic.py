"""Step times from aiconfigurator-core: what it is asked, how its tables are read, what is said where it has none."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.estimate.replicas import MODEL
from tests.support.specs import hardware
from trtllm_kit.errors import MissingTool, UsageError
from trtllm_kit.estimate.batching import simulate
from trtllm_kit.estimate.subject import Subject
from trtllm_kit.estimate.work import Chunk, StepWork
from trtllm_kit.estimate.workload import closed_loop, fixed
from trtllm_kit.plan.formats import Formats
from trtllm_kit.plan.parallelism import Split
from trtllm_kit.spec.load import load_hardware
from trtllm_kit.tune.aic import AicClock, Grid, axes_of, split_of, system_of, tabulated

SUBJECT = Subject(
    model=MODEL,
    hardware=load_hardware("h200x8-700w"),
    formats=Formats("fp8", "fp8"),
    split=Split(tensor=4),
    release="1.2.1",
    max_batch_size=16,
    max_num_tokens=4096,
    max_seq_len=2048,
    kv_tokens=1 << 20,
)


def answering(folder: Path, body: str) -> str:
    """Write a stand-in for the other environment's interpreter, which prints what ``body`` makes of the request."""
    path = folder / "python"
    path.write_text(f"#!{sys.executable}\nimport json, sys\nasked = json.load(sys.stdin)\n{body}\n", "utf-8")
    path.chmod(0o755)
    return os.fspath(path)


TABLES = """
decode = [[5 + batch + cached / 1000 for cached in asked["contexts"]] for batch in asked["batches"]]
attention = [[batch * cached / 1e4 for cached in asked["contexts"]] for batch in asked["batches"]]
rest = [4 + rows / 100 for rows in asked["rows"]]
prompt = [tokens / 1000 for tokens in asked["prompts"]]
print(json.dumps({"version": "0.12.0", "decode": decode, "attention": attention, "rest": rest, "prompt": prompt}))
"""


@pytest.fixture
def clock(tmp_path: Path) -> AicClock:
    """The clock of tables that are straight lines."""
    return tabulated(SUBJECT, "a/model", answering(tmp_path, TABLES))


def test_a_generation_step_is_looked_up_by_batch_and_mean_context(clock: AicClock) -> None:
    """Three sequences with 500 cached tokens each take 5 + 3 + 0.5 ms, between the points of the table."""
    assert clock.seconds(StepWork(sequences=3, context=1500)) == pytest.approx(8.5e-3)


def test_a_step_with_a_prompt_adds_what_does_not_depend_on_cached_tokens(clock: AicClock) -> None:
    """A prompt of 200 beside two sequences is 202 rows, its own attention, and theirs."""
    work = StepWork((Chunk(200),), sequences=2, context=2000)
    assert 4e-3 + 2.02e-3 + 0.2e-3 + 2 * 0.1e-3 == pytest.approx(clock.seconds(work))


def test_a_later_chunk_counts_the_attention_that_it_adds(clock: AicClock) -> None:
    """A chunk of 100 after 300 tokens takes the attention of 400 less that of 300."""
    assert 4e-3 + 1e-3 + 0.1e-3 == pytest.approx(clock.seconds(StepWork((Chunk(100, 300),))))


def test_a_run_of_steps_is_the_sum_of_the_steps(clock: AicClock) -> None:
    """A hundred steps of four sequences take what the single steps take together."""
    single = sum(clock.seconds(StepWork(sequences=4, context=800 + 4 * step)) for step in range(100))
    assert single == pytest.approx(clock.decode_run(4, 800, 100), rel=1e-6)


def test_ranks_with_requests_of_their_own_share_them_out(tmp_path: Path) -> None:
    """Eight sequences over four such ranks take as long as two over one."""
    shared = replace(SUBJECT, split=replace(SUBJECT.split, attention_dp=True))
    ranks, one = (tabulated(subject, "a/model", answering(tmp_path, TABLES)) for subject in (shared, SUBJECT))
    expected = one.seconds(StepWork(sequences=2, context=1000))
    assert expected == pytest.approx(ranks.seconds(StepWork(sequences=8, context=4000)))


def test_no_steps_take_no_time(clock: AicClock) -> None:
    """Neither an empty step nor a run of none takes time."""
    assert (0.0, 0.0) == (clock.seconds(StepWork()), clock.decode_run(0, 0, 10))


def test_the_simulation_runs_on_it(clock: AicClock) -> None:
    """A closed loop on its steps answers every request, at a little over its step time a token."""
    outcome = simulate(SUBJECT, clock, closed_loop(fixed(100), fixed(50), 2, rounds=3))
    assert 4 == len(outcome.served)
    assert 7e-3 < outcome.tpot.mean < 9e-3


def test_beyond_a_table_its_last_line_goes_on() -> None:
    """Twice beyond the last point, the value has grown by the same step again."""
    assert Grid((1.0, 2.0), (10.0, 30.0)).at(3.0) == 50.0


def test_its_words_for_a_split_and_its_formats() -> None:
    """Four tensor ranks in FP8 are tp 4 with static products; with requests of their own they are attention ranks."""
    plain, shared = split_of(SUBJECT), split_of(replace(SUBJECT, split=Split(4, expert=4, attention_dp=True)))
    assert (4, 1, "fp8_static", "fp8") == (
        plain["tp_size"],
        plain["attention_dp_size"],
        plain["gemm_quant_mode"],
        plain["kvcache_quant_mode"],
    )
    assert (1, 4, 1, 4) == (
        shared["tp_size"],
        shared["attention_dp_size"],
        shared["moe_tp_size"],
        shared["moe_ep_size"],
    )


def test_tables_reach_the_limits_of_the_subject() -> None:
    """The points of each axis end at the subject's batch, step and sequence, or beyond."""
    axes = axes_of(SUBJECT)
    assert axes.batches[-1] >= 16
    assert axes.rows[-1] >= 4096
    assert axes.prompts[-1] >= 2048


@pytest.mark.parametrize(
    ("refused", "said"),
    [
        (lambda: system_of(replace(SUBJECT, hardware=hardware(8))), "no measurements of"),
        (lambda: split_of(replace(SUBJECT, formats=Formats("int4_awq", "fp8"))), "no word for weights in int4_awq"),
    ],
)
def test_what_it_has_no_name_for_is_refused(refused: Callable[[], object], said: str) -> None:
    """A card it never measured, and a format it has no word for, are refused with what it does have."""
    with pytest.raises(UsageError, match=said) as error:
        refused()
    assert "trtkit estimate without it" in error.value.hint


def test_what_its_environment_says_is_the_reason(tmp_path: Path) -> None:
    """A package that ends with an error is reported by the last line it wrote."""
    python = answering(tmp_path, "sys.exit('no data for this card')")
    with pytest.raises(MissingTool, match="gave no step times") as error:
        tabulated(SUBJECT, "a/model", python)
    assert "no data for this card" == error.value.why


def test_an_interpreter_that_is_not_there_is_named(tmp_path: Path) -> None:
    """A path without a program is reported with that path."""
    with pytest.raises(MissingTool, match="nowhere/python"):
        tabulated(SUBJECT, "a/model", os.fspath(tmp_path / "nowhere" / "python"))


def test_it_is_asked_for_whole_numbers_of_tokens(tmp_path: Path) -> None:
    """The request that goes out names the model and card, and has ascending whole numbers on each axis."""
    seen = tmp_path / "asked.json"
    python = answering(tmp_path, f"open({os.fspath(seen)!r}, 'w').write(json.dumps(asked))\n{TABLES}")
    tabulated(SUBJECT, "a/model", python)
    asked = json.loads(seen.read_text("utf-8"))
    assert ("a/model", "h200_sxm") == (asked["model"], asked["system"])
    assert all(axis == sorted(set(axis)) for axis in (asked["batches"], asked["contexts"], asked["rows"]))
    assert all(isinstance(tokens, int) for tokens in asked["prompts"])
