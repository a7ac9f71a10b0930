"""Storage formats of tensors, in exact bytes: a plain width, or blocks of numbers that share a scale.

A dtype of 16 bits or more stores every tensor alike. A narrower one takes the matrices of the blocks only, and other
tensors stay in bf16, as in published checkpoints. This module knows shapes and bytes, not transformers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

from tfacct.base import units
from tfacct.base.record import record
from tfacct.ledger.einsum import Size, divided, rounded_up, whole_bytes

Role: TypeAlias = Literal["matrix", "expert", "beside", "other"]
"""Role of a tensor to a format: a matrix of a block; a bank of experts; a matrix of a model that has experts beside it;
or none of these: a table, a vector, a depthwise convolution, a router or gate, the head."""
EVERY: frozenset[Role] = frozenset(("matrix", "expert", "beside", "other"))
MATRICES: frozenset[Role] = EVERY - {"other"}
WIDE = "bf16"
"""Dtype of the tensors that a narrow one does not take."""


class Stored(NamedTuple):
    """A tensor as a format sees it: `copies` of a matrix of `elements` numbers, `inputs` of them per output.

    The copies of a bank are its experts, each stored by itself.
    """

    role: Role
    elements: Size
    inputs: Size = 1
    copies: Size = 1


@record
class Width:
    """A plain width: `bits` for every element. Activations, keys and values have one."""

    name: str
    bits: int

    @property
    def rounds(self) -> bool:
        """True if an element may end inside a byte."""
        return self.bits % 8 != 0

    def bytes(self, elements: Size) -> Size:
        """Bytes of `elements` numbers, rounded up."""
        return whole_bytes(elements, self.bits)


@record
class Storage:
    """A format for the weights of a model. Made by `storage(name)`.

    A matrix of 6 outputs and 64 inputs takes 2 bytes for each of its 384 numbers in bf16:

    >>> matrix = Stored("matrix", elements=384, inputs=64)
    >>> storage("bf16").bytes(matrix)
    768

    In mxfp4, 32 inputs of 4 bits share a scale of 8 bits, so a row of 64 takes 2 · 17 bytes:

    >>> storage("mxfp4").bytes(Stored("expert", elements=384, inputs=64))
    204

    Formats narrower than 16 bits take matrices only, and a table stays wide:

    >>> table = Stored("other", elements=384)
    >>> storage("nf4").bytes(table), storage("nf4").dtype(table)
    (768, 'bf16')

    `matrix` gives the bytes of a matrix by its outputs and inputs, for tensors of the roles that the format `takes`;
    others are stored in `wide`. `about` says in words what is stored of a matrix.
    """

    name: str
    matrix: Callable[[Size, Size], Size]
    takes: frozenset[Role]
    wide: Width
    rounds: bool = False
    about: str = ""

    @property
    def narrow(self) -> bool:
        """True if some tensors stay wider than the format's own numbers."""
        return self.takes != EVERY

    def bytes(self, tensor: Stored) -> Size:
        """Bytes of a tensor, with scales and zero points."""
        if tensor.role not in self.takes:
            return self.wide.bytes(tensor.copies * tensor.elements)
        return tensor.copies * self.matrix(divided(tensor.elements, tensor.inputs), tensor.inputs)

    def dtype(self, tensor: Stored) -> str:
        """Name of the dtype that a tensor is stored in."""
        return self.name if tensor.role in self.takes else self.wide.name


def _mxfp4(outputs: Size, inputs: Size) -> Size:
    """32 inputs of 4 bits (E2M1) and a scale of 8 (E8M0): 17 bytes. OCP Microscaling Formats (MX) 1.0, section 5."""
    return outputs * rounded_up(inputs, 32) * 17


def _nvfp4(outputs: Size, inputs: Size) -> Size:
    """16 inputs of 4 bits (E2M1) and a scale of 8 (E4M3), 9 bytes, and one scale of 32 for the tensor: `weight`,
    `weight_scale` and `weight_scale_2` of NVIDIA's Model Optimizer. The scale of the activations is not counted."""
    return outputs * rounded_up(inputs, 16) * 9 + 4


def _awq(outputs: Size, inputs: Size) -> Size:
    """8 outputs of 4 bits in a 32-bit word (`qweight`); for each output and 128 inputs a scale of 16 bits (`scales`)
    and a zero of 4, packed alike (`qzeros`). AutoAWQ, `WQLinear_GEMM`."""
    words = rounded_up(outputs, 8)
    return 4 * inputs * words + rounded_up(inputs, 128) * (2 * outputs + 4 * words)


def _gptq(outputs: Size, inputs: Size) -> Size:
    """8 inputs of 4 bits in a 32-bit word (`qweight`); scales and zeros as AWQ has them; and for each input the number
    of its group in 32 bits (`g_idx`). AutoGPTQ, `QuantLinear`. (It stores biases of zero too, not counted.)"""
    scales = rounded_up(inputs, 128) * (2 * outputs + 4 * rounded_up(outputs, 8))
    return 4 * rounded_up(inputs, 8) * outputs + scales + 4 * inputs


def _nf4(outputs: Size, inputs: Size) -> Size:
    """64 numbers of 4 bits and a scale of 8, one after another whatever the shape; for 256 scales one of 32 bits.

    QLoRA (arXiv 2305.14314), section 3, as bitsandbytes stores it. Its code tables, the same 272 numbers for each
    tensor, and the mean of the scales are not counted."""
    scales = rounded_up(outputs * inputs, 64)
    return whole_bytes(outputs * inputs, 4) + scales + 4 * rounded_up(scales, 256)


_GROUPED = "groups of 128 inputs, each with a 16-bit scale and a 4-bit zero"
_BLOCKS: dict[str, tuple[Callable[[Size, Size], Size], str]] = {
    "mxfp4": (_mxfp4, "blocks of 32 with an 8-bit scale"),
    "nvfp4": (_nvfp4, "blocks of 16 with an 8-bit scale, and a 32-bit scale for each tensor"),
    "gptq": (_gptq, f"{_GROUPED}, and the number of each input's group"),
    "awq": (_awq, _GROUPED),
    "nf4": (_nf4, "blocks of 64 with an 8-bit scale, and a 32-bit scale for 256 of these"),
}
_EXPERTS_FIRST = ("mxfp4",)
"""Formats that take of a model with experts these alone: gpt-oss is published so (`modules_to_not_convert`)."""


def width(name: str) -> Width:
    """Plain width by the name of its dtype. Raises TfacctError, also for block formats, which store no cache."""
    return Width(units.dtype_name(name), units.dtype_bits(name))


def storage(name: str) -> Storage:
    """Format for weights by the name of its dtype: `bf16`, `mxfp4`. Raises TfacctError."""
    name = units.dtype_name(name)
    if name in _BLOCKS:
        matrix, about = _BLOCKS[name]
        takes = MATRICES - {"beside"} if name in _EXPERTS_FIRST else MATRICES
        return Storage(name, matrix, takes, width(WIDE), rounds=True, about=about)
    plain = width(name)

    def matrix_of(outputs: Size, inputs: Size) -> Size:
        return plain.bytes(outputs * inputs)

    if units.is_narrow(name):
        return Storage(name, matrix_of, MATRICES, width(WIDE), plain.rounds, f"plain {plain.bits} bits without scales")
    return Storage(name, matrix_of, EVERY, plain, plain.rounds)


BF16, BF16_EACH = storage("bf16"), width("bf16")
