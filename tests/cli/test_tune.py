"""``trtkit estimate`` and ``trtkit tune``, run as their users do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.measured_server import streaming_server
from tests.health.support import answers, stub_server
from tests.support.cli import Ran, config_folder, trtkit
from trtllm_kit.cli.tune_text import decision_text

SMALL = "h200x1-llama3.1-8b-fp8"
LOAD = ("--isl", "512", "--osl", "64", "--concurrency", "8")
UNSAID = {"parallelism.attention_dp": False, "parallelism.context": 1}
"""What a plan does not say of a replica that has nothing of it."""
TABLE = "1,0.82,12%,1.31;2,1.47,18%,1.89;3,2.16,23%,2.52;4,2.71,31%,2.17"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with the config.json of Llama 3.1 8B."""
    return config_folder(tmp_path_factory.mktemp("models"), "llama-3.1-8b")


@pytest.fixture(scope="module")
def tuned(model: Path) -> tuple[Ran, Path, Path]:
    """Tune once, with the profile and the page written."""
    profile, page = model.parent / "tuned.yaml", model.parent / "report.html"
    options = ("--out", profile, "--html", page, "--gpu-hour-price", "2.5", "--json")
    return trtkit("tune", model, "--profile", SMALL, *LOAD, *options), profile, page


def test_the_winner_is_a_profile_that_plan_and_estimate_take(tuned: tuple[Ran, Path, Path], model: Path) -> None:
    """The written file plans without an error to the decided limits, and is estimated at the same figures."""
    ran, profile, _ = tuned
    assert (0, "yes") == (ran.code, ran.json["verdict"])
    winner = ran.json["winner"]
    planned = trtkit("plan", model, "--profile", profile, "--json")
    assert 0 == planned.code
    for section in ("limits", "parallelism"):
        wanted = {key: winner["changes"][key] for key in winner["changes"] if key.startswith(f"{section}.")}
        said = {f"{section}.{name}": decided["value"] for name, decided in planned.json[section].items()}
        assert wanted == {key: said.get(key, UNSAID.get(key)) for key in wanted}
    estimated = trtkit("estimate", model, "--profile", profile, "--concurrency", "8", "--json")
    assert (0, winner["estimate"]["figures"]) == (estimated.code, estimated.json["figures"])


def test_the_report_is_an_object_and_a_page_of_its_own(tuned: tuple[Ran, Path, Path]) -> None:
    """``--json`` says what it costs; the page is one file."""
    ran, _, page = tuned
    assert ran.json["winner"]["cost"]["per_million_tokens"] > 0
    assert page.read_text("utf-8").startswith("<!doctype html>")


def test_text_shows_the_verdict_the_figures_and_what_stopped_the_others(model: Path) -> None:
    """The terminal gets settings, figures with intervals, a chart and the constraints; search may be left out."""
    ran = trtkit("tune", "search", model, "--profile", SMALL, *LOAD)
    assert 0 == ran.code
    for part in ("Verdict", "profile key", "first token, p95", "binds: ", "W the winner", "What stopped the others"):
        assert part in ran.out


def test_a_promise_that_cannot_be_kept_is_1_with_the_nearest(model: Path, tmp_path: Path) -> None:
    """The answer is no, the nearest configuration and the limit are named, and no profile is written."""
    target = tmp_path / "none.yaml"
    ran = trtkit("tune", model, "--profile", SMALL, *LOAD, "--slo", "tpot=100us", "--out", target, "--json", "--all")
    assert (1, "no") == (ran.code, ran.json["verdict"])
    assert "tpot" in ran.json["blocking"]
    assert ran.json["nearest"]["estimate"]["figures"]
    left_out = ran.json["left_out"]
    assert {len(left_out["columns"])} == {len(row) for row in left_out["rows"]}
    assert not target.exists()


def test_an_estimate_that_breaks_its_promise_is_1(model: Path) -> None:
    """The figures are shown all the same, with both numbers."""
    ran = trtkit("estimate", model, "--profile", SMALL, *LOAD, "--slo", "tpot=100us,ttft=9s")
    assert 1 == ran.code
    assert "100 µs promised" in ran.out
    assert "ttft" not in ran.out.split("promise:")[1].splitlines()[0].split(": ")[1]


def test_an_estimate_of_a_plan_that_cannot_run_is_refused(tmp_path: Path) -> None:
    """405B on one H200 has no time, as it has no place."""
    ran = trtkit("estimate", config_folder(tmp_path, "llama-3.1-405b"), "--profile", SMALL)
    assert 1 == ran.code
    assert "KIT-PLAN-001" in ran.err


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--slo", "speed=1s"), "--slo"),
        (("--rate", "0"), "--rate"),
        (("--rate", "1", "--concurrency", "2"), "give one of the two"),
        (("--percentile", "42"), "--percentile"),
        (("--objective", "beauty"), "--objective"),
        (("--quantization", "fp7"), "fp7"),
        (("--acceptance", "1.5"), "--acceptance"),
        (("--gpu-hour-price", "cheap"), "--gpu-hour-price"),
        (("--power-limit", "5"), "5 W"),
        (("--hardware", "h200x1,h100x9"), "h100x9"),
        (("--hardware", "h200x1,h100x2", "--objective", "cost"), "h100x2"),
        (("--shortest", "0"), "--shortest"),
        (("--slo", "ttft=500"), "ttft=500ms and ttft=500s"),
        (("--concurrency", "1000000000"), "16384"),
        (("--measure-loads", "1,nan"), "--measure-loads 1,nan"),
        (("--out", "one.yaml", "--html", "./one.yaml"), "name two files"),
    ],
)
def test_options_that_mean_nothing_are_usage_errors(model: Path, options: tuple[str, ...], named: str) -> None:
    """Each is refused by name before anything is searched."""
    ran = trtkit("tune", model, "--profile", SMALL, *options)
    assert 2 == ran.code
    assert named in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("asked", ["own.yaml", "upon.yaml"])
def test_a_profile_is_not_replaced_by_what_was_found_from_it(model: Path, tmp_path: Path, asked: str) -> None:
    """The winner names its profile as its base, so neither that file nor what it stands on can be ``--out``."""
    own = tmp_path / "own.yaml"
    own.write_text(f"base: {SMALL}\nname: own\n")
    (tmp_path / "upon.yaml").write_text("base: ./own.yaml\nname: upon\n")
    before = own.read_text()
    ran = trtkit("tune", model, "--profile", tmp_path / asked, *LOAD, "--out", own)
    assert (2, before) == (ran.code, own.read_text())
    assert "own.yaml is what --profile" in ran.err


def test_a_rate_beyond_the_engine_is_a_promise_that_breaks(model: Path) -> None:
    """Requests that pile up exit with 1, and say so where nothing else was promised."""
    ran = trtkit("estimate", model, "--profile", SMALL, "--isl", "128", "--osl", "16", "--rate", "1e6")
    assert 1 == ran.code
    assert "requests come faster than they are answered" in ran.out


def test_answers_of_one_token_have_no_figure_of_later_ones(model: Path) -> None:
    """What is not there is not reported as 0 seconds; users who wait are answered once in the time of an answer."""
    ran = trtkit("estimate", model, "--profile", SMALL, "--osl", "1", "--concurrency", "4", "--json")
    figures = {figure["name"]: figure["value"] for figure in ran.json["figures"]}
    assert not [name for name in figures if name.startswith(("later token", "longest gap", "of a user"))]
    assert 4 == pytest.approx(figures["answers"] * figures["whole answer, mean"])


def test_what_cannot_run_at_all_is_not_called_a_broken_promise(model: Path) -> None:
    """Prompts beyond the model's positions: no configuration can run, whatever is promised."""
    ran = trtkit("tune", model, "--profile", SMALL, "--isl", "10000000", "--osl", "16", "--concurrency", "1")
    assert 1 == ran.code
    assert "no configuration can run: Sequences may grow longer" in ran.out


def test_drafts_of_unknown_acceptance_name_the_option(tmp_path: Path) -> None:
    """A profile that drafts is not estimated without the chances of its drafts, and is told how to give them."""
    ran = trtkit("estimate", config_folder(tmp_path, "llama-4-maverick"), "--profile", "b200x8-llama4-maverick-latency")
    assert 2 == ran.code
    assert "try: --acceptance 0.8,0.8,0.8" in ran.err


def test_a_page_that_cannot_be_written_is_refused_before_the_search(model: Path, tmp_path: Path) -> None:
    """A missing folder is told at once."""
    ran = trtkit("tune", model, "--profile", SMALL, *LOAD, "--html", tmp_path / "no" / "page.html")
    assert 3 == ran.code
    assert "page.html" in ran.err


def test_the_published_table_says_three_and_contradicts_itself() -> None:
    """By its measured column draft 3, by its own accepted lengths and overheads 4, and no chain has such steps."""
    ran = trtkit("tune", "draft-length", "--table", TABLE, "--json")
    computed = max(ran.json["computed"], key=lambda one: one["speedup"])
    assert (0, 3, 4) == (ran.code, ran.json["best"]["length"], computed["length"])
    assert {"draft-chain", "draft-table"} == {finding["rule"] for finding in ran.json["findings"]}


def test_a_table_may_be_a_file_with_a_heading(tmp_path: Path) -> None:
    """Lines are rows; without a measured column accepted lengths and overheads decide."""
    table = tmp_path / "drafts.csv"
    table.write_text("length,accepted,overhead\n1,0.82,12%\n2,1.47,0.18\n3,2.16,23%\n4,2.71,31%\n")
    ran = trtkit("tune", "draft-length", "--table", table, "--kind", "eagle3", "--trtllm-version", "1.2.1", "--json")
    assert (0, 4) == (ran.code, ran.json["best"]["length"])
    assert 4 == ran.json["keys"]["max_draft_len"]


def test_acceptance_and_overheads_decide_by_length() -> None:
    """0.82, then 0.65 of those: 1.35 tokens a step at 18 % more time are 2.0 times as fast."""
    ran = trtkit("tune", "draft-length", "--acceptance", "0.82,0.65", "--overhead", "12%,18%", "--json")
    assert (0, 2) == (ran.code, ran.json["best"]["length"])
    assert (1 + 0.82 + 0.82 * 0.65) / 1.18 == pytest.approx(ran.json["best"]["speedup"])


def test_by_batch_the_break_even_is_named_with_the_releases_keys(model: Path) -> None:
    """Costly drafts pay in small batches alone; the batch beyond which they do not goes into the release's keys."""
    options = ("--acceptance", "0.7,0.6", "--draft-cost", "20%", "--kind", "ngram", "--json")
    ran = trtkit("tune", "draft-length", model, "--profile", SMALL, *options)
    assert 0 == ran.code
    first, last = ran.json["batches"][0], ran.json["batches"][-1]
    assert first["best"]["speedup"] >= last["best"]["speedup"]
    assert ran.json["break_even"] == 0 or ran.json["pays_throughout"] or ran.json["break_even"] < 512


def test_lengths_by_batch_become_the_releases_schedule(model: Path) -> None:
    """Where a release takes a length for each batch it is given, as the batches beside it say."""
    options = ("--acceptance", "0.8,0.6,0.4", "--draft-cost", "5%", "--trtllm-version", "1.2.1", "--json")
    ran = trtkit("tune", "draft-length", model, "--profile", SMALL, *options)
    assert 0 == ran.code
    best = [one["best"]["length"] for one in ran.json["batches"]]
    assert len(set(best)) > 1
    schedule = {int(batch): length for batch, length in ran.json["keys"]["draft_len_schedule"].items()}
    by_batch = {one["batch"]: one["best"]["length"] for one in ran.json["batches"]}
    for batch, length in by_batch.items():
        assert length == schedule[max(least for least in schedule if least <= batch)]


def test_batches_that_cannot_come_about_are_not_judged(model: Path) -> None:
    """The largest batch is the one that limits and cache hold; where not one request fits, that is said."""
    options = ("--acceptance", "0.8", "--isl", "60000", "--osl", "16", "--json")
    ran = trtkit("tune", "draft-length", model, "--profile", SMALL, *options)
    batches = [one["batch"] for one in ran.json["batches"]]
    assert (0, 1, sorted(batches)) == (ran.code, batches[0], batches)
    assert 8 < batches[-1] < 64
    ran = trtkit("tune", "draft-length", model, "--profile", SMALL, "--acceptance", "0.8", "--isl", "10000000")
    assert 2 == ran.code
    assert "so no request comes so far" in ran.err


def test_a_servers_counters_tell_the_acceptance() -> None:
    """Of 1,000 drafts 800 were taken at the first position, and of those 600 at the second."""
    page = "\n".join(
        f'trtllm_spec_decode_{name}_tokens_total{{token_position="{at}"}} {count}'
        for name, counts in (("drafted", (1000, 1000)), ("accepted", (800, 600)))
        for at, count in enumerate(counts)
    )
    with stub_server(answers(page + "\n")) as url:
        ran = trtkit("tune", "draft-length", "--url", url, "--overhead", "10%,20%", "--json")
    assert 0 == ran.code
    assert [0.8, 1.4] == [pytest.approx(one["accepted"]) for one in ran.json["lengths"][1:]]


@pytest.mark.parametrize("kind", ["tensorrt_llm", "openai"])
def test_a_deployment_is_measured_and_its_error_told_before_and_after(model: Path, kind: str) -> None:
    """Each load is streamed from the server, whatever it speaks; factors and errors are in the report and its text."""
    with streaming_server(kind) as url:
        options = ("--measure", url, "--measure-loads", "1,2")
        ran = trtkit("tune", model, "--profile", SMALL, *LOAD, *options, "--json")
    assert 0 == ran.code
    learned = ran.json["measured"]
    assert learned["correction"]["prompt"] > 0
    assert {"ttft_before", "ttft_after", "tpot_before", "tpot_after"} <= learned.keys()
    assert "measured: steps with prompts take" in decision_text(ran.json, verbose=True)


def test_a_server_that_is_not_there_ends_the_measurement(model: Path) -> None:
    """Nothing is searched with half a measurement."""
    ran = trtkit("tune", model, "--profile", SMALL, *LOAD, "--measure", "http://127.0.0.1:9")
    assert 3 == ran.code
    assert "KIT-SERVE-003" in ran.err


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ((), "nothing to judge"),
        (("--table", "1,0.8"), "column"),
        (("--table", "1,0.8,12%;two,0.9"), "two,0.9"),
        (("--table", TABLE, "--acceptance", "0.5"), "two sources"),
        (("--acceptance", "0.5"), "no cost of drafting"),
        (("--acceptance", "0.5", "--overhead", "much"), "--overhead"),
        (("--table", TABLE, "--kind", "psychic", "--trtllm-version", "1.2.1"), "--kind"),
        (("--table", ""), "the table has 0 rows"),
    ],
)
def test_drafts_without_what_is_needed_are_usage_errors(options: tuple[str, ...], named: str) -> None:
    """Each says what is missing, or what is not understood."""
    ran = trtkit("tune", "draft-length", *options)
    assert 2 == ran.code
    assert named in ran.err
