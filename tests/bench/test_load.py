"""Which requests come when, and their prompts."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from statistics import mean, stdev

import pytest

from tests.bench.support import small_load
from trtllm_kit.bench.load import Bursts, Load, arrivals_of, constant, gamma, ramp_of
from trtllm_kit.bench.prompts import WORDS, FileTokenizer, Prompts
from trtllm_kit.bench.scenarios import SCENARIOS, Sizes
from trtllm_kit.bench.trace import trace_load
from trtllm_kit.errors import UsageError
from trtllm_kit.estimate.outcome import Slo
from trtllm_kit.estimate.workload import Poisson, Ramp, Trace, Workload, fixed


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> FileTokenizer:
    """A tokenizer in which the first twenty words are three tokens each."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    pieces = {letter: number for number, letter in enumerate("▁abcdefghijklmnopqrstuvwxyz")}
    for word in WORDS[20:]:
        pieces.setdefault(f"▁{word}", len(pieces))
    made = Tokenizer(models.Unigram([(piece, -1.0) for piece in pieces], unk_id=0))
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    folder = tmp_path_factory.mktemp("tokenizer")
    made.save(str(folder / "tokenizer.json"))
    return FileTokenizer(folder)


def test_constant_arrivals_are_evenly_spaced() -> None:
    """Four a second come every quarter of a second."""
    load = small_load(requests=4, arrivals=constant(4.0))
    assert [0.0, 0.25, 0.5, 0.75] == [time for time, _ in load.workload.opening()]


@pytest.mark.parametrize("spread", [0.5, 1.0, 2.0])
def test_gamma_arrivals_have_their_rate_and_spread(spread: float) -> None:
    """Distances have the mean of the rate and the coefficient of variation that was asked for."""
    times = gamma(10.0, spread, 20_000, seed=1).times
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert (0.1, spread) == (pytest.approx(mean(gaps), rel=0.05), pytest.approx(stdev(gaps) / mean(gaps), rel=0.05))


def test_arrivals_by_name() -> None:
    """Poisson, constant, gamma and a ramp are what they are called."""
    assert Poisson(2.0) == arrivals_of("poisson", 2.0, 5, 0)
    assert Ramp(2.0, 2.0) == arrivals_of("constant", 2.0, 5, 0)
    assert isinstance(arrivals_of("gamma:3", 2.0, 5, 0), Trace)
    assert Ramp(1.0, 20.0) == ramp_of("1:20")


@pytest.mark.parametrize("text", ["uniform", "gamma:x", "gamma:0", "poisson:2"])
def test_other_arrivals_are_refused(text: str) -> None:
    """What is no kind of arrivals is a usage error."""
    with pytest.raises(UsageError):
        arrivals_of(text, 2.0, 5, 0)


def test_prompts_have_exactly_their_tokens(tokenizer: FileTokenizer) -> None:
    """With the model's tokenizer a prompt is as long as it was asked, though words differ in their tokens."""
    load = Load(Workload(fixed(203), fixed(4), Poisson(1.0), 5, shared_prefix=64))
    prompts = Prompts(load, tokenizer)
    texts = [prompts.text(number) for number in range(5)]
    assert [203] * 5 == [prompts.tokens(text) for text in texts]
    assert 5 == len(set(texts))


def test_shared_prefixes_are_shared(tokenizer: FileTokenizer) -> None:
    """Prompts of one prefix begin with the same tokens, those of another differently."""
    load = Load(Workload(fixed(100), fixed(4), Poisson(1.0), 4, shared_prefix=50, prefixes=2))
    texts = [Prompts(load, tokenizer).text(number) for number in range(4)]
    common = [len(_common(texts[0], other).split()) for other in texts[1:]]
    assert common[1] >= 15
    assert common[0] < 3
    assert common[2] < 3


def _common(a: str, b: str) -> str:
    return a[: next((place for place, pair in enumerate(zip(a, b, strict=False)) if pair[0] != pair[1]), len(a))]


def test_bursts_of_agents_share_a_growing_beginning() -> None:
    """The second burst begins with all that the first shares, and more; calls of a burst differ at their end."""
    shape = Bursts(calls=3, base=20, growth=10, own=5, answer=4)
    load = Load(Workload(fixed(20), fixed(4), Poisson(1.0), 6), drawn=shape.request)
    prompts = Prompts(load)
    first, beside, second = (prompts.text(number).split() for number in (0, 1, 3))
    assert (25, 25, 35) == (len(first), len(beside), len(second))
    assert first[:20] == beside[:20] == second[:20]
    assert first[20:] != beside[20:]


def test_scenarios_are_what_is_published() -> None:
    """200 prompts up to the 512th token at 0.7 and 0.9; conversations of 50 turns; bursts of 24; promises are given."""
    loads = {name: scenario.load(Sizes()) for name, scenario in SCENARIOS.items()}
    first = loads["first-to-nth"]
    assert (200, 512, 512) == (first.workload.requests, first.nth, first.request(7).most)
    assert (0.7, 0.9) == (first.sampling.temperature, first.sampling.top_p)
    assert 50 == loads["multi-turn"].workload.turns
    assert Slo(e2e=0.189, gap=0.3) == SCENARIOS["multi-turn"].slo
    assert 24 == sum(time == 0.0 for time, _ in loads["agentic"].workload.opening())
    assert (25_000, 1250) == (loads["summarise"].workload.prompts.most, loads["summarise"].request(0).most)
    for load in loads.values():
        assert load.request(load.workload.requests - 1).prompt > 0


def test_bursts_end_with_as_many_requests_as_were_asked_for() -> None:
    """Thirty requests in bursts of eight are three whole bursts and six of the fourth."""
    work = SCENARIOS["agentic"].load(Sizes(users=8, requests=30)).workload
    assert [0.0] * 8 + [4.0] * 8 + [8.0] * 8 + [12.0] * 6 == [time for time, _ in work.opening()]


def test_a_trace_keeps_times_lengths_and_shared_blocks(tmp_path: Path) -> None:
    """Recorded requests come at their times from the first, and equal blocks are equal texts."""
    rows = [
        {"timestamp": 1000, "input_length": 600, "output_length": 7, "hash_ids": [4, 5]},
        {"timestamp": 1500, "input_length": 700, "output_length": 9, "hash_ids": [4, 6]},
    ]
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    load = trace_load(path, users=None, requests=None, answer=None)
    assert [0.0, 0.5] == [time for time, _ in load.workload.opening()]
    texts = [Prompts(load).text(number).split() for number in (0, 1)]
    assert [600, 700] == [len(text) for text in texts]
    assert texts[0][:512] == texts[1][:512]
    assert texts[0][512:530] != texts[1][512:530]
    assert [7, 9] == [load.request(number).most for number in (0, 1)]


def test_a_trace_of_texts_sends_them(tmp_path: Path) -> None:
    """Prompts that are given are sent as they are."""
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "one two"}\n{"prompt": "three"}\n')
    load = trace_load(path, users=2, requests=None, answer=5)
    assert ["one two", "three"] == [Prompts(load).text(number) for number in (0, 1)]
    assert 5 == load.request(0).most


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1]\n",
        '{"input_length": 0}\n',
        '{"prompt": 3}\n',
        '{"input_length": 5, "timestamp": "x"}\n',
        '{"input_length": 5, "output_length": -1}\n',
        '{"input_length": 5, "hash_ids": 3}\n',
        '{"prompt": "a"}\n{"input_length": 5}\n',
        '{"input_length": 5, "timestamp": 2}\n{"input_length": 5, "timestamp": 1}\n',
    ],
)
def test_a_file_that_is_no_trace_is_refused(tmp_path: Path, text: str) -> None:
    """A line that is no request is a usage error that names the file."""
    path = tmp_path / "bad.jsonl"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"bad\.jsonl"):
        trace_load(path, users=None, requests=None, answer=None)
