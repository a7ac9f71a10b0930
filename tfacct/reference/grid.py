"""Counts of the reference model at every point of a grid of tiny sizes, in separate processes.

Public interfaces only: fvcore for the forward pass, torch's FlopCounterMode for the backward pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tfacct.architecture.transformer import Transformer
from tfacct.base.record import record
from tfacct.reference.counting import multiply_adds, passes
from tfacct.reference.model import build, inputs


@record
class Point:
    """A model of tiny sizes, and its workload; `in_window`: cached tokens of a windowed layer.

    The whole `source` is read.
    """

    shape: Transformer
    batch: int
    tokens: int
    context: int
    in_window: int | None = None
    source: int = 0


@record
class Counted:
    """Counts at a point: multiply-adds by fvcore, FLOPs of both passes by torch, and elements."""

    multiply_adds: int
    forward: int
    backward: int
    parameters: int
    cached: int


def count(points: Sequence[Point]) -> list[Counted]:
    """Counts every point, in this process."""
    found = []
    for point in points:
        model = build(point.shape, keep_all=True)
        given = inputs(
            point.shape,
            batch=point.batch,
            tokens=point.tokens,
            context=point.context,
            in_window=point.in_window,
            source=point.source,
            new_source=point.source,
        )
        ran = passes(model, given)
        products = sum(multiply_adds(model, given).values())
        params = sum(parameter.numel() for parameter in model.parameters())
        cached = sum(cache.numel() for cache in ran.caches)
        found.append(Counted(products, ran.forward, ran.backward, params, cached))
    return found


PROCESSES, AT_ONCE = 2, 48
"""Processes, and points that one of them counts before the next ones."""


def counts(points: Sequence[Point]) -> Iterator[Counted]:
    """Counts every point in fresh processes, because other fake tensors would disturb the tracer of fvcore."""
    chunks = [points[start : start + AT_ONCE] for start in range(0, len(points), AT_ONCE)]
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
        for counted in pool.map(count, chunks):
            yield from counted
