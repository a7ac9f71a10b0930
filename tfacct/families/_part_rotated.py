"""Shared by Llama's relatives that rotate a part of each head."""

from typing import Any, ClassVar

from tfacct.architecture.parts import Attention
from tfacct.families._base import Fraction, even, turned_part
from tfacct.families._llama_like import LlamaLike


class PartRotated(LlamaLike):
    """Llama's fields, and the part of each head that is rotated by its position."""

    partial_rotary_factor: Fraction

    uncounted: ClassVar = LlamaLike.uncounted | {"partial_rotary_factor"}

    def attention(self, **own: Any) -> Attention:
        """Llama's, with a part of each head rotated."""
        part = turned_part(self.partial_rotary_factor, self.rope_parameters)
        turned = even(int(self.head_dim * part), "partial_rotary_factor · head_dim =")
        return LlamaLike.attention(self, **{"rope_dim": turned, **own})
