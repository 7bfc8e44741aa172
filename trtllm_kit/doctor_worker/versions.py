"""Tells which of the packages named on the command line this Python has; imports none of them."""

import importlib.metadata
import json
import sys


def main() -> None:
    """Print one JSON object: names and versions of those that are there."""
    found = {}
    for name in sys.argv[1:]:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    print(json.dumps(found))  # noqa: T201 - a program of its own; this is its answer


if __name__ == "__main__":
    main()
