"""Dtypes of numbers, by their bytes, and devices."""

from __future__ import annotations

from tfacct.shapes.eager import FULL


class DType(int):
    """Bytes of a number, and whether it is none that counts; 0 on a device whose memory is not asked for."""

    floating: bool

    def __new__(cls, size: int, *, floating: bool = True) -> DType:
        made = super().__new__(cls, size)
        made.floating = floating
        return made


BF16, FP32, FP64 = DType(2), DType(FULL), DType(8)
LONG, BOOL = DType(8, floating=False), DType(1, floating=False)
ELSEWHERE = DType(0, floating=False)
"""Numbers on a device that is not asked for its memory."""


class Device:
    """A device, by its kind; while it is entered it is the one where nothing is said."""

    default: Device

    def __init__(self, kind: str) -> None:
        self.type = kind

    def __enter__(self) -> Device:
        self.before, Device.default = Device.default, self
        return self

    def __exit__(self, *_: object) -> None:
        Device.default = self.before


META, CPU = Device("meta"), Device("cpu")
Device.default = CPU
