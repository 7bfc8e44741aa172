"""Rules about what is installed: driver, TensorRT-LLM, TensorRT, Triton, MPI, container runtime. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import InvalidVersion, Version

from trtllm_kit.doctor.facts import Environment, Machine
from trtllm_kit.doctor.rule import ERROR, INFO, WARNING, Told
from trtllm_kit.doctor.wanted import Wanted
from trtllm_kit.upstream.releases import unknown_release
from trtllm_kit.upstream.stack import built_with, containers_of, oldest_driver

TENSORRT = ("tensorrt", "tensorrt-cu13", "tensorrt-cu12")
RUNTIMES = ("docker", "podman")


def _version(text: str | None) -> Version | None:
    try:
        return Version(text) if text else None
    except InvalidVersion:
        return None


def _releases(machine: Machine, wanted: Wanted) -> dict[str, str]:
    """Return the releases in question, and who names each."""
    found = {one.versions["tensorrt-llm"]: one.python for one in machine.environments if "tensorrt-llm" in one.versions}
    return found | ({wanted.release: f"profile {wanted.profile}"} if wanted.release else {})


def driver(machine: Machine, wanted: Wanted) -> Iterator[Told]:
    """Compare the driver with the CUDA that a release's container is built on."""
    here = _version(machine.driver)
    for release, named_by in _releases(machine, wanted).items() if here else ():
        needs = {oldest_driver(one.cuda): one for one in containers_of(release)}
        least = [one for one in needs if one is not None and here and here < Version(one)]
        if least and len(least) == len(needs):
            container = needs[least[0]]
            yield (
                WARNING,
                f"the driver is older than TensorRT-LLM {release} wants ({named_by})",
                (f"driver {machine.driver}; CUDA {container.cuda} of container {container.tag} runs from {least[0]}"),
                "install a newer driver; only data-centre GPUs take a forward-compatibility package instead",
            )


def packages(machine: Machine, wanted: Wanted) -> Iterator[Told]:
    """Compare versions of each environment with the table of releases, and with each other."""
    for one in machine.environments:
        yield from _environment(one, wanted)


def _environment(one: Environment, wanted: Wanted) -> Iterator[Told]:
    release = one.versions.get("tensorrt-llm")
    numpy = _version(one.versions.get("numpy"))
    if "nvidia-pytriton" in one.versions and numpy is not None and numpy.major >= 2:
        yield (
            ERROR,
            f"{one.python}: the Python models of its Triton do not work with that numpy",
            (f"numpy {numpy}, below 2 wanted"),
            "pip install 'numpy<2'",
        )
    if release is None:
        return
    unknown = unknown_release(release)
    if unknown:
        yield (
            INFO,
            f"{one.python}: TensorRT-LLM {release} is not in the table of releases",
            unknown,
            ("trtkit upstream list shows those that are"),
        )
    if wanted.release is not None and wanted.release != release:
        yield (
            WARNING,
            f"{one.python}: another TensorRT-LLM than the profile's",
            (f"{release} installed, {wanted.release} in profile {wanted.profile}"),
            f"pip install tensorrt-llm=={wanted.release}, or set trtllm_version: {release}",
        )
    built = None if unknown else built_with(release)
    has = next((one.versions[name] for name in TENSORRT if name in one.versions), None)
    if built is not None and built.tensorrt is not None and has is not None and not _same(has, built.tensorrt):
        yield (
            WARNING,
            f"{one.python}: TensorRT-LLM {release} was built with another TensorRT",
            (f"TensorRT {has}, {built.tensorrt} wanted"),
            f"pip install 'tensorrt=={built.tensorrt}.*'",
        )


def _same(version: str, wanted: str) -> bool:
    """Whether a version begins with the parts of another."""
    return version.split(".")[: len(wanted.split("."))] == wanted.split(".")


def _serves(machine: Machine) -> bool:
    """Whether TensorRT-LLM or a tritonserver is here, on PATH or in the wheel that brings one."""
    brought = any(name in one.versions for one in machine.environments for name in ("tensorrt-llm", "nvidia-pytriton"))
    return brought or machine.program("tritonserver") is not None


def server(machine: Machine, wanted: Wanted) -> Iterator[Told]:
    """Look for what serves: TensorRT-LLM in an environment, tritonserver, or containers with GPUs."""
    if wanted.on_cpu or not machine.cards:
        return
    has = _serves(machine)
    runtime = next((machine.program(name) for name in RUNTIMES if machine.program(name)), None)
    if not has and runtime is None:
        yield (
            WARNING,
            "nothing here can serve",
            "tensorrt_llm, tritonserver, nvidia-pytriton, docker, podman: not found",
            ("run doctor inside the container that serves, or --python of the environment with tensorrt_llm"),
        )
    elif runtime is not None and not machine.program("nvidia-ctk") and not has:
        yield (
            WARNING,
            f"{runtime.name} may have no GPUs: NVIDIA's container toolkit was not found",
            (f"{runtime.name} {runtime.version or 'of an unknown version'}, nvidia-ctk: not found"),
            "install nvidia-container-toolkit, then nvidia-ctk runtime configure",
        )


def mpi(machine: Machine, _wanted: Wanted) -> Iterator[Told]:
    """Want mpirun, which starts the ranks of engines."""
    if _serves(machine) and len(machine.cards) > 1 and machine.program("mpirun") is None:
        yield (
            WARNING,
            "there is no mpirun, and several GPUs want ranks",
            "mpirun: not found",
            ("install Open MPI as the release's container has it"),
        )
