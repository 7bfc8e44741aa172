"""Debian's own cron runs the verbs, in a mount namespace of its own, and what it mails is what the page says."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli import trtkit_path
from tests.support.road import profile_text
from tests.support.tiny_model import write_tiny_model

pytestmark = pytest.mark.slow

CRON = shutil.which("cron", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
NAMESPACE = """
set -e
mount -t tmpfs none /run
mount -t tmpfs none /var/spool
if [ -d /etc/cron.d ]; then mount -t tmpfs none /etc/cron.d; fi
if [ -f /etc/crontab ]; then mount --bind /dev/null /etc/crontab; fi
mount --bind "$1/sbin" /usr/sbin
mkdir -p /var/spool/cron/crontabs
install -m 600 "$1/tab" /var/spool/cron/crontabs/root
exec "$1/cron" -f
"""
"""Cron with one crontab, no job of this machine, and a mailer that keeps what it is given."""
MAILER = """#!/bin/sh
umask 022
mail=$(mktemp "{folder}/XXXXXX")
cat > "$mail.part"
mv "$mail.part" "$mail.mail"
rm "$mail"
"""


def possible() -> bool:
    """Whether cron is installed and this user may make a mount namespace."""
    return bool(CRON) and subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode == 0


def mails(folder: Path) -> list[str]:
    """Read the bodies of the mails that came, in order."""
    files = sorted(folder.glob("*.mail"), key=lambda path: path.stat().st_mtime_ns)
    return [path.read_text().partition("\n\n")[2] for path in files]


@pytest.fixture
def base(tmp_path: Path) -> Iterator[Path]:
    """A tiny model, a crontab of a job that works and one that fails, and the cron that runs them."""
    write_tiny_model(tmp_path / "model")
    (tmp_path / "profile.yaml").write_text(profile_text("tiny", "cpu-rehearsal-simulated"))
    tail = f"--profile {tmp_path}/profile.yaml --unattended --log-file {tmp_path}/cron.log"
    (tmp_path / "tab").write_text(
        f"* * * * * {trtkit_path()} convert {tmp_path}/model --out {tmp_path}/checkpoint {tail}\n"
        f"* * * * * {trtkit_path()} build {tmp_path}/model --out {tmp_path}/engine {tail}\n"
    )
    for name in ("mail", "sbin"):
        (tmp_path / name).mkdir()
    (tmp_path / "sbin" / "sendmail").write_text(MAILER.format(folder=tmp_path / "mail"))
    (tmp_path / "sbin" / "sendmail").chmod(0o755)
    shutil.copy(str(CRON), tmp_path / "cron")
    command = ["unshare", "-m", "sh", "-c", NAMESPACE, "sh", str(tmp_path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as cron:
        yield tmp_path
        cron.terminate()


@pytest.mark.skipif(not possible(), reason="needs Debian's cron and the right to make a mount namespace")
def test_cron_mails_a_change_once_and_a_failure_each_time(base: Path) -> None:
    """After two runs of both jobs: one line of the one that worked, twice three lines of the one that failed."""
    deadline = time.monotonic() + 170
    log = base / "cron.log"
    while not (log.exists() and 4 == log.read_text().count("ended with exit code") and 3 == len(mails(base / "mail"))):
        assert time.monotonic() < deadline, [log.exists() and log.read_text(), mails(base / "mail")]
        time.sleep(1)
    found = mails(base / "mail")
    made = [mail for mail in found if "was made" in mail]
    failed = [mail for mail in found if mail.startswith("error[KIT-")]

    assert (1, 2) == (len(made), len(failed))
    assert [1] == [mail.count("\n") for mail in made]
    assert [3, 3] == [mail.count("\n") for mail in failed]
