"""Tells what an environment has: versions of packages, and the device torch sees; imports torch alone."""

import importlib.metadata
import json
import sys


def main() -> None:
    """Print one JSON object for the packages named on the command line."""
    found: dict[str, object] = {"versions": {name: _version(name) for name in sys.argv[1:]}}
    try:
        import torch

        cuda = torch.cuda.is_available()
        found |= {"device": "cuda" if cuda else "cpu", "gpus": torch.cuda.device_count() if cuda else 0}
        sizes = [torch.cuda.get_device_properties(number).total_memory for number in range(found["gpus"])]  # type: ignore[call-overload]
        found |= {"gpu_bytes": sum(sizes), "gpu": torch.cuda.get_device_name(0) if cuda else ""}
    except ImportError as error:
        found["torch_error"] = str(error)
    print(json.dumps(found))  # noqa: T201 - a program of its own; this is its answer


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    main()
