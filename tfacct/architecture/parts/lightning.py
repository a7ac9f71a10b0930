"""Lightning attention (linear attention without softmax): a state matrix per head with a constant decay.

Qin et al., "Lightning Attention-2" (arXiv 2401.04658), section 3; "MiniMax-01" (2501.08313), section 2.2; order and
shapes of the matmuls: transformers' MiniMaxLightningAttention. Norms and rotary embeddings of queries and keys: Ling
2.5's code (BailingMoeV2_5LinearAttention).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from tfacct.architecture.parts.attention import Rotary
from tfacct.architecture.parts.part import STATE_BITS, Mixer
from tfacct.base.record import record
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import CHUNK, Line, Matmul, Pointwise, State


@record(kw_only=True)
class LightningAttention(Mixer):
    """Lightning attention with a state of `head_dim` × `head_dim` for each of `heads` heads.

    A token decays the state, adds the product of its key and value, and reads with its query. The decay is constant for
    each head and layer number.

    Several new tokens run in chunks of `chunk` tokens, padded to whole chunks: within a chunk, tokens interact as in
    attention, and the state is read and written once per chunk. A decode step processes its token alone. Results are
    normed over all heads together, and gated.

    `activation`: of queries, keys and values, None for none. `qk_norm`: RMSNorm of queries and keys per head. `rotary`:
    rotary embedding of `rope_dim` dimensions of a head, or of all. `groups`: results are normed in this number of
    groups. `bias`: of the first three projections, `out_bias`: of the last. `simple`: decays are ALiBi's slopes, and
    states are in fp32 (flash-linear-attention's chunk_simple_gla).
    """

    hidden: Size
    heads: Size
    head_dim: Size
    activation: str | None = "silu"
    eps: float = 1e-6
    chunk: Size = 256
    qk_norm: bool = False
    rotary: Rotary | None = None
    rope_dim: Size | None = None
    groups: int | None = None
    bias: bool = False
    out_bias: bool = False
    simple: bool = False

    name: ClassVar[str] = "lightning"
    axis_names: ClassVar[dict[str, str]] = {
        "hidden": "D",
        "heads": "Nl",
        "head_dim": "Hl",
        "rope_dim": "Hlr",
        "chunk": CHUNK,
    }
    legend: ClassVar[dict[str, str]] = {
        "D": "hidden size",
        "Nl": "heads of lightning attention",
        "Hl": "head size of lightning attention",
        "Hlr": "rotary dimensions of a head of lightning attention",
        "Ol": "size of a value head of lightning attention, Hl",
        "Pc": "tokens in a chunk",
        "Qc": "keys of a chunk, Pc",
    }
    made: ClassVar[dict[str, str]] = {"Ol": "Hl", "Qc": "Pc"}
    cases: ClassVar[frozenset[str]] = frozenset(("Nl", "Hl"))
    at_most: ClassVar[dict[str, str]] = {"Hlr": "Hl"}
    cut: ClassVar[frozenset[str]] = frozenset(("Hlr",))
    recurrence: ClassVar[str] = "the decays of lightning attention, and its recurrence in decode"

    @property
    def inner(self) -> Size:
        """Number of channels of all heads."""
        return self.heads * self.head_dim

    def multiples(self) -> dict[str, int]:
        """Rotary dimensions come in pairs."""
        return {} if self.rotary is None else {"Hl" if self.rope_dim is None else "Hlr": 2}

    def lines(self, at: str) -> Iterator[Line]:
        """Projections, recurrence in chunks and by one token, norm and gate, output, and the cached state of each
        head."""
        yield from self._token_lines(at)
        yield from self._in_chunks(at)
        yield Pointwise(f"{at}.recurrence", "B Tr Nl Hl Ol")
        yield Matmul(f"{at}.read_out", "B Tr Nl Hl, B Tr Nl Hl Ol -> B Tr Nl Ol")
        yield Pointwise(f"{at}.out_norm", "B T Nl Ol", weight="Nl Ol", kind="norm_rms")
        yield Matmul(f"{at}.gate_proj", "B T D, D Nl Ol -> B T Nl Ol")
        yield Pointwise(f"{at}.gate", "B T Nl Ol", kind="gate")
        yield Matmul(f"{at}.out_proj", "B T Nl Ol, Nl Ol D -> B T D", bias=self.out_bias)
        yield State(f"{at}.state", "B Nl Hl Ol", STATE_BITS if self.simple else None)

    def _token_lines(self, at: str) -> Iterator[Line]:
        """Query, key and value of each token with activation, norms and rotary embedding."""
        sizes = {"q": "Hl", "k": "Hl", "v": "Ol"}
        for name, size in sizes.items():
            yield Matmul(f"{at}.{name}_proj", f"B T D, D Nl {size} -> B T Nl {size}", bias=self.bias)
        if self.activation is not None:
            for name, size in sizes.items():
                yield Pointwise(f"{at}.{name}_act", f"B T Nl {size}", kind="activation", function=self.activation)
        if self.qk_norm:
            yield Pointwise(f"{at}.q_norm", "B T Nl Hl", weight="Hl", kind="norm_rms")
            yield Pointwise(f"{at}.k_norm", "B T Nl Hl", weight="Hl", kind="norm_rms")
        if self.rotary is not None:
            rope_axis = "Hl" if self.rope_dim is None else "Hlr"
            yield Pointwise(f"{at}.q_rotary", f"B T Nl {rope_axis}", kind="rotary")
            yield Pointwise(f"{at}.k_rotary", f"B T Nl {rope_axis}", kind="rotary")

    def _in_chunks(self, at: str) -> Iterator[Line]:
        """Interaction within each chunk, then, chunk by chunk, with the state: results at the queries, update."""
        pairs = "B Nc Nl Pc Qc"
        yield Matmul(f"{at}.chunk_scores", f"B Nc Pc Nl Hl, B Nc Qc Nl Hl -> {pairs}")
        yield Pointwise(f"{at}.weighting", pairs, kind="weighting")
        yield Matmul(f"{at}.chunk_values", f"{pairs}, B Nc Qc Nl Ol -> B Nc Pc Nl Ol")
        yield Pointwise(f"{at}.q_decay", "B Nc Pc Nl Hl", kind="scale")
        yield Matmul(f"{at}.state_read", "B Nc Pc Nl Hl, B Nc Nl Hl Ol -> B Nc Pc Nl Ol")
        yield Pointwise(f"{at}.read_add", "B Nc Pc Nl Ol", kind="sum")
        yield Pointwise(f"{at}.k_decay", "B Nc Pc Nl Hl", kind="scale")
        yield Matmul(f"{at}.state_write", "B Nc Qc Nl Hl, B Nc Qc Nl Ol -> B Nc Nl Hl Ol")
        yield Pointwise(f"{at}.state_decay", "B Nc Nl Hl Ol")
