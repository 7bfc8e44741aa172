"""Targets ``mpirun`` and ``slurm``: one task a GPU on the right nodes, and what real launchers make of the scripts."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serve.targets.support import CLUSTER, CPU, NODE, OF_ENGINES, RACK, subject
from trtllm_kit.errors import ProfileError
from trtllm_kit.serve.targets.mpi import mpirun_command, mpirun_files, slurm_command, slurm_files
from trtllm_kit.serve.targets.subject import Subject
from trtllm_kit.spec.hardware import Hardware

HOSTS = [f"tray{number:02}" for number in range(18)]


def directives(made: Subject) -> dict[str, str]:
    """Return the options that a batch script asks Slurm for."""
    lines = slurm_files(made)["serve.sbatch"].splitlines()
    found = (line.removeprefix("#SBATCH --").partition("=") for line in lines if line.startswith("#SBATCH"))
    return {name: value for name, _, value in found}


@pytest.mark.parametrize(
    ("changes", "machine", "nodes", "tasks", "gpus"),
    [
        ({}, NODE, 1, 8, 8),
        ({"parallelism.tensor": 1, "parallelism.replicas": 8}, NODE, 1, 1, 1),
        ({"parallelism.tensor": 8, "parallelism.replicas": 9}, RACK, 2, 8, 4),
        ({"parallelism.tensor": 8, "parallelism.pipeline": 9}, RACK, 18, 72, 4),
        ({"parallelism.tensor": 4, "parallelism.pipeline": 4}, CLUSTER, 4, 16, 4),
    ],
)
def test_slurm_gets_one_task_a_gpu(
    changes: dict[str, Any], machine: Hardware, nodes: int, tasks: int, gpus: int
) -> None:
    """Nodes, tasks, tasks a node and GPUs a node are the plan's."""
    found = directives(subject(changes, machine))
    assert (nodes, tasks) == (int(found["nodes"]), int(found["ntasks"]))
    assert (str(gpus), f"gpu:{gpus}") == (found["ntasks-per-node"], found["gres"])


def test_replicas_are_an_array_of_jobs() -> None:
    """Nine replicas are nine jobs, each with nodes of its own; a single one is no array."""
    found = directives(subject({"parallelism.tensor": 8, "parallelism.replicas": 9}, RACK))
    assert ("0-8", "test-%A_%a.log") == (found["array"], found["output"])
    assert "array" not in directives(subject())


@pytest.mark.parametrize(("machine", "segment"), [(RACK, "2"), (CLUSTER, None)])
def test_only_a_rack_asks_for_nodes_of_one_block(machine: Hardware, segment: str | None) -> None:
    """A replica over NVLink must lie in one block of the topology; over a network it may lie anywhere."""
    assert segment == directives(subject({"parallelism.tensor": 8}, machine)).get("segment")


def test_pyxis_gets_the_image_as_enroot_spells_it() -> None:
    """The registry is set apart with #, and repository and checkpoint are mounted where they are."""
    text = slurm_files(subject())["serve.sbatch"].replace("\\\n", "")
    assert "--container-image=nvcr.io#nvidia/tritonserver:26.06-trtllm-python-py3" in text
    for name in ("TRTKIT_REPOSITORY", "TRTKIT_CHECKPOINT"):
        assert f'"${{{name}}}":"${{{name}}}":ro' in text
    own = slurm_files(subject({"deploy.image": "triton:1"}))["serve.sbatch"].replace("\\\n", "")
    assert "--container-image=triton:1" in own
    assert "--container" not in slurm_files(subject({"deploy.pyxis": False}))["serve.sbatch"]


def test_pmix_starts_several_ranks_and_nothing_one() -> None:
    """Ranks find each other through PMIx."""
    assert "--mpi=pmix" in slurm_files(subject())["serve.sbatch"]
    assert "--mpi" not in slurm_files(subject({"parallelism.tensor": 1}))["serve.sbatch"]


def test_partition_and_account_are_the_profiles() -> None:
    """What the cluster wants to know stands in the script."""
    found = directives(subject({"deploy.partition": "gpu", "deploy.account": "team.a"}))
    assert ("gpu", "team.a") == (found["partition"], found["account"])


def test_each_rank_of_engines_runs_its_own_server() -> None:
    """Slurm tells a task its rank, and the script gives each the command of that rank."""
    files = slurm_files(subject({"parallelism.tensor": 2}, repository=OF_ENGINES))
    assert 'case "${SLURM_PROCID}" in' in files["rank.sh"]
    assert 1 == files["rank.sh"].count("--http-port=")
    assert 1 == files["rank.sh"].count("--allow-http=false")


def test_hosts_are_named_with_a_slot_a_gpu() -> None:
    """Each replica has a file of its own nodes, in the order of the profile."""
    made = subject({"parallelism.tensor": 8, "parallelism.replicas": 9, "deploy.hosts": HOSTS}, RACK)
    files = mpirun_files(made)
    assert "tray16 slots=4\ntray17 slots=4\n" == files["hostfile.8"]
    assert "--map-by ppr:4:node" in files["serve.sh"].replace(" \\\n ", "")
    assert ("sh", "D/all.sh") == mpirun_command(made, "D")
    assert 9 == files["all.sh"].count("/serve.sh &")


def test_variables_reach_the_other_nodes() -> None:
    """Mpirun passes on what it is told to; on one node there is nothing to pass."""
    wanted = {"environment": {"NCCL_DEBUG": "WARN"}, "deploy.secret_environment": {"HF_TOKEN": "a/b"}}
    over = mpirun_files(subject(wanted | {"parallelism.tensor": 8, "deploy.hosts": HOSTS[:2]}, CLUSTER))["serve.sh"]
    assert "-x NCCL_DEBUG -x HF_TOKEN" in over.replace(" \\\n ", "")
    assert "-x" not in mpirun_files(subject(wanted))["serve.sh"]


@pytest.mark.parametrize(
    ("hosts", "message"),
    [([], "0 names, and 1 replicas of 8 ranks on 2 nodes take 2"), (["a"], "1 names"), (["a", "a"], "stands twice")],
)
def test_nodes_that_are_not_named_are_a_problem(hosts: list[str], message: str) -> None:
    """A launch over nodes names each of them, once."""
    with pytest.raises(ProfileError) as caught:
        mpirun_files(subject({"parallelism.tensor": 8, "deploy.hosts": hosts}, CLUSTER))
    assert any(message in problem for problem in caught.value.problems)


def test_a_runtime_that_no_container_has_is_a_problem_with_pyxis() -> None:
    """The reference runtime runs where trtkit is installed."""
    wanted = {"parallelism.tensor": 1, "runtime": "reference"}
    with pytest.raises(ProfileError) as caught:
        slurm_files(subject(wanted, CPU))
    assert any("imports trtkit" in problem for problem in caught.value.problems)
    assert slurm_files(subject(wanted | {"deploy.pyxis": False}, CPU))


def prepared(root: Path, files: dict[str, str]) -> Path:
    """Write the files of a target beside a repository, with programs that tell how they were called."""
    folder, tools = root / "repository.target", root / "tools"
    (root / "repository/tensorrt_llm/1").mkdir(parents=True)
    (root / "checkpoint").mkdir()
    (root / "repository/tensorrt_llm/1/checkpoint").symlink_to("../../../checkpoint")
    folder.mkdir()
    tools.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    launcher = '#!/bin/sh\nexec "$@"\n'
    server = (
        "#!/bin/sh\n"
        f'out={root}/ranks; mkdir -p "$out"\n'
        'rank="${OMPI_COMM_WORLD_RANK:-${SLURM_PROCID:-0}}"\n'
        'echo "$(hostname) ${SLURM_NODEID:-} ${SLURM_LOCALID:-} ${CUDA_VISIBLE_DEVICES:-} '
        '${OMPI_COMM_WORLD_SIZE:-${SLURM_NTASKS:-1}} $*" >"$out/${SLURM_ARRAY_TASK_ID:-0}.$rank"\n'
        'echo $$ >"$out/pid.$rank"\n'
        "trap 'echo drained >>\"$out/drained\"; exit 0' TERM\n"
        '[ -n "${HOLD:-}" ] || exit 0\n'
        "while :; do sleep 0.05; done\n"
    )
    called = f'#!/bin/bash\nexec -a tritonserver /bin/sh {tools}/server "$@"\n'  # a script would be called sh
    for name, text in (("trtllm-llmapi-launch", launcher), ("tritonserver", called), ("server", server)):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    return folder


def path_with(root: Path) -> dict[str, str]:
    """Return an environment in which the programs are found."""
    return {"PATH": f"{root}/tools:/usr/sbin:/usr/bin:/bin", "HOME": str(root)}


def needs(program: str, package: str) -> str:
    """Return a program of Debian's; skip loudly without it."""
    found = shutil.which(program) or shutil.which(program, path="/usr/sbin:/usr/bin")
    if found is None:
        pytest.skip(f"SKIPPED FOR LACK OF A TOOL: no {program}; apt-get install {package}")
    return found


def test_a_real_mpirun_starts_every_rank(tmp_path: Path) -> None:
    """Open MPI takes the command line and starts as many ranks as the plan has, each in one world."""
    needs("mpirun", "openmpi-bin")
    files = mpirun_files(subject({"parallelism.tensor": 4}))
    folder = prepared(tmp_path, files)
    environment = path_with(tmp_path) | {"OMPI_MCA_rmaps_base_oversubscribe": "1"}
    subprocess.run(["sh", str(folder / "serve.sh")], env=environment, check=True, timeout=60, cwd=tmp_path)
    told = {path.name: path.read_text().split() for path in (tmp_path / "ranks").glob("0.*")}
    assert {f"0.{rank}" for rank in range(4)} == told.keys()
    assert {"4"} == {words[1] for words in told.values()}
    assert all(f"--model-repository={tmp_path}/repository" in words for words in told.values())


def test_ranks_under_a_real_mpirun_drain(tmp_path: Path) -> None:
    """A signal to the script reaches the server that opened ports, which ends by itself; mpirun kills nobody."""
    needs("mpirun", "openmpi-bin")
    folder = prepared(tmp_path, mpirun_files(subject({"parallelism.tensor": 2}, repository=OF_ENGINES)))
    environment = path_with(tmp_path) | {"OMPI_MCA_rmaps_base_oversubscribe": "1", "HOLD": "1"}
    command = ["sh", str(folder / "serve.sh")]
    with subprocess.Popen(command, env=environment, cwd=tmp_path, start_new_session=True) as process:
        try:
            while not ((tmp_path / "ranks/0.0").is_file() and (tmp_path / "ranks/0.1").is_file()):
                assert process.poll() is None
            subprocess.run(["sleep", "0.3"], check=True)
            process.send_signal(signal.SIGTERM)
            subprocess.run(["sleep", "0.5"], check=True)
            assert ["drained"] == (tmp_path / "ranks/drained").read_text().split()
        finally:
            for path in (tmp_path / "ranks").glob("pid.*"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(path.read_text()), signal.SIGKILL)
            process.wait(20)


@contextlib.contextmanager
def slurm(root: Path, nodes: int, gpus: int) -> Iterator[dict[str, str]]:
    """Run a Slurm of one controller and as many fake nodes with fake GPUs on this machine; yield its environment."""
    slurmctld, slurmd = needs("slurmctld", "slurm-wlm"), needs("slurmd", "slurm-wlm")
    host = os.uname().nodename
    for name in ("state", "spool"):
        (root / name).mkdir()
    base = 20000 + os.getpid() % 20000
    (root / "slurm.conf").write_text(
        f"ClusterName=fake\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={base}\nAuthType=auth/none\n"
        "CryptoType=crypto/none\nSlurmUser=root\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n"
        "SelectType=select/cons_tres\nSlurmdParameters=config_overrides\nGresTypes=gpu\nReturnToService=2\n"
        f"StateSaveLocation={root}/state\nSlurmdSpoolDir={root}/spool/%n\nSlurmctldPidFile={root}/ctld.pid\n"
        f"SlurmdPidFile={root}/slurmd.%n.pid\nSlurmctldLogFile={root}/ctld.log\nSlurmdLogFile={root}/slurmd.%n.log\n"
        "MailProg=/bin/true\nSwitchType=switch/none\nMpiDefault=none\nSchedulerParameters=sched_interval=1\n"
        f"NodeName=gb[01-{nodes:02}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{base + 1}-{base + nodes}] "
        f"CPUs=8 RealMemory=500 Gres=gpu:{gpus}\n"
        f"PartitionName=all Nodes=gb[01-{nodes:02}] Default=YES State=UP\n"
    )
    (root / "gres.conf").write_text(f"NodeName=gb[01-{nodes:02}] Name=gpu File=/dev/tty[0-{gpus - 1}]\n")
    environment = path_with(root) | {"SLURM_CONF": str(root / "slurm.conf")}
    commands = [[slurmctld, "-D"], *([slurmd, "-D", "-N", f"gb{number:02}"] for number in range(1, nodes + 1))]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": environment}
    running = [subprocess.Popen(command, **quiet) for command in commands]  # type: ignore[call-overload]
    try:
        for _ in range(300):
            said = subprocess.run(
                ["sinfo", "-h", "-t", "idle", "-o", "%D"], env=environment, capture_output=True, text=True, check=False
            )
            if str(nodes) == said.stdout.strip():
                break
            subprocess.run(["sleep", "0.2"], check=True)
        else:
            pytest.fail(
                f"the nodes did not come up: {said.stdout}{said.stderr}{(root / 'ctld.log').read_text()[-2000:]}"
            )
        yield environment
    finally:
        for process in reversed(running):
            process.terminate()
        for process in running:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)


UNKNOWN_TO_DEBIAN = re.compile(r"^#SBATCH --segment=\d+\n", re.MULTILINE)
"""Debian's Slurm 22.05 knows no topology of blocks; other tests check that line by our own rules."""


RACK_FULL = {"parallelism.tensor": 8, "parallelism.replicas": 9, "deploy.pyxis": False}
"""Nine replicas of eight ranks fill the 18 trays of a rack."""


def for_debian(made: Subject) -> dict[str, str]:
    """Return the files for a Slurm that has neither blocks nor PMIx; what each needs of them is checked elsewhere."""
    files = slurm_files(made)
    return files | {
        "serve.sbatch": UNKNOWN_TO_DEBIAN.sub("", files["serve.sbatch"]).replace("--mpi=pmix", "--mpi=none")
    }


def run(environment: dict[str, str], *words: str, seconds: float = 60) -> subprocess.CompletedProcess[str]:
    """Run a command of Slurm."""
    return subprocess.run(list(words), env=environment, capture_output=True, text=True, check=False, timeout=seconds)


def test_a_real_slurm_accepts_a_rack_and_no_plan_for_another_machine(tmp_path: Path) -> None:
    """On 18 fake trays of four GPUs the script of the rack would run, and one for nodes of eight GPUs would not."""
    needs("sbatch", "slurm-wlm")
    (tmp_path / "slurm").mkdir()
    made = subject(RACK_FULL, RACK)
    folder = prepared(tmp_path, for_debian(made))
    (folder / "other.sbatch").write_text(slurm_files(subject({"deploy.pyxis": False}))["serve.sbatch"])
    program, *words = slurm_command(made, str(folder))
    with slurm(tmp_path / "slurm", 18, 4) as environment:
        said = run(environment, program, "--test-only", *words)
        other = run(environment, program, "--test-only", f"--chdir={folder}", str(folder / "other.sbatch"))
    assert 0 == said.returncode, said.stderr
    assert other.returncode != 0
    assert "Requested node configuration is not available" in other.stderr


@pytest.mark.slow
def test_a_real_slurm_runs_a_rack(tmp_path: Path) -> None:
    """Nine jobs run, each a task a GPU over two trays, and every task sees its node's GPUs."""
    needs("sbatch", "slurm-wlm")
    (tmp_path / "slurm").mkdir()
    made = subject(RACK_FULL, RACK)
    folder = prepared(tmp_path, for_debian(made))
    program, *words = slurm_command(made, str(folder))
    with slurm(tmp_path / "slurm", 18, 4) as environment:
        environment["PATH"] = f"{tmp_path}/tools:{environment['PATH']}"
        ran = run(environment, program, "--wait", *words, seconds=180)
    logs = "".join(path.read_text() for path in folder.glob("*.log"))
    assert 0 == ran.returncode, f"{ran.stderr}{logs}"
    told = {path.name: path.read_text().split() for path in (tmp_path / "ranks").glob("[0-9]*.*")}
    assert {f"{job}.{rank}" for job in range(9) for rank in range(8)} == told.keys()
    for job in range(9):
        places = [tuple(map(int, told[f"{job}.{rank}"][1:3])) for rank in range(8)]
        assert [(node, place) for node in range(2) for place in range(4)] == places
    assert {"0,1,2,3"} == {words[3] for words in told.values()}
