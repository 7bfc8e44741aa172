"""The number formats that are made here: what each is stored as, how it is encoded, and how it is read."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from trtllm_kit.checkpoint.formats import eight_bit, four_bit, fp8
from trtllm_kit.checkpoint.formats.base import Decoder, Encoder
from trtllm_kit.checkpoint.rectangle import Raw

ENCODERS: Mapping[str, Encoder] = {
    "fp8": fp8.PerTensor(),
    "fp8_once": fp8.PerTensor(twice=False),
    "fp8_rowwise": eight_bit.FP8_ROWWISE,
    "fp8_block": eight_bit.FP8_BLOCK,
    "int8_wo": eight_bit.INT8_WO,
    "int4_wo": four_bit.INT4_WO,
    "int4_wo_64": four_bit.Int4(group=64),
    "mxfp8": eight_bit.MXFP8,
    "nvfp4": four_bit.NVFP4,
    "nvfp4_turned": four_bit.NVFP4_TURNED,
}
"""By the format's name in a ``TensorStep``."""

STEPS: Mapping[str, tuple[int, int]] = {
    "int4_wo": (2, four_bit.INT4_WO.group),
    "int4_wo_64": (2, 64),
    "mxfp8": (1, eight_bit.MX_BLOCK),
    "nvfp4": (1, four_bit.NVFP4_BLOCK),
    "nvfp4_turned": (four_bit.NVFP4_BLOCK, 1),
}
"""What rows and columns of a matrix are a multiple of, where a format asks for more than one."""

DECODERS: Mapping[str, Decoder] = {
    "fp8": fp8.decode,
    "fp8_once": fp8.decode,
    "fp8_rowwise": eight_bit.decode_fp8_rowwise,
    "fp8_block": eight_bit.decode_fp8_block,
    "int8_wo": eight_bit.decode_int8_wo,
    "int4_wo": four_bit.decode_int4_wo,
    "int4_wo_64": four_bit.decode_int4_wo,
    "mxfp4": four_bit.decode_mxfp4,
    "mxfp8": eight_bit.decode_mxfp8,
    "nvfp4": four_bit.decode_nvfp4,
    "nvfp4_turned": four_bit.decode_nvfp4_turned,
}
"""By the same names; for the reading side."""

_MEASURED = {
    ("fp8", "input_scale"): fp8.fp8_scale,
    ("fp8_once", "input_scale"): fp8.fp8_scale,
    ("nvfp4", "input_scale"): four_bit.nvfp4_scale,
    ("nvfp4_turned", "input_scale"): four_bit.nvfp4_scale,
    ("fp8", "k_scale"): fp8.fp8_scale,
    ("fp8", "v_scale"): fp8.fp8_scale,
    ("nvfp4", "k_scale"): fp8.fp8_scale,
    ("nvfp4", "v_scale"): fp8.fp8_scale,
    ("fp8_once", "kv_scale"): fp8.cache_scale,
    ("fp8_once", "k_scale"): fp8.cache_scale,
    ("fp8_once", "v_scale"): fp8.cache_scale,
    ("int8", "kv_scale"): eight_bit.int8_cache_scale,
    ("int8", "k_scale"): eight_bit.int8_cache_scale,
    ("int8", "v_scale"): eight_bit.int8_cache_scale,
}


_VARIANTS = {
    "fp8_once": "fp8",
    "int4_wo_64": "int4_wo",
    "nvfp4_turned": "nvfp4",
    "int4_awq_64": "int4_awq",
    "w4a8_awq_64": "w4a8_awq",
}


def profile_name(name: str) -> str:
    """Return what a profile calls the format of an encoder; some formats have several."""
    return _VARIANTS.get(name, name)


def measured_scale(name: str, part: str, amax: float) -> Raw:
    """Return a calibrated scale of a format for the largest magnitude that was seen, a float32 scalar."""
    return np.array([_MEASURED[name, part](amax)], dtype=np.float32)


def is_calibrated(name: str) -> bool:
    """Whether weights of this format come with an ``input_scale`` that calibration measures."""
    return (name, "input_scale") in _MEASURED
