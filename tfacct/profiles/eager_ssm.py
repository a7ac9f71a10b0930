"""The reference model's Mamba and Mamba-2, written as they run there, over shapes alone: tfacct/reference/mamba.py and
mamba2.py line by line."""

from __future__ import annotations

from tfacct.architecture import parts
from tfacct.profiles.eager_mixing import Convolution, activated, by_head, called, copied, decayed_sums
from tfacct.shapes.eager import Tensor
from tfacct.shapes.operations import Operations


class Mamba:
    """Mamba: a scan over all tokens."""

    def __init__(self, ops: Operations, at: str, part: parts.Mamba) -> None:
        self.ops, self.at, self.part = ops, at, part
        self.conv = Convolution(ops, f"{at}.conv", part.inner, part.kernel, bias=part.conv_bias)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        ops, part, at, (batch, tokens, _) = self.ops, self.part, self.at, x.shape
        made = ops.linear(x, f"{at}.in_proj", 2 * part.inner, part.bias)
        inner, gate = ops.unbind(ops.reshape(made, batch, tokens, 2, part.inner), 2)
        del made
        inner, seen = self.conv.over(inner)
        inner = called(activated, ops, part.activation, inner)
        read = ops.linear(inner, f"{at}.x_proj", part.rank + 2 * part.state)
        step, entry, exit_ = (ops.narrow(read, 2, size) for size in (part.rank, part.state, part.state))
        if part.norms != "none":
            step, entry, exit_ = (
                called(self._norm, "dt", step),
                called(self._norm, "b", entry),
                called(self._norm, "c", exit_),
            )
        step = called(ops.softplus, ops.linear(step, f"{at}.dt_proj", part.inner, bias=True))
        states = called(self._recurrence, inner, step, entry)
        mixed = called(self._skip, ops.squeeze(called(ops.product, states, ops.unsqueeze(exit_, -1)), -1), inner)
        out = called(ops.linear, called(self._gate, mixed, gate), f"{at}.out_proj", part.hidden, part.bias)
        last = copied(ops, ops.squeeze(ops.narrow(states, 1, 1), 1))
        return out, seen, last

    def _norm(self, which: str, x: Tensor) -> Tensor:
        return self.ops.rms_norm(x, f"{self.at}.{which}_norm.weight" if self.part.norms == "scaled" else "")

    def _gate(self, x: Tensor, gate: Tensor) -> Tensor:
        return self.ops.mul(activated(self.ops, self.part.activation, gate), x)

    def _skip(self, read: Tensor, x: Tensor) -> Tensor:
        ops = self.ops
        return ops.add(read, ops.mul(x, ops.parameter(f"{self.at}.skip.weight", self.part.inner)))

    def _recurrence(self, x: Tensor, step: Tensor, entry: Tensor) -> Tensor:
        ops, part = self.ops, self.part
        weight = ops.parameter(f"{self.at}.recurrence.weight", part.inner, part.state)
        decay = ops.exp(ops.mul(ops.unsqueeze(step, -1), ops.neg(ops.exp(weight))))
        return decayed_sums(ops, ops.mul(ops.unsqueeze(ops.mul(step, x), -1), ops.unsqueeze(entry, 2)), decay)


class Mamba2:
    """Mamba-2: new tokens in chunks."""

    def __init__(self, ops: Operations, at: str, part: parts.Mamba2) -> None:
        self.ops, self.at, self.part = ops, at, part
        self.conv = Convolution(ops, f"{at}.conv", part.channels, part.kernel, bias=part.conv_bias)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        ops, part, at = self.ops, self.part, self.at
        made = self._in(x) if part.factors is None else called(self._factors, self._in(x))
        gate, channels, step = ops.split(made, [part.inner, part.channels, part.heads])
        channels, last = self.conv.over(channels)
        vectors = part.groups * part.state
        inner, entry, exit_ = ops.split(
            called(activated, ops, part.activation, channels), [part.inner, vectors, vectors]
        )
        inner, entry, exit_ = (
            by_head(ops, inner, part.heads, part.head_dim),
            self._for_heads(entry),
            self._for_heads(exit_),
        )
        step = called(self._step, step)
        decay, step = ops.transpose(called(self._decay, step), 1, 2), ops.unsqueeze(ops.transpose(step, 1, 2), -1)
        out, state = self._in_chunks(ops.mul(inner, step), entry, exit_, decay)
        bias = part.bias if part.out_bias is None else part.out_bias
        mixed = self._gated(ops.flatten(ops.transpose(called(self._skip, out, inner), 1, 2), 2, 3), gate)
        return called(ops.linear, mixed, f"{at}.out_proj", part.hidden, bias), last, state

    def _in(self, x: Tensor) -> Tensor:
        part = self.part
        wide = part.inner + part.channels + part.heads
        return self.ops.linear(x, f"{self.at}.in_proj", wide, part.bias)

    def _factors(self, x: Tensor) -> Tensor:
        ops, part = self.ops, self.part
        vectors = part.groups * part.state
        pieces = ops.split(x, [part.inner, part.inner, vectors, vectors, part.heads])
        return ops.cat([ops.scaled(piece) for piece in pieces], -1)

    def _step(self, x: Tensor) -> Tensor:
        ops, part = self.ops, self.part
        step = ops.softplus(ops.add(x, ops.parameter(f"{self.at}.step.bias", part.heads)))
        return ops.clamp(step) if part.least_step else step

    def _decay(self, step: Tensor) -> Tensor:
        ops = self.ops
        return ops.mul(ops.neg(ops.exp(ops.parameter(f"{self.at}.decay.weight", self.part.heads))), step)

    def _skip(self, read: Tensor, x: Tensor) -> Tensor:
        ops = self.ops
        weight = ops.parameter(f"{self.at}.skip.weight", self.part.heads)
        return ops.add(read, ops.mul(x, ops.unsqueeze(ops.unsqueeze(weight, -1), -1)))

    def _gated(self, mixed: Tensor, gate: Tensor) -> Tensor:
        part = self.part
        if part.gated_norm and part.norm_first:
            mixed = called(self._norm, mixed)
        gated: Tensor = called(self._gate, mixed, gate)
        return called(self._norm, gated) if part.gated_norm and not part.norm_first else gated

    def _gate(self, x: Tensor, gate: Tensor) -> Tensor:
        return self.ops.mul(self.ops.silu(gate), x)

    def _norm(self, x: Tensor) -> Tensor:
        ops, part = self.ops, self.part
        size = part.group * part.head_dim
        grouped = ops.unflatten(x, 2, (part.groups, size))
        normed = ops.rms_norm(grouped)
        return ops.mul(ops.flatten(normed, 2, 3), ops.parameter(f"{self.at}.out_norm.weight", part.groups * size))

    def _for_heads(self, x: Tensor) -> Tensor:
        ops, part = self.ops, self.part
        vectors = ops.unsqueeze(by_head(ops, x, part.groups, part.state), 2)
        return ops.flatten(ops.expand(vectors, -1, -1, part.group, -1, -1), 1, 2)

    def _in_chunks(self, x: Tensor, entry: Tensor, exit_: Tensor, decay: Tensor) -> tuple[Tensor, Tensor]:
        ops, (heads, tokens) = self.ops, x.shape[1:3]
        chunks = int(-(-tokens // self.part.chunk))
        x, entry, exit_, steps = (self._chunked(each) for each in (x, entry, exit_, ops.unsqueeze(decay, -1)))
        sums = ops.cumsum(ops.squeeze(steps, -1), 2)
        scores = called(ops.mul, called(ops.product, exit_, ops.transpose(entry, 2, 3)), called(self._pair_decay, sums))
        here, ends = called(ops.product, scores, x), ops.sliced(sums, 2, 1)
        written = called(
            ops.product,
            ops.transpose(x, 2, 3),
            ops.mul(entry, ops.unsqueeze(ops.exp(ops.sub(ends, sums)), -1)),
        )
        written, passed = (ops.unflatten(each, 1, (heads, chunks)) for each in (written, ops.exp(ends)))
        states = self._passed(written, passed)
        before = ops.mul(
            called(
                ops.product,
                exit_,
                ops.transpose(ops.flatten(ops.narrow(states, 2, chunks), 1, 2), 2, 3),
            ),
            ops.unsqueeze(ops.exp(sums), -1),
        )
        out = ops.flatten(ops.unflatten(called(ops.add, here, before), 1, (heads, chunks)), 2, 3)
        return ops.narrow(out, 2, tokens), copied(ops, ops.select(states, 2))

    def _passed(self, written: Tensor, decay: Tensor) -> Tensor:
        ops, (batch, heads, chunks) = self.ops, written.shape[:3]
        state = ops.start((batch, heads, *written.shape[3:]))
        found, times = [state], [1]
        for several in ops.meter.rounds(chunks):
            times.append(several)
            found.append(
                called(
                    self._next,
                    found[-1],
                    ops.select(ops.select(decay, 2), -1),
                    ops.select(written, 2),
                )
            )
        return ops.stack(found, 2, times)

    def _next(self, state: Tensor, decay: Tensor, written: Tensor) -> Tensor:
        ops = self.ops
        return ops.add(ops.mul(state, ops.unsqueeze(ops.unsqueeze(decay, -1), -1)), written)

    def _pair_decay(self, sums: Tensor) -> Tensor:
        ops = self.ops
        return ops.tril(ops.exp(ops.tril(ops.sub(ops.unsqueeze(sums, -1), ops.unsqueeze(sums, -2)))))

    def _chunked(self, x: Tensor) -> Tensor:
        ops, (batch, heads, tokens, size) = self.ops, x.shape
        chunk = self.part.chunk
        chunks = int(-(-tokens // chunk))
        x = ops.cat((x, ops.new((batch, heads, chunks * chunk - tokens, size))), 2)
        return ops.reshape(x, batch, heads * chunks, chunk, size)
