"""The tables and keys of a custom model's file, and their dotted names, `decoder.local.attention.window`."""

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeAlias, get_args

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import PydanticUndefined

from tfacct.base.errors import ConfigError, cut, nearest
from tfacct.base.pydantic_messages import format_value
from tfacct.families.fields import LayerCount, NonNegativeInt, PositiveFloat, PositiveInt, StrictBool

Activation: TypeAlias = Literal["gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "swish"]
NormKind: TypeAlias = Literal["layer", "rms"]
Scores: TypeAlias = Literal["product", "distance"]
Tables: TypeAlias = dict[str, Any]

REFERENCE_ONLY = frozenset(("activation", "rotary_base"))
"""Keys that no count depends on."""


def key(about: str, default: Any = PydanticUndefined, of: str | Callable[[Tables], Any] = "") -> Any:
    """A key: its description, and its default, which may be the value of another key or computed from earlier ones."""
    if not of:
        return Field(default, description=about)
    return Field(default_factory=(lambda keys: keys[of]) if isinstance(of, str) else of, description=about)


class Table(BaseModel):
    """A table of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class ModelTable(Table):
    """Embeddings and head of the model."""

    vocab: PositiveInt = key("vocabulary size: rows of the token embedding, and number of logits")
    hidden: PositiveInt = key("hidden size")
    context: PositiveInt = key("the longest context; rows of a learned position embedding")
    positions: Literal["rotary", "learned", "sines", "relative", "alibi", "none"] = key(
        "learned: an embedding; sines: computed, nothing is stored; relative: one bias per head and per bucket of"
        " distances (`buckets`), stored once per side, as in T5"
    )
    tied: StrictBool = key("the head's weight is the token embedding", False)
    head_bias: StrictBool = key("the head has a bias", False)
    scale_embedding: StrictBool = key("multiply token embeddings by √hidden", False)
    buckets: PositiveInt = key("number of distance buckets, for `relative` positions", 32)
    latent_attention: Literal["auto", "expanded", "absorbed", "unpacked"] = key(
        "how latent attention runs: auto takes expanded or absorbed, whichever needs fewer FLOPs in a step; unpacked"
        " caches the keys and values of all heads",
        "auto",
    )
    source_vocab: PositiveInt | None = key("vocabulary size of the encoder, if it has its own token embedding", None)
    source_hidden: PositiveInt | None = key(
        "hidden size of the encoder, if it differs; the encoder then has its own token embedding", None
    )
    source_context: PositiveInt | None = key("the longest source; rows of its learned position embedding", None)


class AttentionTable(Table):
    """Self-attention. The decoder's cross-attention has the same heads."""

    heads: PositiveInt = key("query heads")
    kv_heads: PositiveInt = key("key/value heads; must divide `heads`", of="heads")
    head_dim: PositiveInt | None = key("head size; heads · head_dim need not equal `hidden`", None)
    bias: StrictBool = key("biases on the q, k and v projections, and on the gate", False)
    out_bias: StrictBool = key("a bias on the output projection", of="bias")
    window: PositiveInt | None = key("sliding window: keys that a query sees, including its own; decoder only", None)
    qk_norm: NormKind | None = key(
        "a norm on queries and keys, with one scale of head_dim shared by all heads; not in cross attention", None
    )
    gate: StrictBool = key("an output gate: an extra projection, as wide as the queries; not in cross attention", False)
    scores: Scores = key('"distance": a score is max |q − k|, pointwise work instead of a matmul', "product")
    rotated: StrictBool = key("false: no rotary embedding in this attention", True)
    rotary_dim: PositiveInt | None = key("rotary dimensions of a head: even, at most `head_dim`", None)
    rotary_base: PositiveFloat = key("base of the rotary embedding; no count depends on it", 10_000.0)


class LatentTable(Table):
    """Latent attention (MLA) in place of attention: keys and values of all heads come from one latent per token."""

    heads: PositiveInt = key("query heads, each with its own keys and values")
    kv_rank: PositiveInt = key("size of the key/value latent")
    nope_dim: PositiveInt = key("non-rotary dimensions of a query or key head; keys compute them from the latent")
    rope_dim: PositiveInt = key("rotary dimensions of a head; even; the rotary key is shared by all heads")
    value_dim: PositiveInt = key("size of a value head, computed from the latent", of="nope_dim")
    q_rank: PositiveInt | None = key("size of the query latent; absent: no query latent", None)
    bias: StrictBool = key("biases on the projections to latents, and on the output projection", False)
    rotary_base: PositiveFloat = key("base of the rotary embedding; no count depends on it", 10_000.0)


class CrossTable(Table):
    """The decoder's attention to the source, if it differs from its self-attention."""

    bias: StrictBool | None = key("default: as in `attention`", None)
    out_bias: StrictBool | None = key("default: `bias` if it is given here, else as in `attention`", None)
    scores: Scores | None = key("default: as in `attention`", None)


class FeedForwardTable(Table):
    """The MLP."""

    width: PositiveInt = key("MLP width")
    gated: StrictBool = key("gated: a third matrix, whose activation multiplies the up projection", False)
    bias: StrictBool = key("biases on all projections", False)
    activation: Activation = key(
        "only training memory depends on it", of=lambda keys: "silu" if keys["gated"] else "gelu"
    )
    norm: NormKind | None = key("a norm inside the MLP, on its input", None)
    called: StrictBool = key("false: stored but never run, and neither are its norms and its addition", True)


class ExpertsTable(Table):
    """Experts in place of the MLP. Each expert is a gated MLP."""

    experts: PositiveInt = key("number of experts")
    active: PositiveInt = key("experts per token (top-k)")
    width: PositiveInt = key("width of one expert")
    shared: PositiveInt | None = key("width of a shared expert", None)
    shared_gate: StrictBool = key("a gate on the shared expert: one number per token", False)
    bias: StrictBool = key(
        "biases on the router and all expert projections, including the shared expert, but not on its gate", False
    )
    activation: Activation = key("only training memory depends on it", "silu")


class MambaTable(Table):
    """Mamba in place of attention, in some of the decoder's layers."""

    inner: PositiveInt = key("channels")
    state: PositiveInt = key("state size of a channel", 16)
    kernel: PositiveInt = key("kernel size of the convolution, in tokens", 4)
    rank: PositiveInt | None = key("rank of the projection to step sizes", None)
    bias: StrictBool = key("biases on the input and output projections", False)
    conv_bias: StrictBool = key("a bias on the convolution", True)
    mlp: StrictBool = key("its layers also have the MLP", False)
    activation: Activation = key("only training memory depends on it", "silu")


class Mamba2Table(Table):
    """Mamba-2 in place of attention, in some of the decoder's layers."""

    heads: PositiveInt = key("heads, each with a state of `head_dim` · `state`")
    head_dim: PositiveInt = key("size of a head")
    groups: PositiveInt = key("groups of heads that share B and C; must divide `heads`", 1)
    state: PositiveInt = key("state size of a channel", 128)
    kernel: PositiveInt = key("kernel size of the convolution, in tokens", 4)
    chunk: PositiveInt = key("tokens in a chunk; several new tokens run in whole chunks", 256)
    bias: StrictBool = key("biases on the input and output projections", False)
    conv_bias: StrictBool = key("a bias on the convolution", True)
    gated_norm: StrictBool = key("a norm after the gate", True)
    mlp: StrictBool = key("its layers also have the MLP", False)
    activation: Activation = key("only training memory depends on it", "silu")


class DeltaNetTable(Table):
    """Gated DeltaNet in place of attention, in some of the decoder's layers."""

    heads: PositiveInt = key("value heads, each with a state of `key_dim` · `value_dim`")
    key_heads: PositiveInt = key("heads of queries and keys; must divide `heads`", of="heads")
    key_dim: PositiveInt = key("size of a query or key head")
    value_dim: PositiveInt = key("size of a value head", of="key_dim")
    kernel: PositiveInt = key("kernel size of the convolution, in tokens", 4)
    decay_rank: PositiveInt | None = key(
        "per-channel decays, as in KDA: rank of the projections to decays and gate; absent: one decay per head", None
    )
    chunk: PositiveInt = key("tokens in a chunk; several new tokens run in whole chunks", 64)
    activation: Activation = key("only training memory depends on it", "silu")


class ShortConvolutionTable(Table):
    """A gated short convolution in place of attention, in some of the decoder's layers."""

    kernel: PositiveInt = key("kernel size of the convolution, in tokens", 3)
    bias: StrictBool = key("biases on both projections and the convolution", False)


class Listed(Table):
    """The layers with a mixer in place of attention, if a side's table lists them."""

    layers: Annotated[list[NonNegativeInt], Field(min_length=1)] = key(
        "0-based indices of the layers that have it; the others have attention"
    )


class ListedMamba(Listed, MambaTable):
    """Mamba in place of attention, in the listed decoder layers."""


class ListedMamba2(Listed, Mamba2Table):
    """Mamba-2 in place of attention, in the listed decoder layers."""


class ListedDeltaNet(Listed, DeltaNetTable):
    """Gated DeltaNet in place of attention, in the listed decoder layers."""


class ListedShortConvolution(Listed, ShortConvolutionTable):
    """A gated short convolution in place of attention, in the listed decoder layers."""


class NormTable(Table):
    """The norms of a layer, and the final norm."""

    kind: NormKind = key("layer: scale and shift; rms: scale")
    order: Literal["pre", "post", "parallel", "sandwich", "reordered"] = key(
        "pre: x + f(norm(x)); post: norm(x + f(x)); parallel: attention and MLP in parallel; sandwich: x +"
        " norm(f(norm(x))); reordered: x + norm(f(x))",
        "pre",
    )
    shared: StrictBool = key("one norm per layer, shared by its sublayers", False)
    final: StrictBool = key("a norm after each side's last layer", of=lambda keys: keys["order"] != "post")
    embedding: StrictBool = key("a norm after the embeddings", False)


class LayerTable(Table):
    """The parts of one kind of layer, including those of the common tables."""

    attention: AttentionTable | None = None
    latent_attention: LatentTable | None = None
    mamba: MambaTable | None = None
    mamba2: Mamba2Table | None = None
    delta_net: DeltaNetTable | None = None
    short_convolution: ShortConvolutionTable | None = None
    feed_forward: FeedForwardTable | None = None
    experts: ExpertsTable | None = None


class SideTable(Table):
    """One side. It may repeat the tables of parts, with the keys that differ."""

    layers: LayerCount = key("number of layers")
    pattern: list[str] | None = key(
        "kinds of layers, in order, repeated up to the last layer; absent: all layers are alike", None
    )
    blocks: list[LayerTable]
    """Kinds of layers, in the order in which they first run."""
    named: list[str]
    """For each kind, the table that describes only it, `[decoder.local]`; empty where there is none."""
    each: list[int]
    """For each layer, which kind it is."""
    cross_attention: CrossTable | None = None
    mamba: ListedMamba | None = None
    mamba2: ListedMamba2 | None = None
    delta_net: ListedDeltaNet | None = None
    short_convolution: ListedShortConvolution | None = None


SIDES = ("encoder", "decoder")
PARTS: dict[str, type[Table]] = {name: get_args(of.annotation)[0] for name, of in LayerTable.model_fields.items()}
LISTED: dict[str, type[Listed]] = {
    name: get_args(of.annotation)[0] for name, of in SideTable.model_fields.items() if name in PARTS
}
"""Mixers in place of attention, for the layers that a side's table lists."""
LABELS = {"mamba": "Mamba", "mamba2": "Mamba-2", "delta_net": "DeltaNet", "short_convolution": "short convolutions"}
"""Their names in error messages."""
MIXERS = ("attention", "latent_attention", *LISTED)
MLPS = ("feed_forward", "experts")
PLACES = ("every", "first")
"""Tables of a side with tables by number of layers."""
COMMON = {name: table for name, table in PARTS.items() if name not in LISTED}
"""Tables that each side may repeat with different keys."""
NOT_IN = {("encoder", name) for name in ("latent_attention", *LISTED)}
"""Parts that a side does not support."""
WITHOUT_MLP = tuple(name for name in LISTED if "mlp" in PARTS[name].model_fields)
"""Mixers whose layers have no MLP by default."""
ANY = "*"
"""In a name: any kind of layer, or any number of layers."""
KEYS_OF: dict[str, type[Table]] = {"model": ModelTable, **COMMON, "norm": NormTable}
KEYS_OF |= {f"{side}.{name}": COMMON[name] for side in SIDES for name in COMMON if (side, name) not in NOT_IN}
KEYS_OF |= {"decoder.cross_attention": CrossTable, **{f"decoder.{name}": table for name, table in LISTED.items()}}
KEYS_OF |= {f"{side}.{ANY}.{name}": PARTS[name] for side in SIDES for name in PARTS if (side, name) not in NOT_IN}
"""Every table of keys, except the sides."""
TABLES = (*KEYS_OF, *SIDES, *(f"{side}.{name}" for side in SIDES for name in (*PLACES, ANY)))
OF_A_SIDE = ("layers", "pattern", *PARTS, "cross_attention", *PLACES)
"""Names in a side's table that are not kinds of layers."""
KEYS = (
    *(f"{name}.{key}" for name, table in KEYS_OF.items() for key in table.model_fields),
    *(f"{side}.{key}" for side in SIDES for key in ("layers", "pattern")),
)
"""Every key by its dotted name."""
NUMBER = re.compile(r"[1-9][0-9]{0,5}")
WORD = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


def is_reference_only(path: str) -> bool:
    """True if no count depends on a key."""
    return path.rpartition(".")[2] in REFERENCE_ONLY


def general(path: str) -> str:
    """A dotted name with `*` for the kind of layer or the number of layers, if it has one."""
    words = path.split(".")
    if len(words) > 1 and words[0] in SIDES:
        if words[1] in PLACES:
            words[1:3] = [ANY] if len(words) > 2 else words[1:3]
        elif words[1] not in OF_A_SIDE:
            words[1] = ANY
    return ".".join(words)


def keys_of_kinds(paths: Mapping[str, Any]) -> frozenset[str]:
    """Every key that kinds of layers, and layers by number, may have in a file with these dotted names."""
    split = (path.split(".") for path in paths if path.startswith(SIDES))
    places = {".".join(words[:3]) for words in split if len(words) > 3 and words[1] in PLACES}
    for side in SIDES:
        pattern = paths.get(f"{side}.pattern")
        places |= {f"{side}.{word}" for word in pattern} if isinstance(pattern, list) else set()
    return frozenset(f"{place}.{name}.{key}" for place in places for name in PARTS for key in PARTS[name].model_fields)


def flattened(tables: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Nested tables as keys with dotted names; an empty table is a key."""
    flat: dict[str, Any] = {}
    for name, value in tables.items():
        path = f"{before}{name}"
        inner = isinstance(value, Mapping) and value and general(path) in TABLES
        flat |= flattened(value, f"{path}.") if inner else {path: value}
    return flat


def nested(flat: Mapping[str, Any]) -> Tables:
    """Nested tables from dotted names, without null keys. Raises ConfigError for an unknown table or key."""
    tables: Tables = {}
    for path, value in flat.items():
        if value is None:
            continue
        named = general(path)
        _check_kind(path, flat)
        if named in TABLES and not isinstance(value, Mapping):
            raise ConfigError(f"[{path}] must be a table, not {format_value(value)}")
        if named not in TABLES and named not in KEYS:
            raise _unknown(path)
        *outer, name = path.split(".")
        at = tables
        for word in outer:
            at = at.setdefault(word, {})
        at.setdefault(name, {}) if named in TABLES else at.update({name: value})
    return tables


def _check_kind(path: str, flat: Mapping[str, Any]) -> None:
    """Raises ConfigError for a kind of layer that is not in its side's pattern, and for an invalid layer number."""
    side, _, rest = path.partition(".")
    kind, _, inner = rest.partition(".")
    if side not in SIDES or not rest:
        return
    if kind in PLACES:
        number = inner.partition(".")[0]
        if inner and not NUMBER.fullmatch(number):
            problem = f"[{side}.{kind}.{cut(number)}]: {cut(number)!r} is not a layer number"
            raise ConfigError(problem, f"as in [{side}.{kind}.6.attention]")
        return
    pattern = flat.get(f"{side}.pattern")
    if kind in OF_A_SIDE or (pattern is not None and not (pattern and isinstance(pattern, list))):
        return  # such a pattern raises an error later
    kinds = [word for word in pattern or () if isinstance(word, str)]
    if kind in kinds:
        return
    known = [name for name in _within(side) if "." not in name] + kinds
    if kinds:
        named = f"{side}.pattern names {', '.join(map(cut, dict.fromkeys(kinds)))}"
        raise ConfigError(f"[{side}] has no {cut(kind)!r}: {cut(named)}", nearest(kind, known))
    if inner.partition(".")[0] in PARTS and not nearest(kind, known):
        raise ConfigError(f"[{side}] has no {cut(kind)!r}", f'{side}.pattern = ["{cut(kind)}", …] would define it')
    raise _unknown(f"{side}.{kind}")


def _within(place: str) -> list[str]:
    """Keys and tables in a table."""
    found = (name.removeprefix(f"{place}.") for name in (*KEYS, *TABLES) if name.rpartition(".")[0] == place)
    return [name for name in found if name != ANY]


def _unknown(path: str) -> ConfigError:
    """The error for an unknown name, with the nearest known one."""
    words = path.split(".")
    places = (".".join(words[:length]) for length in range(min(len(words) - 1, 4), 0, -1))
    place = next((place for place in places if general(place) in TABLES and place != path), "")
    name = words[place.count(".") + 1 if place else 0]
    if not place:
        tables = [f"[{table}]" for table in TABLES if "." not in table]
        known = nearest(f"[{name}]", tables) or f"known tables: {', '.join(tables)}"
        return ConfigError(f"unknown table [{cut(name)}]", known)
    keys = _within(general(place))
    if name in ("kind", "type"):
        return ConfigError(
            f"[{place}] has no {name!r}", f"each kind is a table: {', '.join(f'[{one}]' for one in PARTS)}"
        )
    parts = [f"[{place}.{part}]" for part, table in PARTS.items() if part in keys and name in table.model_fields]
    known = f"it is a key of {' and '.join(parts)}" if parts else f"known keys: {', '.join(sorted(keys))}"
    return ConfigError(f"[{place}] has no {cut(name)!r}", (None if parts else nearest(name, keys)) or known)
