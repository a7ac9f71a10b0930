"""Checkpoints as tests write them: headers and tensors of a class."""

import json
import struct
import warnings
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import pytest

import tfacct
from tests.helpers.lazy import lazy
from tests.helpers.models import tiny
from tfacct.loading.headers import BITS
from tfacct.loading.model import LoadedModel

hf, hf_inside = lazy("tfacct.reference.hf"), lazy("tfacct.reference.hf_inside")

Tensors = Mapping[str, tuple[str, tuple[int, ...]]]
"""Dtype and shape by name, as a header has them."""


def written(file: Path, tensors: Tensors) -> Path:
    """A safetensors file of these tensors, by hand: a header, then zeros."""
    header, at = {}, 0
    for name, (dtype, shape) in tensors.items():
        size = prod(shape) * BITS[dtype] // 8
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        out.truncate(8 + len(text) + at)
    return file


def of_class(ours: LoadedModel, dtype: str = "BF16") -> dict[str, tuple[str, tuple[int, ...]]]:
    """The tensors of a model's class, built on meta by transformers."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    model = hf.build(ours.of_class, ours.config.task_head.auto)
    return {name: (dtype, tuple(parameter.shape)) for name, parameter in model.named_parameters()}


def saved(name: str, path: Path, dtype: str = "float32", **how: Any) -> Path:
    """A model of the family, with random numbers, as `save_pretrained` writes it."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    ours = tiny(name)
    made, auto = hf.config_of(ours.of_class), ours.config.task_head.auto
    maker = hf.maker(auto)
    whole = None if auto.startswith("Auto") else hf_inside.composite_config(maker.__self__, made)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        maker(made if whole is None else whole).to(getattr(torch, dtype)).save_pretrained(path, **how)
    return path


def _all_have_their_line(name: str, path: Path) -> None:
    """Check the folder with the config that the class wrote, or with the family's if it has no class."""
    ours = tiny(name)
    files = saved(name, path)
    report = tfacct.load(dict(ours.raw)).checkpoint(files) if ours.config.hf_model_type else tfacct.checkpoint(files)
    assert report.differences == []
    assert report.equal_tensors == len(ours.ledger.tensors(unfolded=True))


GOOD = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}


def laid(header: object, size: int = 24, length: int | None = None) -> bytes:
    """A file with this header, followed by so many bytes."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + bytes(size)


def one(**fields: Any) -> dict[str, Any]:
    return {"w": {**GOOD, **fields}}


def two(first: tuple[int, int], second: tuple[int, int]) -> dict[str, Any]:
    return {
        name: {"dtype": "U8", "shape": [stop - start], "data_offsets": [start, stop]}
        for name, (start, stop) in {"a": first, "b": second}.items()
    }


BROKEN: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "it has 0 bytes"),
    "seven bytes": (bytes(7), "it has 7 bytes"),
    "a header of 2^63": (laid(one(), length=1 << 63), "its header has 9,223,372,036,854,775,808 bytes"),
    "a header past the end": (laid(one(), length=10_000), "its header has 10,000 bytes"),
    "a header cut short": (laid(one(), 0)[:30], "truncated or not a safetensors file"),
    "a log": (b"INFO 11-29\tModel loading took 15.3 GiB", "--log"),
    "no header": (laid(b""), "does not start with {"),
    "tensors cut short": (laid(one(), 23), "'w' ends at byte 24 of its tensors, but only 23 are present"),
    "bytes too many": (laid(one(), 25), "1 bytes at its end do not belong to a tensor"),
    "a hole": (laid(two((0, 4), (5, 24))), "1 bytes before 'b' do not belong to a tensor"),
    "a hole in front": (laid(two((4, 8), (8, 24))), "4 bytes before 'a' do not belong to a tensor"),
    "an overlap": (laid(two((0, 12), (11, 24))), "'a' and 'b' overlap"),
    "the same bytes twice": (laid(two((0, 24), (0, 24))), "'a' and 'b' overlap"),
    "past the end": (laid(one(shape=[1 << 40], data_offsets=[0, 1 << 42])), "ends at byte 4,398,046,511,104"),
    "offsets of 2^64": (laid(one(data_offsets=[0, 1 << 64])), "invalid offsets"),
    "offsets backwards": (laid(one(data_offsets=[24, 0])), "invalid offsets"),
    "offsets below 0": (laid(one(data_offsets=[-24, 0])), "invalid offsets"),
    "one offset": (laid(one(data_offsets=[0])), "invalid offsets"),
    "offsets of text": (laid(one(data_offsets=["0", "24"])), "invalid offsets"),
    "a shape that wraps": (laid(one(shape=[1 << 62, 1 << 62, 8])), "F32 of shape [4611686018427387904"),
    "a shape below 0": (laid(one(shape=[-2, -3])), "an invalid shape"),
    "a shape of halves": (laid(one(shape=[2.0, 3])), "an invalid shape"),
    "a shape of switches": (laid(one(shape=[True, 6])), "an invalid shape"),
    "a shape of shapes": (laid(one(shape=[[2], 3])), "an invalid shape"),
    "a shape without end": (laid(one(shape=[1] * 5000)), "an invalid shape"),
    "another size": (laid(one(dtype="F16")), "'w' has 24 bytes, but F16 of shape [2, 3] takes 12"),
    "half a byte": (laid(one(dtype="F4", shape=[47])), "'w' has 24 bytes, but F4 of shape [47] takes 23"),
    "a dtype that nobody knows": (laid(one(dtype="F31")), "an unknown dtype: 'F31'"),
    "a dtype that is a list": (laid(one(dtype=["F32"])), "an unknown dtype"),
    "no dtype": (laid({"w": {"shape": [2, 3], "data_offsets": [0, 24]}}), "has no dtype, no shape or no data_offsets"),
    "a tensor that is a number": (laid({"w": 3}), "has no dtype, no shape or no data_offsets"),
    "a name with an escape": (laid({"\x1b[31mred": GOOD}), "it contains control characters"),
    "a name with a line": (laid({"a\nb": GOOD}), "it contains control characters"),
    "a name without end": (laid({"w" * 10_000: GOOD}), "a tensor's name has 10,000 characters"),
    "a name of nothing": (laid({"": GOOD}), "a tensor's name has 0 characters"),
    "a name twice": (laid(b'{"w": ' + json.dumps(GOOD).encode() + b', "w": ' + json.dumps(GOOD).encode() + b"}"),
                     "has 'w' twice"),
    "a key twice": (laid(b'{"w": {"dtype": "F32", "dtype": "F16"}}'), "has 'dtype' twice"),
    "a list": (laid([]), "does not start with {"),
    "half of JSON": (laid(b'{"w": {"dtype"'), "is not JSON"),
    "no number": (laid(b'{"w": {"dtype": "F32", "shape": [NaN], "data_offsets": [0, 24]}}'), "an invalid size"),
    "a number without end": (laid(b'{"w": ' + b"9" * 5000 + b"}"), "an invalid size"),
    "nesting": (laid(b'{"w": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"), "nested too deeply"),
    "many braces": (laid(b'{"w": [' + b"{}," * 700_000 + b"{}]}"), "names more than 100,000 tensors"),
    "too many tensors": (laid(b"{" + b",".join(b'"%d":1' % n for n in range(100_001)) + b"}"), "names 100,001 tensors"),
    "many commas": (laid(b'{"w": [' + b"1," * 900_000 + b"1]}"), "names more than 100,000 tensors"),
    "a header of 10 MB": (laid(b"{" + b" " * 9_999_998 + b"}"), "24 bytes at its end do not belong to a tensor"),
    "a larger header": (laid(b"{" + b" " * 9_999_999 + b"}"), "the maximum is 10,000,000"),
    "metadata of numbers": (laid({"__metadata__": {"a": 1}, **one()}), "values that are not strings"),
    "no text": (laid(b"{\xff\xfe}"), "is not UTF-8"),
    "a pickle": (b"\x80\x02}q\x00." + bytes(40), "can run code, so they are not opened"),
    "a zip": (b"PK\x03\x04" + bytes(40), "can run code, so they are not opened"),
    "a pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "`git lfs pull` downloads the file"),
    "a page": (b"<html><body>log in</body></html>" + bytes(20), "a web page"),
    "a GGUF": (b"GGUF" + bytes(60), "its name should end in .gguf"),
}  # fmt: skip


# GGUF


def text(words: str | bytes) -> bytes:
    data = words.encode() if isinstance(words, str) else words
    return struct.pack("<Q", len(data)) + data
