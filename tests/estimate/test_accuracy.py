"""The comparison with measured servers: what rows are taken to mean, how runs are repeated, and what it is held to."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.accuracy_record import SAMPLE, load, worse
from benchmarks.accuracy_run import find
from benchmarks.closed_loop import run_loop
from benchmarks.figures import errors_of, rank_correlation
from benchmarks.models import model_spec
from benchmarks.points import Point, point_of, times_of
from benchmarks.published import Published, queued_seconds
from benchmarks.runs import run_of
from benchmarks.silicon import Row, read_table
from tests.estimate.replicas import Even, Straight
from trtllm_kit.estimate.batching import simulate
from trtllm_kit.estimate.hold import EveryRank, FullStep
from trtllm_kit.estimate.work import Clock
from trtllm_kit.estimate.workload import Burst, Workload, fixed
from trtllm_kit.spec.tensors import parameters

COLUMNS = (
    "model_path,system,precision,backend_version,isl,osl,tp_size,pp_size,attention_dp_size,moe_tp_size,moe_ep_size,"
    "batch_size,silicon_concurrency,silicon_ttft_ms,silicon_tpot_ms,measured"
)
ROW = Row(
    model="llama-3.1-70b",
    system="h200_sxm",
    precision="fp8",
    version="",
    prompt=1024,
    answer=8192,
    tensor=4,
    expert=1,
    attention_dp=False,
    replicas=1,
    concurrency=8,
    ttft_s=0.104,
    tpot_s=0.00844,
    day="2025-10-29",
)


def table(folder: Path, *rows: str, columns: str = COLUMNS) -> Path:
    """Write a table of measurements."""
    path = folder / "rows.csv"
    path.write_text("\n".join([columns, *rows]) + "\n", "utf-8")
    return path


def short(point: Point, **changes: object) -> Point:
    """Return a point with few short requests, and settings of its run changed."""
    run = replace(point.run, shortest=0.5, **({"requests": 40} | changes))  # type: ignore[arg-type]
    return replace(point, row=replace(point.row, prompt=200, answer=60), run=run)


def test_a_row_is_read_with_seconds_in_place_of_milliseconds(tmp_path: Path) -> None:
    """A measured row keeps its split and load, and its times become seconds."""
    path = table(tmp_path, "meta-llama/Llama-3.1-70B,h200_sxm,fp8,,1024,8192,4,1,1,4,1,8,8,104.0,8.44,2025-10-29")
    assert (ROW,) == read_table(path).rows


def test_the_wheels_table_is_read_like_its_part(tmp_path: Path) -> None:
    """Concurrency and day stand in the source column of the wheel's table, and disaggregated rows are left out."""
    columns = COLUMNS.replace(",silicon_concurrency", "").replace(",measured", "") + ",backend,mode,silicon_data_source"
    row = "meta-llama/Llama-3.1-70B,h200_sxm,fp8,,1024,8192,4,1,1,4,1,8,104.0001,8.44,trtllm,{},{}"
    source = "source_file=a.csv; silicon_concurrency=8; measured=2025-10-29T00:00:00.000Z; wip=False"
    found = read_table(table(tmp_path, row.format("agg", source), row.format("disagg", source), columns=columns))
    assert (ROW,) == found.rows
    assert {"another engine, or disaggregated": 1} == found.left_out


def test_a_product_of_ranks_is_read_as_the_ranks_and_counts_once(tmp_path: Path) -> None:
    """64 tensor ranks of 8 MoE tensor and 8 expert ranks are the same run as 8 and 8, which stands beside them."""
    tail = "8,8,386.193,9.330,2026-01-14"
    found = read_table(
        table(
            tmp_path,
            f"deepseek-ai/DeepSeek-R1,h200_sxm,fp8,1.1.0rc2.post2,1024,8192,64,1,1,8,8,{tail}",
            f"deepseek-ai/DeepSeek-R1,h200_sxm,fp8,1.1.0rc2.post2,1024,8192,8,1,1,1,8,{tail}",
        )
    )
    assert [(8, 8, False)] == [(row.tensor, row.expert, row.attention_dp) for row in found.rows]
    assert {"the same measurement again, under another name of the model or of its split": 1} == found.left_out


def test_attention_ranks_by_mistake_squared_are_mended(tmp_path: Path) -> None:
    """64 attention ranks with 8 expert ranks are 8 GPUs with requests of their own."""
    row = "deepseek-ai/DeepSeek-R1,h200_sxm,fp8,1.1.0rc2.post2,8192,1024,1,1,64,8,8,4,256,12222.9,101.78,2026-01-14"
    (found,) = read_table(table(tmp_path, row)).rows
    assert (8, 8, True, 1, 256) == (found.tensor, found.expert, found.attention_dp, found.replicas, found.concurrency)


def test_four_ranks_of_two_by_two_are_left_as_they_are_where_the_model_needs_them(tmp_path: Path) -> None:
    """Qwen3 235B of release candidate 3 ran on four H100, two by two: it does not fit on two."""
    row = "Qwen/Qwen3-235B-A22B-FP8,h100_sxm,fp8,1.0.0rc3,128,128,4,1,,2,2,16,16,246.731,17.378,"
    (found,) = read_table(table(tmp_path, row)).rows
    assert (4, 2) == (found.tensor, found.expert)


def test_more_than_eight_ranks_are_left_out_with_the_reason(tmp_path: Path) -> None:
    """36 tensor ranks are a disaggregated deployment, which the table does not describe."""
    row = "deepseek-ai/DeepSeek-R1,gb200,fp4,,1024,1024,36,1,1,36,1,4,4,232.932,6.369,2025-11-17"
    found = read_table(table(tmp_path, row))
    assert () == found.rows
    assert [1] == list(found.left_out.values())


def test_replicas_are_what_the_batch_leaves_of_the_concurrency(tmp_path: Path) -> None:
    """A batch of 13 a GPU at 416 requests at once is 32 GPUs: 16 replicas of two."""
    row = "nvidia/Qwen3-32B-NVFP4,b200_sxm,fp4,1.3.0rc5,15000,500,2,1,1,1,1,13,416,719.276,13.656,2026-03-07"
    (found,) = read_table(table(tmp_path, row)).rows
    assert (16, 26) == (found.replicas, point_of(found).run.slots)


@pytest.mark.parametrize(("tensor", "answer", "hold"), [(4, 1024, FullStep(0.9, 20)), (8, 1024, None), (4, 8192, None)])
def test_prompts_were_held_back_on_fewer_than_eight_gpus_with_short_answers_alone(
    tensor: int, answer: int, hold: FullStep | None
) -> None:
    """The 70B runs of 1k/1k on fewer than eight GPUs waited for prompts, the others did not."""
    assert hold == run_of(replace(ROW, tensor=tensor, answer=answer)).hold


def test_drafts_ran_where_the_script_of_that_day_says_so() -> None:
    """DeepSeek of January 2026 drafted three tokens, one with attention data parallelism, and none in November 2025."""
    row = replace(ROW, model="deepseek-r1", version="1.1.0rc2.post2", tensor=8, expert=8)
    january, shared = replace(row, day="2026-01-14"), replace(row, day="2026-01-14", attention_dp=True)
    found = [run_of(one).draft_tokens for one in (january, shared, replace(row, day="2025-11-02"))]
    assert [3, 1, 0] == found


def test_tokens_of_a_step_follow_the_scripts_formula() -> None:
    """max_num_tokens of the drafting runs is (width x batch + prompt + 64), rounded up to 64s."""
    row = replace(ROW, model="deepseek-r1", version="1.1.0rc2.post2", tensor=8, expert=8, day="2026-01-14")
    assert (4 * 8 + 1024 + 64 + 63) // 64 * 64 == run_of(row).max_num_tokens


def test_a_row_without_a_run_is_refused() -> None:
    """A model whose runs nobody described has no settings."""
    with pytest.raises(LookupError, match="has no run for nothing-7b"):
        run_of(replace(ROW, model="nothing-7b"))


@pytest.mark.parametrize(
    ("name", "billions"), [("llama-3.1-70b", 70.6), ("qwen3-235b-a22b", 235.1), ("gpt-oss-120b", 116.8)]
)
def test_models_have_the_published_sizes(name: str, billions: float) -> None:
    """The sizes of models.yaml add up to the models' parameters."""
    assert billions == round(parameters(model_spec(name)) / 1e9, 1)


RANKS = replace(
    ROW, model="deepseek-r1", version="1.2.0rc6.post2", tensor=8, expert=8, attention_dp=True, concurrency=32
)


@pytest.mark.parametrize(
    ("row", "clock", "hold"),
    [
        (ROW, Straight(), None),
        (ROW, Straight(), FullStep(0.4, 20)),
        (RANKS, Even(), None),
        (RANKS, Even(), EveryRank(60, 0)),
        (RANKS, Even(), EveryRank(50, 10)),
    ],
)
def test_the_product_is_as_an_independent_simulation(row: Row, clock: Clock, hold: FullStep | EveryRank | None) -> None:
    """Two simulations that share no scheduler agree on a load, with prompts held back and without, to 5 %.

    Answers are long beside the steps that prompts wait; of shorter ones a single step decides who waits for whom.
    """
    point = short(point_of(row), hold=hold, requests=10 * row.concurrency)
    point = replace(point, row=replace(point.row, answer=300))
    loop, product = run_loop(point, clock), times_of(point, clock)
    assert product.tpot_s == pytest.approx(loop.tpot_s, rel=0.02)
    assert product.ttft_s == pytest.approx(loop.ttft_s, rel=0.05)


def test_queued_requests_take_as_long_as_the_simulation_says() -> None:
    """Counting requests of one length in groups gives the time of the product's simulation to 2 %."""
    subject = replace(point_of(ROW).subject, max_batch_size=16, max_num_tokens=2048)
    load = Workload(fixed(500), fixed(80), Burst(), requests=100)
    expected = simulate(subject, Straight(), load).seconds
    assert expected == pytest.approx(queued_seconds(subject, Straight(), 500, 80, 100), rel=0.02)


def test_published_ranks_are_read_from_their_short_form() -> None:
    """DEP4PP2 are four ranks with requests of their own that share out experts, in two stages."""
    row = Published("perf-new", "qwen3-235b-a22b", "B200", "DEP4PP2", "FP4", 1000, 1000, 1.0, 10)
    assert (4, 4, 2, True) == (row.split.tensor, row.split.expert, row.split.pipeline, row.attention_dp)


def test_errors_are_shares_of_what_was_measured() -> None:
    """Of 110 and 80 for 100 and 100, the mean error is 15 %, the bias -5 % and the worst -20 %."""
    found = errors_of([(110.0, 100.0), (80.0, 100.0)])
    assert (0.15, 0.15, -0.05, -0.2) == pytest.approx((found.mape, found.median, found.bias, found.worst))


def test_ranks_correlate_by_order_alone() -> None:
    """The same order is 1, the opposite -1, and equal values share a rank."""
    assert rank_correlation([(1, 10), (2, 200), (3, 3000)]) == pytest.approx(1)
    assert rank_correlation([(1, 3), (2, 2), (3, 1)]) == pytest.approx(-1)
    assert rank_correlation([(1, 1), (1, 2), (3, 3)]) == pytest.approx(0.866, abs=1e-3)


def test_no_figure_of_a_sample_is_worse_than_recorded(shared: Path) -> None:
    """One measured row in eight, and one published figure in eight, are predicted as well as recorded."""
    found = find(rows_of(shared), published_of(shared), every=SAMPLE)
    assert [] == list(worse(load(RECORD, "sample"), found))


@pytest.mark.slow
def test_no_figure_of_all_rows_is_worse_than_recorded(shared: Path) -> None:
    """Every measured row and every published figure is predicted as well as recorded."""
    found = find(rows_of(shared), published_of(shared), jobs=2)
    assert [] == list(worse(load(RECORD, "all"), found))


def test_a_figure_that_is_worse_is_named_with_both_values(shared: Path) -> None:
    """An error recorded as nothing is worse now, and the line says what it was and is."""
    found = find(rows_of(shared), None, every=200)
    lines = list(worse({"first token, llama-3.1-70b, 4096 tokens": -1.0, "gone": 0.1}, found))
    assert 2 == len(lines)
    assert "recorded -100.0%" in lines[0]
    assert "not computed any more" in lines[1]


def test_recorded_figures_name_both_the_sample_and_all_rows() -> None:
    """The record holds the same kinds of figures for all rows as for the sample."""
    recorded = json.loads(RECORD.read_text("utf-8"))
    assert {"all", "sample"} == set(recorded)
    assert any("TPOT" in name for name in recorded["all"])


RECORD = Path(__file__).resolve().parents[2] / "benchmarks" / "accuracy.json"


def rows_of(shared: Path) -> Path:
    """Return the measured rows; skips loudly without them."""
    path = shared / "perf" / "silicon_trtllm_agg.csv"
    if not path.is_file():
        pytest.skip(f"no measured rows at {path}: accuracy is not checked")
    return path


def published_of(shared: Path) -> Path | None:
    """Return the published tables where they are."""
    path = shared / "contract" / "llmapi-contract.yaml"
    return path if path.is_file() else None
