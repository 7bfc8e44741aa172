"""Finds a tritonserver on this machine and checks what would make it hang or answer nonsense."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from trtllm_kit.errors import MissingExtra, MissingTool
from trtllm_kit.serve.launch import LAUNCHER, MPIRUN, PYTHON_LIBRARY, STUB, Installation

VARIABLE = "TRITONSERVER"
"""Environment variable that names the server's binary."""
_BACKEND_FILES = (PYTHON_LIBRARY, "triton_python_backend_utils.py")


def find_tritonserver(environment: Mapping[str, str], runtime: str = "reference", ranks: int = 1) -> Installation:
    """Return the tritonserver to run: ``$TRITONSERVER``, else on PATH, else in the nvidia-pytriton wheel.

    For the runtime ``tensorrt_llm`` its launcher must be on PATH too, and mpirun for several ``ranks``. Raises
    ``MissingTool`` or ``MissingExtra`` naming what to install.
    """
    named = environment.get(VARIABLE)
    if named is not None and not os.access(named, os.X_OK):
        raise MissingTool(
            f"${VARIABLE} is {named}", why="no program stands there", hint=f"unset {VARIABLE}, or correct it"
        )
    binary = named or shutil.which("tritonserver", path=environment.get("PATH")) or _binary_in_wheel()
    if binary is None:
        raise MissingExtra(
            "tritonserver was not found",
            why=f"neither ${VARIABLE} nor PATH nor the Python package nvidia-pytriton has it",
            hint="pip install 'trtllm-kit[rehearsal]', or run inside the Triton container",
        )
    launcher = _launcher(environment, ranks) if runtime == "tensorrt_llm" else ()
    path = Path(binary).resolve()
    wheel = path.parent.parent
    if (wheel / "python_backend_stubs").is_dir():
        return replace(_from_wheel(path, wheel), launcher=launcher)
    return Installation(binary=path, links={}, python_folder=None, launcher=launcher)


def _launcher(environment: Mapping[str, str], ranks: int) -> tuple[str, ...]:
    """Return the words before the server's: every rank runs the launcher, which serves on rank 0 alone."""
    why = "runtime tensorrt_llm needs TensorRT-LLM, and a server started without its launcher cannot spawn ranks"
    launcher = _on_path(LAUNCHER, environment, why)
    if ranks == 1:
        return (launcher,)
    why = f"the model has {ranks} ranks, and TensorRT-LLM's launcher has no more workers than MPI has ranks"
    _on_path(MPIRUN[0], environment, why)
    return (*MPIRUN, "-n", str(ranks), launcher)  # by its name: called by its path it changes the ranks' PATH


def _on_path(program: str, environment: Mapping[str, str], why: str) -> str:
    found = shutil.which(program, path=environment.get("PATH"))
    if found is None:
        hint = "run inside the release's Triton container (trtkit plan names it), or set runtime: reference"
        raise MissingTool(f"{program} was not found", why=why, hint=hint)
    return found


def _binary_in_wheel() -> str | None:
    package = importlib.util.find_spec("pytriton")
    folders = package.submodule_search_locations if package is not None else None
    binary = Path(next(iter(folders))) / "tritonserver/bin/tritonserver" if folders else None
    return str(binary) if binary is not None and binary.is_file() else None


def _from_wheel(binary: Path, root: Path) -> Installation:
    """Run the wheel's server with this interpreter: its stub, its packages, its libpython when it has one."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    stub = root / "python_backend_stubs" / version / STUB
    if not stub.is_file():
        offered = sorted(folder.name for folder in stub.parent.parent.iterdir())
        raise MissingTool(
            f"nvidia-pytriton has no stub for Python {version}",
            why=f"it has stubs for {', '.join(offered)}",
            hint="make the environment with python3.12 or python3.11",
        )
    _check_numpy()
    libraries = _library_folders(version)
    _check_libraries(stub, libraries, version)
    links = {name: root / "backends" / "python" / name for name in _BACKEND_FILES} | {STUB: stub}
    return Installation(binary=binary, links=links, python_folder=Path(sys.prefix) / "bin", library_folders=libraries)


def _check_numpy() -> None:
    """Refuse numpy 2: the wheel's stub was compiled before it, strings kill it and shapes come out wrong."""
    try:
        version = importlib.metadata.version("numpy")
    except importlib.metadata.PackageNotFoundError:
        raise MissingExtra(
            f"numpy is not installed in {sys.prefix}", why="Triton's Python stub needs it", hint="pip install 'numpy<2'"
        ) from None
    if int(version.split(".")[0]) >= 2:
        raise MissingExtra(
            f"numpy {version} is installed in {sys.prefix}",
            why="the Python stub of nvidia-pytriton needs numpy below 2: with 2 its answers are wrong or it dies",
            hint="pip install 'numpy<2'",
        )


def _library_folders(version: str) -> tuple[Path, ...]:
    """Return the folder of this interpreter's own libpython, so that library and packages are of one build."""
    name = f"libpython{version}.so.1.0"
    candidates = (Path(sys.base_prefix) / "lib", Path(sysconfig.get_config_var("LIBDIR") or sys.base_prefix))
    return tuple(folder for folder in candidates if (folder / name).is_file())[:1]


def _check_libraries(stub: Path, folders: tuple[Path, ...], version: str) -> None:
    """Refuse a stub with a missing library: Triton would wait for its hand-shake for ever."""
    ldd = shutil.which("ldd")
    if ldd is None:
        return
    path = ":".join([*map(str, folders), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])
    found = subprocess.run(
        [ldd, str(stub)], env={"LD_LIBRARY_PATH": path, "LC_ALL": "C"}, capture_output=True, text=True, check=False
    )
    said = (found.stdout + found.stderr).splitlines()
    missing = [line.split("=>")[0].strip() for line in said if "not found" in line]
    if missing:
        package = f"apt-get install libpython{version}"
        hint = package if "libpython" in missing[0] else "use Debian 12, Ubuntu 22.04 or later"
        raise MissingTool(
            f"Triton's Python stub lacks {', '.join(missing)}",
            why=f"the loader does not find it for {stub}, and the server would wait for the stub for ever",
            hint=hint,
        )
