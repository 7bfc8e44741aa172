"""The line or unit that makes a machine check by itself: for cron, for systemd, for Nagios. Pure text."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

KINDS = ("cron", "systemd-timer", "nagios")
EVERY_MINUTES = 2


def install_text(kind: str, program: str, words: Sequence[str]) -> str:
    """Return what to put where, with the program's whole path and the words of the check.

    A per cent sign ends a command in cron, a dollar sign and a per cent sign mean something to systemd and Nagios: they
    are written as each of them wants.
    """
    command = shlex.join([program, "check-health", *words])
    if kind == "cron":
        line = f'*/{EVERY_MINUTES} * * * * out=$({command}) || echo "$out"'
        return "# crontab -e; cron mails what is printed, which is only what is not OK\n" + line.replace("%", "\\%")
    if kind == "systemd-timer":
        return _SYSTEMD.format(command=command.replace("%", "%%").replace("$", "$$"), minutes=EVERY_MINUTES)
    return _NAGIOS.format(command=command.replace("$", "$$"))


_SYSTEMD = """\
# /etc/systemd/system/trtkit-check.service
[Unit]
Description=Health of the TensorRT-LLM server
[Service]
Type=oneshot
DynamicUser=yes
StateDirectory=trtkit
Environment=TRTKIT_STATE=/var/lib/trtkit
ExecStart={command}

# /etc/systemd/system/trtkit-check.timer
[Unit]
Description=Check the TensorRT-LLM server
[Timer]
OnCalendar=*:0/{minutes}
RandomizedDelaySec=10
[Install]
WantedBy=timers.target

# systemctl daemon-reload && systemctl enable --now trtkit-check.timer"""
_NAGIOS = """\
define command {{
  command_name  check_trtkit
  command_line  {command}
}}
define service {{
  use                  generic-service
  host_name            HOST
  service_description  TensorRT-LLM
  check_command        check_trtkit
}}"""
