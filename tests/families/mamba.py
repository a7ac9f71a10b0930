"""Mamba: no attention, a state of fixed size."""

from hypothesis import strategies as st

from tests.families._drawing import LAYERS, ON, SMALL, VOCAB, WIDTH, Draw, Fields, some
from tests.families._sizes import Distinct, Sized

TINY = {
    "model_type": "mamba", "vocab_size": 181, "hidden_size": 42, "num_hidden_layers": 2, "state_size": 5,
    "intermediate_size": 71, "conv_kernel": 6, "time_step_rank": 8, "use_bias": True,
}  # fmt: skip
LOGITS = {
    "": TINY,
    "plain": {**TINY, "use_bias": False, "use_conv_bias": False, "tie_word_embeddings": False},
    "of one token's convolution": {**TINY, "conv_kernel": 1, "layer_norm_epsilon": 1e-3},
}
SILENT = {"fused_add_norm": False, "ssm_cfg": {}, "pad_vocab_size_multiple": 181, "d_model": 42, "d_inner": 71}
CONTEXT = 2048
INSTEAD = {
    "attn_scores_values": "mamba.conv",
    "attn.scores": "mamba.read_out",
    "share.attn": "share.mamba.dt_proj",
    ".mlp": ".mamba",
}
REQUIRED = LAYERS


def drawn(draw: Draw) -> Fields:
    """Kernels longer and shorter than what is asked for; a width of its own, or some times the hidden size."""
    fields = {"hidden_size": draw(WIDTH), "num_hidden_layers": draw(st.integers(1, 3))}
    fields |= {"vocab_size": draw(VOCAB)}
    width = {"intermediate_size": WIDTH} if draw(ON) else {"expand": st.integers(1, 3)}
    some(draw, fields, state_size=SMALL, conv_kernel=st.integers(1, 9), **width)
    some(draw, fields, time_step_rank=st.just("auto") | SMALL, use_bias=ON, use_conv_bias=ON)
    return some(draw, fields, tie_word_embeddings=ON)


def sized(of: Distinct) -> Sized:
    Dx, Ns, Kc, Rt, *_ = of.more
    sizes = {**of.letters("DVLBTS"), "Dx": Dx, "Ns": Ns, "Kc": Kc, "Rt": Rt, "Dz": 2 * Dx, "Rx": Rt + 2 * Ns}
    config = {
        "vocab_size": of.V, "hidden_size": of.D, "num_hidden_layers": of.L, "intermediate_size": Dx, "state_size": Ns,
        "conv_kernel": Kc, "time_step_rank": Rt, "use_bias": of.on[0], "use_conv_bias": of.on[1],
        "tie_word_embeddings": of.on[2],
    }  # fmt: skip
    return config, sizes
