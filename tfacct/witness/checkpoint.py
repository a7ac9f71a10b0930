"""The tensors of files against the ledger: every tensor has a line, every line a tensor, with equal shapes."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from tfacct.base.record import record
from tfacct.ledger import paths
from tfacct.ledger.evaluated import Tensor
from tfacct.ledger.lines import EXPERTS, GATE
from tfacct.loading.headers import Held
from tfacct.loading.model import LoadedModel
from tfacct.witness import tensor_names as names
from tfacct.witness.packed import Packing, packing
from tfacct.witness.tensor_names import Aid


class Slot(NamedTuple):
    """A place for a tensor of a file: the tensors of the ledger that it holds, and its shape as the class stores it.

    `experts`: the number of files' tensors that fill it, one for each; 0 where one fills it.
    """

    name: str
    tensors: tuple[Tensor, ...]
    shape: tuple[int, ...]
    experts: int = 0

    @property
    def part(self) -> str:
        """Heading that its bytes are summed under."""
        return paths.heading_of(self.tensors[0].path)


class Found(NamedTuple):
    """A tensor of a file: where it belongs (None: nowhere), as which expert, as what beside or in place of numbers.

    `why` says what it is where it belongs nowhere; empty where nobody knows.
    """

    held: Held
    slot: Slot | None
    expert: int = 0
    aid: Aid | None = None
    why: str = ""


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
    slots = _Slots(subject, outputs_first=gguf)
    found = slots.with_table([slots.place_gguf(held) if gguf else slots.place(held) for held in tensors])
    over = [Difference(one.held.name, "no line in the ledger") for one in found if one.slot is None and not one.why]
    judged = _Judged(slots, found, packing(subject.raw))
    if slots.tied and not any(one.why == COPY for one in found):
        judged.unstored.append(Difference(slots.tied, "tied to the table"))
    return Reconciled(found, [*judged.differences, *over], judged.compared, judged.uncompared, judged.unstored)


COPY = "copy of a tied table"


class _Slots:
    """Places for a model's tensors by their names: the class's own, those of its parts where it fuses several, ours."""

    def __init__(self, subject: LoadedModel, outputs_first: bool) -> None:
        self.subject, self.outputs_first = subject, outputs_first
        self.modules, self.named = subject.config.paths(), subject.config.tensors()
        self.tensors = subject.ledger.tensors(unfolded=True)
        self.by_name: dict[str, Slot] = {}
        self.fused: dict[str, Slot] = {}
        """The class's places by our paths."""
        whole: dict[str, list[Tensor]] = defaultdict(list)
        for tensor in self.tensors:
            whole[self._name(tensor.path)].append(tensor)
        for name, parts in whole.items():
            slot = Slot(name, tuple(parts), self._shape(parts))
            self.by_name[name] = slot
            for tensor in parts:
                self.fused[tensor.path] = slot
                self._apart(tensor, alone=len(parts) == 1)
        head = subject.architecture.head
        self.tied = f"{self.modules.get('lm_head', 'lm_head')}.weight" if head is not None and head.tied else ""
        self.copies = bool(self.tied) or subject.architecture.encoder is not None
        self.blocks = sum(stack.count for stack in subject.architecture.stacks)

    def with_table(self, found: list[Found]) -> list[Found]:
        """The same where a table is not stored but one of its copies is: the first of them stands for it."""
        table = next((tensor for tensor in self.tensors if tensor.embedding), None)
        slot = None if table is None else self.fused[table.path]
        if slot is None or any(one.slot is not None and one.slot.tensors == slot.tensors for one in found):
            return found
        first = next((number for number, one in enumerate(found) if one.why == COPY), None)
        if first is not None:
            found[first] = Found(found[first].held, slot)
        return found

    def _name(self, path: str) -> str:
        """Name of the class's tensor that holds one of ours, ours where there is no class."""
        starred, number = paths.starred(path), paths.parse(path).number
        module, leaf = paths.module_of(starred), paths.name_of(starred)
        if starred in self.named and not (
            leaf == "weight" and paths.parse(path).leaf == leaf and module in self.modules
        ):
            name = self.named[starred]
        elif leaf in ("weight", "bias"):
            name = f"{self.modules.get(module, module)}.{leaf}"
        else:
            name = self.modules.get(starred, starred)
        return paths.numbered(name, number)

    def _apart(self, tensor: Tensor, *, alone: bool) -> None:
        """Places of a tensor that its class fuses with others, or of one expert of a bank."""
        starred, number = paths.starred(tensor.path), paths.parse(tensor.path).number
        module, leaf = paths.module_of(starred), paths.name_of(starred)
        shape = self._shape([tensor], as_ours=True)
        own = Slot(tensor.path, (tensor,), shape)
        if number == "" or self.modules:
            self.by_name.setdefault(tensor.path, own)
        theirs = self.modules.get(module)
        if theirs is None or (alone and not tensor.parameter.bank):
            return
        bank = tensor.parameter.bank
        inside = paths.numbered(theirs if bank else paths.module_of(theirs), number)
        name = f"{inside}.{paths.name_of(module)}.{leaf}"
        self.by_name.setdefault(name, Slot(name, (tensor,), shape, shape[0] if bank else 0))

    def _shape(self, parts: Sequence[Tensor], *, as_ours: bool = False) -> tuple[int, ...]:
        """Shape of a class's tensor, which holds parts one behind the other along their outputs."""
        shape = list(_outputs_first(parts[0]))
        axis = 1 if parts[0].parameter.bank else 0
        shape[axis] = sum(_outputs_first(part)[axis] for part in parts)
        starred = paths.starred(parts[0].path)
        turned = len(shape) > 1 and parts[0].parameter.inputs and starred.startswith(self.subject.config.inputs_first)
        if turned and not (self.outputs_first or (as_ours and parts[0].parameter.bank)):
            shape[-2:] = shape[:-3:-1]
        return tuple(shape)

    def place(self, held: Held) -> Found:
        """Where a tensor of a safetensors file belongs."""
        starred, numbers = names.NUMBER.sub("*", held.name), names.NUMBER.findall(held.name)
        if match := self._match(starred, numbers):
            return Found(held, *match)
        if beside := names.aid(starred):
            base, aid = beside
            if match := self._match(base, numbers):
                return Found(held, *match, aid=aid)
        return Found(held, None, why=self._why(starred, numbers, held))

    def place_gguf(self, held: Held) -> Found:
        """Where a tensor of a GGUF file belongs: where the class fuses what it holds, its shape decides."""
        starred, numbers = names.NUMBER.sub("*", held.name), names.NUMBER.findall(held.name)
        module, leaf = paths.module_of(starred), paths.name_of(starred)
        if (ours := names.GGUF.get(module)) is not None:
            path = f"{paths.numbered(ours, numbers[0]) if numbers else ours}.{leaf}"
            places = [place for place in (self.by_name.get(path), self.fused.get(path)) if place is not None]
            if places:
                return Found(held, next((place for place in places if place.shape == held.shape), places[0]))
        return Found(held, None, why=self._why(starred, numbers, held))

    def _match(self, starred: str, numbers: Sequence[str]) -> tuple[Slot, int] | None:
        for spelled in names.spellings(starred, self.subject.config.body):
            own, expert = list(numbers), 0
            if spelled.expert is not None:
                expert = int(own.pop(spelled.expert)[:9])
            slot = self.by_name.get(_filled(spelled.name, own))
            if slot is not None and bool(slot.experts) == (spelled.expert is not None):
                return slot, expert
        return None

    def _why(self, starred: str, numbers: Sequence[str], held: Held) -> str:
        """What a tensor is that belongs nowhere, as far as that is known."""
        if what := names.known(starred):
            return what
        table = next((tensor for tensor in self.tensors if tensor.embedding), None)
        if self.copies and table is not None and re.search(names.HEADS, starred):
            return COPY if held.shape == tuple(table.shape) else ""
        if self.subject.left_out and re.search(names.OTHER_MODELS, starred):
            return "of another model in the same files"
        if self.copies and starred.endswith("decoder.bias") and f"{self._name('lm_head.bias')}" in self.by_name:
            return COPY
        further = self.subject.raw.get("num_nextn_predict_layers") or self.subject.raw.get("num_mtp_modules")
        if ".layers.*." in starred and further and self.subject.architecture.mtp is None and numbers:
            ahead = int(numbers[0][:9]) - self.blocks
            return "layer that predicts further tokens (MTP)" if 0 <= ahead < int(further) else ""
        return ""


def _filled(starred: str, numbers: Sequence[str]) -> str:
    """The name with its numbers in the place of its stars."""
    pieces = starred.split("*")
    return "".join(piece + number for piece, number in zip(pieces, [*numbers, ""], strict=False))


def _outputs_first(tensor: Tensor) -> tuple[int, ...]:
    """Shape in which torch stores a tensor: a matrix by its outputs, then its inputs; heads lie side by side."""
    axes, inputs = tensor.parameter.axes, tensor.parameter.inputs
    sizes: dict[str, int] = {axis: int(size) for axis, size in zip(axes, tensor.shape, strict=True)}
    bank = axes[:1] if tensor.parameter.bank else ()
    rest = [axis for axis in axes if axis not in bank]
    first = [sizes[axis] for axis in bank]
    if inputs:
        outputs = (sizes[axis] for axis in rest if axis not in inputs)
        return (*first, prod(outputs), prod(sizes[axis] for axis in rest if axis in inputs))
    if len(rest) == 2 and rest[1][0] == "H" and rest[0] in ("N", "K"):
        return (*first, sizes[rest[0]] * sizes[rest[1]])
    if len(rest) == 2 and rest[1] in (EXPERTS, GATE):  # a router, which formats do not take
        return (*first, sizes[rest[1]], sizes[rest[0]])
    return (*first, *(sizes[axis] for axis in rest))


class _Judged:
    """The verdicts on all places."""

    def __init__(self, slots: _Slots, found: Sequence[Found], how: Packing) -> None:
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
        experts, count = Counter(value.expert for value in values), slot.experts or 1
        if over := [expert for expert in experts if expert >= count]:
            return f"{values[0].held.name} and others are of {over[0] + 1:,} experts, the ledger's of {count:,}"
        if twice := [expert for expert, times in experts.items() if times > 1]:
            return f"stored twice: {_named(values, twice[0])}"
        if len(experts) < count:
            lost = next(number for number in range(count) if number not in experts)
            return f"missing: expert {lost:,} of {count:,}"
        wanted = slot.shape[1:] if slot.experts else slot.shape
        formats = self.aids[slot.name]
        for value in values:
            fits = self.how.fits(value.held, wanted, _raw_shape(slot), value.aid, formats)
            if fits is None:
                self.uncompared[self.how.format_of(value.aid, formats)] += 1
            elif not fits:
                return f"{value.held.name} has shape {_spelled(value.held.shape)}, the ledger {_spelled(wanted)}"
        return ""


def _raw_shape(slot: Slot) -> tuple[int, ...]:
    """Shape of a norm by heads, whose class may keep the heads apart."""
    first = slot.tensors[0]
    return () if len(slot.tensors) > 1 or first.parameter.inputs else tuple(int(size) for size in first.shape)


def _named(values: Sequence[Found], expert: int) -> str:
    return " and ".join([value.held.name for value in values if value.expert == expert][:2])


def _spelled(shape: Sequence[Any]) -> str:
    return " × ".join(f"{size:,}" for size in shape) or "()"
