"""What a lint is asked beside the path: the release, and the profile with its machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trtllm_kit.upstream.facts import version_key
from trtllm_kit.upstream.releases import known_releases, release

if TYPE_CHECKING:
    from trtllm_kit.plan.plan import Plan
    from trtllm_kit.spec.hardware import Hardware
    from trtllm_kit.spec.load import LoadedProfile


@dataclass(frozen=True)
class Context:
    """What the rules are asked for."""

    release: str | None = None
    """``--trtllm-version``, as the table of releases spells it."""
    loaded: LoadedProfile | None = None
    hardware: Hardware | None = None
    mounts: tuple[tuple[Path, str], ...] = ()
    """Folders of this machine, and where the server sees each."""
    plan: Plan | None = None
    """What is planned, where something is linted beside it."""

    @property
    def ranks(self) -> int | None:
        """Ranks that are planned, or that the profile asks for; None where neither says."""
        if self.plan is not None:
            return self.plan.parallelism.world_size
        asked = self.loaded.profile.parallelism if self.loaded is not None else None
        if asked is None or not isinstance(asked.tensor, int):
            return None
        return asked.tensor * asked.pipeline * asked.context

    def here(self, place: str) -> tuple[Path, bool | None]:
        """Return where a path of the server's is on this machine, and whether something is there.

        None where nobody can say: it is under no mount, and the image itself may hold it.
        """
        for host, inside in self.mounts:
            if place == inside or place.startswith(f"{inside}/"):
                found = host / place[len(inside) :].lstrip("/")
                return found, found.exists()
        return Path(place), Path(place).exists() or None

    def settle(self, own: str | None = None) -> tuple[str, str]:
        """Return the release that the rules are asked about, and who named it.

        ``own`` is what the linted thing says of itself. Without any of them it is the newest release in a container.
        """
        if self.release is not None:
            return self.release, "--trtllm-version"
        if self.loaded is not None:
            return release(self.loaded.profile.trtllm_version).version, "profile"
        if own is not None and _is_version(own):
            return own, "what is linted"
        return _newest(), "nobody: the newest in a container"


def _is_version(text: str) -> bool:
    try:
        version_key(text)
    except ValueError:
        return False
    return True


def _newest() -> str:
    return next(name for name in reversed(known_releases()) if release(name).images)
