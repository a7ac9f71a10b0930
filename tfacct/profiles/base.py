"""A training pass from a profile's rules: the runs in front of the blocks, of each kind of block, and behind them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from tfacct.architecture.blocks import Block, Stack, Sublayer
from tfacct.architecture.parts import Norm, Part
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.base.record import record
from tfacct.ledger import paths
from tfacct.ledger.einsum import Axes, Size
from tfacct.ledger.kept import Collected, Handed, Held, Kept, Moment, Pass, Role, Run, Section, joined


@record
class Habits:
    """What a class does beside its parts.

    `embedding`, `residual`, `network` and `attention`: it drops numbers there, of the network's result alone.
    `narrow_softmax`: the softmax of eager attention runs in the pass's dtype, not in fp32. `fused`: queries, keys and
    values come from one product. `lingers`: attention's result stays until its block ends, if the network follows it.
    `hands_mask`: blocks that run again keep eager attention's mask. `shared_out`: the shares of a token's experts are
    made to sum to 1. `narrow_shares`: they are cast to the pass's dtype. `wide_norms`: the weights of norms scale in
    fp32, before the cast. `wide_angles`: the angles are in fp32. `norms_behind`: parts read the stream itself, and
    their results are normed. `own_positions`: each sequence's positions are worked out from a mask of its own.
    `full_mask`, `window_mask`: the mask of full attention, or of windows, is made even where no block needs it.
    `norms_around`: parts have norms in front and behind. `angles_apart`: windowed blocks turn by angles of their own.
    `norms_last`: queries and keys are normed once all products are there. `rejoins`: what is turned of a head is joined
    with the rest of it, which lays queries and keys out head by head. `fused_gate`: gate and up come from one product.
    `sliced`: queries, keys and values are slices of theirs. `drops_inside`: attention and network drop numbers of their
    results themselves. `undropped_stay`: embeddings stay beside what a dropout leaves. `scales_results`: a constant
    multiplies parts' results before they are added. `always_angles`: angles are made even where no block turns by them.
    `half_angles`: both halves of a head share theirs. `clamped`: experts' gate and up are bounded. `scored`: experts
    are scored by a sigmoid in fp32. `repeats_angles`: each block repeats the angles for neighbours that turn together.
    `joins_inside`: halves of heads go with the function that joins them. `casts_scales`: norms cast their weights to
    fp32. `wide_corrections`: what corrects experts' scores is stored in fp32. `starts_biased`: scores are added to
    their biases by distance as their product is made. `norms_sums`: parts read the stream itself, and the sum of both
    is normed. `stores_mask`: a mask of all positions is a buffer. `classifier`: it drops numbers in front of classes;
    `drops_first`: in front of the pooler's product too. `norms_narrow`: norms of results scale them in the pass's
    dtype. `turns_wide`: queries and keys turn in fp32. `written_gelu`: the gradient of the network's GELU is written
    out in Python. `inline_network`: products of networks are the block's own. `chosen_first`: experts' shares are made
    of the chosen ones' scores alone. `masked`: sdpa is handed a mask always. `indexed`: keys and values are read off
    their product by an index, which is kept; `copies_first`: and are copied for each query head right then.
    `sums_first`: results of parts side by side are summed in place, and numbers of their sum are dropped.
    `biases_apart`: biases are added to products behind them. `written_norms`: norms with a scale alone are no operation
    of torch. `turns_copies`: queries and keys are cast to fp32 before they turn, and back behind it. `narrow_router`:
    scores are made in the pass's dtype before they are in fp32. `wide_scores`: queries and keys are cast to fp32 for
    their product. `stores_masks`: a mask of all positions is a buffer of each block, and one more is made for all.
    `drops_product`: it drops numbers of what a gated network's last product reads. `stores_positions`: numbers of all
    positions, and their segments, are buffers, and blocks are handed those of a batch. `ones_stay`: what a decoder's
    mask is made of stays beside it, not the numbers of the positions. `exchanged`: tokens are sent to experts of other
    ranks. `adds_distances`: biases of all positions are added to scores, in fp32, and a mask replaces scores.
    `own_sines`: blocks read sines off a buffer of their own. `mixed`: experts are picked one after the other by a
    mixer. `norms_apart`: sums are normed in the block itself, behind a part that has let go of its tensors.
    `wide_sum`: results of experts and of the network beside them are summed in fp32. `whole_network`: no numbers of
    the network's result are dropped where those of attention's are. `one_position`: an encoder's positions are those
    of one sequence, as a decoder's are. `shared_last`: a network without a gate runs behind the experts beside it.
    `scored_narrow`: experts are scored by a sigmoid in the pass's dtype; `corrected`: numbers in fp32 correct scores
    to choose by. `fused_queries`: queries and gates of their results come from one product. `sequence_angles`: angles
    are those of each sequence. `grouped_products`: DeltaNet's products lie key head by key head. `complex_angles`:
    queries and keys turn as complex numbers in fp32, and every token goes through all experts.
    `sequence_masks`: sdpa's masks of windows are those of each sequence. `scored_first`: the router scores experts by
    a sigmoid in fp32 of narrow products, then the shared network runs, then they do. `scale_of_class`: what scales the
    embeddings is a number of the class, and no buffer. `turns_counted`: what is there while queries turn backwards is
    counted too, which of very few tokens can be a block's fullest (no rule of a mesh knows of it).
    """

    embedding: bool = False
    residual: bool = False
    network: bool = False
    attention: bool = False
    narrow_softmax: bool = False
    fused: bool = False
    lingers: bool = False
    hands_mask: bool = False
    shared_out: bool = False
    narrow_shares: bool = False
    wide_norms: bool = False
    wide_angles: bool = False
    norms_behind: bool = False
    norms_around: bool = False
    own_positions: bool = False
    full_mask: bool = False
    window_mask: bool = False
    angles_apart: bool = False
    norms_last: bool = False
    rejoins: bool = False
    fused_gate: bool = False
    drops_inside: bool = False
    undropped_stay: bool = False
    sliced: bool = False
    scales_results: bool = False
    always_angles: bool = False
    half_angles: bool = False
    clamped: bool = False
    scored: bool = False
    repeats_angles: bool = False
    casts_scales: bool = False
    joins_inside: bool = False
    wide_corrections: bool = False
    starts_biased: bool = False
    written_gelu: bool = False
    norms_sums: bool = False
    stores_mask: bool = False
    classifier: bool = False
    drops_first: bool = False
    inline_network: bool = False
    turns_wide: bool = False
    norms_narrow: bool = False
    chosen_first: bool = False
    masked: bool = False
    indexed: bool = False
    copies_first: bool = False
    sums_first: bool = False
    biases_apart: bool = False
    written_norms: bool = False
    turns_copies: bool = False
    narrow_router: bool = False
    wide_scores: bool = False
    stores_masks: bool = False
    drops_product: bool = False
    stores_positions: bool = False
    ones_stay: bool = False
    exchanged: bool = False
    adds_distances: bool = False
    own_sines: bool = False
    mixed: bool = False
    norms_apart: bool = False
    wide_sum: bool = False
    whole_network: bool = False
    one_position: bool = False
    shared_last: bool = False
    scored_narrow: bool = False
    corrected: bool = False
    fused_queries: bool = False
    sequence_angles: bool = False
    grouped_products: bool = False
    complex_angles: bool = False
    sequence_masks: bool = False
    scored_first: bool = False
    scale_of_class: bool = False
    turns_counted: bool = False

    @property
    def apart(self) -> bool:
        """True if the gradient of a part's result is not the stream's: behind a dropout, norm or scale."""
        return self.residual or self.norms_behind or self.norms_around or self.scales_results


class Profile(Protocol):
    """A way to run a model."""

    @property
    def name(self) -> str:
        """Name, for a reader."""

    @property
    def lingers(self) -> bool:
        """True if the result of a block's first part stays until the block ends, if its parts follow each other."""

    @property
    def norms_first(self) -> bool:
        """True if the norms of parts side by side run in front of them all."""

    @property
    def encodes(self) -> bool:
        """True if it has rules for segments, a head with a transform, and norms of sums."""

    @property
    def loss(self) -> Role:
        """Role of the loss."""

    def logits(self, shape: Transformer) -> Held:
        """What the loss is taken of."""

    def block(self, block: Block) -> Run | None:
        """What a block keeps, where it is written out; None where it is made of its parts."""

    def part(self, at: str, reads: str, part: Part, *, waits: bool = False) -> Run:
        """What a part of a block keeps. `waits`: a gradient of what it reads is there from the part behind it. Raises
        ConfigError for one without a rule."""

    def normed(self, at: str, reads: str, part: Norm) -> Run:
        """What the norm of a part's result keeps."""

    def summed(self, at: str, reads: str, part: Norm) -> Run:
        """What the norm of a part's result and what it read keeps."""

    def dropped(self, at: str) -> Run:
        """What dropping numbers of a part's result keeps."""

    def added(self, at: str, parts: int) -> Run:
        """What the sum of the results of parts side by side keeps."""

    def front(self, shape: Transformer) -> Run:
        """What stands in front of the blocks."""

    def back(self, shape: Transformer) -> Run:
        """What stands behind them, the loss included."""

    def buffers(self, shape: Transformer) -> tuple[Kept, ...]:
        """Tensors of the model that are no parameters and stay."""

    def collected(self, shape: Transformer) -> tuple[Collected, ...]:
        """Gradients to which every block adds."""

    def views(self, shape: Transformer) -> frozenset[str]:
        """Operations in front of the blocks whose gradients are views of the stream's."""

    @property
    def of_pair(self) -> bool:
        """True if it runs one side of two."""

    @property
    def biases(self) -> bool:
        """True if it has a rule for learned scores of distances."""

    def waiting(self, shape: Transformer) -> tuple[Held, ...]:
        """What is held while the blocks run forwards."""

    def handed(self, shape: Transformer) -> tuple[Handed, ...]:
        """What blocks are handed beside the stream."""


def passed(shape: Transformer, profile: Profile, kernel: Mapping[str, Size]) -> Pass:
    """The pass of a model. `kernel`: letters that the profile's kernels derive from the step's."""
    headless = shape.head is None and not (profile.encodes and shape.classes is not None) and not profile.of_pair
    if shape.encoder is not None or shape.mtp is not None or headless:
        raise ConfigError(f"{profile.name}: only decoders with a language model's head are trained here")
    if unruled := next(
        _unruled_ends(
            shape,
            encodes=profile.encodes,
            transforms=profile.encodes and not profile.of_pair,
            biases=profile.biases,
            of_pair=profile.of_pair,
        ),
        None,
    ):
        raise ConfigError(f"{profile.name}: no rule for {unruled}")
    everywhere = {axis: size for part in shape.parts() for axis, size in part.axes().items()}
    everywhere.update(kernel)
    blocks = tuple(
        _section(stack, numbers, profile, {**everywhere, **_axes(stack.block)})
        for stack, numbers in zip(shape.stacks, shape.numbers(), strict=True)
    )
    front, back = profile.front(shape), profile.back(shape)
    stay = profile.buffers(shape), profile.waiting(shape), profile.handed(shape)
    return Pass(
        Section(front, everywhere),
        blocks,
        Section(back, everywhere),
        *stay,
        loss=profile.loss,
        logits=profile.logits(shape),
        collected=profile.collected(shape),
        views=profile.views(shape),
    )


def _unruled_ends(shape: Transformer, *, encodes: bool, transforms: bool, biases: bool, of_pair: bool) -> Iterator[str]:
    """Ends of a model for which no profile has a rule, or none but those of encoders."""
    embed, head, positions = shape.embed, shape.head, shape.positions
    if embed.width is not None and not transforms:
        yield "a token table narrower than the model"
    if positions is not None and not (positions.stored and positions.trained) and not of_pair:
        yield "positions that are not learned"
    if (shape.segments is not None and not encodes) or (shape.bias is not None and not biases):
        yield "segments or biases of scores"
    if head is not None and ((head.transform is not None) != transforms or (head.scale is not None and not of_pair)):
        yield "a head without a transform" if transforms else "a head with a transform or a scale"


def _axes(block: Block) -> dict[str, Size]:
    return {axis: size for _, part in block.parts() for axis, size in part.axes().items()}


def _section(stack: Stack, numbers: Sequence[int], profile: Profile, axes: Axes) -> Section:
    """The blocks of a stack."""
    run = profile.block(stack.block) or _block(stack.block, profile)
    if not stack.once or not numbers[1:]:
        return Section(run, axes, stack.count, numbers)
    from tfacct.profiles.once import added

    return Section(run, axes, stack.count, numbers, adds=added(run, stack.block))


def _block(block: Block, profile: Profile) -> Run:
    """A block whose sublayers run one after the other, each behind its norm, or side by side."""
    if block.order == "parallel":
        return _side_by_side(block, profile)
    if block.order == "post" and profile.encodes:
        return _sums_normed(block, profile)
    if block.order != "pre":
        raise ConfigError(f"{profile.name}: no rule for {block.order} blocks")
    if profile.norms_first:
        raise ConfigError(f"{profile.name}: no rule for parts one after the other in this class")
    between = (f"mid{number or ''}" for number in range(len(block.sublayers) - 1))
    reads = (paths.in_every(paths.BLOCKS, name) for name in ("in", *between))
    sublayers = zip(block.sublayers, reads, strict=True)
    first, *others = (_sublayer(sublayer, read, profile) for sublayer, read in sublayers)
    return joined(first, *map(_beside_first, others) if profile.lingers else others)


def _beside_first(run: Run) -> Run:
    """A run whose forward pass has the result of the block's first part beside it."""
    return run._replace(ahead=tuple(m._replace(held=(*m.held, Held("B T D"))) for m in run.ahead))


def _side_by_side(block: Block, profile: Profile) -> Run:
    """A block whose sublayers read its input, each behind a norm of its own or all behind one; results are summed."""
    reads, norm = paths.in_every(paths.BLOCKS, "in"), ""
    norms: list[Run] = []
    runs: list[Run] = []
    for number, sublayer in enumerate(block.sublayers):
        if sublayer.post_norm is not None or not sublayer.called:
            raise ConfigError(f"{profile.name}: no rule for a sublayer side by side with a norm behind it")
        own, behind = paths.in_every(paths.BLOCKS, sublayer.name), block.sublayers[number + 1 :]
        front = Run()
        if sublayer.norm is not None:
            norm = f"{own}_norm"
            front = profile.part(norm, reads, sublayer.norm)
        shared = bool(behind) and behind[0].norm is None
        run = joined(profile.part(own, norm, sublayer.part, waits=shared), profile.dropped(own))
        waits = bool(behind) and not shared
        if waits and profile.norms_first:  # what the next part's norm gave waits with its gradient
            run = _beside(run)
        elif waits:  # whose norm's gradient is in the stream's, while this part still needs that without
            run = _longer(run)
        results = Held("B T D", times=number), Held("B T D", path=reads)
        run = joined(run) if profile.norms_first else joined(front, run)
        if profile.norms_first:
            norms.append(_beside(front) if norms else front)
        runs.append(run._replace(ahead=tuple(m._replace(held=(*m.held, *results)) for m in run.ahead)))
    total = profile.added(paths.in_every(paths.BLOCKS, "sum"), len(runs))
    ahead = tuple(m._replace(held=(*m.held, Held("B T D", path=reads))) for m in total.ahead)
    return joined(*norms, *runs, total._replace(ahead=ahead))


def _sums_normed(block: Block, profile: Profile) -> Run:
    """A block whose parts read the stream itself; the sum of each one's result and what it read is normed."""
    runs: list[Run] = []
    reads = paths.in_every(paths.BLOCKS, "in")
    for sublayer in block.sublayers:
        own = paths.in_every(paths.BLOCKS, sublayer.name)
        if sublayer.norm is None or sublayer.post_norm is not None or not sublayer.called:
            raise ConfigError(f"{profile.name}: no rule for a sum without a norm")
        part = joined(profile.part(own, reads, sublayer.part), profile.dropped(own))
        stream = Held("B T D", path=reads)
        part = part._replace(ahead=tuple(m._replace(held=(*m.held, stream)) for m in part.ahead))
        both = joined(part, profile.summed(f"{own}_norm", f"{own}.sum", sublayer.norm))
        runs.append(_beside_first(both) if runs and profile.lingers else both)
        reads = f"{own}_norm"
    return joined(*runs)


def _beside(run: Run) -> Run:
    """A run beside which a tensor of the stream's width waits, forwards and backwards."""

    def waited(moments: tuple[Moment, ...]) -> tuple[Moment, ...]:
        return tuple(moment._replace(held=(*moment.held, Held("B T D"))) for moment in moments)

    return run._replace(moments=waited(run.moments), ahead=waited(run.ahead))


def _longer(run: Run) -> Run:
    """A run whose first moment of the backward pass holds a tensor of the stream's width more."""
    first = max(run.moments, key=lambda moment: run.order.index(moment.at)).at
    more = Held("B T D")
    moments = (m._replace(held=(*m.held, more)) if m.at == first else m for m in run.moments)
    return run._replace(moments=tuple(moments))


def _sublayer(sublayer: Sublayer, reads: str, profile: Profile) -> Run:
    front, behind = sublayer.norm, sublayer.post_norm
    own = paths.in_every(paths.BLOCKS, sublayer.name)
    first = reads == paths.in_every(paths.BLOCKS, "in") and profile.encodes  # may read the embeddings' norm itself
    if not sublayer.called or (front is None and behind is None and not first):
        raise ConfigError(f"{profile.name}: no rule for a sublayer without a norm, in front or behind")
    norm = f"{own}_norm"
    before = Run() if front is None else profile.part(norm, reads, front)
    part = profile.part(own, reads if front is None else norm, sublayer.part)
    after = Run() if behind is None else profile.normed(f"{own}_post_norm", f"{own}.out", behind)
    run = joined(before, part, after, profile.dropped(own))
    stream = Held("B T D", path=reads)  # what the sublayer's result will be added to
    return run._replace(ahead=tuple(moment._replace(held=(*moment.held, stream)) for moment in run.ahead))
