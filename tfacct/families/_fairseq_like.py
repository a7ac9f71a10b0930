"""Shared by BioGPT and XGLM: GPT-2's blocks as fairseq has them, rows of tokens times √hidden, a tied head."""

from collections.abc import Mapping

from tfacct.architecture.blocks import Block, stacks
from tfacct.architecture.parts import Attention, Embedding, FeedForward, Head, Norm, Positions
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import share

OFFSET = 2
"""Rows of the position table that stand for no position."""
ATTENTION = {"q_proj": "q_proj", "k_proj": "k_proj", "v_proj": "v_proj", "o_proj": "out_proj"}


def class_table(body: str, head: str) -> Mapping[str, str]:
    """Our paths → those of a class whose body stands under `body`."""
    layer = {
        "attn_norm": "self_attn_layer_norm",
        **{f"attn.{ours}": f"self_attn.{theirs}" for ours, theirs in ATTENTION.items()},
        "attn.scores": "self_attn",
        "attn.values": "self_attn",
        "mlp_norm": "final_layer_norm",
        "mlp.up_proj": "fc1",
        "mlp.down_proj": "fc2",
    }
    return {
        "embed": f"{body}embed_tokens",
        "pos_embed": f"{body}embed_positions",
        **{f"blocks.*.{ours}": f"{body}layers.*.{theirs}" for ours, theirs in layer.items()},
        "final_norm": f"{body}layer_norm",
        "lm_head": head,
    }


def language_model(
    *,
    vocab: int,
    hidden: int,
    layers: int,
    heads: int,
    width: int,
    positions: Positions,
    scaled: bool,
    tied: bool,
    activation: str,
) -> Transformer:
    """Equal pre-norm blocks with biases everywhere. Raises ConfigError."""
    norm = Norm(hidden=hidden, kind="layer")
    size = share(hidden, heads, "the hidden size by the number of heads")
    attention = Attention(hidden=hidden, kv_heads=heads, group=1, head_dim=size, qkv_bias=True, out_bias=True)
    network = FeedForward(hidden=hidden, width=width, bias=True, activation=activation)
    return Transformer(
        embed=Embedding(vocab=vocab, hidden=hidden, scaled=scaled),
        positions=positions,
        stacks=stacks([Block.of(attention, network, norm=norm)] * layers),
        final_norm=norm,
        head=Head(hidden=hidden, vocab=vocab, tied=tied),
    )
