"""The shapes that formats pack matrices into, where they tell the shape of the matrix."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import prod
from typing import Any, NamedTuple, TypeAlias

from tfacct.loading.headers import Held
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
