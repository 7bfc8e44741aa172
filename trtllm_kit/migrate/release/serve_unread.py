"""What of a script was not read, though it may be for ``trtllm-serve``: told with its line, since it stays (pure)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator

from trtllm_kit.migrate.release.serve_words import Document, Given

_NAMED = re.compile(r"\btrtllm-serve\b|\btensorrt_llm\.commands\.serve\b")
_SPEAKS_OF_IT = re.compile(r"\s*(?:#|(?:echo|printf|pkill|killall|pgrep|which|trap|command -v)\b)")
_EXPANSION = re.compile(r"[$`]")


def left_documents(documents: Collection[Document]) -> dict[int, str]:
    """Return by its line why a document that the script writes is not carried over."""
    pieces = {one.file for one in documents if one.is_piece}
    counts = Counter(one.file for one in documents)
    why = {}
    for one in documents:
        if one.at is None:
            why[one.line] = "it stands in a text that another shell reads otherwise"
        elif one.file in pieces:
            several = f"in {counts[one.file]} pieces" if counts[one.file] > 1 else "behind what the file holds already"
            why[one.line] = f"it is written {several}, and the whole of it is not known; put it into one"
        elif one.expands:
            why[one.line] = "the shell puts something in the place of what begins with $ in it"
    return why


def left_calls(text: str, calls: Collection[Given]) -> Iterator[str]:
    """Yield what was not looked at: calls in other words than a shell's own, and options that a variable holds."""
    for call in calls:
        hidden = [word for word in call.others if _EXPANSION.match(word)]
        if hidden:
            yield f"line {call.line}: {', '.join(hidden)} may hold options of {call.program}, and was not looked into"
    seen = {call.line for call in calls}
    for number, line in enumerate(text.splitlines(), start=1):
        if number not in seen and _NAMED.search(line) and not _SPEAKS_OF_IT.match(line):
            yield f"line {number} names trtllm-serve in a way that was not read, and stays: {line.strip()[:100]}"
