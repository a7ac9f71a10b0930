"""Headers of GGUF files, as written by llama.cpp: tensors with types, shapes and bytes.

The reader of the `gguf` package trusts the header: it creates two arrays for every word of a vocabulary, iterates over
lists of 2⁶³ items, and multiplies sizes until they overflow. This module reads only the fields that are needed and
checks each. https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import struct
from math import prod
from typing import Any, NamedTuple

from tfacct.base.errors import CheckpointError, cut
from tfacct.ledger.formats import GGML
from tfacct.loading.headers import BOUND, MOST, FileTensor, Source, check_names, in_order, padded

LONGEST = 64_000_000
"""Most bytes of a header, which includes the vocabulary."""
MOST_ITEMS = 2_000_000
"""Most strings in all lists; the largest vocabularies have 262,144 words and as many merges."""
MOST_FIELDS = 10_000
MOST_DIMS = 4
ALIGNMENT = 32
CHUNK = 1 << 20

TYPES = {
    0: ("fp32", 1, 4), 1: ("fp16", 1, 2), 24: ("int8", 1, 1), 25: ("int16", 1, 2), 26: ("int32", 1, 4),
    27: ("int64", 1, 8), 28: ("fp64", 1, 8), 30: ("bf16", 1, 2),
    **{
        number: (name, *GGML[name])
        for number, name in {
            2: "q4_0", 3: "q4_1", 6: "q5_0", 7: "q5_1", 8: "q8_0", 9: "q8_1", 10: "q2_k", 11: "q3_k", 12: "q4_k",
            13: "q5_k", 14: "q6_k", 15: "q8_k", 16: "iq2_xxs", 17: "iq2_xs", 18: "iq3_xxs", 19: "iq1_s", 20: "iq4_nl",
            21: "iq3_s", 22: "iq2_s", 23: "iq4_xs", 29: "iq1_m", 34: "tq1_0", 35: "tq2_0", 39: "mxfp4", 40: "nvfp4",
        }.items()
    },
}  # fmt: skip
"""Types by number: name, elements per block, bytes per block. ggml.h, `ggml_type`."""
SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
TEXT, LIST = 8, 9


class Header(NamedTuple):
    """Header of a GGUF file: fields with one value, and tensors."""

    fields: dict[str, Any]
    tensors: list[FileTensor]


class _Cursor:
    """Reads a file sequentially, up to the longest header."""

    def __init__(self, source: Source) -> None:
        self.source, self.at, self._data = source, 0, bytearray()

    def take(self, count: int) -> bytes:
        """The next bytes."""
        stop = self.at + count
        self._read_to(stop)
        data = bytes(self._data[self.at : stop])
        self.at = stop
        return data

    def _read_to(self, stop: int) -> None:
        if stop > self.source.size:
            raise CheckpointError(f"{self.source.name} is truncated: its header extends past the end")
        if stop > LONGEST:
            raise CheckpointError(f"the header of {self.source.name} is longer than {LONGEST:,} bytes")
        while stop > len(self._data):
            piece = self.source.read(len(self._data), max(CHUNK, stop - len(self._data)))
            if not piece:
                raise CheckpointError(f"{self.source.name} is truncated")
            self._data += piece

    def number(self, how: str) -> Any:
        """The next number."""
        return struct.unpack(how, self.take(struct.calcsize(how)))[0]

    def text(self, most: int = LONGEST) -> str:
        """The next string."""
        length = self.number("<Q")
        if length > most:
            raise CheckpointError(
                f"{self.source.name}: the header has a string of {length:,} bytes; the maximum is {most:,}"
            )
        return self.take(length).decode("utf-8", "replace")

    def skip_texts(self, count: int) -> None:
        """Skip a list of strings, possibly a million."""
        length, at = struct.Struct("<Q").unpack_from, self.at
        for _ in range(count):
            if at + 8 > len(self._data):
                self._read_to(at + 8)
            at += 8 + length(self._data, at)[0]
        self._read_to(at)
        self.at = at


def gguf(source: Source) -> Header:
    """Fields and tensors of a file. Raises CheckpointError for an invalid file."""
    cursor, name = _Cursor(source), source.name
    if source.size < 24 or cursor.take(4) != b"GGUF":
        raise CheckpointError(f"{name} is not a GGUF file: it does not start with GGUF")
    version = cursor.number("<I")
    if version not in (2, 3):
        other = "big-endian" if version & 0xFFFF == 0 else f"of version {version}"
        raise CheckpointError(f"{name} is {other}: only little-endian versions 2 and 3 are supported")
    count, fields = cursor.number("<Q"), cursor.number("<Q")
    if count > MOST or fields > MOST_FIELDS:
        raise CheckpointError(
            f"{name} claims {count:,} tensors and {fields:,} fields; the maximum is {MOST:,} and {MOST_FIELDS:,}"
        )
    known = _fields(cursor, fields)
    alignment = known.get("general.alignment", ALIGNMENT)
    if not isinstance(alignment, int) or isinstance(alignment, bool) or not 1 <= alignment <= 1 << 20:
        raise CheckpointError(f"{name} has an invalid alignment: {cut(repr(alignment))} bytes")
    return Header(known, _tensors(cursor, count, alignment))


def _fields(cursor: _Cursor, count: int) -> dict[str, Any]:
    """Fields with one value; lists are skipped."""
    found: dict[str, Any] = {}
    left = MOST_ITEMS
    for _ in range(count):
        key, kind = cursor.text(1 << 16), cursor.number("<I")
        if key in found:
            raise CheckpointError(f"{cursor.source.name} has field {cut(key)!r} twice")
        found[key] = None
        if kind == LIST:
            inner, length = cursor.number("<I"), cursor.number("<Q")
            if inner == TEXT and length <= left:
                left -= length
                cursor.skip_texts(length)
            elif inner in SCALARS and length <= LONGEST:
                cursor.take(length * struct.calcsize(SCALARS[inner]))
            else:
                raise CheckpointError(f"{cursor.source.name}: {cut(key)!r} is an unsupported list of {length:,} items")
        elif kind == TEXT:
            found[key] = cursor.text()
        elif kind in SCALARS:
            found[key] = cursor.number(SCALARS[kind])
        else:
            raise CheckpointError(f"{cursor.source.name}: {cut(key)!r} has unknown type {kind}")
    return found


def _tensors(cursor: _Cursor, count: int, alignment: int) -> list[FileTensor]:
    """Tensors, whose bytes must be contiguous except for padding."""
    name, found = cursor.source.name, {}
    for _ in range(count):
        tensor, offset = _tensor(cursor)
        if tensor.name in found:
            raise CheckpointError(f"{name} has {tensor.name!r} twice")
        found[tensor.name] = offset, tensor
    check_names(name, found)
    in_order(name, found.values(), cursor.source.size - padded(cursor.at, alignment), alignment)
    return [tensor for _, tensor in found.values()]


def _tensor(cursor: _Cursor) -> tuple[FileTensor, int]:
    """The next tensor and the offset of its bytes. Sizes are stored innermost first."""
    name, dims = cursor.text(1 << 16), cursor.number("<I")
    if dims > MOST_DIMS:
        raise CheckpointError(
            f"{cursor.source.name}: {cut(name)!r} has {dims:,} dimensions; the maximum is {MOST_DIMS}"
        )
    inner = [cursor.number("<Q") for _ in range(dims)]
    kind, offset = cursor.number("<I"), cursor.number("<Q")
    if kind not in TYPES:
        raise CheckpointError(f"{cursor.source.name}: {cut(name)!r} has an unknown type: {kind}")
    type_name, block, bytes_ = TYPES[kind]
    elements = prod(inner)
    if max(elements, offset, *inner, 0) >= BOUND or (inner[0] if inner else 1) % block:
        raise CheckpointError(f"{cursor.source.name}: {cut(name)!r} has sizes that do not fit {type_name}: {inner}")
    return FileTensor(name, type_name, tuple(reversed(inner)), elements // block * bytes_), offset
