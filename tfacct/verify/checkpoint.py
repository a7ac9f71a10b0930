"""The tensors of files against the ledger: every tensor has a line, every line a tensor, with equal shapes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple, TypeAlias

from tfacct.base.record import record
from tfacct.ledger import paths
from tfacct.ledger.lines import NO_MATRIX
from tfacct.loading.headers import Held
from tfacct.loading.model import LoadedModel
from tfacct.verify import tensor_names as names
from tfacct.verify.places import CONVOLUTION, COPY, Found, Places, Slot
from tfacct.verify.tensor_names import Aid

BNB = "bitsandbytes"
WORDS = {"int32": 32, "uint32": 32, "int64": 64, "uint8": 8, "int8": 8}
"""Bits of the words that numbers are packed into."""


Shape: TypeAlias = tuple[int, ...]


class Packing(NamedTuple):
    """What a config says of the format of its files: the method's name, and the bits of one number; None if unsaid."""

    method: str
    bits: int | None

    def fits(
        self, held: Held, wanted: Shape, as_good: Collection[Shape], aid: Aid | None, formats: Collection[str]
    ) -> bool | None:
        """True if a file's tensor has the shape `wanted`, or the one it is packed into; None where that is not told.

        `as_good`: other shapes that are; `formats`: those of the tensors beside it.
        """
        if aid is not None:
            return self._packed(held, wanted, aid)
        if BNB in formats and held.dtype in ("uint8", "int8") and held.shape[1:] == (1,) and held.shape != wanted:
            return held.shape[0] == -(-prod(wanted) // 2)
        if ("modelopt" in formats and held.dtype == "uint8") or ("fp8" in formats and held.dtype == "int8"):
            return held.shape == _narrower(wanted, 4, 8)
        if held.shape in (wanted, *as_good) or _bare(held.shape) == _bare(wanted):
            return True
        if len(held.shape) == 2 and len(wanted) == 3:  # a bank, its experts one behind the other
            return held.shape == _rows(wanted)
        return len(held.shape) > 2 and wanted in (_flat(held.shape), _flat(held.shape)[::-1], _rows(held.shape))

    def _packed(self, held: Held, wanted: tuple[int, ...], aid: Aid) -> bool | None:
        if len(wanted) < 2 or (aid.format != "mxfp4" and held.dtype not in WORDS):
            return None
        if aid.format == "mxfp4":  # rows, groups of 32 inputs, 16 bytes
            if len(held.shape) < 3:
                return False
            *rows, groups, each = held.shape
            return (*rows, groups * each * 2) in (wanted, (*wanted[:-2], wanted[-1], wanted[-2]))
        word = WORDS[held.dtype]
        if aid.format == "compressed-tensors":
            bits = 4 if held.dtype == "uint8" else self.bits
            return None if bits is None else held.shape == _narrower(wanted, bits, word)
        if self.bits is None or self.method not in ("gptq", "awq"):
            return None
        outputs, inputs = wanted[-2:]
        if self.method == "awq":
            return held.shape == (inputs, -(-outputs * self.bits // word))
        return held.shape == (-(-inputs * self.bits // word), outputs)

    def format_of(self, aid: Aid | None, formats: Collection[str]) -> str:
        """Name of the format of a tensor, for a person."""
        named = aid.format if aid is not None else next(iter(sorted(formats)), "")
        return self.method if named == "gptq or awq" and self.method in ("gptq", "awq") else named or "unknown format"


def packing(raw: Mapping[str, Any]) -> Packing:
    """What a config says."""
    said = raw.get("quantization_config")
    if not isinstance(said, Mapping):
        return Packing("", None)
    bits = {value for value in (said.get("bits"), said.get("w_bit"), *_of_groups(said)) if type(value) is int}
    one = bits.pop() if len(bits) == 1 else None
    method = said.get("quant_method")
    known = one is not None and 1 <= one <= 16
    return Packing(method.lower() if isinstance(method, str) else "", one if known else None)


def _of_groups(said: Mapping[str, Any]) -> list[Any]:
    """Bits of the weights of each of compressed-tensors' groups."""
    groups = said.get("config_groups")
    each = groups.values() if isinstance(groups, Mapping) else ()
    weights = [group.get("weights") for group in each if isinstance(group, Mapping)]
    return [one.get("num_bits") for one in weights if isinstance(one, Mapping)]


def _narrower(shape: tuple[int, ...], bits: int, word: int) -> tuple[int, ...]:
    """Shape with its rows packed into words."""
    return (*shape[:-1], -(-shape[-1] * bits // word))


def _flat(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A convolution's outputs, and the channels and positions that each is computed from."""
    return shape[0], prod(shape[1:])


def _rows(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The rows of a table that lies in a grid, or of a bank."""
    return prod(shape[:-1]), shape[-1]


def _bare(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape without axes of 1."""
    return tuple(size for size in shape if size != 1)


class Difference(NamedTuple):
    """A path of the ledger or a name in the files, and how the two sides differ there."""

    name: str
    what: str


@record
class Reconciled:
    """What files hold, against a ledger."""

    found: Sequence[Found]
    differences: Sequence[Difference]
    compared: int
    """Number of the ledger's tensors that the files hold in the shape that it has."""
    uncompared: Mapping[str, int]
    """Number of tensors whose shape a format does not tell, by its name."""
    unstored: Sequence[Difference] = ()
    """Tensors that the files need not hold, and do not."""

    @property
    def agrees(self) -> bool:
        """True if nothing differs."""
        return not self.differences


def reconcile(subject: LoadedModel, tensors: Iterable[Held], gguf: bool = False) -> Reconciled:
    """Compare the tensors of files with a model's ledger; `gguf`: they have llama.cpp's names."""
    slots = Places(subject, outputs_first=gguf)
    found = slots.with_table([slots.place_gguf(held) if gguf else slots.place(held) for held in tensors])
    found = slots.with_others(found)
    over = [Difference(one.held.name, "no line in the ledger") for one in found if one.slot is None and not one.why]
    judged = _Judged(slots, found, packing(subject.raw))
    if slots.tied and not any(one.why == COPY for one in found):
        judged.unstored.append(Difference(slots.tied, "tied to the table"))
    return Reconciled(found, [*judged.differences, *over], judged.compared, judged.uncompared, judged.unstored)


class _Judged:
    """The verdicts on all places."""

    def __init__(self, slots: Places, found: Sequence[Found], how: Packing) -> None:
        self.slots, self.how = slots, how
        self.values: dict[str, list[Found]] = defaultdict(list)
        self.aids: dict[str, set[str]] = defaultdict(set)
        for one in found:
            if one.slot is not None and (one.aid is None or one.aid.packed):
                self.values[one.slot.name].append(one)
            elif one.slot is not None and one.aid is not None:
                self.aids[one.slot.name].add(one.aid.format)
        self.uncompared: Counter[str] = Counter()
        self.unstored: list[Difference] = []
        self.bad: set[str] = set()
        """Our tensors that the files do not hold as the ledger has them."""
        self.differences: list[Difference] = list(self._differences())
        self.compared = sum(tensor.path not in self.bad for tensor in slots.tensors)

    def _differences(self) -> Iterator[Difference]:
        """Differences, one for each tensor of the class."""
        holders: dict[str, list[Slot]] = defaultdict(list)
        wrong: dict[str, str] = {}
        for name, values in self.values.items():
            slot = values[0].slot
            assert slot is not None
            for tensor in slot.tensors:
                holders[tensor.path].append(slot)
            if problem := self._problem(slot, values):
                wrong[name] = problem
        said: set[str] = set()
        for tensor in self.slots.tensors:
            held, place = holders.get(tensor.path, []), self.slots.fused[tensor.path].name
            if not held and tensor.path in names.COMPUTED.get(self.slots.subject.family, ()):
                self.unstored.append(Difference(tensor.path, "computed by the class"))
                continue
            if not held:
                what = f"missing: no {place} in the files"
            elif len(held) > 1:
                what = f"stored twice: {held[0].name} and {held[1].name}"
            else:
                what = wrong.get(held[0].name, "")
            if what:
                self.bad.add(tensor.path)
            if what and what not in said:
                said.add(what)
                yield Difference(tensor.path, what)

    def _problem(self, slot: Slot, values: Sequence[Found]) -> str:
        """How the tensors in a place differ from what the ledger has there; empty where they do not."""
        pieces, count = Counter(value.piece for value in values), len(slot.pieces) or 1
        if over := [piece for piece in pieces if piece >= count]:
            return f"{values[0].held.name} and others are of {over[0] + 1:,} {slot.each}s, the ledger's of {count:,}"
        if twice := [piece for piece, times in pieces.items() if times > 1]:
            return f"stored twice: {_named(values, twice[0])}"
        if len(pieces) < count:
            lost = next(number for number in range(count) if number not in pieces)
            return f"missing: {slot.each} {lost:,} of {count:,}"
        formats = self.aids[slot.name]
        for value in _joined(values) if slot.each == CONVOLUTION else values:
            wanted = slot.pieces[value.piece] if slot.pieces else slot.shape
            good = () if slot.pieces else _as_good(slot)
            fits = self.how.fits(value.held, wanted, good, value.aid, formats)
            if fits is None:
                self.uncompared[self.how.format_of(value.aid, formats)] += 1
            elif not fits:
                return f"{value.held.name} has shape {_spelled(value.held.shape)}, the ledger {_spelled(wanted)}"
        return ""


def _as_good(slot: Slot) -> tuple[tuple[int, ...], ...]:
    """Other shapes of what is no matrix: heads apart as in the ledger, or side by side; one more axis of 1."""
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
    """Pieces that lie one behind the other, as one: how long each is, classes do not say."""
    first, rests = values[0], {value.held.shape[1:] for value in values}
    if len(rests) > 1 or not first.held.shape:
        return values
    shape = (sum(value.held.shape[0] for value in values), *first.held.shape[1:])
    return [first._replace(held=first.held._replace(shape=shape))]


def _named(values: Sequence[Found], piece: int) -> str:
    return " and ".join([value.held.name for value in values if value.piece == piece][:2])


def _spelled(shape: Sequence[Any]) -> str:
    return " × ".join(f"{size:,}" for size in shape) or "()"
