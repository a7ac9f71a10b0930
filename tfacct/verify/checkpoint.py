"""Compares the tensors of files with the ledger: every tensor must have a line, every line a tensor, with equal
shapes."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple, TypeAlias

from tfacct.architecture.parts import headings
from tfacct.base.errors import TfacctError, cut
from tfacct.base.record import record
from tfacct.base.spelling import option, spelled
from tfacct.ledger import paths
from tfacct.ledger.lines import NO_MATRIX
from tfacct.loading.checkpoint import Checkpoint
from tfacct.loading.headers import FileTensor
from tfacct.loading.model import LoadedModel
from tfacct.loading.model_description import FORMAT_FIELDS
from tfacct.loading.quantized import mlx
from tfacct.verify import tensor_names as names
from tfacct.verify.places import CONVOLUTION, COPY, Found, Places, Slot
from tfacct.verify.tensor_names import QuantTensor

BNB = "bitsandbytes"
COMPARED = frozenset(
    (
        *("", "fp8", "gptq", "awq", "bitsandbytes", "mxfp4", "mxfp8", "compressed-tensors", "modelopt", "auto-round"),
        *("intel/auto-round", "fbgemm_fp8", "mlx", "bitnet"),
    )
)
"""Methods whose tensors are known by name."""
WORDS = {"int32": 32, "uint32": 32, "int64": 64, "uint8": 8, "int8": 8}
"""Bits of the words into which values are packed."""
Shape: TypeAlias = tuple[int, ...]


class Packing(NamedTuple):
    """The quantization format of files by their config: name of the method, and bits per value if known."""

    method: str
    bits: int | None

    def fits(
        self,
        tensor: FileTensor,
        wanted: Shape,
        as_good: Collection[Shape],
        quant: QuantTensor | None,
        formats: Collection[str],
    ) -> bool | None:
        """True if a file's tensor has the shape `wanted`, plain or packed; None if the format does not show it.

        `as_good`: equivalent shapes; `formats`: formats of the quantization tensors that belong to it.
        """
        if quant is not None:
            return self._packed(tensor, wanted, quant)
        if BNB in formats and tensor.dtype in ("uint8", "int8") and tensor.shape[1:] == (1,) and tensor.shape != wanted:
            return tensor.shape[0] == -(-prod(wanted) // 2)
        if ("modelopt" in formats and tensor.dtype == "uint8") or ("fp8" in formats and tensor.dtype == "int8"):
            return tensor.shape == _narrower(wanted, 4, 8)
        if tensor.dtype == "uint32" and formats:  # of MLX: bits that may differ between modules
            return any(tensor.shape == _narrower(wanted, bits, 32) for bits in mlx.BITS)
        if self.method == "bitnet" and tensor.dtype == "uint8":
            return tensor.shape == (-(-wanted[0] // 4), *wanted[1:])
        if tensor.shape in (wanted, *as_good) or _bare(tensor.shape) == _bare(wanted):
            return True
        if len(wanted) == 1 and tensor.shape:  # a vector, as rows of heads
            return prod(tensor.shape) == wanted[0]
        if len(tensor.shape) == 2 and len(wanted) == 3:  # experts, concatenated
            return tensor.shape == _rows(wanted)
        return len(tensor.shape) > 2 and wanted in (_flat(tensor.shape), _flat(tensor.shape)[::-1], _rows(tensor.shape))

    def _packed(self, tensor: FileTensor, wanted: Shape, quant: QuantTensor) -> bool | None:
        if len(wanted) < 2 or (quant.format != "mxfp4" and tensor.dtype not in WORDS):
            return None
        if quant.format == "mxfp4":  # rows, groups of 32 inputs, 16 bytes
            if len(tensor.shape) < 3:
                return False
            *rows, groups, each = tensor.shape
            return (*rows, groups * each * 2) in (wanted, (*wanted[:-2], wanted[-1], wanted[-2]))
        word = WORDS[tensor.dtype]
        if quant.format == "compressed-tensors":
            bits = self.bits or (4 if tensor.dtype == "uint8" else None)
            return None if bits is None else tensor.shape == _narrower(wanted, bits, word)
        if self.bits is None or self.method not in ("gptq", "awq"):
            return None
        outputs, inputs = wanted[-2:]
        if self.method == "awq":
            return tensor.shape == (inputs, -(-outputs * self.bits // word))
        return tensor.shape == (-(-inputs * self.bits // word), outputs)

    def format_of(self, quant: QuantTensor | None, formats: Collection[str]) -> str:
        """Display name of a tensor's format."""
        named = quant.format if quant is not None else next(iter(sorted(formats)), "")
        return self.method if named == "gptq or awq" and self.method in ("gptq", "awq") else named or "unknown format"


def packing(raw: Mapping[str, Any]) -> Packing:
    """The packing in a config."""
    config = next((value for field in FORMAT_FIELDS if (value := raw.get(field))), None)
    if not isinstance(config, Mapping):
        return Packing("", None)
    bits = {value for value in (config.get("bits"), config.get("w_bit"), *_of_groups(config)) if type(value) is int}
    one = bits.pop() if len(bits) == 1 else None
    method = config.get("quant_method")
    known = one is not None and 1 <= one <= 16
    return Packing(method.lower() if isinstance(method, str) else "", one if known else None)


def _of_groups(config: Mapping[str, Any]) -> list[Any]:
    """Bits of the weights in each group of compressed-tensors, and in each rule of GPTQModel."""
    rules = (value for field in ("config_groups", "dynamic") if isinstance(value := config.get(field), Mapping))
    every = [one.get("weights", one) for each in rules for one in each.values() if isinstance(one, Mapping)]
    return [one.get("num_bits", one.get("bits")) for one in every if isinstance(one, Mapping)]


def _narrower(shape: Shape, bits: int, word: int) -> Shape:
    """Shape with its rows packed into words."""
    return (*shape[:-1], -(-shape[-1] * bits // word))


def _flat(shape: Shape) -> Shape:
    """A convolution as a matrix: outputs × (channels · positions)."""
    return shape[0], prod(shape[1:])


def _rows(shape: Shape) -> Shape:
    """The rows of a position embedding stored as a grid, or of experts."""
    return prod(shape[:-1]), shape[-1]


def _bare(shape: Shape) -> Shape:
    """A shape without axes of size 1."""
    return tuple(size for size in shape if size != 1)


class Difference(NamedTuple):
    """A path in the ledger or a name in the files, and the difference."""

    name: str
    what: str


@record
class Reconciled:
    """The tensors of files against a ledger."""

    found: Sequence[Found]
    differences: Sequence[Difference]
    compared: int
    """Number of the ledger's tensors that the files have in its shape."""
    uncompared: Mapping[str, int]
    """Number of tensors whose shape a format does not tell, by its name."""
    unstored: Sequence[Difference] = ()
    """Tensors that the files need not have, and have not."""

    @property
    def agrees(self) -> bool:
        """True if nothing differs."""
        return not self.differences


def reconcile(model: LoadedModel, tensors: Iterable[FileTensor], gguf: bool = False) -> Reconciled:
    """Compares the tensors of files with a model's ledger; `gguf`: the names are those of llama.cpp."""
    slots = Places(model, outputs_first=gguf)
    found = slots.with_table([slots.place_gguf(tensor) if gguf else slots.place(tensor) for tensor in tensors])
    found = slots.with_others(found)
    over = [
        Difference(one.tensor.name, "no such tensor in the model") for one in found if one.slot is None and not one.why
    ]
    judged = _Judged(slots, found, packing(model.raw))
    if slots.tied and not any(one.why == COPY for one in found):
        judged.unstored.append(Difference(slots.tied, "tied to the embedding"))
    return Reconciled(found, [*judged.differences, *over], judged.compared, judged.uncompared, judged.unstored)


class _Judged:
    """The results for all places."""

    def __init__(self, slots: Places, found: Sequence[Found], how: Packing) -> None:
        self.slots, self.how = slots, how
        self.values: dict[str, list[Found]] = defaultdict(list)
        self.formats_of: dict[str, set[str]] = defaultdict(set)
        for one in found:
            if one.slot is not None and (one.quant is None or one.quant.packed):
                self.values[one.slot.name].append(one)
            elif one.slot is not None and one.quant is not None:
                self.formats_of[one.slot.name].add(one.quant.format)
        self.uncompared: Counter[str] = Counter()
        self.unstored: list[Difference] = []
        self.compared = len(slots.tensors)
        self.differences = self._differences()

    def _differences(self) -> list[Difference]:
        """Differences, one for each tensor of the class, under its first path in the ledger."""
        slots: dict[str, list[Slot]] = defaultdict(list)
        wrong: dict[str, str] = {}
        for name, values in self.values.items():
            slot = values[0].slot
            assert slot is not None
            for tensor in slot.tensors:
                slots[tensor.path].append(slot)
            if problem := self._problem(slot, values):
                wrong[name] = problem
        first_path: dict[str, str] = {}
        for tensor in self.slots.tensors:
            found, place = slots.get(tensor.path, []), self.slots.fused[tensor.path].name
            if not found and tensor.path in names.COMPUTED.get(self.slots.model.family, ()):
                self.unstored.append(Difference(tensor.path, "computed by the class"))
                continue
            if not found:
                what = f"missing: no {place} in the files"
            elif len(found) > 1:
                what = f"stored twice: {found[0].name} and {found[1].name}"
            else:
                what = wrong.get(found[0].name, "")
            if what:
                self.compared -= 1
                first_path.setdefault(what, tensor.path)
        return [Difference(path, what) for what, path in first_path.items()]

    def _problem(self, slot: Slot, values: Sequence[Found]) -> str:
        """How the tensors of a place differ from the ledger; empty if they do not."""
        pieces, count = Counter(value.piece for value in values), len(slot.pieces) or 1
        if other := next((value for value in values if value.slot and value.slot.pieces != slot.pieces), None):
            return f"stored twice: {values[0].tensor.name} and {other.tensor.name}"
        if over := [piece for piece in pieces if piece >= count]:
            return f"{values[0].tensor.name} and others have {over[0] + 1:,} {slot.each}s, the model's of {count:,}"
        if twice := [piece for piece, times in pieces.items() if times > 1]:
            return f"stored twice: {_named(values, twice[0])}"
        if len(pieces) < count:
            lost = next(number for number in range(count) if number not in pieces)
            return f"missing: {slot.each} {lost:,} of {count:,}"
        formats = self.formats_of[slot.name]
        for value in _joined(values) if slot.each == CONVOLUTION else values:
            wanted = slot.pieces[value.piece] if slot.pieces else slot.shape
            good = () if slot.pieces else _as_good(slot)
            fits = self.how.fits(value.tensor, wanted, good, value.quant, formats)
            if fits is None:
                self.uncompared[self.how.format_of(value.quant, formats)] += 1
            elif not fits:
                return (
                    f"{value.tensor.name} has shape {_dimensions(value.tensor.shape)}, expected {_dimensions(wanted)}"
                )
        return ""


def _as_good(slot: Slot) -> tuple[Shape, ...]:
    """Equivalent shapes of tensors that are not matrices: with or without a separate axis of heads; one more axis of
    size 1."""
    first = slot.tensors[0]
    axes = first.parameter.axes
    if len(slot.tensors) > 1 and all(paths.name_of(one.path) == "bias" for one in slot.tensors):
        return ((prod(slot.shape),),)
    if len(slot.tensors) > 1 or first.parameter.inputs or (len(axes) > 1 and axes[-1] in NO_MATRIX):
        return ()
    shape = tuple(int(size) for size in first.shape)
    if first.embedding:
        return shape, (shape[0], prod(shape[1:]))
    one_row = paths.name_of(first.path) == "bias" or "norm" in first.path
    return shape, (1, *shape), *([(prod(shape),)] if one_row else [])


def _joined(values: Sequence[Found]) -> Sequence[Found]:
    """Concatenated pieces as one, because classes do not define the length of each."""
    first, rests = values[0], {value.tensor.shape[1:] for value in values}
    if len(rests) > 1 or not first.tensor.shape:
        return values
    shape = (sum(value.tensor.shape[0] for value in values), *first.tensor.shape[1:])
    return [first._replace(tensor=first.tensor._replace(shape=shape))]


def _named(values: Sequence[Found], piece: int) -> str:
    return " and ".join([value.tensor.name for value in values if value.piece == piece][:2])


def _dimensions(shape: Sequence[Any]) -> str:
    return " × ".join(f"{size:,}" for size in shape) or "()"


BEYOND = "not counted"
"""Part of tensors that belong to no line of the ledger."""


ADAPTER = re.compile(r"(\w+)\.lora_A\b")
"""A tensor that PEFT adds to a module, whose rank is its first size."""


def adapters(files: Checkpoint) -> str:
    """The reason why the tensors of adapters cannot be compared with a config; empty for those of a model."""
    found = [(match[1], one.shape) for one in files.tensors if (match := ADAPTER.search(one.name)) and one.shape]
    if not found:
        return ""
    lora = f"{found[0][1][0]}:{','.join(dict.fromkeys(module for module, _ in found))}"
    counts = spelled(f"`tfacct train MODEL --lora {lora}`", f"load(MODEL).train(lora={lora!r})")
    return f"{files.name} has an adapter, not a model; {counts} counts its parameters"


def incomparable(files: Checkpoint, config: LoadedModel | None) -> str:
    """The reason why the tensors cannot be compared with a config; empty if they can."""
    if files.part_of:
        return f"it is one of {files.part_of:,} files: give their folder"
    if config is None:
        return f"there is no config.json next to it: give {option('config')}"
    if not files.gguf and (method := packing(config.raw).method) not in COMPARED:
        return f"tensors in the format of {cut(method)!r} are not supported"
    if files.gguf and files.gguf not in names.GGUF_COMPARED:
        return f"GGUF tensor names of {cut(files.gguf)!r} are not supported"
    return ""


def stored_lines(files: Checkpoint, result: Reconciled | None) -> list[dict[str, Any]]:
    """Tensors, elements and bytes by part, dtype and kind."""
    found: dict[tuple[str, str, str], Counter[str]] = {}
    for part, what, tensor in _parts(files.tensors) if result is None else map(_part, result.found):
        sums = found.setdefault((part, tensor.dtype, what), Counter())
        sums.update({"tensors": 1, "elements": tensor.elements, "bytes": tensor.bytes})
    order = {part: number for number, part in enumerate((*headings(), BEYOND))}
    lines = [
        {"part": part, "dtype": dtype, "what": what, **{key: sums[key] for key in ("tensors", "elements", "bytes")}}
        for (part, dtype, what), sums in found.items()
    ]
    if result is None:
        return lines
    return sorted(lines, key=lambda line: (order[line["part"]], -line["bytes"]))


def _part(one: Found) -> tuple[str, str, FileTensor]:
    """Part of a tensor, its kind if it is not a plain weight, and the tensor."""
    if one.slot is None:
        return BEYOND, one.why or "no such tensor in the model", one.tensor
    return one.slot.part, "" if one.quant is None else one.quant.what, one.tensor


def _parts(tensors: Iterable[FileTensor]) -> Iterable[tuple[str, str, FileTensor]]:
    """The same for files without a config: the part is the beginning of the name."""
    for tensor in tensors:
        starred = names.NUMBER.sub("*", tensor.name)
        quant = names.quant_tensor(starred)
        before, star, rest = starred.partition(".*.")
        part = f"{before}{star}{rest.partition('.')[0]}" if star else starred.rpartition(".")[0] or starred
        yield part, "" if quant is None or starred.endswith("_blocks") else quant[1].what, tensor


def folded_differences(differences: Sequence[Difference]) -> list[dict[str, Any]]:
    """Equal differences in several layers as one, with the first of them."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for one in differences:
        key = names.NUMBER.sub("*", one.name), names.NUMBER.sub("*", one.what)
        known = found.setdefault(key, {"path": one.name, "difference": one.what, "tensors": 0})
        known["tensors"] += 1
    return list(found.values())


def bytes_by_config(config: LoadedModel) -> int | None:
    """Bytes of the weights in the format of a config; None if it has no format, or an unknown one."""
    if not config.quantized:
        return None
    try:
        return int(sum(config.ledger.weight_bytes(config.storage()).values()))
    except TfacctError:
        return None
