"""XLM and FlauBERT: encoders like BERT, with embeddings of languages."""

from dataclasses import replace
from typing import Any

from tfacct.architecture.blocks import Block
from tfacct.architecture.parts import Head, Positions
from tfacct.families.bert import CLASSES, MASKED, BertLike
from tfacct.families.family import attention_modules, mlp_modules
from tfacct.families.fields import LayerCount, PositiveFloat, PositiveInt, StrictBool, StrictStr
from tfacct.families.task_heads import BODY, TOKENS_CLASSIFIED, TaskHead


class XLM(BertLike):
    """XLM: an encoder of post-norm layers like BERT's, with embeddings of languages and a head of one matrix."""

    defaults = dict(vocab_size=30145)
    emb_dim: PositiveInt = 2048
    n_layers: LayerCount = 12
    n_heads: PositiveInt = 16
    n_langs: PositiveInt = 1
    use_lang_emb: StrictBool = True
    max_position_embeddings: PositiveInt = 512
    gelu_activation: StrictBool = True
    sinusoidal_embeddings: StrictBool = False
    layer_norm_eps: PositiveFloat = 1e-12
    causal: StrictBool = False
    asm: StrictBool = False
    is_encoder: StrictBool = True
    summary_type: StrictStr = "first"
    summary_use_proj: StrictBool = True
    summary_proj_to_labels: StrictBool = True

    intermediate_size = property(lambda self: 4 * self.emb_dim)
    type_vocab_size = property(lambda self: self.n_langs if self.n_langs > 1 and self.use_lang_emb else 0)
    hidden_act = property(lambda self: "gelu" if self.gelu_activation else "relu")
    attribute_map = {
        "hidden_size": "emb_dim",
        "num_attention_heads": "n_heads",
        "num_hidden_layers": "n_layers",
        "n_words": "vocab_size",
    }
    required_values = {"causal": False, "asm": False, "is_encoder": True}
    reference_only = "gelu_activation sinusoidal_embeddings summary_use_proj summary_proj_to_labels"
    ignored_fields = """bos_index eos_index pad_index unk_index mask_index mask_token_id lang_id id2lang lang2id
        embed_init_std summary_activation start_n_top end_n_top share_inout_emb same_enc_dec max_vocab"""
    task_heads = {
        "WithLMHeadModel": MASKED,
        "Model": BODY,
        CLASSES: TaskHead(
            "AutoModelForSequenceClassification",
            "classes",
            bias=True,
            first=True,
            paths={"classifier": "sequence_summary.summary"},
            gives=False,
        ),
        "ForTokenClassification": replace(TOKENS_CLASSIFIED, body="transformer."),
    }
    base_model_prefix = "transformer"
    layer_path = "transformer"
    module_names = {
        "embed": ".embeddings",
        "pos_embed": ".position_embeddings",
        "type_embed": ".lang_embeddings",
        "embed_norm": ".layer_norm_emb",
        "lm_head": "pred_layer.proj",
    }
    layer_module_names = {
        **attention_modules("attentions.*", "q_lin", "k_lin", "v_lin", "out_lin"),
        **mlp_modules("ffns.*", "lin1", "lin2", None),
        "attn_norm": "layer_norm1.*",
        "mlp_norm": "layer_norm2.*",
    }

    def check(self) -> None:
        if self.task_head.head == "classes":
            self.require({"summary_type": "first", "summary_use_proj": True, "summary_proj_to_labels": True})
        super().check()

    def positions(self) -> Positions:
        """Position embedding; sinusoidal positions are also stored."""
        return Positions(rows=self.max_position_embeddings, hidden=self.emb_dim, trained=not self.sinusoidal_embeddings)

    def head(self) -> Head:
        return Head(hidden=self.emb_dim, vocab=self.vocab_size, tied=True, bias=True)


class Flaubert(XLM):
    """FlauBERT: XLM's encoder, for French; large models have norms before the sublayers, and none after the last."""

    pre_norm: StrictBool = False
    ignored_fields = "layerdrop"

    def block(self, **overrides: Any) -> Block:
        return replace(super().block(), order="pre") if self.pre_norm else super().block()

    def hf_unsupported(self) -> str | None:
        """The class needs a cache for each layer, which does not exist."""
        return "it does not support pre_norm = true" if self.pre_norm else None
