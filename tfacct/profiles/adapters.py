"""Low-rank adapters beside products whose weights are frozen, as peft puts them there, and what is then kept.

Held against peft's own adapters on the transformers classes, as the profile's other lines are.
"""

from __future__ import annotations

from collections.abc import Iterator

from tfacct.ledger.kept import AGAIN, TURNS, Handed, Held, Kept, Moment, Pass, Run, Section
from tfacct.ledger.workload import PATCHES
from tfacct.profiles import adapters_latent as latent
from tfacct.profiles.adapters_parts import (
    RANK,
    STREAMS,
    WEIGHT,
    Adapters,
    around,
    beside_local,
    of_adapter,
    of_frozen,
    of_product,
    passes,
)

TABLES = ("embed", "pos_embed")
"""Operations of weights that are not called so."""
TOKENS, POSITIONS, PIXELS = "tokens", "positions", "pixels"
BIAS = ".bias"
CHOICE = "loss.choose"
"""The loss's choice of each target: of an encoder's, which are its tokens."""
ATTENTION, NETWORK = "blocks.*.attn", "blocks.*.mlp"
NORMS = frozenset(f"{sublayer}_norm" for sublayer in (ATTENTION, NETWORK))
"""What sublayers read, where norms stand in front of them."""
VALUES, COPY = f"{ATTENTION}.values", f"{ATTENTION}.values_copy"
"""What attention gave, and as the next product reads it, where that is a copy."""
SUM, INPUT, MID = "blocks.*.sum", "blocks.*.in", "blocks.*.mid"
"""The sum of parts that stand side by side, and what they read; what networks behind attention read."""
ACTIVATED = f"{NETWORK}.act.result"
READ_BY_SUMS = {f"{ATTENTION}_norm": INPUT, f"{NETWORK}_norm": f"{ATTENTION}_norm", "blocks.*.mid": ""}
READ_BY_SUMS |= {f"{ATTENTION}_norm.scaled": "", f"{NETWORK}_norm.scaled": "", f"{NETWORK}.product": ACTIVATED}
"""What parts read whose sums are normed, by what others do."""
GATED = frozenset((ACTIVATED, f"{NETWORK}.product"))
"""What stands in a network beside its products, where it is gated; else its last product reads what is activated."""
ROW, TWO_ROWS = Held("B T D"), Held("B T D", times=2)
EMBEDDED = Held("B T D", "cast")
"""Embeddings that wait in 16 bits alone, for block 0 keeps them in fp32; with adapters it need not."""


def adapted(run: Pass, adapters: Adapters) -> Pass:
    """The pass of a frozen model with adapters. Block 0 stands apart: nothing in front of its first adapter is kept."""
    blocks: list[Section] = []
    for section in run.blocks:
        axes, first = {**section.axes, RANK: adapters.rank}, 1 if section.numbers[0] == 0 else 0
        for numbers, start in ((section.numbers[:first], adapters.embedded), (section.numbers[first:], True)):
            if numbers:
                blocks.append(Section(_frozen(section.run, adapters, start), axes, len(numbers), numbers))
    return ended(run, adapters, tuple(blocks), _frozen(run.back.run, adapters, start=True))


def ended(run: Pass, adapters: Adapters, blocks: tuple[Section, ...], back: Run) -> Pass:
    """The pass with these blocks and this end, its tables frozen."""
    turned = frozenset(turn for turn in TURNS if any(turn in section.run.order for section in blocks))
    front = _front(run.front.run, adapters, turned)
    # The batch is there, trained table or not.
    batch = tuple(line for line in run.front.run.kept if line.path == TOKENS and CHOICE not in line.by)
    sums = any(_sums(section.run) for section in blocks)
    positions = tuple(  # a trained table keeps them; blocks are handed them anyway
        Handed(held)
        for held in (Held(line.spec, line.role) for line in run.front.run.kept if line.path == POSITIONS)
        if not sums and all(held != each.held for each in run.handed)
    )
    narrow = "De" if "De" in run.front.axes else "D"
    rows = PATCHES if PATCHES in run.front.axes else "T"
    scaled = Handed(Held(f"B {rows} {narrow}"))  # embeddings that require a gradient stay beside what is made of them
    waiting = tuple(held._replace(role="work") if held == EMBEDDED else held for held in run.waiting)
    waiting += tuple(each.held for each in positions if each.held not in waiting)
    there = ROW in waiting or adapters.autocast  # where the rules of block 0 hold it
    if all(line.path != INPUT for line in blocks[0].run.kept) and (sums or not there):
        waiting += (ROW,)  # what the first block reads, which its caller has meanwhile
    return run._replace(
        front=run.front._replace(run=front),
        blocks=blocks,
        back=run.back._replace(run=back),
        buffers=(*run.buffers, *batch),
        waiting=(*(run.waiting if adapters.embedded else waiting), *_pixels(run.front.run)),
        handed=(*run.handed, *positions, *((scaled,) if adapters.embedded and adapters.remakes else ())),
        views=frozenset(),  # tokens that are learned no more
    )


def _pixels(front: Run) -> Iterator[Held]:
    """A copy of images in the pass's dtype, which the class has while its blocks run: no convolution keeps it."""
    yield from (Held(line.spec, line.role) for line in front.kept if line.path == PIXELS)


def reached(run: Run, products: frozenset[str], start: bool) -> frozenset[str]:
    """Operations of a run whose inputs require a gradient: what they read was made from an adapter's result.

    `products` have adapters. `start`: what the run reads requires a gradient.
    """
    sources, known = _sources(run), frozenset(run.order)
    live: set[str] = set()
    made: set[str] = set()
    before = ""
    for name in run.order:
        reads = (each or before for each in sources.get(name, ("",)))
        if any(source in made if source in known else start for source in reads):
            live.add(name)
        if name in live or _product(name) in products:
            made.add(name)
        before = name
    return frozenset(live)


def _sources(run: Run) -> dict[str, tuple[str, ...]]:
    """For operations that read not, or not alone, the result of the one before: those whose results they read.

    The one before is the empty name.
    """
    q, k, v = ends(run)
    act, (gate, up) = f"{NETWORK}.act", (f"{NETWORK}.{which}_proj.weight" for which in ("gate", "up"))
    read = INPUT if _sums(run) else f"{ATTENTION}_norm.weight"
    front = run.order[run.order.index(gate) - 1] if gate in run.order else ""  # a norm, or the end of attention
    return {
        **(_beside(run, gate, up) if SUM in run.order else {up: (front,)}),
        **{f"{ATTENTION}.{which}_proj.weight": (read,) for which in "kv"},
        **{
            next((name for name in run.order if name.startswith(f"{ATTENTION}.{which}_norm.")), ""): (made,)
            for which, made in (("q", f"{ATTENTION}.q_proj.weight"), ("k", f"{ATTENTION}.k_proj.weight"))
        },
        **{f"{ATTENTION}.{which}_clip": (made,) for which, made in zip("qkv", (q, k, v), strict=True)},
        f"{ATTENTION}.q_scale": (q,),
        **dict.fromkeys(TURNS, tuple(f"{ATTENTION}.{which}_proj.weight" for which in "qk")),
        f"{ATTENTION}.scores": (q, k),
        f"{ATTENTION}.values": ("", v),
        f"{ATTENTION}.sdpa": (q, k, v),
        f"{NETWORK}.product": (act, up),
        **latent.sources(frozenset(run.order)),
    }


def _sums(run: Run) -> bool:
    """True of a block whose parts read the stream itself, and whose sums of both are normed."""
    norm, first = f"{ATTENTION}_norm.weight", f"{ATTENTION}.q_proj.weight"
    order = run.order
    return SUM not in order and norm in order and first in order and order.index(norm) > order.index(first)


def _shares(run: Run) -> bool:
    """True of a block whose network stands beside attention and reads the same norm."""
    return SUM in run.order and not any(name.startswith(f"{NETWORK}_norm.") for name in run.order)


def _beside(run: Run, gate: str, up: str) -> dict[str, tuple[str, ...]]:
    """The same of a network that stands beside attention: it reads the block's input, or the norm of that."""
    norms = [name for name in run.order if name.startswith(f"{NETWORK}_norm.")]
    read = norms or [name for name in run.order if name.startswith(f"{ATTENTION}_norm.")]
    behind = [name for name in run.order if name.startswith(f"{ATTENTION}.")]
    first = {norms[0]: (INPUT,)} if norms else {}
    return {**first, gate: (read[-1],), up: (read[-1],), SUM: (behind[-1], "")}


def ends(run: Run) -> tuple[str, str, str]:
    """The last operations of queries, keys and values, before they are turned."""
    if latent.QUERIES in run.order:
        return latent.QUERIES, latent.KEYS, f"{latent.UP[1]}{WEIGHT}"
    q, k, v = (f"{ATTENTION}.{which}_proj.weight" for which in "qkv")
    normed = [f"{ATTENTION}.{which}_norm.weight" for which in "qk"]
    return (normed[0], normed[1], v) if normed[0] in run.order else (q, k, v)


def _other(run: Run, line: Kept, name: str) -> str | None:
    """Of a product of two results, the operation that makes the one beside a line; None of any other operation.

    One of them is kept for the gradient of the other.
    """
    q, k, v = ends(run)
    leaf = line.path.rpartition(".")[2]
    if name == f"{ATTENTION}.scores":
        return k if leaf.startswith("q") else q
    if name == f"{ATTENTION}.values":
        return f"{ATTENTION}.softmax" if leaf.startswith(("v_", "k_b_")) else v
    if name == f"{NETWORK}.product":
        return f"{NETWORK}.act" if leaf == "up_proj" else f"{NETWORK}.up_proj.weight"
    return None


def _front(run: Run, adapters: Adapters, turned: frozenset[str]) -> Run:
    """What stands in front of the blocks: its tables are frozen, and the angles serve whatever block turns by them."""
    live = {AGAIN, CHOICE, *turned}
    if adapters.embedded:
        live.update(name for name in run.order if name not in TABLES)
    return Run(tuple(name for name in run.order if name in live), tuple(_needed(run, frozenset(live), adapters)))


def _frozen(run: Run, adapters: Adapters, start: bool) -> Run:
    """A run whose weights are frozen, with its adapters. `start`: what it reads requires a gradient."""
    live = reached(run, adapters.on, start)
    order: list[str] = []
    kept = list(_needed(run, live, adapters))
    moments = [
        latent.of_latent(of_frozen(each, live), live, adapters.on)
        for each in run.moments
        if each.at in live and not _weighs(each, adapters)
    ]
    if adapters.leaves:
        run = run._replace(ahead=tuple(map(_left, run.ahead)))
    lines = {line.path for line in run.kept}
    ahead = [
        each._replace(held=(*each.held, *beside_local(each, lines)), at=_over(each, adapters))
        for each in run.ahead
        if each.at in live
    ]
    early = run.early
    for name in run.order:
        product = _product(name)
        order += [name] if name in live else []
        if product not in adapters.products:
            continue
        beside, early = around(product, adapters, live, sums=_sums(run), shares=_shares(run)), run.early
        last = not _needed_behind(run, name, live)
        if adapters.packed and last:  # whose weight autograd does not keep
            early = (*run.early, Held(adapters.products[product].reads))
        moments += of_product(product, adapters, beside, live) if beside.there else ()
        if product in adapters.on:
            forwards = next((moment.held for moment in run.ahead if moment.at == name), ())
            if product == f"{NETWORK}.down_proj":  # of whose bias there may be moments instead, the last behind it
                biased = (moment.held for moment in reversed(run.ahead) if moment.at == product + BIAS)
                forwards = forwards or next(biased, ())
            if product + BIAS in run.order:  # what its product made is gone behind its bias
                forwards = tuple(held._replace(times=1) if held == TWO_ROWS else held for held in forwards)
            if adapters.lingers and not forwards and product.startswith(f"{NETWORK}."):
                forwards = (Held("B T D"),)
            own = of_adapter(product, adapters, beside, forwards)
            early = own.early if last else run.early
            order += own.order
            kept += own.kept
            moments += own.moments
            ahead += own.ahead
    lone = tuple(f"blocks.*.{sublayer}." for sublayer in STREAMS if not passes(sublayer, live))
    moments = [moment._replace(alone=True) if moment.at.startswith(lone) else moment for moment in moments]
    there = tuple(each._replace(held=tuple(_there(run, adapters, each))) for each in ahead)
    return Run(tuple(order), tuple(kept), tuple(moments), there, early)


def _left(moment: Moment) -> Moment:
    """A moment of the forward pass: at attention's last product, without what its function had."""
    return moment._replace(held=(Held("B T D"),)) if moment.at == f"{ATTENTION}.o_proj{WEIGHT}" else moment


def _over(moment: Moment, adapters: Adapters) -> str:
    """The operation of a moment of the forward pass: behind a product its adapter's, if it has one."""
    product = _product(moment.at)
    return f"{product}.lora_B{WEIGHT}" if moment.after and product in adapters.on else moment.at


def _there(run: Run, adapters: Adapters, moment: Moment) -> Iterator[Held]:
    """What a moment of the forward pass holds by name, of what the class's functions have."""
    plain, down = f"{NETWORK}.product" not in run.order, moment.at.startswith(f"{NETWORK}.down_proj.")
    absent = NORMS.difference(name.rpartition(".")[0] for name in run.order)
    if adapters.inline and down:
        absent |= NORMS
    if _sums(run):
        yield from _beside_sums(moment, adapters)
        return
    copied = any(line.path == COPY for line in run.kept)
    for held in moment.held:
        if copied and held.path == VALUES:
            held = held._replace(path=COPY)
        if down and held.path == MID and SUM in run.order:
            continue  # beside a network attention's result is what its last product names
        if plain and held.path in GATED:
            yield from (held._replace(path=ACTIVATED),) if down else ()
        elif held.path in absent and SUM in run.order:  # parts that stand side by side may read one norm
            yield held._replace(path=f"{ATTENTION}_norm")
        elif held.path not in absent:
            yield held


def _beside_sums(moment: Moment, adapters: Adapters) -> Iterator[Held]:
    """The same where sums are normed. A part reads the stream or what attention's sum was normed to, each once."""
    named = [held._replace(path=READ_BY_SUMS.get(held.path, held.path)) for held in moment.held if held.path]
    if moment.at.startswith(f"{NETWORK}_norm."):
        named.append(Held("B T D", path=f"{ATTENTION}_norm"))
        named += (Held("B T F", path=ACTIVATED),) if adapters.leaves else ()
    ends = moment.at.endswith(".drop") and not adapters.leaves  # the function's own name is another's by then
    if ends or not moment.at.startswith((f"{NETWORK}.down_proj.", f"{NETWORK}_norm.")):
        named = [held for held in named if held.path != ACTIVATED]
    yield from (held for held in moment.held if not held.path)
    yield from dict.fromkeys(held for held in named if held.path)


def _needed_behind(run: Run, operation: str, live: frozenset[str]) -> bool:
    """True if gradients need a kept tensor before they come to an operation: of a norm, or of a dropout."""
    behind = live.intersection(run.order[run.order.index(operation) + 1 :])
    return any(not behind.isdisjoint(line.by) for line in run.kept)


def _product(operation: str) -> str:
    """The product whose weight an operation is; nothing for any other."""
    return operation.removesuffix(WEIGHT) if operation.endswith(WEIGHT) else ""


def _weighs(moment: Moment, adapters: Adapters) -> bool:
    return _product(moment.at) in adapters.products


def _needed(run: Run, live: frozenset[str], adapters: Adapters) -> Iterator[Kept]:
    """Lines that are needed once weights are frozen: by inputs that require a gradient, by adapters that read them."""
    for line in run.kept:
        needs = tuple(name for each in line.by for name in _needs(run, line, each, live, adapters))
        if needs:
            yield Kept(line.path, line.spec, needs, line.role, line.times)


def _needs(run: Run, line: Kept, name: str, live: frozenset[str], adapters: Adapters) -> Iterator[str]:
    other = _other(run, line, name)
    if other is not None:
        yield from (name,) if other in live or _product(other) in adapters.on else ()
    elif not name.endswith((WEIGHT, BIAS)):
        yield from (name,) if name in live else ()
    elif _product(name) in adapters.on and _product(name) in adapters.products and not adapters.copies:
        yield f"{_product(name)}.lora_A{WEIGHT}"
