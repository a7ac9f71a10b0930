"""Storage of a model's tensors: one width for all, or a format for some of them.

A dtype of 16 bits or more applies to every tensor. A narrower one applies to the matrices of the layers only; other
tensors stay in bf16, as in published checkpoints. This module knows shapes and bytes, not transformers. Storage that
selects tensors by name is created when a config is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cache
from typing import Literal, NamedTuple, TypeAlias

from tfacct.base import units
from tfacct.base.record import record
from tfacct.ledger import formats, paths
from tfacct.ledger.einsum import Size, SpecError, divided, packed_bytes
from tfacct.ledger.formats import Format

Role: TypeAlias = Literal["matrix", "expert", "dense", "head", "embedding", "other"]
"""Role of a tensor for a format: a matrix of a layer; the weights of the experts; another matrix of a model with
experts; the head; an embedding; or other: a vector, a depthwise convolution, a router or gate."""
EVERY: frozenset[Role] = frozenset(("matrix", "expert", "dense", "head", "embedding", "other"))
MATRICES: frozenset[Role] = EVERY - {"head", "embedding", "other"}
SCALE = 4
"""Bytes of the scale of a cached vector."""
WIDE = "bf16"
"""Dtype of the tensors that a narrow format does not quantize."""


class Stored(NamedTuple):
    """A tensor for a format: `copies` of a matrix of `elements` numbers, with `inputs` per output.

    The experts of a layer are copies, each stored separately. `path` is the ledger's path.
    """

    role: Role
    elements: Size
    inputs: Size = 1
    copies: Size = 1
    path: str = ""

    @property
    def outputs(self) -> Size:
        """Outputs of the matrix."""
        return divided(self.elements, self.inputs)


@record
class StatePage:
    """How an engine stores the states of a layer: in a page of `bytes`, which has the inputs of a convolution too
    (`convolution` bytes), and padding. `dtype`: of the recurrent state."""

    bytes: int
    convolution: int
    dtype: str


@record
class Width:
    """A plain width for activations, keys and values: `bits` per element.

    A cache may have pages of `page` tokens, a page for the states of a layer (`state_page`), and a scale of `scale`
    bytes for each vector of a token. With `block` > 1, vectors are stored in blocks of `block` numbers, and `bits` is
    the size of a block:

    >>> width("q8_0").bytes(128), width("q8_0").each
    (136, Fraction(17, 16))
    """

    name: str
    bits: int
    page: int = 1
    scale: int = 0
    block: int = 1
    state_page: StatePage | None = None

    @property
    def rounds(self) -> bool:
        """True if an element is no whole number of bytes."""
        return self.bits % 8 != 0

    @property
    def each(self) -> Fraction:
        """Bytes per element, without the scale of its vector."""
        return Fraction(self.bits, 8 * self.block)

    def bytes(self, elements: Size) -> Size:
        """Bytes of `elements` numbers, rounded up; with blocks, `elements` must be a multiple of `block`."""
        taken = packed_bytes(elements, self.bits)
        return taken if self.block == 1 else divided(taken, self.block)


@record
class Storage:
    """How the weights of a model are stored: created by `storage(name)` or from a config.

    A matrix of 6 outputs and 64 inputs takes 2 bytes for each of its 384 numbers in bf16:

    >>> matrix = Stored("matrix", elements=384, inputs=64)
    >>> storage("bf16").bytes(matrix)
    768

    In mxfp4, 32 inputs of 4 bits share a scale of 8 bits, so a row of 64 takes 2 · 17 bytes:

    >>> storage("mxfp4").bytes(Stored("expert", elements=384, inputs=64))
    204

    Formats narrower than 16 bits apply to matrices only; an embedding stays in bf16:

    >>> table = Stored("embedding", elements=384)
    >>> storage("nf4").bytes(table), storage("nf4").dtype(table)
    (768, 'bf16')

    `choose` returns the format of a tensor, or None for `wide`, the width of unquantized tensors. `about` describes the
    format in words. `quantized_roles`: roles of quantized tensors, if only the role decides.

    `scaled`: the format has scales, and all are counted.

    `by_block`: the format depends on the layer number, so paths must have it. `ahead`: outputs before a tensor's own,
    if the files store several tensors of the ledger as one. `left`: paths of matrices that the config excludes from
    quantization. `least`: the storage with the fewest bytes, if versions of the program that writes the files differ;
    `differs` describes the difference.
    """

    name: str
    choose: Callable[[Stored], Format | None]
    wide: Width
    quantized_roles: frozenset[Role] = frozenset()
    rounds: bool = False
    about: str = ""
    scaled: bool = True
    by_block: bool = False
    ahead: Mapping[tuple[str, int, int], int] | None = None
    left: frozenset[str] = frozenset()
    least: Storage | None = None
    differs: str = ""

    @property
    def narrow(self) -> bool:
        """True if some tensors are not quantized."""
        return self.quantized_roles != EVERY

    def bytes(self, tensor: Stored) -> Size:
        """Bytes of a tensor, with scales and zero points."""
        taken = self.format_of(tensor)
        if taken is None:
            return self.wide.bytes(tensor.copies * tensor.elements)
        outputs, inputs = tensor.outputs, tensor.inputs
        before = 0
        if self.ahead and isinstance(tensor.elements, int):
            before = self.ahead.get((paths.starred(tensor.path), tensor.elements, inputs), 0)
        if before:
            return tensor.copies * (taken.matrix(before + outputs, inputs) - taken.matrix(before, inputs))
        return tensor.copies * taken.matrix(outputs, inputs)

    def format_of(self, tensor: Stored) -> Format | None:
        """Format of a tensor; None if it is not quantized."""
        if self.by_block and paths.repeated(tensor.path):
            raise SpecError(f"{tensor.path}: {self.name} depends on the layer number")
        return self.choose(tensor)

    def cuts(self, tensor: Stored, shard: Stored) -> bool:
        """True if sharding a tensor into shards like this one splits a block, group or word of its format.

        Data that a format stores once for a tensor, an output or an input is in each shard.

        >>> matrix = Stored("matrix", elements=96 * 512, inputs=512)
        >>> [storage("mxfp4").cuts(matrix, Stored("matrix", 96 * inputs, inputs)) for inputs in (256, 128, 16)]
        [False, False, True]
        """
        tensor_format = self.format_of(tensor)
        if tensor_format is None or tensor.elements == shard.elements:
            return False
        inputs_too = shard.inputs != tensor.inputs
        once = tensor_format.matrix(tensor.outputs, 0) if inputs_too else tensor_format.matrix(0, tensor.inputs)
        shards = tensor.elements // shard.elements
        each, all_ = (tensor_format.matrix(one.outputs, one.inputs) - once for one in (shard, tensor))
        return bool(shards * shard.elements != tensor.elements or shards * each != all_)

    def dtype(self, tensor: Stored) -> str:
        """Name of the dtype or format that a tensor is stored in."""
        tensor_format = self.format_of(tensor)
        return self.wide.name if tensor_format is None else tensor_format.name


_BLOCKS: dict[str, Format] = {
    "mxfp4": formats.MXFP4,
    "nvfp4": formats.NVFP4,
    "gptq": formats.gptq(),
    "awq": formats.awq(),
    "nf4": formats.bnb4(tables=False),
    "fp8-block": formats.fp8(),
}
ALSO: Mapping[str, Role] = {"head": "head", "embed": "embedding"}
"""Roles of the names in `units.ALSO`."""
_EXPERTS_FIRST = ("mxfp4",)
"""Formats that quantize only the experts of a model with experts, as gpt-oss is published
(`modules_to_not_convert`)."""


def width(name: str, page: int = 1) -> Width:
    """Width by the name of a dtype or cache format: with scales (`fp8-token`) or in llama.cpp's blocks (`q8_0`).

    `page`: tokens per page of a cache. Raises TfacctError, also for formats that are for weights only.
    """
    key = name.lower()
    if key in units.BLOCK_CACHES:
        numbers, size = formats.GGML[key]
        return Width(key, 8 * size, page, block=numbers)
    if key in units.SCALED_CACHES:
        return Width(key, units.dtype_bits(key.removesuffix(units.SCALED)), page, SCALE)
    return Width(units.dtype_name(name), units.dtype_bits(name), page)


def by_role(weight_format: Format, roles: frozenset[Role]) -> Callable[[Stored], Format | None]:
    """Function for `Storage.choose` that applies a format to tensors of these roles."""
    return lambda tensor: weight_format if tensor.role in roles else None


@cache
def storage(name: str) -> Storage:
    """Storage by the name of a dtype or format: `bf16`, `mxfp4`. Raises TfacctError."""
    name = units.dtype_name(name)
    plain, *more = name.split("+")
    also = frozenset(ALSO[each] for each in more)
    if plain in _BLOCKS:
        weight_format = _BLOCKS[plain]
        roles = (MATRICES - {"dense"} if plain in _EXPERTS_FIRST else MATRICES) | also
        return Storage(
            name,
            by_role(weight_format, roles),
            width(WIDE),
            roles,
            rounds=True,
            about=weight_format.about,
        )
    each = width(plain)
    if not units.is_narrow(plain):
        return Storage(name, lambda _: None, each, EVERY, each.rounds)
    weight_format, roles = formats.plain(each.bits, plain), MATRICES | also
    return Storage(
        name,
        by_role(weight_format, roles),
        width(WIDE),
        roles,
        each.rounds,
        f"{weight_format.about} without scales",
        scaled=False,
    )


BF16, BF16_EACH = storage("bf16"), width("bf16")
DEFAULT_DTYPE = BF16.name


def dtypes(dtype: str | None, kv_dtype: str | None = None) -> tuple[str, str]:
    """Names of the weights' dtype and the cache's dtype.

    By default the cache has the dtype of the activations, which is bf16 with quantized weights.
    """
    stored = units.dtype_name(DEFAULT_DTYPE if dtype is None else dtype)
    if kv_dtype is not None:
        return stored, width(kv_dtype).name
    return stored, DEFAULT_DTYPE if units.is_narrow(stored) else stored
