"""The bench over HTTPS: a server that shows a certificate, whom it believes, and whom not."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.bench.support import small_load
from tests.support.certificates import certificate, serving_with
from tests.support.cli import trtkit
from tests.support.rehearsal import until
from tests.support.scripted_server import Script, scripted
from tests.support.token_server import token_server
from trtllm_kit.bench.client import Address, address_of
from trtllm_kit.bench.discover import discover
from trtllm_kit.bench.run import Bench, Once, Server
from trtllm_kit.bench.scrape import scraping
from trtllm_kit.bench.secure import trusting
from trtllm_kit.errors import RequestFailed, UsageError


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Key and certificate of this machine."""
    return certificate(tmp_path_factory.mktemp("tls"))


def trusted(url: str, both: Path) -> Address:
    """Return the address, with the certificate to trust."""
    return replace(address_of(url), ca=str(both))


def once(address: Address) -> Once:
    """Run six requests."""
    load = small_load()
    return Bench(Server(address, "triton", "tensorrt_llm", silence=5), load).once(load)


def test_streams_come_piece_by_piece(both: Path) -> None:
    """Every answer is whole, and its pieces came over time: none waited for the end."""
    with token_server(gap=0.02, secure=serving_with(both)) as (url, _):
        found = once(trusted(url, both))
    assert (6, {}) == (found.figures.answered, found.figures.failures)
    assert {6} == {len(record.stamps) for record in found.records}
    assert all(record.stamps[0] < record.stamps[3] < record.stamps[-1] for record in found.records)


def test_a_certificate_that_nobody_vouches_for_is_refused(both: Path) -> None:
    """Requests fail by their reason, and nothing of them was sent."""
    with token_server(secure=serving_with(both)) as (url, asked):
        found = once(address_of(url))
    assert ({"refused": 6}, []) == (found.figures.failures, asked)
    assert "self-signed certificate" in found.figures.why[0]


def test_a_certificate_for_another_name_is_refused(tmp_path: Path) -> None:
    """One that is trusted is good for the names in it, and for no other."""
    elsewhere = certificate(tmp_path, "DNS:elsewhere.example")
    with token_server(secure=serving_with(elsewhere)) as (url, asked):
        found = once(trusted(url, elsewhere))
    assert ({"refused": 6}, []) == (found.figures.failures, asked)
    assert "127.0.0.1" in found.figures.why[0]


def test_a_server_without_tls_is_refused(both: Path) -> None:
    """https:// of a port that speaks HTTP ends as a failure, and does not wait."""
    with scripted(Script(lambda *_: "x")) as url:
        found = once(trusted(url.replace("http:", "https:"), both))
    assert {"refused": 6} == found.figures.failures


def test_a_server_over_tls_says_what_it_speaks(both: Path) -> None:
    """It is found as ever; with a certificate that is not trusted, that is the reason."""
    with scripted(Script(lambda *_: "x", "ensemble"), serving_with(both)) as url:
        assert ("triton-legacy", "ensemble") == discover(trusted(url, both), None)
        with pytest.raises(RequestFailed, match=r"certificate of 127\.0\.0\.1"):
            discover(address_of(url), None)


def test_the_whole_verb_over_tls(both: Path) -> None:
    """``bench --ca`` finds the interface and measures; without it the certificate is the reason of exit 3."""
    with scripted(Script(lambda *_: "some words"), serving_with(both)) as url:
        found = [trtkit("bench", url, "--requests", "6", "--json", *more) for more in (("--ca", both), ())]
    assert [0, 3] == [ran.code for ran in found], found[0].err
    assert (5, {}) == (found[0].json["figures"]["answered"], found[0].json["figures"]["failures"])
    assert "self-signed certificate" in found[1].err


def test_a_metrics_page_over_tls(both: Path) -> None:
    """It is read with the certificate to trust, and without it each reading tells why it failed."""
    script = Script(lambda *_: "x", page='nv_trt_llm_request_metrics{request_type="active"} 3\n')
    with scripted(script, serving_with(both)) as url:
        with scraping(f"{url}/metrics", str(both)) as scraped:
            until(lambda: script.pages > 1, 20)
        argv = [sys.executable, "-m", "trtllm_kit.bench.scraper", f"{url}/metrics", "1"]
        with subprocess.Popen(argv, stdout=subprocess.PIPE) as refused:
            assert refused.stdout is not None
            line = json.loads(refused.stdout.readline())
            refused.kill()
    assert (True, [3.0]) == (scraped.readings[0]["ok"], list(scraped.readings[0]["values"].values()))
    assert (False, True) == (line["ok"], "self-signed certificate" in line["reason"])


def test_a_file_without_certificates_is_a_wrong_question(tmp_path: Path) -> None:
    """It is named before anything is sent; so is one that is not there."""
    empty = tmp_path / "empty.pem"
    empty.write_text("no certificate")
    for path in (empty, tmp_path / "none.pem"):
        with pytest.raises(UsageError, match=path.name):
            trusting(str(path))
