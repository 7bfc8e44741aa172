"""The options of ``trtkit check-health``, once: the command line and the short way that cron takes read the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

INTERVAL_SECONDS, TIMEOUT_SECONDS = 1.0, 4.0


class CheckOption(NamedTuple):
    """One option; its name is the long flag's."""

    flags: tuple[str, ...]
    kind: type
    help: str
    default: Any = None
    metavar: str = ""
    least: float | None = None
    many: bool = False

    @property
    def name(self) -> str:
        """Name of the value, as code has it."""
        return self.flags[0].removeprefix("--").replace("-", "_")


OPTIONS: Sequence[CheckOption] = (
    CheckOption(("--profile", "-p"), str, "Whose alerts to use.", metavar="NAME|FILE"),
    CheckOption(
        ("--url",), str, "Metrics page, e.g. http://127.0.0.1:8002/metrics; of several servers, once each.", many=True
    ),
    CheckOption(("--repository",), str, "What trtkit deploy made: address and grace.", metavar="FOLDER"),
    CheckOption(("--targets",), str, "JSON file of targets: name, url, beside, logs, nvml, canary.", metavar="FILE"),
    CheckOption(
        ("--discover",),
        str,
        "Find targets: k8s:LABELS, a folder that deploy wrote (repositories, Prometheus), a JSON file.",
        metavar="WHERE",
    ),
    CheckOption(("--via",), str, "Prometheus that scrapes the servers, to be asked instead of them.", metavar="URL"),
    CheckOption(("--beside",), str, "Another page of the same server, e.g. of the DCGM exporter.", many=True),
    CheckOption(("--nvml",), bool, "Ask the driver about the GPUs of this machine.", default=False),
    CheckOption(("--log",), str, "Log in which to look for known phrases.", metavar="FILE", many=True),
    CheckOption(("--canary",), str, "URL at which to generate one token.", metavar="URL"),
    CheckOption(("--canary-timeout",), float, "Seconds that it may take; 10 by default.", least=0.1),
    CheckOption(("--canary-interval",), float, "Seconds that one which went well stands; 60 by default.", least=0),
    CheckOption(("--ca",), str, "Certificates to trust, for https.", metavar="FILE"),
    CheckOption(("--bearer",), str, "File with the bearer token; else TRTKIT_BEARER_TOKEN.", metavar="FILE"),
    CheckOption(("--basic",), str, "File with user:password; else TRTKIT_BASIC_AUTH.", metavar="FILE"),
    CheckOption(("--passive",), bool, "Ask for no generation, whatever names a canary.", default=False),
    CheckOption(("--explain",), bool, "Walk from each number to its rule and its advice.", default=False),
    CheckOption(("--once",), bool, "Remember nothing: read twice.", default=False),
    CheckOption(("--state",), str, "Folder of what is remembered between checks.", metavar="FOLDER"),
    CheckOption(("--samples",), int, "Readings; by default what the rules need, one where it remembers.", least=1),
    CheckOption(("--interval",), float, "Seconds between readings.", default=INTERVAL_SECONDS, least=0),
    CheckOption(("--timeout",), float, "Seconds that one reading may take.", default=TIMEOUT_SECONDS),
    CheckOption(("--prom",), str, "Also write the verdict for node_exporter's textfile collector.", metavar="FILE"),
    CheckOption(("--exec",), str, "Command to run when the verdict changes; it gets the JSON.", metavar="COMMAND"),
    CheckOption(("--webhook",), str, "Address to post the JSON to when the verdict changes.", metavar="URL"),
)
"""Every option but those that all verbs share."""
INSTALL: Sequence[CheckOption] = (
    CheckOption(("--cron",), bool, "With install: a line of a crontab.", default=False),
    CheckOption(("--systemd-timer",), bool, "With install: a service and its timer.", default=False),
    CheckOption(("--nagios",), bool, "With install: a command and a service of Nagios.", default=False),
)
"""Options that ask for no check, and so have no short way."""
SHARED = {"--json": "json", "--verbose": "verbose", "-v": "verbose"}


def read_words(words: Sequence[str]) -> Mapping[str, Any] | None:
    """Read the words after the verb; None for anything that is not plainly right, which the long way then judges."""
    by_flag = {flag: option for option in OPTIONS for flag in option.flags}
    values: dict[str, Any] = {option.name: () if option.many else option.default for option in OPTIONS}
    values |= {"json": False, "verbose": False}
    rest = list(words)
    while rest:
        flag, equals, given = rest.pop(0).partition("=")
        if flag in SHARED and not equals:
            values[SHARED[flag]] = True
            continue
        option = by_flag.get(flag)
        if option is None or (option.kind is bool and equals) or (flag.startswith("--") is False and equals):
            return None
        if option.kind is bool:
            values[option.name] = True
            continue
        if not equals and (not rest or rest[0].startswith("-")):
            return None
        value = _value(option, given if equals else rest.pop(0))
        if value is None:
            return None
        values[option.name] = (*values[option.name], value) if option.many else value
    return values


def _value(option: CheckOption, text: str) -> Any:
    try:
        value = option.kind(text)
    except ValueError:
        return None
    return None if option.least is not None and not value >= option.least else value
