"""What checks leave behind is bounded: files nobody uses go, and nothing else does."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.health.support import TARGET
from trtllm_kit.health.compiled import ASKS, keep_question, question_path, recall_question
from trtllm_kit.health.memory import NOTHING
from trtllm_kit.health.rules import Ruleset
from trtllm_kit.health.state_file import KEPT_SECONDS, MOST_QUESTIONS, keep, tidy


def leave(folder: Path, name: str, age_seconds: float) -> None:
    """Make a file that was last used so long ago."""
    (folder / name).write_text("{}")
    when = time.time() - age_seconds
    os.utime(folder / name, (when, when))


def test_what_no_check_has_used_for_a_month_goes(tmp_path: Path) -> None:
    """States, questions and partial files of long ago go; younger ones, and files of others, stay."""
    old, young = KEPT_SECONDS + 3600, KEPT_SECONDS - 3600
    gone = ["a" * 24 + ".json", f"question-{'b' * 24}.json", "c" * 24 + ".json.12.34.partial"]
    gone.append(f"question-{'d' * 24}.json.12.partial")
    others = ["notes.json", "a" * 25 + ".json", "question-x.json", "server.log"]
    for name in (*gone, *others):
        leave(tmp_path, name, old)
    leave(tmp_path, "e" * 24 + ".json", young)
    tidy(str(tmp_path))
    assert sorted([*others, "e" * 24 + ".json"]) == sorted(file.name for file in tmp_path.iterdir())


def test_the_questions_least_lately_used_go(tmp_path: Path) -> None:
    """Of more questions than are kept the oldest go; states are not counted."""
    for number in range(MOST_QUESTIONS + 2):
        leave(tmp_path, f"question-{number:024x}.json", 1000.0 - number)
    leave(tmp_path, "f" * 24 + ".json", 2000.0)
    tidy(str(tmp_path))
    left = {file.name for file in tmp_path.iterdir()}
    assert MOST_QUESTIONS + 1 == len(left)
    assert not {f"question-{number:024x}.json" for number in (0, 1)} & left


def test_a_question_that_is_asked_is_in_use(tmp_path: Path) -> None:
    """Asking the short way makes a question young again, so that cron's stays."""
    asked = dict.fromkeys(ASKS) | {"discover": None}
    keep_question(asked, str(tmp_path), [(TARGET, Ruleset(()))], [])
    path = question_path(asked, str(tmp_path))
    os.utime(path, (1.0, 1.0))
    assert [(TARGET, Ruleset(()))] == recall_question(asked, str(tmp_path))
    tidy(str(tmp_path))
    assert Path(path).is_file()


def test_a_state_that_cannot_be_put_in_place_leaves_no_partial_file(tmp_path: Path) -> None:
    """Where the file's place is taken by a folder the reason is told, and nothing is left beside it."""
    (tmp_path / "x.json" / "y").mkdir(parents=True)
    assert "Is a directory" in keep(str(tmp_path / "x.json"), NOTHING)
    assert ["x.json"] == [file.name for file in tmp_path.iterdir()]


def test_a_folder_that_is_not_there_is_tidy(tmp_path: Path) -> None:
    """Nothing is raised, and nothing made."""
    tidy(str(tmp_path / "none"))
    assert [] == list(tmp_path.iterdir())
