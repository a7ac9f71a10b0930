"""Attention whose queries and keys pass two convolutions over tokens, and half of whose values are a token late.

Figliolia et al., "Compressed Convolutional Attention" (arXiv 2510.04476); the order and the shapes of the products:
transformers' ZayaCCAProjection.
"""

from __future__ import annotations

from typing import ClassVar

from tfacct.architecture.parts.attention import Attention
from tfacct.architecture.parts.part import Part
from tfacct.base.record import record
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import Line, Matmul, Pointwise, State


@record(kw_only=True)
class ConvolvedAttention(Attention):
    """Attention whose queries and keys go through a depthwise convolution, which sees `first` tokens before one, then
    through one of each head's numbers, which sees `second`; the means of a key and its queries are added to both. Their
    lengths are made equal, and a learned number of each key head multiplies its keys. Of all numbers of a token's
    values half are made of the token, half of the one before it.

    The queries and keys of the last tokens are kept as they come, so the first convolution runs over those that the
    second needs once more. `half`: half the size of a head; `head_dim` follows from it.
    """

    half: Size
    first: Size
    second: Size
    head_dim: Size = 0

    mesh_unsupported: ClassVar[str] = "attention whose queries and keys pass convolutions"
    letters: ClassVar[dict[str, str]] = {
        **{field: letter for field, letter in Attention.letters.items() if field != "head_dim"},
        "half": "Hj",
        "first": "Ka",
        "second": "Ks",
    }
    legend: ClassVar[dict[str, str]] = {
        **{letter: Attention.legend[letter] for letter in ("D", "N", "K", "G", "H", "Hr", "W")},
        "Hj": "half the size of one head",
        "Ho": "numbers of a head behind the second convolution of queries and keys, 2 · Hj",
        "Nj": "heads of queries and of keys, K · G + K",
        "Ka": "tokens before a token's own that the first convolution of queries and keys sees",
        "Kq": "tokens that it sees, Ka + 1",
        "Ks": "tokens before a token's own that the second convolution of queries and keys sees",
        "Kw": "tokens that it sees, Ks + 1",
        "Kl": "tokens that both see before a token's own, Ka + Ks",
    }
    made: ClassVar[dict[str, str]] = {
        **Attention.made,
        "H": "2 · Hj",
        "Ho": "2 · Hj",
        "Nj": "K · G + K",
        "Kq": "Ka + 1",
        "Kw": "Ks + 1",
        "Kl": "Ka + Ks",
    }
    at_most: ClassVar[dict[str, str]] = {"Hr": "Hj"}

    def __post_init__(self) -> None:
        object.__setattr__(self, "head_dim", 2 * self.half)

    def sizes(self) -> dict[str, str]:
        """Return field → axis."""
        return Part.sizes(self)

    def lines(self, at: str) -> tuple[Line, ...]:
        """Products of a token, convolutions, means, lengths, then attention's own scores and values."""
        biased, tokens = self.qkv_bias, "B T Nj H"
        first, second = f"{at}.conv", f"{at}.mixing_conv"
        own = (line for line in Attention.lines(self, at) if line.path.removeprefix(f"{at}.") in _OWN)
        *work, k_cache, v_cache = own
        return (
            Matmul(f"{at}.q_proj", "B T D, D N H -> B T N H", bias=biased),
            Matmul(f"{at}.k_proj", "B T D, D K H -> B T K H", bias=biased),
            Matmul(f"{at}.v_proj", "B T D, D K Hj -> B T K Hj", bias=biased),
            Matmul(f"{at}.late_v_proj", "B T D, D K Hj -> B T K Hj", bias=biased),
            Pointwise(f"{at}.q_mean", "B T N H", kind="sum"),
            Pointwise(f"{at}.k_mean", "B T K H", kind="sum"),
            Matmul(f"{at}.conv_again", "B Ks Nj H Kq, Nj H Kq -> B Ks Nj H", weight=first),
            Matmul(first, f"{tokens} Kq, Nj H Kq -> {tokens}", bias=True),
            Matmul(second, f"{tokens} Kw, Nj H Kw Ho -> B T Nj Ho", bias=True),
            Pointwise(f"{at}.q_add", "B T N H", kind="sum"),
            Pointwise(f"{at}.k_add", "B T K H", kind="sum"),
            Pointwise(f"{at}.q_norm", "B T N H", kind="norm_rms"),
            Pointwise(f"{at}.k_norm", "B T K H", kind="norm_rms"),
            Pointwise(f"{at}.k_factor", "B T K H", weight="K"),
            *work,
            State(f"{at}.conv_state", "B Nj H Kl"),
            State(f"{at}.v_state", "B K Hj"),
            k_cache,
            v_cache,
        )


_OWN = frozenset("q_rotary k_rotary scores softmax values o_proj k_cache v_cache".split())
"""Lines of attention that are its own too."""
