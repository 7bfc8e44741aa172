"""What a recurrent mixer keeps of a sequence: one state of fixed size, whatever the sequence's length.

It is the last inputs of the convolution, in 16 bit, and the state itself in the number type that the model states. The
runtime holds them from its start, for ``max_batch_size`` sequences of each pipeline stage
(``_torch/pyexecutor/mamba_cache_manager.py``: convolution (channels, kernel - 1), state (heads, head width, state
width), both shared out over the tensor ranks).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import ceil

from trtllm_kit.spec.model import Attention, Layer, Mixer

_STATE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_CONVOLUTION_BYTES = 2


def state_bytes_per_sequence(layers: Iterable[Layer], tensor: int) -> int:
    """Return the bytes that all recurrent layers keep of a sequence on a tensor rank; 0 where every layer attends."""
    mixers = Counter(layer.mixer for layer in layers)
    return sum(count * _state_bytes(mixer, tensor) for mixer, count in mixers.items())


def _state_bytes(mixer: Mixer | None, tensor: int) -> int:
    if mixer is None or isinstance(mixer, Attention):
        return 0
    remembered = ceil(mixer.conv_channels / tensor) * (mixer.conv_kernel - 1)
    state = ceil(mixer.state_elements / tensor)
    return remembered * _CONVOLUTION_BYTES + state * _STATE_BYTES[mixer.state_type]
