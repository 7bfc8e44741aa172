"""What ``nvidia-smi`` prints, read: the cards, remapped rows, NVLinks and peers. Pure.

Cards come of ``nvidia-smi -q -x``, one XML document with every GPU, whose elements carry their units in the text. The
names changed once (``clocks_throttle_reasons``, ``clocks_event_reasons``); both are read. "N/A" and words like it are
unknown, never 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from xml.etree.ElementTree import Element, ParseError, XMLParser, fromstring  # see read_query

from trtllm_kit.doctor.facts import Card
from trtllm_kit.doctor.topology import Pair

MOST_BYTES = 8 << 20
_REASONS = {
    "gpu_idle": 1, "applications_clocks_setting": 2, "sw_power_cap": 4, "hw_slowdown": 8, "sync_boost": 16,
    "sw_thermal_slowdown": 32, "hw_thermal_slowdown": 64, "hw_power_brake_slowdown": 128,
}  # fmt: skip
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_UNKNOWN = {
    "",
    "N/A",
    "[N/A]",
    "[Not Supported]",
    "Not Supported",
    "[Unknown Error]",
    "Unknown Error",
    "Requested functionality has been deprecated",
}
_ERRORS = {
    "Replay Errors": "replay",
    "Recovery Errors": "recovery",
    "CRC FLIT Errors": "crc_flit",
    "CRC Errors": "crc_flit",
}
_LINK_HEAD = re.compile(r"^GPU (\d+):")


def read_query(text: str) -> tuple[list[Card], str | None, str | None]:
    """Read ``nvidia-smi -q -x``; returns the cards, the driver and CUDA. Raises ``ValueError`` for another document.

    A document type without internal subset is all that the program writes, so one with entities is refused.
    """
    if len(text) > MOST_BYTES or "<!ENTITY" in text:
        raise ValueError("that is no answer of nvidia-smi")
    try:
        root = fromstring(text, XMLParser())  # noqa: S314  # no entities, of bounded size, of a program that we run
    except ParseError as error:
        raise ValueError(f"that is no XML: {error}") from None
    cards = [_card(number, element) for number, element in enumerate(root.iter("gpu"))]
    return cards, _text(root, "driver_version"), _text(root, "cuda_version")


def _card(number: int, gpu: Element) -> Card:
    """Read one GPU; ``number`` is its place, which is how the program counts."""
    power = next(
        (found for name in ("gpu_power_readings", "power_readings") if (found := gpu.find(name)) is not None), gpu
    )
    limit = _number(power, "current_power_limit", "enforced_power_limit", "power_limit")
    link = gpu.find("pci/pci_gpu_link_info")
    link = gpu if link is None else link
    return Card(
        index=number,
        name=_text(gpu, "product_name") or "a GPU without a name",
        uuid=_text(gpu, "uuid") or "",
        bus=_text(gpu, "pci/pci_bus_id") or gpu.get("id") or "",
        memory_bytes=_mebibytes(gpu, "fb_memory_usage/total"),
        memory_used_bytes=_mebibytes(gpu, "fb_memory_usage/used"),
        power_limit_watts=limit,
        power_default_watts=_number(power, "default_power_limit"),
        clock_mhz=_number(gpu, "clocks/sm_clock"),
        clock_most_mhz=_number(gpu, "max_clocks/sm_clock"),
        clock_reasons=_reasons(gpu),
        temperature=_number(gpu, "temperature/gpu_temp"),
        persistence=_flag(gpu, "persistence_mode"),
        mig=_flag(gpu, "mig_mode/current_mig"),
        ecc=_flag(gpu, "ecc_mode/current_ecc"),
        ecc_uncorrected=_uncorrected(gpu),
        remap_pending=_flag(gpu, "remapped_rows/remapped_row_pending"),
        remap_failed=_flag(gpu, "remapped_rows/remapped_row_failure"),
        pcie_generation=_whole(link, "pcie_gen/current_link_gen"),
        pcie_generation_most=_whole(link, "pcie_gen/max_link_gen"),
        pcie_lanes=_whole(link, "link_widths/current_link_width"),
        pcie_lanes_most=_whole(link, "link_widths/max_link_width"),
        fabric=_lower(_text(gpu, "fabric/state")),
        fabric_status=_lower(_text(gpu, "fabric/status")),
    )


def _text(element: Element, path: str) -> str | None:
    found = (element.findtext(path) or "").strip()
    return None if found in _UNKNOWN else found


def _lower(text: str | None) -> str | None:
    return text.lower() if text else None


def _number(element: Element, *paths: str) -> float | None:
    for path in paths:
        found = _NUMBER.search(_text(element, path) or "")
        if found:
            return float(found[0])
    return None


def _whole(element: Element, path: str) -> int | None:
    found = _number(element, path)
    return None if found is None else int(found)


def _mebibytes(element: Element, path: str) -> int | None:
    found = _number(element, path)
    return None if found is None else int(found) << 20


def _flag(element: Element, path: str) -> bool | None:
    word = (_text(element, path) or "").lower()
    return {"enabled": True, "disabled": False, "yes": True, "no": False}.get(word)


def _reasons(gpu: Element) -> int | None:
    """Add up the bits of the reasons that are active; None where none is told."""
    found: int | None = None
    for prefix in ("clocks_event_reasons", "clocks_throttle_reasons"):
        group = gpu.find(prefix)
        for name, bit in _REASONS.items() if group is not None else ():
            word = _text(group, f"{prefix[:-1]}_{name}") if group is not None else None
            if word is not None:
                found = (found or 0) | (bit if word == "Active" else 0)
    return found


def _uncorrected(gpu: Element) -> int | None:
    """Add up what could not be corrected since the driver was loaded, in memory on and beside the chip."""
    group = gpu.find("ecc_errors/volatile")
    if group is None:
        return None
    values = [_whole(group, one.tag) for one in group if "uncorrectable" in one.tag and "threshold" not in one.tag]
    told = [value for value in values if value is not None]
    return sum(told) if told else None


def with_links(cards: list[Card], status: str, errors: str) -> list[Card]:
    """Return the cards with what ``nvidia-smi nvlink -s`` and ``-e`` tell: links up and down, errors by kind."""
    states, counts = _states(status), _counts(errors)
    return [
        replace(
            card,
            links_up=states[card.index][0] if card.index in states else None,
            links_down=states[card.index][1] if card.index in states else None,
            link_errors=counts.get(card.index, {}),
        )
        for card in cards
    ]


def _states(text: str) -> dict[int, tuple[int, int]]:
    found: dict[int, tuple[int, int]] = {}
    gpu = -1
    for line in text.splitlines():
        head = _LINK_HEAD.match(line)
        gpu = int(head[1]) if head else gpu
        link = re.match(r"\s*Link \d+:\s*(.*)", line)
        if gpu >= 0 and link:
            up, down = found.get(gpu, (0, 0))
            down_here = "inactive" in link[1].lower()
            found[gpu] = (up + (not down_here), down + down_here)
    return found


def _counts(text: str) -> dict[int, dict[str, int]]:
    found: dict[int, dict[str, int]] = {}
    gpu = -1
    for line in text.splitlines():
        head = _LINK_HEAD.match(line)
        gpu = int(head[1]) if head else gpu
        told = re.match(r"\s*Link \d+:\s*([A-Za-z ]+?):\s*(\d+)\s*$", line)
        kind = _ERRORS.get(told[1]) if told else None
        if gpu >= 0 and told and kind:
            mine = found.setdefault(gpu, {})
            mine[kind] = mine.get(kind, 0) + int(told[2])
    return found


def read_peers(text: str) -> dict[Pair, str]:
    """Read ``nvidia-smi topo -p2p r``: of each pair ``OK``, or why one does not read the other's memory."""
    plain = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text)
    rows = [line.split() for line in plain.splitlines()]
    body = [
        row for row in rows if row and re.match(r"GPU\d+$", row[0]) and len(row) > 1 and not row[1].startswith("GPU")
    ]
    found: dict[Pair, str] = {}
    for row in body:
        number = int(row[0][3:])
        for other, cell in enumerate(row[1:]):
            if other != number and cell != "X":
                pair = (min(number, other), max(number, other))
                found[pair] = cell if found.get(pair, "OK") == "OK" else found[pair]
    return found


LEGEND: Mapping[str, str] = {
    "CNS": "the chipset does not support it",
    "GNS": "a GPU does not support it",
    "TNS": "the topology does not allow it",
    "NS": "it is not supported",
    "DR": "it is disabled by a registry key of the driver",
    "U": "it is not known why",
}
"""What the program's words for a pair without peer access mean."""
