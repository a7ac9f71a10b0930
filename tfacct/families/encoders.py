"""Encoders of images, audio and texts: equal layers, with biases on all projections."""

from collections.abc import Mapping
from operator import attrgetter
from typing import Any, ClassVar, Literal

from tfacct.architecture.blocks import Block, Order, Stack
from tfacct.architecture.parts import Attention, FeedForward, Norm, Patches, Positions, Rotary
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.base.pydantic_messages import format_value
from tfacct.families.family import Family
from tfacct.families.fields import LayerCount, PositiveFloat, PositiveInt, StrictStr, divide_exactly, is_positive

AXIAL = "axial"


def check_axial(parameters: Mapping[str, Any] | None, axes: str = "row and column", *also: str) -> None:
    """Raises ConfigError for a rotary embedding that is not by these axes."""
    kind = (parameters or {}).get("rope_type", AXIAL)
    if kind not in (AXIAL, *also):
        raise ConfigError(f"rope_type = {kind!r}: the class supports rotary embedding by {axes} only")


def axial_theta(parameters: Mapping[str, Any] | None, default: float = 10_000.0) -> float:
    """Base of the rotary embedding, from `rope_parameters`. Raises ConfigError."""
    theta = (parameters or {}).get("rope_theta", default)
    if not is_positive(theta):
        raise ConfigError(f"rope_parameters.rope_theta must be a number above 0, not {format_value(theta)}")
    return float(theta)


class EncoderLayers(Family):
    """Equal layers, without assumptions about the names of their sizes."""

    constant_axes = frozenset("G")
    norm_kind: ClassVar[Literal["layer", "rms"]] = "layer"
    order: ClassVar[Order] = "pre"
    """Norms before (`pre`) or after (`post`) each sublayer."""

    width = property(attrgetter("hidden_size"))
    """Width of the layers."""
    eps = property(attrgetter("layer_norm_eps"))
    """The epsilon of all norms."""

    @property
    def head_dim(self) -> int:
        """Size of one head. Raises ConfigError."""
        return divide_exactly(self.hidden_size, self.num_attention_heads, "hidden_size by num_attention_heads")

    def norm(self) -> Norm:
        return Norm(hidden=self.width, kind=self.norm_kind, eps=self.eps)

    def rope(self) -> Rotary | None:
        """Rotary embedding, in families that have one. Raises ConfigError."""
        return None

    def attention(self, **overrides: Any) -> Attention:
        """Bidirectional multi-head attention, with biases on all four projections unless qkv_bias is off."""
        how: dict[str, Any] = {
            "kv_heads": self.num_attention_heads,
            "group": 1,
            "head_dim": self.head_dim,
            "qkv_bias": getattr(self, "qkv_bias", True),
            "out_bias": True,
            "causal": False,
            "rotary": self.rope(),
        }
        how |= self.options("attention", **overrides)
        return Attention(hidden=self.width, **how)

    def mlp(self, **overrides: Any) -> FeedForward:
        """An MLP of two projections with biases."""
        how: dict[str, Any] = {"width": self.intermediate_size, "bias": True, "activation": self.hidden_act}
        how |= self.options("mlp", **overrides)
        return FeedForward(hidden=self.width, **how)

    def block(self, **attention: Any) -> Block:
        """One layer."""
        return Block.of(self.attention(**attention), self.mlp(), norm=self.norm(), order=self.order)


class EncoderBase(EncoderLayers):
    """An encoder of images, audio or short texts, without assumptions about the names of its sizes."""

    base_model_prefix = ""
    ignored_fields = "tie_word_embeddings"  # true in every config that an older transformers wrote, without a head here
    embedding_norm, final_norm = False, True
    """Whether a norm comes before the first layer, and after the last."""

    def stacks(self) -> tuple[Stack, ...]:
        """The layers, all equal."""
        return (Stack(self.block(), self.num_hidden_layers),)

    def ends(self) -> dict[str, Any]:
        """The parts before and after the layers."""
        first, last = (self.norm() if there else None for there in (self.embedding_norm, self.final_norm))
        return {"embed_norm": first, "final_norm": last}

    def architecture(self) -> Transformer:
        """All layers, and the parts before and after them."""
        self.check()
        return Transformer(**self.ends(), stacks=self.stacks(), head=None)


class Encoder(EncoderBase):
    """The fields that encoders share."""

    hidden_size: PositiveInt = 768
    intermediate_size: PositiveInt = 3072
    num_hidden_layers: LayerCount = 12
    num_attention_heads: PositiveInt = 12
    hidden_act: StrictStr = "gelu"
    layer_norm_eps: PositiveFloat = 1e-5

    ignored_fields = "initializer_factor"


class ImageEncoder(Encoder):
    """The fields of an encoder of square images: square patches, and learned positions."""

    num_channels: PositiveInt = 3
    image_size: PositiveInt = 224
    patch_size: PositiveInt = 16

    patch_bias, class_token = True, False
    extra_tokens: ClassVar[Any] = 0
    """Learned tokens after the class token."""

    @property
    def context(self) -> int:
        """Patches of an image, and the learned tokens. Raises ConfigError."""
        side = self.image_size // self.patch_size
        if side == 0:
            raise ConfigError(f"image_size {self.image_size:,} is smaller than patch_size {self.patch_size:,}")
        return side**2 + self.class_token + int(self.extra_tokens)

    def patches(self, **overrides: Any) -> Patches:
        """Projection of each patch, and the class token if there is one."""
        how: dict[str, Any] = {
            "channels": self.num_channels,
            "pixels": self.patch_size**2,
            "front": 1 if self.class_token else None,
            "bias": self.patch_bias,
        }
        how |= overrides
        return Patches(hidden=self.width, **how)

    def positions(self) -> Positions | None:
        """Learned positions of all patches and tokens. Raises ConfigError."""
        return Positions(rows=self.context, hidden=self.width)

    def ends(self) -> dict[str, Any]:
        """Patches, positions and norms. Raises ConfigError."""
        return {**super().ends(), "embed": self.patches(), "positions": self.positions()}
