"""What the product never does, read off its source: no pickle, no code of others, no shell."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(path for folder in ("trtllm_kit", "triton_models") for path in (ROOT / folder).rglob("*.py"))
MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
CALLS = {"eval", "exec", "compile", "__import__", "os.system", "os.popen", "torch.load", "numpy.load", "np.load"} | {
    "yaml.load", "yaml.unsafe_load", "yaml.full_load", "subprocess.getoutput", "subprocess.getstatusoutput"
}  # fmt: skip
"""``yaml.load`` runs constructors of the document unless it is given a safe loader."""
PIPE = ROOT / "trtllm_kit" / "health" / "sources" / "forks.py"
"""Reads a pickle, of a copy of itself, through a pipe that nobody else ever held."""
KEYWORDS = {"shell", "trust_remote_code", "allow_pickle"}


def offences(source: str) -> Iterator[str]:
    """Yield what a source does that none of ours may, with its line."""
    tree = ast.parse(source)
    safe = {name for node in tree.body for name in _safe_names(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names]
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            yield from (f"{node.lineno}: import {name}" for name in names if name.partition(".")[0] in MODULES)
        elif isinstance(node, ast.Call):
            yield from _in_call(node, safe)


def _in_call(node: ast.Call, safe: set[str]) -> Iterator[str]:
    called = ast.unparse(node.func)
    if called in CALLS and not (called == "yaml.load" and _safe_loader(node, safe)):
        yield f"{node.lineno}: {called}()"
    for keyword in node.keywords:
        if keyword.arg in KEYWORDS and not _is_false(keyword.value):
            yield f"{node.lineno}: {keyword.arg}={ast.unparse(keyword.value)}"


def _is_false(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is False


def _safe_names(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement of the module gives to a safe loader."""
    if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None and "Safe" in ast.unparse(node.value):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (ast.unparse(target) for target in targets)


def _safe_loader(call: ast.Call, safe: set[str]) -> bool:
    given = [*call.args[1:], *(keyword.value for keyword in call.keywords if keyword.arg == "Loader")]
    return any("Safe" in ast.unparse(loader) or ast.unparse(loader) in safe for loader in given)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_module_reads_pickles_runs_others_code_or_builds_a_shell_line(path: Path) -> None:
    """Nothing that a model, a profile or a name could turn into a program."""
    allowed = ": import pickle" if path == PIPE else None
    assert [] == [one for one in offences(path.read_text("utf-8")) if allowed is None or allowed not in one]


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "import joblib.externals",
        "torch.load('x')",
        "eval('1')",
        "exec(text)",
        "os.system('ls')",
        "subprocess.run('ls', shell=True)",
        "subprocess.run('ls', shell=flag)",
        "AutoModel.from_pretrained(x, trust_remote_code=True)",
        "np.load(path, allow_pickle=True)",
        "yaml.load(text, Loader=yaml.Loader)",
    ],
)
def test_the_guard_sees_each_offence(source: str) -> None:
    """A guard that sees nothing would let all of them pass."""
    assert 1 <= len(list(offences(source)))


@pytest.mark.parametrize(
    "source",
    [
        "yaml.load(text, Loader=yaml.SafeLoader)",
        "subprocess.run(argv, shell=False)",
        "model.eval()",
        "_LOADER: Any = getattr(yaml, 'CSafeLoader', yaml.SafeLoader)\nyaml.load(text, Loader=_LOADER)",
    ],
)
def test_the_guard_lets_the_safe_form_pass(source: str) -> None:
    """What is safe is not called an offence."""
    assert [] == list(offences(source))
