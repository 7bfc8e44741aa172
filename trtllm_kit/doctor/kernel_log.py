"""Errors of NVSwitches in the kernel's log, where the driver writes them. Pure.

A line is ``nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46 MC TS crumbstore MCTO`` (fabric
manager's user guide, its chapter on errors); words behind a message's number belong to it, and a repetition counts.
"""

from __future__ import annotations

import re

from trtllm_kit.doctor.facts import SwitchErrors

_SXID = re.compile(r"SXid \(PCI:([0-9a-fA-F:.]+)\): (\d+), (Non-fatal|Fatal), (.*)", re.IGNORECASE)
_WORDS = 100


def read_switch_errors(text: str) -> tuple[SwitchErrors, ...]:
    """Return what a log says, a switch each, in the order of their addresses."""
    found: dict[str, SwitchErrors] = {}
    for switch, number, severity, words in _SXID.findall(text):
        before = found.get(switch, SwitchErrors(switch, 0, 0, ""))
        fatal = severity.lower() == "fatal"
        last = f"SXid {number}, {words.strip()[:_WORDS]}"
        found[switch] = SwitchErrors(switch, before.fatal + fatal, before.others + (not fatal), last)
    return tuple(found[switch] for switch in sorted(found))
