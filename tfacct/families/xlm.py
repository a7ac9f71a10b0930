"""XLM: an encoder of post-norm blocks as BERT's, with a table of languages; its head is one product."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from tfacct.architecture.parts import Head, Positions
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Layers, Real, Switch, Word
from tfacct.families._bert_like import MASKED, Encoding, Sizes
from tfacct.families._endings import BODY, TOKENS_CLASSIFIED, Ending

RELEASED = "2019-01"

LAYER: Mapping[str, str] = {
    **{f"attn.{ours}": f"attentions.*.{theirs}_lin" for ours, theirs in {"q_proj": "q", "k_proj": "k"}.items()},
    **{f"attn.{ours}": f"attentions.*.{theirs}_lin" for ours, theirs in {"v_proj": "v", "o_proj": "out"}.items()},
    "attn.scores": "attentions.*",
    "attn.values": "attentions.*",
    "attn_norm": "layer_norm1.*",
    "mlp.up_proj": "ffns.*.lin1",
    "mlp.down_proj": "ffns.*.lin2",
    "mlp_norm": "layer_norm2.*",
}


class Config(Encoding):
    """`XLMConfig`, with its class's defaults: `XLMWithLMHeadModel`, or what `architectures` names."""

    vocab_size: Count = 30145
    emb_dim: Count = 2048
    n_layers: Layers = 12
    n_heads: Count = 16
    n_langs: Count = 1
    use_lang_emb: Switch = True
    max_position_embeddings: Count = 512
    tie_word_embeddings: Switch = True
    gelu_activation: Switch = True
    sinusoidal_embeddings: Switch = False
    layer_norm_eps: Real = 1e-12
    causal: Switch = False
    asm: Switch = False
    is_encoder: Switch = True
    summary_type: Word = "first"
    summary_use_proj: Switch = True
    summary_proj_to_labels: Switch = True

    stems: ClassVar = ("XLM",)
    aliases: ClassVar = {
        "hidden_size": "emb_dim",
        "num_attention_heads": "n_heads",
        "num_hidden_layers": "n_layers",
        "n_words": "vocab_size",
    }
    understood: ClassVar = {"causal": False, "asm": False, "is_encoder": True}
    of_classes: ClassVar = {"summary_type": "first", "summary_use_proj": True, "summary_proj_to_labels": True}
    """What the classes of a text read of it."""
    uncounted: ClassVar = frozenset(
        {"gelu_activation", "sinusoidal_embeddings", "layer_norm_eps", *understood, *of_classes}
    )
    harmless: ClassVar = frozenset(
        """
        bos_index eos_index pad_index unk_index mask_index mask_token_id lang_id id2lang lang2id init_std
        embed_init_std summary_activation start_n_top end_n_top share_inout_emb same_enc_dec max_vocab
        """.split()
    )
    heads: ClassVar = {
        "WithLMHeadModel": MASKED,
        "Model": BODY,
        "ForSequenceClassification": Ending(
            "AutoModelForSequenceClassification",
            "classes",
            bias=True,
            first=True,
            paths={"classifier": "sequence_summary.summary"},
            gives=False,
        ),
        "ForTokenClassification": replace(TOKENS_CLASSIFIED, body="transformer."),
    }
    body: ClassVar = "transformer."
    hf_paths: ClassVar = {
        "embed": "transformer.embeddings",
        "pos_embed": "transformer.position_embeddings",
        "type_embed": "transformer.lang_embeddings",
        "embed_norm": "transformer.layer_norm_emb",
        **{f"blocks.*.{ours}": f"transformer.{theirs}" for ours, theirs in LAYER.items()},
        "lm_head": "pred_layer.proj",
    }

    @property
    def sizes(self) -> Sizes:
        """Sizes by the class's names."""
        return Sizes(
            vocab=self.vocab_size,
            hidden=self.emb_dim,
            layers=self.n_layers,
            heads=self.n_heads,
            width=4 * self.emb_dim,
            rows=self.max_position_embeddings,
            segments=self.n_langs if self.n_langs > 1 and self.use_lang_emb else 0,
            activation="gelu" if self.gelu_activation else "relu",
            eps=self.layer_norm_eps,
        )

    def positions(self) -> Positions:
        """Table of positions: sines where the config says so, which are stored all the same."""
        return Positions(rows=self.max_position_embeddings, hidden=self.emb_dim, trained=not self.sinusoidal_embeddings)

    def head(self) -> Head:
        """Logits over the tied token table."""
        return Head(hidden=self.emb_dim, vocab=self.vocab_size, tied=True, bias=True)

    def architecture(self) -> Transformer:
        """BERT's, with that head. Raises ConfigError."""
        for name, understood in self.of_classes.items() if self.ending.head == "classes" else ():
            if getattr(self, name) != understood:
                raise self.refused(name, getattr(self, name))
        return super().architecture()
