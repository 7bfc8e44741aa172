"""``trtkit doctor``: is this machine what it should be; and what do its cards reach."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trtllm_kit.cli.options import OptionalProfileOption, StrictOption
from trtllm_kit.cli.session import Session, show_findings, table
from trtllm_kit.printable import printable

if TYPE_CHECKING:
    from trtllm_kit.doctor.checks import Diagnosis
    from trtllm_kit.doctor.facts import Machine
    from trtllm_kit.doctor.wanted import Wanted
    from trtllm_kit.spec.hardware import Gpu, Hardware
    from trtllm_kit.spec.profile import Serve

app = typer.Typer(
    help="Look at this machine: GPUs, links, driver, host, software. Exit 0 well, 1 not, 3 the GPUs could not be read.",
    invoke_without_command=True,
)
PythonOption = Annotated[
    str | None,
    typer.Option("--python", metavar="PYTHON", help="Environment to look into: tensorrt_llm, torch, nvidia-ml-py."),
]
DiskOption = Annotated[
    list[Path] | None,
    typer.Option("--disk", metavar="FOLDER", help="Whose space to look at; by default this folder's."),
]
OutOption = Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Hardware profile to make or to add to.")]


@app.callback()
def doctor(
    context: typer.Context,
    *,
    profile: OptionalProfileOption = None,
    python: PythonOption = None,
    disk: DiskOption = None,
    write_hardware: Annotated[
        Path | None, typer.Option("--write-hardware", metavar="FILE", help="Write a hardware profile of this machine.")
    ] = None,
    strict: StrictOption = False,
) -> None:
    """Look at this machine, and hold it against a profile."""
    if context.invoked_subcommand is not None:
        return
    from trtllm_kit.doctor.checks import diagnose
    from trtllm_kit.doctor.probe import read_machine
    from trtllm_kit.doctor.report import report_document

    session: Session = context.obj
    wanted = _wanted(profile)
    machine = read_machine(disk or [Path.cwd()], wanted.ports, python)
    diagnosis = diagnose(machine, wanted)
    written = _write(hardware_here(machine, write_hardware), write_hardware) if write_hardware else None
    document = report_document(diagnosis) | ({"hardware": written} if written else {})
    session.result(document, lambda: _text(diagnosis) + (f"\nwrote {written}" if written else ""))
    raise typer.Exit(diagnosis.exit_code(strict=strict))


def _text(diagnosis: Diagnosis) -> str:
    from trtllm_kit.doctor.report import facts_lines, verdict_words

    lines = [printable(line) for line in facts_lines(diagnosis.machine)]
    return "\n".join([*lines, "", show_findings(diagnosis.findings), f"this machine is {verdict_words(diagnosis)}"])


def _wanted(profile: str | None) -> Wanted:
    """Return what the profile asks of a machine."""
    from trtllm_kit.doctor.wanted import Wanted
    from trtllm_kit.spec.profile import Serve

    if profile is None:
        return Wanted(ports=_ports(Serve()), catalogue=_catalogue())
    from trtllm_kit.cli.asked import asked_for
    from trtllm_kit.upstream.releases import release

    loaded, hardware = asked_for(profile)
    asked = loaded.profile
    split = asked.parallelism
    ranks = split.tensor * split.pipeline * split.context * split.replicas if split.tensor != "auto" else None
    return Wanted(
        profile=asked.name,
        hardware=hardware,
        gpus=None if ranks is None else min(ranks, hardware.gpus_per_node),
        release=None if hardware.is_rehearsal else release(asked.trtllm_version).version,
        ports=_ports(asked.serve),
        catalogue=_catalogue(),
    )


def _ports(server: Serve) -> dict[int, str]:
    return {server.http_port: "HTTP", server.grpc_port: "gRPC", server.metrics_port: "metrics"}


def _catalogue() -> list[Gpu]:
    from trtllm_kit.spec.load import hardware_names, load_hardware

    return [load_hardware(name).gpu for name in hardware_names()]


def hardware_here(machine: Machine, file: Path) -> Hardware:
    """Return the hardware profile of this machine, with what was measured before of the same card in that file.

    Raises ``UnknownHardware`` where the file holds something else, which is then not written over.
    """
    from trtllm_kit.doctor.written import hardware_of
    from trtllm_kit.spec.hardware_file import read_hardware

    found = hardware_of(machine, _catalogue(), str(file))
    if not file.exists():
        return found
    before = read_hardware(str(file))
    if before.gpu.name != found.gpu.name:
        return found
    return found.model_copy(update={"gpu": found.gpu.model_copy(update={"ceilings": before.gpu.ceilings})})


def _write(hardware: Hardware, file: Path) -> str:
    from trtllm_kit.doctor.written import hardware_text
    from trtllm_kit.errors import storage_error
    from trtllm_kit.files import replace_text

    try:
        replace_text(file, hardware_text(hardware))
    except OSError as error:
        raise storage_error(error, "writing the hardware profile") from None
    return str(file)


@app.command("calibrate")
def calibrate(
    context: typer.Context,
    out: OutOption,
    *,
    python: PythonOption = None,
    keep: Annotated[
        Path | None, typer.Option("--keep", metavar="FILE", help="Also write every row that was measured, as JSON.")
    ] = None,
) -> None:
    """Measure what the cards reach, in three minutes, and write it into a hardware profile that estimate then uses."""
    from trtllm_kit.doctor.calibrate import measure
    from trtllm_kit.doctor.fitted import constants_of
    from trtllm_kit.doctor.probe import read_machine

    session: Session = context.obj
    interpreter = python or sys.executable
    if out.exists():
        from trtllm_kit.spec.hardware_file import read_hardware

        hardware = read_hardware(str(out))
    else:
        hardware = hardware_here(read_machine(python=interpreter), out)
    session.log("measuring for about three minutes; nothing else should run on the GPUs")
    measured = measure(interpreter)
    found = constants_of(measured, hardware.gpu)
    gpu = hardware.gpu.model_copy(update={"ceilings": {**hardware.gpu.ceilings, **found}})
    written = _write(hardware.model_copy(update={"gpu": gpu}), out)
    if keep is not None:
        _keep(measured, keep)
    document = {
        "hardware": written,
        "measured_on": measured["machine"],
        "seconds": {name: part.get("seconds") for name, part in measured["parts"].items()},
        "failed": measured["failed"],
        "constants": {name: one.model_dump() for name, one in found.items()},
    }
    session.result(document, lambda: _calibrated(document, written))
    raise typer.Exit(0 if found else 3)


def _keep(measured: Any, file: Path) -> None:
    import json

    from trtllm_kit.errors import storage_error
    from trtllm_kit.files import replace_text

    try:
        replace_text(file, json.dumps(measured, separators=(",", ":")) + "\n")
    except OSError as error:
        raise storage_error(error, "writing what was measured") from None


def _calibrated(document: dict[str, Any], written: str) -> str:
    rows = [
        (name, f"{one['value']:.3g}", f"{one['low']:.3g} to {one['high']:.3g}", one["source"].rpartition(", 20")[2][9:])
        for name, one in document["constants"].items()
    ]
    failed = [f"{name} could not be measured: {why}" for name, why in document["failed"].items()]
    shown = table(("constant", "value", "range", "from"), rows)
    return "\n".join([shown, *failed, f"wrote {written}; name it as `hardware:` of a profile"])
