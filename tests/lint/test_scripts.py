"""Linting scripts and manifests: what is written reaches the rules, and what cannot be read is not judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lint.test_repositories import told
from trtllm_kit.lint.context import Context
from trtllm_kit.lint.launched import launched
from trtllm_kit.lint.run import lint
from trtllm_kit.lint.shell import Started, started

CONTEXT = Context("0.19.0")
SERVER = "tritonserver --model-repository=/models --backend-config=python,shm-region-prefix-name="


def commands_in(text: str) -> list[Started]:
    """Return what a script starts, without what of it was not read."""
    return [one for one in started(text.encode()) if isinstance(one, Started)]


def words_of(text: str) -> list[tuple[int, tuple[str, ...]]]:
    """Return the commands of a script."""
    return [(one.line, one.words) for one in commands_in(text)]


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("a b\n\n# c d\ne 'f g' # h\n", [(1, ("a", "b")), (4, ("e", "f g"))]),
        ("a \\\n  --b \\\n  c\nd\n", [(1, ("a", "--b", "c")), (4, ("d",))]),
        ("a && b; c | d\n", [(1, ("a",)), (1, ("b",)), (1, ("c",)), (1, ("d",))]),
        ("if true; then a; else b; fi\n", [(1, ("true",)), (1, ("a",)), (1, ("b",))]),
        ("bash -c 'a; b c'\n", [(1, ("a",)), (1, ("b", "c"))]),
        ("echo trtllm-build --max_output_len 9\n", []),
        ("A=1 B=2 run it\n", [(1, ("run", "it"))]),
        ('run "two\nlines"\nnext\n', [(1, ("run", "two\nlines")), (3, ("next",))]),
        ("it's never closed\nnext\n", [(2, ("next",))]),
        ("run > log 2>&1\n", [(1, ("run",))]),
    ],
)
def test_a_script_is_taken_apart(text: str, commands: list[tuple[int, tuple[str, ...]]]) -> None:
    """Into commands with the line that each begins on."""
    assert commands == words_of(text)


def test_what_is_set_and_changed_to_holds_for_what_follows() -> None:
    """Variables, folders, and whether the script goes on."""
    text = "export A=1\nB=2\ncd x && run &\ncd y\nC=3 run\ncd $HERE\nrun\n"
    found = [(one.folder, dict(one.variables), one.background) for one in commands_in(text)]
    assert [
        ("x", {"A": "1", "B": "2"}, True),
        ("x/y", {"A": "1", "B": "2", "C": "3"}, False),
        (None, {"A": "1", "B": "2"}, False),
    ] == found


@pytest.mark.parametrize(
    ("command", "ranks", "hosts", "shm", "triton"),
    [
        ("mpirun -n 4 --allow-run-as-root tritonserver --model-repository /m", 4, False, None, True),
        ("mpirun --hostfile hosts -np 16 tritonserver", 16, True, None, True),
        ("mpirun -n 1 tritonserver --x y : -n 1 tritonserver --x y", 2, False, None, True),
        ("python3 scripts/launch_triton_server.py --world_size=8 --model_repo /m", 8, False, None, True),
        ("trtllm-serve serve model --tp_size 8", 1, False, None, False),
        ("srun --mpi=pmix trtllm-llmapi-launch trtllm-serve serve model", 1, True, None, False),
        ("docker run --rm --gpus all image tritonserver", 1, False, 64 << 20, True),
        ("docker run --rm --ipc=host image tritonserver", 1, False, None, True),
        ("docker run --shm-size 2g image tritonserver", 1, False, 2 << 30, True),
        ("docker run --shm-size=512m image tritonserver", 1, False, 512 << 20, True),
        ("docker run -v /dev/shm:/dev/shm image tritonserver", 1, False, None, True),
        ("docker run --shm-size $SIZE image tritonserver", 1, False, None, True),
    ],
)
def test_how_a_server_is_started_is_read(command: str, ranks: int, hosts: bool, shm: int | None, triton: bool) -> None:
    """Ranks, hosts and shared memory, from the words of launchers and containers."""
    (one,) = commands_in(command)
    (server,) = launched(one)
    assert (ranks, hosts, shm, triton) == (server.ranks, server.names_hosts, server.shm_bytes, server.triton)


def test_another_command_starts_no_server() -> None:
    """Only the programs that serve."""
    assert [] == list(launched(Started(("curl", "localhost:8000/v2/health/ready"), 1)))


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (("trtllm-build --checkpoint_dir c --max_output_len 9",), ["--max_output_len is gone since 0.12"]),
        (("trtllm-build --checkpoint_dir c --max_seq_len 9",), []),
        (("docker run --ipc host i trtllm-build --max_output_len 9",), ["--max_output_len is gone since 0.12"]),
        (("python convert_checkpoint.py --use_fp8 --workers 99",), []),
        ((f"{SERVER}a &", f"{SERVER}a &"), ["shm-region-prefix-name a more than once; not confirmed for this release"]),
        ((f"{SERVER}a", f"{SERVER}a"), []),
        (tuple(f"docker run --shm-size 1g i {SERVER}a &" for _ in range(2)), []),
        (("docker run --rm i tritonserver",), ["64.00 MiB, 1.00 GiB is what launch examples give"]),
        (("mpirun -n 8 tritonserver",), []),
    ],
)  # fmt: skip
def test_what_a_script_says_alone(lines: tuple[str, ...], said: list[str], tmp_path: Path) -> None:
    """Without a plan nothing is known of model and machine, and nothing that needs them is judged."""
    (tmp_path / "run.sh").write_text("#!/bin/sh\n" + "\n".join(lines) + "\n")
    read = lint(tmp_path / "run.sh", CONTEXT)
    assert "shell script" == read.kind
    assert said == [one.finding.compared for one in read.findings]
    assert {f"run.sh:{len(lines) + 1}"} >= {one.place for one in read.findings}


@pytest.mark.parametrize("ending", ["sbatch", "slurm"])
def test_a_batch_job_is_a_script(ending: str, tmp_path: Path) -> None:
    """What Slurm is told in comments changes nothing; what the job starts is judged."""
    job = tmp_path / f"serve.{ending}"
    job.write_text("#!/bin/bash\n#SBATCH --nodes=2\n\nsrun trtllm-build --checkpoint_dir c --max_output_len 9\n")
    read = lint(job, CONTEXT)

    assert ("shell script", [(f"serve.{ending}:4", "--max_output_len is gone since 0.12")]) == (
        read.kind,
        [(one.place, one.finding.compared) for one in read.findings],
    )


POD = """apiVersion: v1
kind: Pod
spec:
  {pod}
  containers:
    - resources: {{limits: {{{gpu}: 8}}}}
      {container}
"""


@pytest.mark.parametrize(
    ("pod", "container", "gpu", "said"),
    [
        ("", "livenessProbe: {httpGet: {path: /v2/health/live}}", "nvidia.com/gpu", ["64.00 MiB"]),
        ("hostIPC: true", "livenessProbe: {httpGet: {path: /v2/health/ready}}", "nvidia.com/gpu", ["liveness /v2"]),
        ("hostIPC: true", "livenessProbe: {tcpSocket: {port: 1}}", "nvidia.com/gpu", []),
        ("hostIPC: true", "readinessProbe: {httpGet: {path: /v2/health/ready}}", "nvidia.com/gpu", []),
        ("volumes: [{name: m, emptyDir: {medium: Memory}}]", "volumeMounts: [{name: m, mountPath: /dev/shm}]",
         "nvidia.com/gpu", []),
        ("volumes: [{name: m, emptyDir: {medium: Memory, sizeLimit: 512Mi}}]",
         "volumeMounts: [{name: m, mountPath: /dev/shm}]", "nvidia.com/gpu", ["512.00 MiB"]),
        ("", "livenessProbe: {httpGet: {path: /v2/health/ready}}", "cpu", []),
    ],
)  # fmt: skip
def test_a_pod_with_gpus_is_judged(pod: str, container: str, gpu: str, said: list[str], tmp_path: Path) -> None:
    """Its liveness probe and its shared memory; a pod without GPUs serves no model."""
    path = tmp_path / "pod.yaml"
    path.write_text(POD.format(pod=pod or "restartPolicy: Always", container=container, gpu=gpu))
    read = lint(path, CONTEXT)
    assert "Kubernetes manifest" == read.kind
    found = told(read)
    assert len(said) == len(found)
    assert all(words in compared for words, (*_, compared) in zip(said, found, strict=True))


@pytest.mark.parametrize(
    ("asked", "said"),
    [("sharedMemorySize: 9Gi", []), ("sharedMemory: {size: 9Gi}", []), ("sharedMemorySize: 64Mi", [8]), ("a: 1", [8])],
)
def test_memory_that_an_operator_gives_a_pod_is_known(asked: str, said: list[int], tmp_path: Path) -> None:
    """It stands beside the template of the pod, which has no volume of its own."""
    path = tmp_path / "graph.yaml"
    path.write_text(
        f"apiVersion: v1\nkind: DynamoGraphDeployment\nspec:\n  {asked}\n  podTemplate:\n    spec:\n"
        "      containers:\n        - resources: {limits: {nvidia.com/gpu: 1}}\n"
    )
    assert said == [one.line for one in lint(path, CONTEXT).findings]


def test_a_pod_is_judged_on_its_own_lines(tmp_path: Path) -> None:
    """The path of the probe, and the container whose memory it is, in the document of several that holds them."""
    path = tmp_path / "pod.yaml"
    path.write_text(
        "apiVersion: v1\nkind: Service\n---\napiVersion: v1\nkind: Pod\nspec:\n  containers:\n"
        "    - name: x\n      resources: {limits: {nvidia.com/gpu: 1}}\n"
        "      livenessProbe:\n        httpGet:\n          path: /v2/health/ready\n"
    )
    assert {"liveness /v2/health/ready": 12, "64.00 MiB, 1.00 GiB is what launch examples give": 8} == {
        one.finding.compared.partition(";")[0]: one.line for one in lint(path, CONTEXT).findings
    }


@pytest.mark.parametrize(
    "held",
    [
        "kind: List\nitems: [{kind: Pod, spec: %s}]",
        "kind: RayCluster\nspec: {workerGroupSpecs: [{template: {spec: %s}}]}",
    ],
)
def test_pods_in_lists_are_found(held: str, tmp_path: Path) -> None:
    """A list of objects, and a kind that lists its groups of workers, hold pods as any other."""
    path = tmp_path / "many.yaml"
    path.write_text("apiVersion: v1\n" + held % "{containers: [{resources: {limits: {nvidia.com/gpu: 1}}}]}" + "\n")
    found = told(lint(path, CONTEXT))
    assert 1 == len(found)
    assert "64.00 MiB" in found[0][3]


def test_a_broken_manifest_is_told_by_its_line_in_the_file(tmp_path: Path) -> None:
    """Also in a later document of the same file."""
    path = tmp_path / "pod.yaml"
    path.write_text("apiVersion: v1\nkind: Service\n---\nkind: Pod\nspec: [\n")
    with pytest.raises(Exception, match="line 6") as refused:
        lint(path, CONTEXT)
    assert "KIT-LINT-001" == getattr(refused.value, "code", "")


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("next\nit's never closed\n", 2, "does not end"),
        ("cat <<EOF\ntext\n", 2, "does not end"),
        ("run\n" * 5001, 5001, "more than 5,000 commands"),
        ('bash -c "it\'s"\n', 1, "does not end"),
    ],
)
def test_what_was_not_read_is_said(text: str, line: int, why: str, tmp_path: Path) -> None:
    """A part that no rule looked at is no part that is well."""
    (tmp_path / "run.sh").write_text(text)
    found = [one for one in lint(tmp_path / "run.sh", Context()).findings if one.finding.rule == "PF52"]
    assert [(line, True)] == [(one.line, why in one.finding.compared) for one in found]


def test_a_line_of_a_dockerfile_that_is_no_instruction_is_said(tmp_path: Path) -> None:
    """It builds nothing, and whoever wrote it meant something."""
    (tmp_path / "Dockerfile").write_text("FROM ubuntu\nRUNN trtllm-build --max_output_len 9\n")
    found = lint(tmp_path / "Dockerfile", Context()).findings
    assert [("PF52", 2)] == [(one.finding.rule, one.line) for one in found]
