"""ViT and its relatives: pre-norm layers over patches of an image or a spectrogram."""

from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from tfacct.architecture.parts import (
    Attention,
    DistanceBias,
    FeedForward,
    Patches,
    Positions,
    QKNorm,
    RelativeBias,
    Rotary,
    TokenPooler,
)
from tfacct.base.errors import ConfigError
from tfacct.base.pydantic_messages import format_value
from tfacct.families.encoders import Encoder, ImageEncoder
from tfacct.families.family import attention_modules, mlp_modules, submodules
from tfacct.families.fields import (
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    StrictBool,
    StrictStr,
    divide_exactly,
)
from tfacct.families.task_heads import BODY, TaskHead

ATTENTION_CONVERSION = (
    *((rf"\.attention\.attention\.{name}\.", f".attention.{name[0]}_proj.") for name in ("query", "key", "value")),
    (r"\.attention\.output\.dense\.", ".attention.o_proj."),
)
LAYER_CONVERSION = ((r"(^|\.)encoder\.layer\.", r"\1layers."),)
MLP_CONVERSION = ((r"\.intermediate\.dense\.", ".mlp.fc1."), (r"\.output\.dense\.", ".mlp.fc2."))
EMBEDDING_TENSORS = {
    "cls_token": "embed.class.weight",
    "mask_token": "embed.mask.weight",
    "distillation_token": "embed.further.weight",
    "register_tokens": "embed.further.weight",
    "position_embeddings": "pos_embed.weight",
}
BIAS_TABLE = "relative_position_bias.relative_position_bias_table"
LAYER_SCALES = {"attn.channel_scale.weight": "lambda_1", "mlp.channel_scale.weight": "lambda_2"}
CLASSIFIER = TaskHead(
    "AutoModelForImageClassification", "classes", bias=True, first=True, paths={"classifier": "classifier"}, gives=False
)


PATCH_MODULES = {"embed.project": ".embeddings.patch_embeddings.projection", "final_norm": ".layernorm"}


def embedding_tensors(names: str) -> dict[str, str]:
    """These learned tokens and positions."""
    return {EMBEDDING_TENSORS[name]: f".embeddings.{name}" for name in names.split()}


class ViTLayers(Encoder):
    """Names of ViT's layers."""

    defaults = dict(layer_norm_eps=1e-12)
    module_names = PATCH_MODULES
    layer_module_names = {
        **attention_modules("attention"),
        **mlp_modules("mlp", "fc1", "fc2", None),
        "attn_norm": "layernorm_before",
        "mlp_norm": "layernorm_after",
    }


class ViTBase(ViTLayers, ImageEncoder):
    """ViT, with a class token or without."""

    qkv_bias: StrictBool = True
    pooler_output_size: Any = None
    pooler_act: StrictStr = "tanh"

    dropouts = {
        "embedding": ("hidden_dropout_prob", 0.0),
        "residual": ("hidden_dropout_prob", 0.0),
        "attention": ("attention_probs_dropout_prob", 0.0),
    }
    checkpoint_conversion_mapping = (*LAYER_CONVERSION, *ATTENTION_CONVERSION, *MLP_CONVERSION)
    reference_only = "pooler_output_size"
    ignored_fields = "encoder_stride"

    def check(self) -> None:
        super().check()
        self.require_if_given({"pooler_output_size": self.hidden_size})


class ViT(ViTBase):
    """ViT: an image encoder of patches and a class token, with a norm before each sublayer."""

    constant_axes = frozenset({"G", "Xc"})
    class_token = True
    base_model_prefix = "vit"
    task_heads = {
        "Model": TaskHead("AutoModel", "none", pooler=True, paths={"pooler": "pooler.dense"}, body=""),
        "ForImageClassification": CLASSIFIER,
    }
    tensor_names = embedding_tensors("cls_token position_embeddings")
    pooler_options = dict(activation=attrgetter("pooler_act"))


class ViTMSN(ViT):
    """ViT MSN: ViT without a pooler."""

    defaults = dict(layer_norm_eps=1e-6)
    task_heads = {"Model": BODY, "ForImageClassification": replace(CLASSIFIER, auto="ViTMSNForImageClassification")}


class DeiT(ViT):
    """DeiT: ViT with a second learned token, for distillation."""

    base_model_prefix = "deit"
    task_heads = {
        **ViT.task_heads,
        "ForImageClassificationWithTeacher": replace(
            CLASSIFIER,
            auto="DeiTForImageClassificationWithTeacher",
            paths={"classifier": "cls_classifier", "classifier.taught": "distillation_classifier"},
            taught=True,
        ),
    }
    tensor_names = embedding_tensors("distillation_token")
    extra_tokens = 1

    def patches(self, **overrides: Any) -> Patches:
        return super().patches(front=2, taught=True)


class IJepa(ViTBase):
    """I-JEPA: ViT without a class token and without a pooler."""

    base_model_prefix = "ijepa"
    task_heads = {"Model": BODY, "ForImageClassification": replace(CLASSIFIER, first=False, pooler=True)}
    tensor_names = embedding_tensors("position_embeddings")

    def pooler(self, hidden: Any) -> TokenPooler:
        """Mean of all patches."""
        return TokenPooler(hidden=hidden, reads="average")


class AST(ViTLayers):
    """AST: ViT's layers over overlapping patches of a spectrogram, with DeiT's two learned tokens."""

    patch_size: PositiveInt = 16
    qkv_bias: StrictBool = True
    frequency_stride: PositiveInt = 10
    time_stride: PositiveInt = 10
    max_length: PositiveInt = 1024
    num_mel_bins: PositiveInt = 128

    constant_axes = frozenset({"G", "Xc", "Cc"})
    checkpoint_conversion_mapping = ViT.checkpoint_conversion_mapping
    hf_fixed_source = True
    base_model_prefix = "audio_spectrogram_transformer"
    classifier = replace(
        CLASSIFIER,
        auto="AutoModelForAudioClassification",
        first=False,
        pooler=True,
        paths={"pooler.norm": "classifier.layernorm", "classifier": "classifier.dense"},
    )
    task_heads = {"Model": TaskHead("AutoModel", "none", pooler=True, body=""), "ForAudioClassification": classifier}
    tensor_names = embedding_tensors("cls_token distillation_token position_embeddings")

    @property
    def context(self) -> int:
        """Patches of a spectrogram, and two tokens. Raises ConfigError."""
        sides = ("num_mel_bins", self.num_mel_bins), ("max_length", self.max_length)
        for name, side in sides:
            if side < self.patch_size:
                raise ConfigError(f"{name} {side:,} is smaller than patch_size {self.patch_size:,}")
        strides = self.frequency_stride, self.time_stride
        high, wide = ((side - self.patch_size) // step + 1 for (_, side), step in zip(sides, strides, strict=True))
        return high * wide + 2

    def pooler(self, hidden: Any) -> TokenPooler:
        """Mean of both tokens, normed before a classifier."""
        eps = self.layer_norm_eps if self.task_head == self.classifier else None
        return TokenPooler(hidden=hidden, reads="both", norm_eps=eps)

    def ends(self) -> dict[str, Any]:
        """Patches of one channel, two tokens and positions. Raises ConfigError."""
        hidden = self.hidden_size
        patches = Patches(channels=1, pixels=self.patch_size**2, hidden=hidden, front=2, taught=True)
        return {**super().ends(), "embed": patches, "positions": Positions(rows=self.context, hidden=hidden)}


class Beit(ViTLayers, ImageEncoder):
    """BEiT: ViT with a relative position bias, and a learned scale per channel of a sublayer's output."""

    use_mask_token: StrictBool = False
    use_absolute_position_embeddings: StrictBool = False
    use_relative_position_bias: StrictBool = False
    use_shared_relative_position_bias: StrictBool = False
    layer_scale_init_value: NonNegativeFloat = 0.1
    use_mean_pooling: StrictBool = True
    vocab_size: PositiveInt = 8192

    constant_axes = frozenset({"G", "Xc"})
    class_token = True
    reference_only = "vocab_size -layer_scale_init_value"
    ignored_fields = """drop_path_rate pool_scales use_auxiliary_head auxiliary_loss_weight auxiliary_channels
        auxiliary_num_convs auxiliary_concat_input semantic_loss_ignore_index out_features out_indices stage_names
        _out_features _out_indices add_fpn reshape_hidden_states segmentation_indices"""
    checkpoint_conversion_mapping = (
        *LAYER_CONVERSION,
        (r"(^|\.)encoder\.relative_position_bias\.", r"\1shared_position_bias."),
        *ATTENTION_CONVERSION,
        (r"\.attention\.attention\.relative_position_bias\.", ".relative_position_bias."),
        *MLP_CONVERSION,
    )
    base_model_prefix = "beit"
    classifier = replace(
        CLASSIFIER, first=False, pooler=True, paths={"pooler.norm": ".pooler.layernorm", "classifier": "classifier"}
    )
    task_heads = {
        "Model": TaskHead("AutoModel", "none", pooler=True, paths={"pooler.norm": "pooler.layernorm"}, body=""),
        "ForImageClassification": classifier,
    }
    tensor_names = {
        **embedding_tensors("cls_token mask_token position_embeddings"),
        "rel_bias.weight": f".{BIAS_TABLE.replace('relative', 'shared', 1)}",
    }
    layer_tensor_names = {"attn.rel_bias.weight": BIAS_TABLE, **LAYER_SCALES}
    mlp_options = dict(channel_scale=attrgetter("scaled"))
    scaled = property(lambda self: self.layer_scale_init_value > 0)
    """Whether channels of a sublayer's output are scaled."""

    def pooler(self, hidden: Any) -> TokenPooler:
        """Mean of the patches and a norm, or the class token."""
        if not self.use_mean_pooling:
            return TokenPooler(hidden=hidden)
        return TokenPooler(hidden=hidden, reads="mean", norm_eps=self.layer_norm_eps)

    def check(self) -> None:
        super().check()
        if self.use_relative_position_bias and self.use_shared_relative_position_bias:
            raise self.refused("use_shared_relative_position_bias", True)

    @property
    def bias_sizes(self) -> dict[str, Any]:
        """Patches on a side of an image; distances by rows and columns, and three of the class token."""
        across = self.image_size // self.patch_size
        return {"across": across, "buckets": (2 * across - 1) ** 2 + 3}

    def attention(self, **overrides: Any) -> Attention:
        table = DistanceBias(**self.bias_sizes) if self.use_relative_position_bias else None
        bias = table or (DistanceBias() if self.use_shared_relative_position_bias else None)
        return super().attention(key_bias=False, channel_scale=self.scaled, distance_bias=bias)

    def patches(self, **overrides: Any) -> Patches:
        return super().patches(masked=self.use_mask_token)

    def positions(self) -> Positions | None:
        learned = super().positions()
        return learned if self.use_absolute_position_embeddings else None

    def ends(self) -> dict[str, Any]:
        """A relative position bias that all layers share; no last norm if the pooler has one. Raises ConfigError."""
        shared = self.use_shared_relative_position_bias
        bias = RelativeBias(kv_heads=self.num_attention_heads, group=1, **self.bias_sizes) if shared else None
        last = None if self.use_mean_pooling else self.norm()
        return {**super().ends(), "bias": bias, "final_norm": last}


class Data2VecVision(Beit):
    """data2vec for images: BEiT, with other module names."""

    checkpoint_conversion_mapping = ()
    base_model_prefix = "data2vec_vision"
    layer_path = ".encoder.layer.*"
    task_heads = {"Model": BODY, "ForImageClassification": Beit.classifier}
    layer_module_names = {
        **attention_modules("attention.attention", "query", "key", "value"),
        "attn.o_proj": "attention.output.dense",
        "mlp.up_proj": "intermediate.dense",
        "mlp.down_proj": "output.dense",
    }
    tensor_names = {"rel_bias.weight": f".encoder.{BIAS_TABLE}"}
    layer_tensor_names = {"attn.rel_bias.weight": f"attention.attention.{BIAS_TABLE}"}


def side_of_square(given: Any) -> Any:
    """Side of a square, given as one number or two equal ones. Raises ConfigError."""
    if not isinstance(given, list):
        return given
    if len(set(map(str, given))) != 1 or len(given) != 2:
        must_be = "must be a whole number, or two equal ones"
        raise ConfigError(f"image_size and patch_size {must_be}, not {format_value(given)}")
    return given[0]


class InternVLVision(ViTLayers, ImageEncoder):
    """InternVL's image encoder: ViT, with a learned scale per channel of a sublayer's output."""

    sizes = dict(hidden=1024, mlp=4096, layers=24, heads=16)
    defaults = dict(layer_norm_eps=1e-6)
    image_size: Annotated[PositiveInt, BeforeValidator(side_of_square)] = 448
    patch_size: Annotated[PositiveInt, BeforeValidator(side_of_square)] = 14
    attention_bias: StrictBool = False
    use_qk_norm: StrictBool = False
    norm_type: Literal["layer_norm", "rms_norm"] = "layer_norm"
    use_mask_token: StrictBool = False
    use_absolute_position_embeddings: StrictBool = True
    use_mean_pooling: StrictBool = True

    constant_axes = frozenset({"G", "Xc"})
    class_token = True
    required_values = {"use_mask_token": False, "use_absolute_position_embeddings": True}
    reference_only = "-use_mask_token -use_absolute_position_embeddings"
    ignored_fields = "layer_scale_init_value"
    layer_path = "encoder.layer.*"
    task_heads = {"Model": TaskHead("AutoModel", "none")}
    layer_module_names = submodules("attn", "attention", "q_norm k_norm", o_proj="projection_layer")
    tensor_names = embedding_tensors("cls_token position_embeddings")
    layer_tensor_names = LAYER_SCALES
    norm_kind = property(lambda self: "rms" if self.norm_type == "rms_norm" else "layer")
    mlp_options = dict(channel_scale=True)

    def attention(self, **overrides: Any) -> Attention:
        norms = QKNorm(1e-6, together=True) if self.use_qk_norm else None
        return super().attention(qkv_bias=self.attention_bias, qk_norm=norms, channel_scale=True)

    def ends(self) -> dict[str, Any]:
        """Patches and positions. The last norm is a LayerNorm, and only there if patches are not averaged."""
        last = None if self.use_mean_pooling else replace(self.norm(), kind="layer")
        return {**super().ends(), "final_norm": last}


class DinoLayers(ImageEncoder):
    """Layers of DINOv2 and DINOv3: a learned scale per channel of a sublayer's output."""

    class_token = True
    ignored_fields = """layerscale_value drop_path_rate apply_layernorm reshape_hidden_states out_features out_indices
        stage_names _out_features _out_indices"""
    task_heads = {"Model": BODY}
    layer_module_names = {**attention_modules("attention"), "attn_norm": "norm1", "mlp_norm": "norm2"}
    tensor_names = embedding_tensors("cls_token mask_token")
    layer_tensor_names = {
        "attn.channel_scale.weight": "layer_scale1.lambda1",
        "mlp.channel_scale.weight": "layer_scale2.lambda1",
    }
    mlp_options = dict(channel_scale=True)
    attention_options = dict(channel_scale=True)


class Dinov2(DinoLayers):
    """DINOv2: ViT, with a learned scale per channel of a sublayer's output."""

    defaults = dict(layer_norm_eps=1e-6, patch_size=14)
    intermediate_size: PositiveInt | None = None  # type: ignore[assignment]  # the class does not read it
    mlp_ratio: PositiveInt = 4
    qkv_bias: StrictBool = True
    use_swiglu_ffn: StrictBool = False
    use_mask_token: StrictBool = True

    constant_axes = frozenset({"G", "Xc"})
    reference_only = "intermediate_size"
    checkpoint_conversion_mapping = (
        *ATTENTION_CONVERSION,
        (r"\.mlp\.weights_in\.", ".mlp.gate_up_proj."),
        (r"\.mlp\.weights_out\.", ".mlp.down_proj."),
    )
    layer_path = "encoder.layer.*"
    module_names = PATCH_MODULES
    tensor_names = embedding_tensors("position_embeddings")
    stores_mask_token = property(attrgetter("use_mask_token"))

    def hf_module_names(self) -> Mapping[str, str]:
        """A gated MLP has other names."""
        mlp = mlp_modules("mlp") if self.use_swiglu_ffn else mlp_modules("mlp", "fc1", "fc2", None)
        layers = {f"blocks.*.{name}": f"{self.layer_path}.{hf_name}" for name, hf_name in mlp.items()}
        return {**super().hf_module_names(), **layers}

    def mlp(self, **overrides: Any) -> FeedForward:
        gated, width = self.use_swiglu_ffn, self.hidden_size * self.mlp_ratio
        width = (int(width * 2 / 3) + 7) // 8 * 8 if gated else width
        return super().mlp(width=width, gated=gated, activation="silu" if gated else self.hidden_act)

    def patches(self, **overrides: Any) -> Patches:
        extra = self.extra_tokens
        return super().patches(front=1 + extra, further=extra or None, masked=self.stores_mask_token)

    def positions(self) -> Positions:
        """Registers have no position. Raises ConfigError."""
        extra = self.extra_tokens
        layout: Any = "class_and_patches" if extra else "row"
        return Positions(rows=self.context - extra, hidden=self.hidden_size, layout=layout)


class Dinov2WithRegisters(Dinov2):
    """DINOv2 with registers: more learned tokens after the class token, without positions."""

    defaults = dict(patch_size=16)
    num_register_tokens: NonNegativeInt = 4
    use_mask_token: bool | None = None  # type: ignore[assignment]

    constant_axes = frozenset("G")
    reference_only = "use_mask_token"
    tensor_names = embedding_tensors("register_tokens")
    stores_mask_token = True

    @property
    def extra_tokens(self) -> int:
        """Registers. Raises ConfigError if there are none."""
        if not self.num_register_tokens:
            raise self.refused("num_register_tokens", 0)
        return self.num_register_tokens


class DINOv3ViT(DinoLayers):
    """DINOv3: DINOv2 with registers, and a rotary embedding by row and column in place of learned positions."""

    sizes = dict(hidden=384, mlp=1536, heads=6)
    rope_theta: PositiveFloat = 100.0
    query_bias: StrictBool = True
    key_bias: StrictBool = False
    value_bias: StrictBool = True
    proj_bias: StrictBool = True
    mlp_bias: StrictBool = True
    use_gated_mlp: StrictBool = False
    num_register_tokens: NonNegativeInt = 0

    ignored_fields = "pos_embed_shift pos_embed_jitter pos_embed_rescale"
    checkpoint_conversion_mapping = ((r"^layer\.", "model.layer."),)
    layer_path = "model.layer.*"
    module_names = {"embed.project": "embeddings.patch_embeddings", "final_norm": "norm"}
    layer_module_names = mlp_modules("mlp")
    tensor_names = embedding_tensors("register_tokens")
    extra_tokens = property(attrgetter("num_register_tokens"))
    mlp_options = dict(gated=attrgetter("use_gated_mlp"), bias=attrgetter("mlp_bias"))

    def check(self) -> None:
        super().check()
        if self.query_bias != self.value_bias or (self.key_bias and not self.query_bias):
            raise self.refused("query_bias", self.query_bias)
        divide_exactly(self.head_dim, 4, "the size of a head by 4")

    def rope(self) -> Rotary:
        return Rotary(self.rope_theta, kind="centred_grid", tiles=(), unrotated=1 + self.extra_tokens)

    def attention(self, **overrides: Any) -> Attention:
        return super().attention(qkv_bias=self.query_bias, key_bias=self.key_bias, out_bias=self.proj_bias)

    def patches(self, **overrides: Any) -> Patches:
        return super().patches(front=1 + self.extra_tokens, further=self.extra_tokens, masked=True)

    def positions(self) -> None:
        return None
