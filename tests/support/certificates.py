"""A certificate of its own for servers of this machine, and what serves with it."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest


def certificate(folder: Path, names: str = "DNS:localhost,IP:127.0.0.1") -> Path:
    """Make a key and a certificate for these names, in one file; skips without ``openssl``."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("SKIPPED FOR LACK OF A TOOL: no openssl")
    key, cert, both = (folder / name for name in ("key.pem", "cert.pem", "both.pem"))
    words = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    words += ["-addext", f"subjectAltName={names}", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(words, check=True, capture_output=True)
    both.write_text(key.read_text() + cert.read_text())
    return both


def serving_with(both: Path) -> ssl.SSLContext:
    """Return what a server shows the certificate with."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(both)
    return context
