"""The command that starts tritonserver, as data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from trtllm_kit.errors import UsageError
from trtllm_kit.serve.launch import RUN_MARK, Installation, ServerCommand, server_command
from trtllm_kit.spec.profile import Serve

WHEEL = Installation(
    binary=Path("/w/bin/tritonserver"),
    links={"libtriton_python.so": Path("/w/libtriton_python.so"), "stub": Path("/w/3.11/stub")},
    python_folder=Path("/venv/bin"),
    library_folders=(Path("/pyenv/lib"),),
)
CONTAINER = Installation(binary=Path("/opt/tritonserver/bin/tritonserver"), links={}, python_folder=None)
WORKSPACE = Path("/tmp/trtkit-1a2b3c4d")


def command(serve: Serve, installation: Installation = WHEEL, **environment: str) -> ServerCommand:
    """Make the command for a repository."""
    return server_command(Path("/r/repository"), serve, environment, installation, WORKSPACE)


def test_the_whole_command_over_the_wheel() -> None:
    """Every flag the wheel's server needs stands there, and nothing else."""
    assert (
        "/w/bin/tritonserver",
        "--model-repository=/r/repository",
        "--backend-directory=/tmp/trtkit-1a2b3c4d/backends",
        "--http-address=127.0.0.1",
        "--grpc-address=127.0.0.1",
        "--metrics-address=127.0.0.1",
        "--http-port=8000",
        "--grpc-port=8001",
        "--metrics-port=8002",
        "--exit-timeout-secs=30",
        "--disable-auto-complete-config",
        "--metrics-config=histogram_latencies=true",
        "--backend-config=python,shm-region-prefix-name=trtkit-1a2b3c4d_",
    ) == command(Serve()).argv


def test_a_containers_server_finds_its_own_backends() -> None:
    """An installed server gets no backend folder, and its PATH is left alone."""
    made = command(Serve(), CONTAINER, PATH="/usr/bin")

    assert not any(word.startswith("--backend-directory") for word in made.argv)
    assert {"PATH": "/usr/bin", RUN_MARK: made.shm_prefix} == made.environment
    assert {} == made.links


def test_a_launcher_goes_before_the_server() -> None:
    """TensorRT-LLM's launcher gets the server's command as its own arguments."""
    argv = command(Serve(), replace(CONTAINER, launcher=("/usr/bin/trtllm-llmapi-launch",))).argv

    assert ("/usr/bin/trtllm-llmapi-launch", "/opt/tritonserver/bin/tritonserver") == argv[:2]


def test_the_stubs_python_comes_first() -> None:
    """The first python3 on PATH decides what the stub imports; PYTHONHOME would mislead it."""
    made = command(Serve(), PATH="/usr/bin", LD_LIBRARY_PATH="/l", PYTHONHOME="/x", CUDA_VISIBLE_DEVICES="1")

    assert {
        "PATH": "/venv/bin:/usr/bin",
        "LD_LIBRARY_PATH": "/pyenv/lib:/l",
        "CUDA_VISIBLE_DEVICES": "1",
        RUN_MARK: made.shm_prefix,  # what every process of the run is known by
    } == made.environment
    assert "/venv/bin:/usr/bin:/bin" == command(Serve()).environment["PATH"]


def test_links_go_into_the_python_backends_folder() -> None:
    """The backend's files are linked where the server looks for a backend named python."""
    assert {
        "backends/python/libtriton_python.so": Path("/w/libtriton_python.so"),
        "backends/python/stub": Path("/w/3.11/stub"),
    } == command(Serve()).links


@pytest.mark.parametrize(
    ("host", "url"),
    [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("fd00::2", "[fd00::2]")],
)
def test_urls_are_what_a_client_asks(host: str, url: str) -> None:
    """A server that binds every address is asked on loopback; IPv6 is bracketed."""
    urls = command(Serve(host=host, http_port=1, grpc_port=2, metrics_port=3)).urls

    assert (f"http://{url}:1", f"{url}:2", f"http://{url}:3/metrics") == (urls.http, urls.grpc, urls.metrics)


def test_ipv6_is_spelled_as_each_endpoint_reads_it() -> None:
    """Triton's web server wants a prefix, its gRPC server brackets."""
    flags = [word for word in command(Serve(host="fd00::2")).argv if "-address=" in word]

    assert ["--http-address=ipv6:fd00::2", "--grpc-address=[fd00::2]", "--metrics-address=ipv6:fd00::2"] == flags


def test_equal_ports_are_refused() -> None:
    """Two services on one port are refused with both names."""
    with pytest.raises(UsageError) as refused:
        command(Serve(http_port=9000, metrics_port=9000))

    assert "serve.metrics_port is 9000" == refused.value.what
    assert "serve.http_port is 9000 too" in refused.value.why


def test_a_repository_with_other_letters_than_ascii_is_reached_through_a_link() -> None:
    """Triton's Python stub reads paths as ASCII, whatever the locale: it is shown one that is."""
    made = server_command(Path("/r/größe"), Serve(), {}, CONTAINER, WORKSPACE)

    assert "--model-repository=/tmp/trtkit-1a2b3c4d/repository" in made.argv
    assert {"repository": Path("/r/größe")} == made.links
    assert Path("/r/größe") == made.repository
