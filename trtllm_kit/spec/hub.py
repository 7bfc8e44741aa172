"""A model by name: a local folder, or a hub id fetched through huggingface-hub. Touches the network."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import Any

from trtllm_kit.errors import CannotDo, HubUnavailable, MissingExtra, ModelNotFound, storage_error
from trtllm_kit.files import NOTHING, what_is
from trtllm_kit.progress import Progress, Silent

FILES = (
    "config.json",
    "generation_config.json",
    "hf_quant_config.json",
    "*.safetensors",
    "model.safetensors.index.json",
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template*",
    "vocab.json",
    "merges.txt",
)
"""What the kit reads of a model; other formats of the same weights stay on the hub."""
SKIPPED = ("*/*", "consolidated*")
"""Sub-folders (``original/``, ``onnx/``) and Mistral's second copy of its weights."""

_HUB_ID = r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}"


def resolve_model(text: str, progress: Progress) -> Path:
    """Return the folder of a model: ``text`` itself, or the downloaded snapshot of the hub id ``org/name``.

    Raises ``ModelNotFound`` for what is neither, ``MissingExtra`` without huggingface-hub, ``HubUnavailable`` when the
    hub cannot be reached or does not give that model, ``StorageError`` when the disk stands in the way.
    """
    try:
        folder = Path(text).expanduser()
        if folder.is_dir():
            return folder
        found = what_is(folder)
    except OSError as error:
        raise storage_error(error, "reading the model") from error
    except RuntimeError:  # there is no user of that name
        found = NOTHING
    if found == NOTHING and re.fullmatch(_HUB_ID, text):
        return _download(text, progress)
    absent = "there is no folder of that name, and a hub id has the form org/name"
    raise ModelNotFound(
        f"no model at {text}",
        why=absent if found == NOTHING else f"that is {found or 'a file'}",
        hint="name the folder that holds the model's config.json",
    )


def _download(hub_id: str, progress: Progress) -> Path:
    hub, errors = _huggingface_hub(hub_id)
    wanted = {"repo_id": hub_id, "allow_patterns": list(FILES), "ignore_patterns": list(SKIPPED)}
    try:
        progress.start(f"downloading {hub_id}", _bytes_to_fetch(hub, wanted), "bytes")
        try:
            return Path(hub.snapshot_download(**wanted, tqdm_class=_bar_class(progress)))
        finally:
            progress.finish()
    except (OSError, ValueError, errors.HTTPError, errors.EntryNotFoundError) as error:
        raise _explained(hub_id, error, errors) from error


def _huggingface_hub(hub_id: str) -> tuple[ModuleType, ModuleType]:
    """Return huggingface-hub and its errors; an optional extra."""
    try:
        return import_module("huggingface_hub"), import_module("huggingface_hub.errors")
    except ImportError:
        raise MissingExtra(
            f"{hub_id} is not a local folder, and downloading it needs huggingface-hub",
            why="the package huggingface_hub is not installed",
            hint="pip install 'trtllm-kit[hub]', or download the model elsewhere and name its folder",
        ) from None


def _bytes_to_fetch(hub: ModuleType, wanted: dict[str, Any]) -> float:
    """Return the bytes not yet in the cache; 0 when the hub cannot be asked, which the download then explains."""
    try:
        files = hub.snapshot_download(**wanted, dry_run=True, tqdm_class=_bar_class(Silent()))
    except OSError:
        return 0.0
    return float(sum(file.file_size for file in files if file.will_download))


def _bar_class(progress: Progress) -> type:
    """Make a class that huggingface-hub takes for its progress bar and that tells ``progress`` instead of drawing."""
    tqdm: Any = import_module("tqdm.std").tqdm
    lock = Lock()
    told = 0.0

    class Bar(tqdm):  # type: ignore[misc]
        """Counts bytes; of several bars over the same bytes the farthest is told."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            options.pop("name", None)
            super().__init__(*arguments, **options | {"disable": True})
            self.counts_bytes = options.get("unit") == "B"
            self.done = float(options.get("initial") or 0)

        def update(self, amount: float | None = 1) -> bool | None:
            nonlocal told
            if self.counts_bytes:
                with lock:
                    self.done += amount or 0
                    fresh, told = max(self.done - told, 0.0), max(self.done, told)
                    progress.advance(fresh)
            return None

    return Bar


def _explained(hub_id: str, error: Exception, errors: ModuleType) -> CannotDo:
    """Say what kept the model from being fetched."""
    hint = "download it on a machine that can, and name the folder"
    if isinstance(error, errors.GatedRepoError):
        why = "the hub gives it only to accounts that accepted its licence"
        hint = f"accept it there and run `hf auth login`, or {hint}"
    elif isinstance(error, errors.RepositoryNotFoundError):
        why = "the hub has no such model, or hides it from this account; and there is no local folder of that name"
        hint = "check the spelling; for a private model run `hf auth login`"
    elif isinstance(error, errors.HTTPError | errors.EntryNotFoundError | ConnectionError):
        why = f"the hub failed ({_first_cause(error)}), and its cache here holds no whole copy"
    elif isinstance(error, OSError):
        return storage_error(error, f"downloading {hub_id}")
    else:
        why = f"huggingface-hub says: {str(error).partition(chr(10))[0]}"
    return HubUnavailable(f"cannot fetch {hub_id} from the hub", why=why, hint=hint)


def _first_cause(error: BaseException) -> str:
    """Say in one line what began a chain of errors."""
    while (earlier := error.__cause__ or error.__context__) is not None:
        error = earlier
    return f"{type(error).__name__}: {error}".partition("\n")[0]
