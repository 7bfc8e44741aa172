"""The metrics of two moments: what is read between them, and what is not."""

from __future__ import annotations

import pytest

from tests.health.support import snapshot
from trtllm_kit.health.changes import CHANGES, compare
from trtllm_kit.health.snapshot import NoReading, Reading, Trouble

SECONDS = 300.0


def between(
    name: str, before: str, after: str, subject: str = "", seconds: float = SECONDS
) -> Reading | NoReading | None:
    """Read a change of one subject between two pages, five minutes apart."""
    change = CHANGES[name]
    earlier, later = change.count(snapshot(before))[subject], change.count(snapshot(after))[subject]
    return compare(change, earlier, later, seconds)


def drafts(drafted: float, accepted: float) -> str:
    """Write the speculation counters of trtllm-serve."""
    return (
        f"trtllm_spec_decode_num_draft_tokens_total {drafted}\n"
        f"trtllm_spec_decode_num_accepted_tokens_total {accepted}\n"
    )


def histogram(name: str, *counts: float, bounds: tuple[float, ...] = (0.1, 0.2, 0.4), total: float = 1.0) -> str:
    """Write a histogram with these cumulative counts; the last one is of everything."""
    buckets = "".join(f'{name}_bucket{{le="{bound}"}} {count}\n' for bound, count in zip(bounds, counts, strict=False))
    return f'{buckets}{name}_bucket{{le="+Inf"}} {counts[-1]}\n{name}_count {counts[-1]}\n{name}_sum {total}\n'


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (drafts(0, 0), drafts(1000, 550), 0.55),
        (drafts(500, 0), drafts(1500, 1000), 1.0),
        (drafts(500, 400), drafts(1500, 400), 0.0),
    ],
)
def test_acceptance_is_of_the_drafts_between(before: str, after: str, expected: float) -> None:
    """Only tokens drafted between the moments count, not those since the start."""
    reading = between("spec_acceptance", before, after)
    assert isinstance(reading, Reading)
    assert expected == reading.value


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (drafts(599, 400), Trouble.QUIET),
        (drafts(1500, 1401), Trouble.CONTRADICTING),
        (drafts(1500, -1), Trouble.CONTRADICTING),
    ],
)
def test_acceptance_that_tells_nothing_is_no_reading(after: str, expected: Trouble) -> None:
    """Fewer than a hundred drafts are chance, and more accepted than drafted is impossible."""
    reading = between("spec_acceptance", drafts(500, 400), after)
    assert isinstance(reading, NoReading)
    assert expected is reading.trouble


def test_nothing_is_read_across_a_restart() -> None:
    """A counter that fell tells of a restart: there is no reading, not a wrong one."""
    assert between("spec_acceptance", drafts(500, 400), drafts(300, 100)) is None


def test_nan_is_no_reading() -> None:
    """A counter that is no number is told as such."""
    reading = between("spec_acceptance", drafts(0, 0), drafts(1000, float("nan")))
    assert isinstance(reading, NoReading)
    assert Trouble.NOT_A_NUMBER is reading.trouble


@pytest.mark.parametrize("names", [("drafted", "accepted"), ("num_draft", "num_accepted")])
def test_both_namings_of_the_speculation_counters_are_read(names: tuple[str, str]) -> None:
    """trtllm-serve counts drafts as a whole and by position; either gives the acceptance."""
    drafted, accepted = (f"trtllm_spec_decode_{name}_tokens_total" for name in names)
    page = f'{drafted}{{token_position="0"}} 100\n{drafted}{{token_position="1"}} 100\n{accepted} 120\n'
    zero = page.replace(" 100\n", " 0\n").replace(" 120\n", " 0\n")
    reading = between("spec_acceptance", zero, page)
    assert isinstance(reading, Reading)
    assert 0.6 == reading.value


TTFT = "trtllm_time_to_first_token_seconds"


def test_a_quantile_is_prometheus_quantile() -> None:
    """The 99th percentile over the median is what histogram_quantile gives for the counts between."""
    reading = between("ttft_tail", histogram(TTFT, 0, 0, 0), histogram(TTFT, 50, 98, 100))
    assert isinstance(reading, Reading)
    assert pytest.approx((0.2 + 0.2 * 0.5) / 0.1) == reading.value


def test_triton_reports_milliseconds() -> None:
    """Triton's histogram of first responses is in milliseconds, and the gap is in seconds."""
    name = "nv_inference_first_response_histogram_ms"
    page = histogram(name, 50, 100, bounds=(100, 500), total=9000)
    reading = between("ttft_jitter", histogram(name, 0, 0, bounds=(100, 500), total=0), page)
    assert isinstance(reading, Reading)
    assert 0.09 == reading.value


def test_the_engines_own_first_token_goes_first() -> None:
    """Where both stand on a page the engine's is read: Triton's counts a whole answer as a first response."""
    triton = "nv_inference_first_response_histogram_ms"
    before = histogram(triton, 0, 0, bounds=(100, 500), total=0) + histogram(TTFT, 0, 0, 0, total=0)
    after = histogram(triton, 0, 100, bounds=(100, 500), total=90_000) + histogram(TTFT, 100, 100, 100, total=5)
    reading = between("ttft_jitter", before, after)
    assert isinstance(reading, Reading)
    assert 0.05 == reading.value


def test_the_gap_between_tokens_is_the_99th_percentile() -> None:
    """Gaps of a tenth of a second with two in a hundred above 0.2 s give a gap above 0.2 s."""
    name = "trtllm_time_per_output_token_seconds"
    reading = between("inter_token_gap", histogram(name, 0, 0, 0), histogram(name, 90, 98, 100))
    assert isinstance(reading, Reading)
    assert pytest.approx(0.3) == reading.value


def test_few_requests_are_chance() -> None:
    """Nineteen observations give no quantile."""
    reading = between("ttft_tail", histogram(TTFT, 0, 0, 0), histogram(TTFT, 1, 2, 19))
    assert isinstance(reading, NoReading)
    assert Trouble.QUIET is reading.trouble


def queue(queued: float, computed: float) -> str:
    """Write Triton's durations of one model, microseconds."""
    labels = 'model="m",version="1"'
    return (
        f"nv_inference_queue_duration_us{{{labels}}} {queued}\n"
        f"nv_inference_compute_infer_duration_us{{{labels}}} {computed}\n"
    )


@pytest.mark.parametrize(("queued", "computed", "expected"), [(600e6, 300e6, 2.0), (330e6, 3300e6, 0.1)])
def test_queue_over_compute(queued: float, computed: float, expected: float) -> None:
    """Seconds of waiting over seconds of computing, in the time between."""
    reading = between("queue_to_compute", queue(0, 0), queue(queued, computed), "m/1")
    assert isinstance(reading, Reading)
    assert pytest.approx(expected) == reading.value


@pytest.mark.parametrize(("queued", "seconds"), [(299e6, 300.0), (239e6, 239.0), (5e6, 1.0)])
def test_a_moment_of_waiting_is_no_queue(queued: float, seconds: float) -> None:
    """Less than one waiting request on average, or fewer than four minutes that were watched, tell nothing."""
    reading = between("queue_to_compute", queue(0, 0), queue(queued, 1e3), "m/1", seconds)
    assert isinstance(reading, NoReading)
    assert Trouble.QUIET is reading.trouble


def test_a_decoupled_model_has_no_queue_to_speak_of() -> None:
    """A model whose queue and compute are both next to nothing, as llmapi's, is quiet and not a ratio of two crumbs."""
    reading = between("queue_to_compute", queue(0, 0), queue(2e6, 1e3), "m/1")
    assert isinstance(reading, NoReading)
    assert Trouble.QUIET is reading.trouble


def xid(number: float, name: str = "DCGM_FI_DEV_XID_ERRORS") -> str:
    """Write what the DCGM exporter says was the last fault of a GPU."""
    return f'{name}{{gpu="0",UUID="GPU-a"}} {number}\n'


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [(0, 79, 1.0), (79, 79, 0.0), (0, 0, 0.0), (0, 31, 0.0), (79, 48, 1.0), (79, 0, 0.0)],
)
def test_a_sticky_xid_counts_once(before: float, after: float, expected: float) -> None:
    """The last fault stays on the page: only another one is new, and a fault of a program is none of the GPU's."""
    for name in ("DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_XID_ERROR"):
        reading = between("gpu_faults", xid(before, name), xid(after, name), "GPU-a")
        assert isinstance(reading, Reading)
        assert expected == reading.value


def test_a_blank_xid_is_not_there() -> None:
    """DCGM's mark for what it could not read is no fault number."""
    assert {} == CHANGES["gpu_faults"].count(snapshot(xid(9223372036854775794)))


def test_link_errors_add_up_under_both_names() -> None:
    """Old and new names of the exporter give the same count; kinds of one GPU add up."""
    kinds = ("CRC_FLIT", "REPLAY")
    old = "".join(f'DCGM_FI_DEV_NVLINK_{kind}_ERROR_COUNT_TOTAL{{UUID="G"}} %d\n' for kind in kinds)
    new = old.replace("ERROR_COUNT_TOTAL", "ERROR_TOTAL")
    for text in (old, new):
        reading = between("nvlink_errors", text % (1, 1), text % (3, 4), "G")
        assert isinstance(reading, Reading)
        assert 5 == reading.value


def test_a_kind_of_link_error_that_is_not_in_both_samples_is_no_zero() -> None:
    """A counter that comes, goes or takes another's place is compared with nothing: it hides no growth, makes none."""
    flit, replay = (f'DCGM_FI_DEV_NVLINK_{kind}_ERROR_COUNT_TOTAL{{UUID="G"}} %d\n' for kind in ("CRC_FLIT", "REPLAY"))
    assert between("nvlink_errors", flit % 1, flit % 3 + replay % 900, "G") is None
    assert between("nvlink_errors", flit % 9 + replay % 900, flit % 3, "G") is None
    assert isinstance(between("nvlink_errors", flit % 1, replay % 900, "G"), NoReading)
    reading = between("nvlink_errors", replay % 1, replay % 3, "G")
    assert isinstance(reading, Reading)
    assert 2 == reading.value
