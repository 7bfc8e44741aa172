"""Measures what the cards of this machine reach: ``PYTHON -I measure.py FILE.json``, with torch and triton in PYTHON.

The folder goes last on the path, so that nothing of it stands in for a package of that environment.
"""

import importlib
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent))

if __name__ == "__main__":
    sys.exit(importlib.import_module("calibrate.run").main())
