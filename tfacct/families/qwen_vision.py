"""Qwen's image encoders and their relatives: a rotary embedding by row and column, and merged patches."""

from collections.abc import Iterator, Mapping
from math import isqrt
from operator import attrgetter
from typing import Any, ClassVar

from tfacct.architecture.blocks import Stack, stacks
from tfacct.architecture.parts import Attention, Deepstack, Merger, Part, Patches, Positions, QKNorm, Rotary
from tfacct.base.errors import ConfigError
from tfacct.base.record import record
from tfacct.families.encoders import EncoderBase, axial_theta, check_axial
from tfacct.families.family import attention_modules, mlp_modules, submodules
from tfacct.families.fields import (
    JsonDict,
    LayerCount,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    StrictBool,
    StrictStr,
    divide_exactly,
)
from tfacct.families.task_heads import TaskHead
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import MERGE, Line, Matmul, Pointwise
from tfacct.ledger.workload import MERGED

LARGEST_IMAGE = 1280
"""Tokens of the largest image: Qwen2-VL's image processor takes 28² · 1,280 pixels, and a token is 28² of them."""


class QwenVisionBase(EncoderBase):
    """The fields of an encoder of images of any size and shape, without a merger."""

    depth: LayerCount = 32
    num_heads: PositiveInt = 16
    in_channels: PositiveInt = 3
    patch_size: PositiveInt = 14
    spatial_merge_size: PositiveInt = 2
    temporal_patch_size: PositiveInt = 2
    hidden_act: StrictStr = "silu"
    rope_parameters: JsonDict | None = None
    in_chans: PositiveInt | None = None
    spatial_patch_size: PositiveInt | None = None

    attribute_map = {"num_attention_heads": "num_heads", "num_hidden_layers": "depth"}
    reference_only = "in_chans spatial_patch_size"
    task_heads = {"Model": TaskHead("AutoModel", "none")}
    layer_path = "blocks.*"
    module_names = {"embed.project": "patch_embed.proj"}
    layer_module_names = {
        **attention_modules("attn", "qkv", "qkv", "qkv", "proj"),
        "attn_norm": "norm1",
        "mlp_norm": "norm2",
    }
    final_norm = False
    patch_bias = False
    patch_norm = False
    """Whether a norm follows the projection of patches."""
    eps = 1e-6  # most classes have no field for it

    @property
    def head_dim(self) -> int:
        """Size of one head, which rows and columns share. Raises ConfigError."""
        size = divide_exactly(self.width, self.num_heads, "the width by num_heads")
        return 4 * divide_exactly(size, 4, "the size of a head by 4")

    @property
    def context(self) -> int:
        """Patches of the largest image of the image processor's default."""
        return LARGEST_IMAGE * self.spatial_merge_size**2

    @property
    def tiles(self) -> tuple[int, ...]:
        """Sides of the squares that order the patches: those of merged patches."""
        return (self.spatial_merge_size,)

    def check(self) -> None:
        super().check()
        for name, read in (("in_chans", "in_channels"), ("spatial_patch_size", "patch_size")):
            if getattr(self, name) not in (None, getattr(self, read)):
                raise ConfigError(f"{name} = {getattr(self, name):,} is ignored by the class, which reads {read}")

    def rope(self) -> Rotary:
        check_axial(self.rope_parameters)
        return Rotary(axial_theta(self.rope_parameters), kind="grid", tiles=self.tiles)

    def positions(self) -> Positions | None:
        """Learned positions, in families that have them."""
        return None

    def merger(self) -> Part | None:
        """The merger of patches after the layers, if the class has one."""
        return None

    def ends(self) -> dict[str, Any]:
        """Patches of several frames, positions, and the merger."""
        pixels = self.temporal_patch_size * self.patch_size**2
        patches = Patches(
            channels=self.in_channels,
            pixels=pixels,
            hidden=self.width,
            bias=self.patch_bias,
            norm_eps=self.eps if self.patch_norm else None,
        )
        return {**super().ends(), "embed": patches, "positions": self.positions(), "merger": self.merger()}


class Ernie4_5_VLMoeVisionTransformerPretrained(QwenVisionBase):
    """ERNIE 4.5 VL's image encoder: Qwen2-VL's layers and a norm. Patches are merged in the projector."""

    defaults = dict(hidden_act="quick_gelu", temporal_patch_size=1)
    hidden_size: PositiveInt = 1280
    intermediate_size: PositiveInt = 5120
    temporal_merge_size: PositiveInt = 2
    rms_norm_eps: PositiveFloat = 1e-6

    final_norm = True
    required_values = {"temporal_patch_size": 1}  # which the class does not read
    reference_only = "temporal_merge_size"
    ignored_fields = "vit_first_fwd_bsz attn_sep"
    task_heads = {
        "Model": TaskHead(
            "models.ernie4_5_vl_moe.modeling_ernie4_5_vl_moe.Ernie4_5_VLMoeVisionTransformerPretrainedModel", "none"
        )
    }
    module_names = {"final_norm": "ln"}
    layer_module_names = mlp_modules("mlp", "fc1", "fc2", None)
    eps = property(attrgetter("rms_norm_eps"))


class QwenVision(QwenVisionBase):
    """Qwen's image encoders: each square of patches becomes one token."""

    ignored_fields = "tokens_per_second"

    def merger(self) -> Part | None:
        return Merger(
            hidden=self.width,
            patches=self.spatial_merge_size**2,
            out=self.out_hidden_size,
            norm=self.norm_kind,
            eps=self.eps,
        )


class Qwen2VisionTransformerPretrained(QwenVision):
    """Qwen2-VL's image encoder: a rotary embedding by row and column, and four patches merged into one token."""

    defaults = dict(hidden_act="quick_gelu")
    embed_dim: PositiveInt = 1280
    hidden_size: PositiveInt = 3584
    mlp_ratio: PositiveInt = 4

    task_heads = {"Model": TaskHead("models.qwen2_vl.modeling_qwen2_vl.Qwen2VisionTransformerPretrainedModel", "none")}
    module_names = submodules("merger", "merger", norm="ln_q", up_proj="mlp.0", down_proj="mlp.2")
    layer_module_names = mlp_modules("mlp", "fc1", "fc2", None)
    width = property(attrgetter("embed_dim"))
    out_hidden_size = property(attrgetter("hidden_size"))
    intermediate_size = property(lambda self: self.embed_dim * self.mlp_ratio)


class Qwen2_5_VisionTransformerPretrained(QwenVision):
    """Qwen2.5-VL's image encoder: RMSNorm and gated MLPs; most layers attend in square windows of patches."""

    hidden_size: PositiveInt = 3584
    intermediate_size: PositiveInt = 3420
    window_size: PositiveInt = 112
    out_hidden_size: PositiveInt = 3584
    fullatt_block_indexes: tuple[NonNegativeInt, ...] = (7, 15, 23, 31)

    norm_kind = "rms"
    module_names = Qwen2VisionTransformerPretrained.module_names
    layer_module_names = mlp_modules("mlp")
    mlp_options = dict(gated=True)

    @property
    def window_side(self) -> int:
        """Patches on a side of a window. Raises ConfigError."""
        merged = self.window_size // self.spatial_merge_size // self.patch_size
        if merged == 0:
            raise ConfigError(
                f"window_size = {self.window_size:,} is smaller than {self.spatial_merge_size:,} patches of"
                f" {self.patch_size:,}, which are merged"
            )
        return merged * self.spatial_merge_size

    @property
    def has_windows(self) -> bool:
        """True if any layer has a window."""
        return not {*range(self.depth)} <= {*self.fullatt_block_indexes}

    @property
    def tiles(self) -> tuple[int, ...]:
        """Sides of a window, and of the square that is merged."""
        return (self.window_side, *super().tiles) if self.has_windows else super().tiles

    @property
    def context(self) -> int:
        """Patches of the largest image of the image processor's default, in full windows."""
        largest, window = super().context, self.window_side**2 if self.has_windows else 1
        return max(largest - largest % window, window)

    def stacks(self) -> tuple[Stack, ...]:
        """Layers with windows and without."""
        full = self.block()
        windowed = self.block(tiles=self.window_side**2) if self.has_windows else full
        return stacks([full if number in self.fullatt_block_indexes else windowed for number in range(self.depth)])


class Qwen2_5OmniVision(Qwen2_5_VisionTransformerPretrained):
    """Qwen2.5-Omni's image encoder: Qwen2.5-VL's, with separate query, key and value projections."""

    ignored_fields = "embed_dim"
    task_heads = {"Encoder": TaskHead("models.qwen2_5_omni.modeling_qwen2_5_omni.Qwen2_5OmniVisionEncoder", "none")}
    layer_module_names = attention_modules("attn", "q", "k", "v", "proj")


class Exaone4_5_Vision(Qwen2_5_VisionTransformerPretrained):
    """EXAONE 4.5's image encoder: Qwen2.5-VL's, with grouped-query attention."""

    num_key_value_heads: PositiveInt = 8
    constant_axes = frozenset()

    def attention(self, **overrides: Any) -> Attention:
        heads = self.num_key_value_heads
        group = divide_exactly(self.num_heads, heads, "num_heads by num_key_value_heads")
        return super().attention(kv_heads=heads, group=group, **overrides)


class Qwen3VLVision(QwenVision):
    """Qwen3-VL's image encoder: also learned positions, resized to each image, and mergers after some of the layers."""

    defaults = dict(patch_size=16, hidden_act="gelu_pytorch_tanh")
    depth: LayerCount = 27
    hidden_size: PositiveInt = 1152
    intermediate_size: PositiveInt = 4304
    out_hidden_size: PositiveInt = 3584
    num_position_embeddings: PositiveInt = 2304
    deepstack_visual_indexes: tuple[NonNegativeInt, ...] = (8, 16, 24)

    patch_bias = True
    merger_modules: ClassVar = {"norm": "norm", "up_proj": "linear_fc1", "down_proj": "linear_fc2"}
    deepstack_path = "deepstack_merger_list"
    module_names = {"pos_embed": "pos_embed", **submodules("merger", "merger", **merger_modules)}
    layer_module_names = mlp_modules("mlp", "linear_fc1", "linear_fc2", None)

    def hf_module_names(self) -> Mapping[str, str]:
        """Module names, including the mergers, by index in the list."""
        names = {**super().hf_module_names(), **submodules("merger", "merger", **self.merger_modules)}
        for i in range(len(self.deepstack_visual_indexes)):
            names |= submodules(f"deepstack.{i}", f"{self.deepstack_path}.{i}", **self.merger_modules)
        return names

    @property
    def context(self) -> int:
        """num_position_embeddings, which must be a square, in squares that are merged. Raises ConfigError."""
        side = isqrt(self.num_position_embeddings)
        if side**2 != self.num_position_embeddings:
            raise ConfigError(f"num_position_embeddings = {self.num_position_embeddings:,} is not a perfect square")
        return max(side - side % self.spatial_merge_size, self.spatial_merge_size) ** 2

    def check(self) -> None:
        self.deepstack()
        super().check()

    def positions(self) -> Positions:
        return Positions(rows=self.num_position_embeddings, hidden=self.hidden_size, tiles=self.tiles)

    def deepstack(self) -> Deepstack | None:
        """Mergers after earlier layers. Raises ConfigError."""
        after = self.deepstack_visual_indexes
        if len(set(after)) < len(after) or any(number >= self.depth for number in after):
            raise ConfigError(
                f"deepstack_visual_indexes = {list(after)} must be different layers from 0 to {self.depth - 1:,}"
            )
        mergers = Deepstack(
            hidden=self.hidden_size,
            patches=self.spatial_merge_size**2,
            out=self.out_hidden_size,
            eps=self.eps,
            joined=True,
            after_blocks=after,
        )
        return mergers if after else None

    def ends(self) -> dict[str, Any]:
        return {**super().ends(), "deepstack": self.deepstack()}


class Qwen3VLMoeVision(Qwen3VLVision):
    """The image encoder of Qwen3-VL with experts: Qwen3-VL's."""


class Qwen3OmniMoeVision(Qwen3VLVision):
    """Qwen3-Omni's image encoder: Qwen3-VL's, with other names of the mergers."""

    task_heads = {
        "Encoder": TaskHead("models.qwen3_omni_moe.modeling_qwen3_omni_moe.Qwen3OmniMoeVisionEncoder", "none")
    }
    merger_modules = {"norm": "ln_q", "up_proj": "mlp.0", "down_proj": "mlp.2"}
    deepstack_path = "merger_list"


class Qwen3_5Vision(Qwen3VLVision):
    """Qwen3.5's image encoder: Qwen3-VL's, with one merger after all layers."""

    defaults = dict(deepstack_visual_indexes=())

    def deepstack(self) -> None:
        if self.deepstack_visual_indexes:
            raise self.refused("deepstack_visual_indexes", list(self.deepstack_visual_indexes))


class Qwen3_5MoeVision(Qwen3_5Vision):
    """The image encoder of Qwen3.5 with experts: Qwen3.5's."""


@record(kw_only=True)
class GatedMerger(Part):
    """A projection of `patches` concatenated patches, then a square one, a LayerNorm and an activation, and a gated MLP
    of `width`: "GLM-4.1V" (arXiv 2507.01006), with the matmuls of transformers' Glm4vVisionPatchMerger."""

    hidden: Size
    patches: Size
    out: Size
    width: Size
    eps: float = 1e-5
    activation: str = "silu"

    by_rows: ClassVar[bool] = True
    name: ClassVar[str] = "merger"
    axis_names: ClassVar[dict[str, str]] = {"hidden": "D", "patches": MERGE, "out": "Dq", "width": "Fm"}
    legend: ClassVar[dict[str, str]] = {
        **{axis: text for axis, text in Merger.legend.items() if axis != "Du"},
        "Fm": "width of the merger's MLP",
        "Dh": "output width of a square matrix (= Dq)",
    }
    made: ClassVar[dict[str, str]] = {"Dh": "Dq"}

    def lines(self, at: str) -> Iterator[Line]:
        """Both projections, the norm, its activation, and the MLP."""
        yield Matmul(f"{at}.join", f"B {MERGED} {MERGE} D, {MERGE} D Dq -> B {MERGED} Dq", bias=True)
        yield Matmul(f"{at}.proj", f"B {MERGED} Dq, Dq Dh -> B {MERGED} Dh")
        yield Pointwise(f"{at}.norm", f"B {MERGED} Dh", weight="Dh", bias="Dh", kind="norm_layer")
        yield Pointwise(f"{at}.norm_act", f"B {MERGED} Dh", kind="activation", function="gelu")
        yield Matmul(f"{at}.gate_proj", f"B {MERGED} Dh, Dh Fm -> B {MERGED} Fm")
        yield Matmul(f"{at}.up_proj", f"B {MERGED} Dh, Dh Fm -> B {MERGED} Fm")
        yield Pointwise(f"{at}.act", f"B {MERGED} Fm", kind="activation", function=self.activation)
        yield Matmul(f"{at}.down_proj", f"B {MERGED} Fm, Fm Dq -> B {MERGED} Dq")


class GlmVision(QwenVisionBase):
    """GLM's image encoders: RMSNorm, gated MLPs, a last norm, and a merger with an MLP."""

    depth: LayerCount = 24
    hidden_size: PositiveInt = 1536
    attention_bias: StrictBool = False
    num_heads: PositiveInt = 12
    image_size: PositiveInt = 336
    rms_norm_eps: PositiveFloat = 1e-5
    out_hidden_size: PositiveInt = 4096
    intermediate_size: PositiveInt = 13696

    ignored_fields = "tokens_per_second"
    norm_kind = "rms"
    final_norm, patch_bias = True, True
    module_names = {
        "final_norm": "post_layernorm",
        "merger.join": "downsample",
        "merger.proj": "merger.proj",
        "merger.norm": "merger.post_projection_norm",
        **mlp_modules("merger", at="merger"),
    }
    layer_module_names = mlp_modules("mlp")
    eps = property(attrgetter("rms_norm_eps"))

    @property
    def context(self) -> int:
        """Patches of a square image of image_size, in squares that are merged."""
        side = self.image_size // self.patch_size
        return max(side - side % self.spatial_merge_size, self.spatial_merge_size) ** 2

    def merger(self) -> GatedMerger:
        return GatedMerger(
            hidden=self.hidden_size,
            patches=self.spatial_merge_size**2,
            out=self.out_hidden_size,
            width=self.merger_width,
            activation=self.hidden_act,
        )


class Glm4vVision(GlmVision):
    """GLM-4.1V's image encoder: a norm after the projection of patches, and also learned positions."""

    patch_norm = True
    module_names = {"embed.norm": "post_conv_layernorm", "pos_embed": "embeddings.position_embedding"}
    merger_width = property(attrgetter("intermediate_size"))
    mlp_options = dict(width=attrgetter("out_hidden_size"), gated=True, bias=False)
    attention_options = dict(qkv_bias=attrgetter("attention_bias"), out_bias=False)

    def check(self) -> None:
        if self.image_size < self.patch_size:
            raise ConfigError(f"image_size {self.image_size:,} is smaller than patch_size {self.patch_size:,}")
        super().check()

    def positions(self) -> Positions:
        rows = (self.image_size // self.patch_size) ** 2
        return Positions(rows=rows, hidden=self.hidden_size, tiles=self.tiles)


class Glm4vMoeVision(Glm4vVision):
    """GLM-4.5V's image encoder: GLM-4.1V's."""


class GlmOcrVision(GlmVision):
    """GLM-OCR's image encoder: GLM-4.1V's with biases and norms of queries and keys, without learned positions."""

    sizes = dict(hidden=1024, mlp=4096)
    defaults = dict(attention_bias=True, num_heads=16, out_hidden_size=1536)
    reference_only = "image_size"
    layer_module_names = submodules("attn", "attn", "q_norm k_norm")
    mlp_options = dict(gated=True, bias=attrgetter("attention_bias"))
    merger_width = property(lambda self: self.out_hidden_size * self.in_channels)

    def attention(self, **overrides: Any) -> Attention:
        biased = self.attention_bias
        return super().attention(qkv_bias=biased, out_bias=biased, qk_norm=QKNorm(self.rms_norm_eps))
