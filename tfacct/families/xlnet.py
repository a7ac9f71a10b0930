"""XLNet: post-norm blocks as BERT's, whose attention scores distances by products of sines and cosines."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from tfacct.architecture.parts import Embedding, Head, Pooler, RelativeAttention
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, Layers, Real, Switch, UpTo, Word
from tfacct.families._bert_like import Encoding, Sizes
from tfacct.families._endings import BODY, CAUSAL_MODEL, SCORED, TOKENS_CLASSIFIED
from tfacct.ledger.lines import FLOPS_PER_MULTIPLY_ADD
from tfacct.ledger.workload import Workload

RELEASED = "2019-06"

AT = "transformer.layer.*."
ATTENTION = f"{AT}rel_attn"
PRODUCTS = ("q_proj", "k_proj", "v_proj", "o_proj", "r_proj", "scores", "values", "positions")
"""What the class's attention runs itself: its weights are tensors of no module."""
OWN = {f"{which}_proj.weight": which for which in "qkvor"}
OWN |= {"content.bias": "r_w_bias", "position.bias": "r_r_bias", "segment.bias": "r_s_bias"}
OWN |= {"segments.weight": "seg_embed"}


class Config(Encoding):
    """`XLNetConfig`, with its class's defaults: `XLNetLMHeadModel`, or what `architectures` names."""

    vocab_size: Count = 32000
    d_model: Count = 1024
    n_layer: Layers = 24
    n_head: Count = 16
    d_inner: Count = 4096
    d_head: Count | None = None
    tie_word_embeddings: Switch = True
    ff_activation: Word = "gelu"
    layer_norm_eps: Real = 1e-12
    attn_type: Word = "bi"
    bi_data: Switch = False
    clamp_len: int = -1
    mem_len: UpTo | None = 512
    summary_type: Word = "last"
    summary_use_proj: Switch = True
    summary_activation: Word | None = "tanh"

    stems: ClassVar = ("XLNet",)
    aliases: ClassVar = {
        "hidden_size": "d_model",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
        "n_token": "vocab_size",
    }
    understood: ClassVar = {"attn_type": "bi", "bi_data": False}
    of_classes: ClassVar = {"summary_type": "last", "summary_use_proj": True}
    """What the class of a text reads of it."""
    uncounted: ClassVar = frozenset(
        {"ff_activation", "layer_norm_eps", "clamp_len", "mem_len", "summary_activation", *understood, *of_classes}
    )
    harmless: ClassVar = frozenset(
        """
        same_length reuse_len use_mems_eval use_mems_train untie_r init init_range init_std summary_last_dropout
        start_n_top end_n_top ff_inner
        """.split()
    )
    fixed: ClassVar = frozenset({"G", "Xd", "Vt"})
    front_norm: ClassVar = False
    class_whole: ClassVar = True
    class_extra: ClassVar = "of a text of one token its values are no product"
    heads: ClassVar = {
        "LMHeadModel": replace(CAUSAL_MODEL, gives=False),
        "Model": BODY,
        "ForSequenceClassification": replace(
            SCORED,
            pooler=True,
            bias=True,
            paths={"pooler": "sequence_summary.summary", "classifier": "logits_proj"},
            gives=False,
            picks=False,
        ),
        "ForTokenClassification": TOKENS_CLASSIFIED,
    }
    body: ClassVar = "transformer."
    hf_paths: ClassVar = {
        "embed": "transformer.word_embedding",
        **{f"blocks.*.attn.{ours}": ATTENTION for ours in PRODUCTS},
        "blocks.*.attn_norm": f"{ATTENTION}.layer_norm",
        "blocks.*.mlp.up_proj": f"{AT}ff.layer_1",
        "blocks.*.mlp.down_proj": f"{AT}ff.layer_2",
        "blocks.*.mlp_norm": f"{AT}ff.layer_norm",
        "lm_head": "lm_loss",
    }
    hf_tensors: ClassVar = {
        "embed.mask.weight": "transformer.mask_emb",
        **{f"blocks.*.attn.{ours}": f"{ATTENTION}.{theirs}" for ours, theirs in OWN.items()},
    }
    inputs_first: ClassVar = tuple(f"blocks.*.attn.{which}_proj" for which in "qkvr")

    @property
    def context(self) -> int:
        """Length of the texts that the published models were trained with."""
        return 512

    @property
    def sizes(self) -> Sizes:
        """Sizes by the class's names."""
        return Sizes(
            vocab=self.vocab_size,
            hidden=self.d_model,
            layers=self.n_layer,
            heads=self.n_head,
            width=self.d_inner,
            rows=0,
            activation=self.ff_activation,
            eps=self.layer_norm_eps,
        )

    def attention(self) -> RelativeAttention:
        """Heads with keys of their own, and products of distances; no biases. Raises ConfigError."""
        size = super().attention().head_dim
        if self.d_head not in (None, size):
            raise self.refused("d_head", self.d_head)
        return RelativeAttention(hidden=self.d_model, kv_heads=self.n_head, group=1, head_dim=size, causal=False)

    def positions(self) -> None:
        """There are none."""
        return

    def head(self) -> Head:
        """Logits over the tied token table."""
        return Head(hidden=self.d_model, vocab=self.vocab_size, tied=True, bias=True)

    def pooler(self, hidden: Any) -> Pooler:
        """Product of the last position, in front of the classes."""
        return Pooler(hidden=hidden, reads="end", activation=self.summary_activation or "linear")

    def class_adds(self, work: Workload) -> Mapping[str, int]:
        """The values of one key are no product in the class."""
        if work.context > 1:
            return {}
        return {"blocks.*.attn.values": -FLOPS_PER_MULTIPLY_ADD * work.batch * self.d_model}

    def architecture(self) -> Transformer:
        """BERT's, without tables of positions and segments. Raises ConfigError."""
        for name, understood in self.of_classes.items() if self.ending.head == "classes" else ():
            if self.ending.pooler and getattr(self, name) != understood:
                raise self.refused(name, getattr(self, name))
        if self.d_model % 2:
            raise ConfigError(f"d_model = {self.d_model:,} is odd: half of it are sines of a distance, half cosines")
        embed = Embedding(vocab=self.vocab_size, hidden=self.d_model, masked=True)
        return replace(super().architecture(), embed=embed)
