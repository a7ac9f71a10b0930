"""What stands in place of attention in the reference model, by its part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfacct.architecture import parts
from tfacct.profiles import eager_recurrences, eager_rwkv, eager_ssm
from tfacct.profiles.eager_delta import DeltaNet

RUNS: Mapping[type[parts.Mixer], Any] = {
    parts.DeltaNet: DeltaNet,
    parts.Mamba: eager_ssm.Mamba,
    parts.Mamba2: eager_ssm.Mamba2,
    parts.ShortConvolution: eager_recurrences.ShortConvolution,
    parts.GatedRecurrence: eager_recurrences.GatedRecurrence,
    parts.LightningAttention: eager_recurrences.LightningAttention,
    parts.TimeMix: eager_rwkv.TimeMix,
    parts.ChannelMix: eager_rwkv.ChannelMix,
}
"""Classes of the parts that run by themselves over shapes, each as its module does."""
