"""Small tokenizers of the kinds that models have, and our models around an engine over a stand-in for the stub."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from trtllm_kit.resources import triton_models

SOURCES = triton_models() / "inflight_batcher_llm"
for folder in (SOURCES / "shared", SOURCES / "tensorrt_llm_bls", triton_models() / "tensorrtllm"):
    if str(folder) not in sys.path:
        sys.path.append(str(folder))

import triton_python_backend_utils as pb_utils  # noqa: E402  # the stand-in, on the path by then

KINDS = ("llama", "qwen", "sentencepiece")
CORPUS = (
    "The quick brown fox jumps over the lazy dog. STOP here, or stop there; the end is near the end.",
    "Übergrößen naïve façade — 你好，世界 🙂 привет, мир! def main(argument): return argument + 1",
    "the cat sat on the mat and the mat sat on the cat, again and again and again\n\tindented lines",
)


def write_tokenizer(folder: Path, kind: str) -> Path:
    """Write a tokenizer of a kind, trained on the spot: byte-level with and without a first token, SentencePiece."""
    tokenizers = pytest.importorskip("tokenizers")
    folder.mkdir(parents=True, exist_ok=True)
    special = ["<unk>", "<s>", "</s>"]
    made = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<unk>", byte_fallback=kind == "sentencepiece"))
    more: dict[str, Any] = {}
    if kind == "sentencepiece":
        pre = tokenizers.pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
        steps = (("Replace", ("▁", " ")), ("ByteFallback", ()), ("Fuse", ()), ("Strip", (" ", 1, 0)))
        made.decoder = tokenizers.decoders.Sequence([getattr(tokenizers.decoders, name)(*args) for name, args in steps])
        special += [f"<0x{byte:02X}>" for byte in range(256)]
    else:
        pre = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = tokenizers.decoders.ByteLevel()
        more["initial_alphabet"] = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    if kind == "qwen":
        made.normalizer = tokenizers.normalizers.NFC()
    made.pre_tokenizer = pre
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=600, special_tokens=special, show_progress=False, **more)
    made.train_from_iterator([line for line in CORPUS if kind != "sentencepiece" or line.isascii()], trainer)
    if kind != "qwen":
        made.post_processor = tokenizers.processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    document = json.loads(made.to_str())
    for token in document["added_tokens"]:  # the pieces that are bytes are no special tokens
        token["special"] = not token["content"].startswith("<0x")
    (folder / "tokenizer.json").write_text(json.dumps(document))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>"}))
    return folder


def load_model(name: str, config: dict[str, Any]) -> Any:
    """Load one of our models as Triton does."""
    spec = importlib.util.spec_from_file_location(f"inflight_{name}", SOURCES / name / "model.py")
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.TritonPythonModel()
    model.initialize({"model_config": json.dumps(config)})
    return model


def config_of(parameters: dict[str, str], outputs: dict[str, str], inputs: Sequence[str] = ()) -> dict[str, Any]:
    """Return a model's configuration as Triton gives it to the model."""
    return {
        "parameters": {key: {"string_value": value} for key, value in parameters.items()},
        "input": [{"name": name} for name in inputs],
        "output": [{"name": name, "data_type": kind} for name, kind in outputs.items()],
    }


PREPARED = {
    "INPUT_ID": "TYPE_INT32", "REQUEST_INPUT_LEN": "TYPE_INT32", "DECODER_INPUT_ID": "TYPE_INT32",
    "REQUEST_DECODER_INPUT_LEN": "TYPE_INT32", "REQUEST_OUTPUT_LEN": "TYPE_INT32", "STOP_WORDS_IDS": "TYPE_INT32",
    "BAD_WORDS_IDS": "TYPE_INT32", "EMBEDDING_BIAS": "TYPE_FP32", "OUT_END_ID": "TYPE_INT32",
    "OUT_PAD_ID": "TYPE_INT32", "OUT_PROMPT_TABLE_EXTRA_IDS": "TYPE_UINT64",
}  # fmt: skip
BLS_INPUTS = (
    "text_input", "max_tokens", "stream", "stop_words", "bad_words", "exclude_input_in_output", "num_draft_tokens",
    "use_draft_logits", "prompt_table_extra_id", "beam_width", "top_k", "return_log_probs", "image_input",
)  # fmt: skip


class Models:
    """Our three models with one tokenizer, and an engine that says what it is told to say."""

    def __init__(self, tokenizer: Path, **bls: str) -> None:
        from tokenizer import Tokenizer

        self.tokenizer = Tokenizer(tokenizer)
        named = {"tokenizer_dir": str(tokenizer)}
        self.preprocessing = load_model("preprocessing", config_of(named, PREPARED))
        self.postprocessing = load_model("postprocessing", config_of(named, {"OUTPUT": "TYPE_STRING"}))
        outputs = {"text_output": "TYPE_STRING", "batch_index": "TYPE_INT32", "cum_log_probs": "TYPE_FP32"}
        self.bls = load_model("tensorrt_llm_bls", config_of(bls, outputs, BLS_INPUTS))
        self.chunk = 1
        self.answers: list[list[int]] = []
        self.asked: list[Any] = []
        self.stopped = 0
        pb_utils.InferenceRequest.models = {
            "preprocessing": lambda request: self.preprocessing.execute([request]),
            "postprocessing": lambda request: self.postprocessing.execute([request]),
            "tensorrt_llm": self._engine,
        }

    def says(self, text: str, *, chunk: int = 1) -> list[int]:
        """Let the engine answer with a text, so many tokens at a time; return its tokens."""
        self.chunk = chunk
        before = self.tokenizer.encode("x", special=False)
        ids = self.tokenizer.encode("x" + text, special=False)
        assert before == ids[: len(before)], "the text joins the letter before it"
        self.answers = [ids[len(before) :]]
        return self.answers[0]

    def ask(self, prompt: str = "the cat", tokens: int = 400, identity: str = "", **inputs: Any) -> Any:
        """Ask BLS and return the sender with its responses."""
        arrays = {name: np.array(value) for name, value in inputs.items()}
        arrays["text_input"] = np.array([[prompt.encode()]], dtype=object)
        arrays["max_tokens"] = np.array([[tokens]], dtype=np.int32)
        request = pb_utils.Request(identity, **arrays)
        self.bls.execute([request])
        request.sender.wait()
        return request.sender

    def texts(self, sender: Any) -> list[str]:
        """Return the text of every response."""
        return [one.outputs["text_output"].reshape(-1)[0].decode() for one in sender.responses]

    def _engine(self, request: Any) -> Iterator[Any]:
        if "stop" in request.inputs:
            self.stopped += 1
            return
        self.asked.append(request)
        streams = bool(request.inputs["streaming"].array.all())
        for row, answer in enumerate(self.answers):
            size = self.chunk if streams else max(1, len(answer))
            for start in range(0, len(answer), size):
                yield self._response(row, answer[start : start + size])

    def _response(self, row: int, ids: list[int]) -> Any:
        return pb_utils.InferenceResponse(
            [
                pb_utils.Tensor("output_ids", np.array([[ids]], dtype=np.int32)),
                pb_utils.Tensor("sequence_length", np.array([[len(ids)]], dtype=np.int32)),
                pb_utils.Tensor("batch_index", np.array([[row]], dtype=np.int32)),
            ]
        )


@pytest.fixture(scope="session", params=KINDS)
def tokenizer_folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with a tokenizer of every kind."""
    return write_tokenizer(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture
def models(tokenizer_folder: Path) -> Models:
    """Give our models with a tokenizer of every kind."""
    return Models(tokenizer_folder)


@pytest.fixture
def make_models(tokenizer_folder: Path) -> Callable[..., Models]:
    """Give a function that loads them with parameters of BLS."""
    return lambda **parameters: Models(tokenizer_folder, **parameters)
