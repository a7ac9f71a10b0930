"""What one rank keeps, gathers and updates in a training step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from tfacct.accounts.sharding.mesh import LIVES, VOCABULARY, Mesh
from tfacct.accounts.sharding.shards import HEADS_HERE, Unit, corrects, gathered, stored_elements
from tfacct.accounts.training import ENDS, Apart, Step, Units
from tfacct.ledger import paths
from tfacct.ledger.einsum import Axes, letters, renamed, rounded_up
from tfacct.ledger.groups import Ledger
from tfacct.ledger.kept import AGAIN, Held, Kept, Moment, Run, Section
from tfacct.ledger.lines import ACTIVE
from tfacct.ledger.storage import Width
from tfacct.ledger.torch_parameters import TorchParameter

POSITIONS = Held("T", "index")
"""What a class makes of the number of its tokens."""
OF_LOSS = (
    Held("B T V", "full", 3),
    Held("B T", "index", 3),  # targets without those that are ignored, those of this rank, and rows
    Held("B T", "full", 2),  # what is subtracted, and each token's share of the loss
    Held("B T", "flag"),
)
"""What the gradient of a divided vocabulary's loss holds."""
PART = "Tsp"
"""The tokens of one rank under sequence parallelism."""
OUT = "o_proj.weight"
SUMMED = (OUT, "down_proj.weight")
"""Products whose results are summed over ranks: where these live divided along tokens, their gradients are gathered."""
INPUT = paths.in_every(paths.BLOCKS, "in")
EXPERTS_OF, EXCHANGED = ".experts.", ".experts.ones"
"""Stands in the names of what a part's experts do, and what they do that run on rows of other ranks."""
WHOLE, OWN = Held("B T D"), Held(f"B {PART} D")
"""A tensor of the stream's width, of all tokens and of those of one rank."""


def units(ledger: Ledger, mesh: Mesh, stored: Width, norms_first: bool) -> Units:
    """The weights of a model whose ranks share them unit by unit, as its ledger of all ranks has them. `norms_first`:
    its class makes a block's norms in front of its products."""
    if any(unit.what and paths.parse(unit.what).side for unit in gathered(ledger, mesh)):
        return _of_sides(ledger, mesh, stored)
    kinds = iter([group.numbers[0] for group in ledger.groups if group.numbers])
    found: dict[int, int] = {}
    apart: list[tuple[int, Apart]] = []
    kind, last = ENDS, dict[int, int]()
    for unit in gathered(ledger, mesh):
        elements = unit.elements
        if unit.apart:  # they stand behind the rest of their block
            apart.append((kind, Apart(elements, unit.ranks)))
            continue
        kind = next(kinds) if unit.what else ENDS
        found[kind], last[kind] = elements, _last(unit, norms_first)
    root = found.pop(ENDS, 0)
    whole = stored_elements(ledger, mesh)
    return Units(mesh.sharers, stored, found, root, whole, apart=tuple(apart), last=last, copied=mesh.dp > 1)


def _of_sides(ledger: Ledger, mesh: Mesh, stored: Width) -> Units:
    """The same of an encoder with a decoder, each of blocks of one kind. What the first block of a side has besides, a
    table of distances, is counted among what is in no block."""
    sides: dict[bool, list[Unit]] = {True: [], False: []}
    every = gathered(ledger, mesh)
    for unit in every:
        if unit.what:
            sides[bool(paths.parse(unit.what).side)].append(unit)
    (root,) = (unit for unit in every if not unit.what)
    read, written = (min(unit.elements for unit in sides[side]) for side in (True, False))
    beside = sum(unit.times * (unit.elements - (read if side else written)) for side in sides for unit in sides[side])
    last = {ENDS: _last(root), 0: _last(sides[False][-1])}
    whole = stored_elements(ledger, mesh)
    return Units(
        mesh.sharers,
        stored,
        blocks={0: written},
        root=root.elements + beside,
        whole=whole,
        last=last,
        copied=mesh.dp > 1,
        source={0: read},
    )


def _last(unit: Unit, norms_first: bool = False) -> int:
    """Elements of the last parameter of a unit, on all ranks. Classes make the norms of a block behind its products, or
    the last product has a bias, as long as a norm."""
    trained = [one for one in unit.shards if one.trained]
    norms = [one for one in trained if unit.what and paths.parse(one.path).part.endswith("_norm")]
    products = [one for one in trained if one not in norms]
    experts = [one for one in products if EXPERTS_OF in one.path]  # which such classes make behind a shared network
    behind = (experts or products) if norms_first else norms
    one = (behind or trained or unit.shards)[-1]
    return one.rows * one.columns


def with_wide_buffers(step: Step) -> Step:
    """A step whose weights are stored in fp32 and cast as they are gathered: buffers stay as they are stored, and the
    scale of the embeddings is cast where it is read."""
    run = step.run
    scales = [Kept(f"{one.path}.cast", one.spec, by=(one.path,)) for one in run.buffers if one.path == "embed.scale"]
    front = run.front.run._replace(kept=(*run.front.run.kept, *scales))
    buffers = tuple(replace(one, role="full") if one.role == "work" else one for one in run.buffers)
    return step._replace(run=run._replace(buffers=buffers, front=run.front._replace(run=front)))


def rows(ledger: Ledger, mesh: Mesh) -> tuple[int, int]:
    """Rows of the token table that other ranks of `tp` have, and those of the first one, which has most: torch makes
    the gradient of all of them on each."""
    whole = next((group.axes[VOCABULARY] for group in ledger.groups if VOCABULARY in group.axes), 0)
    own = rounded_up(whole, mesh.tp)
    return whole - own, max(own, 1)


def updated(ledger: Ledger, mesh: Mesh, tensors: Mapping[str, str]) -> list[TorchParameter]:
    """The parameters of the fullest rank, for an optimizer that takes each number by itself. `tensors`: that of the
    class in which each of the ledger's is stored, where it fuses several."""
    found: dict[tuple[int, str], TorchParameter] = {}
    for number, unit in enumerate(gathered(ledger, mesh)):
        for one in unit.shards:
            if corrects(one.path):
                continue  # no optimizer is handed it
            key = number, tensors.get(one.path, one.path)
            beside = found[key].shape[0] if key in found else 0
            found[key] = TorchParameter((beside + one.elements,), unit.times, number if unit.what else None)
    return list(found.values())


def along_tokens(step: Step, mesh: Mesh) -> Step:
    """A step whose stream lives divided along its tokens: what norms and dropouts of it keep is a part, what products
    read is whole."""
    run = step.run
    axes = {PART: step.at["T"] // mesh.tp}

    def section(one: Section) -> Section:
        return one._replace(run=_along(one.run, step.at["B"] != 1), axes={**one.axes, **axes})

    changed = run._replace(
        buffers=(*run.buffers, Kept("positions", "T", by=(), role="index")),  # a part of the tokens tells none
        waiting=tuple(_part(held) for held in run.waiting if held != POSITIONS),
        handed=tuple(handed for handed in run.handed if handed.held != POSITIONS),
        front=section(run.front),
        blocks=tuple(map(section, run.blocks)),
        back=section(run.back),
    )
    return step._replace(run=changed, kept_input=_kept(step.input))


def laid_apart(step: Step, mesh: Mesh) -> Step:
    """A step whose attention gives its result to other ranks, or in another layout: the product behind it reads and
    keeps a copy. Exchanged heads are sent back; torch's ring joins halves of a sequence, and so lays them head by head,
    on all ranks but the last."""

    def both(line: Kept, axes: Axes) -> Iterator[Kept]:
        inside = tuple(name for name in line.by if name.endswith(".sdpa"))
        behind = tuple(name for name in line.by if name.endswith(".o_proj.weight"))
        if not (inside and behind and (mesh.ulysses > 1 or axes["N"] > 1)):  # one head lies token by token too
            yield line
            return
        yield Kept(line.path, line.spec, tuple(name for name in line.by if name not in behind), line.role, line.times)
        yield Kept(f"{line.path}.copy", line.spec, behind, line.role, line.times)

    def section(one: Section) -> Section:
        kept = tuple(each for line in one.run.kept for each in both(line, one.axes))
        return one._replace(run=one.run._replace(kept=kept))

    return step._replace(run=step.run._replace(blocks=tuple(map(section, step.run.blocks))))


def with_heads_gathered(step: Step, mesh: Mesh) -> Step:
    """A step whose norms of queries and keys read all heads, so that attention runs on all of them: the product behind
    it reads and keeps a copy of what the rank's own heads made."""
    own = HEADS_HERE["N"]

    def both(line: Kept) -> Iterator[Kept]:
        behind = tuple(name for name in line.by if name.endswith(OUT))
        others = tuple(name for name in line.by if name not in behind)
        if others or not behind:
            yield replace(line, by=others)
        if behind:
            yield replace(line, path=f"{line.path}.own", spec=renamed(line.spec, {"N": own}), by=behind)

    def section(one: Section) -> Section:
        kept = tuple(each for line in one.run.kept for each in both(line))
        return one._replace(run=one.run._replace(kept=kept), axes={**one.axes, own: one.axes["N"] // mesh.tp})

    return step._replace(run=step.run._replace(blocks=tuple(map(section, step.run.blocks))))


def vocabulary(step: Step) -> Step:
    """A step whose loss is that of a divided vocabulary (torch's loss_parallel): its gradient is a sum, beside both of
    its terms, and both of its operations run as one."""
    back = step.run.back.run
    moments = (*back.moments[:-1], Moment("loss.choose", OF_LOSS))
    return step._replace(run=step.run._replace(back=step.run.back._replace(run=back._replace(moments=moments))))


def _along(run: Run, many: bool) -> Run:
    mixture = _mixture(run)
    if any(at.endswith(EXCHANGED) for at in mixture):  # whole experts on the tokens of a rank
        run, mixture = _own_tokens(run, mixture), ()
    experts = frozenset(at for at in run.order if EXPERTS_OF in at)
    summed = frozenset(at for at in run.order if at.endswith(SUMMED) and at not in {*mixture, *experts}) | {
        *mixture[-1:]
    }

    def moment(one: Moment) -> Moment:
        return one._replace(held=tuple(map(_tokens, one.held))) if _of_stream([one.at]) else one

    def forwards(one: Moment) -> Moment:
        held = tuple(_tokens(held) if _streamed(held) else held for held in moment(one).held)
        inside = (one.at in summed or one.at in mixture) and not (one.after and one.at in summed)
        # What the norm gave is there while the sublayer runs, beside all that was gathered of it.
        return moment(one)._replace(held=(*held, OWN) if inside else held)

    norms = [line.path for line in run.kept if line.path.endswith("norm")]
    # The last operation of each norm: one without a scale has no weight.
    read = [[at for at in run.order if at.rpartition(".")[0] == norm][-1] for norm in norms]
    if experts and not mixture:
        read = [at for at in read if not at.startswith(next(iter(experts)).partition(EXPERTS_OF)[0])]
    return run._replace(
        kept=tuple(map(_kept, run.kept)),
        moments=(
            *(
                Moment(norm, (WHOLE, WHOLE, OWN), done=False) for norm in read
            ),  # the gradient of what is read, scattered
            *((Moment(mixture[-1], (WHOLE, WHOLE), done=False),) if mixture and many else ()),
            *(each for one in run.moments for each in _backwards(moment(one), mixture, summed, many)),
        ),
        ahead=tuple(map(forwards, run.ahead)) + tuple(_forwards(run, read, summed, many)),
        early=(*map(_part, run.early), *((WHOLE,) if summed else ())),
    )


def _mixture(run: Run) -> tuple[str, ...]:
    """Operations of a part with experts, which reads the stream gathered and makes one sum."""
    of = next((at.partition(EXPERTS_OF)[0] for at in run.order if EXPERTS_OF in at), None)
    return tuple(at for at in run.order if of is not None and at.startswith(f"{of}.") and not at.endswith(".drop"))


def _own_tokens(run: Run, mixture: Sequence[str]) -> Run:
    """A run whose experts are on several ranks, each of which routes and sends tokens of its own."""

    def moment(one: Moment) -> Moment:
        return one._replace(held=tuple(map(_tokens, one.held))) if one.at in mixture else one

    def kept(line: Kept) -> Kept:
        own = all(name in mixture for name in line.by) and not _divided(line.spec)
        return replace(line, spec=renamed(line.spec, {"T": PART})) if own else line

    moments, ahead = tuple(map(moment, run.moments)), tuple(map(moment, run.ahead))
    return run._replace(kept=tuple(map(kept, run.kept)), moments=moments, ahead=ahead)


def _backwards(one: Moment, mixture: Sequence[str], summed: frozenset[str], many: bool) -> Iterator[Moment]:
    """A moment of the backward pass; the gradient of what was summed over ranks is gathered, its tokens put together
    from the ranks' sequences where there are many."""
    if one.at in mixture:
        behind = mixture[max(place for place, at in enumerate(mixture) if EXPERTS_OF in at) + 1 :]
        yield one._replace(held=(*one.held, WHOLE)) if one.at in behind else one
        return
    if one.at not in summed:
        yield one
        return
    if many:
        yield one._replace(held=(WHOLE, WHOLE, *one.held[1:]), done=False)
    yield one._replace(held=(*one.held, WHOLE))


def _forwards(run: Run, read: Iterable[str], summed: frozenset[str], many: bool) -> Iterator[Moment]:
    """Norms' results as they are gathered, and what is summed over ranks as it is scattered: both by ranks first."""
    streams = {_sublayer(one.at): held for one in run.ahead for held in one.held if _streamed(held)}
    for at in run.order:
        stream = [_tokens(streams[_sublayer(at)])] if _sublayer(at) in streams else []
        if at in read:
            # Behind the final norm its result is there, and what the blocks' caller held is not.
            beside = [OWN, *stream] if paths.repeated(at) else []
            yield Moment(at, (*((WHOLE,) * (1 + many)), *beside), after=True)
        elif at in summed:
            # Beside both layouts and the sum: the norm's own result, what the block read, what the sum is added to.
            others = {held.path: held for held in (OWN._replace(path=INPUT), *stream)}
            yield Moment(at, (WHOLE, WHOLE, OWN, OWN, *others.values(), *_stays(run, at)), after=True)


def _stays(run: Run, at: str) -> Iterator[Held]:
    """What the function of attention has until it ends, besides the stream."""
    for one in run.ahead if at.endswith(OUT) else ():
        if one.at == at and not one.after:
            yield from (held for held in one.held if "D" not in letters(held.spec))


def _sublayer(at: str) -> str:
    """The sublayer of an operation, its norm among them."""
    return at.removeprefix(f"{paths.in_every(paths.BLOCKS, '')}.").partition(".")[0].removesuffix("_norm")


def _kept(line: Kept) -> Kept:
    if not _of_stream(line.by) or _divided(line.spec):
        return line
    return Kept(line.path, renamed(line.spec, {"T": PART}), line.by, line.role, line.times)


def _part(held: Held) -> Held:
    # Positions are whole, and what a token's experts make.
    return _tokens(held) if "D" in letters(held.spec) and ACTIVE not in letters(held.spec) else held


def _streamed(held: Held) -> bool:
    """True of the stream as others hold it, and of nothing that a token's experts read."""
    return bool(held.path) and ACTIVE not in letters(held.spec)


def _tokens(held: Held) -> Held:
    return held if _divided(held.spec) else held._replace(spec=renamed(held.spec, {"T": PART}))


def _divided(spec: str) -> bool:
    return any(letter in LIVES for letter in letters(spec))


def _of_stream(operations: Iterable[str]) -> bool:
    """True if all of these work on the stream: norms, dropouts of results, blocks that run again."""
    names = [name.removeprefix(f"{paths.in_every(paths.BLOCKS, '')}.").split(".") for name in operations]
    return all(name[0].endswith("norm") or name[0] == AGAIN or name[1:] == ["drop"] for name in names)
