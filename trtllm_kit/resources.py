"""Where the shipped data folders are: inside the wheel, or beside the package in a checkout."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parent
_DATA = "_data"


def deploy_profiles() -> Path:
    """Return the folder of the shipped deploy profiles."""
    return _data_folder("deploy_profiles")


def triton_models() -> Path:
    """Return the folder of the Triton model sources."""
    return _data_folder("triton_models")


def package_file(*parts: str) -> Path:
    """Return a data file of the package itself, e.g. ``package_file("spec", "hardware.yaml")``."""
    return _PACKAGE.joinpath(*parts)


def _data_folder(name: str) -> Path:
    shipped = _PACKAGE / _DATA / name
    return shipped if shipped.is_dir() else _PACKAGE.parent / name
