"""What a setting is read together with, and whose word it is (pure)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from trtllm_kit.migrate.found import Found, Reader, Setting
from trtllm_kit.upstream.engine_settings import is_named, served_models


@dataclass(frozen=True)
class Around:
    """What a setting is read together with."""

    found: Found
    to: str
    """The release that will serve."""
    capability: int = 0
    """Compute capability of the GPU that will serve, times ten; 0 where that is not known, or no GPU."""

    @cached_property
    def of_the_road(self) -> frozenset[str]:
        """Models of the repository that belong to an engine, by name, backend or parameters; the rest is one's own."""
        return frozenset(one.model for one in self.found.settings if _is_of_the_road(one))

    def kind(self, setting: Setting) -> tuple[str, str]:
        """Return whose word a setting is, as the table of meanings has it, and its name there."""
        kind, name = setting_kind(setting)
        model = str(setting.value) if name == _STEP else setting.model
        read = setting.reader in (Reader.FIELD, Reader.PARAMETER)
        return ("own" if read and model and model not in self.of_the_road else kind), name

    def value(self, name: str, *readers: Reader) -> object:
        """Return the last value of a setting of any of the readers; None without one."""
        last: object = None
        for one in self.found.settings:
            if one.reader in readers and one.name == name and one.value is not None:
                last = one.value
        return last

    def named(self, name: str) -> object:
        """Return the last value of a setting by the last part of its name, whoever reads it; None without one."""
        last: object = None
        for one in self.found.settings:
            if one.name.rpartition(".")[2] == name and one.value is not None:
                last = one.value
        return last


_STEP = "ensemble_scheduling.step"


def _is_of_the_road(setting: Setting) -> bool:
    if setting.model in served_models():
        return True
    if setting.reader is Reader.PARAMETER:
        return is_named("parameter", setting.name)
    said = (setting.name, setting.value)
    return setting.reader is Reader.FIELD and said in (("backend", "tensorrtllm"), ("platform", "ensemble"))


def setting_kind(setting: Setting) -> tuple[str, str]:
    """Return whose word a setting is, as the table of meanings has it, and its name there."""
    name = re.sub(r"\[\d*\]", "", setting.name)
    name = re.sub(r"\.\d+(?=\.|$)", "", name)
    if setting.reader is Reader.ENGINE:
        for prefix, kind in _SECTIONS:
            if name.startswith(prefix):
                return kind, name.removeprefix(prefix)
        return "engine", name
    return _KINDS[setting.reader], name


_SECTIONS = (
    ("build_config.plugin_config.", "build"),
    ("build_config.", "build"),
    ("plugin_config.", "build"),
    ("pretrained_config.", "checkpoint"),
)
_KINDS = {
    Reader.BUILD: "build",
    Reader.CONVERT: "convert",
    Reader.QUANTIZE: "quantize",
    Reader.CHECKPOINT: "checkpoint",
    Reader.PARAMETER: "parameter",
    Reader.FILL: "parameter",
    Reader.FIELD: "field",
    Reader.LAUNCHER: "launcher",
    Reader.TRITON: "triton",
    Reader.SERVE: "serve",
    Reader.MPI: "mpi",
    Reader.CONTAINER: "container",
    Reader.ENVIRONMENT: "environment",
}
