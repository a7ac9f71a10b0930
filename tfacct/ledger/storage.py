"""Storage of a model's tensors: a plain width for all, or a format for some of them.

A dtype of 16 bits or more stores every tensor alike. A narrower one takes the matrices of the blocks only, and other
tensors stay in bf16, as in published checkpoints. This module knows shapes and bytes, not transformers; a model's own
storage, which chooses by name, is made where its config is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Literal, NamedTuple, TypeAlias

from tfacct.base import units
from tfacct.base.record import record
from tfacct.ledger import formats, paths
from tfacct.ledger.einsum import Size, SpecError, divided, whole_bytes
from tfacct.ledger.formats import Format

Role: TypeAlias = Literal["matrix", "expert", "dense", "head", "embedding", "other"]
"""Role of a tensor to a format: a matrix of a layer; the weight of all experts; a matrix of a model that also has
experts; the head; a table of tokens; or none of these: a vector, a depthwise convolution, a router or gate."""
EVERY: frozenset[Role] = frozenset(("matrix", "expert", "dense", "head", "embedding", "other"))
MATRICES: frozenset[Role] = EVERY - {"head", "embedding", "other"}
SCALE = 4
"""Bytes of the scale of a vector of a cache."""
WIDE = "bf16"
"""Dtype of the tensors that a narrow one does not take."""


class Stored(NamedTuple):
    """A tensor as a format sees it: `copies` of a matrix of `elements` numbers, `inputs` of them per output.

    The copies of an experts' weight are the experts, each stored by itself. `path` is that of the ledger's line.
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
class Width:
    """A plain width: `bits` for every element. Activations, keys and values have one.

    A cache may be kept in pages of `page` tokens, and have a scale of `scale` bytes for each vector of a token. Or its
    vectors are stored in blocks of `block` numbers, and the `bits` are those of a block:

    >>> width("q8_0").bytes(128), width("q8_0").each
    (136, Fraction(17, 16))
    """

    name: str
    bits: int
    page: int = 1
    scale: int = 0
    block: int = 1

    @property
    def rounds(self) -> bool:
        """True if an element may end inside a byte."""
        return self.bits % 8 != 0

    @property
    def each(self) -> Fraction:
        """Bytes of an element, without the scale of its vector."""
        return Fraction(self.bits, 8 * self.block)

    def bytes(self, elements: Size) -> Size:
        """Bytes of `elements` numbers, rounded up; of whole blocks."""
        taken = whole_bytes(elements, self.bits)
        return taken if self.block == 1 else divided(taken, self.block)


@record
class Storage:
    """How the weights of a model are stored. Made by `storage(name)`, or from a model's config.

    A matrix of 6 outputs and 64 inputs takes 2 bytes for each of its 384 numbers in bf16:

    >>> matrix = Stored("matrix", elements=384, inputs=64)
    >>> storage("bf16").bytes(matrix)
    768

    In mxfp4, 32 inputs of 4 bits share a scale of 8 bits, so a row of 64 takes 2 · 17 bytes:

    >>> storage("mxfp4").bytes(Stored("expert", elements=384, inputs=64))
    204

    Formats narrower than 16 bits take matrices only, and a table stays wide:

    >>> table = Stored("embedding", elements=384)
    >>> storage("nf4").bytes(table), storage("nf4").dtype(table)
    (768, 'bf16')

    `choose` gives the format of a tensor; None is `wide`, the width of all that no format takes. `about` says in words
    what is stored of a matrix, and `takes` which tensors, where their roles alone decide.

    `scaled`: `about` names scales, all of which are counted.

    `by_block`: the format depends on the block's number, and a tensor's path must hold it. `ahead`: outputs that stand
    in front of a tensor's own, where the model's files hold several of the ledger's tensors as one. `left`: paths of
    matrices that a model's config leaves as they are. `least`: the storage with fewest bytes, where versions of the
    program that writes the files differ; `differs` says in what.
    """

    name: str
    choose: Callable[[Stored], Format | None]
    wide: Width
    takes: frozenset[Role] = frozenset()
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
        """True if some tensors stay wider than the format's own numbers."""
        return self.takes != EVERY

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
        """Format of a tensor; None where it is stored wide."""
        if self.by_block and paths.repeated(tensor.path):
            raise SpecError(f"{tensor.path}: {self.name} depends on the block's number")
        return self.choose(tensor)

    def cuts(self, whole: Stored, part: Stored) -> bool:
        """True if a tensor that is divided into parts like this one has a block, group or word of its format cut.

        What a format stores once for a tensor, an output or an input is on each part that has it.

        >>> whole = Stored("matrix", elements=96 * 512, inputs=512)
        >>> [storage("mxfp4").cuts(whole, Stored("matrix", 96 * inputs, inputs)) for inputs in (256, 128, 16)]
        [False, False, True]
        """
        taken = self.format_of(whole)
        if taken is None or whole.elements == part.elements:
            return False
        inputs_too = part.inputs != whole.inputs
        once = taken.matrix(whole.outputs, 0) if inputs_too else taken.matrix(0, whole.inputs)
        parts = whole.elements // part.elements
        each, all_ = (taken.matrix(one.outputs, one.inputs) - once for one in (part, whole))
        return bool(parts * part.elements != whole.elements or parts * each != all_)

    def dtype(self, tensor: Stored) -> str:
        """Name of the dtype or format that a tensor is stored in."""
        taken = self.format_of(tensor)
        return self.wide.name if taken is None else taken.name


_BLOCKS: dict[str, Format] = {
    "mxfp4": formats.MXFP4,
    "nvfp4": formats.NVFP4,
    "gptq": formats.gptq(),
    "awq": formats.awq(),
    "nf4": formats.bnb4(tables=False),
    "fp8-block": formats.fp8(),
}
ALSO: Mapping[str, Role] = {"head": "head", "embed": "embedding"}
"""What `units.ALSO` names, by role."""
_EXPERTS_FIRST = ("mxfp4",)
"""Formats that take of a model with experts these alone: gpt-oss is published so (`modules_to_not_convert`)."""


def width(name: str, page: int = 1) -> Width:
    """Plain width by the name of its dtype, of a cache also with scales (`fp8-token`), in llama.cpp's blocks (`q8_0`)
    and in pages of so many tokens.

    Raises TfacctError, also for formats of weights, which store no cache.
    """
    key = name.lower()
    if key in units.BLOCK_CACHES:
        numbers, size = formats.GGML[key]
        return Width(key, 8 * size, page, block=numbers)
    if key in units.SCALED_CACHES:
        return Width(key, units.dtype_bits(key.removesuffix(units.SCALED)), page, SCALE)
    return Width(units.dtype_name(name), units.dtype_bits(name), page)


def by_role(taken: Format, takes: frozenset[Role]) -> Callable[[Stored], Format | None]:
    """The choice of a format for tensors of these roles."""
    return lambda tensor: taken if tensor.role in takes else None


def storage(name: str) -> Storage:
    """Storage by the name of a dtype or format: `bf16`, `mxfp4`. Raises TfacctError."""
    name = units.dtype_name(name)
    plain, *more = name.split("+")
    also = frozenset(ALSO[each] for each in more)
    if plain in _BLOCKS:
        taken = _BLOCKS[plain]
        takes = (MATRICES - {"dense"} if plain in _EXPERTS_FIRST else MATRICES) | also
        return Storage(name, by_role(taken, takes), width(WIDE), takes, rounds=True, about=taken.about)
    each = width(plain)
    if not units.is_narrow(plain):
        return Storage(name, lambda _: None, each, EVERY, each.rounds)
    taken, takes = formats.plain(each.bits, plain), MATRICES | also
    return Storage(
        name, by_role(taken, takes), width(WIDE), takes, each.rounds, f"{taken.about} without scales", scaled=False
    )


BF16, BF16_EACH = storage("bf16"), width("bf16")
DEFAULT_DTYPE = BF16.name


def dtypes(dtype: str | None, kv_dtype: str | None = None) -> tuple[str, str]:
    """The names of the weights' dtype and the cache's.

    Where none was named the cache has that of the activations, which quantized weights leave in bf16.
    """
    stored = units.dtype_name(DEFAULT_DTYPE if dtype is None else dtype)
    if kv_dtype is not None:
        return stored, width(kv_dtype).name
    return stored, DEFAULT_DTYPE if units.is_narrow(stored) else stored
