"""T5: encoder and decoder of pre-norm blocks, relative positions as learned scores, its own head size."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Literal

from tfacct.architecture.blocks import Block, Stack
from tfacct.architecture.parts import Attention, CrossAttention, Embedding, FeedForward, Head, Norm, RelativeBias
from tfacct.architecture.transformer import Encoder, Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, FamilyConfig, Layers, Real, Switch, Word
from tfacct.families._endings import BODY, SEQ2SEQ, TOKENS_CLASSIFIED, Ending

RELEASED = "2019-10"

ATTENTION = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "o_proj": "o"}


def _attention(ours: str, theirs: str) -> dict[str, str]:
    own = {f"{ours}.{name}": f"{theirs}.{their}" for name, their in ATTENTION.items()}
    return {**own, f"{ours}.scores": theirs, f"{ours}.values": theirs}


class Config(FamilyConfig):
    """`model_type = "t5"`."""

    vocab_size: Count = 32128
    d_model: Count = 512
    d_kv: Count = 64
    d_ff: Count = 2048
    num_layers: Layers = 6
    num_decoder_layers: Layers | None = None
    num_heads: Count = 8
    relative_attention_num_buckets: Count = 32
    feed_forward_proj: Word = "relu"
    tie_word_embeddings: Switch | None = True
    is_encoder_decoder: Switch = True
    is_gated_act: Switch | None = None
    n_positions: Count = 512
    relative_attention_max_distance: Count = 128
    layer_norm_epsilon: Real = 1e-6

    dropouts: ClassVar = dict.fromkeys(
        ("embedding", "residual", "attention", "mlp_product", "final"), ("dropout_rate", 0.1)
    )
    stems: ClassVar = ("T5",)
    aliases: ClassVar = {
        "hidden_size": "d_model",
        "num_attention_heads": "num_heads",
        "num_hidden_layers": "num_layers",
        "head_dim": "d_kv",
    }
    uncounted: ClassVar = frozenset(
        ("is_encoder_decoder", "is_gated_act", "n_positions", "relative_attention_max_distance", "layer_norm_epsilon")
    )
    nulls: ClassVar = {"is_gated_act": False}
    harmless: ClassVar = frozenset(("initializer_factor", "dense_act_fn"))
    heads: ClassVar = {
        "ForConditionalGeneration": SEQ2SEQ,
        "WithLMHeadModel": SEQ2SEQ,
        "Model": BODY,
        "EncoderModel": Ending("AutoModelForTextEncoding", "none", side="encoder"),
        "ForTokenClassification": replace(TOKENS_CLASSIFIED, body="transformer.", side="encoder"),
    }
    body: ClassVar = ""
    fixed: ClassVar = frozenset("G")
    tables: ClassVar[Literal["sides", "blocks"]] = "sides"
    """Where the scores of distances are: a table on each side, or one in each block."""
    tied_scale: ClassVar[bool] = True
    """Whether the input of a tied head is scaled."""
    kept_wide: ClassVar = ("wo",)
    hf_paths: ClassVar = {
        "embed": "shared",
        "encoder.rel_bias": "encoder.block.0.layer.0.SelfAttention.relative_attention_bias",
        "encoder.blocks.*.attn_norm": "encoder.block.*.layer.0.layer_norm",
        **_attention("encoder.blocks.*.attn", "encoder.block.*.layer.0.SelfAttention"),
        "encoder.blocks.*.mlp_norm": "encoder.block.*.layer.1.layer_norm",
        "encoder.blocks.*.mlp.down_proj": "encoder.block.*.layer.1.DenseReluDense.wo",
        "encoder.final_norm": "encoder.final_layer_norm",
        "rel_bias": "decoder.block.0.layer.0.SelfAttention.relative_attention_bias",
        "blocks.*.attn_norm": "decoder.block.*.layer.0.layer_norm",
        **_attention("blocks.*.attn", "decoder.block.*.layer.0.SelfAttention"),
        "blocks.*.cross_norm": "decoder.block.*.layer.1.layer_norm",
        **_attention("blocks.*.cross", "decoder.block.*.layer.1.EncDecAttention"),
        "blocks.*.mlp_norm": "decoder.block.*.layer.2.layer_norm",
        "blocks.*.mlp.down_proj": "decoder.block.*.layer.2.DenseReluDense.wo",
        "final_norm": "decoder.final_layer_norm",
        "lm_head": "lm_head",
    }
    gotchas: ClassVar[tuple[str, ...]] = (
        "d_kv is the size of a head: d_kv · num_heads need not be d_model (t5-11b: 128 · 128 and 1,024).",
        "The table of relative positions is stored in the first block of each stack, and all its blocks add it.",
        "The head is tied by class default. With tie_word_embeddings = false, as version 1.1 and Flan publish it, the"
        " head has its own weight. transformers 5 ties it anyway, so its class is not asked then.",
        "Scores are not scaled. With a tied head, the input of the head is multiplied by d_model^−½.",
        "is_gated_act, which some configs repeat, is refused if it contradicts feed_forward_proj.",
        "Nothing limits the context. n_positions is the context that the model was trained with.",
    )

    @property
    def context(self) -> int:
        """n_positions."""
        return self.n_positions

    def class_paths(self) -> Mapping[str, str]:
        """The feed-forward network has two matrices, or, gated, three. An encoder alone has no other side's names."""
        networks = {
            "encoder.blocks.*.mlp": "encoder.block.*.layer.1.DenseReluDense",
            "blocks.*.mlp": "decoder.block.*.layer.2.DenseReluDense",
        }
        names = {"gate_proj": "wi_0", "up_proj": "wi_1"} if self._network[0] else {"up_proj": "wi"}
        ours = {f"{at}.{n}": f"{theirs}.{their}" for at, theirs in networks.items() for n, their in names.items()}
        table = {**self.hf_paths, **ours}
        if self.ending.side is None:
            return table
        reading = {our.removeprefix("encoder."): their for our, their in table.items() if our.startswith("encoder.")}
        return {"embed": table["embed"], **reading}

    @property
    def tied(self) -> bool:
        """Whether the head is; null says nothing."""
        return self.tie_word_embeddings is not False

    def class_cannot(self) -> str | None:
        """It ties the head, where it has one, whatever the config says."""
        tied = self.tied or self.ending.head != "lm"
        return None if tied else "it ties the head although tie_word_embeddings = false"

    @property
    def _network(self) -> tuple[bool, str]:
        """Whether it is gated, and its activation. Raises ConfigError."""
        *gated, name = self.feed_forward_proj.split("-")
        if gated not in ([], ["gated"]) or not name:
            raise ConfigError(
                f'feed_forward_proj = "{self.feed_forward_proj}" is not understood', "for example relu or gated-gelu"
            )
        if self.is_gated_act not in (None, bool(gated)):
            says = f"is_gated_act = {str(self.is_gated_act).lower()}"
            raise ConfigError(
                f'{says} contradicts feed_forward_proj = "{self.feed_forward_proj}": gated means three matrices',
                "the class follows is_gated_act; without it, feed_forward_proj",
            )
        return bool(gated), "gelu_new" if gated and name == "gelu" else name

    def architecture(self) -> Transformer:
        """Stacks of pre-norm blocks, each with a table of relative positions and a last norm: both, or one alone."""
        if not self.is_encoder_decoder and self.ending.side is None:
            raise self.refused("is_encoder_decoder", False)
        hidden, heads = self.d_model, self.num_heads
        gated, activation = self._network
        norm = Norm(hidden=hidden, kind="rms", eps=self.layer_norm_epsilon)
        network = FeedForward(hidden=hidden, width=self.d_ff, gated=gated, activation=activation)
        bias = RelativeBias(
            buckets=self.relative_attention_num_buckets,
            kv_heads=heads,
            group=1,
            furthest=self.relative_attention_max_distance,
            within=True,
        )

        shared = bias if self.tables == "sides" else None

        def attention(*, causal: bool) -> Attention:
            return Attention(
                hidden=hidden,
                kv_heads=heads,
                group=1,
                head_dim=self.d_kv,
                scale=1.0,
                biased=True,
                buckets=bias.buckets if shared is None else None,
                furthest=bias.furthest,
                causal=causal,
            )

        cross = CrossAttention(hidden=hidden, kv_heads=heads, group=1, head_dim=self.d_kv, scale=1.0)
        reading = Block.of(attention(causal=False), network, norm=norm)
        if self.ending.side is not None:
            stacks = (Stack(reading, self.num_layers),)
            return Transformer(Embedding(vocab=self.vocab_size, hidden=hidden), stacks, norm, head=None, bias=shared)
        writing = Block.of(attention(causal=True), cross, network, norm=norm)
        layers = self.num_layers if self.num_decoder_layers is None else self.num_decoder_layers
        return Transformer(
            encoder=Encoder(
                Embedding(vocab=self.vocab_size, hidden=hidden, shared=True),
                (Stack(reading, self.num_layers),),
                bias=shared,
                final_norm=norm,
            ),
            embed=Embedding(vocab=self.vocab_size, hidden=hidden),
            bias=shared,
            stacks=(Stack(writing, layers),),
            final_norm=norm,
            head=Head(
                hidden=hidden,
                vocab=self.vocab_size,
                tied=self.tied,
                scale=hidden**-0.5 if self.tied and self.tied_scale else None,
            ),
        )
