"""Headers of safetensors files: tensors with shapes and bytes. Tensor data is not read.

A file has 8 bytes of length, a JSON header of that length, and the contiguous data of the tensors. The header is
checked: every byte belongs to one tensor, and the bytes of each tensor match its dtype and shape.
https://huggingface.co/docs/safetensors
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from tfacct.base.errors import CheckpointError, cut
from tfacct.base.spelling import spelled
from tfacct.loading.files import READ, json_fault, unique_keys

LONGEST = 10_000_000
"""Most bytes of a header. The format allows ten times as many; the largest published ones have a tenth."""
MOST = 100_000
"""Most tensors in a file."""
LONGEST_NAME = 256
MOST_DIMS = 16
BOUND = 2**63
"""Upper bound of sizes and offsets."""

BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "I16": 16, "U16": 16, "I32": 32, "U32": 32, "I64": 64, "U64": 64,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "F8_E3M4": 8, "F16": 16, "BF16": 16, "F32": 32, "F64": 64, "C64": 64,
}  # fmt: skip
"""Bits per element by dtype in a header."""
CALLED = {
    "BF16": "bf16", "F16": "fp16", "F32": "fp32", "F64": "fp64", "F8_E4M3": "fp8", "F4": "fp4", "C64": "complex64",
    "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64",
    "U8": "uint8", "U16": "uint16", "U32": "uint32", "U64": "uint64",
}  # fmt: skip
"""Names of dtypes in tables; for others, the header's name in lowercase."""
OTHERS: Sequence[tuple[bytes, str]] = (
    (b"GGUF", "it is a GGUF file: its name should end in .gguf"),
    (b"PK\x03\x04", "it is a zip file from torch.save: pickles can run code, so they are not opened"),
    (b"\x80", "it is a pickle from torch.save: pickles can run code, so they are not opened"),
    (b"version https://git-lfs", "it is a Git LFS pointer: `git lfs pull` downloads the file"),
    (b"<", "it is a web page, not the file itself"),
)
"""First bytes of files that are mistaken for safetensors, with messages."""


class FileTensor(NamedTuple):
    """A tensor in a file. `dtype` is its name in tables; for formats in blocks, the format's name."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int

    @property
    def elements(self) -> int:
        """Number of elements."""
        return prod(self.shape)


class Source(Protocol):
    """A local or remote file."""

    @property
    def name(self) -> str:
        """Name for messages."""

    @property
    def size(self) -> int:
        """Size of the file in bytes."""

    def read(self, at: int, count: int) -> bytes:
        """Read `count` bytes from `at`, fewer at the end of the file. Raises TfacctError."""


class LocalFile:
    """A local regular file. Raises CheckpointError."""

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, str(path)
        try:
            state = path.stat()
        except (OSError, ValueError) as error:
            raise self._unread(error) from None
        if not stat.S_ISREG(state.st_mode):
            raise CheckpointError(f"cannot read {path}: it is not a regular file")
        self.size = state.st_size

    def read(self, at: int, count: int) -> bytes:
        """Read `count` bytes from `at`, fewer at the end of the file. Raises CheckpointError."""
        try:
            with os.fdopen(os.open(self.path, READ), "rb", buffering=0) as file:
                file.seek(at)
                data: bytes | None = file.read(count)
        except OSError as error:
            raise self._unread(error) from None
        return data or b""

    def _unread(self, error: Exception) -> CheckpointError:
        return CheckpointError(f"cannot read {self.path}: {getattr(error, 'strerror', None) or error}")


def safetensors(source: Source) -> list[FileTensor]:
    """Tensors of a file in the order of their data. Raises CheckpointError for an invalid file."""
    length = int.from_bytes(source.read(0, 8), "little")
    if source.size < 8:
        raise CheckpointError(f"{source.name} is not a safetensors file: it has {source.size} bytes")
    _check_first_bytes(source)
    if length > source.size - 8:
        raise CheckpointError(
            f"{source.name} is truncated or not a safetensors file: its header has {length:,} bytes, the file"
            f" {source.size:,}"
        )
    if length > LONGEST:
        raise CheckpointError(f"the header of {source.name} has {length:,} bytes; the maximum is {LONGEST:,}")
    data = source.read(8, length)
    if len(data) != length:
        raise CheckpointError(f"{source.name} is truncated: its header ends after {len(data):,} of {length:,} bytes")
    return _placed(source.name, _entries(source.name, data), source.size - 8 - length)


def _check_first_bytes(source: Source) -> None:
    start = source.read(0, 32)
    for beginning, what in OTHERS:
        if start.startswith(beginning) and start[8:9] != b"{":
            raise CheckpointError(f"{source.name} is not a safetensors file: {what}")
    if "".join(start[:8].decode("latin-1").split()).isprintable():  # a length past any file
        log = spelled(f"`tfacct engine vllm MODEL --on DEVICE --log {source.name}`", "engine(log=...)")
        raise CheckpointError(f"{source.name} is text, not a safetensors file", f"{log} reads a log of vLLM")


def _entries(name: str, data: bytes) -> dict[str, Any]:
    """The header's fields by tensor, unchecked."""
    where = f"the header of {name}"
    if not data.startswith(b"{"):
        raise CheckpointError(f"{name} is not a safetensors file: its header does not start with {{")
    if any(data.count(sign) > most * MOST for sign, most in ((b",", 8), (b":", 5), (b"{", 2))):
        raise CheckpointError(f"{where} names more than {MOST:,} tensors")
    fields = parsed(where, data)
    if not isinstance(fields, dict):
        raise CheckpointError(f"{where} is not a JSON object")
    about = fields.pop("__metadata__", None) or {}
    if not isinstance(about, dict) or not all(isinstance(text, str) for text in about.values()):
        raise CheckpointError(f"{where}: __metadata__ has values that are not strings")
    if len(fields) > MOST:
        raise CheckpointError(f"{where} names {len(fields):,} tensors; the maximum is {MOST:,}")
    return fields


def parsed(where: str, data: bytes) -> Any:
    """Parse JSON without duplicate keys. Raises CheckpointError that starts with `where`."""
    import json

    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=unique_keys, parse_constant=_refused)
    except UnicodeDecodeError:
        raise CheckpointError(f"{where} is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise CheckpointError(f"{where} is not JSON: {json_fault(error)}") from None
    except RecursionError:
        raise CheckpointError(f"{where} is nested too deeply") from None
    except KeyError as error:
        raise CheckpointError(f"{where} has {cut(str(error.args[0]))!r} twice") from None
    except ValueError:
        raise CheckpointError(f"{where} has an invalid size") from None


def _refused(_: str) -> None:
    raise ValueError


def check_names(where: str, names: Iterable[str]) -> None:
    """Check names of tensors before one is printed. Raises CheckpointError."""
    for name in names:
        if not name or len(name) > LONGEST_NAME:
            raise CheckpointError(f"{where}: a tensor's name has {len(name):,} characters")
        if not name.isprintable():
            raise CheckpointError(f"{where}: {name!r} is not a valid name: it contains control characters")


def _placed(file: str, fields: dict[str, Any], size: int) -> list[FileTensor]:
    """Tensors, whose data must cover each of the `size` bytes after the header exactly once."""
    check_names(file, fields)
    placed = [_with_offset(file, name, entry) for name, entry in fields.items()]
    return in_order(file, placed, size)


def in_order(file: str, placed: Iterable[tuple[int, FileTensor]], size: int, alignment: int = 1) -> list[FileTensor]:
    """Tensors in the order of their data, from the offset of each. Raises CheckpointError unless the data, with padding
    up to the next offset, covers `size` bytes exactly once."""
    ordered = sorted(placed, key=lambda one: (one[0], one[1].bytes))
    end, before = 0, ""
    for start, tensor in ordered:
        if start < end:
            raise CheckpointError(f"{file}: {before!r} and {tensor.name!r} overlap")
        if start != padded(end, alignment):
            raise CheckpointError(f"{file}: {start - end:,} bytes before {tensor.name!r} do not belong to a tensor")
        end, before = start + tensor.bytes, tensor.name
        if end > size:
            raise CheckpointError(
                f"{file} is truncated: {tensor.name!r} ends at byte {end:,} of its tensors, but only"
                f" {max(size, 0):,} are present"
            )
    if size > padded(end, alignment):
        raise CheckpointError(f"{file}: {size - end:,} bytes at its end do not belong to a tensor")
    return [tensor for _, tensor in ordered]


def padded(at: int, alignment: int) -> int:
    """The next multiple of the alignment."""
    return -(-at // alignment) * alignment


def _with_offset(file: str, name: str, entry: Any) -> tuple[int, FileTensor]:
    """A tensor, and where its data starts."""
    if not isinstance(entry, dict) or not {"dtype", "shape", "data_offsets"} <= entry.keys():
        raise CheckpointError(f"{file}: {name!r} has no dtype, no shape or no data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in BITS:
        raise CheckpointError(f"{file}: {name!r} has an unknown dtype: {cut(repr(dtype))}")
    if not sizes(shape, MOST_DIMS):
        raise CheckpointError(f"{file}: {name!r} has an invalid shape: {cut(repr(shape))}")
    if not sizes(offsets, 2) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise CheckpointError(f"{file}: {name!r} has invalid offsets: {cut(repr(offsets))}")
    start, stop = offsets
    expected, rest = divmod(prod(shape) * BITS[dtype], 8)
    if rest or expected != stop - start:
        raise CheckpointError(
            f"{file}: {name!r} has {stop - start:,} bytes, but {dtype} of shape {cut(str(shape))} takes"
            f" {cut(f'{expected:,}')}"
        )
    return start, FileTensor(name, CALLED.get(dtype, dtype.lower()), tuple(shape), expected)


def sizes(value: Any, most: int) -> bool:
    """True for a list of at most `most` valid sizes."""
    return isinstance(value, list) and len(value) <= most and all(type(n) is int and 0 <= n < BOUND for n in value)
