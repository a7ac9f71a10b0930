"""Shared by BART and its relatives: encoder and decoder of one width, with absolute positions; post-norm in BART and
Marian, pre-norm in the others."""

from collections.abc import Mapping
from typing import Any, ClassVar

from tfacct.architecture.blocks import Block, Order, Stack
from tfacct.architecture.parts import Attention, CrossAttention, Embedding, FeedForward, Head, Norm, Positions
from tfacct.architecture.transformer import Encoder, Transformer
from tfacct.families._base import Count, FamilyConfig, Layers, Switch, Word, share
from tfacct.families._endings import BODY, SEQ2SEQ

ATTENTION = {"q_proj": "q_proj", "k_proj": "k_proj", "v_proj": "v_proj", "o_proj": "out_proj"}
BLOCK = {"mlp.up_proj": "fc1", "mlp.down_proj": "fc2", "mlp_norm": "final_layer_norm"}
ELSEWHERE: Mapping[str, object] = {
    "normalize_before": False,
    "add_final_layer_norm": False,
    "add_bias_logits": False,
    "do_blenderbot_90_layernorm": False,
}
"""Fields of older configs that the classes do not read, and the value that is what they do."""
DROPOUTS: Mapping[str, tuple[str, float | None]] = {
    "embedding": ("dropout", 0.1),
    "residual": ("dropout", 0.1),
    "attention": ("attention_dropout", 0.0),
    "mlp_product": ("activation_dropout", 0.0),
}
"""What BART's class drops, and its defaults."""
LAYERS_DROPPED = frozenset({"encoder_layerdrop", "decoder_layerdrop"})
"""Shares of whole layers that a step leaves out."""


def class_attention(ours: str, theirs: str) -> dict[str, str]:
    own = {f"{ours}.{name}": f"{theirs}.{their}" for name, their in ATTENTION.items()}
    return {**own, f"{ours}.scores": theirs, f"{ours}.values": theirs, f"{ours}_norm": f"{theirs}_layer_norm"}


def class_stack(ours: str, theirs: str) -> dict[str, str]:
    blocks, layers = f"{ours}blocks.*", f"model.{theirs}.layers.*"
    return {
        f"{ours}pos_embed": f"model.{theirs}.embed_positions",
        f"{ours}embed_norm": f"model.{theirs}.layernorm_embedding",
        **class_attention(f"{blocks}.attn", f"{layers}.self_attn"),
        **{f"{blocks}.{name}": f"{layers}.{their}" for name, their in BLOCK.items()},
    }


class Sides(FamilyConfig):
    """Fields of an encoder and a decoder of one width, each with heads and networks of its own."""

    d_model: Count = 1024
    encoder_layers: Layers = 12
    encoder_attention_heads: Count = 16
    encoder_ffn_dim: Count = 4096
    decoder_layers: Layers = 12
    decoder_attention_heads: Count = 16
    decoder_ffn_dim: Count = 4096
    tie_word_embeddings: Switch = True
    is_encoder_decoder: Switch = True
    activation_function: Word = "gelu"

    aliases: ClassVar = {
        "hidden_size": "d_model",
        "num_attention_heads": "encoder_attention_heads",
        "num_hidden_layers": "encoder_layers",
    }
    uncounted: ClassVar[frozenset[str]] = frozenset(("is_encoder_decoder", "activation_function"))
    harmless: ClassVar[frozenset[str]] = frozenset(
        """
        encoder_layerdrop decoder_layerdrop init_std save_step
        force_bos_token_to_be_generated add_cross_attention extra_pos_embeddings
        """.split()
    )
    fixed: ClassVar = frozenset("G")
    order: ClassVar[Order] = "post"
    """How its blocks run. One that has its norms in front has one behind the last block of each side too."""
    key_bias: ClassVar[bool] = True
    """Whether keys have a bias, as queries and values have."""
    understood: ClassVar[Mapping[str, object]] = {}
    """Fields that the class does not read, and the value that is what it does."""

    def blocks(self) -> tuple[Stack, Stack]:
        """The encoder's stack and the decoder's. Raises ConfigError."""
        for name, understood in {"is_encoder_decoder": True, **self.understood}.items():
            if getattr(self, name) != understood:
                raise self.refused(name, getattr(self, name))
        hidden = self.d_model
        norm = Norm(hidden=hidden, kind="layer")
        biases: dict[str, Any] = {"qkv_bias": True, "key_bias": self.key_bias, "out_bias": True}

        def head_dim(side: str, heads: int) -> int:
            return share(hidden, heads, f"d_model by {side}_attention_heads")

        def attention(side: str, heads: int, *, causal: bool) -> Attention:
            size = head_dim(side, heads)
            return Attention(hidden=hidden, kv_heads=heads, group=1, head_dim=size, causal=causal, **biases)

        def network(width: int) -> FeedForward:
            return FeedForward(hidden=hidden, width=width, bias=True, activation=self.activation_function)

        heads, own = self.encoder_attention_heads, self.decoder_attention_heads
        cross = CrossAttention(hidden=hidden, kv_heads=own, group=1, head_dim=head_dim("decoder", own), **biases)
        reading = (attention("encoder", heads, causal=False), network(self.encoder_ffn_dim))
        writing = (attention("decoder", own, causal=True), cross, network(self.decoder_ffn_dim))
        return (
            Stack(Block.of(*reading, norm=norm, order=self.order), self.encoder_layers),
            Stack(Block.of(*writing, norm=norm, order=self.order), self.decoder_layers),
        )


class BartLike(Sides):
    """Fields of BART and those that read text as it does."""

    vocab_size: Count
    max_position_embeddings: Count = 1024
    scale_embedding: Switch = False
    normalize_before: Switch = False
    add_final_layer_norm: Switch = False
    add_bias_logits: Switch = False
    do_blenderbot_90_layernorm: Switch = False

    uncounted: ClassVar = Sides.uncounted | {"scale_embedding", *ELSEWHERE}
    understood: ClassVar[Mapping[str, object]] = ELSEWHERE
    hf_paths: ClassVar = {
        "embed": "model.shared",
        **class_stack("encoder.", "encoder"),
        **class_stack("", "decoder"),
        **class_attention("blocks.*.cross", "model.decoder.layers.*.encoder_attn"),
        "lm_head": "lm_head",
    }

    @property
    def context(self) -> int:
        """max_position_embeddings, of the source and of the target."""
        return self.max_position_embeddings

    def ends(
        self,
        positions: Positions,
        *,
        normed: bool,
        own_table: bool = False,
        source: int | None = None,
        target: int | None = None,
    ) -> Transformer:
        """The model around these positions; `normed` behind its tables; with a separate table for each side, of the
        `source` and of the `target` vocabulary where that is another."""
        reading, writing = self.blocks()
        reads, vocab = (self.vocab_size if own is None else own for own in (source, target))
        norm = Norm(hidden=self.d_model, kind="layer") if normed else None
        last = Norm(hidden=self.d_model, kind="layer") if self.order == "pre" else None
        scaled = self.scale_embedding
        return Transformer(
            encoder=Encoder(
                Embedding(vocab=reads, hidden=self.d_model, scaled=scaled, shared=not own_table),
                (reading,),
                positions=positions,
                embed_norm=norm,
                final_norm=last,
                apart=frozenset("KHF"),
            ),
            embed=Embedding(vocab=vocab, hidden=self.d_model, scaled=scaled),
            positions=positions,
            embed_norm=norm,
            stacks=(writing,),
            final_norm=last,
            head=Head(hidden=self.d_model, vocab=vocab, tied=self.tie_word_embeddings),
        )


class PreNorm(BartLike):
    """Those with norms in front. Their configs say so in fields that the classes do not read."""

    normalize_before: Switch = True
    add_final_layer_norm: Switch = True
    normalize_embedding: Switch = False
    static_position_embeddings: Switch = False

    order: ClassVar[Order] = "pre"
    uncounted: ClassVar = BartLike.uncounted | {"normalize_embedding", "static_position_embeddings"}
    understood: ClassVar = {**ELSEWHERE, "normalize_before": True, "add_final_layer_norm": True}
    heads: ClassVar = {"ForConditionalGeneration": SEQ2SEQ, "Model": BODY}
    hf_paths: ClassVar = {
        **BartLike.hf_paths,
        "encoder.final_norm": "model.encoder.layer_norm",
        "final_norm": "model.decoder.layer_norm",
    }

    def around(self, positions: Positions, *, normed: bool = False) -> Transformer:
        """The model around these positions, with one token table. Raises ConfigError."""
        if not self.tie_word_embeddings:
            raise self.refused("tie_word_embeddings", False)
        return self.ends(positions, normed=normed)
