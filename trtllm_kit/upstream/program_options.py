"""Options of the programs that build and start engines, of all releases together: what an old script may say."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal

from trtllm_kit.light import dataclass
from trtllm_kit.upstream.facts import in_range, read_table

Takes = Literal["flag", "whole", "number", "text", "maybe", "words", "pair"]
"""``maybe``: one word, or none; ``pair``: two words; ``words``: as many as there are."""
BUILD, CONVERT, QUANTIZE, SERVE = "trtllm-build", "convert_checkpoint.py", "quantize.py", "trtllm-serve"
_STARTERS = ("launch_triton_server.py", "tritonserver", "mpirun")
_TAKES: dict[str, Takes] = {
    **dict.fromkeys(("str", "choice", "switch", "bool", "text"), "text"),
    "int": "whole",
    "whole": "whole",
    "float": "number",
    "flag": "flag",
    "maybe": "maybe",
    "words": "words",
    "pair": "pair",
}


@dataclass(frozen=True)
class Option:
    """One option of one program."""

    flag: str
    takes: Takes


def options_of(program: str, version: str = "") -> Mapping[str, Option]:
    """Return the options of a program by each of their spellings; those of ``version`` before those of other releases.

    The converters of all model families count as one program. A program that no table knows has none.
    """
    return _options(program, version)


def near_option(program: str, word: str) -> str:
    """Return the option that a word which is none was most likely meant to be; empty when none is near."""
    known = [name for name in _options(program, "") if name.startswith("--")]
    close = difflib.get_close_matches(word.replace("-", "_"), [name.replace("-", "_") for name in known], n=1)
    return next((name for name in known if close and name.replace("-", "_") == close[0]), "")


def is_distinct(word: str) -> bool:
    """Whether a word is an option of one of the programs, of several words, so that others hardly have it."""
    return word in _distinct()


@cache
def _distinct() -> frozenset[str]:
    names = {name for program in (BUILD, CONVERT, QUANTIZE, SERVE, *_STARTERS) for name in _options(program, "")}
    return frozenset(name for name in names if name.startswith("--") and {"_", "-"} & set(name[2:]))


@cache
def _options(program: str, version: str) -> Mapping[str, Option]:
    rows = [row for row in _rows(program) if _is_of(row["program"], program)]
    here = [row for row in rows if version and in_range(version, row.get("since"), row.get("until"))]
    found: dict[str, Option] = {}
    for row in (*reversed(here), *reversed(rows)):
        option = Option(row["flag"], _TAKES[row.get("takes") or row["type"]])
        for name in (row["flag"], *row.get("aliases", ())):
            found.setdefault(name, option)
    return found


def _is_of(name: str, program: str) -> bool:
    return name == program or (program == CONVERT and name.startswith(f"{CONVERT} ("))


def _rows(program: str) -> list[dict[str, Any]]:
    if program == BUILD:
        table = read_table("trtllm_build")
        gone = [{"flag": row["flag"], "takes": "maybe"} for row in table["gone"]]
        return [{**row, "program": BUILD} for row in (*gone, *table["flags"])]
    return [*read_table("scripts")["flags"], *read_table("launchers")["flags"]]
