"""The path in a model's ledger for each tensor of a file, by its possible names."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tfacct.architecture.parts import Experts
from tfacct.ledger import paths
from tfacct.ledger.evaluated import Tensor
from tfacct.loading.headers import FileTensor
from tfacct.loading.model import LoadedModel
from tfacct.verify import tensor_names as names
from tfacct.verify.tensor_names import QuantTensor

COPY = "copy of a tied embedding"
TABLE = "embed.weight"
CONVOLUTION = "convolution"


class Slot(NamedTuple):
    """A place for a tensor of a file: its ledger tensors, and its shape in the class.

    `pieces`: shapes of the file tensors that fill it, empty if one does; `each`: what a piece belongs to, such as
    expert.
    """

    name: str
    tensors: tuple[Tensor, ...]
    shape: tuple[int, ...]
    pieces: tuple[tuple[int, ...], ...] = ()
    each: str = ""

    @property
    def part(self) -> str:
        """Part under which its bytes are summed."""
        return paths.heading_of(self.tensors[0].path)


class Found(NamedTuple):
    """A tensor of a file: its place (None: nowhere), which piece of it, or which of its quantization tensors.

    `why`: what a tensor without a place is; empty if that is not known.
    """

    tensor: FileTensor
    slot: Slot | None
    piece: int = 0
    quant: QuantTensor | None = None
    why: str = ""


def fused_shape(parts: Sequence[Tensor]) -> tuple[int, ...]:
    """Shape of several ledger tensors, concatenated along the output axis."""
    shape, axis = list(parts[0].shape_in_torch), 1 if parts[0].parameter.is_expert else 0
    shape[axis] = sum(part.shape_in_torch[axis] for part in parts)
    return tuple(shape)


class Places:
    """Places for a model's tensors by name: names of the class, of the parts of fused tensors, and the ledger's."""

    def __init__(self, model: LoadedModel, outputs_first: bool) -> None:
        self.model, self.outputs_first = model, outputs_first
        self.modules, self.named = model.config.hf_module_paths(), model.config.hf_tensor_names()
        self.tensors = model.ledger.tensors(unfolded=True)
        self.table = next((tensor for tensor in self.tensors if tensor.path == TABLE), None)
        self.by_name: dict[str, Slot] = {}
        self.fused: dict[str, Slot] = {}
        """The class's places by ledger path."""
        self.piece: dict[str, int] = {}
        """Which of a place's pieces a name is, where it does not say so by a number."""
        tensors_of: dict[str, list[Tensor]] = defaultdict(list)
        for tensor in self.tensors:
            tensors_of[self._name(tensor.path)].append(tensor)
        for name, parts in tensors_of.items():
            slot = Slot(name, tuple(parts), self._shape(parts))
            self.by_name[name] = slot
            for tensor in parts:
                self.fused[tensor.path] = slot
                self._apart(tensor, alone=len(parts) == 1)
        alone = {tensor.path: tensor for tensor in self.tensors if len(self.fused[tensor.path].tensors) == 1}
        self._together(alone)
        self._convolved(alone)
        head = model.architecture.head
        self.tied = f"{self.modules.get('lm_head', 'lm_head')}.weight" if head is not None and head.tied else ""
        self.copies = bool(self.tied) or model.architecture.encoder is not None
        self.blocks = sum(stack.count for stack in model.architecture.stacks)
        self.idle = max(
            (int(part.idle or 0) for part in model.architecture.parts() if isinstance(part, Experts)), default=0
        )

    def with_table(self, found: list[Found]) -> list[Found]:
        """The same if copies of an embedding are stored instead of it: the first copy takes its place."""
        slot = None if self.table is None else self.fused[self.table.path]
        if slot is None or any(one.slot is not None and one.slot.tensors == slot.tensors for one in found):
            return found
        first = next((number for number, one in enumerate(found) if one.why == COPY), None)
        if first is not None:
            found[first] = Found(found[first].tensor, slot)
        return found

    def with_others(self, found: list[Found]) -> list[Found]:
        """The same if files have several models: tensors with names outside the counted model belong to another one."""
        if not self.model.left_out:
            return found
        roots = {_root(one.tensor.name) for one in found if one.slot is not None}
        others = (one.slot is None and not one.why and _root(one.tensor.name) not in roots for one in found)
        return [one._replace(why=names.OTHER_MODEL) if other else one for one, other in zip(found, others, strict=True)]

    def _name(self, path: str) -> str:
        """Name of the class's tensor that contains a ledger tensor; the ledger's name if there is no class."""
        module, leaf = paths.module_of(path), paths.name_of(path)
        hf_module, named = paths.looked_up(self.modules, module), paths.looked_up(self.named, path)
        if named is not None and not (leaf == "weight" and paths.parse(path).leaf == leaf and hf_module is not None):
            return named
        if leaf in ("weight", "bias"):
            return f"{hf_module or module}.{leaf}"
        return paths.looked_up(self.modules, path) or path

    def _apart(self, tensor: Tensor, *, alone: bool) -> None:
        """Places for the parts of fused tensors, and for tensors that files store per expert or head."""
        number = paths.parse(tensor.path).number
        module, leaf = paths.module_of(tensor.path), paths.name_of(tensor.path)
        shape = self._shape([tensor], as_counted=True)
        slot = Slot(tensor.path, (tensor,), shape)
        if number == "" or self.modules:
            self.by_name.setdefault(tensor.path, slot)
        hf_module, is_expert = paths.looked_up(self.modules, module), tensor.parameter.is_expert
        if hf_module is None:
            return
        if is_expert or not alone:
            name = f"{hf_module if is_expert else paths.module_of(hf_module)}.{paths.name_of(module)}.{leaf}"
            self.by_name.setdefault(
                name, Slot(name, (tensor,), shape, (shape[1:],) * shape[0] if is_expert else (), "expert")
            )
        elif module.endswith("_norm") and len(tensor.shape) == 2:
            heads, size = map(int, tensor.shape)
            name = f"{hf_module}.norms.{leaf}"
            self.by_name.setdefault(name, Slot(name, (tensor,), shape, ((size,),) * heads, "head"))

    def _together(self, alone: Mapping[str, Tensor]) -> None:
        """Places for tensors that files store fused and the class stores separately."""
        for name, (first, *others) in names.TOGETHER.items():
            for path in alone:
                starred, number = paths.starred(path), paths.parse(path).number
                module, leaf = paths.module_of(starred), paths.name_of(starred)
                hf_module = self.modules.get(module)
                if not module.endswith(f".{first}") or hf_module is None:
                    continue
                every = [path, *(path.replace(first, other) for other in others)]
                if all(other in alone for other in every):
                    parts = [alone[other] for other in every]
                    fused = f"{paths.numbered(paths.module_of(hf_module), number)}.{name}.{leaf}"
                    self.by_name.setdefault(fused, Slot(fused, tuple(parts), self._shape(parts)))

    def _convolved(self, alone: Mapping[str, Tensor]) -> None:
        """Places for tensors that files store separately and the class convolves as one."""
        for name, pieces in names.APART.items():
            for path in (path for path in alone if paths.among(path, [name])):
                shape = self._shape([alone[path]])
                slot = Slot(self._name(path), (alone[path],), shape, (shape,) * len(pieces), CONVOLUTION)
                for number, piece in enumerate(pieces):
                    name_in_file = f"{paths.holder_of(slot.name)}.{piece}.{paths.name_of(path)}"
                    self.by_name[name_in_file], self.piece[name_in_file] = slot, number

    def _shape(self, parts: Sequence[Tensor], *, as_counted: bool = False) -> tuple[int, ...]:
        """Shape of a class's tensor, with its parts concatenated along the output axis."""
        shape = list(fused_shape(parts))
        starred = paths.starred(parts[0].path)
        transposed = (
            len(shape) > 1 and parts[0].parameter.inputs and starred.startswith(self.model.config.transposed_weights)
        )
        if transposed and not (self.outputs_first or (as_counted and parts[0].parameter.is_expert)):
            shape[-2], shape[-1] = shape[-1], shape[-2]
        return tuple(shape)

    def place(self, tensor: FileTensor) -> Found:
        """The place of a tensor of a safetensors file."""
        if paths.EVERY in tensor.name:  # this replaces numbers below
            return Found(tensor, None, why=names.known(tensor.name) or "")
        starred, numbers = names.NUMBER.sub("*", tensor.name), names.NUMBER.findall(tensor.name)
        if match := self._match(starred, numbers):
            slot, piece = match
            if (
                slot.pieces
                and 0 <= piece - len(slot.pieces) < self.idle
                and not any("down_proj" in one.path for one in slot.tensors)
            ):
                return Found(tensor, None, why=names.IDLE)
            return Found(tensor, slot, piece)
        if found := names.quant_tensor(starred):
            base, quant = found
            if match := self._match(base, numbers):
                return Found(tensor, *match, quant=quant)
        return Found(tensor, None, why=self._why(starred, numbers, tensor))

    def place_gguf(self, tensor: FileTensor) -> Found:
        """The place of a tensor of a GGUF file; for fused tensors its shape decides."""
        if paths.EVERY in tensor.name:
            return Found(tensor, None)
        starred, numbers = names.NUMBER.sub("*", tensor.name), names.NUMBER.findall(tensor.name)
        module, leaf = paths.module_of(starred), paths.name_of(starred)
        if (module_path := names.GGUF.get(module)) is not None:
            path = f"{paths.numbered(module_path, numbers[0]) if numbers else module_path}.{leaf}"
            places = [place for place in (self.by_name.get(path), self.fused.get(path)) if place is not None]
            if places:
                return Found(tensor, next((place for place in places if place.shape == tensor.shape), places[0]))
        return Found(tensor, None, why=self._why(starred, numbers, tensor))

    def _match(self, starred: str, numbers: Sequence[str]) -> tuple[Slot, int] | None:
        for spelled in self._spellings(starred):
            left = list(numbers)
            piece = None if spelled.expert is None else int(left.pop(spelled.expert)[:9])
            name = _filled(spelled.name, left)
            piece = self.piece.get(name, piece)
            slot = self.by_name.get(name)
            if slot is not None and (slot.pieces or piece is None):
                return (slot, piece) if piece is not None else (slot._replace(pieces=()), 0)
        return None

    def _spellings(self, starred: str) -> tuple[names.Spelling, ...]:
        config = self.model.config
        return names.spellings(starred, config.base_model_path, config.checkpoint_conversion_mapping)

    def _why(self, starred: str, numbers: Sequence[str], tensor: FileTensor) -> str:
        """What a tensor without a place is, if that is known."""
        if tensor.elements == 0:
            return names.EMPTY
        for spelled in self._spellings(starred):
            if what := names.known(spelled.name):
                return what
        table = self.table
        if self.copies and table is not None and (tensor.name == self.tied or re.search(names.HEADS, starred)):
            return COPY if tensor.shape == tuple(table.shape) else ""
        if self.copies and starred.endswith("decoder.bias") and self._name("lm_head.bias") in self.by_name:
            return COPY
        if self.model.architecture.mtp is None and self._is_ahead(starred, numbers):
            return names.AHEAD
        return ""

    def _is_ahead(self, starred: str, numbers: Sequence[str]) -> bool:
        """True for a tensor of an MTP layer, within the number of layers in the config."""
        if re.search(names.MTP, starred):
            return True
        further = self.model.not_included
        if ".layers.*." not in starred or not numbers or further is None:
            return False
        return bool(0 <= int(numbers[0][:9]) - self.blocks < further.layers)


def _root(name: str) -> str:
    """Name of a tensor's list of layers, or of its module."""
    numbered = names.NUMBER.search(name)
    return paths.module_of(name) if numbered is None else name[: numbered.start()]


def _filled(starred: str, numbers: Sequence[str]) -> str:
    """The name with numbers in place of its stars."""
    pieces = starred.split("*")
    return "".join(piece + number for piece, number in zip(pieces, [*numbers, ""], strict=False))
