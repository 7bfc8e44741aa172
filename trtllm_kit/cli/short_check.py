"""``check-health`` without the command line: for a question that was asked before, and compiled."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

UNKNOWN = 3


def short_check(words: Sequence[str]) -> int | None:
    """Check, print and return the exit code; None when the long way has to judge, and nothing was done yet."""
    from trtllm_kit.cli.check_options import read_words

    asked = read_words(words)
    if asked is None:
        return None
    from trtllm_kit.health.compiled import recall_question
    from trtllm_kit.health.state_file import state_folder

    questions = recall_question(asked, asked["state"] or state_folder(os.environ))
    if questions is None:
        return None
    from trtllm_kit.cli.check_run import answer
    from trtllm_kit.cli.streams import holds_every_letter, say, to_stderr
    from trtllm_kit.errors import StorageError, UsageError

    try:
        result = answer(asked, questions)
    except UsageError:
        return None
    text = result.as_json(ascii_only=not holds_every_letter(sys.stdout)) if asked["json"] else result.text()
    try:
        say(text)
    except StorageError as error:  # the check is done, and an answer that nobody can read is none
        to_stderr(str(error))
        return UNKNOWN
    return result.exit_code
