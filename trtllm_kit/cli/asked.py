"""What an operator asks for, checked whole: the profile, its machine, and the alerts it changes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trtllm_kit.spec.hardware import Hardware
    from trtllm_kit.spec.load import LoadedProfile


def asked_for(profile: str, trtllm_version: str | None = None) -> tuple[LoadedProfile, Hardware]:
    """Return a profile and its machine; raises ``ProfileError`` also for alerts that check-health could not use.

    ``trtllm_version`` takes the place of the profile's; raises ``UsageError`` for no release.
    """
    from trtllm_kit.spec.load import hardware_for, load_profile

    loaded = load_profile(profile)
    if trtllm_version is not None:
        loaded = _for_release(loaded, trtllm_version)
    hardware = hardware_for(loaded.profile)
    if loaded.profile.alerts:
        from trtllm_kit.health.load import rules_for

        rules_for(loaded.profile, hardware, loaded.origins)
    return loaded, hardware


def _for_release(loaded: LoadedProfile, version: str) -> LoadedProfile:
    from trtllm_kit.upstream.releases import release

    profile = loaded.profile.model_copy(update={"trtllm_version": release(version).version})
    return replace(loaded, profile=profile, origins={**loaded.origins, "trtllm_version": "--trtllm-version"})
