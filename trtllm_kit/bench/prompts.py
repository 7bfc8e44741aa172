"""Prompts of a wanted number of tokens, made here: words that are one token each in the usual vocabularies.

Nothing is downloaded. Equal segments of two requests are equal texts at the same place, so that a server which keeps
blocks of the cache finds them. With a tokenizer the count is exact; without one it is the number of words.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Protocol

from trtllm_kit.bench.load import Load
from trtllm_kit.errors import MissingExtra, ModelNotFound
from trtllm_kit.estimate.workload import Request

_TEXT = (
    "the and for that with this from have they will one all would there their what out about who get which when make "
    "can like time just him know take people into year your good some could them see other than then now look only "
    "come its over think also back after use two how our work first well way even new want because any these give "
    "day most us find here thing many right still long great same last world own place part house under small large "
    "food water light point story face open city white close night black short better best power hand high body side"
)
WORDS = tuple(_TEXT.split())
"""Each with a blank in front is one token of the vocabularies of Llama, Qwen, Mistral, DeepSeek and GPT."""
_TRIES = 8


class Tokenizer(Protocol):
    """What counts tokens."""

    def count(self, text: str) -> int:
        """Return how many tokens a text is, without those that a template adds."""


class FileTokenizer:
    """The tokenizer of a model's folder."""

    def __init__(self, path: Path) -> None:
        """Read ``tokenizer.json``, or the one in a folder; raises ``MissingExtra`` or ``ModelNotFound``."""
        try:
            from tokenizers import Tokenizer as Fast
        except ImportError:
            raise MissingExtra(
                "the Python package tokenizers is not installed",
                why="exact counts of tokens need the model's tokenizer",
                hint="pip install tokenizers, or leave --tokenizer out",
            ) from None
        file = path / "tokenizer.json" if path.is_dir() else path
        try:
            self._fast = Fast.from_file(str(file))
        except Exception as error:  # noqa: BLE001  # the package raises this very class
            raise ModelNotFound(
                f"no tokenizer in {path}", why=str(error), hint="name a folder that holds tokenizer.json"
            ) from None

    def count(self, text: str) -> int:
        """Return how many tokens a text is, without those that a template adds."""
        return len(self.ids(text))

    def ids(self, text: str) -> list[int]:
        """Return the tokens of a text, without those that a template adds."""
        return list(self._fast.encode(text, add_special_tokens=False).ids)


class Prompts:
    """Makes the prompts of a load, each the same whenever it is made."""

    def __init__(self, load: Load, tokenizer: Tokenizer | None = None) -> None:
        """Take the load, and what counts tokens."""
        self._load, self._tokenizer = load, tokenizer
        single = WORDS if tokenizer is None else tuple(word for word in WORDS if tokenizer.count(f" {word}") == 1)
        self._words = single or WORDS
        self._texts: dict[tuple[int, int], str] = {}
        self._answers: dict[int, str] = {}

    @property
    def exact(self) -> bool:
        """Whether a tokenizer counts."""
        return self._tokenizer is not None

    def text(self, number: int) -> str:
        """Return the prompt of a request."""
        if self._load.texts:
            return self._load.texts[number % len(self._load.texts)]
        request = self._load.request(number)
        begun = "".join(self._segment(segment.key, segment.tokens) for segment in request.shared)
        own = request.prompt - sum(segment.tokens for segment in request.shared)
        if self._load.workload.turns > 1:
            return begun  # each turn's text is a segment of those after it, and the answers between are real ones
        return self._fitted(begun, f"{self._load.workload.seed} {number}", own, request)

    def answered(self, number: int, text: str) -> None:
        """Take the answer to a request: later turns repeat it."""
        key = self._load.request(number).answer_key
        if key and self._load.workload.turns > 1:
            self._answers[key] = f"\n{text}\n"

    def tokens(self, text: str) -> int:
        """Return how many tokens a text is, or words where nothing counts tokens."""
        return len(text.split()) if self._tokenizer is None else self._tokenizer.count(text)

    def _segment(self, key: int, tokens: int) -> str:
        if key in self._answers:
            return self._answers[key]
        made = self._texts.get((key, tokens))
        if made is None:
            made = self._fitted("", f"{self._load.workload.seed} segment {key}", tokens, None)
            self._texts[key, tokens] = made
        return made

    def _fitted(self, begun: str, seed: str, tokens: int, request: Request | None) -> str:
        """Return a text with so many more tokens behind it, exactly where a tokenizer tells."""
        random = Random(seed)  # noqa: S311  # variety, not secrets
        words = random.choices(self._words, k=tokens)
        wanted = tokens if request is None else request.prompt
        if self._tokenizer is None:
            return begun + "".join(f" {word}" for word in words)
        for _ in range(_TRIES):
            text = begun + "".join(f" {word}" for word in words)
            over = self._tokenizer.count(text) - wanted
            if not over or (over > 0 and len(words) <= over):
                return text
            words = words[:-over] if over > 0 else words + random.choices(self._words, k=-over)
        return begun + "".join(f" {word}" for word in words)
