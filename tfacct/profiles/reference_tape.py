"""The reference model's operations as they run, part by part, on a tape: what their gradients hold.

Read off tfacct/reference, and held against the bytes alive at each of its operators.
"""

from __future__ import annotations

from collections.abc import Mapping

from tfacct.architecture.blocks import Block, Sublayer
from tfacct.architecture.parts import (
    Attention,
    Experts,
    FeedForward,
    Head,
    LatentAttention,
    Mixer,
    Norm,
    QKNorm,
)
from tfacct.ledger import paths
from tfacct.ledger.kept import Moment, turn_of
from tfacct.profiles import tape_experts as experts
from tfacct.profiles import tape_operations as ops
from tfacct.profiles.tape import Axes, Tape, Value
from tfacct.profiles.tape_latent import latent
from tfacct.profiles.tape_mixers import Ran, mixer

STREAM = ("B", "T", "D")
ENTERS = "stream"
"""Stands in front of the operations of a run."""


class Written:
    """A run of the reference model as it is written down. `full`: the pass is in fp32; `ones`: axes of size 1; `dealt`:
    how rows are dealt out to experts; `kind`: number of the block's kind; `ran`: parts that ran by themselves."""

    def __init__(
        self,
        *,
        full: bool,
        ones: frozenset[str],
        dealt: experts.Dealt | None = None,
        kind: int = 0,
        ran: Mapping[str, Ran] | None = None,
    ) -> None:
        self.kind, self.ran = kind, ran or {}
        self.full, self.tape, self.dealt = full, Tape(ones), dealt
        self.tape.stays = sum(each.beside for each in self.ran.values())
        self.tape.stop(ENTERS)
        self.start = self.tape.made(STREAM, lambda _t, _g: None)

    def block(self, block: Block) -> Value:
        """Sublayers in the block's order."""
        x = self.start
        called = [each for each in block.sublayers if each.called]
        if block.order == "parallel":
            return self._side_by_side(called)
        for sublayer in called:
            own = _own(sublayer)
            read = self.norm(f"{own}_norm", x, sublayer.norm) if block.order == "pre" else x
            x = self._added(read if sublayer.normed else x, self._result(own, read, sublayer), sublayer)
            if block.order == "post":
                x = self.norm(f"{own}_norm", x, sublayer.norm)
        return x

    def _side_by_side(self, called: list[Sublayer]) -> Value:
        x, first, results = self.start, None, list[Value]()
        for sublayer in called:
            own = _own(sublayer)
            read = first if first is not None and sublayer.norm is None else self.norm(f"{own}_norm", x, sublayer.norm)
            first = first or read
            results.append(self._result(own, read, sublayer))
        for sublayer, result in zip(called, results, strict=True):
            x = self._added(x, result, sublayer)
        return x

    def _added(self, x: Value, result: Value, sublayer: Sublayer) -> Value:
        x = x if sublayer.stream is None else ops.one_more(self.tape, x)
        result = result if sublayer.factor is None else ops.one_more(self.tape, result)
        x = ops.total(self.tape, x, result)
        return x if sublayer.after is None else ops.one_more(self.tape, x)

    def _result(self, own: str, read: Value, sublayer: Sublayer) -> Value:
        part = sublayer.part
        read = read if sublayer.scale is None else ops.one_more(self.tape, read)
        if isinstance(part, Attention):
            result = self._attention(own, part, read)
        elif isinstance(part, LatentAttention):
            result = latent(self.tape, own, part, read, turn_of(self.kind), full=self.full)
        elif isinstance(part, Mixer):
            result = mixer(self.tape, read, self.ran[own])
        elif isinstance(part, Experts):
            result = self._experts(own, part, read)
        else:
            assert isinstance(part, FeedForward)
            result = self._network(own, part.activation, read, "F", gated=part.gated)
        return self.norm(f"{own}_post_norm", result, sublayer.post_norm)

    def norm(self, name: str, x: Value, part: Norm | None) -> Value:
        """A norm of the stream, where there is one."""
        if part is None:
            return x
        if part.kind == "layer":
            return ops.layer_norm(self.tape, x, name)
        return ops.rms_norm(self.tape, x, name, ("B", "T"), ("D",), full=self.full)

    def _qk_norms(self, at: str, how: QKNorm, q: Value, k: Value) -> tuple[Value, Value]:
        made = []
        for which, heads, x in (("q", "N", q), ("k", "K", k)):
            name = f"{at}.{which}_norm"
            if how.kind == "layer":
                made.append(ops.layer_norm(self.tape, x, name))
                continue
            each: Axes = ("B", "T") if how.together else ("B", "T", heads)
            last: Axes = (heads, "H") if how.together else ("H",)
            made.append(ops.rms_norm(self.tape, x, name, each, last, full=self.full))
        return made[0], made[1]

    def _attention(self, at: str, part: Attention, x: Value) -> Value:
        tape, how = self.tape, part.qk_norm
        q, k, v = (
            ops.product(tape, x, ("B", "T", heads, "H"), f"{at}.{which}_proj.weight")
            for which, heads in (("q", "N"), ("k", "K"), ("v", "K"))
        )
        if how is not None and how.together:
            q, k = self._qk_norms(at, how, q, k)
        q, k, v = (
            ops.split(tape, each, (("B",), (tokens,), (heads, "H")), ("B", heads, tokens, "H"))
            for each, heads, tokens in ((q, "N", "T"), (k, "K", "S"), (v, "K", "S"))
        )
        if how is not None and not how.together and not how.late:
            q, k = self._qk_norms(at, how, q, k)
        if part.rotary is not None:
            turns, near = "H" if part.rope_dim is None else "Hr", part.rotary.pairs == "neighbours"
            q = ops.turned(tape, q, turns, neighbours=near, name=turn_of(self.kind))
            k = ops.turned(tape, k, turns, neighbours=near)
        if how is not None and how.late:
            q, k = self._qk_norms(at, how, q, k)
        if part.temperature is not None:
            q = ops.one_more(tape, q, f"{at}.q_scale")
        pairs = ("B", "N", "T", "S")
        scores = ops.multiplied(tape, q, k, pairs, "K", f"{at}.scores")
        scores = ops.one_more(tape, scores)
        if part.softcap is not None:
            scores = ops.one_more(tape, scores, f"{at}.softcap")
            scores = ops.one_more(tape, scores)
        weights = ops.one_more(tape, scores, f"{at}.softmax")
        mixed = ops.multiplied(tape, weights, v, ("B", "N", "T", "H"), "K", f"{at}.values")
        rows = ops.alias(tape, mixed, ("B", "T", "N", "H"))
        if part.gated:
            rows = self._gated(at, part, x, rows)
        return ops.product(tape, rows, STREAM, f"{at}.o_proj.weight")

    def _gated(self, at: str, part: Attention, x: Value, rows: Value) -> Value:
        """What the heads read, each element or all of a head times what the token lets through of it."""
        name, each = f"{at}.gate", part.gates == "elements"
        gate = ops.product(self.tape, x, rows.axes if each else rows.axes[:3], f"{at}.gate_proj.weight")
        gate = ops.one_more(self.tape, gate, f"{name}.sigmoid")
        return ops.times(self.tape, rows, gate, name) if each else experts.weighted(self.tape, rows, gate, name)

    def _experts(self, at: str, part: Experts, x: Value) -> Value:
        tape, own, how = self.tape, f"{at}.experts", self.dealt
        assert how is not None
        weights = experts.chosen(tape, x, at)
        tokens = experts.sent(tape, x)
        gate = experts.bank(tape, tokens, "Fe", f"{own}.gate_proj.weight", how)
        up = experts.bank(tape, tokens, "Fe", f"{own}.up_proj.weight", how)
        opened = ops.activated(tape, gate, part.activation, f"{own}.act")
        act = ops.times(tape, opened, up, f"{own}.act")
        down = experts.bank(tape, act, "D", f"{own}.down_proj.weight", how)
        results = experts.weighted(tape, down, weights, f"{at}.weighting")
        out = ops.alias(tape, results, STREAM)
        if part.shared_width is None:
            return out
        shared = self._network(f"{at}.shared", part.activation, x, part.shared_axis, gated=True)
        if part.shared_gate:
            score = ops.product(tape, x, ("B", "T", "U"), f"{at}.shared_gate.weight")
            opened = ops.one_more(tape, score, f"{at}.sigmoid")
            shared = experts.weighted(tape, shared, opened, f"{at}.shared_weighting")
        return ops.total(tape, out, shared)

    def _network(self, at: str, activation: str, x: Value, width: str, *, gated: bool) -> Value:
        wide = ("B", "T", width)
        if not gated:
            up = ops.product(self.tape, x, wide, f"{at}.up_proj.weight")
            act = ops.activated(self.tape, up, activation, f"{at}.act")
        else:
            gate = ops.product(self.tape, x, wide, f"{at}.gate_proj.weight")
            up = ops.product(self.tape, x, wide, f"{at}.up_proj.weight")
            opened = ops.activated(self.tape, gate, activation, f"{at}.act")
            act = ops.times(self.tape, opened, up, f"{at}.act")
        return ops.product(self.tape, act, STREAM, f"{at}.down_proj.weight")

    def head(self, part: Head, final: Norm | None) -> Value:
        """What stands behind the blocks, the loss included."""
        tape, words = self.tape, ("B", "T", "V")
        x = self.norm("final_norm", self.start, final)
        if part.transform is not None:
            x = ops.product(tape, x, STREAM if part.row == "Dt" else ("B", "T", part.row), "lm_head.transform.weight")
            x = ops.layer_norm(tape, ops.activated(tape, x, part.transform, "lm_head.act"), "lm_head.norm")
        elif part.width is not None:
            x = ops.product(tape, x, ("B", "T", "De"), "lm_head.project.weight")
        x = x if part.scale is None else ops.one_more(tape, x)
        x = ops.product(tape, x, words, "lm_head.weight")
        x = x if part.logit_scale is None else ops.one_more(tape, x)
        if part.softcap is not None:
            x = ops.one_more(tape, ops.one_more(tape, ops.one_more(tape, x), "lm_head.softcap"))
        scores = x
        wide = x if self.full else tape.made(words, lambda t, _g: t.give(scores, t.new(words)))
        return tape.made((), lambda t, _g: t.give(wide, t.new(words, "full")), "loss")

    def moments(self, result: Value) -> tuple[tuple[str, ...], tuple[Moment, ...]]:
        """The operations in their order, and what their gradients hold."""
        return tuple(self.tape.order), tuple(self.tape.run(result))


def _own(sublayer: Sublayer) -> str:
    return paths.in_every(paths.BLOCKS, sublayer.name)
