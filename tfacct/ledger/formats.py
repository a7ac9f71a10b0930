"""Bytes of a matrix in quantization formats, as the formats' own tools lay out the tensors.

A format is a function of the outputs and inputs of a matrix, created for a number of bits and a group size. Everything
stored is counted: the numbers, padded to whole words or blocks, scales, zero points and lookup tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from tfacct.ledger.einsum import Size, packed_bytes, rounded_up

Matrix: TypeAlias = Callable[[Size, Size], Size]
"""Bytes of a matrix by its outputs and inputs."""
WORD = 4
"""Bytes of an int32, which numbers are packed into."""


class Format(NamedTuple):
    """A storage format for matrices: name, bytes, and a description of what is stored."""

    name: str
    matrix: Matrix
    about: str = ""


def plain(bits: int, name: str) -> Format:
    """Unquantized storage: every number in `bits`."""
    return Format(name, lambda outputs, inputs: packed_bytes(outputs * inputs, bits), f"plain {bits} bits")


def _words(numbers: Size, bits: int) -> Size:
    """Number of int32 for `numbers` of `bits` each, packed across word boundaries."""
    return rounded_up(numbers * bits, 32)


def grouped(inputs: Size, size: int | None) -> Size:
    """Number of groups of `size` inputs; 1 if `size` is None."""
    return 1 if size is None else rounded_up(inputs, size)


def blocks(name: str, numbers: int, size: int, about: str, tensor: int = 0) -> Format:
    """Format in blocks: `numbers` inputs of one output in `size` bytes, the last block padded, plus `tensor` bytes."""
    return Format(name, lambda outputs, inputs: outputs * rounded_up(inputs, numbers) * size + tensor, about)


def both(one: Format, other: Format) -> Format:
    """Format of a matrix that is stored twice, once in each format."""
    name = one.name if one.name == other.name else f"{one.name} + {other.name}"
    return Format(name, lambda outputs, inputs: one.matrix(outputs, inputs) + other.matrix(outputs, inputs))


GGML: Mapping[str, tuple[int, int]] = {
    "q4_0": (32, 18), "q4_1": (32, 20), "q5_0": (32, 22), "q5_1": (32, 24), "q8_0": (32, 34), "q8_1": (32, 40),
    "q2_k": (256, 84), "q3_k": (256, 110), "q4_k": (256, 144), "q5_k": (256, 176), "q6_k": (256, 210),
    "q8_k": (256, 292), "iq2_xxs": (256, 66), "iq2_xs": (256, 74), "iq3_xxs": (256, 98), "iq1_s": (256, 50),
    "iq4_nl": (32, 18), "iq3_s": (256, 110), "iq2_s": (256, 82), "iq4_xs": (256, 136), "iq1_m": (256, 56),
    "tq1_0": (256, 54), "tq2_0": (256, 66), "mxfp4": (32, 17), "nvfp4": (64, 36),
}  # fmt: skip
"""llama.cpp's types: numbers and bytes of a block. ggml-common.h."""

MXFP4 = blocks("mxfp4", 32, 17, "blocks of 32 with an 8-bit scale")
"""32 inputs of 4 bits (E2M1) and a scale of 8 (E8M0). OCP Microscaling Formats (MX) 1.0, section 5."""

MX = {
    4: MXFP4,
    6: blocks("mxfp6", 32, 25, "blocks of 32 with an 8-bit scale"),
    8: blocks("mxfp8", 32, 33, "blocks of 32 with an 8-bit scale"),
}
"""OCP's formats by the bits of their numbers."""

NVFP4 = blocks("nvfp4", 16, 9, "blocks of 16 with an 8-bit scale, and one 32-bit scale per tensor", tensor=4)
"""16 inputs of 4 bits (E2M1) and a scale of 8 (E4M3), and one scale of 32 for the tensor: `weight`, `weight_scale` and
`weight_scale_2` of NVIDIA's Model Optimizer. The scale of the activations is not counted."""


def _with_article(bits: int) -> str:
    """`a 4-bit`, `an 8-bit`."""
    return f"{'an' if bits == 8 else 'a'} {bits}-bit"


def _per_group(size: int | None) -> str:
    return "each output" if size is None else f"groups of {size} inputs"


def awq(bits: int = 4, group: int | None = 128) -> Format:
    """AWQ: outputs packed into words (`qweight`); for each output and group a 16-bit scale (`scales`) and a packed zero
    point (`qzeros`). AutoAWQ, `WQLinear_GEMM`."""

    def matrix(outputs: Size, inputs: Size) -> Size:
        words = _words(outputs, bits)
        return WORD * inputs * words + grouped(inputs, group) * (2 * outputs + WORD * words)

    return Format("awq", matrix, f"{_per_group(group)}, each with a 16-bit scale and {_with_article(bits)} zero")


def gptq(bits: int = 4, group: int | None = 128, *, indexed: bool = True) -> Format:
    """GPTQ: inputs packed into words (`qweight`); scales and zero points as in AWQ; if `indexed`, the group number of
    each input in 32 bits (`g_idx`). GPTQModel, AutoGPTQ and AutoRound, `QuantLinear`."""

    def matrix(outputs: Size, inputs: Size) -> Size:
        scales = grouped(inputs, group) * (2 * outputs + WORD * _words(outputs, bits))
        return WORD * _words(inputs, bits) * outputs + scales + (WORD * inputs if indexed else 0)

    about = f"{_per_group(group)}, each with a 16-bit scale and {_with_article(bits)} zero"
    return Format("gptq", matrix, f"{about}, and a group index per input" if indexed else about)


def scaled(
    name: str,
    bits: int,
    *,
    packed: bool,
    scale: int,
    group: int | None = None,
    block: tuple[int, int] | None = None,
    per_tensor: bool = False,
    zero: int | None = None,
    tensor: int = 0,
    indexed: bool = False,
) -> Format:
    """Numbers of `bits` with scales: packed into int32 along the inputs, or each padded to whole bytes.

    A scale of `scale` bytes is for each output and group of inputs, for each `block`, or `per_tensor`.

    `zero`: bits of a zero point for each scale, packed along the outputs if the numbers are packed. `tensor`: further
    bytes per tensor. `indexed`: with the group number of each input in 32 bits. compressed-tensors, `compressors`.
    """

    def scales(outputs: Size, inputs: Size) -> tuple[Size, Size]:
        if per_tensor:
            return 1, 1
        if block is not None:
            return rounded_up(outputs, block[0]), rounded_up(inputs, block[1])
        return outputs, grouped(inputs, group)

    def matrix(outputs: Size, inputs: Size) -> Size:
        down, across = scales(outputs, inputs)
        numbers = WORD * outputs * _words(inputs, bits) if packed else outputs * inputs * rounded_up(bits, 8)
        zeros = 0
        if zero is not None:
            zeros = WORD * _words(down, zero) * across if packed else down * across * rounded_up(zero, 8)
        return numbers + scale * down * across + zeros + tensor + (WORD * inputs if indexed else 0)

    per = "each tensor" if per_tensor else f"blocks of {block[0]} × {block[1]}" if block else _per_group(group)
    zeros = f" and a {zero}-bit zero point" if zero is not None else ""
    return Format(name, matrix, f"{bits}-bit numbers, {per} with {_with_article(8 * scale)} scale{zeros}")


CODE, NESTED_CODE, OFFSET = 16 * 4, 256 * 4, 4
"""Bytes of bitsandbytes' lookup tables: 16 values of 4-bit codes, 256 values of 8-bit scales, and the mean scale."""


def bnb4(*, double: bool = True, name: str = "nf4", tables: bool = True) -> Format:
    """Blocks of 64 4-bit numbers with a scale, over the flattened matrix, as in bitsandbytes.

    QLoRA (arXiv 2305.14314), section 3.

    `double`: scales have 8 bits, and 256 of them share a 32-bit scale; else they have 32 bits. `tables`: with the
    lookup tables that bitsandbytes stores for each tensor.
    """

    def matrix(outputs: Size, inputs: Size) -> Size:
        scales = rounded_up(outputs * inputs, 64)
        taken = packed_bytes(outputs * inputs, 4) + (scales + 4 * rounded_up(scales, 256) if double else 4 * scales)
        return taken + (CODE + (NESTED_CODE + OFFSET if double else 0) if tables else 0)

    scale = "an 8-bit scale, plus a 32-bit scale per 256 scales" if double else "a 32-bit scale"
    return Format(name, matrix, f"blocks of 64 with {scale}{', with code tables per tensor' if tables else ''}")


def rows8(name: str, scale: int = 4) -> Format:
    """8-bit numbers with a scale of `scale` bytes for each output: bitsandbytes (`SCB`), FBGEMM (`weight_scale`)."""
    about = f"8-bit numbers, and {_with_article(8 * scale)} scale per output"
    return scaled(name, 8, packed=False, scale=scale)._replace(about=about)


def fp8(block: tuple[int, int] | None = (128, 128), *, scale: int = 4, static: bool = False) -> Format:
    """8-bit numbers (E4M3) with a scale of `scale` bytes for each block of outputs × inputs, or for the tensor:
    `weight_scale_inv` of DeepSeek-V3. `static`: with a 32-bit scale for the activations (`activation_scale`)."""
    name, per = ("fp8-tensor", "one 32-bit scale per tensor")
    if block is not None:
        name, per = "fp8-block", f"blocks of {block[0]} × {block[1]} with {_with_article(8 * scale)} scale"
    taken = scaled(name, 8, packed=False, scale=scale, block=block, per_tensor=block is None, tensor=4 if static else 0)
    return taken._replace(about=f"8-bit numbers, {per}")


def affine(bits: int, group: int) -> Format:
    """MLX: numbers packed into words; for each output and group of inputs a scale and a bias of 2 bytes each."""

    def matrix(outputs: Size, inputs: Size) -> Size:
        return outputs * (WORD * _words(inputs, bits) + grouped(inputs, group) * 4)

    return Format(f"mlx-{bits}bit", matrix, f"groups of {group} inputs, each with a 16-bit scale and bias")


def hqq(bits: int, group: int, axis: int) -> Format:
    """HQQ: groups of numbers with a scale and a zero point of 2 bytes each. A group is a row (`axis` 1) or a column.
    Rows are packed together, 8 // bits of them into bytes; with 3 bits, ten into words. `hqq.core.bitpack`."""

    def matrix(outputs: Size, inputs: Size) -> Size:
        groups = rounded_up(outputs * inputs, group)
        rows, columns = (groups, group) if axis == 1 else (group, groups)
        packed = WORD * rounded_up(rows, 10) if bits == 3 else rounded_up(rows * bits, 8)
        return packed * columns + groups * 4

    return Format(f"hqq-{bits}bit", matrix, f"groups of {group} numbers, each with a 16-bit scale and zero")


TILE = 8, 1024
"""Outputs and inputs of a tile, to which torchao pads 4-bit matrices."""


def int4_groups(group: int, *, tiles: bool) -> Format:
    """4-bit numbers; for each output and `group` of inputs a scale and a zero point of 16 bits. torchao, `Int4Tensor`,
    or, in `tiles`, `Int4TilePackedTo4dTensor`."""

    def matrix(outputs: Size, inputs: Size) -> Size:
        if tiles:
            outputs, inputs = rounded_up(outputs, TILE[0]) * TILE[0], rounded_up(inputs, TILE[1]) * TILE[1]
        return outputs * (rounded_up(inputs, 2) + 4 * grouped(inputs, group))

    return Format("int4-group", matrix, f"4-bit numbers, {_per_group(group)} with a 16-bit scale and zero")


def ternary() -> Format:
    """BitNet: four outputs of 2 bits in a byte, and a 16-bit scale for the tensor. `BitLinear`."""
    about = "2-bit numbers, and one 16-bit scale per tensor"
    return Format("bitnet", lambda outputs, inputs: rounded_up(outputs, 4) * inputs + 2, about)
