"""The ways in which a plan divides devices: which meshes it looks at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import gcd

from tfacct.architecture.parts import Attention
from tfacct.ledger.lines import EXPERTS
from tfacct.loading.model import LoadedModel
from tfacct.parallel.mesh import Mesh, Method, divisors
from tfacct.parallel.pipeline import blocks_in

MOST_PARTS = 16
"""Parts of a sequence beyond which a plan does not look."""
MOST_BESIDE = 2
"""Ranks of `tp` beyond which a plan does not look beside whole experts in stages, which are trained with few."""
LEAST_TOKENS = 2048
"""Tokens of a sequence on a rank below which it does not either."""


def served(subject: LoadedModel, devices: int) -> Iterator[Mesh]:
    """Copies by tp and pp; those that divide experts by whole ones too."""
    experts = _experts(subject)
    for tp, pp in _stages(subject, devices):
        mesh = Mesh(tp, dp=devices // tp // pp, pp=pp)
        yield from (mesh, *(replace(mesh, ep=ep) for ep in _whole(experts, tp, devices // pp)))


def _stages(subject: LoadedModel, devices: int) -> Iterator[tuple[int, int]]:
    """Ranks of `tp`, and stages, no more than blocks."""
    blocks = blocks_in(subject.ledger)
    for tp in divisors([devices]):
        yield from ((tp, pp) for pp in divisors([devices // tp]) if pp <= blocks)


def _parts(devices: int, tokens: int) -> list[int]:
    """Numbers of parts of a sequence that are tried, from 2 on."""
    most = min(MOST_PARTS, tokens // LEAST_TOKENS)
    return [parts for parts in divisors([devices])[1:] if parts <= most]


def trained(subject: LoadedModel, devices: int, tokens: int) -> Iterator[Mesh]:
    """Divisions by tp, fsdp, dp and ZeRO's stages; in stages with copies that share moments or nothing; of sequences
    with ranks of fsdp, or in stages; of experts by whole ones, with ranks of fsdp, or among copies, also in stages."""
    windows = any(part.window is not None for _, part in subject.architecture.having(Attention))
    method: Method = "gather" if windows else "ring"
    experts = _experts(subject)
    heads = gcd(*(group.axes["K"] for group in subject.ledger.groups if "K" in group.axes))  # 0 where there are none
    for tp, pp in _stages(subject, devices):
        if pp > 1:
            for sp in (False, True) if tp > 1 else (False,):
                yield from _staged(Mesh(tp, sp, pp=pp), devices // tp // pp)
            for ep in _whole(experts, tp, devices // pp) if tp <= MOST_BESIDE else ():
                yield from _staged(Mesh(tp, pp=pp, ep=ep), devices // tp // pp)
            for cp in _parts(devices // tp // pp, tokens):  # long sequences, whose stream is divided where it can be
                yield from _staged(Mesh(tp, tp > 1, pp=pp, cp=cp, cp_method=method), devices // tp // pp // cp)
    for tp in divisors([devices]):
        for sp in (False, True) if tp > 1 else (False,):
            for parts in _parts(devices // tp, tokens):
                fsdp = devices // tp // parts
                for ulysses in (
                    sorted({1, gcd(parts, heads // tp) if heads >= tp else 1}) if fsdp > 1 else ()
                ):  # none, or as many as share the heads
                    cp = parts // ulysses
                    how = method if cp > 1 else "ring"
                    yield Mesh(tp, sp, fsdp, cp=cp, cp_method=how, ulysses=ulysses)
            for fsdp in divisors([devices // tp]):
                dp = devices // tp // fsdp
                for zero in (0, 1, 2) if fsdp == 1 < dp else (0,):
                    yield Mesh(tp, sp, fsdp, dp=dp, zero=zero)
                for ep in _whole(experts, tp, devices) if 1 in (fsdp, dp) and not sp else ():
                    if fsdp > 1:
                        yield Mesh(tp, fsdp=fsdp, ep=ep)
                    else:
                        yield from (Mesh(tp, dp=dp, ep=ep, zero=zero) for zero in ((0, 1, 2) if dp > 1 else (0,)))


def _experts(subject: LoadedModel) -> int:
    """Number of experts that whole ones of all blocks divide; 0 where there are none."""
    return gcd(*(group.axes[EXPERTS] for group in subject.ledger.groups if EXPERTS in group.axes))


def _whole(experts: int, tp: int, devices: int) -> list[int]:
    """Numbers of ranks that divide so many experts, whole groups of `tp`; none where there are no experts."""
    return [ep for ep in divisors([experts, devices]) if ep > 1 and ep % tp == 0] if experts else []


def _staged(mesh: Mesh, copies: int) -> Iterator[Mesh]:
    """Stages with so many copies, which share moments or nothing."""
    yield from (replace(mesh, dp=copies, zero=zero) for zero in ((0, 1) if copies > 1 else (0,)))
