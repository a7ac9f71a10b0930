"""The reference model's layers: sublayers added to the residual stream, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tfacct.architecture import blocks, parts
from tfacct.reference.hyper import HyperConnection
from tfacct.reference.module_classes import module_class
from tfacct.reference.modules import Head, Linear, RMSNorm, Scale, norm, through
from tfacct.reference.part_module import PartModule, built, family_module
from tfacct.reference.residual import residual
from tfacct.reference.rotary import Angles
from tfacct.reference.step import Step

Cache: TypeAlias = tuple[Tensor, ...]
"""Cached states between steps, layer by layer."""


class Block(nn.Module):
    """A layer: its sublayers, each added to the residual stream, in order.

    `states`: names of its cached states, in the order in which it returns them. Recomputation in a backward pass runs
    inside `rerun`, so that a counter can see it.
    """

    rerun: Callable[[], AbstractContextManager[object]] = nullcontext

    def __init__(self, block: blocks.Block, angles: Angles | None, *, fused: bool, keep_all: bool) -> None:
        super().__init__()
        self.order = block.order
        self.names = [sublayer.name for sublayer in block.sublayers if sublayer.called]
        self.together = _together(block)
        self.normed = frozenset(each.name for each in block.sublayers if each.normed)
        self.joined = frozenset(each.name for each in block.sublayers if getattr(each.part, "joined", False))
        self.gives = {each.name: each.gives for each in block.sublayers if each.gives != "stream"}
        norms = {f"{each.name}_norm": each.norm for each in block.sublayers}
        shared = next((norm for norm in norms.values() if norm is not None and norm.shared), None)
        self.shared_norm = norm_module(shared)  # it comes first, so that shared weights have its name
        self.states: list[str] = []
        self.altup = built(block.streams)
        self.hc = None
        if isinstance(block.streams, parts.HyperConnection):
            self.hc = nn.ModuleDict({each.name: HyperConnection(block.streams) for each in block.sublayers})
        for sublayer in block.sublayers:
            name, made = sublayer.name, module_class(sublayer.part)
            module = made.built(sublayer.part, angles, fused=fused, keep_all=keep_all)
            self.add_module(f"{name}_norm", norm_module(sublayer.norm))
            self.add_module(f"{name}_scale", None if sublayer.scale is None else Scale(sublayer.scale))
            self.add_module(name, module)
            self.add_module(f"{name}_post_norm", norm_module(sublayer.post_norm))
            self.add_module(f"{name}_add", residual(sublayer.residual))
            self.states += [f"{name}.{cache}" for cache in module.caches]
        for name, part in norms.items():
            if part is not None and part.shared:
                assert self.shared_norm is not None
                share(self.shared_norm, getattr(self, name))

    def forward(self, x: Tensor, step: Step, past: Cache, source: Tensor | None = None) -> tuple[Tensor, ...]:
        cached: list[Tensor] = []
        if self.order == "parallel":
            first = through(getattr(self, f"{self.names[0]}_norm"), x)
            results = []
            for name in self.names:
                norm = getattr(self, f"{name}_norm")
                read = first if norm is None or name == self.names[0] else norm(x)
                results.append(self._result(name, read, step, past[len(cached) :], source, cached))
            for name, result in zip(self.names, results, strict=True):
                x = getattr(self, f"{name}_add")(x, result)
            return x, *cached
        if self.altup is not None:
            return self._on_streams(self.altup, x, step, past)
        if self.hc is not None:
            return self._on_mixed(self.hc, x, step, past)
        arrived, step.late = step.late, None
        x = self._on(x, self.names, step, past, source, cached)
        if arrived is not None:
            add, result = arrived
            x = add(x, result)
        return x, *cached

    def _on_streams(self, altup: Any, streams: Tensor, step: Step, past: Cache) -> tuple[Tensor, ...]:
        """Residual streams after the layer, and its states: all sublayers but the last work on the first prediction."""
        cached: list[Tensor] = []
        *first, last = self.names
        predicted = altup.before(streams)
        result = self._on(predicted[..., 0], first, step, past, None, cached)
        streams, read = altup.after(predicted, result)
        result_of_last = self._result(last, read, step, (), None, cached).unsqueeze(-1)
        added = getattr(self, f"{last}_add")(streams[..., 1:], result_of_last)
        return torch.cat((streams[..., :1], added), dim=-1), *cached

    def _on_mixed(self, connections: nn.ModuleDict, streams: Tensor, step: Step, past: Cache) -> tuple[Tensor, ...]:
        """Residual streams after the layer, and its states: each sublayer reads a sum of them, and its result is added
        to all."""
        cached: list[Tensor] = []
        for name in self.names:
            connection = connections[name]
            assert isinstance(connection, HyperConnection)
            read, gives, mixes = connection.before(streams)
            normed = through(getattr(self, f"{name}_norm"), read)
            result = self._result(name, normed, step, past[len(cached) :], None, cached)
            streams = connection.after(streams, result, gives, mixes)
        return streams, *cached

    def _on(
        self, x: Tensor, names: list[str], step: Step, past: Cache, source: Tensor | None, cached: list[Tensor]
    ) -> Tensor:
        """The residual stream after sublayers that run one after another."""
        shared: Tensor | None = None
        output: Tensor | None = None
        for name in names:
            norm, add = getattr(self, f"{name}_norm"), getattr(self, f"{name}_add")
            if self.order == "pre" and name in self.together:
                shared = through(norm, x) if shared is None else shared
                x = add(x, self._result(name, shared, step, past[len(cached) :], source, cached))
            elif self.order == "pre":
                given = x if output is None else output
                if name in self.joined:
                    assert step.first is not None
                    given = torch.cat((given, step.first), dim=-1)
                read = through(norm, given)
                result = self._result(name, read, step, past[len(cached) :], source, cached)
                if name in self.gives:
                    output = result if self.gives[name] == "next" else add(x, result)
                    continue
                x, output = add(read if name in self.normed else x, result), None
            else:
                given = x if output is None else output
                output = self._result(name, given, step, past[len(cached) :], source, cached)
                if name not in self.gives:
                    x, output = through(norm, add(x, output)), None
        return x

    def _result(
        self, name: str, x: Tensor, step: Step, past: Cache, source: Tensor | None, cached: list[Tensor]
    ) -> Tensor:
        """The result of a sublayer, to be added to the residual stream. Its states go to `cached`; `past` begins with
        the old ones."""
        module = getattr(self, name)
        assert isinstance(module, PartModule)
        given = {"step": step, "past": past[: len(module.caches)] or None, "source": source}
        x = through(getattr(self, f"{name}_scale"), x)
        out = module(x, *(given[each] for each in module.takes))
        if isinstance(out, tuple):
            out, *states = out
            cached += states
        return through(getattr(self, f"{name}_post_norm"), out)


def of_source(state: str) -> bool:
    """True for the name of a state cached for a source."""
    return state.startswith("cross.") or f".{parts.SOURCES}" in state


def _together(block: blocks.Block) -> frozenset[str]:
    """Names of the sublayers that run in parallel."""
    found: set[str] = set()
    for before, sublayer in pairwise(block.sublayers):
        if sublayer.parallel:
            found |= {before.name, sublayer.name}
    return frozenset(found)


def norm_module(part: parts.Norm | None) -> nn.Module | None:
    if part is None:
        return None
    module_of_family = family_module(part)
    return norm(part) if module_of_family is None else module_of_family(part)


def share(owner: nn.Module, other: nn.Module, names: tuple[str, ...] = ()) -> None:
    """Makes a module, a norm or a whole layer use the weights of another one: all, or those whose names begin like
    this."""
    beginnings = tuple(f"{name}." for name in names) or ("",)
    for path, module in owner.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            if f"{path}.{name}".startswith(beginnings):
                setattr(other.get_submodule(path), name, parameter)


class MtpProjection(nn.Module):
    """Projection of the residual stream and the token embedding, normed and concatenated.

    "DeepSeek-V3" (arXiv 2412.19437), section 2.2.
    """

    def __init__(self, part: parts.MtpProjection) -> None:
        super().__init__()
        self.row_norm, self.stream_norm = RMSNorm(part.hidden, part.eps), RMSNorm(part.hidden, part.eps)
        self.proj = Linear(2 * part.hidden, part.hidden, bias=False)

    def forward(self, stream: Tensor, row: Tensor) -> Tensor:
        return self.proj(torch.cat((self.row_norm(row), self.stream_norm(stream)), dim=-1))


class MtpHead(Block):
    """Multi-token prediction head: the residual stream and the next token's embedding through a projection, a layer and
    the model's head.

    "DeepSeek-V3" (arXiv 2412.19437), section 2.2.
    """

    def __init__(self, ahead: blocks.MtpHead, head: parts.Head, angles: Angles | None, *, last: bool) -> None:
        super().__init__(ahead.block, angles, fused=False, keep_all=False)
        self.join = MtpProjection(ahead.projection)
        self.head_norm = norm(ahead.norm)
        self.lm_head = Head(head, last=last)

    def logits(self, x: Tensor, row: Tensor, step: Step, past: Cache) -> tuple[Tensor, ...]:
        """Residual stream after this head, logits of one more token ahead, and the states at the end of the step."""
        x, *cached = self(self.join(x, row), step, past)
        return x, self.lm_head(self.head_norm(x)), *cached


def run(block: nn.Module, recompute: bool, x: Tensor, step: Step, *given: object) -> tuple[Tensor, ...]:
    """Result of a layer. With `recompute` it saves no activations and runs again in the backward pass, on what earlier
    layers passed on; later layers have already run again by then."""
    assert isinstance(block, Block)
    if not recompute or not torch.is_grad_enabled():
        return block(x, step, *given)
    chosen, late, carried = step.chosen, step.late, {**step.carried}

    def as_then(*given: object) -> object:
        step.chosen, step.late, step.carried = chosen, late, {**carried}
        return block(*given)

    return checkpoint(
        as_then,
        *(x, step, *given),
        use_reentrant=False,
        preserve_rng_state=False,
        determinism_check="none",
        context_fn=lambda: (nullcontext(), block.rerun()),
    )
