"""The tables of an own model, and their keys."""

from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from tfacct.families.fields import LayerCount, NonNegativeInt, PositiveFloat, PositiveInt, StrictBool

Activation: TypeAlias = Literal["gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "swish"]
NormKind: TypeAlias = Literal["layer", "rms"]
Scores: TypeAlias = Literal["product", "distance"]


class Table(BaseModel):
    """A table of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    uncounted: ClassVar[frozenset[str]] = frozenset()
    """Keys that no count depends on."""


class ModelTable(Table):
    """What stands at the model's ends."""

    vocab: PositiveInt = Field(description="rows of the token table; number of logits")
    hidden: PositiveInt = Field(description="elements per token between the blocks")
    context: PositiveInt = Field(description="the longest context; rows of a learned position table")
    positions: Literal["rotary", "learned", "sines", "relative", "alibi", "none"] = Field(
        description="learned: a table; sines: computed, nothing stored; relative: a table of `buckets` scores per"
        " head on each side, as in T5"
    )
    tied: StrictBool = Field(False, description="the token table is also the head's weight")
    head_bias: StrictBool = Field(False, description="the head has a bias")
    scale_embedding: StrictBool = Field(False, description="multiply each token's row by √hidden")
    buckets: PositiveInt = Field(32, description="distances that `relative` positions tell apart")
    latent_attention: Literal["auto", "expanded", "absorbed", "unpacked"] = Field(
        "auto",
        description="how latent attention is run, where a block has it: auto is expanded or absorbed, whichever takes"
        " fewer FLOPs in a step; unpacked keeps the keys and values of all heads",
    )
    source_vocab: PositiveInt | None = Field(
        None, description="rows of the encoder's own token table; `vocab` is then the decoder's"
    )
    source_hidden: PositiveInt | None = Field(
        None, description="`hidden` of the encoder, where it is another; it then has a token table of its own"
    )
    source_context: PositiveInt | None = Field(
        None, description="the longest source; rows of its learned position table"
    )


class AttentionTable(Table):
    """Self-attention; the decoder's attention to a source has the same heads."""

    uncounted: ClassVar = frozenset({"rotary_base"})

    heads: PositiveInt = Field(description="query heads")
    kv_heads: PositiveInt = Field(
        default_factory=lambda fields: fields["heads"], description="key/value heads; they divide `heads`"
    )
    head_dim: PositiveInt | None = Field(None, description="size of a head; heads · head_dim need not be `hidden`")
    bias: StrictBool = Field(False, description="biases on the q, k and v projections, and on the gate's")
    out_bias: StrictBool = Field(
        default_factory=lambda fields: fields["bias"], description="a bias on the output projection"
    )
    window: PositiveInt | None = Field(None, description="keys that a query sees, its own included; decoder only")
    qk_norm: NormKind | None = Field(
        None,
        description="a norm on queries and keys, one scale of head_dim for all heads; not in cross attention",
    )
    gate: StrictBool = Field(
        False,
        description="one more projection, as wide as the queries, gates what the heads read; not in cross attention",
    )
    scores: Scores = Field("product", description='"distance": a score is max |q − k|: pointwise work, no product')
    rotated: StrictBool = Field(True, description="false: rotary positions leave its queries and keys out")
    rotary_dim: PositiveInt | None = Field(
        None, description="rotated elements of a head, where some are left out; even, at most `head_dim`"
    )
    rotary_base: PositiveFloat = Field(10_000.0, description="base of the rotary angles; no count depends on it")


class LatentTable(Table):
    """Latent attention in place of attention: keys and values of all heads are made from one short vector per token."""

    uncounted: ClassVar = frozenset({"rotary_base"})

    heads: PositiveInt = Field(description="query heads, each with keys and values of its own")
    kv_rank: PositiveInt = Field(description="size of the latent of keys and values")
    nope_dim: PositiveInt = Field(
        description="elements of a query or key head that are not rotated; keys' from the latent"
    )
    rope_dim: PositiveInt = Field(description="rotated elements of a head; all heads share those of the key; even")
    value_dim: PositiveInt = Field(
        default_factory=lambda fields: fields["nope_dim"], description="size of a value head, from the latent"
    )
    q_rank: PositiveInt | None = Field(None, description="size of the latent of queries; absent: queries have none")
    bias: StrictBool = Field(
        False, description="biases on the products that give latents, and on the output projection"
    )
    rotary_base: PositiveFloat = Field(10_000.0, description="base of the rotary angles; no count depends on it")


class CrossTable(Table):
    """The decoder's attention to the source, where it differs from its self-attention."""

    bias: StrictBool | None = Field(None, description="default: as in `attention`")
    out_bias: StrictBool | None = Field(None, description="default: `bias` if it is given here, else as in `attention`")
    scores: Scores | None = Field(None, description="default: as in `attention`")


class FeedForwardTable(Table):
    """The feed-forward network."""

    uncounted: ClassVar = frozenset({"activation"})

    width: PositiveInt = Field(description="width between its two products")
    gated: StrictBool = Field(False, description="a third matrix, whose activated result multiplies another's")
    bias: StrictBool = Field(False, description="biases on all its projections")
    activation: Activation = Field(
        default_factory=lambda fields: "silu" if fields["gated"] else "gelu", description="no count depends on it"
    )
    norm: NormKind | None = Field(None, description="a norm inside the network, on its input")
    called: StrictBool = Field(True, description="false: stored but never run, nor are its norms and addition")


class ExpertsTable(Table):
    """Experts in place of the feed-forward network: gated networks, of which each token passes through some."""

    uncounted: ClassVar = frozenset({"activation"})

    experts: PositiveInt = Field(description="networks that are stored")
    active: PositiveInt = Field(description="networks that each token is sent to")
    width: PositiveInt = Field(description="width of one expert")
    shared: PositiveInt | None = Field(None, description="width of one more network, which every token passes through")
    shared_gate: StrictBool = Field(False, description="weight the shared network's result by one number per token")
    bias: StrictBool = Field(
        False,
        description="biases on the router, every expert's projections and the shared network's; its gate has none",
    )
    activation: Activation = Field("silu", description="no count depends on it")


class MambaTable(Table):
    """Mamba in place of attention, in some of the decoder's blocks."""

    uncounted: ClassVar = frozenset({"activation"})

    inner: PositiveInt = Field(description="channels")
    state: PositiveInt = Field(16, description="elements in a channel's state")
    kernel: PositiveInt = Field(4, description="tokens that the convolution sees")
    rank: PositiveInt | None = Field(None, description="elements from which a token's step size is computed")
    bias: StrictBool = Field(False, description="biases on the input and output projections")
    conv_bias: StrictBool = Field(True, description="a bias on the convolution")
    network: StrictBool = Field(False, description="its blocks also have the feed-forward network")
    activation: Activation = Field("silu", description="no count depends on it")


class Mamba2Table(Table):
    """Mamba-2 in place of attention, in some of the decoder's blocks."""

    uncounted: ClassVar = frozenset({"activation"})

    heads: PositiveInt = Field(description="heads, each with a state of `head_dim` · `state`")
    head_dim: PositiveInt = Field(description="size of a head")
    groups: PositiveInt = Field(1, description="groups of heads that share what writes and reads; they divide `heads`")
    state: PositiveInt = Field(128, description="elements in a channel's state")
    kernel: PositiveInt = Field(4, description="tokens that the convolution sees")
    chunk: PositiveInt = Field(256, description="tokens in a chunk; several new tokens run in whole chunks")
    bias: StrictBool = Field(False, description="biases on the input and output projections")
    conv_bias: StrictBool = Field(True, description="a bias on the convolution")
    gated_norm: StrictBool = Field(True, description="a norm behind the gate")
    network: StrictBool = Field(False, description="its blocks also have the feed-forward network")
    activation: Activation = Field("silu", description="no count depends on it")


class DeltaNetTable(Table):
    """Gated DeltaNet in place of attention, in some of the decoder's blocks."""

    uncounted: ClassVar = frozenset({"activation"})

    heads: PositiveInt = Field(description="value heads, each with a state of `key_dim` · `value_dim`")
    key_heads: PositiveInt = Field(
        default_factory=lambda fields: fields["heads"], description="heads of queries and keys; they divide `heads`"
    )
    key_dim: PositiveInt = Field(description="size of a query or key head")
    value_dim: PositiveInt = Field(default_factory=lambda fields: fields["key_dim"], description="size of a value head")
    kernel: PositiveInt = Field(4, description="tokens that the convolution sees")
    decay_rank: PositiveInt | None = Field(
        None,
        description="every channel of a key decays by itself, as in KDA: elements from which these decays, and the"
        " gate, are computed; absent: one decay per head",
    )
    chunk: PositiveInt = Field(64, description="tokens in a chunk; several new tokens run in whole chunks")
    activation: Activation = Field("silu", description="no count depends on it")


class ShortConvolutionTable(Table):
    """A gated short convolution in place of attention, in some of the decoder's blocks."""

    kernel: PositiveInt = Field(3, description="tokens that the convolution sees")
    bias: StrictBool = Field(False, description="biases on both projections and the convolution")


class Listed(Table):
    """The blocks that have a mixer in place of attention, where a side's table lists them."""

    layers: Annotated[list[NonNegativeInt], Field(min_length=1)] = Field(
        description="indices of the blocks that have it, from 0; the others have attention"
    )


class ListedMamba(Listed, MambaTable):
    """Mamba in place of attention, in the decoder's blocks that are listed."""


class ListedMamba2(Listed, Mamba2Table):
    """Mamba-2 in place of attention, in the decoder's blocks that are listed."""


class ListedDeltaNet(Listed, DeltaNetTable):
    """Gated DeltaNet in place of attention, in the decoder's blocks that are listed."""


class ListedShortConvolution(Listed, ShortConvolutionTable):
    """A gated short convolution in place of attention, in the decoder's blocks that are listed."""


class NormTable(Table):
    """The norms around the sublayers."""

    kind: NormKind = Field(description="layer: scale and shift; rms: scale")
    order: Literal["pre", "post", "parallel", "sandwich", "reordered"] = Field(
        "pre",
        description="pre: x + f(norm(x)); post: norm(x + f(x)); parallel: attention and network side by side;"
        " sandwich: x + norm(f(norm(x))); reordered: x + norm(f(x))",
    )
    shared: StrictBool = Field(False, description="one norm per layer, shared by its sublayers")
    final: StrictBool = Field(
        default_factory=lambda fields: fields["order"] != "post", description="a norm after each side's last layer"
    )
    embedding: StrictBool = Field(False, description="a norm after the tables")


class BlockTable(Table):
    """The parts of one kind of block, with what is common written into it."""

    attention: AttentionTable | None = None
    latent_attention: LatentTable | None = None
    mamba: MambaTable | None = None
    mamba2: Mamba2Table | None = None
    delta_net: DeltaNetTable | None = None
    short_convolution: ShortConvolutionTable | None = None
    feed_forward: FeedForwardTable | None = None
    experts: ExpertsTable | None = None


class SideTable(Table):
    """One side. It may repeat the tables of its parts, with the keys in which it differs."""

    layers: LayerCount = Field(description="blocks")
    pattern: list[str] | None = Field(
        None, description="kinds of its layers, in their order, repeated up to the last layer; absent: all are alike"
    )
    blocks: list[BlockTable]
    """Those that differ, in the order in which they first run."""
    named: list[str]
    """The table that tells each of `blocks` from the others, `[decoder.local]`; empty where none does."""
    each: list[int]
    """For each layer, which of `blocks` it is."""
    cross_attention: CrossTable | None = None
    mamba: ListedMamba | None = None
    mamba2: ListedMamba2 | None = None
    delta_net: ListedDeltaNet | None = None
    short_convolution: ListedShortConvolution | None = None


SIDES = ("encoder", "decoder")
LISTED: dict[str, type[Listed]] = {
    "mamba": ListedMamba,
    "mamba2": ListedMamba2,
    "delta_net": ListedDeltaNet,
    "short_convolution": ListedShortConvolution,
}
"""Mixers in place of attention, which a side's table gives to the blocks that it lists."""
CALLED = {
    "mamba": "Mamba",
    "mamba2": "Mamba-2",
    "delta_net": "DeltaNet",
    "short_convolution": "short convolutions",
}
"""What texts call them."""
MIXERS = ("attention", "latent_attention", *LISTED)
NETWORKS = ("feed_forward", "experts")
PLACES = ("every", "first")
"""Tables of a side whose own tables go by a number of layers."""
PARTS: dict[str, type[Table]] = {
    "attention": AttentionTable,
    "latent_attention": LatentTable,
    "mamba": MambaTable,
    "mamba2": Mamba2Table,
    "delta_net": DeltaNetTable,
    "short_convolution": ShortConvolutionTable,
    "feed_forward": FeedForwardTable,
    "experts": ExpertsTable,
}
COMMON: dict[str, type[Table]] = {name: table for name, table in PARTS.items() if name not in LISTED}
"""Tables that each side may say anew, key by key."""
LOOKING_BACK = ("latent_attention", *LISTED)
"""Parts that only a decoder can have."""
ALONE = tuple(name for name in LISTED if "network" in PARTS[name].model_fields)
"""Mixers whose blocks have no network, unless their table says so."""
ANY = "*"
"""In a name: whichever kind of block, or whichever number of layers."""


def _possible(side: str, part: str) -> bool:
    return side == "decoder" or part not in LOOKING_BACK


KEYS_OF: dict[str, type[Table]] = {"model": ModelTable, **COMMON, "norm": NormTable}
KEYS_OF |= {f"{side}.{name}": table for side in SIDES for name, table in COMMON.items() if _possible(side, name)}
KEYS_OF |= {"decoder.cross_attention": CrossTable, **{f"decoder.{name}": table for name, table in LISTED.items()}}
KEYS_OF |= {f"{side}.{ANY}.{name}": table for side in SIDES for name, table in PARTS.items() if _possible(side, name)}
"""Every table of keys but the sides themselves, which have their layers."""
TABLES = (*KEYS_OF, *SIDES, *(f"{side}.{name}" for side in SIDES for name in (*PLACES, ANY)))
OF_A_SIDE = ("layers", "pattern", *PARTS, "cross_attention", *PLACES)
"""Names in a side's table that are no kinds of blocks."""
UNCOUNTED = frozenset(f"{name}.{key}" for name, table in KEYS_OF.items() for key in table.uncounted)
KEYS = (
    *(f"{name}.{key}" for name, table in KEYS_OF.items() for key in table.model_fields),
    *(f"{side}.{key}" for side in SIDES for key in ("layers", "pattern")),
)
"""Every key by its dotted name."""
