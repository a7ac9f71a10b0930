"""MiniMax-Text-01 as its own files spell it: as MiniMax-M1's."""

from typing import ClassVar

from tfacct.families.minimax_m1 import Config as MiniMaxM1

RELEASED = "2025-01"


class Config(MiniMaxM1):
    """The fields of MiniMax-Text-01's own code."""

    stems: ClassVar = ("MiniMaxText01", "MiniMax")
