"""The parts a transformer is put together from: their sizes, their axes, their lines."""

from tfacct.parts.attention import Attention, Rotary
from tfacct.parts.embedding import Embedding, Head, Positions
from tfacct.parts.feed_forward import FeedForward
from tfacct.parts.norm import Norm
from tfacct.parts.part import Part
from tfacct.parts.residual import Residual

__all__ = ["Attention", "Embedding", "FeedForward", "Head", "Norm", "Part", "Positions", "Residual", "Rotary"]
