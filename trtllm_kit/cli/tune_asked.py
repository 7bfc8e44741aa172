"""What ``trtkit tune`` is asked on the command line, checked: aim, formats, machines, loads, files to write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trtllm_kit.cli.load_options import MOST_AT_ONCE, numbers, with_power
from trtllm_kit.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from trtllm_kit.spec.hardware import Hardware


def objective_from(text: str, prices: dict[str, float], machines: list[Hardware]) -> str:
    """Return a known objective that can be judged on these machines; raises ``UsageError``."""
    from trtllm_kit.tune.points import power_limit as limit_of
    from trtllm_kit.tune.question import OBJECTIVES

    if text not in OBJECTIVES:
        raise UsageError(f"--objective {text}", why=f"known are {', '.join(OBJECTIVES)}", hint="--objective throughput")
    unpriced = [one.name for one in machines if "" not in prices and one.name not in prices]
    if text == "cost" and len(machines) > 1 and unpriced:
        raise UsageError(
            "--objective cost over several machines",
            why=f"no price is given for {', '.join(unpriced)}",
            hint="--gpu-hour-price " + ",".join(f"{one.name}=PRICE" for one in machines),
        )
    dark = [one.name for one in machines if limit_of(one) is None]
    if text == "energy" and dark:
        raise UsageError(
            "--objective energy", why=f"no power limit is known of {', '.join(dark)}", hint="--objective throughput"
        )
    return text


def formats_from(text: str | None) -> tuple[str, ...] | None:
    """Return formats of weights as asked; raises ``UsageError`` for one that is none, or is mixed."""
    from trtllm_kit.plan.formats import FORMATS

    if text is None:
        return None
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    for name in names:
        if name not in FORMATS:
            raise UsageError(
                f"--quantization {name}", why=f"known are {', '.join(FORMATS)}", hint="--quantization bf16,fp8"
            )
    return names


def machines_from(own: Hardware, names: str | None, watts: str | None) -> list[Hardware]:
    """Return the machines to choose from, the profile's own first where none is named; raises ``UsageError``."""
    from trtllm_kit.spec.load import load_hardware

    if names is None:
        machines = [own]
    else:
        wanted = dict.fromkeys(part.strip() for part in names.split(","))
        machines = [own if name == own.name else load_hardware(name) for name in wanted]
    limits = numbers("--power-limit", watts, "700,1000")
    return [with_power(machine, limit) for machine in machines for limit in limits] or machines


def _read_from(profile: str) -> list[Path]:
    """Return the files of a profile and its bases; of one that is piped in, none."""
    from trtllm_kit.spec.inherit import files_with_bases
    from trtllm_kit.spec.load import profile_file, shipped_files

    path = profile_file(profile)
    return [file.resolve() for file in files_with_bases(path, shipped_files())] if path.is_file() else []


def require_places(places: tuple[Path, ...], profile: str) -> None:
    """Raise for files that cannot be written, that are one and the same, or that the profile is read from."""
    from trtllm_kit.cli.evaluate import require_place

    for path in places:
        require_place(path)
    if len({path.resolve() for path in places}) < len(places):
        raise UsageError(
            f"--out and --html {places[0]}", why="the page would replace the profile", hint="name two files"
        )
    read = _read_from(profile)
    for path in places:
        if path.resolve() in read:
            raise UsageError(
                f"{path} is what --profile {profile} is read from",
                why="the winner says only what differs from it, and would be nothing without it",
                hint="--out of another name",
            )


def loads_from(text: str) -> list[int]:
    """Return the loads to measure at; raises ``UsageError``."""
    loads = numbers("--measure-loads", text, "1,4,16")
    for load in loads:
        if load not in range(1, MOST_AT_ONCE + 1):
            why = f"requests under way are counted, from 1 to {MOST_AT_ONCE:,}"
            raise UsageError(f"--measure-loads {text}", why=why, hint="--measure-loads 1,4,16")
    return [int(load) for load in loads]
