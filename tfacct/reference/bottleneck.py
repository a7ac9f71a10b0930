"""The reference model's attention and networks of narrow tokens."""

from __future__ import annotations

from torch import Tensor, nn

from tfacct.architecture import parts
from tfacct.reference.attention import Heads, Softmax
from tfacct.reference.modules import Activation, Add, Affine, Linear
from tfacct.reference.part_module import PartModule


class NarrowAttention(Heads):
    """Attention of tokens that a product makes narrow, which its result is added to."""

    takes = ()

    def __init__(self, part: parts.NarrowAttention) -> None:
        super().__init__(part)
        self.input, self.shared = (Linear(part.hidden, part.narrow) for _ in range(2))
        self.input_norm, self.shared_norm, self.narrow_norm = (Affine(part.narrow) for _ in range(3))
        self.q_proj, self.k_proj = Linear(part.narrow, self.queries), Linear(part.narrow, self.keys)
        self.o_proj = Linear(self.queries, part.narrow)
        self.softmax, self.narrow_add = Softmax(self.scale), Add()

    def forward(self, x: Tensor) -> Tensor:
        narrow, read = self.input_norm(self.input(x)), self.shared_norm(self.shared(x))
        q = self._split(self.q_proj(read), self.heads)
        k, v = (self._split(each, self.kv_heads) for each in (self.k_proj(read), self.v_proj(x)))
        mixed = self.values(self.softmax(self._scored(q, k), None), v)
        out: Tensor = self.narrow_norm(self.narrow_add(narrow, self.o_proj(mixed.transpose(1, 2).flatten(2))))
        return out


class Network(nn.Module):
    """A network whose result is added to what it reads, scaled and shifted."""

    def __init__(self, part: parts.NarrowNetworks) -> None:
        super().__init__()
        self.up_proj = Linear(part.narrow, part.width)
        self.act = Activation(part.activation)
        self.down_proj = Linear(part.width, part.narrow)
        self.add, self.norm = Add(), Affine(part.narrow)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.norm(self.add(x, self.down_proj(self.act(self.up_proj(x)))))
        return out


class NarrowNetworks(PartModule):
    """Networks of narrow tokens, one after the other, and a product that makes them wide again."""

    def __init__(self, part: parts.NarrowNetworks) -> None:
        super().__init__()
        self.networks = nn.ModuleList(Network(part) for _ in range(part.count))
        self.output = Linear(part.narrow, part.hidden)

    def forward(self, x: Tensor) -> Tensor:
        for network in self.networks:
            x = network(x)
        out: Tensor = self.output(x)
        return out
