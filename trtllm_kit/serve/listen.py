"""Whether the server can listen where the profile says; every refusal is told with its own cause.

Triton would tell most of them as "already in use", and of a host name it would tell nothing and wait for ever.
"""

from __future__ import annotations

import errno
import os
import socket

from trtllm_kit.errors import CannotListen, KitError, PortInUse
from trtllm_kit.spec.profile import Serve

_PORTS = ("http_port", "grpc_port", "metrics_port")
_FIRST_FREE_FOR_ALL = 1024
_LAST_PORT = 65535
_ADDRESSES = "set serve.host to 127.0.0.1, to 0.0.0.0 for every address, or to one that `ip -brief address` shows"


def resolved(serve: Serve) -> Serve:
    """Return the settings with a host name replaced by its address, IPv4 before IPv6; raises ``CannotListen``."""
    try:
        found = socket.getaddrinfo(serve.host, None, type=socket.SOCK_STREAM)
    except (OSError, ValueError) as error:
        why = f"the system says: {error.strerror if isinstance(error, OSError) else error}"
        raise CannotListen(f"serve.host {serve.host} has no address", why=why, hint=_ADDRESSES) from None
    families = {family: str(address[0]) for family, _, _, _, address in reversed(found)}
    return serve.model_copy(update={"host": families.get(socket.AF_INET) or families[socket.AF_INET6]})


def check_ports(serve: Serve, held: frozenset[int] = frozenset()) -> None:
    """Raise ``PortInUse`` for the first port that another process listens on, ``CannotListen`` for other refusals.

    ``held`` are the ports of a server that is to be replaced.
    """
    for name in _PORTS:
        error = None if getattr(serve, name) in held else _bind_error(serve.host, getattr(serve, name))
        if error is not None:
            raise _refusal(serve, name, error)


def _bind_error(host: str, port: int) -> OSError | None:
    """Bind as a server would, and let go at once."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        return error
    return None


def _refusal(serve: Serve, name: str, error: OSError) -> KitError:
    host, port = serve.host, getattr(serve, name)
    number = error.errno or 0
    said = f"the system says: {os.strerror(number)} (errno {number})"
    if number == errno.EADDRINUSE:
        return PortInUse(
            f"serve.{name} {port} is taken",
            why=f"another process listens on {host}:{port} (ss -ltnp 'sport = :{port}' names it)",
            hint=f"end that process, or {_another_port(serve, name, port + 1)}",
        )
    if number == errno.EADDRNOTAVAIL:
        return CannotListen(f"serve.host {host} is no address of this machine", why=said, hint=_ADDRESSES)
    if number in (errno.EACCES, errno.EPERM):
        why = f"ports below {_FIRST_FREE_FOR_ALL} need the rights of root (CAP_NET_BIND_SERVICE); {said}"
        hint = _another_port(serve, name, max(port + 1, _FIRST_FREE_FOR_ALL))
        return CannotListen(f"this user may not bind serve.{name} {port}", why=why, hint=hint)
    return CannotListen(f"serve.{name} {port} cannot be bound on {host}", why=said, hint=_ADDRESSES)


def _another_port(serve: Serve, name: str, first: int) -> str:
    """Advise the next port that can be bound and that the profile gives to nothing else."""
    others = {getattr(serve, other) for other in _PORTS}
    free = (port for port in range(first, _LAST_PORT + 1) if port not in others and not _bind_error(serve.host, port))
    return f"set serve.{name} to {next(free, 'a lower number')} in the profile"
