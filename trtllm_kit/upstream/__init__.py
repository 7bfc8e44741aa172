"""What each TensorRT-LLM release accepts, as data with version ranges, and small questions asked of it."""

from __future__ import annotations

from trtllm_kit.upstream.releases import Release, known_releases, nearest_release, release

__all__ = ["Release", "known_releases", "nearest_release", "release"]
