"""TLS: a connection whose other end has shown a certificate that is good for its name."""

from __future__ import annotations

import socket
import ssl


class Refused(Exception):
    """The server's certificate is not good."""


class Untrusting(Exception):
    """There is nothing to judge a certificate by: that says nothing of the server."""


def secured(connection: socket.socket, host: str, ca_file: str) -> socket.socket:
    """Shake hands within the connection's time-out.

    Raises ``Refused`` for the server's certificate, ``Untrusting`` for ours, ``OSError`` for all else.
    """
    try:
        context = ssl.create_default_context(cafile=ca_file or None)
    except (OSError, ssl.SSLError) as error:
        raise Untrusting(f"the certificates to trust in {ca_file} cannot be read: {error.strerror or error}") from None
    try:
        return context.wrap_socket(connection, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        raise Refused(f"the server's certificate is refused: {error.verify_message}") from None
