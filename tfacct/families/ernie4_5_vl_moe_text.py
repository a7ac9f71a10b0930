"""ERNIE 4.5 VL's language model: ERNIE 4.5's blocks, with experts for text, and others for images beside them."""

from typing import Annotated, ClassVar

from pydantic_core import core_schema

from tfacct.architecture.parts import Experts, FeedForward, Head
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Checked, whole
from tfacct.families._endings import inside
from tfacct.families._ernie_like import ErnieExperts
from tfacct.families._experts import BESIDE_PATHS, CHOICE, LayerNetworks, check_active, dense_or_sparse

RELEASED = "2025-06"

Pair = Annotated[list[int], Checked(core_schema.list_schema(whole(1).schema, strict=True, min_length=2, max_length=2))]
"""A size of each set of experts: of those for text, of those for images."""
WIDTHS = (1536, 512)
ROUTER_BIAS = "gate.moe_statics.e_score_correction_bias"


def _of(experts: str) -> str:
    return f"model.layers.*.mlp.{experts}_moe"


class Config(ErnieExperts):
    """`Ernie4_5_VLMoeTextConfig`, with its class's defaults, sizes too. The head is tied unless the config says
    otherwise."""

    moe_intermediate_size: Pair | None = None
    mlp_layer_types: LayerNetworks | None = None

    stems: ClassVar = ("Ernie4_5_VLMoe", "Ernie4_5_VLMoeText")
    harmless: ClassVar = frozenset({"moe_norm_min", "router_aux_loss_coef"})
    heads: ClassVar = inside("Ernie4_5_VLMoeForConditionalGeneration", "Ernie4_5_VLMoeTextModel")
    hf_paths: ClassVar = {
        **ErnieExperts.hf_paths,
        **BESIDE_PATHS,
        "blocks.*.mlp.router": f"{_of('text')}.gate",
        **{f"blocks.*.mlp.experts.{name}": f"{_of('text')}.experts" for name in ("gate_proj", "up_proj", "down_proj")},
        "blocks.*.mlp.others.router": f"{_of('vision')}.gate",
    }
    hf_tensors: ClassVar = {
        CHOICE: f"{_of('text')}.{ROUTER_BIAS}",
        "blocks.*.mlp.others.routing.bias": f"{_of('vision')}.{ROUTER_BIAS}",
        **{
            f"blocks.*.mlp.{ours}.{name}_proj.weight": f"{_of(theirs)}.experts.{held}_proj"
            for ours, theirs in (("experts", "text"), ("others.experts", "vision"))
            for name, held in (("gate", "gate_up"), ("up", "gate_up"), ("down", "down"))
        },
    }

    def architecture(self) -> Transformer:
        """Dense blocks, and those with both sets of experts."""
        self.whole_heads()
        attention = self.attention(qkv_bias=self.use_bias, out_bias=self.use_bias)
        kinds = {True: self.block(attention, self.experts()), False: self.block(attention, self.network())}
        routed = dense_or_sparse(self.mlp_layer_types, self.num_hidden_layers)
        head = Head(hidden=self.hidden_size, vocab=self.vocab_size, tied=self.tie_word_embeddings)
        return self.decoder([kinds[some] for some in routed], head=head)

    def network(self) -> FeedForward:
        """That of a dense layer."""
        return self.feed_forward(bias=self.use_bias)

    def experts(self) -> Experts:
        """Those for text, beside a shared network, and those for images. Raises ConfigError."""
        check_active(self.moe_k, self.moe_num_experts, ("moe_k", "moe_num_experts"))
        width, others = self.moe_intermediate_size or WIDTHS
        return Experts(
            hidden=self.hidden_size,
            experts=self.moe_num_experts,
            active=self.moe_k,
            width=width,
            shared=self.moe_num_shared_experts * width or None,
            shared_bias=self.use_bias,
            choice_bias=True,
            activation=self.activation,
            others=others,
        )
