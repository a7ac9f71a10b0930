"""Modules of the parts that stand in place of attention."""

from __future__ import annotations

from typing import Any

from tfacct.architecture import parts
from tfacct.reference.delta import DeltaNet
from tfacct.reference.lightning import LightningAttention
from tfacct.reference.lru import GatedRecurrence
from tfacct.reference.mamba import HeadedMamba, Mamba
from tfacct.reference.mamba2 import Mamba2
from tfacct.reference.mixing import Mixer, ShortConvolution
from tfacct.reference.rwkv import ChannelMix, TimeMix

MODULES: dict[type[parts.Mixer], Any] = {
    parts.Mamba: Mamba,
    parts.HeadedMamba: HeadedMamba,
    parts.Mamba2: Mamba2,
    parts.ShortConvolution: ShortConvolution,
    parts.DeltaNet: DeltaNet,
    parts.TimeMix: TimeMix,
    parts.ChannelMix: ChannelMix,
    parts.GatedRecurrence: GatedRecurrence,
    parts.LightningAttention: LightningAttention,
}


def module_of(part: parts.Mixer) -> type[Mixer] | Any:
    """Class of the module that runs a part."""
    return MODULES[type(part)]
