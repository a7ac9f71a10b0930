"""Encoders of images under autocast, written out: patches by a convolution, ViT's blocks, classes and the loss."""

from __future__ import annotations

from tfacct.architecture.blocks import Block
from tfacct.architecture.parts import Attention, FeedForward, Norm
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.base.record import record
from tfacct.ledger.kept import Cast, Held, Kept, Moment, Role, Run
from tfacct.ledger.workload import PATCHES
from tfacct.profiles import written_decoders as decoders
from tfacct.profiles import written_operations as ops
from tfacct.profiles.autocast_parts import as_full
from tfacct.profiles.transformers_encoders import CHOICE
from tfacct.profiles.transformers_images import PIXELS, PRODUCT, READ, Images
from tfacct.profiles.written import Trace, Value
from tfacct.profiles.written_autocast import ends, ones_of
from tfacct.profiles.written_networks import network
from tfacct.profiles.written_operations import Weights
from tfacct.profiles.written_parts import ATTN, NETWORK, How, dropped, norm
from tfacct.profiles.written_runs import cached, run_of


def block_of_vit(t: Trace, how: How, norms: tuple[Norm, Norm], attn: Attention, mlp: FeedForward) -> Value:
    """ViTLayer: one variable is what a norm gave, then what the part behind it gives."""
    x = t.start
    h = norm(t, how, x, f"{ATTN}_norm", norms[0])
    h, _weights = decoders.attended(t, how, h, attn)
    h = dropped(t, how, h, ATTN)
    x = ops.total(t, h, x, "blocks.*.mid")
    h = norm(t, how, x, f"{NETWORK}_norm", norms[1])
    h = network(t, how, h, mlp)
    h = dropped(t, how, h, NETWORK)
    return ops.total(t, h, x)


BIAS, MATMUL, WIDENED = "embed.project.bias", "embed.project.matmul", "embed.widened"
KERNEL, ROWS = "D Cc Px", f"B {PATCHES} D"


@record
class WrittenImages(Images):
    """A transformers encoder of images under autocast. Its loss is of scores in 16 bits, in fp32 at its end."""

    @property
    def name(self) -> str:
        """Name of the profile."""
        return f"transformers with {self.attention} under autocast"

    @property
    def loss(self) -> Role:
        """Role of the loss."""
        return "full"

    def block(self, block: Block) -> Run:
        """The run of a block."""
        first, second = block.sublayers
        attn, mlp = first.part, second.part
        if not isinstance(attn, Attention) or type(mlp) is not FeedForward or mlp.gated or block.order != "pre":
            raise ConfigError(f"{self.name}: no rule for these blocks")
        assert first.norm is not None
        assert second.norm is not None
        norms = first.norm, second.norm
        how, ones = How(self.attention, self.habits, Weights(), seen=True), ones_of(attn, self.batch)

        def make() -> Run:
            kept, bare = (Trace(ones, keeps=keeps) for keeps in (True, False))
            block_of_vit(bare, how, norms, attn, mlp)
            kept.backward(block_of_vit(kept, how, norms, attn, mlp).node)
            return run_of(kept, bare)

        return cached(("image", repr(block), how, ones), make)

    def front(self, shape: Transformer) -> Run:
        """The convolution reads casts of the pixels and of its weights. What it gives is cast back where learned tokens
        are put in front."""
        run = as_full(Images.front(self, shape))
        biased = getattr(shape.embed, "bias", False)
        _, *labels = run.kept
        kept = (
            Kept("pixels", PIXELS, by=(MATMUL,)),
            Kept("embed.project.weight_cast", KERNEL, by=(MATMUL,)),
            *labels,
        )
        narrow, kernel = Held(ROWS), Held(KERNEL)
        bias = (Held("D"),) if biased else ()
        place = run.order.index(PRODUCT)
        learned = [name for name in run.order[place + 1 :] if name.startswith("embed.")]
        others = run.order[place + 1 + len(learned) :]
        order = (*run.order[:place], *((BIAS,) if biased else ()), PRODUCT, MATMUL, *learned, WIDENED, *others)
        moments = (
            Moment(PRODUCT, (kernel, *bias), alone=True),
            Moment(MATMUL, (narrow, kernel, *bias), alone=True),
            *(Moment(name, (narrow,)) for name in (*learned, WIDENED)),
            *(moment for moment in run.moments if moment.at in others),
        )
        casts = (*((Cast(BIAS, Held("D")),) if biased else ()), Cast(PRODUCT, kernel, "embed.project.weight_cast"))
        return Run(order, kept, moments, run.ahead, casts=casts)

    def back(self, shape: Transformer) -> Run:
        """The final norm, whose result the caller has to the end, classes of its first position, and the loss."""
        self.check_back(shape)

        def loss(t: Trace) -> Value:
            normed = ops.layer_norm(t, t.start, READ)
            h = ops.linear(t, ops.first(t, normed), "classifier", ("Y",), bias=True)
            return ops.loss_narrow(t, h)

        return cached(("ends of images", repr(shape.classes)), lambda: ends(loss, CHOICE))
