"""The reference model's gated DeltaNet, written as it runs there, over shapes alone: tfacct/reference/delta.py line by
line."""

from __future__ import annotations

from typing import Any

from tfacct.architecture import parts
from tfacct.profiles.eager_mixing import Convolution, activated, by_head, called
from tfacct.shapes.eager import Shape, Tensor, noted
from tfacct.shapes.operations import Operations
from tfacct.shapes.views import turned, unsqueezed


class DeltaNet:
    """Gated DeltaNet."""

    def __init__(self, ops: Operations, at: str, part: parts.DeltaNet) -> None:
        self.ops, self.at, self.part = ops, at, part
        self.conv = Convolution(ops, f"{at}.conv", part.channels, part.kernel, bias=False)

    def _linear(self, x: Tensor, name: str, outputs: int) -> Tensor:
        return self.ops.linear(x, f"{self.at}.{name}", outputs)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        ops, part = self.ops, self.part
        keys, values = part.key_heads * part.key_dim, part.heads * part.value_dim
        channels, last = self.conv.over(
            ops.cat(
                (self._linear(x, "q_proj", keys), self._linear(x, "k_proj", keys), self._linear(x, "v_proj", values)),
                -1,
            )
        )
        q, k, v = ops.split(called(activated, ops, part.activation, channels), [keys, keys, values])
        q, k = called(self._unit, self._for_values(q)), called(self._unit, self._for_values(k))
        v = by_head(ops, v, part.heads, part.value_dim)
        rate = called(self._rate, self._linear(x, "rate_proj", part.heads))
        rate = ops.unsqueeze(ops.transpose(rate, 1, 2), -1)
        decay = ops.transpose(called(self._decay, self._decays(x)), 1, 2)
        out, state = self._in_chunks(q, k, v, decay, rate)
        gate = self._linear(x, "gate_proj", values) if part.rank is None else self._narrow(x, "gate", values)
        out = called(
            self._gate,
            called(self._out_norm, ops.transpose(out, 1, 2)),
            ops.unflatten(gate, 2, (part.heads, part.value_dim)),
        )
        return self._linear(ops.flatten(out, 2, 3), "out_proj", part.hidden), last, state

    def _narrow(self, x: Tensor, name: str, wide: int) -> Tensor:
        assert self.part.rank is not None
        return self._linear(self._linear(x, f"{name}_a_proj", self.part.rank), f"{name}_b_proj", wide)

    def _rate(self, x: Tensor) -> Tensor:
        return self.ops.scaled(self.ops.sigmoid(x))

    def _unit(self, x: Tensor) -> Tensor:
        ops = self.ops
        return ops.mul(x, ops.scaled(ops.rsqrt(ops.shifted(ops.sum(ops.square(x), -1, keep=True)))))

    def _decays(self, x: Tensor) -> Tensor:
        part = self.part
        decays = part.heads * part.key_dim if part.by_channel else part.heads
        made = self._linear(x, "decay_proj", decays) if part.rank is None else self._narrow(x, "decay", decays)
        return self.ops.unflatten(made, 2, (part.heads, part.key_dim)) if part.by_channel else made

    def _decay(self, x: Tensor) -> Tensor:
        ops, part, at = self.ops, self.part, f"{self.at}.decay"
        rate = ops.exp(ops.parameter(f"{at}.weight", part.heads))
        channels = (part.key_dim,) if part.by_channel else ()
        bias = ops.parameter(f"{at}.bias", part.heads, *channels)
        rate = ops.unsqueeze(rate, 1) if channels else rate
        if part.floor is not None:
            return ops.scaled(ops.sigmoid(ops.mul(rate, ops.add(x, bias))))
        return ops.mul(ops.neg(rate), ops.softplus(ops.add(x, bias)))

    def _out_norm(self, x: Tensor) -> Tensor:
        return self.ops.rms_norm(x, f"{self.at}.out_norm.weight")

    def _gate(self, x: Tensor, gate: Tensor) -> Tensor:
        ops = self.ops
        return ops.mul(x, ops.sigmoid(gate) if self.part.gate == "sigmoid" else ops.silu(gate))

    def _for_values(self, x: Tensor) -> Tensor:
        ops, part = self.ops, self.part
        heads = ops.unsqueeze(by_head(ops, x, part.key_heads, part.key_dim), 2)
        return ops.flatten(ops.expand(heads, -1, -1, part.group, -1, -1), 1, 2)

    def _in_chunks(self, q: Tensor, k: Tensor, v: Tensor, decay: Tensor, rate: Tensor) -> tuple[Tensor, Tensor]:
        ops, part = self.ops, self.part
        tokens, by_channel = q.shape[2], part.by_channel
        q, k, kb, vb = (self._chunked(x) for x in (q, k, ops.mul(k, rate), ops.mul(v, rate)))
        sums = ops.cumsum(self._chunked(decay if by_channel else ops.unsqueeze(decay, -1)), 3)
        between = called(self._pair_decay, ops.transpose(sums, 3, 4) if by_channel else ops.squeeze(sums, -1))
        if by_channel:
            system, scores = (
                ops.sum(called(self._pairs, kb, k, between), -3),
                ops.sum(called(self._pairs, q, k, between), -3),
            )
            whole = called(self._inverse, system)
            new, seen = self._product(whole, vb), self._product(whole, ops.mul(kb, ops.exp(sums)))
        else:
            system = ops.mul(self._product(kb, ops.transpose(k, 3, 4)), between)
            scores = ops.mul(self._product(q, ops.transpose(k, 3, 4)), between)
            new, seen = called(self._solved, system, vb), called(self._solved, system, ops.mul(kb, ops.exp(sums)))
        q, ends = ops.mul(q, ops.exp(sums)), ops.sliced(sums, 3, 1)
        k, ends = ops.mul(k, ops.exp(ops.sub(ends, sums))), ops.transpose(ops.exp(ends), 3, 4)
        state = ops.start((q.shape[0], q.shape[1], part.key_dim, part.value_dim))
        out, times = [], []
        for several in ops.meter.rounds(q.shape[2]):
            times.append(several)
            fresh = called(ops.sub, ops.select(new, 2), called(ops.product, ops.select(seen, 2), state))
            out.append(
                called(
                    ops.add,
                    called(ops.product, ops.select(q, 2), state),
                    called(ops.product, ops.select(scores, 2), fresh),
                )
            )
            state = called(
                self._kept,
                state,
                ops.select(ends, 2),
                called(ops.product, ops.transpose(ops.select(k, 2), 2, 3), fresh),
            )
        return ops.narrow(ops.cat(out, 2, times), 2, tokens), state

    def _kept(self, state: Tensor, decay: Tensor, written: Tensor) -> Tensor:
        return self.ops.add(self.ops.mul(state, decay), written)

    def _pair_decay(self, sums: Tensor) -> Tensor:
        ops = self.ops
        return ops.tril(ops.exp(ops.tril(ops.sub(ops.unsqueeze(sums, -1), ops.unsqueeze(sums, -2)))))

    def _pairs(self, left: Tensor, right: Tensor, decay: Tensor) -> Tensor:
        ops = self.ops
        one = ops.unsqueeze(ops.transpose(left, 3, 4), -1)
        return ops.mul(ops.mul(one, ops.unsqueeze(ops.transpose(right, 3, 4), -2)), decay)

    def _solved(self, system: Tensor, right: Tensor) -> Tensor:
        ops = self.ops
        found = self._columns(right.shape)
        one, other = system.bare(), found.bare()
        needs = right.needs

        def back(grads: Any) -> Any:
            (gradient,) = grads
            own = self._columns(gradient.shape)
            product = ops.like(unsqueezed(own, len(own.shape) - 1), unsqueezed(other, len(other.shape) - 2))
            sums = ops.new(product.shape[:-1])
            del product
            lower = ops.new(sums.shape)
            del sums
            assert one is not None
            return [ops.like(lower), own if needs else None]

        return noted(found, (system, right), back)

    def _columns(self, shape: Shape) -> Tensor:
        """What solves a system: its columns lie in a row."""
        made = self.ops.new((*shape[:-2], shape[-1], shape[-2]))
        dims = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
        return turned(made, dims)

    def _inverse(self, system: Tensor) -> Tensor:
        ops = self.ops
        size = system.shape[-1]
        ones = ops.new((size,))
        ones = ops.new((size, size))
        return self._solved(
            system, Tensor(ones.storage, system.shape, (0,) * (len(system.shape) - 2) + (size, 1), ones.each)
        )

    def _chunked(self, x: Tensor) -> Tensor:
        ops, (batch, heads, tokens, size) = self.ops, x.shape
        chunks = int(-(-tokens // self.part.chunk))
        x = ops.cat((x, ops.new((batch, heads, chunks * self.part.chunk - tokens, size))), 2)
        return ops.unflatten(x, 2, (chunks, self.part.chunk))

    def _product(self, left: Tensor, right: Tensor) -> Tensor:
        ops = self.ops
        made = called(ops.product, ops.flatten(left, 1, 2), ops.flatten(right, 1, 2))
        return ops.unflatten(made, 1, left.shape[1:3])
