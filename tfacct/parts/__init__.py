"""The parts a transformer is put together from: their sizes, their axes, their lines."""

from tfacct.parts.attention import Attention, Grouped, QKNorm, Rotary
from tfacct.parts.cross import CrossAttention, RelativeBias
from tfacct.parts.embedding import Embedding, Head, Positions, Segments
from tfacct.parts.experts import Experts
from tfacct.parts.feed_forward import FeedForward
from tfacct.parts.joining import Joining
from tfacct.parts.latent import LatentAttention
from tfacct.parts.mixer import Mixer
from tfacct.parts.norm import Norm
from tfacct.parts.part import Part
from tfacct.parts.residual import Residual

__all__ = [
    "Attention",
    "CrossAttention",
    "Embedding",
    "Experts",
    "FeedForward",
    "Grouped",
    "Head",
    "Joining",
    "LatentAttention",
    "Mixer",
    "Norm",
    "Part",
    "Positions",
    "QKNorm",
    "RelativeBias",
    "Residual",
    "Rotary",
    "Segments",
]
