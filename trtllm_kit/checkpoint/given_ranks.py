"""An engine's checkpoint of any maker, opened and held against its own ``config.json``: nothing but headers is read."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from trtllm_kit.artifact import MANIFEST, read_manifest, require_intact
from trtllm_kit.checkpoint.config_files import CONFIG, COPIED
from trtllm_kit.checkpoint.header import read_header
from trtllm_kit.checkpoint.names import LAYER_QUANT_CONFIG
from trtllm_kit.checkpoint.plan_file import CONVERSION_FILE, read_conversion
from trtllm_kit.checkpoint.problems import raise_all
from trtllm_kit.checkpoint.rank_described import Described, completed, read_described
from trtllm_kit.checkpoint.rank_files import RankFiles
from trtllm_kit.checkpoint.rank_split import World
from trtllm_kit.checkpoint.rank_tensors import HEAD
from trtllm_kit.checkpoint.unshard import Whole, unshard
from trtllm_kit.checkpoint.unsharded import AGAIN, Joined, Unsharded, names_of
from trtllm_kit.errors import KitError, ManifestError, ModelConfigError, TensorError, WeightFileError, storage_error
from trtllm_kit.files import UnfitFile, read_file
from trtllm_kit.spec.hf_config import read_model_spec
from trtllm_kit.spec.load import parse_config, read_config
from trtllm_kit.spec.model import ModelSpec
from trtllm_kit.spec.tensors import model_tensors
from trtllm_kit.units import counted
from trtllm_kit.upstream.trtllm_checkpoint import foreign_part, is_drafting_head, is_remade

_RANK_FILE = re.compile(r"rank(\d+)\.safetensors")
_SHOWN = 3


@dataclass(frozen=True)
class Given:
    """What a folder of rank files holds."""

    folder: Path
    small: Mapping[str, bytes]
    """Its configuration, and the tokenizer that lies beside it where trtkit made it."""
    described: Described
    made: ModelSpec | None
    """The model that was converted, where trtkit did it."""
    model: ModelSpec
    """The model as it is read: with the vocabulary of the files, and a head of its own where there is one."""
    ranks: RankFiles
    whole: Whole
    heads: tuple[str, ...]
    """Tensors of drafting heads, of all ranks."""
    remade: tuple[str, ...]
    """Tensors that loaders make anew."""

    @property
    def has_head(self) -> bool:
        """Whether the files hold an output head."""
        return self.model.head_name in self.whole.joined

    @cached_property
    def everything(self) -> Unsharded:
        """All tensors under their Hugging Face names, the cache's scales among them."""
        return self.view({**self.whole.joined, **self.whole.cache})

    def view(self, joined: Mapping[str, Joined]) -> Unsharded:
        """Return some of them, or some in another length."""
        files = tuple(folder.files[0] for folder in self.ranks.files.values())
        return Unsharded(self.folder, files, {name: one.stored for name, one in joined.items()}, joined=joined)


def open_given(folder: Path) -> Given:
    """Open a folder; raises everything that is wrong with it before a weight is read.

    Raises ``ModelNotFound``, ``ModelConfigError``, ``UnknownArchitecture``, ``WeightFileError``, ``TensorError``,
    ``FormatNotMade``, ``ManifestError``, ``StorageError``.
    """
    small = read_small(folder, own=True)
    where = str(folder / CONFIG)
    document = parse_config(small[CONFIG], folder / CONFIG)
    _require_ranks(folder, document, where)
    _require_intact(folder)
    described = read_described(document, where, _names_in(folder, 0))
    _require_files(folder, described)
    apart = HEAD in _names_in(folder, described.split.shares - 1) or not described.shares_embedding
    config = completed(described.config, vocab=described.vocab, tied=not apart, told={}, made=None)
    model = read_model_spec(config, where)
    shapes = {name: fact.shape for fact in model_tensors(model) for name in fact.names()}
    world = World(model, described.split, shapes, embedding=described.embedding, stores_head=apart)
    ranks = RankFiles(folder, world, AGAIN)
    raise_all(list(_foreign(ranks)), folder)
    whole = unshard(ranks, model)
    heads, remade = _left_over(ranks, whole, folder)
    made = read_conversion(folder).model if os.path.lexists(folder / CONVERSION_FILE) else None
    return Given(folder, small, described, made, model, ranks, whole, heads, remade)


def read_small(folder: Path, *, own: bool) -> dict[str, bytes]:
    """Return the small files of a folder that are copied, by name, and with ``own`` what describes its ranks."""
    found = {CONFIG: read_config(folder)} if own else {}
    for name in (*COPIED, *((LAYER_QUANT_CONFIG, CONVERSION_FILE) if own else ())):
        try:
            found[name] = read_file(folder / name)
        except FileNotFoundError:
            continue
        except UnfitFile as error:
            raise ModelConfigError(
                f"{folder / name} cannot be read", why=error.unfit, hint=f"put the model's own {name} there"
            ) from None
        except OSError as error:
            raise storage_error(error, "reading the checkpoint") from None
    return found


def _require_intact(folder: Path) -> None:
    """Raise ``ManifestError`` for files that trtkit wrote and somebody replaced: their record speaks of others."""
    if not os.path.lexists(folder / MANIFEST):
        return
    try:
        require_intact(folder, read_manifest(folder, "checkpoint"))
    except ManifestError as error:
        hint = f"put the files back as they were made; where the change is meant, remove {folder / MANIFEST}"
        raise ManifestError(error.what, why=error.why, hint=hint) from None


def _require_ranks(folder: Path, document: Mapping[str, object], where: str) -> None:
    """Refuse a folder of another kind by what it is."""
    if "architecture" in document:
        return
    kind, way = "no checkpoint of trtllm-build", "name the folder that convert_checkpoint.py or quantize.py wrote"
    if "architectures" in document:
        kind, way = "a Hugging Face model already", "use it as it is: trtkit plan MODEL --profile PROFILE"
    elif "pretrained_config" in document:
        kind, way = "an engine, whose weights no longer lie in a file of tensors", f"{way}, which it was built from"
    raise ModelConfigError(f"{folder} is {kind}", why=f"{where} has no key architecture", hint=way)


def _require_files(folder: Path, described: Described) -> None:
    """Raise ``WeightFileError`` with the rank files that are missing, or of no rank."""
    split = described.split
    wanted = {f"rank{number}.safetensors" for number in range(split.shares)}
    found = {path.name for path in folder.iterdir() if _RANK_FILE.fullmatch(path.name)}
    copies = split.world_size if split.pipeline == 1 else 0  # context ranks, where a maker gave each a file
    context = {f"rank{number}.safetensors" for number in range(copies)}
    for names, what in ((wanted - found, "missing"), (found - wanted - context, "of no rank of its mapping")):
        if names:
            shown = ", ".join(sorted(names, key=_number)[:_SHOWN]) + (" ..." if len(names) > _SHOWN else "")
            raise WeightFileError(
                f"{counted(len(names), 'rank file')} of {folder} {'is' if len(names) == 1 else 'are'} {what}: {shown}",
                why=f"tp_size {split.tensor} x pp_size {split.pipeline} make {split.shares} files, {len(found)} are "
                "there",
                hint=AGAIN,
            )


def _number(name: str) -> int:
    return int(name.removeprefix("rank").removesuffix(".safetensors"))


def _names_in(folder: Path, number: int) -> Collection[str]:
    """Return the names of a rank's tensors; raises ``WeightFileError`` for a file that is missing or broken."""
    path = folder / f"rank{number}.safetensors"
    if not path.exists():
        raise WeightFileError(f"{path} is missing", why="a checkpoint has one file a rank, from 0 on", hint=AGAIN)
    return read_header(path).tensors.keys()


def _left_over(ranks: RankFiles, whole: Whole, folder: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return tensors of drafting heads and those that loaders make anew; raises ``TensorError`` for all others."""
    taken = {*names_of(whole.joined), *names_of(whole.cache)}
    spare = [(file, name) for file, held in ranks.files.items() for name in held.tensors if (file, name) not in taken]
    heads = tuple(dict.fromkeys(name for _, name in spare if is_drafting_head(name)))
    remade = tuple(dict.fromkeys(name for _, name in spare if is_remade(name) or _is_merged_cache(name, whole)))
    unknown = [(file, name) for file, name in spare if name not in heads and name not in remade]
    if unknown:
        shown = ", ".join(f"{name} of {file}" for file, name in unknown[:_SHOWN]) + (" ..." * (len(unknown) > _SHOWN))
        raise TensorError(
            f"{len(unknown)} tensors of {folder} have no place in the model: {shown}",
            why="leaving out weights or scales that it was made with changes what it says",
            hint="compare config.json with the command that made the checkpoint",
        )
    return heads, remade


def _is_merged_cache(name: str, whole: Whole) -> bool:
    """Whether a tensor is the larger of two scales of the KV cache that are both there."""
    return name.endswith(".kv_cache_scaling_factor") and bool(whole.cache)


def _foreign(ranks: RankFiles) -> Iterator[KitError]:
    """Yield one error for each kind of codes that only a kernel or a converter of upstream's reads."""
    seen: dict[str, tuple[str, str]] = {}
    for file, held in ranks.files.items():
        for name in held.tensors:
            maker = foreign_part(name)
            weight = held.tensors.get(f"{name.rpartition('.')[0]}.weight")
            rowwise = weight is not None and weight.dtype == "F8_E4M3"
            if maker is not None and not rowwise:
                seen.setdefault(maker, (file, name))
    for maker, (file, name) in seen.items():
        yield TensorError(
            f"{name} of {file} is of codes that cannot be undone",
            why=f"it is what {maker}",
            hint="migrate from the 16-bit weights, or from a checkpoint that NVIDIA ModelOpt (quantize.py) wrote",
        )
