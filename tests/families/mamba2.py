"""Mamba-2: no attention, a state of fixed size, chunks."""

from hypothesis import strategies as st

from tests.families import mamba
from tests.families._drawing import ON, SMALL, VOCAB, Draw, Fields, some
from tests.families._mamba2 import letters
from tests.families._sizes import Distinct, Sized

TINY = {
    "model_type": "mamba2", "vocab_size": 181, "hidden_size": 42, "num_hidden_layers": 2, "num_heads": 6,
    "head_dim": 14, "n_groups": 2, "state_size": 5, "conv_kernel": 8, "chunk_size": 12, "use_bias": True,
}  # fmt: skip
LOGITS = {
    "": TINY,
    "plain": {**TINY, "use_bias": False, "use_conv_bias": False, "tie_word_embeddings": True},
    "of one token's convolution": {**TINY, "conv_kernel": 1, "layer_norm_epsilon": 1e-3, "chunk_size": 64},
}
SILENT = {"time_step_rank": 7, "norm_before_gate": True, "rms_norm": True}
CONTEXT = mamba.CONTEXT
INSTEAD = {**mamba.INSTEAD, "attn.scores": "mamba.chunk_scores", "share.attn": "share.mamba.in_proj"}
REQUIRED = {"num_hidden_layers": 2}


def drawn(draw: Draw) -> Fields:
    """Chunks and kernels longer and shorter than what is asked for: a sum over one number is no product there."""
    groups = draw(st.integers(1, 3))
    heads, expand = groups * draw(st.integers(1, 3)), draw(st.integers(1, 3))
    half = draw(SMALL)
    fields = {"num_heads": heads * expand, "head_dim": half, "hidden_size": heads * half, "expand": expand}
    fields |= {"n_groups": groups, "vocab_size": draw(VOCAB), "num_hidden_layers": draw(st.integers(1, 3))}
    some(draw, fields, state_size=st.integers(2, 7), conv_kernel=st.integers(1, 9), chunk_size=st.integers(2, 7))
    return some(draw, fields, use_bias=ON, use_conv_bias=ON, tie_word_embeddings=ON)


def sized(of: Distinct) -> Sized:
    Km, Gm, Hm, Ns, Kc, Pc, *_ = of.more
    sizes = {**of.letters("VLBTS"), "D": Km * Gm * Hm, **letters(of, (Km, Gm, Hm), Ns, Kc, Pc)}
    config = {
        "vocab_size": of.V, "hidden_size": sizes["D"], "num_hidden_layers": of.L, "num_heads": Km * Gm,
        "head_dim": Hm, "n_groups": Km, "state_size": Ns, "conv_kernel": Kc, "chunk_size": Pc, "expand": 1,
        "use_bias": of.on[0], "use_conv_bias": of.on[1], "tie_word_embeddings": of.on[2],
    }  # fmt: skip
    return config, sizes
