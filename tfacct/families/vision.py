"""Image encoders of Kimi, MiniMax, Gemma, Llama and Mistral: each has a rotary embedding by row and column."""

from collections.abc import Iterator, Mapping
from math import isqrt
from operator import attrgetter
from typing import Any, ClassVar

from tfacct.architecture.blocks import Block
from tfacct.architecture.parts import Attention, Averaged, Merger, Part, Patches, Positions, QKNorm, Rotary
from tfacct.base.errors import ConfigError
from tfacct.base.record import record
from tfacct.families.clip import ClipLayers
from tfacct.families.decoder import NORMS_AROUND, QK_NORMS
from tfacct.families.encoders import Encoder, EncoderBase, ImageEncoder, axial_theta, check_axial
from tfacct.families.family import attention_modules, mlp_modules
from tfacct.families.fields import (
    Fraction,
    JsonDict,
    LayerCount,
    PositiveFloat,
    PositiveInt,
    StrictBool,
    StrictStr,
    divide_exactly,
    read_rope,
    require_even,
)
from tfacct.families.task_heads import TaskHead
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import FLOPS_PER_MULTIPLY_ADD, FRONT, MERGE, Line, Matmul, Pointwise
from tfacct.ledger.workload import MERGED, Workload

COLORS = 3


class Kimi_K25Vision(Encoder):
    """Kimi-K2.5's image encoder (MoonViT): a rotary embedding by column and row, and learned positions."""

    sizes = dict(hidden=1152, mlp=4304, layers=27, heads=16)
    defaults = dict(hidden_act="gelu_pytorch_tanh")
    patch_size: PositiveInt = 14
    pos_emb_height: PositiveInt = 64
    pos_emb_width: PositiveInt = 64
    pos_emb_time: PositiveInt = 4
    merge_kernel_size: tuple[PositiveInt, PositiveInt] = (2, 2)
    rope_parameters: JsonDict | None = None

    constant_axes = frozenset({"G", "Cc"})
    attribute_map = {
        **{f"init_pos_emb_{side}": f"pos_emb_{side}" for side in ("height", "width", "time")},
        **{f"vt_{name}": name for name in ("hidden_size", "intermediate_size")},
        **{f"vt_{name}": name for name in ("num_attention_heads", "num_hidden_layers")},
    }
    reference_only = "pos_emb_time merge_kernel_size"
    ignored_fields = """merge_type mm_hidden_size mm_projector_type pos_emb_type projector_hidden_act projector_ln_eps
        text_hidden_size video_attn_type"""
    task_heads = {"Model": TaskHead("models.kimi_k25.modeling_kimi_k25.Kimi_K25VisionModel", "none")}
    layer_path = "layers.*"
    module_names = {"embed.project": "patch_embed.proj", "final_norm": "final_layernorm"}
    layer_module_names = {
        **attention_modules("attn", o="proj"),
        **mlp_modules("mlp", "fc1", "fc2", None),
        "attn_norm": "norm1",
        "mlp_norm": "norm2",
    }
    tensor_names = {"pos_embed.weight": "patch_embed.pos_emb.position_embeddings"}
    context = property(lambda self: self.pos_emb_height * self.pos_emb_width)

    def check(self) -> None:
        super().check()
        if self.pos_emb_height != self.pos_emb_width:
            raise ConfigError(
                f"pos_emb_width = {self.pos_emb_width:,} is ignored by the class, which has a square position"
                f" embedding with {self.pos_emb_height:,} rows per side"
            )
        check_axial(self.rope_parameters)
        divide_exactly(self.head_dim, 4, "the size of a head by 4")

    def rope(self) -> Rotary:
        return Rotary(axial_theta(self.rope_parameters), kind="woven_grid", tiles=(1,))

    def ends(self) -> dict[str, Any]:
        """Patches and positions."""
        patches = Patches(channels=COLORS, pixels=self.patch_size**2, hidden=self.hidden_size)
        positions = Positions(rows=self.context, hidden=self.hidden_size, tiles=(1,))
        return {**super().ends(), "embed": patches, "positions": positions}


class MiniMaxM3VLVision(ClipLayers, ImageEncoder):
    """MiniMax-M3's image encoder: a norm and CLIP's layers, with a rotary embedding by frame, row and column."""

    sizes = dict(hidden=1280, mlp=5120, layers=32, heads=16)
    defaults = dict(image_size=2016, patch_size=14)
    temporal_patch_size: PositiveInt = 2
    spatial_merge_size: PositiveInt = 2
    rope_parameters: JsonDict | None = None

    reference_only = "spatial_merge_size"
    task_heads = {"Model": TaskHead("models.minimax_m3_vl.modeling_minimax_m3_vl.MiniMaxM3VLVisionModel", "none")}
    layer_path = "layers.*"
    module_names = {"embed.project": "embeddings.proj", "embed_norm": "pre_layrnorm"}
    patch_bias = False
    embedding_norm, final_norm = True, False
    tiles = property(lambda self: (self.spatial_merge_size,))
    """Patches come in the squares that the projector merges."""

    def check(self) -> None:
        super().check()
        check_axial(self.rope_parameters, "frame, row and column")

    def rope(self) -> Rotary:
        return Rotary(axial_theta(self.rope_parameters), kind="video_grid", tiles=self.tiles)

    def attention(self, **overrides: Any) -> Attention:
        axes = 3
        rotated = 2 * axes * (self.head_dim // axes // 2)
        how: dict[str, Any] = {"rope_dim": rotated} if rotated else {"rotary": None}
        return super().attention(**how)

    def patches(self, **overrides: Any) -> Patches:
        return super().patches(pixels=self.temporal_patch_size * self.patch_size**2)

    def positions(self) -> None:
        return None


class Gemma4Vision(EncoderBase):
    """Gemma 4's image encoder: norms around each sublayer, a rotary embedding by column and row, averaged patches."""

    hidden_size: PositiveInt = 768
    intermediate_size: PositiveInt = 3072
    num_hidden_layers: LayerCount = 16
    num_attention_heads: PositiveInt = 12
    num_key_value_heads: PositiveInt = 12
    head_dim: PositiveInt = 64
    hidden_activation: StrictStr = "gelu_pytorch_tanh"
    rms_norm_eps: PositiveFloat = 1e-6
    attention_bias: StrictBool | None = False
    rope_parameters: JsonDict | None = None
    patch_size: PositiveInt = 16
    pooling_kernel_size: PositiveInt = 3
    position_embedding_size: PositiveInt = 10240
    standardize: StrictBool = False
    default_output_length: PositiveInt = 280

    constant_axes = frozenset({"Cc", "Xy"})
    reference_only = "attention_bias standardize"
    ignored_fields = "use_clipped_linears global_head_dim max_position_embeddings"
    task_heads = {"Model": TaskHead("models.gemma4.modeling_gemma4.Gemma4VisionModel", "none")}
    hf_extra_note = "it averages patches with a matmul"
    module_names = {"embed.project": "patch_embedder.input_proj", "merger.average": "pooler"}
    layer_path = "encoder.layers.*"
    layer_module_names = {
        **attention_modules("self_attn", *(f"{name}_proj.linear" for name in "qkvo")),
        **mlp_modules("mlp", *(f"{name}_proj.linear" for name in ("up", "down", "gate"))),
        "attn_norm": "input_layernorm",
        **QK_NORMS,
        **NORMS_AROUND,
    }
    tensor_names = {"pos_embed.weight": "patch_embedder.position_embedding_table"}
    norm_kind = "rms"
    final_norm = False
    eps = property(attrgetter("rms_norm_eps"))
    hidden_act = property(attrgetter("hidden_activation"))
    mlp_options = dict(gated=True, bias=False)
    context = property(lambda self: self.default_output_length * self.pooling_kernel_size**2)
    """Patches of an image that becomes default_output_length tokens."""
    tiles = property(lambda self: (self.pooling_kernel_size,))
    """Sides of the squares of averaged patches."""

    def check(self) -> None:
        super().check()
        check_axial(self.rope_parameters, "column and row", "default")
        self.require_if_given({"attention_bias": False})  # ignored by the class

    def rope(self) -> Rotary:
        return Rotary(axial_theta(self.rope_parameters, 100.0), kind="grid", tiles=self.tiles, pairs="quarters")

    def attention(self, **overrides: Any) -> Attention:
        """Grouped-query attention without biases, with norms of queries, keys and values."""
        heads, eps = self.num_key_value_heads, self.rms_norm_eps
        return super().attention(
            rotary=self.rope(),
            kv_heads=heads,
            group=divide_exactly(self.num_attention_heads, heads, "num_attention_heads by num_key_value_heads"),
            head_dim=4 * divide_exactly(self.head_dim, 4, "head_dim by 4"),
            qkv_bias=False,
            out_bias=False,
            qk_norm=QKNorm(eps),
            value_norm=eps,
            scale=1.0,
        )

    def block(self, **attention: Any) -> Block:
        return Block.of(self.attention(), self.mlp(), norm=self.norm(), post_norm=self.norm())

    def ends(self) -> dict[str, Any]:
        """Patches, a position embedding for rows and one for columns, and means of patches."""
        hidden, rows, together = self.hidden_size, self.position_embedding_size, self.pooling_kernel_size**2
        kind: Any = "standardized" if self.standardize else "scaled"
        return {
            **super().ends(),
            "embed": Patches(channels=COLORS, pixels=self.patch_size**2, hidden=hidden, bias=False),
            "positions": Positions(rows=rows, hidden=hidden, layout="columns_and_rows", tiles=self.tiles),
            "merger": Averaged(hidden=hidden, patches=together, kind=kind),
        }

    def hf_extra_flops(self, work: Workload) -> Mapping[str, int]:
        """FLOPs of averaging patches with a matmul, if there are fewer tokens than patches."""
        together = self.pooling_kernel_size**2
        rows = 0 if together == 1 else work.tokens // together
        return {"merger.average": FLOPS_PER_MULTIPLY_ADD * work.batch * rows * work.tokens * self.hidden_size}


@record(kw_only=True)
class PixelShuffle(Part):
    """Two projections of `patches` concatenated patches, without biases, each followed by an activation, as in
    transformers' Llama4VisionPixelShuffleMLP. The `front` learned tokens are not patches."""

    hidden: Size
    patches: Size
    out: Size
    front: Size
    activation: str = "gelu"

    by_rows: ClassVar[bool] = True
    name: ClassVar[str] = "merger"
    axis_names: ClassVar[dict[str, str]] = {"hidden": "D", "patches": MERGE, "out": "Dq", "front": FRONT}
    legend: ClassVar[dict[str, str]] = {
        **{axis: text for axis, text in Merger.legend.items() if axis != "Du"},
        FRONT: Patches.legend[FRONT],
        "Dh": "output width of a square matrix (= Dq)",
    }
    made: ClassVar[dict[str, str]] = {"Dh": "Dq"}

    def lines(self, at: str) -> Iterator[Line]:
        """Both projections and their activations."""
        yield Matmul(f"{at}.up_proj", f"B {MERGED} {MERGE} D, {MERGE} D Dq -> B {MERGED} Dq")
        yield Pointwise(f"{at}.act", f"B {MERGED} Dq", kind="activation", function=self.activation)
        yield Matmul(f"{at}.down_proj", f"B {MERGED} Dq, Dq Dh -> B {MERGED} Dh")
        yield Pointwise(f"{at}.out_act", f"B {MERGED} Dh", kind="activation", function=self.activation)


class Llama4Vision(ImageEncoder):
    """Llama 4's image encoder: class token last, a rotary embedding by column and row, merged patches."""

    sizes = dict(mlp=5632, layers=34, heads=16)
    defaults = dict(image_size=448, patch_size=14)
    norm_eps: PositiveFloat = 1e-5
    pixel_shuffle_ratio: Fraction = 0.5
    projector_input_dim: PositiveInt = 4096
    projector_output_dim: PositiveInt = 4096
    rope_theta: PositiveFloat | None = None
    rope_parameters: JsonDict | None = None

    constant_axes = frozenset({"G", "Xc"})
    reference_only = "-pixel_shuffle_ratio"
    ignored_fields = """vision_output_dim vision_feature_select_strategy vision_feature_layer multi_modal_projector_bias
        projector_dropout"""
    task_heads = {"Model": TaskHead("models.llama4.modeling_llama4.Llama4VisionModel", "none")}
    hf_fixed_source = True
    layer_path = "model.layers.*"
    layer_module_names = {
        **attention_modules("self_attn"),
        **mlp_modules("mlp", "fc1", "fc2", None),
        "attn_norm": "input_layernorm",
        "mlp_norm": "post_attention_layernorm",
    }
    module_names = {
        "embed.project": "patch_embedding.linear",
        "embed_norm": "layernorm_pre",
        "final_norm": "layernorm_post",
        "merger.up_proj": "vision_adapter.mlp.fc1",
        "merger.down_proj": "vision_adapter.mlp.fc2",
    }
    tensor_names = {"embed.class.weight": "class_embedding", "pos_embed.weight": "positional_embedding_vlm"}
    patch_bias, class_token, embedding_norm = False, True, True
    mlp_options = dict(activation="gelu")  # for any hidden_act

    @property
    def merged(self) -> int:
        """Patches that become one token. Raises ConfigError."""
        side = round(1 / self.pixel_shuffle_ratio)
        if side * self.pixel_shuffle_ratio != 1:
            raise self.refused("pixel_shuffle_ratio", self.pixel_shuffle_ratio)
        return side**2

    def check(self) -> None:
        super().check()
        patches, hidden = self.merged, self.hidden_size
        across, side = max(self.image_size // self.patch_size, 1), isqrt(patches)
        divide_exactly(across, side, "the patches on a side of an image by 1 / pixel_shuffle_ratio =")
        if self.intermediate_size != patches * hidden:
            raise ConfigError(
                f"intermediate_size = {self.intermediate_size:,} must equal {patches:,} × {hidden:,}, because the"
                f" class concatenates {patches:,} patches"
            )
        if self.projector_input_dim != self.projector_output_dim:
            raise ConfigError(
                f"projector_input_dim = {self.projector_input_dim:,} is not projector_output_dim ="
                f" {self.projector_output_dim:,}, so the class cannot run"
            )
        divide_exactly(self.head_dim, 4, "the size of a head by 4")

    def rope(self) -> Rotary:
        theta = axial_theta(self.rope_parameters, self.rope_theta or 10_000.0)
        return Rotary(theta, pairs="neighbours", kind="grid_from_one", tiles=(), unrotated=1)

    def patches(self, **overrides: Any) -> Patches:
        return super().patches(last=True)

    def ends(self) -> dict[str, Any]:
        """The parts before and after the layers, including the merger."""
        out = self.projector_output_dim
        merger = PixelShuffle(hidden=self.hidden_size, patches=self.merged, out=out, front=1)
        return {**super().ends(), "merger": merger}


class PixtralVision(ImageEncoder):
    """Pixtral's image encoder: Llama's layers, bidirectional, with a rotary embedding by row and column."""

    sizes = dict(hidden=1024, mlp=4096, heads=16)
    defaults = dict(image_size=1024)
    num_hidden_layers: LayerCount = 24
    rope_theta: PositiveFloat | None = None
    rope_parameters: JsonDict | None = None
    given_head_dim: PositiveInt | None = None

    attribute_map = {"head_dim": "given_head_dim"}
    reference_only = "given_head_dim"
    task_heads = {"Model": TaskHead("AutoModel", "none")}
    hf_extra_note = "it computes scores between all patches of a batch, and masks other images"
    module_names = {"embed.project": "patch_conv", "embed_norm": "ln_pre"}
    layer_path = "transformer.layers.*"
    layer_module_names = {
        **attention_modules("attention"),
        **mlp_modules("feed_forward"),
        "attn_norm": "attention_norm",
        "mlp_norm": "ffn_norm",
    }
    norm_kind = "rms"
    patch_bias, embedding_norm, final_norm = False, True, False
    eps = 1e-5
    mlp_options = dict(gated=True, bias=False)

    def check(self) -> None:
        super().check()
        if self.given_head_dim not in (None, self.head_dim):
            raise self.refused("head_dim", self.given_head_dim)

    def rope(self) -> Rotary:
        return read_rope(self.rope_theta, None, self.rope_parameters)._replace(kind="grid")

    def attention(self, **overrides: Any) -> Attention:
        half = require_even(divide_exactly(self.head_dim, 2, "head_dim by 2"), "head_dim / 2 =")
        return super().attention(head_dim=2 * half, qkv_bias=False, out_bias=False)

    def positions(self) -> None:
        return None

    def hf_extra_flops(self, work: Workload) -> Mapping[str, int]:
        """Scores and values of patches of other images."""
        others = work.batch * (work.batch - 1) * work.tokens**2
        return {"blocks.*.attn.scores": 2 * FLOPS_PER_MULTIPLY_ADD * others * self.hidden_size}
