"""Rules about what exists already and trtkit did not decide: engines, commands, repositories, documents, weights.

Each takes plain data (``facts``) and yields findings; nothing here reads a file. Who reads decides what is known, and
what is not known is not judged.
"""

from __future__ import annotations

from trtllm_kit.plan.given.commands import command_line, parse_command
from trtllm_kit.plan.given.documents import document
from trtllm_kit.plan.given.facts import engine_facts
from trtllm_kit.plan.given.launches import launch
from trtllm_kit.plan.given.repositories import repository
from trtllm_kit.plan.given.weights import weights

__all__ = ["TITLES", "command_line", "document", "engine_facts", "launch", "parse_command", "repository", "weights"]

TITLES = {
    "PF9": "Weight files that are whole",
    "PF10": "The output head, tied or stored",
    "PF15": "Options and commands that are gone",
    "PF16": "Plugins of the weights' type",
    "PF17": "Lengths an engine inherits",
    "PF21": "Rendered Triton repositories",
}
"""Rules of these ids look at given things alone; others share the id of a rule of plans."""
