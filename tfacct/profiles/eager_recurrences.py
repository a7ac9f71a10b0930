"""The reference model's short convolution, Griffin's recurrence and lightning attention, written as they run there,
over shapes alone: the modules of tfacct/reference line by line."""

from __future__ import annotations

from tfacct.architecture import parts
from tfacct.profiles.eager_mixing import Convolution, activated, by_head, called, copied, decayed_sums
from tfacct.shapes.eager import Tensor
from tfacct.shapes.operations import Operations


class ShortConvolution:
    """Gated short convolution."""

    def __init__(self, ops: Operations, at: str, part: parts.ShortConvolution) -> None:
        self.ops, self.at, self.part = ops, at, part
        self.conv = Convolution(ops, f"{at}.conv", part.hidden, part.kernel, bias=part.bias)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        ops, part, at = self.ops, self.part, self.at
        made = ops.unflatten(ops.linear(x, f"{at}.in_proj", 3 * part.hidden, part.bias), 2, (3, part.hidden))
        entry, exit_, value = ops.unbind(made, 2)
        del made
        convolved, last = self.conv.over(called(ops.mul, entry, value))
        out = called(ops.linear, called(ops.mul, exit_, convolved), f"{at}.out_proj", part.hidden, part.bias)
        return out, last


class LastTokens(Convolution):
    """The convolution of a part that keeps one token less than it sees."""

    def over(self, x: Tensor) -> tuple[Tensor, Tensor]:
        ops, (batch, _, channels) = self.ops, x.shape
        before = ops.new((batch, self.kernel - 1, channels))
        seen = ops.cat((before, x), 1)
        out = called(self.forward, seen)
        return out, copied(ops, ops.transpose(ops.narrow(seen, 1, self.kernel - 1), 1, 2))


class GatedRecurrence:
    """RG-LRU between a convolution and a gate."""

    def __init__(self, ops: Operations, at: str, part: parts.GatedRecurrence) -> None:
        self.ops, self.at, self.part = ops, at, part
        self.conv = LastTokens(ops, f"{at}.conv", part.width, part.before + 1, bias=True)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        ops, part, at = self.ops, self.part, self.at
        gate = called(activated, ops, part.activation, ops.linear(x, f"{at}.y_proj", part.width, bias=True))
        inner, last = self.conv.over(ops.linear(x, f"{at}.x_proj", part.width, bias=True))
        decay = called(self._decay, called(self._block_gate, "decay_gate", inner))
        added = called(self._input, inner, called(self._block_gate, "input_gate", inner), decay)
        sums = called(self._recurrence, added, decay)
        out = called(ops.linear, called(ops.mul, gate, sums), f"{at}.out_proj", part.hidden, True)
        return out, last, copied(ops, ops.select(sums, 1))

    def _block_gate(self, name: str, x: Tensor) -> Tensor:
        ops, part, (batch, tokens, _) = self.ops, self.part, x.shape
        blocks, size = part.blocks, part.block_dim
        weight = ops.parameter(f"{self.at}.{name}.weight", blocks, size, size)
        bias = ops.parameter(f"{self.at}.{name}.bias", blocks, size)
        of_block = ops.transpose(ops.reshape(x, batch * tokens, blocks, size), 0, 1)
        out = ops.add(ops.transpose(ops.matmul(of_block, weight), 0, 1), bias)
        return ops.reshape(out, batch, tokens, blocks * size)

    def _decay(self, gate: Tensor) -> Tensor:
        ops = self.ops
        weight = ops.parameter(f"{self.at}.decay.weight", self.part.width)
        return ops.mul(ops.scaled(ops.sigmoid(gate)), ops.softplus(weight))

    def _input(self, x: Tensor, gate: Tensor, decay: Tensor) -> Tensor:
        ops = self.ops
        share = ops.sqrt(ops.neg(ops.exp(ops.scaled(decay))))
        share = ops.cat((ops.like(ops.narrow(share, 1, 1)), ops.narrow(share, 1, x.shape[1] - 1)), 1)
        return ops.mul(ops.mul(x, ops.sigmoid(gate)), share)

    def _recurrence(self, added: Tensor, decay: Tensor) -> Tensor:
        return decayed_sums(self.ops, added, self.ops.exp(decay))


class LightningAttention:
    """Lightning attention: new tokens in chunks."""

    def __init__(self, ops: Operations, at: str, part: parts.LightningAttention) -> None:
        self.ops, self.at, self.part = ops, at, part

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        ops, part, at = self.ops, self.part, self.at
        made = (
            called(activated, ops, part.activation, ops.linear(x, f"{at}.{name}_proj", part.inner)) for name in "qkv"
        )
        query, key, value = (by_head(ops, each, part.heads, part.head_dim) for each in made)
        out, state = self._in_chunks(query, key, value)
        normed = called(self._norm, ops.flatten(ops.transpose(out, 1, 2), 2, 3))
        gated = called(self._gate, normed, ops.linear(x, f"{at}.gate_proj", part.inner))
        return called(ops.linear, gated, f"{at}.out_proj", part.hidden), state

    def _norm(self, x: Tensor) -> Tensor:
        return self.ops.rms_norm(x, f"{self.at}.out_norm.weight")

    def _gate(self, x: Tensor, gate: Tensor) -> Tensor:
        return self.ops.mul(self.ops.sigmoid(gate), x)

    def _rates(self) -> Tensor:
        ops, heads = self.ops, self.part.heads
        powers = ops.new((heads,))
        powers = ops.like(powers)
        rates = ops.reshape(ops.neg(ops.exp(powers)), 1, heads, 1, 1)
        return ops.scaled(rates)

    def _by_chunk(self, left: Tensor, right: Tensor) -> Tensor:
        ops, sizes = self.ops, left.shape[1:3]
        return ops.unflatten(called(ops.product, ops.flatten(left, 1, 2), ops.flatten(right, 1, 2)), 1, sizes)

    def _in_chunks(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        ops, (batch, heads, tokens, size) = self.ops, query.shape
        chunk = self.part.chunk
        chunks = int(-(-tokens // chunk))
        query, key, value = (self._chunked(each, chunks) for each in (query, key, value))
        rate, place = self._rates(), ops.new((chunk,))
        apart = ops.tril(ops.like(ops.unsqueeze(place, 1), ops.unsqueeze(place, 0)))
        weight = ops.unsqueeze(ops.tril(ops.exp(ops.mul(rate, apart))), 2)
        scores = called(ops.mul, self._by_chunk(query, ops.transpose(key, 3, 4)), weight)
        here = self._by_chunk(scores, value)
        left = ops.new((chunks,))
        left = ops.cat((ops.narrow(left, 0, chunks - 1), ops.new((1,))), 0)
        ends = ops.clamp(ops.sub(ops.shifted(ops.unsqueeze(left, 1)), place))
        keys = called(ops.mul, key, ops.unsqueeze(ops.exp(ops.mul(rate, ends)), -1))
        written = self._by_chunk(ops.transpose(keys, 3, 4), value)
        passed = ops.exp(ops.mul(ops.squeeze(rate, -1), left))
        state = ops.start((batch, heads, size, size))
        found, times = [state], [1]
        for several in ops.meter.rounds(chunks):
            times.append(several)
            decay = ops.unsqueeze(ops.unsqueeze(ops.select(passed, 2), -1), -1)
            found.append(called(self._next, found[-1], decay, ops.select(written, 2)))
        queries = called(ops.mul, query, ops.unsqueeze(ops.exp(ops.mul(rate, ops.shifted(ops.unsqueeze(place, 1)))), 2))
        before = self._by_chunk(queries, ops.stack(found[:-1], 2, times[:-1]))
        out = ops.flatten(called(ops.add, before, here), 2, 3)
        return ops.narrow(out, 2, tokens), copied(ops, found[-1])

    def _next(self, state: Tensor, decay: Tensor, written: Tensor) -> Tensor:
        return self.ops.add(self.ops.mul(state, decay), written)

    def _chunked(self, x: Tensor, chunks: int) -> Tensor:
        ops, (batch, heads, tokens, size) = self.ops, x.shape
        chunk = self.part.chunk
        x = ops.cat((x, ops.new((batch, heads, chunks * chunk - tokens, size))), 2)
        return ops.unflatten(x, 2, (chunks, chunk))
