"""The transformers classes under autocast whose blocks are written out, operation by operation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

from tfacct.architecture.blocks import Block
from tfacct.architecture.parts import Attention, Experts, FeedForward, LatentAttention
from tfacct.architecture.transformer import Transformer
from tfacct.architecture.words import in_words
from tfacct.base.errors import ConfigError
from tfacct.base.record import record
from tfacct.ledger.einsum import Size
from tfacct.ledger.kept import Handed, Held, Kept, Moment, Pass, Run, Section, joined
from tfacct.profiles import written_decoders as decoders
from tfacct.profiles import written_latent as latent
from tfacct.profiles import written_operations as ops
from tfacct.profiles.adapters import ended
from tfacct.profiles.adapters_parts import RANK, Adapters
from tfacct.profiles.autocast_parts import STREAM_WIDE, as_full, full
from tfacct.profiles.base import Habits
from tfacct.profiles.transformers import Transformers
from tfacct.profiles.transformers_masks import ALIGNED
from tfacct.profiles.transformers_parts import STREAM
from tfacct.profiles.written import INPUT, Trace, Value
from tfacct.profiles.written_networks import SMOOTH
from tfacct.profiles.written_operations import Weights
from tfacct.profiles.written_parts import How, norm
from tfacct.profiles.written_runs import cached, let_go, run_of

KNOWN = frozenset(
    """
    always_angles angles_apart attention casts_scales clamped drops_inside embedding full_mask fused half_angles
    hands_mask inline_network lingers narrow_shares narrow_softmax norms_around norms_behind norms_last norms_narrow
    own_positions repeats_angles residual scales_results scored shared_out stores_masks undropped_stay wide_angles
    wide_norms wide_scores window_mask
    """.split()
)
"""Habits of classes that are written out here."""


def ends(loss: Callable[[Trace], Value], fullest: str) -> Run:
    """What stands behind the blocks, up to its loss, written out. `fullest`: the loss's operation that holds most."""
    t = Trace(frozenset(), reads=STREAM)
    t.cache = []
    node = loss(t).node
    t.cache = None
    t.backward_of_loss(node)
    run = run_of(t, Trace(frozenset()), STREAM)
    heads = [moment for moment in run.moments if not moment.at.startswith("loss.")]
    return run._replace(moments=(*heads, next(moment for moment in run.moments if moment.at == fullest)))


def ones_of(part: Attention | LatentAttention, batch: Size) -> frozenset[str]:
    """Axes of size 1."""
    sizes = {"B": batch, "N": part.heads, **({"K": part.kv_heads} if isinstance(part, Attention) else {})}
    return frozenset(axis for axis, size in sizes.items() if size == 1)


@record
class Written(Transformers):
    """A class under autocast in 16 bits over weights in fp32, its blocks written out: what is around them runs as in
    fp32, but for the head. `adapters`: they alone are trained. `selective`: attention runs again; `again`: blocks
    do."""

    adapters: Adapters | None = None
    selective: bool = False
    again: bool = False

    @property
    def name(self) -> str:
        """Name of the profile."""
        return f"transformers with {self.attention} under autocast"

    def front(self, shape: Transformer) -> Run:
        """As in fp32."""
        return as_full(Transformers.front(self, shape))

    def buffers(self, shape: Transformer) -> tuple[Kept, ...]:
        """As in fp32."""
        return as_full(Run(kept=Transformers.buffers(self, shape))).kept

    def handed(self, shape: Transformer) -> tuple[Handed, ...]:
        """As in fp32."""
        return tuple(each._replace(held=full([each.held])[0]) for each in Transformers.handed(self, shape))

    def block(self, block: Block, *, flows: bool = True, leaf: bool = False) -> Run:
        """The run of a block. `flows`: what it reads requires a gradient; `leaf`: and was made by no operation."""
        key = repr(block), self._how(block), self._ones(block), flows, leaf, self.again
        return cached(key, lambda: self._run(block, flows, leaf))

    def waiting(self, shape: Transformer) -> tuple[Held, ...]:
        """As in fp32, and the embeddings, where block 0 keeps no more than casts of them."""
        casts = self.habits.norms_behind and not (self.again or self.selective)
        return (*full(Transformers.waiting(self, shape)), *((STREAM_WIDE,) if casts else ()))

    def _run(self, block: Block, flows: bool, leaf: bool) -> Run:
        kept, bare = (Trace(self._ones(block), keeps=keeps, flows=flows, leaf=leaf) for keeps in (True, False))
        self._block(bare, block)
        node = self._block(kept, block).node
        kept.narrow = None
        kept.backward(node)
        run = run_of(kept, bare)
        return let_go(run) if self.again and self.habits.norms_behind else run

    @property
    def weights(self) -> Weights:
        """What of the model is trained."""
        own = self.adapters
        return Weights() if own is None else Weights(own.on, own.rank, own.drops)

    def _block(self, t: Trace, block: Block) -> Value:
        first, second = block.sublayers
        attn, mlp = first.part, second.part
        fronts, behind = (first.norm, second.norm), (first.post_norm, second.post_norm)
        known = isinstance(mlp, Experts) or type(mlp) is FeedForward
        if not isinstance(attn, (Attention, LatentAttention)) or not known or block.order != "pre":
            raise ConfigError(f"{self.name}: no rule for these blocks")
        assert isinstance(mlp, (Experts, FeedForward))
        self._check(attn, mlp)
        how = self._how(block)
        if isinstance(mlp, Experts) or isinstance(attn, LatentAttention):
            if first.norm is None or second.norm is None or behind != (None, None):
                raise ConfigError(f"{self.name}: no rule for these blocks")
            return decoders.sequential(t, how, (first.norm, second.norm), attn, mlp)
        if self.habits.lingers and first.norm is not None and second.norm is not None and behind == (None, None):
            return decoders.lingering(t, how, (first.norm, second.norm), attn, mlp)
        if fronts == (None, None) and behind[0] is not None and behind[1] is not None:
            return decoders.normed_behind(t, how, attn, behind[0], mlp, behind[1])
        around = (behind[0] is None) == (behind[1] is None)
        if first.norm is None or second.norm is None or not around:
            raise ConfigError(f"{self.name}: no rule for these blocks")
        return decoders.sequential(t, how, (first.norm, second.norm), attn, mlp, behind)

    def _check(self, attn: Attention | LatentAttention, mlp: FeedForward | Experts) -> None:
        """Raise ConfigError for what is not written out."""
        habits = {field.name for field in fields(Habits) if getattr(self.habits, field.name)}
        if isinstance(attn, LatentAttention):
            known = latent.known(attn)
        else:
            self._check_attention(attn)
            others = attn.rope_dim, attn.value_dim, attn.adapter, getattr(mlp, "norm", None)
            how = attn.qk_norm
            known = (
                all(each is None for each in others)
                and (attn.rotary is None or (attn.rotary.pairs != "halves") == self.habits.repeats_angles)
                and (how is None or how.kind == "rms")
            )
        if not known or not habits <= KNOWN or (mlp.gated and mlp.activation not in SMOOTH):
            raise ConfigError(f"{self.name}: no rule for all that this class does, whose blocks are written out")

    def _how(self, block: Block) -> How:
        attn = block.sublayers[0].part
        if not isinstance(attn, (Attention, LatentAttention)):
            raise ConfigError(f"{self.name}: no rule for {in_words(attn)}")
        return How(
            self.attention,
            self.habits,
            self.weights,
            self._turn(attn) if attn.rotary is not None else "",
            isinstance(attn, Attention) and self.reaches(attn.window),
            not self.tokens % ALIGNED,
            self.selective,
        )

    def _ones(self, block: Block) -> frozenset[str]:
        attn = block.sublayers[0].part
        if not isinstance(attn, (Attention, LatentAttention)):
            raise ConfigError(f"{self.name}: no rule for {in_words(attn)}")
        mlp = block.sublayers[-1].part
        one = frozenset("A") if isinstance(mlp, Experts) and mlp.active == 1 else frozenset[str]()
        return ones_of(attn, self.batch) | one

    def back(self, shape: Transformer) -> Run:
        """The final norm, the head in 16 bits, frozen or not, and the loss in fp32. The cast of a head's bias stays, if
        it is trained."""
        final, how = shape.final_norm, self._how(shape.stacks[0].block)
        biased = shape.head is not None and shape.head.bias

        def make() -> Run:
            trace = Trace(frozenset(), reads=STREAM)
            normed = trace.start if final is None else norm(trace, how, trace.start, "final_norm", final)
            node = ops.linear(trace, normed, "lm_head", ("V",), trained=how.weights.trained, bias=biased).node
            del normed
            trace.backward(node, ("B", "T", "V"), "work")
            return run_of(trace, Trace(frozenset()), STREAM)

        run = cached(("end", repr(final), how, biased), make)
        ahead = tuple(moment for moment in run.ahead if moment.at.startswith("final_norm"))
        bias = (Held("V"),) if biased and how.weights.trained else ()
        loss = self._loss_wide(shape)
        behind = tuple(moment._replace(held=(*moment.held, *bias)) for moment in loss.ahead)
        return joined(run._replace(ahead=ahead, bare=()), loss._replace(ahead=behind))

    def _loss_wide(self, shape: Transformer) -> Run:
        """The loss in fp32 of logits in 16 bits."""
        longer = (Held("B T", "index"), Held("B", "index")) if self.batch > 1 else ()  # labels, before they are shifted
        made = Held("B T V"), Held("B T V", "full"), STREAM_WIDE, *longer, Held("", "full")
        loss = self._loss_of(shape)
        return loss._replace(ahead=(Moment("loss.choose", made),))


def reading_once(run: Run) -> Run:
    """The run of a block that does not keep what it reads, which is there in its forward pass alone: in block 0's too,
    where it is none of what waits."""
    kept = {line.path for line in run.kept}

    def there(one: Held) -> Held:
        return one._replace(path="") if one.path == INPUT and INPUT not in kept else one

    return run._replace(ahead=tuple(m._replace(held=tuple(map(there, m.held))) for m in run.ahead))


def lent(profile: Written, whole: Pass, shape: Transformer) -> Pass:
    """The pass of a frozen model with adapters. Block 0 stands apart."""
    adapters = profile.adapters
    assert adapters is not None
    blocks: list[Section] = []
    leaf = adapters.embedded and profile.habits.norms_behind  # which no norm reads first
    for section, stack in zip(whole.blocks, shape.stacks, strict=True):
        axes, first = {**section.axes, RANK: adapters.rank}, 1 if section.numbers[0] == 0 else 0
        for numbers, flows, once in (
            (section.numbers[:first], adapters.embedded, leaf),
            (section.numbers[first:], True, False),
        ):
            if numbers:
                run = profile.block(stack.block, flows=flows, leaf=once)
                blocks.append(Section(run, axes, len(numbers), numbers))
    found = ended(whole, adapters, tuple(blocks), profile.back(shape))
    # No block keeps the embeddings, which stay; what a dropout leaves of them does not.
    embedded = () if adapters.embedded or STREAM_WIDE in found.waiting else (STREAM_WIDE,)
    if embedded and shape.positions is not None:  # of which it reads a sum, that goes with it
        embedded = ()
        alone = blocks[0]._replace(run=reading_once(blocks[0].run))
        found = found._replace(blocks=(alone, *blocks[1:]))
    handed = tuple(each._replace(held=full((each.held,))[0]) for each in found.handed)
    return found._replace(waiting=(*found.waiting, *embedded), handed=handed)
