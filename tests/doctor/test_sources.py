"""NVML, nvidia-smi and the CUDA driver as sources: what they tell, and what is left unknown."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.doctor.fake_nvml import H200, FakeNvml
from tests.doctor.support import recorded
from trtllm_kit.doctor.ask import Answer, ask
from trtllm_kit.doctor.facts import Host
from trtllm_kit.doctor.probe import _with_switch_errors
from trtllm_kit.doctor.probe_gpus import card_of, read_gpus
from trtllm_kit.doctor.smi_text import read_peers, read_query, with_links
from trtllm_kit.doctor_worker import cuda, nvml


def test_nvidia_smi_of_two_h200_is_read() -> None:
    """What the driver 580.159.04 printed of two H200s, with the counters of its NVLinks."""
    cards, driver, newest = read_query(recorded("h200x2.xml"))
    cards = with_links(cards, recorded("h200x2.nvlink-s.txt"), recorded("h200x2.nvlink-e.txt"))
    assert ("580.159.04", "13.0", 2) == (driver, newest, len(cards))
    one = cards[1]
    assert (150754820096, 700.0, 1980.0, 1) == (
        one.memory_bytes, one.power_limit_watts, one.clock_most_mhz, one.clock_reasons,
    )  # fmt: skip
    assert (18, 0, {"replay": 0, "recovery": 0, "crc_flit": 0}) == (one.links_up, one.links_down, dict(one.link_errors))
    assert ("completed", "success", True, False, 0) == (
        one.fabric, one.fabric_status, one.persistence, one.mig, one.ecc_uncorrected,
    )  # fmt: skip
    assert {(0, 1): "OK"} == read_peers(recorded("h200x2.p2p.txt"))


def test_words_for_not_known_are_no_zeros() -> None:
    """N/A stays unknown: no ECC errors were counted is another answer than nobody counted."""
    text = "<nvidia_smi_log><gpu><product_name>A</product_name><ecc_mode><current_ecc>N/A</current_ecc></ecc_mode></gpu></nvidia_smi_log>"  # noqa: E501
    one = read_query(text)[0][0]
    assert (None, None, None, None, None) == (
        one.ecc, one.ecc_uncorrected, one.memory_bytes, one.clock_reasons, one.links_up,
    )  # fmt: skip


def test_the_old_name_of_the_clock_reasons_is_read() -> None:
    """Drivers before 535 said throttle where newer ones say event; active reasons give NVML's bits."""
    reasons = "<clocks_throttle_reasons><clocks_throttle_reason_sw_power_cap>Active</clocks_throttle_reason_sw_power_cap><clocks_throttle_reason_hw_slowdown>Not Active</clocks_throttle_reason_hw_slowdown></clocks_throttle_reasons>"  # noqa: E501
    text = f"<nvidia_smi_log><gpu><product_name>A</product_name>{reasons}</gpu></nvidia_smi_log>"
    assert 4 == read_query(text)[0][0].clock_reasons


@pytest.mark.parametrize("text", ["NVIDIA-SMI has failed", "<a", '<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'])
def test_other_documents_are_refused(text: str) -> None:
    """An error's words, XML that was cut off and a document with entities are no answer."""
    with pytest.raises(ValueError, match="that is no"):
        read_query(text)


def test_nvml_tells_what_the_card_supports() -> None:
    """Numbers come in base units, links are added up, and a card that does not answer is named."""
    fake = FakeNvml(H200 | {"links": [1, 1, 0], "errors": [3, 0, 1]}, {"Name": "old"}, {}, fabric=(3, 0))
    told = json.loads(json.dumps(nvml.told(fake)))
    first, second = (card_of(document) for document in told["cards"])
    assert ("580.159.04", "13.0", [[2, "GPU is lost"]]) == (told["driver"], told["cuda"], told["lost"])
    assert (90, 700.0, 2, 1, "completed", "success") == (
        first.compute_capability, first.power_limit_watts, first.links_up, first.links_down, first.fabric,
        first.fabric_status,
    )  # fmt: skip
    assert {"replay": 6, "recovery": 0, "crc_flit": 2} == first.link_errors
    assert (None, None, None, {}) == (second.memory_bytes, second.ecc, second.links_up, second.link_errors)


class _Driver:
    """Two GPUs of which only the first reads the other's memory."""

    def cuInit(self, _flags: int) -> int:
        return 0

    def cuDeviceGetCount(self, answer: Any) -> int:
        answer._obj.value = 2
        return 0

    def cuDriverGetVersion(self, answer: Any) -> int:
        answer._obj.value = 12080
        return 0

    def cuDeviceGetAttribute(self, answer: Any, attribute: int, _device: int) -> int:
        answer._obj.value = {cuda.MULTICAST: 0, cuda.MAJOR: 9, cuda.MINOR: 0}[attribute]
        return 0

    def cuDeviceCanAccessPeer(self, answer: Any, one: int, _other: int) -> int:
        answer._obj.value = int(one == 0)
        return 0


def test_the_cuda_driver_tells_multicast_and_peers() -> None:
    """Attributes and peers of each pair in both directions, and the version in parts."""
    told = cuda.told(_Driver())
    assert ("12.8", [[0, 1, 1], [1, 0, 0]]) == (told["cuda"], told["peers"])
    assert [{"multicast": 0, "major": 9, "minor": 0}] * 2 == told["cards"]


def _answers(table: dict[str, Answer]) -> Any:
    """Return what stands in for running programs: answers by the last part of the path and the arguments."""

    def run(*argv: str, **_: object) -> Answer:
        words = " ".join(word.rpartition("/")[2] for word in argv)
        return next(
            (answer for key, answer in table.items() if key in words), Answer(why="there is none", missing=True)
        )

    return run


def test_without_nvml_nvidia_smi_is_read() -> None:
    """The cards, their links, their topology and their peers come from the program, and CUDA's driver is named."""
    table = {
        "nvidia-smi -q -x": Answer(recorded("h200x2.xml")),
        "nvidia-smi nvlink -s": Answer(recorded("h200x2.nvlink-s.txt")),
        "nvidia-smi topo -m": Answer(recorded("h200x2.topo.txt")),
        "nvidia-smi topo -p2p r": Answer(recorded("h200x2.p2p.txt")),
    }
    table["nvidia-smi nvlink -e"] = Answer(why="nvidia-smi exited with 3")
    gpus = read_gpus(run=_answers(table))
    assert ("nvidia-smi", "580.159.04", 2) == (gpus.told_by, gpus.driver, len(gpus.cards))
    assert gpus.topology is not None
    assert {(0, 1): "OK"} == gpus.peers
    assert ["NVLink multicast", "compute capability of GPU 0, 1", "NVLink errors of GPU 0, 1"] == [
        one.what for one in gpus.unread
    ]


def test_nvml_and_cuda_together() -> None:
    """Multicast and peers of CUDA's driver are added to the cards of NVML; a pair is open only both ways."""
    linked = H200 | {"links": [1] * 18, "errors": [0, 0, 0]}
    fake = json.dumps(nvml.told(FakeNvml(linked, linked)))
    table = {
        "nvml.py": Answer(fake),
        "cuda.py": Answer(json.dumps(cuda.told(_Driver()))),
        "topo -m": Answer(recorded("h200x2.topo.txt")),
    }
    gpus = read_gpus(run=_answers(table))
    assert ("NVML", (), {(0, 1): "NS"}) == (gpus.told_by, gpus.unread, gpus.peers)
    assert [False, False] == [one.multicast for one in gpus.cards]


def test_with_neither_the_gpus_are_unknown() -> None:
    """Nothing is taken for no GPU: what was tried is named, with both reasons."""
    gpus = read_gpus(run=_answers({"nvml.py": Answer('{"error": "no library"}')}))
    assert () == tuple(gpus.cards)
    assert [("the GPUs", "there is none; NVML: no library")] == [(one.what, one.why) for one in gpus.unread]


def test_a_program_that_hangs_is_given_up() -> None:
    """Its time is bounded, and the answer says that it was up."""
    assert "sleep did not answer in 0.1 s" == ask("sleep", "30", seconds=0.1).why


def test_a_program_that_fails_tells_its_last_words() -> None:
    """The exit code and what stood on stderr."""
    assert "sh exited with 9: broken" == ask("sh", "-c", "echo broken >&2; exit 9").why


def test_the_structures_of_the_fabric_are_those_of_nvidia_ml_py() -> None:
    """Each that is asked for exists in the real module, with a function that fills it and the fields that are read."""
    real = pytest.importorskip("pynvml", reason="nvidia-ml-py is not here")
    for structure, function in nvml.FABRIC_QUESTIONS:
        fields = {field[0] for field in getattr(real, structure)._fields_}
        assert {"state", "status", "version"} <= fields
        assert callable(getattr(real, function))


def test_a_kernel_log_that_is_not_shown_is_unknown() -> None:
    """Errors of switches are read from the log; one that is refused is named, and not taken for no errors."""
    line = "[1] nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46 MC TS crumbstore MCTO"
    told, nothing = _with_switch_errors(Host(nvswitches=4), _answers({"dmesg": Answer(line)}))
    assert ([("0000:c1:00.0", 0, 1)], []) == (
        [(one.switch, one.fatal, one.others) for one in told.switch_errors],
        nothing,
    )
    refused = Answer(why="dmesg exited with 1: read kernel buffer failed: Operation not permitted")
    host, unread = _with_switch_errors(Host(nvswitches=4), _answers({"dmesg": refused}))
    assert ((), ["errors of the NVSwitches"]) == (host.switch_errors, [one.what for one in unread])
