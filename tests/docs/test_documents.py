"""The documents: links lead somewhere, generated pages are current, and the map of the house shows the house."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
_LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_relative_link_leads_to_a_file(document: Path) -> None:
    """A reader never meets a page that is not there."""
    missing = [link for link in _LINK.findall(document.read_text("utf-8")) if not (document.parent / link).exists()]

    assert missing == []


def test_generated_pages_are_what_the_source_says() -> None:
    """``make docs`` would change nothing."""
    command = [sys.executable, str(ROOT / "docs" / "generate.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (0, "") == (done.returncode, done.stdout), done.stderr


def test_every_module_the_map_names_exists_and_every_room_is_on_it() -> None:
    """ARCHITECTURE.md and the tree agree on rooms and on the modules it names."""
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    drawing = text.split("```")[1]
    package = Path(__import__("trtllm_kit").__file__).parent
    rooms = {path.name for path in package.iterdir() if (path / "__init__.py").is_file()}

    assert rooms <= set(re.findall(r"^  (\w+)/", drawing, re.MULTILINE))
    for room, line in re.findall(r"^  (\w+)/?\s+(.*)$", drawing, re.MULTILINE):
        for module in re.findall(r"\b(\w+\.py)\b", line):
            assert (package / room / module).is_file() or (package / module).is_file(), module


def test_every_page_is_linked_from_the_front_page_of_the_documents() -> None:
    """A page that nothing leads to is read by nobody."""
    front = ROOT / "docs" / "README.md"
    linked = {(front.parent / link).resolve() for link in _LINK.findall(front.read_text("utf-8"))}

    assert [] == sorted(page.name for page in set((ROOT / "docs").rglob("*.md")) - linked - {front})


def test_every_module_of_facts_stands_in_the_import_contract() -> None:
    """Of spec only load and hub may come near the machine; a new module is held to that from its first day."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    pure = next(one for one in contracts if one["name"] == "decisions never touch the machine")["source_modules"]
    modules = {path.stem for path in (ROOT / "trtllm_kit" / "spec").glob("*.py")} - {"__init__"}

    assert {"load", "hub"} == modules - {name.rpartition(".")[2] for name in pure if ".spec." in name}


def test_a_sentence_of_markdown_never_names_a_machine_of_ours() -> None:
    """No absolute path of a developer's machine gets into a document."""
    for document in DOCUMENTS:
        assert not re.search(r"/(?:root|work|home)/", document.read_text("utf-8")), document
