"""Shared by Hunyuan's families: Llama's attention, and a norm of each head's queries and keys behind their rotation."""

from typing import Any, ClassVar

from pydantic import Field

from tfacct.architecture.parts import Attention, QKNorm
from tfacct.families._base import Count, Layers, Real, Switch
from tfacct.families._endings import CLASSIFYING
from tfacct.families._llama_like import LlamaLike


class HunyuanLike(LlamaLike):
    """The fields that Hunyuan's dense models and those with experts spell alike. head_dim has no default: the classes
    cannot be built without it."""

    vocab_size: Count = 290943
    hidden_size: Count = 4096
    intermediate_size: Count = 11008
    num_hidden_layers: Layers = 32
    num_attention_heads: Count = 32
    num_key_value_heads: Count = Field(default_factory=lambda fields: fields["num_attention_heads"])
    head_dim: Count
    max_position_embeddings: Count = 2048
    rms_norm_eps: Real = 1e-5
    attention_bias: Switch = False
    use_qk_norm: Switch = True

    uncounted: ClassVar = LlamaLike.uncounted | {"use_qk_norm"}
    aliases: ClassVar = {"attention_head_dim": "head_dim"}
    harmless: ClassVar = frozenset(
        """
        add_classification_head class_num cla_share_factor dense_list eod_token_id im_end_id im_newline_id im_start_id
        mask_init_id norm_type org_vocab_size pad_id pool_type position_embedding_xdrope text_end_id text_start_id
        video_end_id video_start_id num_media_embeds use_rotary_pos_emb anyres_vit_max_image_size
        """.split()
    )
    heads: ClassVar = CLASSIFYING
    hf_paths: ClassVar = {
        **LlamaLike.hf_paths,
        "blocks.*.attn.q_norm": "model.layers.*.self_attn.query_layernorm",
        "blocks.*.attn.k_norm": "model.layers.*.self_attn.key_layernorm",
    }

    def attention(self, **own: Any) -> Attention:
        """Biases on all four projections or none; norms of queries and keys behind the rotation."""
        if not self.use_qk_norm:
            raise self.refused("use_qk_norm", False)
        biased, norm = self.attention_bias, QKNorm(self.rms_norm_eps, late=True)
        return LlamaLike.attention(self, **{"qkv_bias": biased, "out_bias": biased, "qk_norm": norm, **own})
