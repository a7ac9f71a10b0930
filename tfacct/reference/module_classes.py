"""The module class of each part."""

from __future__ import annotations

from tfacct.architecture import parts
from tfacct.reference.attention import Attention
from tfacct.reference.cross import CrossAttention
from tfacct.reference.delta import DeltaNet
from tfacct.reference.experts import Experts
from tfacct.reference.latent import LatentAttention
from tfacct.reference.lightning import LightningAttention
from tfacct.reference.mamba import Mamba
from tfacct.reference.mamba2 import Mamba2
from tfacct.reference.mixing import ShortConvolution
from tfacct.reference.modules import FeedForward
from tfacct.reference.part_module import PartModule, family_module
from tfacct.reference.shared import AdaptedFeedForward, JoinedAttention, SharedOutput

MODULES: dict[type[parts.Part], type[PartModule]] = {
    parts.Attention: Attention,
    parts.JoinedAttention: JoinedAttention,
    parts.LatentAttention: LatentAttention,
    parts.CrossAttention: CrossAttention,
    parts.Mamba: Mamba,
    parts.Mamba2: Mamba2,
    parts.ShortConvolution: ShortConvolution,
    parts.DeltaNet: DeltaNet,
    parts.LightningAttention: LightningAttention,
    parts.FeedForward: FeedForward,
    parts.AdaptedFeedForward: AdaptedFeedForward,
    parts.Experts: Experts,
    parts.SharedOutput: SharedOutput,
}
"""Modules of the parts of layers."""


def module_class(part: parts.Part) -> type[PartModule]:
    """Module class of a part of a layer. Raises TypeError."""
    found: type[PartModule] | None = family_module(part)
    if found is not None:
        return found
    if type(part) not in MODULES:
        raise TypeError(f"the reference model has no module for {type(part).__name__}")
    return MODULES[type(part)]
