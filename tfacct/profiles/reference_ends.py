"""What the reference model keeps in front of its blocks and behind them: tables, poolers, heads, scores of classes."""

from __future__ import annotations

from collections.abc import Iterator

from tfacct.architecture.parts import (
    AttentionPooler,
    Boxes,
    Embedding,
    Head,
    LatentReader,
    Patches,
    Pooler,
    ShapedEmbedding,
    Stem,
)
from tfacct.architecture.transformer import Transformer
from tfacct.ledger.kept import Kept
from tfacct.profiles.reference_disentangled import distances, first_convolution
from tfacct.profiles.reference_hyper import hyper_head
from tfacct.profiles.reference_images import attention_pooler, between, latent_reader, merged, patches, picked
from tfacct.profiles.reference_lines import Lines
from tfacct.profiles.reference_pairs import stem
from tfacct.profiles.reference_streams import ALL, streams


def front_of(own: Lines, shape: Transformer, first: str) -> Iterator[Kept]:
    """Token ids, the positions of one sequence, and what projects and norms the tables' rows."""
    row = "D" if shape.embed.width is None else "De"
    if isinstance(shape.embed, Stem):
        yield from stem(own, first, shape.embed)
    elif isinstance(shape.embed, Patches):
        yield from patches(own, shape.embed)
    else:
        yield Kept("tokens", "B T", by=("embed",), role="index")
    if isinstance(shape.embed, ShapedEmbedding):
        yield Kept("firsts", "B T", by=("embed.shapes", "embed.sounds"), role="index")
        yield Kept("embed", "B T Dal", by=("embed.project.weight",))
    if isinstance(shape.embed, Embedding) and shape.embed.shifted:
        yield Kept("embed.shift.shifted", "B T D", by=("embed.shift",))
    if shape.embed.width is not None and not shape.embed.late:
        beside = getattr(shape.embed, "beside", False)
        yield Kept("embed", "B T Da" if beside else "B T De", by=("embed.project.weight",))
    if shape.positions is not None and shape.positions.stored and shape.positions.trained:
        yield Kept("positions", "T", by=("pos_embed",), role="index", times=2 if shape.positions.crossed else 1)
    if shape.segments is not None:
        yield Kept("segments", "T", by=("type_embed",), role="index")
    if shape.boxes is not None:
        yield Kept("boxes", "T", by=tuple(f"box_embed.{name}" for name in Boxes.TABLES), role="index")
    if shape.tasks is not None:
        yield Kept("tasks", "T", by=("task_embed",), role="index")
    if shape.bias is not None:
        yield Kept("distances", "T S", by=("rel_bias",), role="index")
    yield from distances(shape)
    if shape.beside is not None:
        yield from first_convolution(own, shape.beside)
    if shape.embed_norm is not None:
        last = row if shape.embed.late else "D"
        yield from own.norm("embed_norm", "embed.sum", shape.embed_norm, last=last)
    if shape.embed.width is not None and shape.embed.late:
        yield Kept("embed_norm", "B T De", by=("embed.project.weight",))


def back_of(own: Lines, shape: Transformer) -> Iterator[Kept]:
    """Final norm, and what stands behind it: a pooler, the head, scores of classes."""
    reads, spec = "stream", "B T D"
    if shape.merged is not None:
        yield from streams(shape.merged.name, reads, ALL)
        reads = f"{shape.merged.name}.mean"
    if shape.hyper is not None:
        yield from hyper_head(own, reads, shape.hyper)
        reads = f"{shape.hyper.name}.stream"
    if shape.final_norm is not None:
        yield from own.norm("final_norm", reads, shape.final_norm)
        reads = "final_norm"
    if isinstance(shape.pooler, Pooler):
        spec = "B T D" if shape.pooler.reads == "each" else "B D"
        yield from _pooler(own, reads, shape.pooler, spec)
        reads = "pooler.act" if shape.pooler.norm_eps is None else "pooler.norm"
    elif isinstance(shape.pooler, AttentionPooler):
        yield from attention_pooler(own, reads, shape.pooler)
        reads, spec = "pooler.sum", "B Qp D"
    elif isinstance(shape.pooler, LatentReader):
        yield from latent_reader(own, reads)
        reads, spec = "pooler.mean", "B D"
    elif shape.pooler is not None:
        reads, spec = yield from picked(own, reads, shape.pooler)
    if shape.head is not None:
        yield from _head(own, reads, shape.head)
        reads = "lm_head"
    if shape.classes is not None:
        yield Kept(
            reads, spec, by=("classifier.weight", *(("classifier.taught.weight",) if shape.classes.taught else ()))
        )
    if shape.merger is not None:
        yield from merged(own, reads, shape.merger)
    if shape.deepstack is not None:
        yield from between(own, shape.deepstack, sum(stack.count for stack in shape.stacks))


def _pooler(own: Lines, reads: str, part: Pooler, spec: str) -> Iterator[Kept]:
    """A pooler; the first position's vector is a view of the whole stream."""
    mean = part.reads == "mean"
    yield Kept("pooler.mean" if mean else reads, "B D" if mean else "B T D", by=("pooler.weight",))
    yield from own.activated("pooler.act", "pooler.product", part.activation, spec)
    if part.norm_eps is not None:
        yield from own.layer("pooler.norm", "pooler.act", spec, spec.removesuffix(" D"))


def _head(own: Lines, reads: str, part: Head) -> Iterator[Kept]:
    at, rows = "lm_head", "B T D"
    if part.transform is None and part.width is not None:
        yield Kept(reads, rows, by=(f"{at}.project.weight",))
        reads, rows = f"{at}.project", "B T De"
    if part.scale is not None:
        reads = f"{at}.scale"
    if part.transform is not None:
        yield Kept(reads, rows, by=(f"{at}.transform.weight",))
        rows = "B T D" if part.row == "Dt" else f"B T {part.row}"
        yield from own.activated(f"{at}.act", f"{at}.transform", part.transform, rows)
        yield from own.layer(f"{at}.norm", f"{at}.act", rows, "B T")
        reads = f"{at}.norm"
    yield Kept(reads, rows, by=(f"{at}.weight", *(() if part.rest is None else (f"{at}.rest.weight",))))
    if part.softcap is not None:
        yield Kept(f"{at}.softcap", "B T V", by=(f"{at}.softcap",))
