"""What runs between products and attention: how many kernels a layer has, and what they move of each row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from trtllm_kit.plan.parallelism import Split
from trtllm_kit.spec.model import Attention, Dense, Experts, Layer, ModelSpec
from trtllm_kit.spec.profile_formats import PartFormat


class Product(Protocol):
    """What matters of a matrix product here."""

    @property
    def inputs(self) -> int:
        """Elements of a row that it takes."""
        ...

    @property
    def format(self) -> PartFormat:
        """Number format of its weights."""
        ...

    @property
    def experts(self) -> int:
        """Experts that share out the rows; 0 for a plain product."""
        ...


def row_bytes_of(layer: Layer, model: ModelSpec, dense: Split) -> int:
    """Count 16-bit reads and writes: norm and residual of each part, activations between products, rope.

    A norm reads the part's result and the residual and writes both; an activation reads gate and up and writes one;
    what a mixer makes before its core is read and written once more.
    """
    block, mixer = layer.feed_forward, layer.mixer
    elements = 4 * model.hidden * model.streams * ((block is not None) + (mixer is not None))
    if isinstance(mixer, Attention):
        elements += 2 * (mixer.heads + 2 * mixer.kv_heads) * mixer.head_dim // dense.tensor
    elif mixer is not None:
        elements += 4 * mixer.conv_channels // dense.tensor
    if isinstance(block, Dense):
        elements += 3 * block.intermediate // dense.tensor
    elif block is not None:
        each = 3 * block.intermediate + 2 * model.hidden
        elements += (block.per_token * each + 3 * block.shared_intermediate) // dense.tensor
    return 2 * elements


def quantised_bytes(products: Sequence[Product]) -> int:
    """Return the bytes of a row that kernels read in 16 bit and write in 8, before products that take 8 bit or less."""
    return sum(3 * product.inputs for product in products if product.format in _QUANTISED_INPUT and not product.experts)


def kernels_of(layer: Layer, products: Sequence[Product]) -> int:
    """Count kernels: products (with one that quantises their input), and the rest."""
    count = len(products) + sum(product.format in _QUANTISED_INPUT for product in products)
    mixer = layer.mixer
    count += 0 if mixer is None else _MIXER_KERNELS[mixer.kind]
    if isinstance(mixer, Attention) and mixer.latent is not None:
        count += _LATENT_KERNELS
    block = layer.feed_forward
    if block is not None:
        count += 2  # norm, activation
    return count


_QUANTISED_INPUT = ("fp8", "fp8_rowwise", "fp8_block", "mxfp8", "nvfp4", "int8_sq", "w4a8_awq")
_MIXER_KERNELS = {"full": 3, "sliding": 3, "chunked": 3, "delta_net": 5, "mamba": 5, "kimi_delta": 6}
"""Norm, rope with the cache's update, attention; or norm, convolution, scan, gate and norm of the result."""
_LATENT_KERNELS = 4
"""Norms of the squeezed query and of the latent vector, a second product of its expansion, and gathering the parts."""
_EXPERT_LAUNCHES = 4
"""Choice of the experts, sorting rows by them, their inverse, and the activation of a shared expert."""
_LATENT_LAUNCHES = 20
"""Cutting, joining and copying the parts of queries, keys and values that latent attention over a prompt gets."""


def more_launches(layer: Layer) -> int:
    """Return the kernels of a step with prompts that a generation step does not have, or has as one."""
    latent = isinstance(layer.mixer, Attention) and layer.mixer.latent is not None
    return latent * _LATENT_LAUNCHES + isinstance(layer.feed_forward, Experts) * _EXPERT_LAUNCHES
