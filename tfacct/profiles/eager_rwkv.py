"""The reference model's RWKV-4, written as it runs there, over shapes alone: tfacct/reference/rwkv.py line by line."""

from __future__ import annotations

from tfacct.architecture import parts
from tfacct.profiles.eager_mixing import activated, called, copied
from tfacct.shapes.eager import Tensor
from tfacct.shapes.operations import Operations


def shifted(ops: Operations, x: Tensor) -> tuple[Tensor, Tensor]:
    """The token before each, and the last one, which is kept."""
    first = ops.like(ops.narrow(x, 1, 1))
    return ops.cat((first, ops.narrow(x, 1, x.shape[1] - 1)), 1), copied(ops, ops.select(x, 1))


def added(ops: Operations, one: Tensor, other: Tensor) -> Tensor:
    """Sums over the tokens of both, and their exponent."""
    exponent = ops.maximum(ops.select(one, -1), ops.select(other, -1))
    shares = [ops.unsqueeze(ops.exp(ops.sub(ops.select(part, -1), exponent)), -1) for part in (one, other)]
    sums = ops.add(ops.mul(shares[0], ops.narrow(one, -1, 2)), ops.mul(shares[1], ops.narrow(other, -1, 2)))
    return ops.cat((sums, ops.unsqueeze(exponent, -1)), -1)


def alone(ops: Operations, key: Tensor, value: Tensor) -> Tensor:
    """Sums over one token."""
    return ops.stack((value, ops.like(value), key), len(key.shape))


def decayed(ops: Operations, sums: Tensor, decay: Tensor) -> Tensor:
    """Sums whose exponent is less."""
    return ops.cat((ops.narrow(sums, -1, 2), ops.unsqueeze(ops.add(ops.select(sums, -1), decay), -1)), -1)


class TimeMix:
    """Means of the values of all tokens so far."""

    def __init__(self, ops: Operations, at: str, part: parts.TimeMix) -> None:
        self.ops, self.at, self.part = ops, at, part

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        ops, part, at = self.ops, self.part, self.at
        before, last = shifted(ops, x)
        key, value = self._made("k", x, before), self._made("v", x, before)
        gate = self._made("r", x, before)
        nothing = ops.like(ops.select(key, 1))
        old = ops.stack((nothing, nothing, ops.like(nothing)), 2)
        sums = called(self._recurrence, key, value, old)
        earlier = ops.cat((ops.unsqueeze(old, 1), ops.narrow(sums, 1, x.shape[1] - 1)), 1)
        gated = called(received, ops, called(self._mean, earlier, key, value), gate)
        out = ops.linear(gated, f"{at}.o_proj", part.hidden)
        del gated
        return out, last, copied(ops, ops.select(sums, 1))

    def _made(self, name: str, x: Tensor, before: Tensor) -> Tensor:
        ops, at = self.ops, self.at
        return ops.linear(called(mixture, ops, f"{at}.{name}_mix", x, before), f"{at}.{name}_proj", self.part.inner)

    def _recurrence(self, key: Tensor, value: Tensor, before: Tensor) -> Tensor:
        ops = self.ops
        weight = ops.parameter(f"{self.at}.recurrence.weight", self.part.inner)
        decay, sums = ops.neg(ops.exp(weight)), alone(ops, key, value)
        first = added(ops, decayed(ops, ops.unsqueeze(before, 1), decay), ops.sliced(sums, 1, 1))
        reach, tokens = 1, key.shape[1]
        sums = ops.cat((first, ops.narrow(sums, 1, tokens - 1)), 1)
        while reach < tokens:
            rest = tokens - reach
            later = added(ops, decayed(ops, ops.narrow(sums, 1, rest), ops.scaled(decay)), ops.narrow(sums, 1, rest))
            sums = ops.cat((ops.narrow(sums, 1, reach), later), 1)
            reach *= 2
        return sums

    def _mean(self, before: Tensor, key: Tensor, value: Tensor) -> Tensor:
        ops = self.ops
        weight = ops.parameter(f"{self.at}.mean.weight", self.part.inner)
        sums = added(ops, before, alone(ops, ops.add(key, weight), value))
        return ops.div(ops.select(sums, -1), ops.select(sums, -1))


class ChannelMix:
    """Network whose result is gated."""

    def __init__(self, ops: Operations, at: str, part: parts.ChannelMix) -> None:
        self.ops, self.at, self.part = ops, at, part

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        ops, part, at = self.ops, self.part, self.at
        before, last = shifted(ops, x)
        out = called(ops.linear, called(activated, ops, "relu2", self._up(x, before)), f"{at}.down_proj", part.hidden)
        gate = ops.linear(called(mixture, ops, f"{at}.r_mix", x, before), f"{at}.r_proj", part.hidden)
        return called(received, ops, out, gate), last

    def _up(self, x: Tensor, before: Tensor) -> Tensor:
        ops, at = self.ops, self.at
        return ops.linear(called(mixture, ops, f"{at}.k_mix", x, before), f"{at}.up_proj", self.part.width)


def mixture(ops: Operations, at: str, x: Tensor, before: Tensor) -> Tensor:
    """Token and the one before, weighted channel by channel."""
    weight = ops.parameter(f"{at}.weight", x.shape[-1])
    return ops.add(ops.mul(x, weight), ops.mul(before, ops.neg(weight)))


def received(ops: Operations, x: Tensor, gate: Tensor) -> Tensor:
    """What a token lets through."""
    return ops.mul(ops.sigmoid(gate), x)
