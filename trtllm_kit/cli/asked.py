"""What an operator asks for, checked whole: the profile, its machine, and the alerts it changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trtllm_kit.spec.hardware import Hardware
    from trtllm_kit.spec.load import LoadedProfile


def asked_for(profile: str) -> tuple[LoadedProfile, Hardware]:
    """Return a profile and its machine; raises ``ProfileError`` also for alerts that check-health could not use."""
    from trtllm_kit.health.load import rules_for
    from trtllm_kit.spec.load import hardware_for, load_profile

    loaded = load_profile(profile)
    hardware = hardware_for(loaded.profile)
    rules_for(loaded.profile, hardware, loaded.origins)
    return loaded, hardware
