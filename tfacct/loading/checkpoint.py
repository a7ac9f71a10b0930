"""Checkpoints: files with a model's weights, found in a folder, by an index, or on the hub."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tfacct.base.errors import CheckpointError, NotFoundError, cut, listed
from tfacct.loading.gguf import gguf
from tfacct.loading.headers import FileTensor, LocalFile, Source, check_names, parsed, safetensors

INDEX = "model.safetensors.index.json"
SINGLE_FILE = "model.safetensors"
LONGEST_INDEX = 30_000_000
"""Most bytes of an index."""
MOST = 300_000
"""Most tensors in all files; the largest published checkpoints have 200,000."""
MOST_FILES = 1_000
PICKLES = (".bin", ".pt", ".pth", ".ckpt")
_SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.(safetensors|gguf)")
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+ -]{0,198}")


class File(NamedTuple):
    """A file: name, bytes, tensors."""

    name: str
    bytes: int
    tensors: Sequence[FileTensor]


class Checkpoint(NamedTuple):
    """Files of one model. `gguf`: architecture in GGUF headers; empty for safetensors."""

    name: str
    files: Sequence[File]
    gguf: str = ""
    part_of: int = 0
    """Number of shards, if only this one was read; else 0."""
    claimed: int | None = None
    """Bytes of all tensors according to the index."""

    @property
    def tensors(self) -> list[FileTensor]:
        """Tensors of all files."""
        return [tensor for file in self.files for tensor in file.tensors]


class Index(NamedTuple):
    """An index of files: the file of each tensor, and the `total` of their bytes if it has one."""

    files: Mapping[str, str]
    total: int | None


def local(path: Path) -> Checkpoint:
    """Checkpoint in a file or folder. Raises TfacctError within a second, whatever the files contain."""
    if path.is_dir():
        return _folder(path)
    if path.name.endswith(".index.json"):
        return indexed(
            path.parent.resolve().name, _read_index(LocalFile(path)), lambda name: LocalFile(path.parent / name)
        )
    one = _SHARD.fullmatch(path.name)
    return together(path.name, [LocalFile(path)], part_of=int(one[3]) if one else 0)


def _folder(path: Path) -> Checkpoint:
    """Checkpoint in a folder: files in its index, a single file, or a single set of shards."""
    name = path.resolve().name
    try:
        names = sorted(os.listdir(path))  # noqa: PTH208  a path for each of a million names takes too long
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from None
    if INDEX in names:
        return indexed(name, _read_index(LocalFile(path / INDEX)), lambda file: LocalFile(path / file))
    if SINGLE_FILE in names:
        return together(name, [LocalFile(path / SINGLE_FILE)])
    found = [file for file in names if file.endswith((".safetensors", ".gguf"))]
    if not found:
        pickles = [file for file in names if file.endswith(PICKLES)]
        hint = "it contains pickles, which can run code, so they are not opened" if pickles else None
        raise NotFoundError(f"{path} has no safetensors or GGUF files", hint)
    alone = len(found) == 1 and not _SHARD.fullmatch(found[0])
    return together(name, [LocalFile(path / file) for file in (found if alone else _shard_set(path, found))])


def _shard_set(path: Path, names: Sequence[str]) -> Sequence[str]:
    """Files of a set of shards. Raises CheckpointError if one is missing, NotFoundError if there are other files."""
    parts = [_SHARD.fullmatch(name) for name in names]
    sets = {(part[1], part[3], part[4]) for part in parts if part}
    if len(sets) != 1 or not all(parts):
        raise NotFoundError(f"{path} has files of several models: {listed(names, 4)}", "give one of the files")
    ((stem, count, ending),) = sets
    wanted = [f"{stem}-{number:05}-of-{count}.{ending}" for number in range(1, min(int(count), MOST_FILES) + 1)]
    if missing := [name for name in wanted if name not in set(names)]:
        raise CheckpointError(f"{path} lacks {listed(missing, 4)}")
    return wanted


def _read_index(source: Source) -> Index:
    if source.size > LONGEST_INDEX:
        raise CheckpointError(f"{source.name} has {source.size:,} bytes; the maximum is {LONGEST_INDEX:,}")
    return index(source.name, source.read(0, source.size))


def claimed(folder: Path) -> int | None:
    """Bytes of all tensors according to a folder's index; None without a readable index."""
    try:
        return _read_index(LocalFile(folder / INDEX)).total
    except CheckpointError:
        return None


def index(where: str, data: bytes) -> Index:
    """Index with a `weight_map` from tensors to files. Raises CheckpointError."""
    if data.count(b",") > MOST + 100:
        raise CheckpointError(f"{where} names more than {MOST:,} tensors")
    read = parsed(where, data)
    fields = read if isinstance(read, dict) else {}
    files, about = fields.get("weight_map"), fields.get("metadata")
    if not isinstance(files, dict) or not all(isinstance(file, str) for file in files.values()):
        raise CheckpointError(f"{where} has no weight_map from tensors to files")
    check_names(where, files)
    for name in dict.fromkeys(files.values()):
        if not _PLAIN.fullmatch(name) or not name.endswith(".safetensors"):
            raise CheckpointError(f"{where} names {cut(name)!r}, which is not a safetensors file in its folder")
    total = about.get("total_size") if isinstance(about, dict) else None
    return Index(files, total if type(total) is int else None)


def files_of(name: str, found: Index) -> list[str]:
    """Names of the files in an index. Raises CheckpointError."""
    names = sorted(set(found.files.values()))
    if len(names) > MOST_FILES:
        raise CheckpointError(f"the index of {name} names {len(names):,} files; the maximum is {MOST_FILES:,}")
    return names


def indexed(name: str, by_tensor: Index, source: Callable[[str], Source]) -> Checkpoint:
    """Checkpoint of the files in an index, which must match the index."""
    where, names = by_tensor.files, files_of(name, by_tensor)
    found = together(name, [source(file) for file in names], called=names)
    for file in found.files:
        wrong = next((tensor for tensor in file.tensors if where.get(tensor.name) != file.name), None)
        if wrong is not None:
            raise CheckpointError(f"{file.name} has {wrong.name!r}, which is not in the index")
    there = {tensor.name for tensor in found.tensors}
    if lost := next((tensor for tensor in where if tensor not in there), None):
        raise CheckpointError(f"{where[lost]} lacks {lost!r}, which the index lists there")
    return found._replace(claimed=by_tensor.total)


def together(name: str, sources: Sequence[Source], *, part_of: int = 0, called: Sequence[str] = ()) -> Checkpoint:
    """Checkpoint of these files. Raises CheckpointError if a tensor is in two files."""
    files: list[File] = []
    seen: set[str] = set()
    architectures: list[str] = []
    for number, source in enumerate(sources):
        if source.name.endswith(".gguf"):
            header = gguf(source)
            tensors = header.tensors
            architectures.append(str(header.fields.get("general.architecture") or "unknown")[:40])
        else:
            tensors = safetensors(source)
        for tensor in tensors:
            if tensor.name in seen:
                raise CheckpointError(f"{source.name}: {tensor.name!r} is also in another file")
            seen.add(tensor.name)
        if len(seen) > MOST:
            raise CheckpointError(f"{name} has more than {MOST:,} tensors")
        files.append(File(called[number] if called else Path(source.name).name, source.size, tensors))
    return Checkpoint(name, files, architectures[0] if architectures else "", part_of if part_of > 1 else 0)
