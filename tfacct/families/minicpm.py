"""MiniCPM's language models: constants scale embeddings, residuals and logits."""

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from pydantic import Field

from tfacct.families.decoder import Decoder
from tfacct.families.family import SAME_AS_QUERY_HEADS
from tfacct.families.fields import PositiveFloat, PositiveInt, StrictBool, divide_exactly
from tfacct.families.mla import MlaDecoder
from tfacct.families.task_heads import CLASSIFYING


class MiniCPM(Decoder):
    """MiniCPM 1 to 4 (dense): Llama's layer; constants scale embeddings, residuals and logits. The head is tied by
    default."""

    sizes = dict(vocab=32000, hidden=4096, mlp=11008, layers=32, heads=32, kv_heads=SAME_AS_QUERY_HEADS, context=2048)
    defaults = dict(tie_word_embeddings=True)
    attention_bias: StrictBool = False
    scale_emb: PositiveFloat = 1.0
    scale_depth: PositiveFloat = 1.0
    dim_model_base: PositiveFloat = 1.0
    class_prefixes = ("MiniCPM", "Granite")
    hf_model_type = "granite"
    ignored_fields = "mup_denominator"
    heads_fill_hidden_size = True

    residual_factor = property(lambda self: self.scale_depth / self.num_hidden_layers**0.5)
    logit_scale = property(lambda self: self.dim_model_base / self.hidden_size)
    embedding_options = dict(scaled=True, factor=attrgetter("scale_emb"))
    head_options = dict(logit_scale=attrgetter("logit_scale"))

    def hf_config_fields(self) -> Mapping[str, Any]:
        """Fields with their defaults, and constants with Granite's names."""
        return {
            **self.model_dump(exclude={"scale_emb", "scale_depth", "dim_model_base"}, exclude_none=True),
            "embedding_multiplier": self.scale_emb,
            "residual_multiplier": self.residual_factor,
            "logits_scaling": self.hidden_size / self.dim_model_base,
            "attention_multiplier": self.head_dim**-0.5,
        }


class MiniCPM3(MlaDecoder):
    """MiniCPM3: latent attention and dense MLPs; constants scale embeddings, residuals and logits. The head is tied by
    default."""

    sizes = dict(vocab=73448, hidden=2560, mlp=6400, layers=62, heads=40, kv_heads=40, context=32768)
    defaults = dict(
        tie_word_embeddings=True,
        rms_norm_eps=1e-5,
        q_lora_rank=768,
        kv_lora_rank=256,
        qk_nope_head_dim=64,
        qk_rope_head_dim=32,
        v_head_dim=Field(
            default_factory=lambda fields: divide_exactly(
                fields["hidden_size"], fields["num_attention_heads"], "hidden_size by num_attention_heads"
            )
        ),
    )
    scale_emb: PositiveFloat = 12.0
    scale_depth: PositiveFloat | None = 1.4
    dim_model_base: PositiveInt | None = 256
    reference_only = "dim_model_base"
    task_heads = CLASSIFYING
    rope_pairs = "halves"

    residual_factor = property(
        lambda self: 1.0 if self.scale_depth is None else self.scale_depth / self.num_hidden_layers**0.5
    )
    logit_scale = property(lambda self: (self.dim_model_base or self.hidden_size) / self.hidden_size)
    embedding_options, head_options = MiniCPM.embedding_options, MiniCPM.head_options
