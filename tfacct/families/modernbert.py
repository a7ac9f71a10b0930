"""ModernBERT: an encoder of pre-norm blocks with rotary positions, gated networks, and windows that see both ways."""

from typing import Any, ClassVar, Literal

from tfacct.architecture.blocks import Block, Sublayer, stacks
from tfacct.architecture.parts import Attention, Embedding, FeedForward, Head, Norm, Pooler
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, FamilyConfig, Fields, Layers, Real, Switch, Word, even, rotary, share
from tfacct.families._bert_like import MASKED
from tfacct.families._endings import BODY, Ending
from tfacct.families._layers import LayerTypes, windows
from tfacct.families.mistral import Window

RELEASED = "2024-12"

HEAD = {"pooler": "head.dense", "pooler.norm": "head.norm", "classifier": "classifier"}
BASES = {"full_attention": 160_000.0, "sliding_attention": 10_000.0}
"""Bases of the angles in the class, in layers that see all tokens and in those with a window."""


def _classes(auto: str, scores: int | None = None) -> Ending:
    return Ending(auto, "classes", pooler=True, bias=True, paths=HEAD, scores=scores)


class Config(FamilyConfig):
    """`ModernBertConfig`, with its class's defaults: `ModernBertForMaskedLM`, or what `architectures` names."""

    vocab_size: Count = 50368
    hidden_size: Count = 768
    intermediate_size: Count = 1152
    num_hidden_layers: Layers = 22
    num_attention_heads: Count = 12
    max_position_embeddings: Count = 8192
    global_attn_every_n_layers: Count = 3
    layer_types: LayerTypes | None = None
    local_attention: Window = 128
    norm_bias: Switch = False
    attention_bias: Switch = False
    mlp_bias: Switch = False
    decoder_bias: Switch = True
    classifier_bias: Switch = False
    classifier_pooling: Literal["cls", "mean"] = "cls"
    tie_word_embeddings: Switch = True
    norm_eps: Real = 1e-5
    hidden_activation: Word = "gelu"
    classifier_activation: Word = "gelu"
    rope_parameters: Fields | None = None
    global_rope_theta: Real | None = None
    local_rope_theta: Real | None = None

    stems: ClassVar = ("ModernBert",)
    uncounted: ClassVar = frozenset(
        """
        classifier_pooling norm_eps hidden_activation classifier_activation rope_parameters global_rope_theta
        local_rope_theta
        """.split()
    )
    harmless: ClassVar = frozenset(
        """
        initializer_cutoff_factor deterministic_flash_attn sparse_prediction sparse_pred_ignore_index reference_compile
        repad_logits_with_grad cls_token_id position_embedding_type
        """.split()
    )
    heads: ClassVar = {
        "ForMaskedLM": MASKED,
        "Model": BODY,
        "ForSequenceClassification": _classes("AutoModelForSequenceClassification"),
        "ForTokenClassification": _classes("AutoModelForTokenClassification"),
        "ForQuestionAnswering": _classes("AutoModelForQuestionAnswering", 2),
    }
    fixed: ClassVar = frozenset("G")
    hf_paths: ClassVar = {
        "embed": "model.embeddings.tok_embeddings",
        "embed_norm": "model.embeddings.norm",
        "blocks.*.attn_norm": "model.layers.*.attn_norm",
        **{f"blocks.*.attn.{name}_proj": "model.layers.*.attn.Wqkv" for name in "qkv"},
        **{f"blocks.*.attn.{name}": "model.layers.*.attn" for name in ("scores", "values")},
        "blocks.*.attn.o_proj": "model.layers.*.attn.Wo",
        "blocks.*.mlp_norm": "model.layers.*.mlp_norm",
        "blocks.*.mlp.gate_proj": "model.layers.*.mlp.Wi",
        "blocks.*.mlp.up_proj": "model.layers.*.mlp.Wi",
        "blocks.*.mlp.down_proj": "model.layers.*.mlp.Wo",
        "final_norm": "model.final_norm",
        "lm_head.transform": "head.dense",
        "lm_head.norm": "head.norm",
        "lm_head": "decoder",
    }

    @property
    def context(self) -> int:
        """max_position_embeddings."""
        return self.max_position_embeddings

    def norm(self) -> Norm:
        """LayerNorm over the hidden size, with a shift or without."""
        learned: Literal["both", "scale"] = "both" if self.norm_bias else "scale"
        return Norm(hidden=self.hidden_size, kind="layer", learned=learned, eps=self.norm_eps)

    def pooler(self, hidden: Any) -> Pooler:
        """What stands in front of the classes: product, activation and norm."""
        reads: Literal["first", "mean", "each"] = "first" if self.classifier_pooling == "cls" else "mean"
        return Pooler(
            hidden=hidden,
            reads=reads if self.ending == self.heads["ForSequenceClassification"] else "each",
            activation=self.classifier_activation,
            bias=self.classifier_bias,
            norm_eps=self.norm_eps,
            norm_shift=self.norm_bias,
        )

    def attention(self, window: int | None) -> Attention:
        """Heads with keys of their own; angles of one base in layers with a window, of another in the others."""
        hidden, heads = self.hidden_size, self.num_attention_heads
        kind, theta = (
            ("full_attention", self.global_rope_theta)
            if window is None
            else ("sliding_attention", self.local_rope_theta)
        )
        return Attention(
            hidden=hidden,
            kv_heads=heads,
            group=1,
            head_dim=even(share(hidden, heads, "hidden_size by num_attention_heads")),
            qkv_bias=self.attention_bias,
            out_bias=self.attention_bias,
            causal=False,
            window=window,
            rotary=rotary(theta or BASES[kind], None, (self.rope_parameters or {}).get(kind)),
        )

    @property
    def around(self) -> int:
        """Keys that a query in a window sees, its own between them."""
        return 2 * (self.local_attention // 2) + 1

    def architecture(self) -> Transformer:
        """The first block has a norm less; the window is in the layers that the pattern names."""
        network = FeedForward(
            hidden=self.hidden_size,
            width=self.intermediate_size,
            gated=True,
            bias=self.mlp_bias,
            activation=self.hidden_activation,
        )
        every, norm = self.global_attn_every_n_layers, self.norm()
        per_layer = windows(self.layer_types, self.num_hidden_layers, self.around, lambda number: bool(number % every))
        kinds = {window: Block.of(self.attention(window), network, norm=norm) for window in dict.fromkeys(per_layer)}
        first = Block((Sublayer(self.attention(per_layer[0])), Sublayer(network, norm)))
        return Transformer(
            embed=Embedding(vocab=self.vocab_size, hidden=self.hidden_size),
            embed_norm=norm,
            stacks=stacks([first, *(kinds[window] for window in per_layer[1:])]),
            final_norm=norm,
            head=Head(
                hidden=self.hidden_size,
                vocab=self.vocab_size,
                tied=self.tie_word_embeddings,
                bias=self.decoder_bias,
                transform=self.classifier_activation,
                transform_bias=self.classifier_bias,
                norm_bias=self.norm_bias,
                eps=self.norm_eps,
            ),
        )
