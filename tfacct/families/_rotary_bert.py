"""Shared by Nomic BERT and GTE: BERT's post-norm blocks with rotary positions and gated networks."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from tfacct.architecture.parts import Attention, FeedForward, Positions
from tfacct.families._base import Count, Fields, Real, Switch, even, rotary, share
from tfacct.families._bert_like import ENCODING, BertLike
from tfacct.families._endings import BODY

LAYER = {
    **{f"attn.{name}": f"self_attn.{name}" for name in ("q_proj", "k_proj", "v_proj", "o_proj")},
    "attn.scores": "self_attn",
    "attn.values": "self_attn",
    "attn_norm": "post_attention_layernorm",
    "mlp_norm": "post_mlp_layernorm",
}
"""Modules of one layer, ours → the classes'."""
GATED = {name: name for name in ("gate_proj", "up_proj", "down_proj")}
"""Products of its network."""


def heads_of(body: str) -> Mapping[str, Any]:
    """Endings of the classes whose body stands under `body`: it has a pooler in front of the classes of a sequence."""
    classes = replace(
        ENCODING["ForSequenceClassification"], paths={"pooler": f"{body}pooler.dense", "classifier": "classifier"}
    )
    others = {name: ENCODING[name] for name in ("ForMaskedLM", "ForTokenClassification")}
    return {**others, "ForSequenceClassification": classes, "Model": BODY}


def class_table(body: str, head: Mapping[str, str], network: Mapping[str, str] = GATED) -> dict[str, str]:
    """Our paths → the class's."""
    tables = {"embed": "word_embeddings", "type_embed": "token_type_embeddings", "embed_norm": "LayerNorm"}
    return {
        **{ours: f"{body}embeddings.{theirs}" for ours, theirs in tables.items()},
        **{f"blocks.*.{ours}": f"{body}layers.*.{theirs}" for ours, theirs in LAYER.items()},
        **{f"blocks.*.mlp.{ours}": f"{body}layers.*.mlp.{theirs}" for ours, theirs in network.items()},
        **head,
    }


class RotaryBert(BertLike):
    """Fields of both families."""

    type_vocab_size: Count
    head_dim: Count | None = None
    rope_theta: Real | None = None
    rope_scaling: Fields | None = None
    rope_parameters: Fields | None = None
    tie_word_embeddings: Switch = True

    uncounted: ClassVar = BertLike.uncounted | {"rope_theta", "rope_scaling", "rope_parameters"}
    in_files: ClassVar[tuple[tuple[str, str], ...]] = (
        (r"\.encoder\.layers?\.", ".layers."),
        (r"\.attention\.(o_proj|qkv_proj)\.", r".self_attn.\1."),
        (r"\.(attn|mixer)\.Wqkv\.", ".self_attn.qkv_proj."),
        (r"\.(attn|mixer)\.out_proj\.", ".self_attn.o_proj."),
        (r"\.(attn_ln|norm1)\.", ".post_attention_layernorm."),
        (r"\.(mlp_ln|norm2)\.", ".post_mlp_layernorm."),
        (r"\.mlp\.up_gate_proj\.", ".mlp.gate_up_proj."),
        (r"\.emb_ln\.", ".embeddings.LayerNorm."),
    )
    theta: ClassVar[float] = 10_000.0
    """Base of the angles where the config has none."""
    qkvo_bias: ClassVar[bool] = False
    """Whether attention's four projections have biases."""
    down_bias: ClassVar[bool] = False
    """Whether the network's last product has a bias."""

    def attention(self) -> Attention:
        """Heads with keys of their own; every token sees all others."""
        heads = self.num_attention_heads
        size = self.head_dim or share(self.hidden_size, heads, "hidden_size by num_attention_heads")
        return Attention(
            hidden=self.hidden_size,
            kv_heads=heads,
            group=1,
            head_dim=even(size),
            qkv_bias=self.qkvo_bias,
            out_bias=self.qkvo_bias,
            causal=False,
            rotary=rotary(self.rope_theta or self.theta, self.rope_scaling, self.rope_parameters),
        )

    def network(self) -> FeedForward:
        """A gated network."""
        return FeedForward(
            hidden=self.hidden_size,
            width=self.intermediate_size,
            gated=True,
            down_bias=self.down_bias,
            activation=self.hidden_act,
        )

    def positions(self) -> Positions | None:
        """None: positions are rotary."""
        return None
