"""Who asks: tokens and passwords from files or the environment, never from a command line, and never shown."""

from __future__ import annotations

from collections.abc import Mapping

from trtllm_kit.light import dataclass

BEARER_VARIABLE, BASIC_VARIABLE = "TRTKIT_BEARER_TOKEN", "TRTKIT_BASIC_AUTH"
_MOST = 1 << 14


@dataclass(frozen=True)
class Access:
    """Where the secrets of one target are; it holds no secret itself."""

    ca_file: str = ""
    """Certificates to trust; empty: the system's."""
    bearer_file: str = ""
    basic_file: str = ""
    """One line ``user:password``."""
    environment: bool = False
    """Whether the variables ``TRTKIT_BEARER_TOKEN`` and ``TRTKIT_BASIC_AUTH`` are for this target."""


ANYBODY = Access()


class NoSecret(Exception):
    """A secret that was named is not there, or is none; the message does not show it."""


def authorization(access: Access, environment: Mapping[str, str]) -> str:
    """Return the value of the header that says who asks; empty when nobody in particular does. Raises ``NoSecret``."""
    if access is ANYBODY:
        return ""
    known = environment if access.environment else {}
    token = _read(access.bearer_file, "the bearer token") or known.get(BEARER_VARIABLE, "").strip()
    if token:
        return f"Bearer {_sound(token, 'the bearer token')}"
    login = _read(access.basic_file, "the user and password") or known.get(BASIC_VARIABLE, "").strip()
    if not login:
        return ""
    if ":" not in login:
        raise NoSecret("the user and password are not of the form user:password")
    import base64

    try:
        return f"Basic {base64.b64encode(login.encode()).decode()}"
    except UnicodeEncodeError:
        raise NoSecret("the user and password are no text in UTF-8") from None


def _read(path: str, what: str) -> str:
    if not path:
        return ""
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123  # pathlib: 4 ms
            text = file.read(_MOST).strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise NoSecret(f"{what} in {path} cannot be read: {reason}") from None
    if not text:
        raise NoSecret(f"{what} in {path} is empty")
    return text


def _sound(secret: str, what: str) -> str:
    """Refuse what would end the header."""
    if not secret.isascii() or not secret.isprintable() or " " in secret:
        raise NoSecret(f"{what} holds letters that no token has")
    return secret
