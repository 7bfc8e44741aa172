"""Step times: sums, closed forms, order, and what is published of machines that no constant was fitted on alone."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.estimate.replicas import replica
from tests.support.specs import deepseek_v3, gemma3_27b, gpt_oss_120b, llama_8b, llama_70b, llama_405b, qwen3_moe
from trtllm_kit.estimate.decode import DecodeStep, Line
from trtllm_kit.estimate.step_time import StepClock
from trtllm_kit.estimate.subject import Speculation, Subject
from trtllm_kit.estimate.work import Chunk, StepWork
from trtllm_kit.plan.formats import Formats
from trtllm_kit.plan.parallelism import Split
from trtllm_kit.spec.hardware import Figure, Hardware
from trtllm_kit.spec.load import load_hardware, parse_model
from trtllm_kit.spec.model import ModelSpec

H200 = load_hardware("h200x8-700w")
FP8 = Formats("fp8", "fp8")


def clock(model: ModelSpec | None = None, machine: Hardware = H200, **changes: object) -> StepClock:
    """Return a clock of Llama 70B in FP8 on H200, unless changed."""
    return StepClock(subject(model, machine, **changes))


def subject(model: ModelSpec | None = None, machine: Hardware = H200, **changes: object) -> Subject:
    """Return the subject of such a clock."""
    given = {"formats": FP8, "overlap_scheduler": True} | changes
    return replica(model=model or llama_70b(), hardware=machine, **given)


def seconds_of(timed: StepClock, work: StepWork, name: str) -> float:
    """Return one term of a step."""
    return next(term.seconds for term in timed.explain(work).terms if term.name == name)


MODELS = {"llama": llama_8b(), "gpt-oss": gpt_oss_120b(), "deepseek": deepseek_v3(), "gemma": gemma3_27b()}


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(sorted(MODELS)), st.integers(1, 300), st.integers(1, 9000), st.integers(1, 400), st.integers(0, 3)
)
def test_a_run_is_the_sum_of_its_steps(name: str, sequences: int, each: int, steps: int, ranks: int) -> None:
    """In closed form too, across windows and where the host takes longer than the GPUs at first."""
    timed = clock(MODELS[name], split=Split(2**ranks))
    context = sequences * each
    single = sum(timed.seconds(StepWork((), sequences, context + step * sequences)) for step in range(steps))
    assert pytest.approx(single, rel=1e-9) == timed.decode_run(sequences, context, steps)


@given(st.floats(1, 500), st.integers(1, 300), st.floats(1, 300))
def test_a_line_stays_as_it_is_beyond_its_window(mean: float, steps: int, window: float) -> None:
    """The closed sum is the sum of the single values."""
    line = Line(2e-6, window)
    assert pytest.approx(sum(line.at(mean + step) for step in range(steps))) == line.total(mean, steps)


def test_steps_below_the_host_take_as_long_as_the_host() -> None:
    """From 1 ms up by 10 us a token, a host of 2 ms hides a hundred steps."""
    step = DecodeStep(sequences=1, base=0.0, lines=(Line(1e-5, float("inf")),), host=2e-3, exposed=0.0)
    assert pytest.approx(100 * 2e-3) == step.run(100, 100)
    assert pytest.approx(100 * 2e-3 + 2e-3) == step.run(100, 101)


@pytest.mark.parametrize("overlap", [True, False], ids=["hidden", "in turn"])
@pytest.mark.parametrize(
    "work",
    [
        StepWork(sequences=32, context=64_000),
        StepWork((Chunk(3000, 100), Chunk(70)), 9, 9000, 4),
        StepWork((Chunk(9),)),
    ],
    ids=["generation", "both", "prompt"],
)
def test_terms_add_up_to_the_step(work: StepWork, overlap: bool) -> None:
    """GPU terms, and the host's beside or behind them, with what nothing hides."""
    timed = clock(deepseek_v3(), split=Split(8, expert=8), overlap_scheduler=overlap)
    told = timed.explain(work)
    busy, host = sum(term.seconds for term in told.terms), told.host.seconds
    assert pytest.approx((max(busy, host) if overlap else busy + host) + told.exposed) == told.seconds
    assert pytest.approx(told.seconds) == timed.seconds(work)
    assert all(term.low <= term.seconds <= term.high for term in (*told.terms, told.host))


def test_the_binding_term_is_named() -> None:
    """Reading weights binds one sequence of 70B, the cache 64 long ones, the host a small model on eight ranks."""
    assert "products" == clock(split=Split(1)).explain(StepWork(sequences=1, context=1000)).binds
    long = StepWork(sequences=64, context=64 * 32768)
    assert "generation attention" == clock(split=Split(1)).explain(long).binds
    served = clock(llama_8b(), split=Split(8), release="1.0.0")
    assert "host" == served.explain(StepWork(sequences=64, context=64 * 512)).binds


def test_a_term_is_as_certain_as_the_least_of_its_constants() -> None:
    """On Hopper products in 8 and 16 bit were measured, those in 4 bit by nobody; gaps between kernels are fitted."""
    sources = {
        name: {term.name: term.source for term in clock(formats=Formats(name)).explain(StepWork((Chunk(999),))).terms}
        for name in ("bf16", "fp8", "int4_awq")
    }
    assert ["measured", "measured", "fitted"] == [sources[name]["products"] for name in sources]
    assert "measured" == sources["bf16"]["prompt attention"]
    assert "fitted" == sources["fp8"]["gaps between kernels"]


@pytest.mark.parametrize("name", sorted(MODELS))
def test_more_work_takes_no_less_time(name: str) -> None:
    """In every direction: sequences, cached tokens, prompt tokens, tokens drafted."""
    timed = clock(MODELS[name], split=Split(4))
    base = StepWork((Chunk(700, 300),), 16, 32_000)
    for more in (
        replace(base, sequences=17),
        replace(base, context=64_000),
        replace(base, chunks=(Chunk(900, 300),)),
        replace(base, chunks=(Chunk(700, 900),)),
        replace(base, width=3),
    ):
        assert timed.seconds(base) <= timed.seconds(more)


def test_more_ranks_of_one_domain_shorten_a_long_prompt() -> None:
    """And over bridges that all ranks share they lengthen it (L40S on PCIe)."""
    work = StepWork((Chunk(8192),))
    nvlink = [clock(split=Split(ranks)).seconds(work) for ranks in (1, 2, 4, 8)]
    assert sorted(nvlink, reverse=True) == nvlink
    cards = load_hardware("l40sx8")
    assert clock(machine=cards, split=Split(2)).seconds(work) < clock(machine=cards, split=Split(8)).seconds(work)


def test_drafted_tokens_are_cheaper_than_steps() -> None:
    """Checking four tokens in one step takes longer than one, and less than four steps."""
    timed = clock(speculation=Speculation("eagle3", 3, (0.8, 0.7, 0.6), 10**9))
    one = timed.seconds(StepWork(sequences=8, context=8000))
    four = timed.seconds(StepWork(sequences=8, context=8000, width=4))
    assert one < four < 4 * one


def test_a_window_caps_the_time_of_a_step() -> None:
    """Half of gpt-oss's layers look back 128 tokens, so twice the context costs less than twice the attention."""
    timed = clock(gpt_oss_120b(), split=Split(1), formats=Formats())
    works = [StepWork(sequences=64, context=64 * each) for each in (64, 128, 8192)]
    attention = [seconds_of(timed, work, "generation attention") for work in works]
    assert pytest.approx(2 * attention[0]) == attention[1]
    assert attention[2] < 64 * attention[1] * 0.55


def test_a_higher_clock_shortens_arithmetic_alone() -> None:
    """2.1 GHz against 1.8 GHz: products of a long prompt by the ratio, reading weights for one token not at all."""
    fast = H200.model_copy(update={"clock_hz": Figure(value=2.1e9, source="test")})
    slow_one, fast_one = (clock(machine=one, split=Split(1)) for one in (H200, fast))
    long = StepWork((Chunk(8192),))
    products = [
        next(term for term in one.explain(long).terms if term.name == "products") for one in (slow_one, fast_one)
    ]
    assert pytest.approx(2.1 / 1.8, rel=1e-3) == products[0].seconds / products[1].seconds
    token = StepWork(sequences=1, context=100)
    assert pytest.approx(slow_one.seconds(token), rel=1e-3) == fast_one.seconds(token)


def test_stages_are_busy_one_after_another() -> None:
    """A step passes every stage, and takes their seconds, the hand-overs, and what nothing hides."""
    timed = clock(split=Split(2, 4))
    work = StepWork((Chunk(8192),))
    each = timed.stage_seconds(work)
    assert 4 == len(each)
    assert sum(each) < timed.seconds(work) < 1.1 * sum(each)


def test_ranks_with_requests_of_their_own_split_generation_and_share_prompts() -> None:
    """Eight prompts keep eight ranks busy; one prompt is one rank's."""
    timed = clock(deepseek_v3(), split=Split(8, expert=8), attention_dp=True)
    one, eight = (timed.seconds(StepWork((Chunk(2048),) * count)) for count in (1, 8))
    assert eight < 4 * one


def test_streaming_to_clients_costs_the_host() -> None:
    """An offline run of release 1.0 with 256 sequences on eight ranks is quicker than a served one."""
    work = StepWork(sequences=256, context=256 * 100)
    served, offline = (clock(llama_8b(), split=Split(8), release="1.0.0", served=one) for one in (True, False))
    assert offline.seconds(work) < served.seconds(work)


def test_no_work_takes_no_time() -> None:
    """An empty step is none."""
    assert 0.0 == clock().seconds(StepWork())
    assert 0.0 == clock().decode_run(0, 0, 5)


def test_every_planned_family_has_a_step_time(shared: Path) -> None:
    """Sparse, latent, linear and windowed attention, state-space layers: each takes longer for more tokens."""
    configs = sorted((shared / "models").glob("*_config.json"))
    read = [path for path in configs if not path.name.endswith("hf_quant_config.json")]
    families = {}
    for path in read:
        quantised = path.with_name(path.name.replace("_config.json", "_hf_quant_config.json"))
        model = parse_model(path.read_bytes(), path, quantised.read_bytes() if quantised.exists() else None)
        families[model.family] = model
    assert len(families) > 15
    for family, model in families.items():
        timed = clock(model, split=Split(1), formats=Formats())
        steps = [timed.seconds(StepWork(sequences=size, context=size * 4096)) for size in (1, 64, 512)]
        prompts = [timed.seconds(StepWork((Chunk(size),))) for size in (4096, 32768, 131072)]
        assert all(isfinite(one) and one > 0 for one in (*steps, *prompts)), family
        assert steps[0] <= steps[1] < steps[2], family
        assert prompts[0] < prompts[1] < prompts[2], family


FIRST_TOKENS = [
    (llama_70b, 4096, 0.064),
    (llama_70b, 32768, 0.472),
    (llama_70b, 122880, 2.197),
    (llama_405b, 4096, 0.208),
    (llama_405b, 32768, 1.627),
    (llama_405b, 122880, 7.508),
]


def engine(model: ModelSpec, machine: Hardware) -> StepClock:
    """Return the clock of a built engine over 32 ranks."""
    return clock(model, machine, split=Split(32), backend="tensorrt")


@pytest.mark.parametrize(("make", "prompt", "stated"), FIRST_TOKENS)
def test_first_tokens_on_nvl32(make: object, prompt: int, stated: float) -> None:
    """Each published time of 32 GH200 in one NVLink domain is met within 20 %."""
    timed = engine(make(), load_hardware("gh200-nvl32"))  # type: ignore[operator]
    assert pytest.approx(stated, rel=0.2) == timed.seconds(StepWork((Chunk(prompt),)))


@pytest.mark.parametrize(("machine", "stated"), [("gh200-nvl32", 0.15), ("h100x8", 0.50)])
def test_share_of_communication(machine: str, stated: float) -> None:
    """Of a long prefill over 32 ranks: about 15 % in one NVLink domain, about half over nodes on InfiniBand."""
    hardware = load_hardware(machine)
    if machine == "h100x8":
        hardware = hardware.model_copy(update={"nodes": 4})
    terms = engine(llama_405b(), hardware).explain(StepWork((Chunk(122880),))).terms
    share = next(term.seconds for term in terms if term.name == "collectives") / sum(term.seconds for term in terms)
    assert pytest.approx(stated, abs=0.10) == share


@pytest.mark.parametrize(("ranks", "measured"), [(1, 20.78e-3), (2, 12.2e-3), (4, 8.09e-3)])
def test_generation_of_70b_on_h200(ranks: int, measured: float) -> None:
    """Four sequences at a context of about 5,000 tokens: the time per token that was measured, within 8 %."""
    timed = clock(split=Split(ranks), release="1.1.0rc2.post2")
    assert pytest.approx(measured, rel=0.08) == timed.seconds(StepWork(sequences=4, context=4 * 4600))


def test_an_expert_model_reads_the_experts_that_are_chosen() -> None:
    """One token visits 8 of 128 experts; 64 tokens nearly all of them, at several times the time and not 64 times."""
    timed = clock(qwen3_moe(), split=Split(8, expert=8))
    experts = [
        next(
            term.seconds
            for term in timed.explain(StepWork(sequences=size, context=size)).terms
            if term.name == "experts"
        )
        for size in (1, 64)
    ]
    assert 4 * experts[0] < experts[1] < 24 * experts[0]
