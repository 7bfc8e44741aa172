"""Whose certificates are believed of a server that is asked over TLS."""

from __future__ import annotations

import ssl

from trtllm_kit.errors import UsageError


def trusting(ca_file: str) -> ssl.SSLContext:
    """Return what checks certificates by those in a file, or by the system's where none is named.

    Raises ``UsageError`` for a file that cannot be read, or holds none.
    """
    try:
        return ssl.create_default_context(cafile=ca_file or None)
    except OSError as error:  # of which what ssl raises is a kind
        raise UsageError(
            f"--ca {ca_file} holds no certificates that can be trusted",
            why=str(error.strerror or error),
            hint="--ca FILE in PEM, e.g. what openssl req -x509 wrote",
        ) from None
