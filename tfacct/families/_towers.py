"""Shared by the encoders of images and of the texts beside them: pre-norm blocks with biases everywhere."""

from typing import Any, ClassVar

from tfacct.architecture.blocks import Block, Stack
from tfacct.architecture.parts import Attention, Embedding, FeedForward, Norm, Patches, Positions
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, FamilyConfig, Layers, Real, Word, share

LAYER = {
    **{f"attn.{name}_proj": f"self_attn.{name}_proj" for name in "qkv"},
    "attn.scores": "self_attn",
    "attn.values": "self_attn",
    "attn.o_proj": "self_attn.out_proj",
    "attn_norm": "layer_norm1",
    "mlp.up_proj": "mlp.fc1",
    "mlp.down_proj": "mlp.fc2",
    "mlp_norm": "layer_norm2",
}
"""Modules of one layer of CLIP and SigLIP, ours → the class's."""

VIT_LAYER = {
    **{f"attn.{name}_proj": f"attention.{name}_proj" for name in "qkvo"},
    "attn.scores": "attention",
    "attn.values": "attention",
    "attn_norm": "layernorm_before",
    "mlp.up_proj": "mlp.fc1",
    "mlp.down_proj": "mlp.fc2",
    "mlp_norm": "layernorm_after",
}
"""Paths of a block of ViT's, and of classes made of it."""

ATTENTION_IN_FILES = (
    *((rf"\.attention\.attention\.{name}\.", f".attention.{name[0]}_proj.") for name in ("query", "key", "value")),
    (r"\.attention\.output\.dense\.", ".attention.o_proj."),
)
"""How files of ViT and DINOv2 spell attention's products."""


def class_table(body: str, front: str, norm: tuple[str, str], **others: str) -> dict[str, str]:
    """Our paths → those of a class whose body stands under `body`; `front`: its table of tokens, or of patches; `norm`:
    the one behind its blocks, ours and the class's."""
    ours, theirs = norm
    layers = {f"blocks.*.{name}": f"{body}encoder.layers.*.{their}" for name, their in LAYER.items()}
    ends = {"embed.project" if "patch" in front else "embed": front, "pos_embed": "position_embedding"}
    tables = {name: f"{body}embeddings.{their}" for name, their in ends.items()}
    return {**tables, **layers, ours: f"{body}{theirs}", **{name: body + their for name, their in others.items()}}


class Tower(FamilyConfig):
    """Fields of an encoder of one kind of input."""

    hidden_size: Count = 768
    intermediate_size: Count = 3072
    num_hidden_layers: Layers = 12
    num_attention_heads: Count = 12
    hidden_act: Word = "gelu"
    layer_norm_eps: Real = 1e-5

    uncounted: ClassVar[frozenset[str]] = frozenset(("hidden_act", "layer_norm_eps"))
    harmless: ClassVar[frozenset[str]] = frozenset(("initializer_factor",))
    fixed: ClassVar = frozenset("G")

    def norm(self) -> Norm:
        """LayerNorm over the hidden size."""
        return Norm(hidden=self.hidden_size, kind="layer", eps=self.layer_norm_eps)

    @property
    def head_dim(self) -> int:
        """Size of one head. Raises ConfigError."""
        return share(self.hidden_size, self.num_attention_heads, "hidden_size by num_attention_heads")

    def stack(self, **attention: Any) -> Stack:
        """The blocks: heads with keys of their own, biases on all projections; every position sees all others."""
        how = {"qkv_bias": True, "out_bias": True, "causal": False, **attention}
        heads = Attention(
            hidden=self.hidden_size, kv_heads=self.num_attention_heads, group=1, head_dim=self.head_dim, **how
        )
        network = FeedForward(
            hidden=self.hidden_size, width=self.intermediate_size, bias=True, activation=self.hidden_act
        )
        return Stack(Block.of(heads, network, norm=self.norm()), self.num_hidden_layers)


class TextTower(Tower):
    """Fields of an encoder of text."""

    vocab_size: Count = 49408
    max_position_embeddings: Count = 77

    @property
    def context(self) -> int:
        """max_position_embeddings."""
        return self.max_position_embeddings

    def tables(self) -> dict[str, Any]:
        """Tables of tokens and of positions."""
        hidden = self.hidden_size
        return {
            "embed": Embedding(vocab=self.vocab_size, hidden=hidden),
            "positions": Positions(rows=self.max_position_embeddings, hidden=hidden),
        }


class ImageTower(Tower):
    """Fields of an encoder of images, square ones of square patches."""

    num_channels: Count = 3
    image_size: Count = 224
    patch_size: Count = 16

    patch_bias: ClassVar[bool] = True
    class_token: ClassVar[bool] = True
    further: ClassVar[int] = 0
    fixed: ClassVar = Tower.fixed | {"Xc"}

    @property
    def context(self) -> int:
        """Patches of an image, with the learned tokens where there are any. Raises ConfigError."""
        side = self.image_size // self.patch_size
        if side == 0:
            raise ConfigError(f"image_size {self.image_size:,} is smaller than patch_size {self.patch_size:,}")
        return side**2 + self.class_token + self.further

    def tables(self) -> dict[str, Any]:
        """Patches, and a table of positions."""
        hidden = self.hidden_size
        front = 1 if self.class_token else None
        pixels = self.patch_size**2
        return {
            "embed": Patches(
                channels=self.num_channels, pixels=pixels, hidden=hidden, front=front, bias=self.patch_bias
            ),
            "positions": Positions(rows=self.context, hidden=hidden),
        }


PATCHES_SAID = (
    "The context is one image in patches, and the class token where there is one: --set image_size changes it, and the"
    " rows of the position embedding. image_size and patch_size are those of square images."
)
