"""CLIP, SigLIP and their relatives: image and text encoders with biases everywhere."""

from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any

from tfacct.architecture.parts import AttentionPooler, Embedding, Positions, TokenPooler
from tfacct.base.errors import ConfigError
from tfacct.families.encoders import Encoder, ImageEncoder
from tfacct.families.family import Family, attention_modules, mlp_modules
from tfacct.families.fields import PositiveInt, StrictBool
from tfacct.families.task_heads import TaskHead


def built_by_class(prefix: str, heads: Mapping[str, TaskHead]) -> dict[str, TaskHead]:
    """The same heads for classes with this prefix, which no `Auto` class builds."""
    return {ending: replace(head, auto=prefix + ending) for ending, head in heads.items()}


class ClipLayers(Family):
    """Names of CLIP's layers."""

    layer_path = ".encoder.layers.*"
    layer_module_names = {
        **attention_modules("self_attn", o="out_proj"),
        **mlp_modules("mlp", "fc1", "fc2", None),
        "attn_norm": "layer_norm1",
        "mlp_norm": "layer_norm2",
    }


class TextEncoder(ClipLayers, Encoder):
    """The fields of a text encoder."""

    vocab_size: PositiveInt = 49408
    max_position_embeddings: PositiveInt = 77
    module_names = {
        "embed": ".embeddings.token_embedding",
        "pos_embed": ".embeddings.position_embedding",
        "final_norm": ".final_layer_norm",
    }
    context = property(attrgetter("max_position_embeddings"))

    def ends(self) -> dict[str, Any]:
        """Embeddings of tokens and positions, and norms."""
        hidden, rows = self.hidden_size, self.max_position_embeddings
        embed = Embedding(vocab=self.vocab_size, hidden=hidden)
        return {**super().ends(), "embed": embed, "positions": Positions(rows=rows, hidden=hidden)}


class CLIPText(TextEncoder):
    """CLIP's text encoder: causal, but without a cache, because it reads whole texts."""

    sizes = dict(hidden=512, mlp=2048, heads=8)
    defaults = dict(hidden_act="quick_gelu")
    projection_dim: PositiveInt = 512
    base_model_prefix = "text_model"
    task_heads = {
        "Model": TaskHead("AutoModel", "none", body=""),
        "ModelWithProjection": TaskHead(
            "CLIPTextModelWithProjection", "none", pooler=True, paths={"pooler.project": "text_projection"}
        ),
    }
    attention_options = dict(causal=True, cache="none")

    def pooler(self, hidden: Any) -> TokenPooler:
        """Projection of the last token of the text."""
        return TokenPooler(hidden=hidden, reads="end", width=self.projection_dim)


class MetaClip2Text(CLIPText):
    """MetaCLIP 2's text encoder: CLIP's."""

    task_heads = built_by_class("MetaClip2Text", CLIPText.task_heads)


class SiglipText(TextEncoder):
    """SigLIP's text encoder: bidirectional, with a projection of the last position."""

    sizes = dict(vocab=32000, context=64)
    defaults = dict(hidden_act="gelu_pytorch_tanh", layer_norm_eps=1e-6)
    projection_size: PositiveInt | None = None
    checkpoint_conversion_mapping = ((r"^text_model\.", ""),)
    task_heads = {"Model": TaskHead("SiglipTextModel", "none", pooler=True, paths={"pooler.project": "head"})}

    def pooler(self, hidden: Any) -> TokenPooler:
        """Projection of the last position."""
        return TokenPooler(hidden=hidden, reads="last", width=self.projection_size or self.hidden_size, bias=True)


class Siglip2Text(SiglipText):
    """SigLIP 2's text encoder: SigLIP's."""

    task_heads = built_by_class("Siglip2Text", SiglipText.task_heads)


class CLIPVision(ClipLayers, ImageEncoder):
    """CLIP's image encoder: patches without a bias, a class token, a norm before the first layer."""

    defaults = dict(patch_size=32, hidden_act="quick_gelu")
    projection_dim: PositiveInt = 512
    ignored_fields = "vocab_size"
    constant_axes = frozenset({"G", "Xc"})
    patch_bias, class_token = False, True
    embedding_norm, final_norm = True, False
    base_model_prefix = "vision_model"
    projection = {"pooler.project": "visual_projection"}
    task_heads = {
        "Model": TaskHead("AutoModel", "none", pooler=True, body=""),
        "ModelWithProjection": TaskHead("CLIPVisionModelWithProjection", "none", pooler=True, paths=projection),
    }
    module_names = {
        "embed.project": ".embeddings.patch_embedding",
        "pos_embed": ".embeddings.position_embedding",
        "pooler.norm": ".post_layernorm",
        "embed_norm": ".pre_layrnorm",
    }
    tensor_names = {"embed.class.weight": ".embeddings.class_embedding"}

    def pooler(self, hidden: Any) -> TokenPooler:
        """The class token, normed, and projected in some classes."""
        width = self.projection_dim if "pooler.project" in self.task_head.paths else None
        return TokenPooler(hidden=hidden, norm_eps=self.layer_norm_eps, width=width)


class ChineseCLIPVision(CLIPVision):
    """Chinese CLIP's image encoder: CLIP's."""

    task_heads = {
        **CLIPVision.task_heads,
        "ModelWithProjection": replace(CLIPVision.task_heads["ModelWithProjection"], auto=""),
    }


class AltCLIPVision(ChineseCLIPVision):
    """AltCLIP's image encoder: CLIP's."""

    task_heads = {
        **ChineseCLIPVision.task_heads,
        "Model": replace(CLIPVision.task_heads["Model"], auto="AltCLIPVisionModel"),
    }


class MetaClip2Vision(CLIPVision):
    """MetaCLIP 2's image encoder: CLIP's."""

    task_heads = built_by_class("MetaClip2Vision", CLIPVision.task_heads)


class Idefics3Vision(ClipLayers, ImageEncoder):
    """Idefics3's image encoder: SigLIP's without a pooler, for images of any size and shape."""

    sizes = dict(hidden=1152, heads=16)
    defaults = dict(patch_size=32, hidden_act="gelu_pytorch_tanh", layer_norm_eps=1e-6)
    ignored_fields = "max_image_size size use_base_siglip"
    task_heads = {"Transformer": TaskHead("AutoModel", "none")}
    module_names = {
        "embed.project": "embeddings.patch_embedding",
        "pos_embed": "embeddings.position_embedding",
        "final_norm": "post_layernorm",
    }


class SmolVLMVision(Idefics3Vision):
    """SmolVLM's image encoder: Idefics3's."""


class Idefics2Vision(Idefics3Vision):
    """Idefics2's image encoder: Idefics3's. Only default sizes differ."""

    sizes = dict(hidden=768, heads=12)
    task_heads = built_by_class("models.idefics2.modeling_idefics2.Idefics2Vision", Idefics3Vision.task_heads)


class SiglipVision(ClipLayers, ImageEncoder):
    """SigLIP's image encoder: patches, no class token, and a pooler that attends to all patches."""

    defaults = dict(hidden_act="gelu_pytorch_tanh", layer_norm_eps=1e-6)
    vision_use_head: StrictBool = True
    checkpoint_conversion_mapping = ((r"^vision_model\.", ""),)
    ignored_fields = "num_image_tokens num_positions projection_dim projector_hidden_act vocab_size"
    constant_axes = frozenset({"G", "Qp"})
    task_heads = {"Model": TaskHead("AutoModel", "none", pooler=True)}
    module_names = {
        **Idefics3Vision.module_names,
        **{f"pooler.{name}": "head.attention" for name in ("q_proj", "k_proj", "v_proj", "scores", "values", "o_proj")},
        "pooler.norm": "head.layernorm",
        "pooler.mlp.up_proj": "head.mlp.fc1",
        "pooler.mlp.down_proj": "head.mlp.fc2",
    }
    tensor_names = {
        f"pooler.{name}_proj.{tensor}": f"head.attention.{'out_proj.' if name == 'o' else 'in_proj_'}{tensor}"
        for name in "qkvo"
        for tensor in ("weight", "bias")
    } | {"pooler.probe.weight": "head.probe"}

    def pooler(self, hidden: Any) -> AttentionPooler | None:
        """Attention with a learned query, if the class has one."""
        if not self.vision_use_head:
            return None
        return AttentionPooler(
            hidden=hidden,
            heads=self.num_attention_heads,
            head_dim=self.head_dim,
            width=self.intermediate_size,
            activation=self.hidden_act,
            eps=self.layer_norm_eps,
        )


class Siglip2Vision(SiglipVision):
    """SigLIP 2's image encoder: SigLIP's, for images of any shape; num_patches gives its positions."""

    num_patches: PositiveInt = 256
    ignored_fields = "max_num_patches"
    reference_only = "image_size"

    @property
    def context(self) -> int:
        """num_patches, which must be a square. Raises ConfigError."""
        if round(self.num_patches**0.5) ** 2 != self.num_patches:
            raise ConfigError(f"num_patches = {self.num_patches:,} must be a perfect square, as the class requires")
        return self.num_patches


class Phi4MultimodalVision(SiglipVision):
    """Phi-4-multimodal's image encoder: SigLIP's, with the nearest learned position for each patch."""

    sizes = dict(hidden=1152, mlp=4304, layers=27, heads=16)
    defaults = dict(image_size=448, patch_size=14)
    reference_only = "vision_use_head"
    ignored_fields = "crop_size feature_layer image_token_id"
    task_heads = built_by_class(
        "models.phi4_multimodal.modeling_phi4_multimodal.Phi4MultimodalVision", SiglipVision.task_heads
    )

    def pooler(self, hidden: Any) -> AttentionPooler | None:
        """SigLIP's: the class does not read vision_use_head. Raises ConfigError."""
        self.require({"vision_use_head": True})
        return super().pooler(hidden)
