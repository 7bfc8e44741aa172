"""Whether the server can listen where the profile says."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.ports import free_ports
from trtllm_kit.errors import CannotListen, PortInUse
from trtllm_kit.serve.listen import check_ports, resolved
from trtllm_kit.spec.profile import Serve


def serve(host: str = "127.0.0.1", **ports: int) -> Serve:
    """Make settings on free ports, but for those given; the host is not validated."""
    names = ("http_port", "grpc_port", "metrics_port")
    return Serve(**dict(zip(names, free_ports(3), strict=True)) | ports).model_copy(update={"host": host})


@contextmanager
def listening(port: int = 0) -> Iterator[int]:
    """Listen on a port."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen()
        yield listener.getsockname()[1]


@contextmanager
def unprivileged() -> Iterator[None]:
    """Run as a user without rights, also where the tests run as root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_free_ports_are_no_problem() -> None:
    """Ports that nobody uses pass, on IPv4 and on IPv6."""
    check_ports(serve())
    check_ports(serve("::1"))


def test_a_taken_port_is_named_with_one_that_is_free() -> None:
    """The advice is a port that can be bound and that no other endpoint of the profile has."""
    with listening() as port:
        settings = serve(http_port=port, grpc_port=port + 1)

        with pytest.raises(PortInUse) as taken:
            check_ports(settings)

    assert f"serve.http_port {port} is taken" == taken.value.what
    advised = int(taken.value.hint.rpartition(" to ")[2].split()[0])
    assert advised > port + 1
    check_ports(serve(http_port=advised))


def test_the_last_port_has_no_next_one() -> None:
    """When no higher port is free the advice names none."""
    with listening(65535), pytest.raises(PortInUse, match=r"set serve\.grpc_port to a lower number"):
        check_ports(serve(grpc_port=65535))


@pytest.mark.parametrize("host", ["192.0.2.77", "2001:db8::77"])
def test_an_address_of_another_machine_is_no_taken_port(host: str) -> None:
    """EADDRNOTAVAIL is told of the host, with no port to change."""
    with pytest.raises(CannotListen) as foreign:
        check_ports(serve(host))

    assert f"serve.host {host} is no address of this machine" == foreign.value.what
    assert f"errno {errno.EADDRNOTAVAIL}" in foreign.value.why
    assert "_port" not in foreign.value.hint
    assert "serve.host" in foreign.value.hint


@pytest.mark.skipif(
    int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text()) <= 80,
    reason="this machine lets anybody bind it",
)
def test_a_port_of_root_says_which_rights_it_needs() -> None:
    """EACCES is told as a lack of rights, with a port that needs none."""
    with unprivileged(), pytest.raises(CannotListen) as refused:
        check_ports(serve(http_port=80))

    assert "this user may not bind serve.http_port 80" == refused.value.what
    assert "ports below 1024 need the rights of root" in refused.value.why
    assert 1024 <= int(refused.value.hint.rpartition(" to ")[2].split()[0])


def test_any_other_refusal_is_told_as_the_system_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without IPv6 says so."""

    def no_family(*_: object) -> socket.socket:
        raise OSError(errno.EAFNOSUPPORT, "no")

    settings = serve("::1")
    monkeypatch.setattr("trtllm_kit.serve.listen.socket.socket", no_family)
    with pytest.raises(CannotListen, match="Address family not supported") as refused:
        check_ports(settings)

    assert f"serve.http_port {settings.http_port} cannot be bound on ::1" == refused.value.what


def test_a_port_in_time_wait_is_free() -> None:
    """A port whose last connection was closed a moment ago can be bound again, as a server does."""
    (port,) = free_ports(1)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen()
        with socket.create_connection(("127.0.0.1", port)):
            listener.accept()[0].close()

    check_ports(serve(http_port=port))


def test_names_become_addresses() -> None:
    """A name is resolved, IPv4 first; an address stays; everything else of the settings too."""
    settings = serve("localhost")

    assert settings.model_copy(update={"host": "127.0.0.1"}) == resolved(settings)
    assert ["0.0.0.0", "::", "fd00::2"] == [resolved(serve(host)).host for host in ("0.0.0.0", "::", "fd00::2")]


@pytest.mark.parametrize("host", ["nowhere.invalid", "", "a\0b", "x" * 70 + ".org"])
def test_a_name_without_address_is_refused(host: str) -> None:
    """What no resolver knows, and what none would take, names the key."""
    with pytest.raises(CannotListen, match=r"serve\.host .*has no address"):
        resolved(serve(host))


def test_the_ports_of_a_server_that_is_to_be_replaced_are_no_obstacle() -> None:
    """They will be free by then; everybody else's are still refused."""
    with socket.socket() as ours:
        ours.bind(("127.0.0.1", 0))
        ours.listen()
        port = ours.getsockname()[1]
        others = dict(zip(("grpc_port", "metrics_port"), free_ports(2), strict=True))
        serve = Serve(http_port=port, **others)

        check_ports(serve, held=frozenset({port}))
        with pytest.raises(PortInUse):
            check_ports(serve, held=frozenset({port + 1}))
