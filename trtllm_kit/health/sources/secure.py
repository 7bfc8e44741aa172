"""TLS: a connection whose other end has shown a certificate that is good for its name."""

from __future__ import annotations

import socket
import ssl


class Refused(Exception):
    """The certificate is not good, or there is nothing to judge it by."""


def secured(connection: socket.socket, host: str, ca_file: str) -> socket.socket:
    """Shake hands within the connection's time-out; raises ``Refused`` for a certificate, ``OSError`` for all else."""
    try:
        context = ssl.create_default_context(cafile=ca_file or None)
    except (OSError, ssl.SSLError) as error:
        raise Refused(f"the certificates to trust in {ca_file} cannot be read: {error.strerror or error}") from None
    try:
        return context.wrap_socket(connection, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        raise Refused(f"the server's certificate is refused: {error.verify_message}") from None
