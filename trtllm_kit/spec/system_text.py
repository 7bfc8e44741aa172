"""Texts of a profile that reach the operating system: environment variables, the host, paths.

What the system cannot take, or what would start another server than the one that is meant, is refused with the
profile, before anything is made. Each type says in the JSON schema what it refuses.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

REFUSED = "refused"
"""Type of the errors whose message says by itself what is wrong and what is allowed."""
PARTS = "parts"
"""In the context of such an error about a mapping: what is wrong with each of its keys, by key."""

MOST_VARIABLES = 128
LONGEST_NAME = 128
LONGEST_VALUE = 8192
"""Characters; the system takes 128 KiB for one variable and its name, and 2 MiB for all with the command line."""
_VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"
_WHERE = "set it in the shell that starts the server"
MACHINES_OWN: Mapping[str, str] = {
    "PATH": "it decides which server, launcher and Python run",
    "TRITONSERVER": "it decides which server runs",
    "BASH_ENV": "it runs a script before the launcher",
    "LD_LIBRARY_PATH": "it would replace the container's own, and the server would not find its libraries",
    "LD_PRELOAD": "it puts foreign code into the server",
    "LD_AUDIT": "it puts foreign code into the server",
    "PYTHONHOME": "it would give the model's Python another standard library than its own",
    "PYTHONPATH": "it would give the model's Python other packages than those installed for it",
}
"""Variables that a profile may not set, with the reason: they describe the machine, not the deployment."""

_SECRET_WORDS = r"(TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|(API|ACCESS|PRIVATE|HMAC|SECRET)_?KEY)"  # noqa: S105
_CREDENTIALS = "CREDENTIALS?"
"""A secret, or as often the absolute path of the file that holds it."""
_SECRET_NAME = re.compile(rf"(^|_)({_SECRET_WORDS}|{_CREDENTIALS})$", re.IGNORECASE)
_CREDENTIALS_NAME = re.compile(rf"(^|_){_CREDENTIALS}$", re.IGNORECASE)
_SECRET_VALUE = re.compile(r"\b[a-z][a-z0-9+.-]*://[^/\s:@]*:[^/\s@]+@|-----BEGIN [A-Z ]*PRIVATE KEY-----", re.I)

_LONGEST_HOST = 253
_HOST = r"^[A-Za-z0-9_:][A-Za-z0-9_.:-]*$"
_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST_NAME = re.compile(rf"({_LABEL}\.)*{_LABEL}")
_NUMBER_AT_END = re.compile(r"(.*\.)?[0-9]+")
_NO_NUL = {"not": {"pattern": "\\u0000"}}


def looks_secret(name: str, value: str) -> bool:
    """Whether a variable looks like a secret by its name or its value.

    By its name not where it is empty, a number, or the path of credentials. In a value it is a password within an
    address, or a private key.
    """
    by_name = _SECRET_NAME.search(name) is not None and bool(value) and not value.isdecimal()
    is_path = _CREDENTIALS_NAME.search(name) is not None and value.startswith("/")
    return (by_name and not is_path) or _SECRET_VALUE.search(value) is not None


def _refusal(text: str) -> PydanticCustomError:
    return PydanticCustomError(REFUSED, "{text}", {"text": text})


def _variable_name(name: str) -> str:
    if not re.fullmatch(_VARIABLE[1:-1], name):
        raise _refusal("no name of an environment variable; allowed letters, digits and _, no digit first")
    if len(name) > LONGEST_NAME:
        raise _refusal(f"a name of {len(name):,} characters; allowed at most {LONGEST_NAME}")
    if name in MACHINES_OWN:
        raise _refusal(f"not allowed in a profile: {MACHINES_OWN[name]}; {_WHERE}")
    return name


def _variable_value(value: str) -> str:
    if len(value) > LONGEST_VALUE:
        raise _refusal(f"found {len(value):,} characters; allowed at most {LONGEST_VALUE:,}")
    return _without_nul(value)


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise _refusal("found a NUL character, at which the system would cut the text off; leave it out")
    return text


def _few(variables: dict[str, str]) -> dict[str, str]:
    if len(variables) > MOST_VARIABLES:
        raise _refusal(f"found {len(variables):,} variables; allowed at most {MOST_VARIABLES}")
    return variables


def _no_secret(variables: dict[str, str]) -> dict[str, str]:
    """Refuse what looks like a secret, without its value: plans, engines and repositories would all show it."""
    texts = {name: _secret_text(name) for name, value in variables.items() if looks_secret(name, value)}
    if texts:
        told = "; ".join(f"{name} {text}" for name, text in texts.items())
        raise PydanticCustomError(REFUSED, "{text}", {"text": told, PARTS: texts})
    return variables


def _secret_text(name: str) -> str:
    return (
        "looks like a secret, and no file of a deployment holds one; leave it out here, set it in the shell that "
        f"starts the server, and name it in deploy.secret_environment: {{{name}: SECRET/KEY}}"
    )


def _host(text: str) -> str:
    if not (_is_address(text) or _is_host_name(text)):
        raise _refusal(
            f"found {text[:_LONGEST_HOST]!r}; allowed an IP address such as 127.0.0.1 or ::1, or a host name"
        )
    return text


def _is_address(text: str) -> bool:
    """Whether it is an IP address; one with a zone (``%eth0``) is none that Triton can bind."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return "%" not in text


def _is_host_name(text: str) -> bool:
    """Whether it is a host name: dotted labels, the last of which is no number, or it would be a broken address."""
    fits = len(text) <= _LONGEST_HOST and _HOST_NAME.fullmatch(text) is not None
    return fits and not _NUMBER_AT_END.fullmatch(text)


def _any_case(pattern: str) -> str:
    """Return the pattern for either case of its letters, as JSON schemas have no flag for that."""
    return re.sub(r"[A-Z]", lambda match: f"[{match[0]}{match[0].lower()}]", pattern)


_NAMES: dict[str, Any] = {
    "maxProperties": MOST_VARIABLES,
    "patternProperties": {
        _any_case(f"(^|_){_SECRET_WORDS}$"): {"type": "string", "pattern": "^[0-9]*$"},
        _any_case(f"(^|_){_CREDENTIALS}$"): {"type": "string", "pattern": "^([0-9]*$|/)"},
    },
    "propertyNames": {"pattern": _VARIABLE, "maxLength": LONGEST_NAME, "not": {"enum": list(MACHINES_OWN)}},
}
VariableName = Annotated[str, AfterValidator(_variable_name)]
VariableValue = Annotated[
    str, AfterValidator(_variable_value), Field(json_schema_extra={"maxLength": LONGEST_VALUE, **_NO_NUL})
]
Environment = Annotated[
    dict[VariableName, VariableValue],
    AfterValidator(_few),
    AfterValidator(_no_secret),
    Field(json_schema_extra=_NAMES),
]
"""Variables by name, as any system can pass them on."""
Host = Annotated[
    str,
    AfterValidator(_host),
    Field(json_schema_extra={"pattern": _HOST, "maxLength": _LONGEST_HOST, "examples": ["127.0.0.1", "::1"]}),
]
"""An address to bind, or a name for one."""
PathText = Annotated[str, AfterValidator(_without_nul), Field(json_schema_extra=_NO_NUL)]
"""A path as written."""
