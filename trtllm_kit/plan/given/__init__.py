"""Rules about what exists already and trtkit did not decide: engines, commands, repositories, documents, weights.

Each takes plain data (``facts``) and yields findings; nothing here reads a file. Who reads decides what is known, and
what is not known is not judged.
"""

from __future__ import annotations

TITLES = {
    "PF9": "Weight files that are whole",
    "PF10": "The output head, tied or stored",
    "PF15": "Options and commands that are gone",
    "PF16": "Plugins of the weights' type",
    "PF17": "Lengths an engine inherits",
    "PF21": "Rendered Triton repositories",
    "PF48": "Options of trtllm-serve",
    "PF49": "Images and packages of another release",
    "PF50": "Metrics that no server shows",
    "PF51": "Settings that come to mean something else",
    "PF52": "Parts of a script that were not read",
}
"""Rules of these ids look at given things alone; others share the id of a rule of plans."""
