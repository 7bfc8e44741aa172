"""Servers for built engines: what stands in for their backend, and which of them one process cannot serve."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from tests.support.ports import free_ports
from trtllm_kit.errors import UsageError
from trtllm_kit.serve.launch import Installation, server_command
from trtllm_kit.serve.process import prepare, stand_in_files
from trtllm_kit.spec.profile import Serve
from trtllm_kit.staging import staged


def repository(folder: Path, **facts: object) -> Path:
    """Write a repository with nothing but its manifest."""
    with staged(folder, "repository", "key") as stage:
        assert stage is not None
        stage.write_text("tensorrt_llm/config.pbtxt", 'name: "tensorrt_llm"\n')
        stage.publish({}, facts)
    return folder


def test_ranks_that_are_servers_are_not_started_one_alone(tmp_path: Path) -> None:
    """Rank 0 would wait for the others for ever."""
    folder = repository(tmp_path / "repository", engines=True, servers=4, runtime="tensorrt_llm")

    with pytest.raises(UsageError, match="served by 4 servers together"):
        prepare(folder, Serve(), {})


def test_ranks_of_the_llm_api_are_started_under_mpirun(tmp_path: Path) -> None:
    """One server, and its launcher once a rank: alone it would have one worker of the four."""
    folder = repository(tmp_path / "repository", ranks=4, runtime="tensorrt_llm")
    for name in ("tritonserver", "trtllm-llmapi-launch", "mpirun"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    http, grpc, metrics = free_ports(3)
    serve = Serve(http_port=http, grpc_port=grpc, metrics_port=metrics)

    argv = prepare(folder, serve, {"PATH": str(tmp_path), "TRITONSERVER": str(tmp_path / "tritonserver")}).command.argv

    launcher, server = (str(tmp_path / name) for name in ("trtllm-llmapi-launch", "tritonserver"))
    assert ("mpirun", "--allow-run-as-root", "--bind-to", "none", "-n", "4", launcher, server) == argv[:8]


def test_instances_start_their_ranks_themselves(tmp_path: Path) -> None:
    """Upstream's launcher has one server and its ranks, so several instances go without it."""
    folder = repository(tmp_path / "repository", instances=2, runtime="tensorrt_llm")
    (tmp_path / "tritonserver").write_text("#!/bin/sh\n")
    (tmp_path / "tritonserver").chmod(0o755)
    http, grpc, metrics = free_ports(3)
    serve = Serve(http_port=http, grpc_port=grpc, metrics_port=metrics)

    argv = prepare(folder, serve, {"PATH": str(tmp_path), "TRITONSERVER": str(tmp_path / "tritonserver")}).command.argv

    assert str(tmp_path / "tritonserver") == argv[0]


def test_the_stand_in_has_every_module_it_imports() -> None:
    """All its files lie in one folder, some of them the llmapi model's."""
    files = stand_in_files()
    known = set(sys.stdlib_module_names) | {"numpy", "triton_python_backend_utils", "trtllm_kit"}
    imported = {
        node.module.partition(".")[0]
        for path in files.values()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module
    }

    assert imported <= known | {name.removesuffix(".py") for name in files}
    assert all(path.is_file() for path in files.values())


def test_the_stand_in_is_pythons_backend_under_the_other_name(tmp_path: Path) -> None:
    """The library by the name that Triton looks for, stub and utilities as they are called, and the files."""
    links = {name: tmp_path / name for name in ("libtriton_python.so", "triton_python_backend_utils.py", "stub")}
    installation = Installation(binary=tmp_path / "tritonserver", links=links, python_folder=None)
    files = {"model.py": tmp_path / "stand_in.py"}

    command = server_command(tmp_path, Serve(), {}, installation, tmp_path / "work", files)

    assert {
        "backends/tensorrtllm/libtriton_tensorrtllm.so": tmp_path / "libtriton_python.so",
        "backends/tensorrtllm/triton_python_backend_utils.py": tmp_path / "triton_python_backend_utils.py",
        "backends/tensorrtllm/stub": tmp_path / "stub",
        "backends/tensorrtllm/model.py": tmp_path / "stand_in.py",
    } == {name: target for name, target in command.links.items() if "tensorrtllm" in name}
    assert [True, True] == [
        f"--backend-config={name},shm-region-prefix-name={command.shm_prefix}" in command.argv
        for name in ("python", "tensorrtllm")
    ]
    plain = server_command(tmp_path, Serve(), {}, installation, tmp_path / "work")
    assert not any("tensorrtllm" in name for name in plain.links)
