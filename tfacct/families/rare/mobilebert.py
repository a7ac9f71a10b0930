"""MobileBERT: layers between projections to a narrower width and back."""

from dataclasses import replace
from typing import Any

from tfacct.architecture.blocks import Block, Sublayer
from tfacct.architecture.parts import Embedding, Head, NarrowAttention, NarrowNetworks, Norm
from tfacct.base.errors import ConfigError
from tfacct.families.bert import POOLED, BertBase, mlm_head_modules
from tfacct.families.family import ABSENT
from tfacct.families.fields import PositiveInt, StrictBool, StrictStr
from tfacct.families.task_heads import TaskHead

LAYER = "mobilebert.encoder.layer.*"


class MobileBert(BertBase):
    """MobileBERT: BERT's encoder; each layer projects tokens to a narrower width and back, and has several MLPs."""

    sizes = dict(hidden=512, mlp=512, layers=24, heads=4)
    defaults = dict(hidden_act="relu")
    type_vocab_size: PositiveInt = 2
    embedding_size: PositiveInt = 128
    intra_bottleneck_size: PositiveInt = 128
    num_feedforward_networks: PositiveInt = 4
    classifier_activation: StrictBool = True
    trigram_input: StrictBool = True
    use_bottleneck: StrictBool = True
    use_bottleneck_attention: StrictBool = False
    key_query_shared_bottleneck: StrictBool = True
    normalization_type: StrictStr = "no_norm"
    true_hidden_size: PositiveInt | None = None

    dropouts = {}
    required_values = {
        "trigram_input": True,
        "use_bottleneck": True,
        "use_bottleneck_attention": False,
        "key_query_shared_bottleneck": True,
        "normalization_type": "no_norm",
    }
    reference_only = "true_hidden_size"
    base_model_prefix = "mobilebert"
    task_heads = POOLED
    module_names = {
        **mlm_head_modules("cls.predictions", "transform.dense", "transform.LayerNorm"),
        "lm_head": "cls.predictions",
        "lm_head.rest": "cls.predictions",
        "embed.project": ".embeddings.embedding_transformation",
    }
    layer_module_names = {
        **dict.fromkeys(("attn_norm", "mlp.up_proj", "mlp.down_proj"), ABSENT),
        "attn.input": "bottleneck.input.dense",
        "attn.input_norm": "bottleneck.input.LayerNorm",
        "attn.shared": "bottleneck.attention.dense",
        "attn.shared_norm": "bottleneck.attention.LayerNorm",
        "attn.narrow_norm": "attention.output.LayerNorm",
        "mlp.output": "output.bottleneck.dense",
        "mlp_norm": "output.bottleneck.LayerNorm",
    }
    tensor_names = {"lm_head.bias": "cls.predictions.bias", "lm_head.rest.weight": "cls.predictions.dense.weight"}
    transposed_weights = ("lm_head.rest",)
    embedding_width = None  # a projection of three adjacent embeddings makes them as wide as the model

    @property
    def task_head(self) -> TaskHead:
        """Without an activation the pooler is the first token's vector."""
        head = super().task_head
        if self.classifier_activation or not head.pooler:
            return head
        paths = {ours: theirs for ours, theirs in head.paths.items() if ours != "pooler"}
        return replace(head, pooler=False, first=head.head == "classes", paths=paths)

    def hf_module_names(self) -> dict[str, str]:
        """With the MLPs, of which the last has other names."""
        names = dict(super().hf_module_names())
        for number in range(self.num_feedforward_networks):
            last = number == self.num_feedforward_networks - 1
            theirs = LAYER if last else f"{LAYER}.ffn.{number}"
            at = f"blocks.*.mlp.networks.{number}"
            names |= {f"{at}.up_proj": f"{theirs}.intermediate.dense", f"{at}.down_proj": f"{theirs}.output.dense"}
            names[f"{at}.norm"] = f"{theirs}.output.LayerNorm"
        return names

    def check(self) -> None:
        super().check()
        if self.true_hidden_size not in (None, self.intra_bottleneck_size):
            raise self.refused("true_hidden_size", self.true_hidden_size)
        hidden, width = self.hidden_size, self.embedding_size
        if width >= hidden:
            raise ConfigError(
                f"embedding_size = {width:,} is not less than hidden_size = {hidden:,}: the head has a matrix for the"
                " rest"
            )

    def norm(self) -> Norm:
        """Scale and shift."""
        return Norm(hidden=self.hidden_size, kind="affine")

    def block(self) -> Block:
        """The MLPs read the result of attention; theirs is added to the residual stream."""
        hidden, narrow = self.hidden_size, self.intra_bottleneck_size
        size = self.divide("intra_bottleneck_size", "num_attention_heads")
        how: dict[str, Any] = {"head_dim": size, "qkv_bias": True, "out_bias": True, "causal": False}
        attention = NarrowAttention(hidden=hidden, narrow=narrow, kv_heads=self.num_attention_heads, group=1, **how)
        count, act = self.num_feedforward_networks, self.hidden_act
        mlps = NarrowNetworks(hidden=hidden, width=self.intermediate_size, activation=act, narrow=narrow, count=count)
        return Block((Sublayer(attention, gives="next"), Sublayer(mlps, self.norm())), order="post")

    def embedding(self) -> Embedding:
        """A projection of each token's embedding and of those next to it."""
        width = self.embedding_size
        return Embedding(vocab=self.vocab_size, hidden=self.hidden_size, width=width, bias=True, beside=True)

    def embedding_norm(self) -> Norm:
        return self.norm()

    def head(self) -> Head:
        """Logits over the embedding, and over a matrix for the elements that it does not have."""
        width = self.embedding_size
        return replace(super().head(), width=width, rest=self.hidden_size - width, tied=True)
