"""The numpy type of each dtype of a safetensors file; apart from ``header``, whose readers may need no numpy."""

from __future__ import annotations

from typing import Any

import numpy as np

from trtllm_kit.checkpoint.header import HELD_AS

NUMPY_TYPES: dict[str, np.dtype[Any]] = {name: np.dtype(code) for name, code in HELD_AS.items()}
