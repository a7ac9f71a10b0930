"""What the adapter of one product keeps, and what its gradients and those of its frozen product hold."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import NamedTuple

from tfacct.ledger.kept import Held, Kept, Moment, Role, Run
from tfacct.profiles import adapters_latent as latent

RANK = "Rl"
"""Letter of the adapters' rank."""
WEIGHT = ".weight"
STREAM = "B T D"
BESIDE = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""Products that read one tensor, in their order: backwards, the gradients of what they make wait for each other."""
READING = frozenset(name for row in BESIDE for name in row)
ROUTER = Held("D E", "copy")
"""The gradient of a router's weight that was copied to fp32."""
STREAMS = {"attn": ("blocks.*.in",), "mlp": ("blocks.*.in", "blocks.*.mid")}
"""What of the stream a sublayer's caller holds while it runs forwards."""
FIRST = ("q_proj", "q_a_proj", "up_proj", "router")
"""Products that read what a sublayer does, of attention, of a network and of experts."""
GATE = "shared_gate"
"""The product by whose result that of a network beside experts is multiplied."""
LOCALS = {
    "o_proj": Held("B T N H", path="blocks.*.attn.values"),
    "up_proj": Held("B T F", path="blocks.*.mlp.act.result"),
    "down_proj": Held("B T F", path="blocks.*.mlp.product"),
}
"""What stands beside a product, or is read by it, while it runs forwards, whether kept or not."""


class Sides(NamedTuple):
    """Axes of what a product reads and of what it makes, none of the latter where it is added to the stream; and, where
    its weight is stored in 4 bits, of the weight and its scales as they are unpacked for a gradient."""

    reads: str
    makes: str
    unpacked: tuple[Held, ...] = ()


class Adapters(NamedTuple):
    """Adapters of `rank` on some of a block's `products`: all that have weights, by their paths.

    `wide`: they are in fp32 and the pass is not, so each casts its input. `drops`: they drop numbers of it. `embedded`:
    the embeddings require a gradient, as they do where blocks run again. `packed`: the weights are in 4 bits,
    and an adapter's result is cast before it is added, not the sum. `apart`: the gradient of a part's result is not the
    stream's. `remakes`: block 0 does not read the embeddings themselves.
    `inline`: the network's products are the block's own, and what the first one read is gone at the last. `lingers`:
    attention's result is there while the network runs. `leaves`: attention's function is over when its last product
    runs. `network_apart`: the gradient of the network's result alone is not the stream's. `sums_first`: results of
    parts side by side are summed before numbers of them are dropped, so both have one gradient. `autocast`: the pass
    casts weights that are in fp32.
    """

    rank: int
    on: frozenset[str]
    products: Mapping[str, Sides]
    wide: bool = False
    drops: bool = False
    embedded: bool = False
    packed: bool = False
    apart: bool = False
    remakes: bool = False
    inline: bool = False
    lingers: bool = False
    leaves: bool = False
    network_apart: bool = False
    sums_first: bool = False
    autocast: bool = False

    @property
    def role(self) -> Role:
        """Dtype rule of what they compute."""
        return "full" if self.wide else "work"

    @property
    def casts(self) -> bool:
        """True if the sum of an adapter's result and its product's is cast: the product's gradient is its own then."""
        return self.wide and not self.packed

    @property
    def copies(self) -> bool:
        """True if they keep a copy of what their product reads, cast or dropped."""
        return self.wide or self.drops


class Around(NamedTuple):
    """What stands around a product while gradients come back to it.

    `waits`: gradients of what products in front of it make. `summed`: that of what it reads, from products behind it.
    `makes`: axes of its result, and `own`: whether the gradient of that is not the stream's. `there`: what it reads
    requires a gradient too. `sums`: it reads the stream, to whose gradient its own is added.
    """

    waits: tuple[Held, ...]
    summed: tuple[Held, ...]
    makes: str
    own: bool
    there: bool
    sums: bool = False


def around(
    product: str, adapters: Adapters, live: frozenset[str], *, sums: bool = False, shares: bool = False
) -> Around:
    """What stands around a product. `live`: operations whose inputs require a gradient. `sums`: the block's parts read
    the stream itself. `shares`: its network reads what attention does, and gives back its gradient first."""
    owner, _, leaf = product.rpartition(".")
    front, behind = _beside(owner, leaf, adapters)
    made = (name for name in (f"{owner}.{each}" for each in front) if name in adapters.on or name + WEIGHT in live)
    there = product + WEIGHT in live
    makes = adapters.products[product].makes
    sublayer = owner.split(".")[2]
    weighted = owner != f"blocks.*.{sublayer}" and f"blocks.*.{sublayer}.{GATE}" in adapters.products
    apart = adapters.apart or (adapters.network_apart and sublayer == "mlp")
    given = (Held(STREAM),) if shares and sublayer == "attn" and passes("mlp", live) else ()
    if adapters.sums_first and adapters.apart and leaf == "up_proj" and _gives("attn", adapters, live):
        given = (Held(STREAM),)  # attention's result has the same
    return Around(
        (*given, *(Held(adapters.products[name].makes) for name in made), *latent.waits(product, live, adapters.on)),
        (Held(adapters.products[product].reads),) if behind and there and not sums else (),
        makes or STREAM,
        bool(makes) or apart or weighted or not passes(sublayer, live),
        there,
        sums and leaf in READING,
    )


def _beside(owner: str, leaf: str, adapters: Adapters) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Products in front of one that read the same, and those behind it; a class has some of them in one."""
    if f"{owner}.kv_a_proj" in adapters.products:
        return (), ("kv_a_proj",) if leaf in ("q_proj", "q_a_proj") else ()
    found = next((row for row in BESIDE if leaf in row), (leaf,))
    row = tuple(name for name in found if f"{owner}.{name}" in adapters.products)
    return row[: row.index(leaf)], row[row.index(leaf) + 1 :]


def _gives(sublayer: str, adapters: Adapters, live: frozenset[str]) -> bool:
    """True if the gradient of a sublayer's result is needed."""
    return passes(sublayer, live) or any(product.startswith(f"blocks.*.{sublayer}.") for product in adapters.on)


def passes(sublayer: str, live: frozenset[str]) -> bool:
    """True if what is in front of a sublayer requires the stream's gradient."""
    return any(f"blocks.*.{sublayer}.{first}{WEIGHT}" in live for first in FIRST)


def of_adapter(product: str, adapters: Adapters, beside: Around, forwards: tuple[Held, ...]) -> Run:
    """An adapter: a cast or dropped copy of what its product reads, and its own narrow result.

    `forwards`: what the product itself holds as it runs forwards.
    """
    down, up, drop = f"{product}.lora_A{WEIGHT}", f"{product}.lora_B{WEIGHT}", f"{product}.lora_drop"
    spec, role = adapters.products[product].reads, adapters.role
    drops = adapters.drops and beside.there
    kept = [Kept(f"{product}.lora_A", f"B T {RANK}", by=(up,), role=role)]
    if adapters.copies:
        kept.append(Kept(f"{product}.lora_in", spec, by=(down,), role=role))
    if drops:
        kept.append(Kept(drop, spec, by=(drop,), role="flag"))
    waits = beside.there and (beside.own or adapters.casts)  # the gradient that the product itself will read
    given = (*beside.waits, *beside.summed, *((Held(beside.makes),) if waits else ()))
    made, narrow, read = Held(beside.makes, role), Held(f"B T {RANK}", role), Held(spec, role)
    moments = [
        Moment(up, (*given, made, *((made,) if adapters.wide else ())), done=False),
        Moment(up, (*given, made, narrow)),
        Moment(down, (*given, narrow, *((read,) if beside.there else ()))),
        *((Moment(drop, (*given, read, read)),) if drops else ()),
    ]
    whole = (read,) if adapters.wide and adapters.drops else ()  # cast, before numbers of it are dropped
    beside_it = latent.there(product, read=True) if _latent(product, adapters) else ()
    named = dict.fromkeys((*local(up), *(held for held in forwards if held.path), *beside_it))
    there = tuple(held for held in forwards if not held.path)
    among = there and product.endswith(("o_proj", GATE))
    result = () if among else (Held(beside.makes),)
    before = (*result, *there, *whole, *named)
    before += _made(product, adapters)
    before += tuple(latent.there(product, read=False)) if _latent(product, adapters) else ()
    ahead = Moment(up, before), Moment(up, (*before, made, made), after=True)
    return Run((*((drop,) if drops else ()), down, up), tuple(kept), tuple(moments), ahead, (*given, made))


def of_product(product: str, adapters: Adapters, beside: Around, live: frozenset[str]) -> Iterator[Moment]:
    """The gradient of what a frozen product reads: its own part, its adapter's, that from products behind it."""
    sides, adapter = adapters.products[product], product in adapters.on
    at, spec = product + WEIGHT, sides.reads
    given = (*beside.waits, *((Held(beside.makes),) if beside.own or (adapter and adapters.casts) else ()))
    if adapter:
        cast = (Held(spec),) if adapters.wide else ()
        yield Moment(at, (*given, *beside.summed, Held(spec, adapters.role), *cast))
        if beside.summed or beside.sums:
            yield Moment(at, (*given, Held(spec, times=2 if beside.sums else 3)))
    come = (adapter or beside.summed) and not beside.sums
    there = (*given, *((Held(spec),) if come else ()))  # what has come already, as one
    late = product.endswith("down_proj") and adapters.packed and not adapter  # before anything kept is needed
    if sides.unpacked:
        yield Moment(at, (*there, *sides.unpacked), done=not late)
    yield Moment(at, (*there, *sides.unpacked[:1], Held(spec)), done=not late)
    if adapter or beside.summed or beside.sums:
        both = adapters.sums_first and adapters.apart and product.endswith("mlp.down_proj")
        one = (Held(STREAM),) if both and _gives("attn", adapters, live) else ()
        yield Moment(at, (*beside.waits, *one, Held(spec, times=2 if beside.sums else 3)))


def of_frozen(moment: Moment, live: frozenset[str]) -> Moment:
    """A moment where a weight has no gradient of its own: a router's; and of a norm of queries or keys, what their
    products read may require none."""
    if moment.at.endswith(f".router{WEIGHT}"):
        return moment._replace(held=tuple(held for held in moment.held if held != ROUTER))
    sublayer, _, norm = moment.at.removeprefix("blocks.*.").partition(".")
    if norm.startswith(("q_norm", "k_norm")) and not passes(sublayer, live):
        return moment._replace(held=tuple(held for held in moment.held if held != Held(STREAM)))
    return moment


def local(at: str, lines: Container[str] = ()) -> Iterator[Held]:
    """What the class's functions still hold while an operation runs forwards, where nothing keeps it. `lines`: those of
    the run as it is trained: torch's LayerNorm scales nothing apart."""
    owner, name, *rest = f"{at.removeprefix('blocks.*.')}.".split(".")
    if name == "weight" and owner.endswith("_norm"):
        scaled = f"{at.removesuffix(WEIGHT)}.scaled"
        if scaled in lines:
            yield Held(STREAM, path=scaled)
        yield Held(STREAM, path="stream" if owner == "final_norm" else "blocks.*.in")
    elif owner in STREAMS and name != "drop":
        yield Held(STREAM, path=f"blocks.*.{owner}_norm")
        if name in LOCALS:
            yield LOCALS[name]
        if name == "experts":
            yield Held(STREAM, path="blocks.*.in")
        if rest[:1] == ["lora_B"]:
            yield from (Held(STREAM, path=path) for path in STREAMS[owner])


def beside_local(moment: Moment, lines: Container[str]) -> Iterator[Held]:
    """The same at a moment, but for what it names itself, and once it is over for what its product read."""
    read = LOCALS.values() if moment.after else ()
    return (held for held in local(moment.at, lines) if held not in moment.held and held not in read)


def _latent(product: str, adapters: Adapters) -> bool:
    """True of a product of latent attention."""
    return f"{product.rpartition('.')[0]}.kv_a_proj" in adapters.products


def _made(product: str, adapters: Adapters) -> tuple[Held, ...]:
    """What products in front of one have made, and nothing keeps yet; gate_proj's result is kept."""
    owner, _, leaf = product.rpartition(".")
    names = () if leaf == "up_proj" else _beside(owner, leaf, adapters)[0]
    return tuple(Held(adapters.products[f"{owner}.{name}"].makes) for name in names)
