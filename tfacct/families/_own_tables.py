"""The tables of an own model: their keys, and how what is common is written into each side."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from tfacct.base.errors import ConfigError, cut, nearest
from tfacct.families._base import Count, Layers, Switch, UpTo, shown

Activation: TypeAlias = Literal["gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "swish"]
NormKind: TypeAlias = Literal["layer", "rms"]
Scores: TypeAlias = Literal["product", "distance"]
Tables: TypeAlias = dict[str, Any]


class Table(BaseModel):
    """A table of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    uncounted: ClassVar[frozenset[str]] = frozenset()
    """Keys that no count depends on."""


class ModelTable(Table):
    """What stands at the model's ends."""

    vocab: Count = Field(description="rows of the token table; number of logits")
    hidden: Count = Field(description="elements per token between the blocks")
    context: Count = Field(description="the longest context; rows of a learned position table")
    positions: Literal["rotary", "learned", "sines", "relative", "alibi", "none"] = Field(
        description="learned: a table; sines: computed, nothing stored; relative: a table of `buckets` scores per"
        " head on each side, as in T5"
    )
    tied: Switch = Field(False, description="the token table is also the head's weight")
    head_bias: Switch = Field(False, description="the head has a bias")
    scale_embedding: Switch = Field(False, description="multiply each token's row by √hidden")
    buckets: Count = Field(32, description="distances that `relative` positions tell apart")
    source_vocab: Count | None = Field(
        None, description="rows of the encoder's own token table; `vocab` is then the decoder's"
    )
    source_context: Count | None = Field(None, description="the longest source; rows of its learned position table")


class AttentionTable(Table):
    """Self-attention; the decoder's attention to a source has the same heads."""

    heads: Count = Field(description="query heads")
    kv_heads: Count = Field(
        default_factory=lambda fields: fields["heads"], description="key/value heads; they divide `heads`"
    )
    head_dim: Count | None = Field(None, description="size of a head; heads · head_dim need not be `hidden`")
    bias: Switch = Field(False, description="biases on the q, k and v projections")
    out_bias: Switch = Field(
        default_factory=lambda fields: fields["bias"], description="a bias on the output projection"
    )
    window: Count | None = Field(None, description="keys that a query sees, its own included; decoder only")
    qk_norm: NormKind | None = Field(
        None,
        description="a norm on queries and keys, one scale of head_dim for all heads; not in cross attention",
    )
    scores: Scores = Field("product", description='"distance": a score is max |q − k|: pointwise work, no product')


class CrossTable(Table):
    """The decoder's attention to the source, where it differs from its self-attention."""

    bias: Switch | None = Field(None, description="default: as in `attention`")
    out_bias: Switch | None = Field(None, description="default: `bias` if it is given here, else as in `attention`")
    scores: Scores | None = Field(None, description="default: as in `attention`")


class FeedForwardTable(Table):
    """The feed-forward network."""

    uncounted: ClassVar = frozenset({"activation"})

    width: Count = Field(description="width between its two products")
    gated: Switch = Field(False, description="a third matrix, whose activated result multiplies another's")
    bias: Switch = Field(False, description="biases on all its projections")
    activation: Activation = Field(
        default_factory=lambda fields: "silu" if fields["gated"] else "gelu", description="no count depends on it"
    )
    norm: NormKind | None = Field(None, description="a norm inside the network, on its input")
    called: Switch = Field(True, description="false: stored but never run, nor are its norms and addition")


class ExpertsTable(Table):
    """Experts in place of the feed-forward network: gated networks, of which each token passes through some."""

    uncounted: ClassVar = frozenset({"activation"})

    experts: Count = Field(description="networks that are stored")
    active: Count = Field(description="networks that each token is sent to")
    width: Count = Field(description="width of one expert")
    shared: Count | None = Field(None, description="width of one more network, which every token passes through")
    shared_gate: Switch = Field(False, description="weight the shared network's result by one number per token")
    bias: Switch = Field(
        False,
        description="biases on the router, every expert's projections and the shared network's; its gate has none",
    )
    activation: Activation = Field("silu", description="no count depends on it")


class MambaTable(Table):
    """Mamba in place of attention, in some of the decoder's blocks."""

    uncounted: ClassVar = frozenset({"activation"})

    layers: Annotated[list[UpTo], Field(min_length=1)] = Field(
        description="indices of the blocks that have it, from 0; the others have attention"
    )
    inner: Count = Field(description="channels")
    state: Count = Field(16, description="elements in a channel's state")
    kernel: Count = Field(4, description="tokens that the convolution sees")
    rank: Count | None = Field(None, description="elements from which a token's step size is computed")
    bias: Switch = Field(False, description="biases on the input and output projections")
    conv_bias: Switch = Field(True, description="a bias on the convolution")
    network: Switch = Field(False, description="its blocks also have the feed-forward network")
    activation: Activation = Field("silu", description="no count depends on it")


class NormTable(Table):
    """The norms around the sublayers."""

    kind: NormKind = Field(description="layer: scale and shift; rms: scale")
    order: Literal["pre", "post", "parallel"] = Field(
        "pre",
        description="pre: x + f(norm(x)); post: norm(x + f(x)); parallel: attention and network side by side",
    )
    shared: Switch = Field(False, description="one norm per layer, shared by its sublayers")
    final: Switch = Field(
        default_factory=lambda fields: fields["order"] != "post", description="a norm after each side's last layer"
    )
    embedding: Switch = Field(False, description="a norm after the tables")


class SideTable(Table):
    """One side. It may repeat the tables of attention and network, with the keys in which it differs."""

    layers: Layers = Field(description="blocks")
    attention: AttentionTable
    feed_forward: FeedForwardTable | None = None
    experts: ExpertsTable | None = None
    cross_attention: CrossTable | None = None
    mamba: MambaTable | None = None


SIDES = ("encoder", "decoder")
NETWORKS = ("feed_forward", "experts")
COMMON: dict[str, type[Table]] = {
    "attention": AttentionTable,
    "feed_forward": FeedForwardTable,
    "experts": ExpertsTable,
}
"""Tables that each side may say anew, key by key."""
KEYS_OF: dict[str, type[Table]] = {"model": ModelTable, **COMMON, "norm": NormTable}
KEYS_OF |= {f"{side}.{name}": table for side in SIDES for name, table in COMMON.items()}
KEYS_OF |= {"decoder.cross_attention": CrossTable, "decoder.mamba": MambaTable}
"""Every table but the sides themselves, which have their layers."""
TABLES = (*KEYS_OF, *SIDES)
UNCOUNTED = frozenset(f"{name}.{key}" for name, table in KEYS_OF.items() for key in table.uncounted)
KEYS = (
    *(f"{name}.{key}" for name, table in KEYS_OF.items() for key in table.model_fields),
    *(f"{side}.layers" for side in SIDES),
)
"""Every key by its dotted name."""


def flattened(tables: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Tables within tables as keys with dotted names; a table without keys stands for itself."""
    flat: dict[str, Any] = {}
    for name, value in tables.items():
        path = f"{before}{name}"
        if isinstance(value, Mapping) and value and path in TABLES:
            flat |= flattened(value, f"{path}.")
        else:
            flat[path] = value
    return flat


def nested(flat: Mapping[str, Any]) -> Tables:
    """The tables again, without keys that are null. Raises ConfigError for a table or key that there is not."""
    tables: Tables = {}
    for path, value in flat.items():
        if value is None:
            continue
        if path in TABLES and not isinstance(value, Mapping):
            raise ConfigError(f"[{path}] must be a table, not {shown(value)}")
        if path not in TABLES and path not in KEYS:
            raise _unknown(path)
        *outer, name = path.split(".")
        at = tables
        for word in outer:
            at = at.setdefault(word, {})
        at.setdefault(name, {}) if path in TABLES else at.update({name: value})
    return tables


def _unknown(path: str) -> ConfigError:
    """A name that there is not, and the nearest that there is."""
    words = path.split(".", 3)
    place = next((table for table in (".".join(words[:2]), words[0]) if table in TABLES and table != path), "")
    name = words[place.count(".") + 1 if place else 0]
    if not place:
        tables = [f"[{table}]" for table in TABLES if "." not in table]
        known = nearest(f"[{name}]", tables) or f"known tables: {', '.join(tables)}"
        return ConfigError(f"unknown table [{cut(name)}]", known)
    keys = [key.removeprefix(f"{place}.") for key in (*KEYS, *TABLES) if key.rpartition(".")[0] == place]
    known = f"known keys: {', '.join(sorted(keys))}"
    return ConfigError(f"[{place}] has no {cut(name)!r}", nearest(name, keys) or known)


def merged(tables: Tables, side: str) -> Tables:
    """A side's tables over the common ones. Of network and experts it has what it names itself, else what is common."""
    own = dict(tables[side])
    names = [name for name in NETWORKS if name in own] or [name for name in NETWORKS if name in tables]
    for name in ("attention", *names):
        if name in own or name in tables:
            own[name] = {**tables.get(name, {}), **own.get(name, {})}
    return own


def where(tables: Tables, loc: tuple[Any, ...]) -> str:
    """The place in the file that a checked key came from: of a side's keys the side's table, or the common one."""
    side, *rest = loc
    if side in SIDES and len(rest) > 1:
        table, key, *_ = rest
        if key not in tables[side].get(table, {}) and table in tables:
            return f"{table}.{key}"
    return ".".join(map(str, loc))


def defaulted(model: ModelTable, norm: NormTable, sides: Mapping[str, SideTable]) -> dict[str, Any]:
    """Keys that took a default which says something, by dotted name; of both sides alike, by the common one."""
    found = {f"model.{key}": value for key, value in _unset(model) if key != "buckets" or model.positions == "relative"}
    found |= {f"norm.{key}": value for key, value in _unset(norm)}
    by_side = {side: dict(_of_side(table, model.hidden)) for side, table in sides.items()}
    for side, values in by_side.items():
        for path, value in values.items():
            alike = all(path in other and other[path] == value for other in by_side.values())
            found[path if alike else f"{side}.{path}"] = value
    return found


def _of_side(side: SideTable, hidden: int) -> Iterator[tuple[str, Any]]:
    for name in (*COMMON, "mamba"):
        table = getattr(side, name)
        if table is not None:
            yield from ((f"{name}.{key}", value) for key, value in _unset(table))
    if side.attention.head_dim is None and hidden % side.attention.heads == 0:
        yield "attention.head_dim", hidden // side.attention.heads
    if side.mamba is not None and side.mamba.rank is None:
        yield "mamba.rank", -(-hidden // 16)


def _unset(table: Table) -> Iterator[tuple[str, Any]]:
    for key in type(table).model_fields:
        value = getattr(table, key)
        if key not in table.model_fields_set and value is not None and key not in table.uncounted:
            yield key, value
