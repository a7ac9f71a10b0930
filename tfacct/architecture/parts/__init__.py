"""Parts of a transformer with their sizes, axes and lines."""

from tfacct.architecture.parts.attention import (
    Attention,
    DistanceBias,
    Gate,
    Grouped,
    QKNorm,
    ReadNorm,
    Rotary,
    Scales,
    SelfAttention,
    Temperature,
)
from tfacct.architecture.parts.classes import Classes, Pooler, TokenPooler
from tfacct.architecture.parts.convolution import ShortConvolution
from tfacct.architecture.parts.cross import OF_SOURCE, SOURCES, CrossAttention, RelativeBias
from tfacct.architecture.parts.delta import DeltaNet
from tfacct.architecture.parts.embedding import Embedding, Head, Positions, Segments, Stem
from tfacct.architecture.parts.experts import Experts
from tfacct.architecture.parts.feed_forward import AdaptedFeedForward, FeedForward
from tfacct.architecture.parts.hyper import HyperConnection, HyperHead, HyperMean, HyperResult
from tfacct.architecture.parts.images import AttentionPooler, Patches
from tfacct.architecture.parts.indexer import Indexer
from tfacct.architecture.parts.latent import CHOSEN, LatentAttention, MlaMode
from tfacct.architecture.parts.lightning import LightningAttention
from tfacct.architecture.parts.mamba import Mamba
from tfacct.architecture.parts.mamba2 import Mamba2
from tfacct.architecture.parts.merger import Averaged, Deepstack, Merger
from tfacct.architecture.parts.mtp import MtpProjection
from tfacct.architecture.parts.norm import GatedNorm, Norm
from tfacct.architecture.parts.part import Mixer, Part
from tfacct.architecture.parts.projector import NamedTensors, Projector
from tfacct.architecture.parts.residual import GatedResidual, LerpResidual, Residual, Scale
from tfacct.architecture.parts.shared import JoinedAttention, SharedOutput
from tfacct.ledger.paths import ENCODER, MTP

_LISTED: tuple[type[Part], ...] = (
    Embedding,
    Positions,
    Segments,
    RelativeBias,
    Attention,
    LatentAttention,
    CrossAttention,
    HyperConnection,
    FeedForward,
    Experts,
    SharedOutput,
    Mamba,
    Mamba2,
    ShortConvolution,
    DeltaNet,
    LightningAttention,
    HyperHead,
    Deepstack,
    Norm,
    Head,
    Merger,
    Projector,
    Pooler,
    Classes,
)
_NAMES = tuple(dict.fromkeys(part.name for part in _LISTED))


def headings() -> tuple[str, ...]:
    """Headings that counts are summed under, in the order of tables.

    A heading of a family-specific part is included once the family's module is imported.
    """
    parts = sorted((part.listed_after[1], part.name, part.listed_after[0]) for part in _subclasses(Part))
    following = {name: dict.fromkeys(heading for _, heading, after in parts if after == name) for name in _NAMES}
    return (ENCODER, *(heading for name in _NAMES for heading in (name, *following[name])), MTP)


def mixers() -> frozenset[str]:
    """Names of the parts that replace attention; family-specific ones once their module is imported."""
    return frozenset(part.name for part in _subclasses(Mixer))


def _subclasses(kind: type[Part]) -> list[type[Part]]:
    found = kind.__subclasses__()
    return [*found, *(one for each in found for one in _subclasses(each))]
