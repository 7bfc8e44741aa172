"""Whatever somebody's files say, nothing is raised but a refusal, and no option is lost without a word."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.migrate.reading.test_inputs import CASES, INPUTS, expected
from trtllm_kit.errors import KitError
from trtllm_kit.migrate.found import Found
from trtllm_kit.migrate.reading.path import found

_OPTION = re.compile(r"(?<![\w$-])--[a-z][\w-]{2,}")
_DISTINCT = re.compile(r"(?<![\w$-])--[a-z]+[_-][\w-]{2,}")
"""Options that no other program has: a slip can make another program of what was one of ours."""
_PROGRAMS = {
    "trtllm-build": ("--max_batch_size 8", "--gemm_plugin=auto", "--fast_build", "--lora_target_modules attn_q attn_k"),
    "python3 convert_checkpoint.py": ("--tp_size $TP", "--dtype 'float16'", "--use_weight_only", "--smoothquant 0.5"),
    "python3 /app/quantize.py": ('--qformat "fp8"', "--calib_size ${N:-32}", "--tp_size {2}", "--quantize_lm_head"),
    "tritonserver": ("--model-repository=/r", "--http-port $PORT", "--log-verbose 1", "--load-model=$(ls)"),
    "launch_triton_server.py": ("--world_size `nproc`", "--force", "--model_repo /r", "--grpc_port=1"),
    "trtllm-serve /e": ("--port 9", "--tp_size $((TP*2))", "--trust_remote_code", "--nosuchoption x y"),
}
_LINE = st.sampled_from(sorted(_PROGRAMS)).flatmap(
    lambda program: st.lists(st.sampled_from(_PROGRAMS[program]), min_size=1, max_size=6).flatmap(
        lambda words: st.sampled_from((" ", " \\\n  ", "  ")).map(lambda gap: gap.join([program, *words]))
    )
)
_SCRIPT = st.lists(
    st.one_of(
        _LINE,
        _LINE.map(lambda line: f"for TP in 1 2; do {line}; done"),
        _LINE.map(lambda line: f"if [ $X ]; then {line}; fi"),
        _LINE.map(lambda line: f"mpirun -n 2 --allow-run-as-root {line}"),
        _LINE.map(lambda line: f"docker run --rm --gpus all image:1 {line}"),
        _LINE.map(lambda line: f"build() {{ {line}; }}"),
        _LINE.map(lambda line: f"({line}) &"),
        st.sampled_from(("TP=2", "export PORT=8000", "N=$(nproc)", "cd /x")),
    ),
    min_size=1,
    max_size=5,
).map("\n".join)


def read(text: str, name: str = "input.sh") -> Found | None:
    """Return what is found in a text; None where the kit refuses it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        try:
            return found(path)
        except KitError:
            return None


def lost(text: str, answer: Found | None, options: re.Pattern[str] = _OPTION) -> set[str]:
    """Return the options of a text that neither begin a setting's name nor stand in what could not be read.

    A beginning is enough, since a shell drops quotes and backslashes within a word, and a builder takes beginnings.
    """
    names = [one.name for one in answer.settings] if answer else []
    told = " ".join(one.text for one in answer.unread) if answer else ""
    plain = {word: word[2:].replace("-", "_") for word in options.findall(text)}
    return {word for word, name in plain.items() if word not in told and not any(one.startswith(name) for one in names)}


@settings(deadline=None, derandomize=True, database=None, max_examples=100)
@given(_SCRIPT)
def test_every_option_of_a_script_is_accounted_for(text: str) -> None:
    """Each option of each command is a setting, or told of as one that cannot be read."""
    assert set() == lost(text, read(text))


@settings(deadline=None, derandomize=True, database=None, max_examples=200)
@given(_SCRIPT, st.data())
def test_no_slip_of_the_finger_loses_an_option(text: str, data: st.DataObject) -> None:
    """A letter or mark put in, taken out or doubled anywhere loses no option that is still one."""
    at = data.draw(st.integers(0, len(text)))
    slip = data.draw(st.sampled_from((*"'\"`$(){}<>|&;\\\n=-x ", "$(", "${", "<<", "&&", "in", " do ", "--max")))
    changed = data.draw(st.sampled_from((text[:at] + slip + text[at:], text[:at] + text[at + 1 :])))
    assert set() == lost(changed, read(changed), _DISTINCT)


@settings(deadline=None, derandomize=True, database=None, max_examples=60)
@given(_SCRIPT, st.randoms())
def test_lines_in_any_order_lose_nothing(text: str, random: object) -> None:
    """Lines that change places, so that continued commands are torn apart, lose no option."""
    lines = text.split("\n")
    random.shuffle(lines)  # type: ignore[attr-defined]
    changed = "\n".join(lines)
    assert set() == lost(changed, read(changed), _DISTINCT)


@settings(deadline=None, derandomize=True, database=None, max_examples=60)
@given(_SCRIPT)
def test_every_option_of_a_dockerfile_is_accounted_for(text: str) -> None:
    """The same commands behind RUN, alone or joined, and in a text that the file holds."""
    joined = text.replace("\\\n", "\0").replace("\n", " && ").replace("\0", "\\\n")
    for file in (f"FROM x\nRUN {joined}\n", f"FROM x\nRUN <<EOF\n{text}\nEOF\n", f"FROM x\nCMD {joined}\n"):
        assert set() == lost(file, read(file, "Dockerfile"))


@settings(deadline=None, derandomize=True, database=None, max_examples=60)
@given(_SCRIPT)
def test_every_option_of_a_manifest_is_accounted_for(text: str) -> None:
    """The same commands as the text of a pod's shell, and as a file of a ConfigMap."""
    containers = [{"name": "a", "image": "tritonserver", "command": ["bash", "-c"], "args": [text]}]
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": containers}}
    files = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"run.sh": text}}
    for document in (pod, files):
        assert set() == lost(text, read(yaml.safe_dump(document), "pod.yaml"))


_FILES = [
    *sorted((case, expected(case)["path"]) for case in CASES if (INPUTS / case / expected(case)["path"]).is_file()),
    ("30-engine-0.16", "engine/config.json"),
    ("32-repository", "repo/tensorrt_llm/config.pbtxt"),
]


@pytest.mark.parametrize(("case", "file"), _FILES)
@settings(deadline=None, derandomize=True, database=None, max_examples=15)
@given(data=st.data())
def test_no_change_of_an_input_breaks_the_reading(case: str, file: str, data: st.DataObject) -> None:
    """An input cut, doubled, torn or with foreign bytes in it is read or refused: no other error leaves."""
    text = (INPUTS / case / file).read_text(encoding="utf-8")
    begin = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(begin, len(text)))
    piece = data.draw(st.one_of(st.just(""), st.just(text[begin:end] * 2), st.text(max_size=8), st.just("\ud800")))
    answer = read(text[:begin] + piece + text[end:], Path(file).name)
    assert answer is None or all(one.where.line >= 0 and one.why for one in answer.unread)
